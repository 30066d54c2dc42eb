//! Sound out of a card.
//!
//! A sound is played by the card's own thread, which asks for it piece by piece; whoever plays waits for the end, for `stop`, for an
//! error, or for a card that asks no more. Dropping the stream closes the card and throws away what it has not played.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cpal::traits::{DeviceTrait as _, StreamTrait as _};
use tokio_util::sync::CancellationToken;

use super::presence::{BELIEVED, Presence, absent, look, remember, remembered};
use super::{CardChoice, Found, Way, another_form_may_help, build, cannot_open, find, offers, sample_format, upset};
use crate::clock::{Clock as _, SystemClock};
use crate::sound::flow::{Errors, Feeder};
use crate::sound::form::{Form, Offer, candidates};
use crate::sound::{Pcm, Playback, SoundFault};

/// How often `stop` is looked at.
const SLICE: Duration = Duration::from_millis(50);
/// A card that asks for nothing for so long asks for nothing more; sound servers on a loaded machine take up to two seconds.
const STALL: Duration = Duration::from_secs(3);
/// How often cpal looks whether a card that says nothing is still there.
pub(super) const POLL: Duration = Duration::from_millis(500);
/// After an error, or after the end, the card's thread waits so long before it may ask again, so that it can never keep a core busy.
const REST: Duration = Duration::from_millis(20);

/// How long a sound server is waited for when nothing is to be played.
const PROBE_MAX: Duration = Duration::from_millis(300);
/// Whether one is being asked; a second one would wait behind it, inside ALSA.
static PROBED: AtomicBool = AtomicBool::new(false);

/// A sound card to play through.
pub struct CardPlayback {
    choice: CardChoice,
}

impl CardPlayback {
    /// The card of that choice, looked for anew at each sound.
    pub const fn new(choice: CardChoice) -> Self {
        Self { choice }
    }

    /// Whether the card opens, asked of itself. A card of the kernel is never opened for this. A sound server that does not answer
    /// holds up one thread, and whoever asks for [`PROBE_MAX`]; what was known last holds meanwhile.
    fn opens(&self) -> bool {
        let known = remembered(&self.choice, Way::Out);
        if let Some((_, opened)) = known.filter(|(at, _)| SystemClock.boot().since(*at) < BELIEVED) {
            return opened;
        }
        let last = known.is_some_and(|(_, opened)| opened);
        if PROBED.swap(true, Ordering::AcqRel) {
            return last;
        }
        let (tell, told) = sync_channel(1);
        let choice = self.choice.clone();
        let probe = std::thread::Builder::new().name("sound-probe".to_owned()).spawn(move || {
            let opens = Self::new(choice).offers().is_ok();
            PROBED.store(false, Ordering::Release);
            // Whoever asked may have had enough.
            let _ = tell.send(opens);
        });
        if probe.is_err() {
            PROBED.store(false, Ordering::Release);
        }
        told.recv_timeout(PROBE_MAX).unwrap_or(last)
    }

    fn offers(&self) -> Result<(Found, Vec<Offer>), SoundFault> {
        let found = find(&self.choice, Way::Out)
            .and_then(|card| offers(&card, &self.choice, Way::Out).map(|offers| (card, offers)));
        remember(&self.choice, Way::Out, !matches!(found, Err(SoundFault::Missing(_))));
        found
    }
}

impl Playback for CardPlayback {
    fn name(&self) -> String {
        self.choice.describe()
    }

    fn simulated(&self) -> bool {
        false
    }

    fn ready(&self) -> Result<(), SoundFault> {
        let there = match look(&self.choice, Way::Out) {
            Presence::There => true,
            Presence::Absent => false,
            Presence::Unknown => self.opens(),
        };
        if there { Ok(()) } else { Err(absent(&self.choice, Way::Out)) }
    }

    fn play(&self, pcm: &Pcm, stop: &CancellationToken) -> Result<(), SoundFault> {
        if pcm.samples.is_empty() {
            return Ok(());
        }
        let (card, offers) = self.offers()?;
        let mut last = SoundFault::Unusable(format!("{} offers no form of sound that is known here", self.name()));
        for form in candidates(&offers) {
            match self.play_as(&card, form, pcm, stop) {
                Err((fault, false)) if another_form_may_help(&fault) => last = fault,
                done => return done.map_err(|(fault, _)| fault),
            }
            tracing::debug!(card = self.name(), ?form, fault = %last, "the card does not play in this form");
        }
        Err(last)
    }
}

