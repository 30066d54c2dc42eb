//! `microphone.listen` through the wire, on simulated hardware: denied until granted, a whole sound when it is, each fault told apart, and
//! a fault of sound that is nobody else's business (A1, A5, A6).

use std::time::Duration;

use latchkey_tests::agent::text;
use latchkey_tests::{Agent, Daemon, Line, Room, Start, timed};
use serde_json::json;
use wire::ErrorCode;

/// Longer than one call may take beyond its seconds (PROTOCOL 6).
const BEYOND: Duration = Duration::from_secs(6);

/// A device whose owner may show texts, with simulated parts that get wrong what the words say.
struct Kitchen {
    daemon: Daemon,
    agent: Agent,
    room: Room,
}

impl Kitchen {
    fn new(words: &[&str]) -> Self {
        let room = Room::new();
        let daemon = Start::simulated(&room).arguments(words).up();
        let agent = Agent::default();
        agent.settle(&daemon.line(), &daemon.keeper(), &["display.text"]);
        Self { daemon, agent, room }
    }

    fn allowed(words: &[&str]) -> Self {
        let kitchen = Self::new(words);
        kitchen.daemon.keeper().grant("microphone");
        kitchen
    }

    fn line(&self) -> Line {
        self.daemon.line()
    }

    fn listen(&self, seconds: u64) -> latchkey_tests::link::Outcome {
        self.agent.call(&self.line(), "microphone.listen", json!({ "seconds": seconds }))
    }

    /// The device answers, shows, and is the same process.
    fn goes_on(&self) {
        assert_eq!(self.agent.call(&self.line(), "device.health", json!({})).word(), "ok");
        assert_eq!(self.agent.call(&self.line(), "display.text", text("still here")).word(), "ok");
    }
}

#[test]
fn the_microphone_is_denied_until_it_is_granted_and_then_gives_a_whole_sound() {
    let kitchen = Kitchen::new(&[]);
    assert_eq!(kitchen.listen(1).code(), ErrorCode::Denied);
    kitchen.daemon.keeper().grant("microphone.listen");
    for seconds in [0, 16] {
        assert_eq!(kitchen.listen(seconds).code(), ErrorCode::InvalidArguments, "{seconds}");
    }
    let (heard, took) = timed(|| kitchen.listen(2).value());
    assert_eq!(heard.get("mime").unwrap(), "audio/wav");
    let wav = wire::text::base64_decode(heard.get("data").unwrap().as_str().unwrap()).unwrap();
    assert_eq!(wav.len(), 44 + 2 * 2 * 16_000, "16 bit, 16 kHz, two seconds and a head");
    assert!(took >= Duration::from_millis(1_900) && took < BEYOND, "{took:?}");
    kitchen.daemon.keeper().revoke("microphone");
    assert_eq!(kitchen.listen(1).code(), ErrorCode::Denied);
}

#[test]
fn an_agent_has_a_recording_as_a_file_and_its_keeper_has_it_on_record_with_the_sign() {
    let room = Room::new();
    let daemon = Start::simulated(&room).set("device.name=kitchen").up();
    let keeper = |words: &[&str]| room.latchkeyd(words).well();
    room.latchkey(&["agent", "new", "helper@home.example.org"]).well();
    let link = keeper(&["pair", "--json"]).json()["link"].as_str().unwrap().to_owned();
    let claim = room.latchkey(&["claim", &link, "--no-wait", "--json"]).well().json();
    keeper(&["approve", claim["code"].as_str().unwrap()]);
    room.latchkey(&["claim", "--resume"]).well();
    keeper(&["grant", "microphone"]);
    let listened = room.latchkey(&["listen", "kitchen", "--seconds", "1", "-o", "kitchen.wav", "--json"]).well().json();
    assert_eq!((&listened["mime"], &listened["bytes"]), (&json!("audio/wav"), &json!(32_044)));
    let help = room.latchkey(&["call", "kitchen", "microphone.listen", "seconds=1"]).well();
    assert!(help.out.contains("latchkey listen kitchen -o FILE"), "{}", help.out);
    let records = keeper(&["receipts", "--json"]).json();
    let lit = records.as_array().unwrap().iter().filter(|record| {
        let when = |member: &str| record[member].as_u64();
        record["what"] == "microphone.listen"
            && record["outcome"] == "ok"
            // The sign may have been on since the call before.
            && matches!((when("sign_on_at"), when("ended_at")), (Some(on), Some(ended)) if on + 1_000 <= ended)
    });
    assert_eq!(lit.count(), 2, "{records:#}");
    drop(daemon);
}

