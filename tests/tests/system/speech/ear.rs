//! Speech by ear, in numbers: how long, how loud, and whether a small recogniser hears the words that were said.
//!
//! The recogniser is pocketsphinx, which scripts/recogniser.sh installs; LATCHKEY_RECOGNISER names the Python that has it. It is told the
//! words that may come, and a few more, which is what so small a one can tell apart.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handlers::speech::{EngineChoice, EngineLimits, LocalTime, WallTime};
use handlers::{
    Call, Handler as _, Pcm, Playback, SoundFault, SpeakLimits, Speaker, SpeakerBounds, SpeechEngine, SystemClock,
};
use latchkey_tests::agent::object;
use latchkey_tests::skip;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::engine::installed;

/// What is said, and what of it can be heard.
const SENTENCES: [(&str, &str); 5] = [
    ("seven yellow flowers in the garden", "seven yellow flowers garden"),
    ("the children water the orange flowers on saturday", "children water orange flowers saturday"),
    ("dinner is ready in twenty minutes", "dinner ready twenty minutes"),
    ("somebody is standing at the window", "somebody standing window"),
    ("tomorrow morning the doctor comes to the library", "tomorrow morning doctor library"),
];
/// Words that nobody says.
const DECOYS: &str =
    "picture mother kitchen remember table front train london leaves machine button summer holiday bicycle telephone";
/// Of none of the words above.
const CONTROL: &str = "nothing whatever resembles another foreign language here";
/// On average so much of what was said is heard, in its order and with little else.
const HEARD_MIN: f64 = 0.55;
/// A sentence that was not said is heard no better than this.
const CONTROL_MAX: f64 = 0.3;

/// A card that keeps the sound.
#[derive(Default)]
struct Kept(Mutex<Option<Pcm>>);

impl Playback for Kept {
    fn name(&self) -> String {
        "kept".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn ready(&self) -> Result<(), SoundFault> {
        Ok(())
    }

    fn play(&self, pcm: &Pcm, _stop: &CancellationToken) -> Result<(), SoundFault> {
        *self.0.lock().unwrap() = Some(pcm.clone());
        Ok(())
    }
}

struct Noon;

impl LocalTime for Noon {
    fn now(&self) -> WallTime {
        WallTime::of_minute(720)
    }
}

/// What reaches the card when this is said.
fn said(text: &str) -> Pcm {
    let choice = EngineChoice::Espeak { voice: Some("en-us+f2".to_owned()) };
    let card = Arc::new(Kept::default());
    let bounds = SpeakerBounds { volume_percent: 100, quiet: Vec::new() };
    let engine = Arc::new(SpeechEngine::new(choice, EngineLimits::default()));
    let speaker = Speaker::new(engine, card.clone(), Arc::new(Noon), bounds, SpeakLimits::default());
    let arguments = speaker.declaration().bounds.check(object(json!({ "text": text }))).unwrap();
    let agent = "eve@home.example.org".parse().unwrap();
    let call = Call { arguments, stop: CancellationToken::new(), clock: Arc::new(SystemClock), agent };
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    threads.block_on(speaker.run(call)).unwrap();
    let kept = card.0.lock().unwrap().take();
    kept.unwrap()
}

/// The Python that has the recogniser.
fn recogniser() -> Option<std::ffi::OsString> {
    let python = latchkey_tests::variable("LATCHKEY_RECOGNISER").filter(|path| !path.is_empty());
    if python.is_none() {
        skip("speech", "pocketsphinx is not there (scripts/recogniser.sh), so nobody listened to what was said");
    }
    python
}

fn hear(python: &std::ffi::OsStr, pcm: &Pcm) -> Vec<String> {
    const LISTENER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/recognise.py");
    let words = SENTENCES.iter().map(|(_, words)| *words).chain([DECOYS]).collect::<Vec<_>>().join(" ");
    let mut command = Command::new(python);
    command.args([LISTENER, &pcm.rate_hz.to_string(), &words]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let bytes: Vec<u8> = pcm.samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let heard = child.wait_with_output().unwrap();
    assert!(heard.status.success(), "{heard:?}");
    String::from_utf8(heard.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// How much of two lists is the same, in the same order: 1 when they are equal.
#[allow(clippy::cast_precision_loss, reason = "a few words")]
fn overlap(said: &str, heard: &[String]) -> f64 {
    let said: Vec<&str> = said.split(' ').collect();
    let mut row = vec![0_usize; heard.len() + 1];
    for word in &said {
        let before = row.clone();
        for (at, other) in heard.iter().enumerate() {
            row[at + 1] = if other == word { before[at] + 1 } else { before[at + 1].max(row[at]) };
        }
    }
    row[heard.len()] as f64 / said.len().max(heard.len()) as f64
}

#[test]
fn what_is_said_has_the_length_and_loudness_of_speech() {
    if !installed() {
        return;
    }
    for (sentence, _) in SENTENCES {
        let pcm = said(sentence);
        let letters = u32::try_from(sentence.len()).unwrap();
        let (least, most) = (Duration::from_millis(30) * letters, Duration::from_millis(120) * letters);
        assert!((least..most).contains(&pcm.duration()), "{sentence}: {:?}", pcm.duration());
        let squares: f64 = pcm.samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        #[allow(clippy::cast_precision_loss, reason = "seconds of sound")]
        let level = (squares / pcm.samples.len() as f64).sqrt() / 32_768.0;
        assert!((0.02..0.5).contains(&level), "{sentence}: {level}");
    }
}

#[test]
fn a_recogniser_hears_the_words_that_were_said_and_none_of_those_that_were_not() {
    if !installed() {
        return;
    }
    let Some(python) = recogniser() else { return };
    let (mut heard, mut control) = (Vec::new(), Vec::new());
    let foreign = hear(&python, &said(CONTROL));
    for (sentence, words) in SENTENCES {
        let mut pcm = said(sentence);
        heard.push(overlap(words, &hear(&python, &pcm)));
        // The same sound, of the same length and loudness, from its end.
        pcm.samples.reverse();
        control.push(overlap(words, &hear(&python, &pcm)));
        control.push(overlap(words, &foreign));
    }
    #[allow(clippy::cast_precision_loss, reason = "a few numbers")]
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
    assert!(mean(&heard) >= HEARD_MIN, "heard {heard:?}, control {control:?}");
    assert!(mean(&control) <= CONTROL_MAX, "heard {heard:?}, control {control:?}");
}
