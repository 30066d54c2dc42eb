//! `speaker.say` through the wire: on simulated speech and a simulated speaker here, with the real engine in `engine`, by ear in `ear`
//! (T1, T3 to T6).

mod ear;
mod engine;

use std::time::Duration;

use latchkey_tests::agent::{fresh_id, invoke, text};
use latchkey_tests::keeper::short;
use latchkey_tests::link::Outcome;
use latchkey_tests::{Agent, Daemon, Inside, Line, Room, Start, timed, until};
use runtime::Rehearsal;
use serde_json::json;
use wire::envelope::seal;
use wire::{ErrorCode, Head, OwnerRequest};

/// A device whose owner may have it speak.
struct Kitchen {
    daemon: Daemon,
    agent: Agent,
    room: Room,
}

impl Kitchen {
    /// With simulated parts that get wrong what the words say.
    fn simulated(words: &[&str]) -> Self {
        let room = Room::new();
        let daemon = Start::simulated(&room).arguments(words).up();
        Self::settled(room, daemon)
    }

    fn settled(room: Room, daemon: Daemon) -> Self {
        let agent = Agent::default();
        agent.settle(&daemon.line(), &daemon.keeper(), &["display.text", "speaker.say"]);
        Self { daemon, agent, room }
    }

    fn line(&self) -> Line {
        self.daemon.line()
    }

    fn say(&self, words: &str) -> Outcome {
        self.agent.call(&self.line(), "speaker.say", text(words))
    }

    /// What was spoken so far, as the simulation tells it.
    fn spoken(&self) -> Vec<String> {
        let lines = self.daemon.out.all();
        lines.iter().filter_map(|line| line.split_once("simulated speech: ")).map(|(_, text)| text.to_owned()).collect()
    }

    /// The device answers, and is the same process.
    fn goes_on(&mut self) {
        let (health, took) = timed(|| self.agent.call(&self.line(), "device.health", json!({})));
        assert_eq!(health.word(), "ok");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(self.daemon.alive());
    }
}

/// Refused with this code, and these words in the message.
#[track_caller]
fn refused(outcome: Outcome, code: ErrorCode, words: &str) {
    let refusal = outcome.0.map(|value| panic!("said: {value:?}")).unwrap_err();
    assert_eq!(refusal.error, code, "{}", refusal.message);
    assert!(refusal.message.contains(words), "{}", refusal.message);
}

#[test]
fn nothing_is_said_until_it_is_granted_and_then_once_for_each_id_and_on_record() {
    let kitchen = Kitchen::simulated(&[]);
    let keeper = kitchen.daemon.keeper();
    keeper.revoke("speaker.say");
    assert_eq!(kitchen.say("denied").code(), ErrorCode::Denied);
    keeper.grant("speaker.say");
    let (id, before) = (fresh_id(), keeper.last());
    for _ in 0..2 {
        let value = kitchen.agent.call_as(&kitchen.line(), id, "speaker.say", text("dinner is ready")).value();
        assert_eq!(serde_json::to_value(value).unwrap(), json!({}));
    }
    assert_eq!(kitchen.spoken(), ["\"dinner is ready\""]);
    kitchen.daemon.out.await_line("simulated speaker: plays 0.9 s of sound");
    let records: Vec<String> = keeper.records(before).iter().map(short).collect();
    assert_eq!(records[..2], ["call speaker.say started", "call speaker.say ok"], "{records:?}");
    let other = kitchen.agent.call_as(&kitchen.line(), id, "speaker.say", text("something else"));
    assert_eq!(other.code(), ErrorCode::IdReused);
    assert_eq!(kitchen.spoken().len(), 1);
}