#[test]
fn a1_a5_what_a_microphone_gets_wrong_reaches_the_agent_in_time_and_ends_the_sign() {
    for (trouble, words) in [
        ("missing", "there is no microphone on this device"),
        ("busy", "another program uses it"),
        ("unplug", "was unplugged"),
        ("silent", "stands still"),
        ("pollerr", "POLLERR"),
        ("panic", "crashed"),
    ] {
        let kitchen = Kitchen::allowed(&[&format!("microphone={trouble}")]);
        let (outcome, took) = timed(|| kitchen.listen(1));
        assert_eq!(outcome.code(), ErrorCode::HardwareUnavailable, "{trouble}");
        let refusal = outcome.0.unwrap_err();
        assert!(refusal.message.contains(words), "{trouble}: {}", refusal.message);
        assert!(took < BEYOND, "{trouble}: {took:?}");
        kitchen.goes_on();
        let off = || kitchen.daemon.out.find(|line| line.contains("simulated sign: off"));
        assert!(trouble == "missing" || off().is_some(), "{trouble}: the sign goes off");
    }
}

#[test]
fn a1_a_microphone_that_comes_back_is_used_without_a_restart() {
    let kitchen = Kitchen::allowed(&["microphone=missing@0s..3s"]);
    assert_eq!(kitchen.listen(1).code(), ErrorCode::HardwareUnavailable);
    latchkey_tests::until("it is back", || (kitchen.listen(1).word() == "ok").then_some(()));
}

#[test]
fn a6_a_microphone_that_crashes_again_and_again_is_nobody_elses_business() {
    let mut kitchen = Kitchen::allowed(&["microphone=panic"]);
    let pid = kitchen.daemon.pid();
    for _ in 0..8 {
        assert_eq!(kitchen.listen(1).code(), ErrorCode::HardwareUnavailable);
        kitchen.goes_on();
    }
    assert!(kitchen.daemon.alive() && kitchen.daemon.pid() == pid);
    let health = kitchen.agent.call(&kitchen.line(), "device.health", json!({})).value();
    assert_eq!(health.get("sound").unwrap(), &json!({ "input": "present", "output": "present" }));
    assert!(kitchen.room.latchkeyd(&["receipts", "--verify"]).well().out.contains("hold together"));
}

#[test]
fn a1_the_health_says_that_there_is_no_sound_card() {
    let kitchen = Kitchen::new(&["microphone=missing", "speaker=missing"]);
    let health = kitchen.agent.call(&kitchen.line(), "device.health", json!({})).value();
    assert_eq!(health.get("sound").unwrap(), &json!({ "input": "absent", "output": "absent" }));
}

#[test]
fn g8_a_tone_tells_that_a_capture_begins_and_its_absence_holds_up_none() {
    let tone =
        |kitchen: &Kitchen| kitchen.daemon.out.all().iter().filter(|line| line.contains("simulated speaker")).count();
    for (words, tones) in [(&["speaker=missing"][..], 0), (&[][..], 1)] {
        let room = Room::new();
        let daemon = Start::simulated(&room).set("sign.sound=true").arguments(words).up();
        let agent = Agent::default();
        agent.settle(&daemon.line(), &daemon.keeper(), &["microphone"]);
        let kitchen = Kitchen { daemon, agent, room };
        assert_eq!(kitchen.listen(1).word(), "ok", "{words:?}");
        kitchen.daemon.out.await_line("simulated sign: off");
        assert_eq!(tone(&kitchen), tones, "{words:?}");
    }
    let silent = Kitchen::allowed(&[]);
    assert_eq!(silent.listen(1).word(), "ok");
    silent.daemon.out.await_line("simulated sign: off");
    assert_eq!(tone(&silent), 0, "control: without the setting nothing sounds");
}
