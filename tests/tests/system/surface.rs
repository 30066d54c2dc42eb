//! What scripts rely on: exit codes, sentences and the members of `--json`, through the two programs.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use latchkey_tests::programs::{command, program, run, run_with};
use latchkey_tests::{Daemon, Ended, Room, Start};
use serde_json::{Value, json};
use wire::Signer as _;

const AGENT: &str = "helper@home.example.org";

/// A device claimed through the two programs, with these grants on.
fn claimed(room: &Room, grants: &[&str]) -> Daemon {
    let daemon = Start::simulated(room).set("device.name=kitchen").up();
    room.latchkey(&["agent", "new", AGENT]).well();
    claim(room);
    for grant in grants {
        room.latchkeyd(&["grant", grant]).well();
    }
    daemon
}

/// Pairs, claims and approves by the code; gives what `claim --json` printed.
fn claim(room: &Room) -> Value {
    let asked = room.latchkey(&["claim", &link(room), "--name", "kitchen", "--no-wait", "--json"]).well().json();
    room.latchkeyd(&["approve", asked["code"].as_str().unwrap()]).well();
    asked
}

fn link(room: &Room) -> String {
    room.latchkeyd(&["pair", "--json"]).well().json()["link"].as_str().unwrap().to_owned()
}

/// Exactly these members.
#[track_caller]
fn members(value: &Value, names: &[&str]) {
    let found: BTreeSet<_> =
        value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect();
    assert_eq!(found, names.iter().copied().collect(), "{value}");
}

#[test]
fn the_json_of_the_keepers_commands_has_the_members_that_scripts_rely_on() {
    let room = Room::new();
    let mut daemon = claimed(&room, &["camera"]);
    let key = daemon.line().device;
    room.latchkey(&["snapshot", "kitchen", "-o", "a.jpg"]).well();
    let json = |arguments: &[&str]| room.latchkeyd(&[arguments, &["--json"]].concat()).well().json();

    let claims = json(&["claims"]);
    members(&claims[0], &["id", "kind", "agent", "key", "code", "state", "expires_at"]);
    assert_eq!((&claims[0]["agent"], &claims[0]["state"]), (&json!(AGENT), &json!("approved")));
    let grants = json(&["grants"]);
    members(&grants[0], &["name", "on", "capabilities", "since"]);
    assert_eq!((&grants[0]["name"], &grants[0]["on"]), (&json!("camera"), &json!(true)));
    // A capability's name works like its grant's.
    let granted = json(&["grant", "camera.snapshot"]);
    members(&granted, &["grant", "changed"]);
    assert_eq!((&granted["grant"]["name"], &granted["changed"]), (&json!("camera"), &json!(false)));
    assert_eq!(json(&["revoke", "camera.snapshot"])["changed"], json!(true));
    let receipts = json(&["receipts"]);
    for record in receipts.as_array().unwrap() {
        members(
            record,
            &[
                "sequence",
                "kind",
                "ownership",
                "id",
                "what",
                "received_at",
                "ended_at",
                "outcome",
                "sign_on_at",
                "sign_off_at",
                "hash",
            ],
        );
    }
    let verified = json(&["receipts", "--verify"]);
    members(&verified, &["ok", "count", "first", "last", "problem"]);
    assert_eq!(verified["ok"], json!(true));
    let status = json(&["status"]);
    members(
        &status,
        &[
            "device",
            "fingerprint",
            "name",
            "version",
            "simulated",
            "running",
            "pid",
            "owner",
            "ownership",
            "active_until",
            "pairing_until",
            "waiting",
            "grants_on",
            "waiting_handlers",
            "journal",
            "sign",
            "notices",
            "tree",
            "address",
        ],
    );
    members(&status["owner"], &["agent", "key", "fingerprint", "since"]);
    members(&status["journal"], &["records", "first", "last", "head", "writable"]);
    members(&status["address"], &["tls", "host", "port", "direct", "display", "pid", "simulated"]);
    members(
        &status["tree"]["root"],
        &[
            "name",
            "state",
            "restarts",
            "last_error",
            "queued",
            "running",
            "abandoned",
            "calls",
            "last_ms",
            "longest_ms",
            "children",
        ],
    );
    let shown = json(&["key"]);
    members(&shown, &["key", "fingerprint"]);
    assert_eq!((&shown["key"], &shown["fingerprint"]), (&json!(key.to_string()), &json!(key.fingerprint())));
    members(&json(&["reload"]), &["changed", "restart"]);
    members(&json(&["deactivate"]), &["message"]);
    members(&json(&["restart", "camera.snapshot"]), &["message"]);
    members(&json(&["release", "--yes"]), &["was"]);
    let pair = json(&["pair"]);
    members(&pair, &["link", "key", "fingerprint", "expires_ms"]);
    assert!(pair["link"].as_str().unwrap().contains(&format!("/#{key}.")), "{pair}");
    assert_eq!((&pair["key"], &pair["fingerprint"]), (&json!(key.to_string()), &json!(key.fingerprint())));
    members(
        &json(&["config", "show"]),
        &["device", "link", "keeper", "camera", "audio", "speech", "quiet", "sign", "handlers", "limits", "log"],
    );

    // What needs no daemon works without one, with the same members, and changes nothing.
    assert_eq!(daemon.stop(), 0);
    let before = fs::read(room.state().join("state.db")).unwrap();
    let asleep = json(&["status"]);
    assert_eq!(asleep.as_object().unwrap().len(), status.as_object().unwrap().len());
    assert_eq!((&asleep["running"], &asleep["pid"], &asleep["tree"]), (&json!(false), &json!(null), &json!(null)));
    for (order, count) in [
        (["claims"].as_slice(), Some(1)),
        (&["receipts", "--last", "500"], None),
        (&["key"], None),
        (&["grants"], None),
    ] {
        let value = json(order);
        assert!(count.is_none_or(|count| value.as_array().unwrap().len() == count), "{value}");
    }
    assert_eq!(json(&["receipts", "--verify"])["ok"], json!(true));
    assert_eq!(fs::read(room.state().join("state.db")).unwrap(), before);
}

