//! `latchkeyd doctor` and `latchkeyd hardware`: what they say of a simulated device, of one that is broken, and without one. And that no
//! setting leaves a capture without a sign.

use std::fs;

use latchkey_tests::keeper::short;
use latchkey_tests::{Agent, Ended, Room, Start};
use serde_json::{Value, json};

/// Every part, in the order in which they are told.
const PARTS: [&str; 16] = [
    "settings",
    "state",
    "disk",
    "clock",
    "groups",
    "listen",
    "sign",
    "led",
    "gpio",
    "display",
    "camera",
    "microphone",
    "speaker",
    "speech",
    "handlers",
    "versions",
];

/// Parts that hang on the machine which runs the test, and not on the device.
const OF_THE_MACHINE: [&str; 4] = ["state", "disk", "groups", "versions"];

/// What was said of one part.
#[track_caller]
fn of<'a>(list: &'a Value, part: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|one| one["part"] == part);
    found.unwrap_or_else(|| panic!("nothing of {part}: {list:#}"))
}

#[track_caller]
fn says(list: &Value, part: &str, ok: bool, words: &str) {
    let told = of(list, part);
    assert_eq!(told["ok"], json!(ok), "{told:#}");
    assert!(told["what"].as_str().unwrap().contains(words), "no \"{words}\" in {told:#}");
    assert_eq!(told["mend"].is_null(), ok, "what is broken has a command, what is not has none: {told:#}");
}

fn listed(ended: &Ended) -> Value {
    let list = ended.json();
    let broken = list.as_array().unwrap().iter().any(|one| one["ok"] == json!(false));
    assert_eq!(ended.code(), i32::from(broken), "{ended:?}");
    list
}

#[test]
fn every_part_of_a_running_device_is_tried_under_the_sign_and_only_the_keeper_is_on_record() {
    let room = Room::new();
    let daemon = Start::simulated(&room).up();
    let keeper = daemon.keeper();
    let before = keeper.last();
    let list = listed(&room.latchkeyd(&["doctor", "--json"]));
    let parts: Vec<&str> = list.as_array().unwrap().iter().map(|one| one["part"].as_str().unwrap()).collect();
    assert_eq!(parts, PARTS);
    for one in list.as_array().unwrap() {
        let members: Vec<&String> = one.as_object().unwrap().keys().collect();
        assert_eq!(members, ["part", "ok", "what", "mend"], "{one}");
        if !OF_THE_MACHINE.contains(&one["part"].as_str().unwrap()) {
            assert_eq!(one["ok"], json!(true), "{one:#}");
        }
    }
    says(&list, "listen", true, &format!("answers at {}", daemon.direct()));
    says(&list, "sign", true, "was lit and went off, each read back: simulated; it is simulated");
    says(&list, "led", true, "not there and not needed: sign.led names no LED");
    says(&list, "gpio", true, "not there and not needed: sign.gpio names no line");
    says(&list, "display", true, "not there and not needed: no display page is open");
    says(&list, "camera", true, "the simulated camera took a picture of ");
    says(&list, "microphone", true, "the simulated microphone heard a second of the room, ");
    says(&list, "speaker", true, "the simulated speaker played a tone of one second in ");
    says(&list, "handlers", true, "not there and not needed: no handler lies in the folder");

    daemon.out.await_line("simulated sign: ON");
    let records = latchkey_tests::until("the end of the sign on record", || {
        let records = keeper.records(before);
        (records.iter().filter(|record| record.kind == "sign").count() == 3).then_some(records)
    });
    let all: Vec<_> = records.iter().map(short).collect();
    let count = |words: &str| all.iter().filter(|record| *record == words).count();
    for tried in ["sign", "camera.snapshot", "microphone.listen"] {
        assert_eq!(count(&format!("keeper doctor {tried} ok")), 1, "{all:#?}");
    }
    assert!(records.iter().all(|record| ["keeper", "sign"].contains(&record.kind.as_str())), "{all:#?}");
    for sign in records.iter().filter(|record| record.kind == "sign") {
        let (on, off) = (sign.sign_on_at.unwrap(), sign.sign_off_at.unwrap());
        assert!(off >= on + 2_900, "{sign:#?}");
        // The sign may still be on since the trial before.
        let tried = records.iter().find(|record| record.kind == "keeper" && record.what == sign.what).unwrap();
        assert!(tried.sequence < sign.sequence, "on record before the sign goes off");
    }
    keeper.verify();
}

