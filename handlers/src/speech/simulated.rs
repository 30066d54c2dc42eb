//! Speech that only pretends, for devices without an engine and for tests: a tone as long as its text. It can be told to misbehave as
//! engines do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use super::wav::{AUDIO_MAX, WavFault};
use super::{Speech, SpeechFault, Spoken};
use crate::sound::Pcm;
use crate::trouble::{Planned, Trouble, Troubles};

/// As espeak-ng has it.
const RATE_HZ: u32 = 22_050;
/// What a letter of the text lasts, about as in speech.
const LETTER: Duration = Duration::from_millis(60);
/// Samples of one wave of the tone: 441 Hz.
const WAVE: usize = 50;
/// A quarter of the loudest there is.
const PEAK: i16 = 8_191;
/// What it is called where an engine is named.
const NAME: &str = "of the simulation";

/// How simulated speech misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechTrouble {
    /// There is no engine.
    NoEngine,
    /// It crashes.
    Crash,
    /// It never ends, and makes no sound.
    Hang,
    /// It writes something that is no sound.
    Garbage,
    /// It speaks for ever.
    Endless,
}

impl Trouble for SpeechTrouble {
    const PART: &'static str = "speech";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("no-engine", Self::NoEngine, "no speech engine is installed"),
        ("crash", Self::Crash, "the speech engine crashes at each text"),
        ("hang", Self::Hang, "the speech engine makes no sound and does not end"),
        ("garbage", Self::Garbage, "the speech engine writes something that is no sound"),
        ("endless", Self::Endless, "the speech engine speaks for longer than anything may last"),
    ];
}

/// Speech that only pretends; clones are the same.
#[derive(Clone)]
pub struct SimulatedSpeech {
    shared: Arc<Shared>,
}

struct Shared {
    say: Box<dyn Fn(&str) + Send + Sync>,
    troubles: Mutex<Troubles<SpeechTrouble>>,
    patience: Duration,
    spoken: AtomicU64,
}

impl SimulatedSpeech {
    /// Working speech. `say` gets a line for each text; an engine that hangs is given up after `patience`.
    pub fn new(patience: Duration, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let (troubles, spoken) = (Mutex::default(), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { say: Box::new(say), troubles, patience, spoken }) }
    }

    /// From now on it misbehaves like this, or works.
    pub fn trouble(&self, trouble: Option<SpeechTrouble>) {
        *self.shared.troubles.lock().unwrap_or_else(PoisonError::into_inner) = Troubles::only(trouble);
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<SpeechTrouble>>) {
        *self.shared.troubles.lock().unwrap_or_else(PoisonError::into_inner) = Troubles::planned(planned);
    }

    /// How many texts it made speech of.
    pub fn count(&self) -> u64 {
        self.shared.spoken.load(Ordering::Relaxed)
    }

    fn now(&self) -> Option<SpeechTrouble> {
        self.shared.troubles.lock().unwrap_or_else(PoisonError::into_inner).first()
    }

    fn tell(&self, text: &str, cut: bool) -> Spoken {
        self.shared.spoken.fetch_add(1, Ordering::Relaxed);
        (self.shared.say)(&format!("simulated speech: \"{}\"", visible(text)));
        let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let lasts = if cut { AUDIO_MAX } else { LETTER.saturating_mul(letters).min(AUDIO_MAX) };
        Spoken { pcm: tone(lasts), cut }
    }
}

/// A triangle, for which no library is needed.
fn tone(lasts: Duration) -> Pcm {
    let count = usize::try_from(lasts.as_millis() * u128::from(RATE_HZ) / 1_000).unwrap_or(0);
    let half = WAVE / 2;
    let level = |at: usize| {
        let at = at % WAVE;
        let up = i32::try_from(if at < half { at } else { WAVE - at }).unwrap_or(0);
        let whole = i32::try_from(half).unwrap_or(1);
        i16::try_from((2 * up - whole) * i32::from(PEAK) / whole).unwrap_or(0)
    };
    Pcm { rate_hz: RATE_HZ, samples: (0..count).map(level).collect() }
}

impl Speech for SimulatedSpeech {
    fn describe(&self) -> String {
        "simulated".to_owned()
    }

    fn ready(&self) -> Result<(), SpeechFault> {
        match self.now() {
            Some(SpeechTrouble::NoEngine) => Err(SpeechFault::Missing(
                "there is no speech engine: the simulation was told that none is installed".to_owned(),
            )),
            Some(SpeechTrouble::Crash | SpeechTrouble::Hang | SpeechTrouble::Garbage | SpeechTrouble::Endless)
            | None => Ok(()),
        }
    }

    fn speak(&self, text: &str, stop: CancellationToken) -> BoxFuture<'static, Result<Spoken, SpeechFault>> {
        let (speech, text) = (self.clone(), text.to_owned());
        async move {
            speech.ready()?;
            let (engine, said) = (NAME.to_owned(), String::new());
            match speech.now() {
                Some(SpeechTrouble::Crash) => {
                    Err(SpeechFault::Ended { engine, how: "crashed: it aborted (signal 6)".to_owned(), said })
                }
                Some(SpeechTrouble::Hang) => tokio::select! {
                    () = stop.cancelled() => Err(SpeechFault::Stopped),
                    () = tokio::time::sleep(speech.shared.patience) => {
                        Err(SpeechFault::Slow { engine, seconds: speech.shared.patience.as_secs(), said })
                    }
                },
                Some(SpeechTrouble::Garbage) => {
                    Err(SpeechFault::Garbage { engine, fault: WavFault::Foreign("\"garbage\"".to_owned()), said })
                }
                Some(SpeechTrouble::Endless) => Ok(speech.tell(&text, true)),
                Some(SpeechTrouble::NoEngine) | None => Ok(speech.tell(&text, false)),
            }
        }
        .boxed()
    }
}
