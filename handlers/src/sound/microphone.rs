//! `microphone.listen`: so many seconds of sound, under a lit sign.
//!
//! Owns the capture thread. It holds the sign until the card is closed again and ends by itself within its limits; a thread that hangs
//! in the driver keeps the sign lit and the microphone unavailable. Refuses a sign that pretends for a microphone that does not, and the
//! reverse. The sound is in memory alone, from the card to the answer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wire::declaration::LISTEN_SECONDS_MAX;
use wire::{Declaration, Object};

use super::card::{CardChoice, CardRecording};
use super::resample::resample;
use super::simulated::SimulatedMicrophone;
use super::{Pcm, Recording, SoundFault};
use crate::clock::{BootTime, Clock as _, SystemClock};
use crate::handler::{Call, CaptureHandler, Fault};
use crate::sign::Lit;

/// Samples a second of what is given: what speech needs, and no more.
pub const LISTEN_HZ: u32 = 16_000;

/// How long a recording waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenLimits {
    /// Beyond the seconds asked for: a second less than the capability's time-out has, so that the reason reaches the caller.
    pub beyond: Duration,
    /// From one sound to the next, the first one counted from the opening: sound servers give theirs in pieces of up to 2 s.
    pub stall: Duration,
    /// How often `stop` is looked at while waiting.
    pub slice: Duration,
}

impl Default for ListenLimits {
    fn default() -> Self {
        Self { beyond: Duration::from_secs(4), stall: Duration::from_millis(3500), slice: Duration::from_millis(100) }
    }
}

/// `microphone.listen` over something that records.
pub struct Microphone {
    declaration: Declaration,
    source: Arc<dyn Recording>,
    limits: ListenLimits,
}

impl Microphone {
    /// The handler over `source`.
    pub fn new(source: impl Recording, limits: ListenLimits) -> Self {
        Self { declaration: Declaration::microphone_listen(), source: Arc::new(source), limits }
    }

    /// A sound card of the system.
    pub fn card(choice: CardChoice) -> Self {
        Self::new(CardRecording::new(choice), ListenLimits::default())
    }

    /// A microphone that only pretends.
    pub fn simulated(microphone: SimulatedMicrophone) -> Self {
        Self::new(microphone, ListenLimits::default())
    }

    /// What people call the microphone.
    pub fn name(&self) -> String {
        self.source.name()
    }

    fn refusal(&self, lit: &Lit) -> Option<Fault> {
        match (self.source.simulated(), lit.simulated()) {
            (true, true) | (false, false) => None,
            (false, true) => Some("a simulated in-use sign does not serve a real microphone"),
            (true, false) => Some("a real in-use sign does not serve a simulated microphone"),
        }
        .map(|reason| Fault::Unavailable(reason.to_owned()))
    }
}

/// The microphone's one place; free again when this is dropped.
struct Seat(Arc<AtomicBool>);