#[test]
fn the_parts_asked_for_are_told_in_lines_that_a_person_reads() {
    let room = Room::new();
    let _daemon = Start::simulated(&room).up();
    let told = room.latchkeyd(&["doctor", "camera", "sign"]).well();
    let lines: Vec<&str> = told.out.lines().collect();
    let [sign, camera, end] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(sign.starts_with("ok      sign        was lit and went off"), "{sign}");
    assert!(camera.starts_with("ok      camera      the simulated camera took a picture of "), "{camera}");
    assert_eq!(*end, "All that was looked at and is configured works.");
    assert!(told.err.contains("trying the camera: one picture, under the lit sign"), "{}", told.err);
    let unknown = room.latchkeyd(&["doctor", "camra"]);
    assert_eq!(unknown.code(), 2);
    assert!(unknown.err.contains("camera") && unknown.err.contains("'camra'"), "{}", unknown.err);
}

#[test]
fn a_device_whose_sign_or_camera_fails_is_told_apart_from_one_that_works() {
    type Row<'a> = (&'a str, &'a [(&'a str, bool, &'a str)]);
    let rows: [Row<'_>; 6] = [
        ("sign=missing", &[("sign", false, "told to be missing"), ("camera", false, "told to be missing")]),
        ("sign=unconfirmed", &[("sign", false, "did not obey"), ("camera", false, "did not obey")]),
        ("camera=missing", &[("sign", true, "went off"), ("camera", false, "camera")]),
        ("camera=broken", &[("sign", true, "went off"), ("camera", false, "broken pictures")]),
        ("microphone=unplug", &[("camera", true, "took a picture"), ("microphone", false, "was unplugged")]),
        ("speaker=busy", &[("microphone", true, "heard a second"), ("speaker", false, "another program uses it")]),
    ];
    for (trouble, wanted) in rows {
        let room = Room::new();
        let daemon = Start::simulated(&room).arguments(&[trouble]).up();
        let ended = room.latchkeyd(&["doctor", "sign", "camera", "microphone", "speaker", "--json"]);
        let list = listed(&ended);
        for (part, ok, words) in wanted {
            says(&list, part, *ok, words);
        }
        let (broken, ..) = wanted.last().unwrap();
        ended.refused(1, &["work", broken]);
        let text = room.latchkeyd(&["doctor", broken]);
        let begins = format!("BROKEN  {broken}  ");
        assert!(text.out.starts_with(&begins) && text.out.contains("to mend it: "), "{}", text.out);
        // The command for it reaches this device as it stands.
        let state = room.state().display().to_string();
        let mends = text.out.lines().filter(|line| line.contains("to mend it: latchkeyd"));
        assert!(mends.into_iter().all(|line| line.contains(&format!("--state-dir {state}"))), "{}", text.out);
        drop(daemon);
    }
}

#[test]
fn without_a_device_it_tries_by_itself_and_leaves_nothing_behind() {
    let room = Room::new();
    let fresh = listed(&room.latchkeyd(&["doctor", "--json"]));
    says(&fresh, "state", true, "not there and not needed: no device has started in");
    says(&fresh, "listen", true, "can listen on 127.0.0.1:7601 and 127.0.0.1:7602");
    says(&fresh, "display", false, "there is none while latchkeyd does not run");
    says(&fresh, "sign", false, "without it nothing is captured");
    assert!(!room.state().exists(), "nothing was made");

    let led =
        ["--set", "sign.led=none::such", "--set", "sign.gpio=nochip/1", "doctor", "sign", "led", "gpio", "display"];
    let list = listed(&room.latchkeyd(&[&led[..], &["--json"]].concat()));
    says(&list, "led", false, "LED none::such: there is no such LED");
    says(&list, "gpio", false, "GPIO nochip/1: there is no GPIO chip");
    says(&list, "display", true, "which only texts and pictures need");
    assert!(of(&list, "led")["mend"].as_str().unwrap().ends_with("hardware"), "{list:#}");

    let named =
        ["--set", "sign.led=none::such", "--set", "camera.device=usb-None-index0", "doctor", "camera", "--json"];
    says(&listed(&room.latchkeyd(&named)), "camera", false, "in-use sign");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("link.direct.listen={}", taken.local_addr().unwrap());
    let list = listed(&room.latchkeyd(&["--set", &listen, "doctor", "listen", "--json"]));
    says(&list, "listen", false, "something else has 127.0.0.1:");
}

