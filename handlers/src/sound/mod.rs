//! Sound in and out: the ports for it, and what they share.
//!
//! Owns the words for why there is no sound. [`Playback`] is called by whatever speaks, [`Recording`] by `microphone.listen` alone, and
//! only under a lit sign. Nothing stays open between two sounds, so a card that went and came back is found again by its name.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

mod card;
mod flow;
mod form;
#[cfg(test)]
mod measure;
mod microphone;
mod resample;
mod simulated;
#[cfg(test)]
mod tests;
mod wav;

pub use card::{Card, CardChoice, CardPlayback, CardRecording, cards};
pub use microphone::{LISTEN_HZ, ListenLimits, Microphone};
pub use simulated::{MicrophoneTrouble, Played, SimulatedMicrophone, SimulatedSpeaker, SoundTrouble, SpeakerTrouble};

/// A sound in memory: one channel, 16 bit.
#[derive(Clone, PartialEq, Eq)]
pub struct Pcm {
    /// Samples a second.
    pub rate_hz: u32,
    /// The samples.
    pub samples: Vec<i16>,
}

impl Pcm {
    /// How long it lasts.
    pub fn duration(&self) -> Duration {
        let rate = u64::from(self.rate_hz.max(1));
        let samples = u64::try_from(self.samples.len()).unwrap_or(u64::MAX);
        Duration::from_nanos(samples.saturating_mul(1_000_000_000) / rate)
    }
}

/// Size only: what was said or heard is nobody's business in a log.
impl std::fmt::Debug for Pcm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pcm({} samples at {} Hz)", self.samples.len(), self.rate_hz)
    }
}

/// What makes sound audible.
pub trait Playback: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
    /// Whether it could play now, as far as that shows without playing.
    ///
    /// # Errors
    /// See [`SoundFault`].
    fn ready(&self) -> Result<(), SoundFault>;
    /// Plays it whole and returns once the last sample was played, counted in samples and not by the clock. Blocks; hears `stop`
    /// within 100 ms.
    ///
    /// # Errors
    /// See [`SoundFault`]; part of the sound may have been heard.
    fn play(&self, pcm: &Pcm, stop: &CancellationToken) -> Result<(), SoundFault>;
}

/// What hears.
pub trait Recording: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
    /// Whether a capture has the device; shared by every handler over the same device, so that one made anew knows of a thread that
    /// still hangs.
    fn taken(&self) -> Arc<AtomicBool>;
    /// Whether there is something to hear with, as far as that shows without opening it.
    ///
    /// # Errors
    /// See [`SoundFault`].
    fn ready(&self) -> Result<(), SoundFault>;
    /// Opens the device and starts it. Called in the capture thread, under a lit sign; may block for as long as the driver does.
    ///
    /// # Errors
    /// See [`SoundFault`].
    fn open(&self) -> Result<Box<dyn RecordingStream>, SoundFault>;
}

/// A microphone that runs; dropping it closes the device.
pub trait RecordingStream {
    /// Samples a second of what [`next`](Self::next) gives. It may change until the first samples came.
    fn rate_hz(&self) -> u32;
    /// The next samples, mixed to one channel, each between -1 and 1; `None` when none came within `wait`.
    ///
    /// # Errors
    /// See [`SoundFault`]; after one the stream is dead.
    fn next(&mut self, wait: Duration) -> Result<Option<Vec<f32>>, SoundFault>;
}

/// Why there is no sound. Each is told apart in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SoundFault {
    /// There is no such card now.
    #[error("{0}")]
    Missing(String),
    /// Several have the name.
    #[error("{0}")]
    Ambiguous(String),
    /// Another program holds it.
    #[error("the sound card is busy: another program uses it")]
    Busy,
    /// It went away while in use.
    #[error("the sound card was unplugged")]
    Unplugged,
    /// It is open, and neither takes nor gives sound.
    #[error("the sound card stands still: it neither takes nor gives sound")]
    Silent,
    /// We may not open it.
    #[error("{0}")]
    Forbidden(String),
    /// It offers nothing that we know, or it is something else.
    #[error("{0}")]
    Unusable(String),
    /// The driver refused or failed.
    #[error("the sound card failed: {0}")]
    Driver(String),
    /// Nobody wants it any more, or the sign went out.
    #[error("stopped before it was done")]
    Stopped,
}