impl Seat {
    fn take(taken: Arc<AtomicBool>) -> Option<Self> {
        (!taken.swap(true, Ordering::AcqRel)).then(|| Self(taken))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CaptureHandler for Microphone {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        if let Some(refusal) = self.refusal(&lit) {
            return ready(Err(refusal)).boxed();
        }
        let seconds = call.arguments.integer("seconds").and_then(|seconds| u64::try_from(seconds).ok());
        let Some(seconds) = seconds.filter(|seconds| (1..=LISTEN_SECONDS_MAX).contains(seconds)) else {
            let reason = format!("must be from 1 to {LISTEN_SECONDS_MAX}");
            return ready(Err(Fault::Invalid { member: "seconds".to_owned(), reason })).boxed();
        };
        let Some(seat) = Seat::take(self.source.taken()) else {
            let reason = "a former recording still hangs in the sound card's driver";
            return ready(Err(Fault::Unavailable(reason.to_owned()))).boxed();
        };
        listen(Arc::clone(&self.source), self.limits, seconds, call, lit, seat).boxed()
    }
}

async fn listen(
    source: Arc<dyn Recording>,
    limits: ListenLimits,
    seconds: u64,
    call: Call,
    lit: Lit,
    seat: Seat,
) -> Result<Object, Fault> {
    let stop = call.stop.child_token();
    // A caller that goes away stops the thread.
    let _guard = stop.clone().drop_guard();
    let watch = Watch { limits, seconds, started: SystemClock.boot(), stop, lost: lit.lost() };
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("microphone".to_owned()).spawn(move || {
        let heard = catch_unwind(AssertUnwindSafe(|| record(&*source, &watch)));
        let value = into_value(heard);
        // The card is closed by now: the next recording may come, and the sign may go off.
        drop(seat);
        drop(lit);
        // The caller may have gone.
        let _ = done.send(value);
    });
    if let Err(error) = thread {
        return Err(Fault::Unavailable(format!("no thread for the microphone: {error}")));
    }
    outcome.await.unwrap_or_else(|_| Err(Fault::Unavailable("the microphone's thread ended early".to_owned())))
}

fn into_value(heard: Result<Result<Pcm, SoundFault>, Box<dyn Any + Send>>) -> Result<Object, Fault> {
    match heard {
        Ok(Ok(pcm)) => {
            let mut value = Object::new();
            value.insert("mime", "audio/wav");
            value.insert("data", wire::text::base64_encode(&pcm.to_wav()));
            Ok(value)
        }
        Ok(Err(SoundFault::Stopped)) => Err(Fault::Stopped),
        Ok(Err(fault)) => Err(Fault::Unavailable(fault.to_string())),
        Err(panic) => Err(Fault::Unavailable(format!("the sound card's driver crashed: {}", panic_text(&*panic)))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// How long a recording lasts, and what ends it before.
struct Watch {
    limits: ListenLimits,
    seconds: u64,
    started: BootTime,
    stop: CancellationToken,
    lost: CancellationToken,
}

impl Watch {
    /// Time until the deadline; ends the recording when it was stopped.
    fn left(&self) -> Result<Duration, SoundFault> {
        if self.stop.is_cancelled() || self.lost.is_cancelled() {
            return Err(SoundFault::Stopped);
        }
        let whole = Duration::from_secs(self.seconds).saturating_add(self.limits.beyond);
        Ok(whole.saturating_sub(SystemClock.boot().since(self.started)))
    }
}

/// The recording, from the card's opening to its closing: so many samples, however long the card takes for them.
fn record(source: &dyn Recording, watch: &Watch) -> Result<Pcm, SoundFault> {
    watch.left()?;
    let mut stream = source.open()?;
    let mut heard: Vec<f32> = Vec::new();
    let mut last = SystemClock.boot();
    loop {
        let left = watch.left()?;
        if left.is_zero() {
            return Err(too_slow(&heard, stream.rate_hz(), watch));
        }
        match stream.next(watch.limits.slice.min(left))? {
            Some(piece) => {
                heard.extend(piece);
                last = SystemClock.boot();
            }
            None if SystemClock.boot().since(last) >= watch.limits.stall => return Err(SoundFault::Silent),
            None => {}
        }
        // Asked anew: a card may have changed to another form before its first sound.
        let wanted = usize::try_from(u64::from(stream.rate_hz()) * watch.seconds).unwrap_or(usize::MAX);
        if heard.len() >= wanted {
            let rate_hz = stream.rate_hz();
            drop(stream);
            heard.truncate(wanted);
            return Ok(Pcm::of(&resample(&heard, rate_hz, LISTEN_HZ)?, LISTEN_HZ));
        }
    }
}

fn too_slow(heard: &[f32], rate_hz: u32, watch: &Watch) -> SoundFault {
    let got_ms = Pcm { rate_hz, samples: vec![0; heard.len()] }.duration().as_millis();
    let in_s = Duration::from_secs(watch.seconds).saturating_add(watch.limits.beyond).as_secs();
    SoundFault::Driver(format!("it gave {got_ms} ms of sound in {in_s} s"))
}
