//! What vivid, the kernel's test camera, shows: one plain colour, chosen by its controls; and what it does wrong.

#![allow(unsafe_code, reason = "a camera control is set by ioctl, which the compiler cannot check")]
#![allow(
    clippy::disallowed_methods,
    reason = "the colour is drawn from real randomness, so that no picture can be prepared; the kernel is polled in real time"
)]

use std::{
    fs::{self, File, OpenOptions},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::ioctl::{self, Updater, opcode};

/// vivid's own controls: which picture, and what it writes over it.
const TEST_PATTERN: u32 = 0x00f0_f000;
const TEXT_OVER_IT: u32 = 0x00f0_f001;
const NO_TEXT: i32 = 2;
const DROPPED_PERCENT: u32 = 0x00f0_f040;
const DISCONNECT: u32 = 0x00f0_f041;
const DAMAGED_FRAME: u32 = 0x00f0_f042;
const FAIL_REQBUFS: u32 = 0x00f0_f043;
const FAIL_QBUF: u32 = 0x00f0_f044;
const FAIL_STREAMON: u32 = 0x00f0_f045;
const FATAL: u32 = 0x00f0_f046;
/// From `linux/videodev2.h`: frames that a camera captures, in memory that the driver gives.
const VIDEO_CAPTURE: u32 = 1;
const MAPPED: u32 = 1;
/// The driver's handle on its devices, and their name there.
const DRIVER: &str = "/sys/bus/platform/drivers/vivid";
const DRIVEN: &str = "vivid.0";
const APPEARS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How far a channel may be off: colour spaces and JPEG round, by a few steps each.
const TOLERANCE: u8 = 40;

/// A plain picture of vivid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Black,
    White,
    Red,
    Green,
    Blue,
}

impl Colour {
    const ALL: [Self; 5] = [Self::Black, Self::White, Self::Red, Self::Green, Self::Blue];

    /// Black is never drawn: a camera that shows nothing is black too.
    pub(crate) fn at_random(but: Option<Self>) -> Result<Self> {
        let choices =
            Self::ALL.into_iter().filter(|colour| *colour != Self::Black && Some(*colour) != but).collect::<Vec<_>>();
        let mut chance = [0; 4];
        getrandom::fill(&mut chance).context("no randomness")?;
        let index = u32::from_ne_bytes(chance) as usize % choices.len();
        choices.get(index).copied().context("no colour is left")
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Black => "black",
            Self::White => "white",
            Self::Red => "red",
            Self::Green => "green",
            Self::Blue => "blue",
        }
    }

    fn pattern(self) -> i32 {
        match self {
            Self::Black => 5,
            Self::White => 6,
            Self::Red => 7,
            Self::Green => 8,
            Self::Blue => 9,
        }
    }

    fn rgb(self) -> [u8; 3] {
        match self {
            Self::Black => [0, 0, 0],
            Self::White => [255, 255, 255],
            Self::Red => [255, 0, 0],
            Self::Green => [0, 255, 0],
            Self::Blue => [0, 0, 255],
        }
    }

    /// Whether this is the colour, and no other one is.
    pub(crate) fn is(self, seen: [u8; 3]) -> bool {
        let near = |colour: &Self| colour.rgb().iter().zip(seen).all(|(wanted, got)| wanted.abs_diff(got) <= TOLERANCE);
        Self::ALL.iter().filter(|colour| near(colour)).eq([&self])
    }
}

/// What vivid can be told to do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    DropsFrames { percent: i32 },
    Disconnects,
    DamagesAFrame,
    RefusesBuffers,
    RefusesABuffer,
    RefusesToStart,
    Stops,
}

/// `struct v4l2_requestbuffers` of `linux/videodev2.h`.
#[repr(C)]
struct Buffers {
    count: u32,
    kind: u32,
    memory: u32,
    capabilities: u32,
    flags: u32,
}

/// `struct v4l2_control` of `linux/videodev2.h`.
#[repr(C)]
struct Control {
    id: u32,
    value: i32,
}

