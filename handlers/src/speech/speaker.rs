//! `speaker.say` itself: the keeper's bounds, the engine, the loudspeaker, in this order.
//!
//! Called by its capability actor. Bounds, loudspeaker and engine are looked at before anything is heard; a fault up to there means that
//! nothing was. Playing runs in a thread of its own and ends in time for its reason to reach the caller. Refuses during quiet hours, and a
//! text of which nothing can be spoken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wire::{Declaration, Object};

use super::quiet::{LocalTime, Quiet, QuietHours, quiet};
use super::{Speech, SpeechFault, Spoken, text};
use crate::handler::{Call, Fault, Handler};
use crate::sound::{Pcm, Playback, SoundFault};

/// What the keeper allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeakerBounds {
    /// The loudest sample, in percent of the loudest there is.
    pub volume_percent: u8,
    /// When nothing is said.
    pub quiet: Vec<QuietHours>,
}

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeakLimits {
    /// From its beginning to the last that is heard: 3 s less than the capability's time-out, so that a card which plays late is done, and
    /// the reason reaches the caller.
    pub whole: Duration,
}

impl Default for SpeakLimits {
    fn default() -> Self {
        Self { whole: Duration::from_secs(57) }
    }
}

/// `speaker.say`.
pub struct Speaker {
    declaration: Declaration,
    speech: Arc<dyn Speech>,
    playback: Arc<dyn Playback>,
    local: Arc<dyn LocalTime>,
    bounds: Arc<SpeakerBounds>,
    limits: SpeakLimits,
}

impl Speaker {
    /// Speaks with `speech` through `playback`, within `bounds` at the time of `local`.
    pub fn new(
        speech: Arc<dyn Speech>,
        playback: Arc<dyn Playback>,
        local: Arc<dyn LocalTime>,
        bounds: SpeakerBounds,
        limits: SpeakLimits,
    ) -> Self {
        Self { declaration: Declaration::speaker_say(), speech, playback, local, bounds: Arc::new(bounds), limits }
    }
}

impl Handler for Speaker {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let saying = Saying {
            speech: Arc::clone(&self.speech),
            playback: Arc::clone(&self.playback),
            local: Arc::clone(&self.local),
            bounds: Arc::clone(&self.bounds),
            limits: self.limits,
        };
        saying.say(call).boxed()
    }
}

/// One call.
struct Saying {
    speech: Arc<dyn Speech>,
    playback: Arc<dyn Playback>,
    local: Arc<dyn LocalTime>,
    bounds: Arc<SpeakerBounds>,
    limits: SpeakLimits,
}

