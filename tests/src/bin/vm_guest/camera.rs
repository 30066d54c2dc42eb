//! What vivid, the kernel's test camera, shows: one plain colour, chosen by its controls.

#![allow(unsafe_code, reason = "a camera control is set by ioctl, which the compiler cannot check")]
#![allow(
    clippy::disallowed_methods,
    reason = "the colour is drawn from real randomness, so that no picture can be prepared"
)]

use std::{fs::OpenOptions, path::Path};

use anyhow::{Context, Result};
use rustix::ioctl::{self, Updater, opcode};

/// vivid's own controls: which picture, and what it writes over it.
const TEST_PATTERN: u32 = 0x00f0_f000;
const TEXT_OVER_IT: u32 = 0x00f0_f001;
const NO_TEXT: i32 = 2;
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

/// `struct v4l2_control` of `linux/videodev2.h`.
#[repr(C)]
struct Control {
    id: u32,
    value: i32,
}

/// Makes the camera show a colour and nothing else, from the next frame on.
pub(crate) fn show(camera: &Path, colour: Colour) -> Result<()> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open(camera)
        .with_context(|| format!("opening {}", camera.display()))?;
    for (id, value) in [(TEST_PATTERN, colour.pattern()), (TEXT_OVER_IT, NO_TEXT)] {
        let mut control = Control { id, value };
        // SAFETY: VIDIOC_S_CTRL reads and writes one v4l2_control, and keeps no pointer.
        let set = unsafe {
            ioctl::ioctl(&device, Updater::<{ opcode::read_write::<Control>(b'V', 28) }, Control>::new(&mut control))
        };
        set.with_context(|| format!("setting control {id:#x} to {value}"))?;
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
