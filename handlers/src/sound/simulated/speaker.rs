//! A speaker that only pretends: it collects what a card would have played, and says in a line that it did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{ERROR_EACH, Machine, PERIOD_FRAMES, POLLERR, SoundTrouble, SpeakerTrouble};
use crate::clock::{Clock as _, SystemClock};
use crate::sound::flow::{Errors, Feeder, Upset};
use crate::sound::form::{Form, mix};
use crate::sound::{Pcm, Playback, SoundFault};
use crate::trouble::Planned;

/// How often `stop` is looked at.
const SLICE: Duration = Duration::from_millis(50);
/// A card that takes nothing for so long takes nothing more.
const STALL: Duration = Duration::from_secs(3);

/// What a simulated speaker played at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The rate that its card ran at.
    pub rate_hz: u32,
    /// What its card was given, each sample between -1 and 1, without the silence after its end.
    pub samples: Vec<f32>,
}

/// A speaker that only pretends; clones are the same speaker.
#[derive(Clone)]
pub struct SimulatedSpeaker {
    shared: Arc<Shared>,
}

struct Shared {
    machine: Machine<SpeakerTrouble>,
    say: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    at_once: bool,
    count: u64,
    last: Option<Played>,
}

impl Default for SimulatedSpeaker {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl SimulatedSpeaker {
    /// A working speaker. `say` gets a line for each sound.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let shared = Shared { machine: Machine::default(), say: Box::new(say), state: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// From now on it plays seconds of sound without taking seconds, or takes them again.
    pub fn at_once(&self, at_once: bool) {
        self.state().at_once = at_once;
    }

    /// From now on it misbehaves like this, or works.
    pub fn trouble(&self, trouble: Option<SoundTrouble>) {
        self.shared.machine.trouble(trouble.map(SpeakerTrouble));
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<SpeakerTrouble>>) {
        self.shared.machine.rehearse(planned);
    }

    /// Lets go of every sound that hangs now.
    pub fn release(&self) {
        self.shared.machine.release();
    }

    /// How many sounds it played, cut off ones too.
    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// What it played last.
    pub fn last(&self) -> Option<Played> {
        self.state().last.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Playback for SimulatedSpeaker {
    fn name(&self) -> String {
        "simulated speaker".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn ready(&self) -> Result<(), SoundFault> {
        self.shared.machine.present()
    }

    fn play(&self, pcm: &Pcm, stop: &CancellationToken) -> Result<(), SoundFault> {
        if pcm.samples.is_empty() {
            return Ok(());
        }
        let mut last = SoundFault::Silent;
        for form in self.shared.machine.open()? {
            let feeder = Feeder::new(form, pcm.at(form.rate_hz)?);
            let mut card = CardOfSpeaker { speaker: self, form, feeder, taken: Vec::new() };
            match card.play(stop) {
                Err(fault @ SoundFault::Driver(_)) if !card.feeder.begun() => last = fault,
                ended => {
                    card.tell();
                    return ended;
                }
            }
        }
        Err(last)
    }
}

/// The card that the speaker pretends to hang on, in one form.
struct CardOfSpeaker<'a> {
    speaker: &'a SimulatedSpeaker,
    form: Form,
    feeder: Feeder,
    taken: Vec<f32>,
}

impl CardOfSpeaker<'_> {
    fn play(&mut self, stop: &CancellationToken) -> Result<(), SoundFault> {
        let machine = &self.speaker.shared.machine;
        let mut errors = Errors::default();
        let started = SystemClock.boot();
        let mut piece = vec![0; usize::try_from(PERIOD_FRAMES).unwrap_or(0) * self.form.frame_bytes()];
        loop {
            machine.driver();
            if stop.is_cancelled() {
                return Err(SoundFault::Stopped);
            }
            if machine.has(SoundTrouble::Unplugged) && self.feeder.begun() {
                return Err(SoundFault::Unplugged);
            }
            if machine.has(SoundTrouble::Silent) {
                machine.wait(SLICE);
                if SystemClock.boot().since(started) >= STALL {
                    return Err(SoundFault::Silent);
                }
                continue;
            }
            if machine.fails_in(&self.form) {
                machine.wait(ERROR_EACH);
                errors.one(Upset::Other(POLLERR.to_owned())).map_or(Ok(()), Err)?;
                continue;
            }
            if machine.has(SoundTrouble::Gaps) {
                errors.one(Upset::Gap).map_or(Ok(()), Err)?;
            }
            // It holds nothing back: what it takes it has played.
            if self.feeder.fill(&mut piece, 0) {
                return Ok(());
            }
            errors.none();
            self.taken.extend(mix(&self.form, &piece));
            if !self.speaker.state().at_once {
                let period = u64::from(PERIOD_FRAMES) * 1_000 / u64::from(self.form.rate_hz.max(1));
                machine.wait(Duration::from_millis(period));
            }
        }
    }

    /// Keeps what was played, and says so.
    fn tell(self) {
        let mut samples = self.taken;
        samples.truncate(self.feeder.handed());
        if samples.is_empty() {
            return;
        }
        let ms = samples.len() as u64 * 1_000 / u64::from(self.form.rate_hz.max(1));
        (self.speaker.shared.say)(&format!("simulated speaker: plays {}.{} s of sound", ms / 1_000, ms % 1_000 / 100));
        let mut state = self.speaker.state();
        state.count += 1;
        state.last = Some(Played { rate_hz: self.form.rate_hz, samples });
    }
}
