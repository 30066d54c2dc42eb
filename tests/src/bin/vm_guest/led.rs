//! A light that the test can see. The kernel makes an LED class device for each light of an input device, and whoever made
//! the input device through `/dev/uinput` reads every change of it. Unplugging takes the LED out of `/sys/class/leds`.

#![allow(unsafe_code, reason = "an input device is made by ioctl, which the compiler cannot check")]
#![allow(clippy::disallowed_methods, reason = "a test of real hardware polls the kernel")]

use std::{
    collections::BTreeSet,
    ffi::{c_char, c_int},
    fs::{self, File, OpenOptions},
    io::Read,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::ioctl::{self, IntegerSetter, NoArg, Setter, opcode};

pub(crate) const LEDS: &str = "/sys/class/leds";
/// From `linux/input-event-codes.h`: events of lights, and a light without a meaning of its own.
const EV_LED: u16 = 0x11;
const LED_MISC: u16 = 0x08;
/// From `linux/input.h`: two 8-byte times, then type, code and value.
const EVENT_BYTES: usize = 24;
const BUS_VIRTUAL: u16 = 0x06;
/// The kernel makes the class device within milliseconds; the machine is slow.
const APPEARS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// `struct uinput_setup` of `linux/uinput.h`.
#[repr(C)]
struct Setup {
    bus: u16,
    vendor: u16,
    product: u16,
    version: u16,
    name: [c_char; 80],
    effects_max: u32,
}

/// The light went on or off at this time, by the kernel's clock that counts from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) on: bool,
    pub(crate) at: Duration,
}

/// A plugged-in light; it vanishes when this is dropped.
pub(crate) struct Led {
    device: File,
    name: String,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Led {
    pub(crate) fn plug_in() -> Result<Self> {
        let before = names()?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/uinput").context("opening /dev/uinput")?;
        let setup =
            Setup { bus: BUS_VIRTUAL, vendor: 1, product: 1, version: 1, name: spelled(b"latchkey"), effects_max: 0 };
        // SAFETY: the numbers and types are those of linux/uinput.h, and no call keeps a pointer.
        unsafe {
            ioctl::ioctl(
                &device,
                IntegerSetter::<{ opcode::write::<c_int>(b'U', 100) }>::new_usize(usize::from(EV_LED)),
            )?;
            ioctl::ioctl(
                &device,
                IntegerSetter::<{ opcode::write::<c_int>(b'U', 105) }>::new_usize(usize::from(LED_MISC)),
            )?;
            ioctl::ioctl(&device, Setter::<{ opcode::write::<Setup>(b'U', 3) }, Setup>::new(setup))?;
            ioctl::ioctl(&device, NoArg::<{ opcode::none(b'U', 1) }>::new())?;
        }
        let name = appeared(&before)?;
        let changes = Arc::new(Mutex::new(Vec::new()));
        thread::spawn({
            let (events, changes) = (device.try_clone()?, Arc::clone(&changes));
            move || watch(events, &changes)
        });
        Ok(Self { device, name, changes })
    }

    /// As under `/sys/class/leds`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// All changes so far, the first first.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.changes.lock().map(|changes| changes.clone()).unwrap_or_default()
    }

    /// The change with this index, as soon as it has happened.
    pub(crate) fn wait_for(&self, index: usize, limit: Duration) -> Result<Change> {
        let began = Instant::now();
        loop {
            if let Some(change) = self.changes().get(index) {
                return Ok(*change);
            }
            if began.elapsed() > limit {
                bail!("the LED did not change within {limit:?}; so far {:?}", self.changes());
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until it is off.
    pub(crate) fn wait_until_dark(&self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        while self.changes().last().is_some_and(|change| change.on) {
            if began.elapsed() > limit {
                bail!("the LED shines for more than {limit:?}");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Takes the light away, as a pulled cable would, and waits until the kernel has noticed.
    pub(crate) fn unplug(self) -> Result<()> {
        let path = Path::new(LEDS).join(&self.name);
        drop(self);
        let began = Instant::now();
        while path.exists() {
            if began.elapsed() > APPEARS {
                bail!("{} is still there", path.display());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        // SAFETY: UI_DEV_DESTROY takes no argument. It also ends the watching thread's read.
        let _ = unsafe { ioctl::ioctl(&self.device, NoArg::<{ opcode::none(b'U', 2) }>::new()) };
    }
}

fn watch(mut events: File, changes: &Mutex<Vec<Change>>) {
    let mut event = [0; EVENT_BYTES];
    while events.read_exact(&mut event).is_ok() {
        let [s0, s1, s2, s3, s4, s5, s6, s7, u0, u1, u2, u3, u4, u5, u6, u7, t0, t1, c0, c1, v0, v1, v2, v3] = event;
        let seconds = u64::from_ne_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let micros = u64::from_ne_bytes([u0, u1, u2, u3, u4, u5, u6, u7]);
        if (u16::from_ne_bytes([t0, t1]), u16::from_ne_bytes([c0, c1])) == (EV_LED, LED_MISC)
            && let Ok(mut changes) = changes.lock()
        {
            let at = Duration::from_secs(seconds) + Duration::from_micros(micros);
            changes.push(Change { on: i32::from_ne_bytes([v0, v1, v2, v3]) != 0, at });
        }
    }
}

fn appeared(before: &BTreeSet<String>) -> Result<String> {
    let began = Instant::now();
    loop {
        if let Some(name) = names()?.difference(before).find(|name| name.ends_with("::misc")) {
            return Ok(name.clone());
        }
        if began.elapsed() > APPEARS {
            bail!("the kernel made no LED for the input device");
        }
        thread::sleep(POLL);
    }
}

pub(crate) fn names() -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(LEDS).context("reading /sys/class/leds")?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn spelled(name: &[u8]) -> [c_char; 80] {
    let mut letters = [0; 80];
    for (letter, byte) in letters.iter_mut().zip(name) {
        *letter = c_char::from_ne_bytes([*byte]);
    }
    letters
}