/// T1, T4, T5: nothing in a text is an order.
#[test]
fn t1_t4_options_markup_and_emoji_are_said_as_the_words_they_are() {
    let kitchen = Kitchen::simulated(&[]);
    let rows = [
        ("-w/tmp/pwn.wav hello", "\"-w/tmp/pwn.wav hello\""),
        ("- milk", "\"- milk\""),
        ("a <break time=\"9999999s\"/> b & c", "\"a <break time=\"9999999s\"/> b & c\""),
        ("20 C \u{1f384}\u{1f384}\u{1f384} done", "\"20 C \u{1f384}\u{1f384}\u{1f384} done\""),
        ("[[h@l@U]]\nnow\u{1b}[2J", "\"[ [h@l@U]] now[2J\""),
    ];
    for (words, spoken) in rows {
        kitchen.say(words).value();
        assert_eq!(kitchen.spoken().last().unwrap(), spoken);
    }
    refused(kitchen.say(" \u{202e}\n"), ErrorCode::InvalidArguments, "text: nothing in it can be spoken");
}

/// T3, T5: what is too long or no text at all never reaches an engine.
#[test]
fn t3_t5_a_text_that_is_too_long_by_a_byte_or_no_utf8_reaches_no_engine() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line) = (Agent::default(), device.line());
    owner.settle(&line, &device.keeper(), &["speaker.say"]);
    device.simulation.speaker.at_once(true);
    let say = |words: &str| owner.call(&line, "speaker.say", text(words));
    let emoji_at = |bytes: usize| format!("{}\u{1f384}", " ".repeat(bytes));
    for bytes in [497, 498, 499, 500] {
        refused(say(&emoji_at(bytes)), ErrorCode::InvalidArguments, "text");
    }
    refused(say("a\0b"), ErrorCode::InvalidArguments, "text");
    let signed = |mark: &[u8]| {
        let head = Head { id: fresh_id(), challenge: line.challenge(), to: line.device.clone() };
        let body = invoke("speaker.say", text("MARK")).to_body(&head);
        let at = body.windows(4).position(|four| four == b"MARK").unwrap();
        let body = [&body[..at], mark, &body[at + 4..]].concat();
        line.post(&seal(&owner.key, &body).into_bytes())
    };
    assert!(signed(b"\xF0\x9F\x8E").is_forbidden());
    assert_eq!(device.simulation.speech.count(), 0);
    // The controls: as long as it may be, and the same by hand with four bytes that are text.
    say(&emoji_at(496)).value();
    assert_eq!(signed("\u{1f384}".as_bytes()).outcome(&line.device).word(), "ok");
    assert_eq!(device.simulation.speech.count(), 2);
}

/// T6, and every other way in which speech fails: the reason reaches the agent, the record says it, the device goes on.
#[test]
fn t6_what_an_engine_or_a_speaker_gets_wrong_reaches_the_agent_and_the_record() {
    let rows = [
        ("speech=no-engine", ErrorCode::HardwareUnavailable, "there is no speech engine"),
        ("speech=crash", ErrorCode::Failed, "nothing was said: the speech engine of the simulation crashed"),
        ("speech=garbage", ErrorCode::Failed, "gave no sound that can be played"),
        ("speaker=missing", ErrorCode::HardwareUnavailable, "speaker"),
        ("speaker=busy", ErrorCode::HardwareUnavailable, "another program uses it"),
        ("speaker=unplug", ErrorCode::HardwareUnavailable, "was unplugged"),
        ("speaker=panic", ErrorCode::HardwareUnavailable, "crashed"),
    ];
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.settle(&line, &keeper, &["speaker.say"]);
    let say = |words: &str| owner.call(&line, "speaker.say", text(words));
    for (word, code, sentence) in rows {
        let before = keeper.last();
        device.simulation.rehearse(&Rehearsal::parse(&[word.to_owned()]).unwrap());
        refused(say("press the buttons"), code, sentence);
        let last = keeper.records(before).last().map(short).unwrap();
        assert_eq!(last, format!("call speaker.say {}", code.as_str()), "{word}");
        assert_eq!(owner.call(&line, "device.health", json!({})).word(), "ok", "{word}");
        device.simulation.rehearse(&Rehearsal::default());
        assert_eq!(say("and again").word(), "ok", "after {word}");
    }
}