impl Saying {
    async fn say(self, call: Call) -> Result<Object, Fault> {
        let began = call.clock.boot();
        let words = text::words(call.arguments.string("text").unwrap_or_default());
        if text::is_blank(&words) {
            return Err(unspeakable());
        }
        self.not_quiet()?;
        self.present().await?;
        self.speech.ready().map_err(unspoken)?;
        let Spoken { mut pcm, mut cut } = self.speech.speak(&words, call.stop.clone()).await.map_err(unspoken)?;
        if pcm.samples.is_empty() {
            return Err(unspeakable());
        }
        // The engine may have taken its time.
        self.not_quiet()?;
        let gone = call.clock.boot().since(began);
        cut |= shorten(&mut pcm, self.limits.whole.saturating_sub(gone));
        soften(&mut pcm, self.bounds.volume_percent);
        let lasts = pcm.duration();
        tracing::debug!(
            engine_ms = gone.as_millis(),
            sound_ms = lasts.as_millis(),
            cut,
            "speech is ready to be played"
        );
        play(self.playback, pcm, call.stop).await?;
        let mut value = Object::new();
        if cut {
            tracing::warn!(after_ms = lasts.as_millis(), "a text took too long to say and was cut");
            value.insert("cut_ms", u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
        }
        Ok(value)
    }

    /// Whether there is a card. Asking one may take a moment of the kernel's.
    async fn present(&self) -> Result<(), Fault> {
        let playback = Arc::clone(&self.playback);
        let ready = tokio::task::spawn_blocking(move || playback.ready()).await;
        let crashed = || SoundFault::Driver("its driver crashed".to_owned());
        ready.unwrap_or_else(|_| Err(crashed())).map_err(|fault| unheard(&fault))
    }

    fn not_quiet(&self) -> Result<(), Fault> {
        let now = self.local.now();
        match quiet(&self.bounds.quiet, now) {
            Quiet::Not => Ok(()),
            Quiet::Until(until) => Err(Fault::Unavailable(format!(
                "these are quiet hours at the device: nothing is said until {until} by its clock, which shows {now}"
            ))),
            Quiet::Always => Err(Fault::Unavailable("at the device all hours are quiet: nothing is said".to_owned())),
        }
    }
}

fn unspeakable() -> Fault {
    Fault::Invalid { member: "text".to_owned(), reason: "nothing in it can be spoken".to_owned() }
}

/// The engine's fault: nothing was heard.
fn unspoken(fault: SpeechFault) -> Fault {
    match fault {
        SpeechFault::Missing(_) | SpeechFault::Unstarted { .. } => Fault::Unavailable(fault.to_string()),
        SpeechFault::Ended { .. } | SpeechFault::Slow { .. } | SpeechFault::Garbage { .. } => {
            Fault::Failed(format!("nothing was said: {fault}"))
        }
        SpeechFault::Stopped => Fault::Stopped,
    }
}

/// The card's fault.
fn unheard(fault: &SoundFault) -> Fault {
    match fault {
        SoundFault::Missing(_)
        | SoundFault::Ambiguous(_)
        | SoundFault::Busy
        | SoundFault::Unplugged
        | SoundFault::Silent
        | SoundFault::Forbidden(_)
        | SoundFault::Unusable(_)
        | SoundFault::Driver(_) => Fault::Unavailable(fault.to_string()),
        SoundFault::Stopped => Fault::Stopped,
    }
}

/// Leaves out what would be heard after `left`; whether there was any.
fn shorten(pcm: &mut Pcm, left: Duration) -> bool {
    let room = u128::from(pcm.rate_hz) * left.as_millis() / 1_000;
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let longer = pcm.samples.len() > room;
    pcm.samples.truncate(room);
    longer
}

/// Makes a sound that is louder than allowed as loud as allowed, all of it by the same measure.
fn soften(pcm: &mut Pcm, percent: u8) {
    let peak = pcm.samples.iter().map(|sample| i32::from(*sample).abs()).max().unwrap_or(0);
    let loudest = i32::from(i16::MAX) * i32::from(percent.min(100)) / 100;
    if peak > loudest {
        for sample in &mut pcm.samples {
            // Towards zero, so never above; two numbers of 16 bit make one of 32.
            *sample = i16::try_from(i32::from(*sample) * loudest / peak).unwrap_or(0);
        }
    }
}

/// Plays it in a thread of its own.
async fn play(playback: Arc<dyn Playback>, pcm: Pcm, stop: CancellationToken) -> Result<(), Fault> {
    if stop.is_cancelled() {
        return Err(Fault::Stopped);
    }
    let stop = stop.child_token();
    // A caller that goes away stops the thread.
    let _guard = stop.clone().drop_guard();
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("speaker".to_owned()).spawn(move || {
        let played = catch_unwind(AssertUnwindSafe(|| playback.play(&pcm, &stop)));
        // The caller may have gone.
        let _ = done.send(played.unwrap_or_else(|_| Err(SoundFault::Driver("its driver crashed".to_owned()))));
    });
    thread.map_err(|error| Fault::Unavailable(format!("no thread for the loudspeaker: {error}")))?;
    let played = outcome.await.unwrap_or_else(|_| Err(SoundFault::Driver("its thread ended early".to_owned())));
    played.map_err(|fault| unheard(&fault))
}
