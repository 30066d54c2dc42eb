//! From `speaker.say` to the moment at which its first sample is handed to the card, beside the speech engine alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use handlers::sound::{Pcm, SoundFault};
use handlers::{
    Call, EngineLimits, Handler as _, LocalTime, Playback, SimulatedSpeaker, SimulatedSpeech, SpeakLimits, Speaker,
    SpeakerBounds, Speech, SystemClock, WallTime,
};
use tokio_util::sync::CancellationToken;
use wire::{Declaration, Object};

/// What is said.
const SENTENCE: &str = "Dinner is ready.";
/// How often.
const TIMES: usize = 10;

/// Milliseconds, one for each time it was said.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) engine: String,
    pub(crate) engine_ms: Vec<f64>,
    pub(crate) first_sample_ms: Vec<f64>,
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

/// Measures with this engine, or, where it is not there, with one that pretends.
pub(crate) async fn measure(engine: impl Speech) -> anyhow::Result<Figures> {
    let speech: Arc<dyn Speech> = if engine.ready().is_ok() {
        Arc::new(engine)
    } else {
        Arc::new(SimulatedSpeech::new(EngineLimits::default().whole, |_| {}))
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
        figures.first_sample_ms.extend(first.map(|took| took.as_secs_f64() * 1e3));
    }
    Ok(figures)
}

fn call() -> anyhow::Result<Call> {
    let mut arguments = Object::new();
    arguments.insert("text", SENTENCE);
    let arguments = Declaration::speaker_say().bounds.check(arguments)?;
    let agent = "bench@load.example.org".parse()?;
    Ok(Call { arguments, stop: CancellationToken::new(), clock: Arc::new(SystemClock), agent })
}