#[test]
fn the_json_of_the_agents_commands_has_the_members_that_scripts_rely_on() {
    let room = Room::new();
    let daemon = Start::simulated(&room).set("device.name=kitchen").up();
    let json = |arguments: &[&str]| room.latchkey(&[arguments, &["--json"]].concat()).well().json();
    members(&json(&["agent", "new", AGENT]), &["agent", "key", "fingerprint"]);
    members(&json(&["agent", "list"])[0], &["agent", "key", "fingerprint"]);
    members(&json(&["agent", "show"]), &["agent", "key", "fingerprint"]);
    let asked = claim(&room);
    members(&asked, &["device", "key", "fingerprint", "agent", "id", "code", "state", "expires_at"]);
    assert_eq!((&asked["state"], &asked["key"]), (&json!("pending"), &json!(daemon.line().device.to_string())));
    for grant in ["camera", "display.text"] {
        room.latchkeyd(&["grant", grant]).well();
    }
    let devices = json(&["devices"]);
    members(&devices[0], &["name", "key", "fingerprint", "agent", "address", "state", "change", "maybe_active_ms"]);
    assert_eq!((&devices[0]["name"], &devices[0]["state"]), (&json!("kitchen"), &json!("owned")));
    let registration = json(&["capabilities", "kitchen"]);
    members(
        &registration,
        &["device", "name", "protocol", "owner", "active", "active_until", "simulated", "capabilities"],
    );
    members(
        &registration["capabilities"][0],
        &["name", "description", "arguments", "effect", "activation", "grant", "captures", "timeout_ms", "state"],
    );
    members(&json(&["activate", "kitchen"]), &["device", "active", "lease_ms"]);
    members(&json(&["snapshot", "kitchen", "-o", "a.jpg"]), &["device", "id", "file", "mime", "bytes"]);
    members(&json(&["show", "kitchen", "hello"]), &["device", "id", "capability", "value"]);
    let called = json(&["call", "kitchen", "display.text", "text=hello"]);
    members(&called, &["device", "id", "value"]);
    members(&json(&["cancel", "kitchen", called["id"].as_str().unwrap()]), &["device", "id", "cancelled"]);
    let health = json(&["health", "kitchen"]);
    for member in [
        "uptime_ms",
        "version",
        "simulated",
        "handlers",
        "capabilities",
        "links",
        "sign",
        "journal",
        "clock",
        "memory",
        "disk",
        "load",
    ] {
        assert!(health.get(member).is_some(), "{member}: {health}");
    }
    assert_eq!(health["simulated"], json!(true));
    members(&json(&["deactivate", "kitchen"]), &["device", "active"]);
    members(
        &json(&["release", "kitchen", "--no-wait"]),
        &["device", "key", "fingerprint", "agent", "id", "code", "state", "expires_at"],
    );
    room.latchkeyd(&["approve", "release"]).well();
    members(&json(&["forget", "kitchen"]), &["device", "forgotten"]);
}

