//! From `speaker.say` to its first sample, beside the speech engine alone: handed to a card that pretends, or, of a whole device, played by
//! the card, as the kernel tells it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use handlers::sound::{Pcm, SoundFault};
use handlers::{
    Call, EngineLimits, Handler as _, LocalTime, Playback, SimulatedSpeaker, SimulatedSpeech, SpeakLimits, Speaker,
    SpeakerBounds, Speech, SystemClock, WallTime,
};
use tokio_util::sync::CancellationToken;
use wire::{Declaration, Object};

/// What is said.
pub(crate) const SENTENCE: &str = "Dinner is ready.";
/// How often.
const TIMES: usize = 10;
/// Where the kernel shows what its sound cards do.
const CARDS: &str = "/proc/asound";
/// How often that is looked at.
const LOOK: Duration = Duration::from_micros(500);
/// A card that does not play by then is not going to.
const PLAYS_MAX: Duration = Duration::from_secs(30);

/// Milliseconds, one for each time something was said.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) engine: String,
    pub(crate) engine_ms: Vec<f64>,
    /// Until the capability hands its first sample to a card, which pretends.
    pub(crate) handed_ms: Vec<f64>,
    /// A signed call, until the kernel has the card play; only of real devices.
    pub(crate) card_ms: Vec<f64>,
    /// Why there are no figures.
    pub(crate) missing: Option<String>,
}

/// A card that takes everything at once and notes when it was first given something.
struct Noting {
    card: SimulatedSpeaker,
    first: Mutex<Option<Instant>>,
}

impl Noting {
    fn first(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Playback for Noting {
    fn name(&self) -> String {
        self.card.name()
    }

    fn simulated(&self) -> bool {
        self.card.simulated()
    }

    fn ready(&self) -> Result<(), SoundFault> {
        self.card.ready()
    }

    fn play(&self, pcm: &Pcm, stop: &CancellationToken) -> Result<(), SoundFault> {
        self.first().get_or_insert_with(Instant::now);
        self.card.play(pcm, stop)
    }
}

/// No hour is quiet.
struct Noon;

impl LocalTime for Noon {
    fn now(&self) -> WallTime {
        WallTime::of_minute(12 * 60)
    }
}

/// Measures in this process. Where the engine is not there, one that pretends takes its place, if it may.
pub(crate) async fn measure(engine: impl Speech, may_pretend: bool) -> anyhow::Result<Figures> {
    let speech: Arc<dyn Speech> = match engine.ready() {
        Ok(()) => Arc::new(engine),
        Err(_) if may_pretend => Arc::new(SimulatedSpeech::new(EngineLimits::default().whole, |_| {})),
        Err(missing) => return Ok(Figures { missing: Some(missing.to_string()), ..Figures::default() }),
    };
    let card = SimulatedSpeaker::new(|_| {});
    card.at_once(true);
    let noting = Arc::new(Noting { card, first: Mutex::default() });
    let bounds = SpeakerBounds { volume_percent: 100, quiet: Vec::new() };
    let playback: Arc<dyn Playback> = noting.clone();
    let speaker = Speaker::new(Arc::clone(&speech), playback, Arc::new(Noon), bounds, SpeakLimits::default());
    let mut figures = Figures { engine: speech.describe(), ..Figures::default() };
    for _ in 0..TIMES {
        let began = Instant::now();
        speech.speak(SENTENCE, CancellationToken::new()).await?;
        figures.engine_ms.push(began.elapsed().as_secs_f64() * 1e3);
        *noting.first() = None;
        let began = Instant::now();
        speaker.run(call()?).await?;
        let first = noting.first().map(|first| first.duration_since(began));
        figures.handed_ms.extend(first.map(|took| took.as_secs_f64() * 1e3));
    }
    Ok(figures)
}

/// Watches the kernel's cards from a moment on.
pub(crate) struct Playing {
    began: Instant,
    first: JoinHandle<Option<Instant>>,
}

impl Playing {
    /// From now on.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let outputs = outputs(Path::new(CARDS));
        ensure!(!outputs.is_empty(), "the kernel shows no sound card that plays");
        ensure!(!any_plays(&outputs), "another program plays on a sound card now");
        let began = Instant::now();
        let first = std::thread::spawn(move || {
            while began.elapsed() < PLAYS_MAX {
                if any_plays(&outputs) {
                    return Some(Instant::now());
                }
                std::thread::sleep(LOOK);
            }
            None
        });
        Ok(Self { began, first })
    }

    /// Milliseconds until one played. Call it once the sound was played.
    pub(crate) fn since_ms(self) -> anyhow::Result<f64> {
        let first = self.first.join().ok().flatten().context("no sound card of the kernel has played")?;
        Ok(first.duration_since(self.began).as_secs_f64() * 1e3)
    }
}

/// The file of each output of each card, as in `card0/pcm0p/sub0/status`.
fn outputs(root: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path, wanted: fn(&str) -> bool| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        entries.filter(|entry| entry.file_name().to_str().is_some_and(wanted)).map(|entry| entry.path()).collect()
    };
    let cards = below(root, |name| name.starts_with("card") && name != "cards");
    let streams = cards.iter().flat_map(|card| below(card, |name| name.starts_with("pcm") && name.ends_with('p')));
    let places = streams.flat_map(|stream| below(&stream, |name| name.starts_with("sub")));
    places.map(|place| place.join("status")).collect()
}

fn any_plays(outputs: &[PathBuf]) -> bool {
    outputs.iter().any(|status| fs::read_to_string(status).is_ok_and(|text| text.starts_with("state: RUNNING")))
}

fn call() -> anyhow::Result<Call> {
    let mut arguments = Object::new();
    arguments.insert("text", SENTENCE);
    let arguments = Declaration::speaker_say().bounds.check(arguments)?;
    let agent = "bench@load.example.org".parse()?;
    Ok(Call { arguments, stop: CancellationToken::new(), clock: Arc::new(SystemClock), agent })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_card_plays_when_one_of_its_outputs_runs_and_not_when_it_records() {
        let root = tempfile::tempdir().unwrap();
        let write = |place: &str, text: &str| {
            let folder = root.path().join(place);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("status"), text).unwrap();
        };
        fs::write(root.path().join("cards"), "0 [Loopback]\n").unwrap();
        assert!(outputs(root.path()).is_empty());
        write("card0/pcm0p/sub0", "closed\n");
        write("card1/pcm0p/sub0", "state: PREPARED\nowner_pid   : 1\n");
        write("card1/pcm0c/sub0", "state: RUNNING\n");
        let found = outputs(root.path());
        assert_eq!(found.len(), 2);
        assert!(!any_plays(&found));
        write("card1/pcm0p/sub0", "state: RUNNING\nowner_pid   : 1\n");
        assert!(any_plays(&found));
    }
}
