//! `speaker.say`: a text, spoken and played.
//!
//! Owns the port for what makes speech of a text ([`Speech`]), and why there is none ([`SpeechFault`]). [`Speaker`] is called by its
//! capability actor; it holds a text against the keeper's bounds, has it spoken, and hands the sound to a
//! [`Playback`](crate::sound::Playback). Nothing is kept of what was said.

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::sound::Pcm;

mod child;
mod engine;
mod quiet;
mod simulated;
mod speaker;
#[cfg(test)]
mod tests;
mod text;
mod wav;

pub use engine::{EngineChoice, EngineLimits, SpeechEngine};
pub use quiet::{LocalTime, QuietHours, WallTime};
pub use simulated::{SimulatedSpeech, SpeechTrouble};
pub use speaker::{SpeakLimits, Speaker, SpeakerBounds};
pub use wav::{AUDIO_MAX, WavFault};

/// What makes speech of a text.
pub trait Speech: Send + Sync + 'static {
    /// What people call it.
    fn describe(&self) -> String;
    /// Whether it could speak now, as far as that shows without speaking.
    ///
    /// # Errors
    /// See [`SpeechFault`].
    fn ready(&self) -> Result<(), SpeechFault>;
    /// Makes the sound of a text, whatever stands in it: no word of it is an option, a name of a file, or markup. Dropping the future
    /// ends the work, as `stop` does.
    fn speak(&self, text: &str, stop: CancellationToken) -> BoxFuture<'static, Result<Spoken, SpeechFault>>;
}

/// The sound of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// At most [`AUDIO_MAX`] of it.
    pub pcm: Pcm,
    /// Whether there was more, which was left out.
    pub cut: bool,
}

/// Why a text was not spoken. Each is told apart in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpeechFault {
    /// There is no engine.
    #[error("{0}")]
    Missing(String),
    /// There is one, and it cannot be started.
    #[error("the speech engine {engine} cannot be started: {why}")]
    Unstarted {
        /// The program.
        engine: String,
        /// What the system says.
        why: String,
    },
    /// It was started, and ended without having spoken.
    #[error("the speech engine {engine} {how}{}", quoted(.said))]
    Ended {
        /// The program.
        engine: String,
        /// How it ended.
        how: String,
        /// What it complained of; may be empty.
        said: String,
    },
    /// It was ended, because it took too long.
    #[error("the speech engine {engine} was not done within {seconds} s{}", quoted(.said))]
    Slow {
        /// The program.
        engine: String,
        /// How long it had.
        seconds: u64,
        /// What it complained of; may be empty.
        said: String,
    },
    /// It gave something that is no sound that we know.
    #[error("the speech engine {engine} gave no sound that can be played: {fault}{}", quoted(.said))]
    Garbage {
        /// The program.
        engine: String,
        /// What is wrong with it.
        fault: WavFault,
        /// What it complained of; may be empty.
        said: String,
    },
    /// Nobody wants it any more.
    #[error("stopped before it was done")]
    Stopped,
}

/// What an engine complained of, as the end of a sentence.
fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; it says: {said}") }
}