/// Makes the camera show a colour and nothing else, from the next frame on.
pub(crate) fn show(camera: &Path, colour: Colour) -> Result<()> {
    set(camera, TEST_PATTERN, colour.pattern())?;
    set(camera, TEXT_OVER_IT, NO_TEXT)
}

/// Has the camera fail, once or until told otherwise.
pub(crate) fn fail(camera: &Path, failure: Failure) -> Result<()> {
    let (id, value) = match failure {
        Failure::DropsFrames { percent } => (DROPPED_PERCENT, percent),
        Failure::Disconnects => (DISCONNECT, 1),
        Failure::DamagesAFrame => (DAMAGED_FRAME, 1),
        Failure::RefusesBuffers => (FAIL_REQBUFS, 1),
        Failure::RefusesABuffer => (FAIL_QBUF, 1),
        Failure::RefusesToStart => (FAIL_STREAMON, 1),
        Failure::Stops => (FATAL, 1),
    };
    set(camera, id, value)
}

fn set(camera: &Path, id: u32, value: i32) -> Result<()> {
    let device = open(camera)?;
    let mut control = Control { id, value };
    // SAFETY: VIDIOC_S_CTRL reads and writes one v4l2_control, and keeps no pointer.
    let set = unsafe {
        ioctl::ioctl(&device, Updater::<{ opcode::read_write::<Control>(b'V', 28) }, Control>::new(&mut control))
    };
    set.with_context(|| format!("setting control {id:#x} to {value}"))
}

fn open(camera: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(camera);
    opened.with_context(|| format!("opening {}", camera.display()))
}

/// Takes the camera as another program would; it is free again when the handle is dropped.
pub(crate) fn occupy(camera: &Path) -> Result<File> {
    let device = open(camera)?;
    let mut asked = Buffers { count: 1, kind: VIDEO_CAPTURE, memory: MAPPED, capabilities: 0, flags: 0 };
    // SAFETY: VIDIOC_REQBUFS reads and writes one v4l2_requestbuffers, and keeps no pointer.
    let asked = unsafe {
        ioctl::ioctl(&device, Updater::<{ opcode::read_write::<Buffers>(b'V', 8) }, Buffers>::new(&mut asked))
    };
    asked.context("occupying the camera")?;
    Ok(device)
}

/// Pulls all cameras out, as a pulled cable would.
pub(crate) fn pull_out() -> Result<()> {
    fs::write(Path::new(DRIVER).join("unbind"), DRIVEN).context("pulling the camera out")
}

/// Puts them back and waits until they are there.
pub(crate) fn put_back(camera: &Path) -> Result<()> {
    fs::write(Path::new(DRIVER).join("bind"), DRIVEN).context("putting the camera back")?;
    let began = Instant::now();
    while !camera.exists() {
        ensure!(began.elapsed() < APPEARS, "{} did not come back", camera.display());
        thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seen: [u8; 3], is: Option<Colour>) {
        for colour in Colour::ALL {
            assert_eq!(colour.is(seen), Some(colour) == is, "{seen:?} as {}", colour.name());
        }
    }

    #[test]
    fn a_colour_is_itself_within_tolerance_and_no_other() {
        check([254, 1, 0], Some(Colour::Red));
        check([40, 215, 40], Some(Colour::Green));
        check([40, 214, 40], None);
        check([2, 0, 252], Some(Colour::Blue));
        check([240, 240, 240], Some(Colour::White));
        check([16, 16, 16], Some(Colour::Black));
        check([128, 128, 128], None);
        check([255, 255, 0], None);
    }

    #[test]
    fn the_second_colour_differs_from_the_first_and_none_is_black() {
        for _ in 0..64 {
            let first = Colour::at_random(None).unwrap();
            let second = Colour::at_random(Some(first)).unwrap();
            assert!(first != second && first != Colour::Black && second != Colour::Black);
        }
    }
}
