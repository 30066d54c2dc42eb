//! A camera that only pretends, for devices without hardware and for tests. It draws "simulated" into every picture, and can be told to
//! misbehave as real ones do. It counts what was done to it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use font8x8::legacy::BASIC_LEGACY;

use super::frame::{Frame, PixelFormat};
use super::{CameraFault, Source, Stream};
use crate::clock::{Clock as _, SystemClock};
use crate::trouble::{Planned, Trouble, Troubles};

/// Pixels across.
const WIDTH: usize = 640;
/// Pixels down.
const HEIGHT: usize = 480;
/// The black band at the top that carries the writing.
const BAND: usize = 96;
/// Each pixel of a letter is drawn this large.
const LETTER_SCALE: usize = 4;
/// Letters are this many pixels wide and high before they are scaled.
const LETTER: usize = 8;
/// Colour bars: white, yellow, cyan, green, magenta, red, blue, black.
const BARS: [[u8; 3]; 8] =
    [[191, 191, 191], [191, 191, 0], [0, 191, 191], [0, 191, 0], [191, 0, 191], [191, 0, 0], [0, 0, 191], [16, 16, 16]];

/// How a simulated camera misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraTrouble {
    /// There is none.
    Missing,
    /// Another program holds it.
    Busy,
    /// It is pulled out when the first frame is asked for.
    Unplugged,
    /// It opens and never sends a frame.
    Silent,
    /// Its first frames are black.
    DarkFirst(u32),
    /// Its first frames are broken.
    BrokenFirst(u32),
    /// It says "not yet" so many times before each frame.
    NotYet(u32),
    /// It sends one frame and no more.
    OneFrame,
    /// Its driver panics.
    Panic,
    /// Its driver hangs and hears nothing until [`SimulatedCamera::release`].
    Hang,
}

impl Trouble for CameraTrouble {
    const PART: &'static str = "camera";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("missing", Self::Missing, "there is no camera"),
        ("busy", Self::Busy, "another program holds it"),
        ("unplug", Self::Unplugged, "it is pulled out"),
        ("silent", Self::Silent, "it opens and never sends a frame"),
        ("dark-first", Self::DarkFirst(5), "its first five frames are black"),
        ("broken-first", Self::BrokenFirst(5), "its first five frames are broken"),
        ("broken", Self::BrokenFirst(u32::MAX), "every frame is broken"),
        ("not-yet", Self::NotYet(50), "it says fifty times before each frame that there is none yet"),
        ("one-frame", Self::OneFrame, "it sends one frame and no more"),
        ("panic", Self::Panic, "its driver crashes"),
        ("hang", Self::Hang, "its driver hangs for good"),
    ];
}

/// What a simulated camera has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CameraCounts {
    /// Times it was opened.
    pub opens: u64,
    /// Frames it gave.
    pub frames: u64,
    /// Times it was closed.
    pub closes: u64,
}

/// What happens to a simulated camera, for those who want to know when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraEvent {
    /// It was opened.
    Opened,
    /// It was closed.
    Closed,
}

type Listener = Box<dyn Fn(CameraEvent) + Send + Sync>;

/// A camera that only pretends; clones are the same camera.
#[derive(Clone)]
pub struct SimulatedCamera {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    listener: Listener,
    taken: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    colour: Option<[u8; 3]>,
    troubles: Troubles<CameraTrouble>,
    counts: CameraCounts,
    /// Counts calls of `release`; whoever hangs waits for the next one.
    releases: u64,
}

impl Default for SimulatedCamera {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedCamera {
    /// A working camera that shows colour bars.
    pub fn new() -> Self {
        Self::with_listener(|_| {})
    }

    /// A working camera that tells `listener`, in the capture thread, when it is opened and closed.
    pub fn with_listener(listener: impl Fn(CameraEvent) + Send + Sync + 'static) -> Self {
        let listener = Box::new(listener);
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: Condvar::new(),
                listener,
                taken: Arc::default(),
            }),
        }
    }

    /// From now on it shows this colour, or bars.
    pub fn colour(&self, rgb: Option<[u8; 3]>) {
        self.lock().colour = rgb;
    }

    /// From now on it misbehaves like this, or works.
    pub fn trouble(&self, trouble: Option<CameraTrouble>) {
        self.lock().troubles = Troubles::only(trouble);
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<CameraTrouble>>) {
        self.lock().troubles = Troubles::planned(planned);
    }

    /// Lets go of every capture that hangs now.
    pub fn release(&self) {
        self.lock().releases += 1;
        self.shared.changed.notify_all();
    }

    /// What it has done so far.
    pub fn counts(&self) -> CameraCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as a camera without frames does: for all of `wait`.
    fn nothing(&self, wait: Duration) {
        let (state, wait_over) = (self.lock(), |_: &mut State| true);
        drop(self.shared.changed.wait_timeout_while(state, wait, wait_over));
    }

    fn hang(&self) {
        let state = self.lock();
        let before = state.releases;
        drop(self.shared.changed.wait_while(state, |state| state.releases == before));
    }
}