#[test]
fn latchkeyd_ends_with_the_code_of_each_kind_of_failure_and_one_sentence() {
    let room = Room::new();
    // Nobody there: 4. Nothing there at all: 1.
    room.latchkeyd(&["pair"]).refused(4, &["latchkeyd is not running", "start it with: latchkeyd ", " run"]);
    room.latchkeyd(&["status"]).refused(1, &["no device in", "latchkeyd "]);
    let daemon = claimed(&room, &[]);
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["--version"], 0, &[]),
        (&["status"], 0, &[]),
        (&["grant", "camera"], 0, &[]),
        (&["approve", "999999"], 1, &["nothing waits under 999999"]),
        (&["grant", "telepathy"], 1, &["telepathy"]),
        (&["grant", "display.sound"], 1, &["there is no grant display.sound here", "did you mean"]),
        (&["restart", "speaker.shout"], 1, &["there is no speaker.shout here"]),
        (&["verify-export", "nothing.receipts"], 1, &["cannot read nothing.receipts"]),
        (&["frobnicate"], 2, &["frobnicate"]),
        (&["grant"], 2, &["NAME"]),
        (&["--set", "device.name=x", "pair", "--frob"], 2, &["--frob"]),
        (&["verify-export", "x", "--key", "short"], 2, &["--key"]),
        (&["release"], 2, &["--yes"]),
        (&["pair"], 3, &["is owned by helper@home.example.org", "latchkeyd release"]),
    ];
    for (arguments, code, words) in rows {
        let ended = room.latchkeyd(arguments).refused(*code, words);
        if ![0, 2].contains(code) {
            assert_eq!(ended.err.trim_end().lines().count(), 1, "{arguments:?}: {ended:?}");
            assert!(ended.out.is_empty(), "{arguments:?}: {ended:?}");
        }
    }
    drop(daemon);
    room.latchkeyd(&["grant", "camera"]).refused(4, &["latchkeyd is not running"]);
}