/// What the card's thread tells.
#[derive(Default)]
struct Told {
    /// How often it asked for sound.
    asked: u64,
    /// Whether it took any of ours.
    begun: bool,
    played: bool,
    fault: Option<SoundFault>,
    errors: Errors,
}

#[derive(Default)]
struct Shared {
    told: Mutex<Told>,
    changed: Condvar,
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of the sound.
    fn end(&self, stop: &CancellationToken) -> Result<(), SoundFault> {
        let (mut asked, mut since) = (0, SystemClock.boot());
        let mut told = self.told();
        loop {
            if let Some(fault) = told.fault.take() {
                return Err(fault);
            }
            if told.played {
                return Ok(());
            }
            if stop.is_cancelled() {
                return Err(SoundFault::Stopped);
            }
            let now = SystemClock.boot();
            if told.asked != asked {
                (asked, since) = (told.asked, now);
            } else if now.since(since) >= STALL {
                return Err(SoundFault::Silent);
            }
            told =
                self.changed.wait_timeout(told, SLICE).map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0);
        }
    }
}

impl CardPlayback {
    /// Plays in one form; a fault comes with whether any of the sound was taken.
    fn play_as(&self, card: &Found, form: Form, pcm: &Pcm, stop: &CancellationToken) -> Result<(), (SoundFault, bool)> {
        let samples = pcm.at(form.rate_hz).map_err(|fault| (fault, false))?;
        let shared = Arc::new(Shared::default());
        let feeder = Mutex::new(Feeder::new(form, samples));
        let feeder = Arc::new(feeder);
        let built = build(&form, |config| {
            let (feeder, of_data, of_error) = (Arc::clone(&feeder), Arc::clone(&shared), Arc::clone(&shared));
            card.device.build_output_stream_raw(
                config,
                sample_format(form.format),
                move |data, info| serve(&feeder, &of_data, form, data, info),
                move |error| tell(&of_error, &error),
                Some(POLL),
            )
        });
        let stream = built.map_err(|error| (cannot_open(&error, &self.choice, Way::Out), false))?;
        card.is_still_it().map_err(|fault| (fault, false))?;
        stream.play().map_err(|error| (cannot_open(&error, &self.choice, Way::Out), false))?;
        let ended = shared.end(stop);
        drop(stream);
        let told = shared.told();
        let gaps = told.errors.gaps();
        if gaps > 0 {
            tracing::debug!(card = self.name(), gaps, "the sound broke off");
        }
        ended.map_err(|fault| (fault, told.begun))
    }
}

/// The card asks for a piece.
fn serve(feeder: &Mutex<Feeder>, shared: &Shared, form: Form, data: &mut cpal::Data, info: &cpal::OutputCallbackInfo) {
    let times = info.timestamp();
    let ahead = times.playback.saturating_duration_since(times.callback).as_nanos() * u128::from(form.rate_hz);
    let ahead = u64::try_from(ahead / 1_000_000_000).unwrap_or(u64::MAX);
    let (played, begun) = {
        let mut feeder = feeder.lock().unwrap_or_else(PoisonError::into_inner);
        (feeder.fill(data.bytes_mut(), ahead), feeder.begun())
    };
    {
        let mut told = shared.told();
        told.asked += 1;
        told.begun |= begun;
        told.played |= played;
        told.errors.none();
    }
    if played {
        shared.changed.notify_all();
        // A card that is not paced would ask for silence without end until it is closed.
        rest();
    }
}

/// The card says that something is wrong.
fn tell(shared: &Shared, error: &cpal::Error) {
    {
        let mut told = shared.told();
        let fault = told.errors.one(upset(error));
        told.fault = told.fault.take().or(fault);
    }
    shared.changed.notify_all();
    rest();
}

/// Keeps the card's thread from asking again at once.
#[expect(
    clippy::disallowed_methods,
    reason = "twenty milliseconds that end by themselves, in a thread that can do nothing better"
)]
pub(super) fn rest() {
    std::thread::sleep(REST);
}
