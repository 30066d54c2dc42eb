//! Sound hardware that only pretends, for devices without any and for tests. It can be told to misbehave as real cards do, and counts
//! what was done to it. What passes through it takes the way that real sound takes: a form chosen from what it advertises, and samples
//! written in that form.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::SoundFault;
use super::form::{Form, Format, Offer, candidates};
use crate::trouble::{Planned, Trouble, Troubles};

mod microphone;
mod speaker;

pub use microphone::SimulatedMicrophone;
pub use speaker::{Played, SimulatedSpeaker};

/// How simulated sound hardware misbehaves, whichever way sound goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoundTrouble {
    /// There is none.
    Missing,
    /// Another program holds it.
    Busy,
    /// The program may not open it.
    Forbidden,
    /// It is pulled out while sound flows.
    Unplugged,
    /// It opens, and no sound passes.
    Silent,
    /// It knows 48 kHz and nothing else.
    Only48k,
    /// It knows 8 bit and nothing else.
    OnlyU8,
    /// It advertises rates and channels without sense.
    WildRange,
    /// It advertises floating point first, and fails in it.
    FloatFails,
    /// It reports an error at every turn.
    PollError,
    /// It is not served in time now and then.
    Gaps,
    /// Its driver hangs and hears nothing until it is let go.
    Hang,
    /// Its driver panics.
    Panic,
}

/// A trouble of a simulated microphone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicrophoneTrouble(pub SoundTrouble);

/// A trouble of a simulated speaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeakerTrouble(pub SoundTrouble);

impl Trouble for MicrophoneTrouble {
    const PART: &'static str = "microphone";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("missing", Self(SoundTrouble::Missing), "there is no microphone"),
        ("busy", Self(SoundTrouble::Busy), "another program uses it"),
        ("forbidden", Self(SoundTrouble::Forbidden), "the program may not open it"),
        ("unplug", Self(SoundTrouble::Unplugged), "it is pulled out while it records"),
        ("silent", Self(SoundTrouble::Silent), "it opens and never sends a sample"),
        ("48k-only", Self(SoundTrouble::Only48k), "it knows 48 kHz and nothing else"),
        ("u8-only", Self(SoundTrouble::OnlyU8), "it knows 8 bits and nothing else"),
        ("wild-range", Self(SoundTrouble::WildRange), "it offers 4 kHz to 4 GHz and 32 channels"),
        ("float-fails", Self(SoundTrouble::FloatFails), "it offers floating point first, and reports errors in it"),
        ("pollerr", Self(SoundTrouble::PollError), "it reports an error at every turn (POLLERR)"),
        ("gaps", Self(SoundTrouble::Gaps), "now and then it loses some sound"),
        ("hang", Self(SoundTrouble::Hang), "its driver hangs and hears nothing"),
        ("panic", Self(SoundTrouble::Panic), "its driver crashes"),
    ];
}

impl Trouble for SpeakerTrouble {
    const PART: &'static str = "speaker";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("missing", Self(SoundTrouble::Missing), "there is no speaker"),
        ("busy", Self(SoundTrouble::Busy), "another program uses it"),
        ("forbidden", Self(SoundTrouble::Forbidden), "the program may not open it"),
        ("unplug", Self(SoundTrouble::Unplugged), "it is pulled out while it plays"),
        ("silent", Self(SoundTrouble::Silent), "it opens and never takes a sample"),
        ("48k-only", Self(SoundTrouble::Only48k), "it knows 48 kHz and nothing else"),
        ("u8-only", Self(SoundTrouble::OnlyU8), "it knows 8 bits and nothing else"),
        ("wild-range", Self(SoundTrouble::WildRange), "it offers 4 kHz to 4 GHz and 32 channels"),
        ("float-fails", Self(SoundTrouble::FloatFails), "it offers floating point first, and reports errors in it"),
        ("pollerr", Self(SoundTrouble::PollError), "it reports an error at every turn (POLLERR)"),
        ("gaps", Self(SoundTrouble::Gaps), "now and then it reports that it was not served in time"),
        ("hang", Self(SoundTrouble::Hang), "its driver hangs and hears nothing"),
        ("panic", Self(SoundTrouble::Panic), "its driver crashes"),
    ];
}

impl From<MicrophoneTrouble> for SoundTrouble {
    fn from(trouble: MicrophoneTrouble) -> Self {
        trouble.0
    }
}

impl From<SpeakerTrouble> for SoundTrouble {
    fn from(trouble: SpeakerTrouble) -> Self {
        trouble.0
    }
}