#[test]
fn latchkey_ends_with_the_code_of_each_kind_of_failure_and_one_sentence() {
    let room = Room::new();
    room.latchkey(&["health", "kitchen"]).refused(2, &["there is no agent yet", "latchkey agent new"]);
    let mut daemon = claimed(&room, &["display.text"]);
    let used = daemon.line();
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["health", "kitchen"], 0, &[]),
        (&["show", "kitchen", "hello"], 0, &[]),
        (&["agent", "new", AGENT], 1, &["has a key already"]),
        (&["show", "cellar", "hello"], 2, &["cellar", "latchkey devices"]),
        (&["call", "kitchen", "display.text"], 2, &["text", "nothing was sent", "latchkey capabilities kitchen"]),
        (&["call", "kitchen", "display.text", "text=a", "size=3"], 2, &["size", "nothing was sent"]),
        (&["call", "kitchen", "display.text", "{\"text\":7}"], 2, &["text", "nothing was sent"]),
        (&["agent", "new", "nobody"], 2, &["not a full agent address", "for example"]),
        (&["frobnicate"], 2, &["frobnicate"]),
        (&["snapshot", "kitchen"], 2, &["--output"]),
        (
            &["snapshot", "kitchen", "-o", "a.jpg"],
            3,
            &["camera is not granted on kitchen; at the device run: latchkeyd grant camera"],
        ),
        (
            &["call", "kitchen", "display.txet", "text=a"],
            3,
            &["declares no display.txet", "did you mean display.text?"],
        ),
        (&["deactivate", "kitchen"], 0, &[]),
        (&["show", "kitchen", "hello", "--no-activate"], 3, &["kitchen is not active; run: latchkey activate kitchen"]),
    ];
    for (arguments, code, words) in rows {
        let ended = room.latchkey(arguments).refused(*code, words);
        if ![0, 2].contains(code) {
            assert_eq!(ended.err.trim_end().lines().filter(|line| line.starts_with("error:")).count(), 1, "{ended:?}");
            assert!(ended.out.is_empty(), "{arguments:?}: {ended:?}");
        }
    }
    assert!(!room.file("a.jpg").exists(), "no picture, no file");
    // Released behind its back: 3, with what to look at.
    room.latchkeyd(&["release", "--yes"]).well();
    room.latchkey(&["health", "kitchen"]).refused(3, &["answered 403", "latchkeyd status"]);
    // A claim that nobody approves in time: 3. A used link: 3.
    room.latchkey(&["forget", "kitchen"]).well();
    let stale = link(&room);
    room.latchkey(&["--timeout", "1", "claim", &stale]).refused(3, &[]);
    let code = room.latchkeyd(&["claims", "--json"]).well().json();
    let code = code.as_array().unwrap().iter().find(|claim| claim["state"] == "pending").unwrap()["code"].clone();
    room.latchkeyd(&["refuse", code.as_str().unwrap()]).well();
    let fresh = link(&room);
    assert_ne!(fresh, stale);
    let other = room.file("other");
    room.latchkey(&["--state-dir", other.to_str().unwrap(), "agent", "new", "other@home.example.org"]).well();
    room.latchkey(&["--state-dir", other.to_str().unwrap(), "claim", &stale]).refused(3, &["latchkeyd pair"]);
    // Nobody there: 4. Somebody there who says nothing: 4.
    claim(&room);
    assert_eq!(daemon.stop(), 0);
    room.latchkey(&["health", "kitchen"]).refused(4, &["nothing listens", "is latchkeyd running on kitchen"]);
    let _silent = TcpListener::bind(used.address).unwrap();
    room.latchkey(&["--timeout", "1", "health", "kitchen"]).refused(4, &["kitchen", "--timeout"]);
}