impl std::fmt::Debug for SimulatedCamera {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedCamera").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Source for SimulatedCamera {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn taken(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.taken)
    }

    fn open(&self) -> Result<Box<dyn Stream>, CameraFault> {
        let trouble = {
            let mut state = self.lock();
            let trouble = state.troubles.first();
            match trouble {
                Some(CameraTrouble::Missing) => {
                    return Err(CameraFault::Missing("there is no camera on this device".to_owned()));
                }
                Some(CameraTrouble::Busy) => return Err(CameraFault::Busy),
                _ => {}
            }
            state.counts.opens += 1;
            trouble
        };
        (self.shared.listener)(CameraEvent::Opened);
        Ok(Box::new(Running { camera: self.clone(), trouble, asked: 0, sent: 0 }))
    }
}

struct Running {
    camera: SimulatedCamera,
    /// The trouble at the time of opening.
    trouble: Option<CameraTrouble>,
    asked: u32,
    sent: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.camera.lock().counts.closes += 1;
        (self.camera.shared.listener)(CameraEvent::Closed);
    }
}

impl Stream for Running {
    #[expect(clippy::panic, reason = "one of the troubles is a driver that panics")]
    fn next(&mut self, wait: Duration) -> Result<Option<Frame>, CameraFault> {
        self.asked += 1;
        match self.trouble {
            Some(CameraTrouble::Unplugged) => return Err(CameraFault::Unplugged),
            Some(CameraTrouble::Silent) => {
                self.camera.nothing(wait);
                return Ok(None);
            }
            Some(CameraTrouble::OneFrame) if self.sent > 0 => {
                self.camera.nothing(wait);
                return Ok(None);
            }
            Some(CameraTrouble::NotYet(times)) if !self.asked.is_multiple_of(times.saturating_add(1)) => {
                return Ok(None);
            }
            Some(CameraTrouble::Panic) => panic!("the simulated driver was told to panic"),
            Some(CameraTrouble::Hang) => self.camera.hang(),
            Some(
                CameraTrouble::Missing
                | CameraTrouble::Busy
                | CameraTrouble::DarkFirst(_)
                | CameraTrouble::BrokenFirst(_)
                | CameraTrouble::OneFrame
                | CameraTrouble::NotYet(_),
            )
            | None => {}
        }
        Ok(Some(self.frame()))
    }
}

impl Running {
    fn frame(&mut self) -> Frame {
        let dark = matches!(self.trouble, Some(CameraTrouble::DarkFirst(count)) if self.sent < count);
        let damaged = matches!(self.trouble, Some(CameraTrouble::BrokenFirst(count)) if self.sent < count);
        self.sent += 1;
        let (colour, number) = {
            let mut state = self.camera.lock();
            state.counts.frames += 1;
            (state.colour, state.counts.frames)
        };
        let bytes = if dark { vec![0; WIDTH * HEIGHT * 3] } else { draw(colour, number, SystemClock.wall_ms()) };
        Frame { format: PixelFormat::Rgb3, width: side(WIDTH), height: side(HEIGHT), stride: 0, bytes, damaged }
    }
}

fn side(pixels: usize) -> u32 {
    u32::try_from(pixels).unwrap_or(0)
}

/// The picture: bars or one colour under a black band that says "simulated", the frame's number and the time.
fn draw(colour: Option<[u8; 3]>, number: u64, wall_ms: u64) -> Vec<u8> {
    let mut rgb = vec![0; WIDTH * HEIGHT * 3];
    for (at, pixel) in rgb.chunks_exact_mut(3).enumerate().skip(WIDTH * BAND) {
        let bar = BARS.get(at % WIDTH * BARS.len() / WIDTH).copied().unwrap_or_default();
        pixel.copy_from_slice(&colour.unwrap_or(bar));
    }
    write(&mut rgb, 8, 8, "simulated");
    let seconds = wall_ms / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    write(&mut rgb, 8, 52, &format!("{number:06} {hours:02}:{minutes:02}:{:02}Z", seconds % 60));
    rgb
}

/// Writes white letters; what would fall outside is left out.
fn write(rgb: &mut [u8], left: usize, top: usize, text: &str) {
    for (place, letter) in text.bytes().enumerate() {
        let rows = BASIC_LEGACY.get(usize::from(letter)).copied().unwrap_or_default();
        for (y, row) in rows.iter().enumerate() {
            for x in (0..LETTER).filter(|x| row >> x & 1 == 1) {
                square(rgb, left + (place * LETTER + x) * LETTER_SCALE, top + y * LETTER_SCALE);
            }
        }
    }
}

fn square(rgb: &mut [u8], left: usize, top: usize) {
    if left + LETTER_SCALE > WIDTH {
        return;
    }
    for y in top..top + LETTER_SCALE {
        let start = (y * WIDTH + left) * 3;
        if let Some(line) = rgb.get_mut(start..start + LETTER_SCALE * 3) {
            line.fill(255);
        }
    }
}
