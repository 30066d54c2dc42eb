//! Eight lights on the lines of a GPIO chip that the test plays: the CP2112 of Silicon Labs, a chip on USB, of which the kernel's driver
//! hid-cp2112 makes a GPIO chip. What the driver has it do and asks it arrives here; numbers and layouts of the reports are those of the
//! maker's application note AN495.

#![allow(clippy::disallowed_methods, reason = "a test of real hardware polls the kernel")]

use std::{
    array, fs,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{
    shining::Shining,
    uhid::{About, Does, Uhid},
};

/// What the driver calls its chip.
pub(crate) const LABEL: &str = "cp2112_gpio";
pub(crate) const LINES: usize = 8;
const VENDOR: u32 = 0x10c4;
const PRODUCT: u32 = 0xea90;
/// Reports: which lines are outputs, how the lines stand, setting some of them, what the chip is, and its bus that is not used here.
const DIRECTIONS: u8 = 0x02;
const LEVELS: u8 = 0x03;
const SET_LEVELS: u8 = 0x04;
const VERSION: u8 = 0x05;
const PART: u8 = 0x0c;
const BUS: u8 = 0x06;
const BUS_BYTES: usize = 14;
const APPEARS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// What the chip says of its reports: one of 63 bytes each way is enough for the driver, which knows the others.
const REPORTS: [u8; 29] = [
    0x06, 0x00, 0xff, // a vendor's own page
    0x09, 0x01, 0xa1, 0x01, // one collection
    0x15, 0x00, 0x26, 0xff, 0x00, // of values from 0 to 255
    0x75, 0x08, 0x95, 0x3f, // 63 bytes
    0x85, 0x10, 0x09, 0x01, 0x91, 0x02, // to it
    0x85, 0x13, 0x09, 0x01, 0x81, 0x02, // and from it
    0xc0, // that is all
];

/// A line of the chip.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    high: bool,
    output: bool,
    /// Stays low whatever it is told, as with a broken wire to the pin.
    stuck: bool,
}

impl Line {
    fn shines(self) -> bool {
        self.output && self.high
    }
}

type Lines = Arc<Mutex<[Line; LINES]>>;

/// A plugged-in chip; it vanishes when this is dropped.
pub(crate) struct GpioLights {
    device: Uhid,
    lines: Lines,
    shining: [Shining; LINES],
}

impl GpioLights {
    /// Waits until the kernel has made a GPIO chip of it.
    pub(crate) fn plug_in() -> Result<Self> {
        let (lines, shining): (Lines, [Shining; LINES]) = (Arc::default(), array::from_fn(|_| Shining::default()));
        let about = About { name: "CP2112", serial: "0051", vendor: VENDOR, product: PRODUCT, reports: &REPORTS };
        let device = Uhid::plug_in(&about, {
            let (lines, shining) = (Arc::clone(&lines), shining.clone());
            move |does| {
                let Ok(mut lines) = lines.lock() else { return Vec::new() };
                let before = *lines;
                let answer = obey(&mut lines, does);
                for ((before, after), shining) in before.iter().zip(lines.iter()).zip(&shining) {
                    if before.shines() != after.shines() {
                        shining.tell(after.shines());
                    }
                }
                answer
            }
        })?;
        wait_for_chips(1)?;
        Ok(Self { device, lines, shining })
    }

    /// The light on a line.
    pub(crate) fn shining(&self, line: usize) -> Shining {
        self.shining.get(line).cloned().unwrap_or_default()
    }

    /// Breaks the wire of every line, or mends it.
    pub(crate) fn stick(&self, stuck: bool) {
        if let Ok(mut lines) = self.lines.lock() {
            lines.iter_mut().for_each(|line| line.stuck = stuck);
        }
    }

    /// Takes it away, as a pulled cable would, and waits until the kernel has noticed.
    pub(crate) fn unplug(self) -> Result<()> {
        drop(self.device);
        wait_for_chips(0)
    }
}

/// Does what the driver wants, and gives what it asks for.
fn obey(lines: &mut [Line; LINES], does: Does<'_>) -> Vec<u8> {
    let bits = |which: fn(&Line) -> bool, lines: &[Line; LINES]| {
        lines.iter().rev().fold(0, |bits, line| bits << 1 | u8::from(which(line)))
    };
    match does {
        Does::Sends([DIRECTIONS, outputs, ..]) => {
            for (at, line) in lines.iter_mut().enumerate() {
                line.output = outputs >> at & 1 == 1;
            }
        }
        Does::Sends([SET_LEVELS, levels, which, ..]) => {
            for (at, line) in lines.iter_mut().enumerate().filter(|(at, _)| which >> at & 1 == 1) {
                line.high = levels >> at & 1 == 1 && !line.stuck;
            }
        }
        Does::Asks(DIRECTIONS) => return vec![DIRECTIONS, bits(|line| line.output, lines), 0, 0, 0],
        Does::Asks(LEVELS) => return vec![LEVELS, bits(|line| line.high, lines)],
        Does::Asks(VERSION) => return vec![VERSION, PART, 1],
        Does::Asks(BUS) => return [vec![BUS], vec![0; BUS_BYTES - 1]].concat(),
        Does::Sends(_) | Does::Asks(_) => {}
    }
    Vec::new()
}

fn wait_for_chips(count: usize) -> Result<()> {
    let began = Instant::now();
    let chips = || {
        let entries = fs::read_dir("/dev").into_iter().flatten().filter_map(Result::ok);
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("gpiochip")).count()
    };
    while chips() != count {
        ensure!(began.elapsed() < APPEARS, "there are {} GPIO chips, not {count}", chips());
        thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_set_as_the_driver_says_and_told_as_it_is() {
        let mut lines = [Line::default(); LINES];
        assert!(obey(&mut lines, Does::Sends(&[DIRECTIONS, 0b0000_0110, 0xff, 0, 0])).is_empty());
        obey(&mut lines, Does::Sends(&[SET_LEVELS, 0xff, 0b1000_0010]));
        assert_eq!(obey(&mut lines, Does::Asks(LEVELS)), [LEVELS, 0b1000_0010]);
        assert_eq!(obey(&mut lines, Does::Asks(DIRECTIONS)), [DIRECTIONS, 0b0000_0110, 0, 0, 0]);
        let shines = lines.map(Line::shines);
        assert_eq!(shines, [false, true, false, false, false, false, false, false], "the last one is no output");
        lines[1].stuck = true;
        obey(&mut lines, Does::Sends(&[SET_LEVELS, 0xff, 0b0000_0010]));
        assert!(!lines[1].shines());
        assert_eq!(obey(&mut lines, Does::Asks(BUS)).len(), BUS_BYTES);
    }
}