#[test]
fn a_device_that_dies_under_a_change_leaves_the_outcome_unknown_and_says_so_again_by_its_id() {
    let room = Room::new();
    let mut device = command(&room, Path::new(env!("CARGO_BIN_EXE_crash_device")));
    device.args(["HandlerActed", "display.text"]).arg(room.file("effects"));
    let mut device = Start::with(&room, device).up();
    let address = device.direct().to_string();
    room.latchkey(&["agent", "new", AGENT]).well();
    claim(&room);
    room.latchkeyd(&["grant", "display.text"]).well();
    let mut showing = command(&room, &program("latchkey"));
    showing.args(["show", "kitchen", "hello", "--json"]);
    let showing = std::thread::spawn(move || run(showing));
    device.out.await_line("at HandlerActed");
    device.kill();
    let ended = showing.join().unwrap().refused(5, &["may have been done", "never runs twice", "--id"]);
    let id = ended.err.split("--id ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let device = Start::bare(&room)
        .set(&format!("link.direct.listen={address}"))
        .set("keeper.listen=127.0.0.1:0")
        .arguments(&["run", "--simulate"])
        .up();
    room.latchkey(&["call", "kitchen", "display.text", "text=hello", "--id", &id])
        .refused(5, &["nothing proves how it ended", "latchkeyd receipts"]);
    assert!(!device.out.all().iter().any(|line| line.contains("simulated screen:")), "it does not run twice");
    room.latchkey(&["show", "kitchen", "hello"]).well();
}

#[test]
fn a_controllers_folder_or_key_open_to_others_is_refused_with_the_mend() {
    let room = Room::new();
    let _daemon = claimed(&room, &[]);
    let key = room.controller().join("agents").join(AGENT).join("key");
    for (path, mode, mend) in [(room.controller(), 0o755, "chmod 700"), (key, 0o644, "chmod 600")] {
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused =
            room.latchkey(&["health", "kitchen"]).refused(1, &["open to other users", mend, path.to_str().unwrap()]);
        let ordered = refused.err.trim_end().rsplit_once("run: ").expect("a mend").1.to_owned();
        let mut shell = command(&room, Path::new("/bin/sh"));
        shell.args(["-c", &ordered]);
        run(shell).well();
        assert_eq!(fs::metadata(&path).unwrap().permissions(), before);
        room.latchkey(&["health", "kitchen"]).well();
    }
}

const ESCAPES: [char; 4] = ['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}'];

#[track_caller]
fn harmless(ended: &Ended) {
    for text in [&ended.out, &ended.err] {
        assert!(!text.contains(ESCAPES), "{text:?}");
    }
}

#[test]
fn pipes_and_no_color_get_no_escape_bytes_and_a_terminal_may() {
    let room = Room::new();
    let daemon = claimed(&room, &["camera"]);
    let keepers: &[&[&str]] = &[
        &["status"],
        &["grants"],
        &["claims"],
        &["receipts"],
        &["key"],
        &["grant", "nothing"],
        &["--help"],
        &["config", "show"],
    ];
    let agents: &[&[&str]] =
        &[&["devices"], &["capabilities", "kitchen"], &["health", "kitchen"], &["show", "kitchen", "x"], &["--help"]];
    keepers.iter().for_each(|arguments| harmless(&room.latchkeyd(arguments)));
    agents.iter().for_each(|arguments| harmless(&room.latchkey(arguments)));
    for line in daemon.out.all().iter().chain(&daemon.err.all()) {
        assert!(!line.contains(ESCAPES), "{line:?}");
    }
    // At a terminal, made by script(1): NO_COLOR is respected, and without it there may be colour.
    let terminal = |arguments: &str, no_color: bool| {
        let mut script = command(&room, Path::new("script"));
        script
            .args(["-qec", &format!("{} {arguments}", program("latchkeyd").display()), "/dev/null"])
            .env("TERM", "xterm");
        if no_color {
            script.env("NO_COLOR", "1");
        }
        run_with(script, b"").well().out
    };
    assert!(!terminal("status", true).contains('\u{1b}'));
    assert!(terminal("status", false).contains('\u{1b}'), "the control: colour where a person looks");
}

#[test]
fn text_that_would_steer_a_terminal_is_shown_harmless_wherever_it_comes_from() {
    const HOSTILE: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{202e}txet";
    let room = Room::new();
    let daemon = claimed(&room, &["display.text"]);
    room.latchkey(&["show", "kitchen", HOSTILE]).well();
    let shown = daemon.out.await_line("simulated screen:");
    assert!(!shown.contains(ESCAPES) && shown.contains("pwned"), "{shown:?}");
    for arguments in [["grant", HOSTILE], ["approve", HOSTILE], ["restart", HOSTILE], ["revoke", HOSTILE]] {
        let ended = room.latchkeyd(&arguments);
        harmless(&ended);
        assert!(ended.code() != 0, "{ended:?}");
    }
    for arguments in [["health", HOSTILE], ["capabilities", HOSTILE], ["claim", HOSTILE]] {
        let ended = room.latchkey(&arguments);
        harmless(&ended);
        assert!(ended.code() != 0, "{ended:?}");
    }
    harmless(&room.latchkeyd(&["--set", &format!("device.name={HOSTILE}"), "config", "check"]));
    harmless(&room.latchkeyd(&["--set", &format!("{HOSTILE}=1"), "config", "check"]));
    harmless(&room.latchkeyd(&["--state-dir", &format!("{}/{HOSTILE}", room.path().display()), "status"]));
    harmless(&room.latchkeyd(&["verify-export", HOSTILE]));
    room.settings(&format!("[device]\nname = \"pantry\"\n\"{}\" = 1\n", "\\u001b]0;pwned\\u0007"));
    let reload = room.latchkeyd(&["reload"]);
    harmless(&reload);
    assert_eq!(reload.code(), 1);
    for line in daemon.out.all().iter().chain(&daemon.err.all()) {
        assert!(!line.contains(ESCAPES), "{line:?}");
    }
}

#[test]
fn every_flipped_dropped_moved_or_cut_record_of_an_export_is_noticed() {
    let room = Room::new();
    let daemon = claimed(&room, &["display.text"]);
    for text in ["one", "two"] {
        room.latchkey(&["show", "kitchen", text]).well();
    }
    let key = daemon.line().device.to_string();
    let exported = room.latchkeyd(&["receipts", "--export", "kitchen.receipts", "--json"]).well().json();
    let file = room.file("kitchen.receipts");
    let whole = fs::read(&file).unwrap();
    let count = usize::try_from(exported["count"].as_u64().unwrap()).unwrap();
    let check = |bytes: &[u8], key: &str| {
        fs::write(&file, bytes).unwrap();
        room.latchkeyd(&["verify-export", "kitchen.receipts", &format!("--key={key}"), "--json"])
    };
    let verified = check(&whole, &key).well().json();
    assert_eq!((&verified["ok"], verified["count"].as_u64()), (&json!(true), u64::try_from(count).ok()));
    check(&whole, &latchkey_tests::Agent::default().public().to_string()).refused(1, &["does not hold"]);

    let records = split(&whole, count);
    let noticed = |what: &str, bytes: &[u8]| {
        let ended = check(bytes, &key);
        assert_eq!(ended.code(), 1, "{what}: {ended:?}");
        assert!(ended.err.contains("does not hold"), "{what}: {ended:?}");
    };
    for at in 0..count {
        let middle = records[..at].iter().map(|record| record.len()).sum::<usize>() + records[at].len() / 2;
        let mut flipped = whole.clone();
        flipped[middle] ^= 1;
        noticed(&format!("a bit of record {at}"), &flipped);
        let dropped: Vec<_> = records
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != at)
            .flat_map(|(_, record)| record.to_vec())
            .collect();
        noticed(&format!("without record {at}"), &dropped);
        let mut moved = records.clone();
        if at + 1 < count {
            moved.swap(at, at + 1);
            noticed(&format!("records {at} and the next one swapped"), &moved.concat());
        }
    }
    noticed("the end is cut", &whole[..whole.len() - 1]);
    noticed("the head is cut", &records[..count].concat());
    noticed("something follows", &[whole.as_slice(), &[0]].concat());
}

