//! The sign one can hear: a short tone when a capture begins, beside what carries the sign and never in its place.
//!
//! A service of the keeper that follows the in-use sign; it is there when `sign.sound` is set. It holds up no capture: the tone is played
//! in a thread of its own, and one that cannot be played is a line in the log. It sounds in quiet hours too, since it warns people.

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actors::{House, Service};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::sound::Pcm;
use handlers::{Fault, Playback, Sign, SignState};
use tokio_util::sync::CancellationToken;

/// High enough to be heard over a room, and no tone of a telephone.
const PITCH_HZ: f64 = 1_320.0;
const RATE_HZ: u32 = 48_000;
/// Long enough to be noticed.
const SAMPLES: u32 = RATE_HZ / 4;
/// How loud, of 1.
const LEVEL: f64 = 0.25;
/// The tone begins and ends softly over so many samples, or a speaker would click.
const SLOPE: f64 = 480.0;
/// A card that has not played it by then plays it no more; the next capture has a tone of its own.
const PLAY_MAX: Duration = Duration::from_secs(3);

/// The service.
pub(crate) struct Tone {
    sign: Arc<Sign>,
    speaker: Arc<dyn Fn() -> Arc<dyn Playback> + Send + Sync>,
}

impl Tone {
    /// `speaker` gives what the settings play through at that moment.
    pub(crate) fn new(sign: Arc<Sign>, speaker: impl Fn() -> Arc<dyn Playback> + Send + Sync + 'static) -> Self {
        Self { sign, speaker: Arc::new(speaker) }
    }
}

impl Service for Tone {
    fn start(&self, _house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let (mut seen, speaker) = (self.sign.watch(), Arc::clone(&self.speaker));
        async move {
            let mut lit_since = None;
            let mut playing: BoxFuture<'static, ()> = pending().boxed();
            loop {
                let since = match &*seen.borrow_and_update() {
                    SignState::Lit { since_ms, .. } => Some(*since_ms),
                    SignState::Dark | SignState::Lost(_) => None,
                };
                if since.is_some() && since != lit_since {
                    // A tone that still plays is cut off by the next.
                    playing = play(speaker()).boxed();
                }
                lit_since = since;
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = &mut playing => playing = pending().boxed(),
                    changed = seen.changed() => if changed.is_err() { return Ok(()) },
                }
            }
        }
        .boxed()
    }
}

/// Plays it in a thread of its own, which ends when this is dropped.
async fn play(speaker: Arc<dyn Playback>) {
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let playing = tokio::task::spawn_blocking(move || speaker.play(tone(), &stop));
    match tokio::time::timeout(PLAY_MAX, playing).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(fault))) => tracing::info!(%fault, "the tone of the in-use sign was not played"),
        Ok(Err(error)) => tracing::warn!(%error, "the tone of the in-use sign crashed the speaker's driver"),
        Err(_) => tracing::info!("the tone of the in-use sign was not played in time"),
    }
}

/// The tone, made once.
#[expect(clippy::cast_possible_truncation, reason = "a quarter of what fits a sample")]
fn tone() -> &'static Pcm {
    static TONE: OnceLock<Pcm> = OnceLock::new();
    TONE.get_or_init(|| {
        let step = std::f64::consts::TAU * PITCH_HZ / f64::from(RATE_HZ);
        let samples = (0..SAMPLES).map(|at| {
            let edge = f64::from(at.min(SAMPLES - at)) / SLOPE;
            (f64::from(i16::MAX) * LEVEL * edge.min(1.0) * (step * f64::from(at)).sin()) as i16
        });
        Pcm { rate_hz: RATE_HZ, samples: samples.collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tone_is_short_soft_at_its_ends_and_never_loud() {
        let pcm = tone();
        assert_eq!(pcm.duration(), Duration::from_millis(250));
        let loudest = pcm.samples.iter().map(|sample| sample.unsigned_abs()).max();
        assert!(matches!(loudest, Some(8_000..=8_192)), "{loudest:?}");
        assert!(
            pcm.samples
                .iter()
                .take(20)
                .chain(pcm.samples.iter().rev().take(20))
                .all(|sample| sample.unsigned_abs() < 400)
        );
    }
}
