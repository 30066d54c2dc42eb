//! A microphone that only pretends: a quiet room in which somebody taps "SIM" in Morse code, so that nobody takes it for a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::{ERROR_EACH, Machine, MicrophoneTrouble, PERIOD_FRAMES, POLLERR, SoundTrouble};
use crate::clock::{BootTime, Clock as _, SystemClock};
use crate::sound::flow::{Errors, Upset};
use crate::sound::form::{Form, mix, write_frame};
use crate::sound::{Recording, RecordingStream, SoundFault};
use crate::trouble::Planned;

/// S, I and M: a mark for each beat, with the pauses between letters and a long one at the end.
const SIM: &[u8] = b"=.=.=...=.=...===.===.......";
/// Beats a second: slow enough to be read by ear.
const BEATS_PER_SECOND: u32 = 10;
/// The pitch of the taps.
const TAP_HZ: u32 = 1_000;
/// How loud taps and tones are, of 1.
const LOUD: f64 = 0.25;
/// How loud the room is.
const ROOM: f64 = 0.002;

/// A microphone that only pretends; clones are the same microphone.
#[derive(Clone, Default)]
pub struct SimulatedMicrophone {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    machine: Machine<MicrophoneTrouble>,
    taken: Arc<AtomicBool>,
    /// The pitch of a lasting tone in place of the taps; 0: none.
    tone_hz: AtomicU32,
    /// Gives its sound as fast as it is taken, in place of as fast as it would be heard.
    at_once: AtomicBool,
    opens: AtomicU64,
    closes: AtomicU64,
}

impl SimulatedMicrophone {
    /// A working microphone.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on it hears one lasting tone, or the taps again.
    pub fn tone(&self, pitch_hz: Option<u32>) {
        self.shared.tone_hz.store(pitch_hz.unwrap_or(0), Ordering::Relaxed);
    }

    /// From now on it gives seconds of sound without taking seconds, or takes them again.
    pub fn at_once(&self, at_once: bool) {
        self.shared.at_once.store(at_once, Ordering::Relaxed);
    }

    /// From now on it misbehaves like this, or works.
    pub fn trouble(&self, trouble: Option<SoundTrouble>) {
        self.shared.machine.trouble(trouble.map(MicrophoneTrouble));
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<MicrophoneTrouble>>) {
        self.shared.machine.rehearse(planned);
    }

    /// Lets go of every recording that hangs now.
    pub fn release(&self) {
        self.shared.machine.release();
    }

    /// How often it was opened.
    pub fn opens(&self) -> u64 {
        self.shared.opens.load(Ordering::Relaxed)
    }

    /// How often it was closed.
    pub fn closes(&self) -> u64 {
        self.shared.closes.load(Ordering::Relaxed)
    }
}

impl Recording for SimulatedMicrophone {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn taken(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.taken)
    }

    fn ready(&self) -> Result<(), SoundFault> {
        self.shared.machine.present()
    }

    fn open(&self) -> Result<Box<dyn RecordingStream>, SoundFault> {
        let mut forms = self.shared.machine.open()?.into_iter();
        let form = forms.next().ok_or(SoundFault::Silent)?;
        self.shared.opens.fetch_add(1, Ordering::Relaxed);
        let (shared, errors) = (Arc::clone(&self.shared), Errors::default());
        Ok(Box::new(Running { shared, form, forms, opened: SystemClock.boot(), frames: 0, errors }))
    }
}

struct Running {
    shared: Arc<Shared>,
    form: Form,
    forms: std::vec::IntoIter<Form>,
    opened: BootTime,
    frames: u64,
    errors: Errors,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.closes.fetch_add(1, Ordering::Relaxed);
    }
}

impl RecordingStream for Running {
    fn rate_hz(&self) -> u32 {
        self.form.rate_hz
    }

    fn next(&mut self, wait: Duration) -> Result<Option<Vec<f32>>, SoundFault> {
        let shared = Arc::clone(&self.shared);
        let machine = &shared.machine;
        machine.driver();
        if machine.has(SoundTrouble::Unplugged) && self.frames > 0 {
            return Err(SoundFault::Unplugged);
        }
        if machine.has(SoundTrouble::Silent) {
            machine.wait(wait);
            return Ok(None);
        }
        if machine.fails_in(&self.form) {
            return self.fail(wait);
        }
        let due = self.opened.add(span(self.frames + u64::from(PERIOD_FRAMES), self.form.rate_hz));
        let missing = due.since(SystemClock.boot());
        if !missing.is_zero() && !shared.at_once.load(Ordering::Relaxed) {
            machine.wait(missing.min(wait));
            if missing > wait {
                return Ok(None);
            }
        }
        Ok(Some(self.piece()))
    }
}

impl Running {
    /// The driver reports an error in place of sound; another form may bring it.
    fn fail(&mut self, wait: Duration) -> Result<Option<Vec<f32>>, SoundFault> {
        self.shared.machine.wait(wait.min(ERROR_EACH));
        let Some(fault) = self.errors.one(Upset::Other(POLLERR.to_owned())) else {
            return Ok(None);
        };
        self.form = self.forms.next().ok_or(fault)?;
        self.errors = Errors::default();
        Ok(None)
    }

    /// What the room sounded like, by way of the form it was opened in.
    fn piece(&mut self) -> Vec<f32> {
        let tone_hz = self.shared.tone_hz.load(Ordering::Relaxed);
        let mut bytes = Vec::new();
        let mut frame = vec![0; self.form.frame_bytes()];
        for at in self.frames..self.frames + u64::from(PERIOD_FRAMES) {
            write_frame(&self.form, room(at, self.form.rate_hz, tone_hz), &mut frame);
            bytes.extend_from_slice(&frame);
        }
        self.frames += u64::from(PERIOD_FRAMES);
        if self.shared.machine.has(SoundTrouble::Gaps) {
            self.frames += u64::from(PERIOD_FRAMES / 10);
        }
        mix(&self.form, &bytes)
    }
}

/// How long so many frames last.
fn span(frames: u64, rate_hz: u32) -> Duration {
    Duration::from_millis(frames.saturating_mul(1_000) / u64::from(rate_hz.max(1)))
}

/// One sample of the room: hiss, and over it taps, or a tone.
#[expect(clippy::cast_possible_truncation, reason = "a sample has no more precision")]
fn room(at: u64, rate_hz: u32, tone_hz: u32) -> f32 {
    let rate = u64::from(rate_hz.max(1));
    let (pitch, heard) = match tone_hz {
        0 => (TAP_HZ, mark(at * u64::from(BEATS_PER_SECOND) / rate)),
        lasting => (lasting, true),
    };
    // The angle is counted anew each second, so that it stays exact for ever.
    let turns = (at % rate) as f64 * f64::from(pitch) / rate as f64;
    let tap = if heard { LOUD * (turns * std::f64::consts::TAU).sin() } else { 0.0 };
    (tap + ROOM * hiss(at)) as f32
}

fn mark(beat: u64) -> bool {
    let at = usize::try_from(beat % SIM.len() as u64).unwrap_or(0);
    SIM.get(at) == Some(&b'=')
}

/// Noise from -1 to 1, the same for the same moment.
fn hiss(at: u64) -> f64 {
    let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f64 / f64::from(1_u32 << 23) - 1.0
}