#[test]
fn an_engine_that_hangs_holds_the_one_place_until_it_is_cancelled_and_what_it_did_is_unknown() {
    let mut kitchen = Kitchen::simulated(&["speech=hang"]);
    let (line, id) = (kitchen.line(), fresh_id());
    let request = invoke("speaker.say", text("wait"));
    let sealed = kitchen.agent.seal(&line.device, id, line.challenge(), &request);
    let calling = line.clone();
    let waiting = std::thread::spawn(move || calling.post(&sealed).outcome(&calling.device));
    let keeper = kitchen.daemon.keeper();
    until("it is at work", || keeper.records(0).iter().map(short).find(|record| record == "call speaker.say started"));
    refused(kitchen.say("me too"), ErrorCode::Busy, "");
    kitchen.goes_on();
    kitchen.agent.ask(&line, fresh_id(), &OwnerRequest::Cancel { target: id }).value();
    assert_eq!(waiting.join().unwrap().code(), ErrorCode::UnknownOutcome);
    kitchen.goes_on();
}

/// T4.
#[test]
fn t4_speech_without_end_is_cut_before_the_call_is_and_the_value_says_where() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line) = (Agent::default(), device.line());
    owner.settle(&line, &device.keeper(), &["speaker.say"]);
    device.simulation.speaker.at_once(true);
    device.simulation.speech.trouble(Some(handlers::SpeechTrouble::Endless));
    let value = owner.call(&line, "speaker.say", text("on and on")).value();
    let cut_ms = value.get("cut_ms").and_then(serde_json::Value::as_u64).unwrap();
    assert!((50_000..=57_000).contains(&cut_ms), "{cut_ms}");
    let played = device.simulation.speaker.last().unwrap();
    let played_ms = played.samples.len() as u64 * 1_000 / u64::from(played.rate_hz);
    assert!(played_ms.abs_diff(cut_ms) <= 100, "{played_ms} {cut_ms}");
}

#[test]
fn nothing_is_louder_than_the_volume_of_the_settings() {
    // The simulated voice has a quarter of what there is; the card's other rate makes a tone swing over by less than a tenth of itself.
    for (percent, most) in [("100", 0.275), ("10", 0.11)] {
        let room = Room::new();
        let device = Inside::with(&room, runtime::DoorLimits::default(), &[&format!("audio.volume={percent}")]);
        let (owner, line) = (Agent::default(), device.line());
        owner.settle(&line, &device.keeper(), &["speaker.say"]);
        device.simulation.speaker.at_once(true);
        owner.call(&line, "speaker.say", text("softly")).value();
        let played = device.simulation.speaker.last().unwrap();
        let peak = played.samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        assert!(peak <= most && peak > most * 0.8, "{percent} %: {peak}");
    }
}

#[test]
fn quiet_hours_are_kept_with_a_sentence_and_a_reload_ends_them() {
    let room = Room::new();
    room.settings("[quiet]\nhours = ['00:00-24:00']\n");
    let kitchen = Kitchen::settled(Room::new(), Start::simulated(&room).up());
    refused(kitchen.say("x"), ErrorCode::HardwareUnavailable, "all hours are quiet: nothing is said");
    // From an hour ago to an hour from now, by the clock on the wall, which in tests is UTC.
    let minute = handlers::Clock::wall_ms(&handlers::SystemClock) / 60_000 % 1440;
    let clock = |minute: u64| format!("{:02}:{:02}", minute % 1440 / 60, minute % 60);
    room.settings(&format!("[quiet]\nhours = ['{}-{}']\n", clock(minute + 1380), clock(minute + 60)));
    let reloaded = room.latchkeyd(&["reload", "--json"]).well().json();
    assert_eq!(reloaded["changed"], json!(["quiet.hours"]), "{reloaded}");
    let sentence = format!("nothing is said until {} by its clock", clock(minute + 60));
    refused(kitchen.say("x"), ErrorCode::HardwareUnavailable, &sentence);
    room.settings("[quiet]\nhours = []\n");
    room.latchkeyd(&["reload"]).well();
    assert_eq!(kitchen.spoken(), [""; 0]);
    kitchen.say("good morning").value();
    assert_eq!(kitchen.spoken(), ["\"good morning\""]);
    drop(kitchen);
    drop(room);
}