/// One in sixty-four keys begins with a dash, and is a value all the same.
#[test]
fn a_key_that_begins_with_a_dash_is_taken_wherever_a_key_is_named() {
    let dashed = || {
        let seeds = std::iter::repeat_with(latchkey_tests::agent::random::<32>);
        let mut seeds = seeds.map(|seed| (seed, wire::SecretKey::from_seed(&seed).public().to_string()));
        seeds.find(|(_, key)| key.starts_with('-')).unwrap()
    };
    let room = Room::new();
    let (seed, key) = dashed();
    room.place_key(&seed);
    let _daemon = claimed(&room, &[]);
    room.latchkeyd(&["receipts", "--export", "kitchen.receipts"]).well();
    room.latchkeyd(&["verify-export", "kitchen.receipts", "--key", &key]).well();
    let (_, heir) = dashed();
    let words = ["transfer", "kitchen", "--to", "heir@home.example.org", "--key", &heir, "--no-wait", "--json"];
    assert_eq!(room.latchkey(&words).well().json()["state"], json!("pending"));
}

/// The records of an export, and what closes it. Each record is a map of 13 members: one starts where one ends.
fn split(export: &[u8], count: usize) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = export;
    for _ in 0..count {
        let end = (1..=rest.len()).find(|end| wire::Record::from_cbor(&rest[..*end]).is_ok()).expect("a record");
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts.push(rest);
    parts
}