#[test]
fn settings_that_do_not_hold_are_the_first_and_only_thing_it_says() {
    let room = Room::new();
    room.settings("[sign]\nlde = 'a'\n");
    let list = listed(&room.latchkeyd(&["doctor", "--json"]));
    assert_eq!(list.as_array().unwrap().len(), 1, "{list:#}");
    says(&list, "settings", false, "latchkey.toml:2: unknown key `sign.lde`; did you mean `sign.led`?");
}

#[test]
fn hardware_is_listed_as_the_settings_take_it() {
    let room = Room::new();
    let list = room.latchkeyd(&["hardware", "--json"]).well().json();
    for thing in list.as_array().unwrap() {
        let members: Vec<&String> = thing.as_object().unwrap().keys().collect();
        assert_eq!(members, ["kind", "id", "name", "setting", "in_use", "problem"], "{thing}");
    }
    let display = list.as_array().unwrap().iter().find(|thing| thing["kind"] == "display").unwrap();
    assert_eq!((&display["setting"], &display["in_use"]), (&json!("keeper.display"), &json!(true)));
    let text = room.latchkeyd(&["hardware"]).well().out;
    for words in ["LEDs\n", "GPIO lines\n", "Displays\n", "in use", "keeper.display = true"] {
        assert!(text.contains(words), "no \"{words}\" in:\n{text}");
    }
    let leds: Vec<_> = fs::read_dir("/sys/class/leds").into_iter().flatten().flatten().collect();
    assert_eq!(list.as_array().unwrap().iter().filter(|thing| thing["kind"] == "led").count(), leds.len());
    assert!(!room.state().exists(), "looking makes nothing");
}

#[test]
fn what_must_carry_the_sign_is_refused_alike_at_the_check_and_at_the_start() {
    let rows: [(&str, Option<&str>); 6] = [
        ("require = ['display']", None),
        ("led = 'a'\nrequire = ['led']", None),
        ("require = ['led']", Some("`sign.require`: \"led\" must work, but sign.led names none")),
        ("require = ['gpio']", Some("`sign.require`: \"gpio\" must work, but sign.gpio names no line")),
        ("require = ['lde']", Some("is none of \"led\", \"gpio\", \"display\"; did you mean \"led\"?")),
        ("require = []", Some("an empty list would ask for no sign at all")),
    ];
    for (lines, refused) in rows {
        let room = Room::new();
        room.settings(&format!("[sign]\n{lines}\n"));
        let check = room.latchkeyd(&["config", "check"]);
        let start = Start::simulated(&room).spawned_or_ended();
        match refused {
            None => assert!(check.code() == 0 && start.is_none(), "{lines}: {check:?} {start:?}"),
            Some(words) => {
                check.refused(1, &[words, "latchkey.toml:2: "]);
                start.expect("it does not start").refused(1, &[words]);
            }
        }
    }
}

#[test]
fn g8_no_setting_leaves_a_capture_without_a_sign() {
    // Every setting that touches the sign, each alone and in the combinations that could leave it out.
    let rows: [&[&str]; 8] = [
        &[],
        &["keeper.display=false"],
        &["sign.led=none::such"],
        &["sign.gpio=nochip/1"],
        &["sign.require=[\"display\"]"],
        &["sign.led=none::such", "sign.require=[\"display\"]"],
        &["sign.sound=true", "keeper.display=false"],
        &["sign.led=none::such", "sign.gpio=nochip/1", "keeper.display=false"],
    ];
    let owner = Agent::default();
    for sets in rows {
        let room = Room::new();
        let mut start = Start::bare(&room).set("link.direct.listen=127.0.0.1:0").set("keeper.listen=127.0.0.1:0");
        for set in sets {
            start = start.set(set);
        }
        let daemon = start.arguments(&["run"]).up();
        let line = daemon.line();
        owner.settle(&line, &daemon.keeper(), &["camera"]);
        owner.activate(&line, 60_000);
        let refusal = owner.call(&line, "camera.snapshot", json!({})).0.unwrap_err();
        assert_eq!(refusal.error, wire::ErrorCode::HardwareUnavailable, "{sets:?}: {refusal:?}");
        assert!(refusal.message.contains("in-use sign"), "{sets:?}: {refusal:?}");
    }
    // The control: under a sign that works, even if it only pretends with the camera, there is a picture.
    let room = Room::new();
    let daemon = Start::simulated(&room).set("sign.sound=true").set("keeper.display=false").up();
    let line = daemon.line();
    owner.settle(&line, &daemon.keeper(), &["camera"]);
    owner.activate(&line, 60_000);
    owner.call(&line, "camera.snapshot", json!({})).value();
}
