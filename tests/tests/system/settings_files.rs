//! A settings file that is broken: one sentence with file, line, key and the nearest key, at start, at a check and at a reload;
//! and a failed reload changes nothing (R1, R3).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use latchkey_tests::{Daemon, Room, Start};
use runtime::keeper::ask::{Ask, Talk, Told};
use rustix::process::Signal;

const GOOD: &str =
    "[device]\nname = \"pantry\"\n\n[link.direct]\nlisten = \"127.0.0.1:0\"\n\n[keeper]\nlisten = \"127.0.0.1:0\"\n";

/// What the broken file says, and words of the sentence.
const BROKEN: &[(&str, &str, &[&str])] = &[
    ("syntax", "[device\nname = \"attic\"\n", &["latchkey.toml:1"]),
    ("an unknown table", "[devices]\nname = \"attic\"\n", &["latchkey.toml:2", "`devices.name`", "`device.name`"]),
    (
        "a misspelt key",
        "[device]\nname = \"attic\"\n\n[camera]\ndevcie = \"x\"\n",
        &["latchkey.toml:5", "`camera.devcie`", "camera.device"],
    ),
    ("a key one level too high", "name = \"attic\"\n", &["latchkey.toml:1", "`name`", "device.name"]),
    (
        "a wrong type",
        "[device]\nname = \"attic\"\n[limits]\nrate_burst = \"many\"\n",
        &["latchkey.toml:4", "`limits.rate_burst`"],
    ),
    (
        "a value out of range",
        "[device]\nname = \"attic\"\n[limits]\nrate_per_second = 0\n",
        &["latchkey.toml:4", "`limits.rate_per_second`"],
    ),
    (
        "no address",
        "[device]\nname = \"attic\"\n[link.direct]\nlisten = \"here\"\n",
        &["latchkey.toml:4", "`link.direct.listen`"],
    ),
    (
        "pages for the whole network",
        "[device]\nname = \"attic\"\n[keeper]\nlisten = \"0.0.0.0:0\"\n",
        &["latchkey.toml:4", "`keeper.listen`"],
    ),
];

fn start(room: &Room) -> Start<'_> {
    Start::bare(room).arguments(&["run", "--simulate"])
}

fn broken(room: &Room, check: impl Fn(&str, &[&str])) {
    for (name, text, words) in BROKEN {
        room.settings(text);
        check(name, words);
    }
}

#[test]
fn a_broken_file_stops_the_start_and_the_check_with_one_sentence() {
    let room = Room::new();
    broken(&room, |name, words| {
        for ended in [start(&room).run(), room.latchkeyd(&["config", "check"])] {
            let ended = ended.refused(1, words);
            assert_eq!(ended.err.trim_end().lines().count(), 1, "{name}: {ended:?}");
        }
        assert!(!room.state().exists(), "{name}: nothing was made");
    });
    room.settings(GOOD);
    room.latchkeyd(&["config", "check"]).well();
    assert_eq!(start(&room).up().keeper().status().name, "pantry", "the control");
}

fn told(room: &Room) -> Told {
    Talk::connect(&room.state()).unwrap().ask(&Ask::Reload).unwrap()
}

/// A flaw, words of the sentence about it, and how the file comes to have it.
type Spoilt<'a> = (&'a str, &'a [&'a str], Box<dyn Fn() + 'a>);

fn same(daemon: &mut Daemon, pid: u32, name: &str) {
    assert!(daemon.alive(), "{name}");
    let status = daemon.keeper().status();
    assert_eq!((status.pid, status.name.as_str()), (Some(pid), "pantry"), "{name}: the old settings are in force");
    let _answers = daemon.line().challenge();
}