/// Frames that pass at once: a twentieth of a second at 48 kHz.
const PERIOD_FRAMES: u32 = 2_400;
/// How long a driver takes to report one error.
const ERROR_EACH: Duration = Duration::from_millis(20);
/// What a driver that fails says.
const POLLERR: &str = "it reports an error at every turn (POLLERR)";

/// One piece of hardware that pretends, with its troubles.
struct Machine<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    troubles: Troubles<T>,
    /// Counts calls of `release`; whoever hangs waits for the next one.
    releases: u64,
}

impl<T> Default for Machine<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { troubles: Troubles::default(), releases: 0 }), changed: Condvar::new() }
    }
}

impl<T: Trouble + Into<SoundTrouble>> Machine<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rehearse(&self, planned: Vec<Planned<T>>) {
        self.lock().troubles = Troubles::planned(planned);
    }

    fn trouble(&self, trouble: Option<T>) {
        self.lock().troubles = Troubles::only(trouble);
    }

    fn release(&self) {
        self.lock().releases += 1;
        self.changed.notify_all();
    }

    fn has(&self, trouble: SoundTrouble) -> bool {
        self.lock().troubles.now().into_iter().any(|now| now.into() == trouble)
    }

    /// Hangs or panics, where it was told to.
    #[expect(clippy::panic, reason = "a driver that panics is one of the things it pretends to be")]
    fn driver(&self) {
        if self.has(SoundTrouble::Hang) {
            let state = self.lock();
            let before = state.releases;
            drop(self.changed.wait_while(state, |state| state.releases == before));
        }
        if self.has(SoundTrouble::Panic) {
            panic!("the simulated {} was told to", T::PART);
        }
    }

    /// Waits for all of `wait`.
    fn wait(&self, wait: Duration) {
        let (state, over) = (self.lock(), |_: &mut State<T>| true);
        drop(self.changed.wait_timeout_while(state, wait, over));
    }

    /// Whether it is there, and open to us.
    fn present(&self) -> Result<(), SoundFault> {
        if self.has(SoundTrouble::Missing) {
            return Err(SoundFault::Missing(format!("there is no {} on this device", T::PART)));
        }
        if self.has(SoundTrouble::Forbidden) {
            return Err(SoundFault::Forbidden(format!("this program may not open the {}", T::PART)));
        }
        Ok(())
    }

    /// The forms in which it is opened, best first.
    fn open(&self) -> Result<Vec<Form>, SoundFault> {
        self.present()?;
        if self.has(SoundTrouble::Busy) {
            return Err(SoundFault::Busy);
        }
        Ok(candidates(&self.offers()))
    }

    /// What it advertises.
    fn offers(&self) -> Vec<Offer> {
        let offer = |format, channels, rates_hz| Offer {
            format,
            channels,
            rates_hz,
            period_frames: Some(PERIOD_FRAMES..=PERIOD_FRAMES),
        };
        if self.has(SoundTrouble::WildRange) {
            let formats = [Format::U8, Format::F64, Format::F32, Format::I16];
            let all = (1..=32).flat_map(|channels| formats.map(|format| offer(format, channels, 4_000..=u32::MAX)));
            return all.collect();
        }
        let rates = if self.has(SoundTrouble::Only48k) { 48_000..=48_000 } else { 44_100..=48_000 };
        if self.has(SoundTrouble::OnlyU8) {
            return vec![offer(Format::U8, 1, rates)];
        }
        if self.has(SoundTrouble::FloatFails) {
            // At a rate so low that floating point looks better.
            return vec![offer(Format::F32, 2, rates), offer(Format::I16, 2, 8_000..=8_000)];
        }
        vec![offer(Format::I16, 2, rates)]
    }

    /// Whether it reports errors in that form, in place of sound.
    fn fails_in(&self, form: &Form) -> bool {
        self.has(SoundTrouble::PollError) || (self.has(SoundTrouble::FloatFails) && form.format == Format::F32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trouble::Span;

    #[test]
    fn a_trouble_comes_at_its_time_and_goes_when_it_is_mended() {
        let machine: Machine<MicrophoneTrouble> = Machine::default();
        let planned = [("busy", Span::ALWAYS), ("missing", Span::parse("3600s").unwrap())];
        let planned = planned.map(|(word, span)| Planned { trouble: MicrophoneTrouble::named(word).unwrap(), span });
        machine.rehearse(planned.to_vec());
        assert!(machine.has(SoundTrouble::Busy) && !machine.has(SoundTrouble::Missing));
        assert_eq!(machine.open(), Err(SoundFault::Busy));
        machine.trouble(None);
        assert!(machine.open().is_ok());
    }
}
