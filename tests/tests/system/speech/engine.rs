//! The real engine, espeak-ng, in a whole device: its sound goes through ALSA into a file (T1 to T5).

use std::fs;
use std::path::PathBuf;

use latchkey_tests::{Room, Start, skip};
use wire::ErrorCode;

use super::{Kitchen, refused};

/// Samples a second of the file that stands for a card.
const RATE_HZ: usize = 16_000;

/// Whether the engine is there; without it the test is on the list of those left out.
pub(super) fn installed() -> bool {
    let there =
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| PathBuf::from(folder).join("espeak-ng").exists());
    if !there {
        skip("speech", "espeak-ng is not installed, so no real engine spoke");
    }
    there
}

/// A device without simulation, whose card is a file.
fn kitchen(settings: &[&str]) -> Kitchen {
    let room = Room::new();
    let configuration = format!(
        "pcm.tofile {{ type file slave.pcm {{ type null }} file \"{}\" format \"raw\" perm 0644 }}\n\
         pcm.!default {{ type plug slave {{ pcm \"tofile\" format S16_LE rate {RATE_HZ} channels 1 }} }}\n",
        room.file("out.raw").display()
    );
    fs::write(room.file("asound.conf"), configuration).unwrap();
    let start = Start::bare(&room).set("link.direct.listen=127.0.0.1:0").set("keeper.listen=127.0.0.1:0");
    let start = settings.iter().fold(start, |start, setting| start.set(setting));
    let daemon = start.arguments(&["run"]).env("ALSA_CONFIG_PATH", room.file("asound.conf")).up();
    Kitchen::settled(room, daemon)
}

impl Kitchen {
    /// What the last text sounded like at the card, from its first loud sample to its last, in seconds, and its peak.
    fn heard(&self) -> (f32, i32) {
        let bytes = fs::read(self.room.file("out.raw")).unwrap();
        let samples: Vec<i16> = bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        let loud = |sample: &i16| sample.unsigned_abs() > 100;
        let first = samples.iter().position(loud).unwrap_or(0);
        let last = samples.iter().rposition(loud).unwrap_or(0);
        let peak = samples.iter().map(|sample| i32::from(*sample).abs()).max().unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "minutes of sound")]
        let seconds = (last - first) as f32 / RATE_HZ as f32;
        (seconds, peak)
    }
}

#[test]
fn t1_t4_t5_the_real_engine_speaks_what_looks_like_options_markup_or_emoji_as_words() {
    if !installed() {
        return;
    }
    let mut kitchen = kitchen(&[]);
    let pwned = kitchen.room.file("pwn.wav");
    let option = format!("-w{} hello", pwned.display());
    let rows: [(&str, std::ops::Range<f32>); 6] = [
        ("hello", 0.2..2.0),
        (&option, 2.0..20.0),
        // As words: reading the file aloud would take minutes.
        ("-f /etc/passwd", 0.5..5.0),
        ("--version", 0.3..4.0),
        ("a <break time=\"9999999s\"/> b & c <test>", 3.0..20.0),
        ("20 C \u{1f384}\u{1f384}\u{1f384} done", 1.5..10.0),
    ];
    for (text, seconds) in rows {
        let value = kitchen.say(text).value();
        assert_eq!(value.get("cut_ms"), None, "{text}");
        let (heard, peak) = kitchen.heard();
        assert!(seconds.contains(&heard), "{text}: {heard} s");
        assert!(peak > 3_000, "{text}: {peak}");
    }
    assert!(!pwned.exists());
    kitchen.goes_on();
}

/// T2, T3: these crash released versions, or take them long.
#[test]
fn t2_t3_texts_that_crash_the_real_engine_are_said_or_refused_in_time_and_the_next_is_said() {
    if !installed() {
        return;
    }
    let mut kitchen = kitchen(&[]);
    let pid = kitchen.daemon.pid();
    let texts =
        ["s'".repeat(220), "x".repeat(500), "\u{301}".repeat(250), "\u{e2e}\u{e33}".repeat(83), "9".repeat(500)];
    for text in texts {
        let outcome = kitchen.say(&text);
        match outcome.word() {
            "ok" => {}
            "invalid_arguments" => refused(outcome, ErrorCode::InvalidArguments, "nothing in it can be spoken"),
            _ => refused(outcome, ErrorCode::Failed, "nothing was said: the speech engine espeak-ng"),
        }
        assert_eq!(kitchen.say("hello").word(), "ok", "after {} bytes of {}", text.len(), &text[..2]);
        kitchen.goes_on();
    }
    assert_eq!(kitchen.daemon.pid(), pid);
    kitchen.daemon.keeper().verify();
}

#[test]
fn a_voice_the_volume_and_another_program_come_from_the_settings() {
    if !installed() {
        return;
    }
    let plain = kitchen(&[]);
    plain.say("the same words").value();
    let (loud, high) = (plain.heard(), kitchen(&["speech.voice=en-us+f2", "audio.volume=20"]));
    high.say("the same words").value();
    let soft = high.heard();
    assert!(soft.1 <= 6_554 && soft.1 > 5_000 && loud.1 > 7_000, "{soft:?} {loud:?}");
    assert!((soft.0 - loud.0).abs() > 0.001, "another voice has other lengths: {soft:?} {loud:?}");
    let unknown = kitchen(&["speech.voice=nobody"]);
    refused(unknown.say("x"), ErrorCode::Failed, "voice does not exist");
    // Anything that reads text and writes WAV, with arguments of its own.
    let other = kitchen(&["speech.command=[\"espeak-ng\", \"--stdin\", \"--stdout\", \"-s\", \"80\"]"]);
    other.say("the same words").value();
    assert!(other.heard().0 > loud.0 * 1.5, "{:?} {loud:?}", other.heard());
    let gone = kitchen(&["speech.command=/nowhere/piper"]);
    refused(gone.say("x"), ErrorCode::HardwareUnavailable, "/nowhere/piper of speech.command is not a program");
}