#[test]
fn a_failed_reload_says_why_and_changes_nothing_by_command_and_by_sighup() {
    let room = Room::new();
    room.settings(GOOD);
    let mut daemon = start(&room).up();
    let pid = daemon.pid();
    let file = room.config().join("latchkey.toml");
    let gone = || fs::remove_file(&file).unwrap();
    let loose = || {
        room.settings(GOOD);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
    };
    let mut flaws: Vec<Spoilt<'_>> = vec![
        ("the file is gone", &["the settings file is gone"], Box::new(gone)),
        ("others may write it", &["open to other users", "chmod"], Box::new(loose)),
    ];
    for (name, text, words) in BROKEN {
        flaws.push((name, words, Box::new(|| room.settings(text))));
    }
    for (name, words, spoil) in &flaws {
        spoil();
        room.latchkeyd(&["reload"]).refused(1, words);
        same(&mut daemon, pid, name);
        let (known, logged) = (daemon.out.count(), daemon.err.count());
        daemon.signal(Signal::HUP);
        let said = daemon.out.find_after(known, |line| line.contains("the settings stay as they were"));
        let said = said.unwrap_or_else(|| panic!("{name}: nothing was said"));
        for word in *words {
            assert!(said.contains(word), "{name}: no {word} in {said}");
        }
        assert!(daemon.err.find_after(logged, |line| line.contains("the settings were not read anew")).is_some());
        same(&mut daemon, pid, name);
    }
    // The control: a good file is taken, by both ways.
    room.settings(&GOOD.replace("pantry", "cellar"));
    let Told::Reloaded { reload } = told(&room) else { panic!("not reloaded") };
    assert_eq!(reload.changed, ["device.name"]);
    assert_eq!(daemon.keeper().status().name, "cellar");
    room.settings(&GOOD.replace("pantry", "garage"));
    daemon.signal(Signal::HUP);
    daemon.out.await_line("settings were read anew: device.name");
    assert_eq!((daemon.keeper().status().name.as_str(), daemon.pid()), ("garage", pid));
    let records = daemon.keeper().records(0);
    let kept = records.iter().filter(|record| record.what.as_deref() == Some("settings")).count();
    assert_eq!(kept, 2, "a reload that changed something is on record, one that failed is not");
}

#[test]
fn what_cannot_change_in_a_running_device_is_named_and_stays() {
    let room = Room::new();
    room.settings(GOOD);
    let daemon = start(&room).up();
    let address = daemon.direct();
    room.settings(&GOOD.replace("[link.direct]\nlisten = \"127.0.0.1:0\"", "[link.direct]\nlisten = \"127.0.0.1:1\""));
    let ended = room.latchkeyd(&["reload", "--json"]).well().json();
    assert_eq!(ended["restart"], serde_json::json!(["link.direct.listen"]));
    assert_eq!(daemon.line().address, address);
    let _answers = daemon.line().challenge();
}

#[test]
fn a_file_with_a_byte_order_mark_is_never_silently_the_defaults() {
    let room = Room::new();
    room.settings(&format!("\u{feff}{}", GOOD.replace('\n', "\r\n")));
    let checked = room.latchkeyd(&["config", "show", "--json"]);
    match checked.code() {
        0 => assert_eq!(checked.json()["device"]["name"], "pantry"),
        1 => assert!(checked.err.contains("latchkey.toml"), "{checked:?}"),
        other => panic!("{other}: {checked:?}"),
    }
}

#[test]
fn the_environment_and_set_win_over_the_file_and_name_themselves_when_wrong() {
    let room = Room::new();
    room.settings(GOOD);
    let show = |start: Start<'_>| start.arguments(&["config", "show", "--json"]).run();
    let name = |start| show(start).well().json()["device"]["name"].as_str().unwrap().to_owned();
    assert_eq!(name(Start::bare(&room)), "pantry");
    assert_eq!(name(Start::bare(&room).env("LATCHKEY_SET_DEVICE__NAME", "hall")), "hall");
    assert_eq!(name(Start::bare(&room).env("LATCHKEY_SET_DEVICE__NAME", "hall").set("device.name=loft")), "loft");
    show(Start::bare(&room).env("LATCHKEY_SET_DEVICE__NAEM", "hall"))
        .refused(1, &["LATCHKEY_SET_DEVICE__NAEM", "device.name"]);
    show(Start::bare(&room).set("device.naem=hall")).refused(1, &["--set", "device.naem", "device.name"]);
    show(Start::bare(&room).set("device.name")).refused(1, &["key=value"]);
}

#[test]
fn settings_before_the_command_and_behind_it_all_count_and_the_last_one_wins() {
    let room = Room::new();
    let show = |arguments: &[&str]| room.latchkeyd(arguments).well().json();
    let before_and_behind = ["--set", "device.name=hall", "config", "show", "--set", "limits.rate_burst=7", "--json"];
    let shown = show(&before_and_behind);
    assert_eq!((&shown["device"]["name"], &shown["limits"]["rate_burst"]), (&"hall".into(), &7.into()));
    let twice = show(&["--set=device.name=hall", "config", "show", "--json", "--set=device.name=loft"]);
    assert_eq!(twice["device"]["name"], "loft");
}

#[test]
fn config_init_writes_a_file_once_that_check_accepts() {
    let room = Room::new();
    room.latchkeyd(&["config", "init"]).well();
    let written = fs::read(room.config().join("latchkey.toml")).unwrap();
    room.latchkeyd(&["config", "check"]).well();
    room.latchkeyd(&["config", "init"]).refused(1, &["is there already"]);
    assert_eq!(fs::read(room.config().join("latchkey.toml")).unwrap(), written);
}
