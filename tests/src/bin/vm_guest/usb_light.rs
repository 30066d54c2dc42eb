//! A USB light that the test plays: the kernel's driver hid-led drives it and makes an LED class device of each of its colours, and
//! what the driver sends to the light arrives here, through `/dev/uhid`. Its LEDs have the same names whenever it is plugged in.
//! Numbers and layouts are those of `linux/uhid.h`.

#![allow(clippy::disallowed_methods, reason = "a test of real hardware polls the kernel")]

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{kernel, led};

const UHID: &str = "/dev/uhid";
const DESTROY: u32 = 1;
const STOP: u32 = 3;
const OUTPUT: u32 = 6;
const CREATE: u32 = 11;
/// What the kernel writes of one event: its kind and the largest of its contents.
const EVENT_BYTES: usize = 4 + 4372;
/// Where the length of a report stands, behind room for the longest.
const REPORT_SIZE_AT: usize = 4096;
const BUS_USB: u16 = 0x03;
const APPEARS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A light that hid-led knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// Riso Kagaku's Webmail Notifier: the second byte of its one report is the number of a colour.
    Notifier,
    /// Luxafor's flag, of six lights.
    Flag,
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Self::Notifier => "Webmail Notifier",
            Self::Flag => "Luxafor",
        }
    }

    fn vendor_and_product(self) -> (u32, u32) {
        match self {
            Self::Notifier => (0x1294, 0x1320),
            Self::Flag => (0x04d8, 0xf372),
        }
    }

    /// The LED that the kernel makes of its red, where no other HID device is there.
    pub(crate) fn red(self) -> &'static str {
        match self {
            Self::Notifier => "riso_kagaku0:red",
            Self::Flag => "luxafor0:red:led0",
        }
    }

    /// Whether a report lights its red.
    fn shines(self, report: &[u8]) -> bool {
        match self {
            Self::Notifier => report.get(1) == Some(&2),
            // A flag is told a light and its red, green and blue.
            Self::Flag => report.get(3).is_some_and(|red| *red > 0),
        }
    }
}

/// What a HID device says of its reports: of its own kind, with no meaning of their own, 8 bytes to it.
const REPORTS: [u8; 21] = [
    0x06, 0x00, 0xff, // a vendor's own page
    0x09, 0x01, 0xa1, 0x01, // one collection
    0x15, 0x00, 0x26, 0xff, 0x00, // of values from 0 to 255
    0x75, 0x08, 0x95, 0x08, // eight bytes
    0x09, 0x01, 0x91, 0x02, // sent to it
    0xc0, // that is all
];

/// What the light was told, and when it arrived, by the kernel's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) shines: bool,
    pub(crate) at: Duration,
    report: Vec<u8>,
}

/// A plugged-in light; it vanishes when this is dropped.
pub(crate) struct UsbLight {
    line: File,
    model: Model,
    told: Arc<Mutex<Vec<Told>>>,
}

impl UsbLight {
    /// Waits until the kernel has made its LED.
    pub(crate) fn plug_in(model: Model, serial: &str) -> Result<Self> {
        let mut line = OpenOptions::new().read(true).write(true).open(UHID).context("opening /dev/uhid")?;
        line.write_all(&create(model, serial)?).context("plugging in a USB light")?;
        let told = Arc::new(Mutex::new(Vec::new()));
        thread::spawn({
            let (line, told) = (line.try_clone()?, Arc::clone(&told));
            move || listen(line, model, &told)
        });
        let light = Self { line, model, told };
        light.wait_until(true)?;
        Ok(light)
    }

    /// All that it was told so far, the first first.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().map(|told| told.clone()).unwrap_or_default()
    }

    /// The lighting that began after so many reports: when it went on and when it went off, as soon as it is over.
    pub(crate) fn lighting(&self, from: usize, limit: Duration) -> Result<(Duration, Duration)> {
        let began = Instant::now();
        loop {
            let told = self.told();
            let mut new = told.iter().skip(from).skip_while(|told| !told.shines);
            if let Some(on) = new.next()
                && let Some(off) = new.find(|told| !told.shines)
            {
                return Ok((on.at, off.at));
            }
            if began.elapsed() > limit {
                bail!("the light did not go on and off within {limit:?}; it was told {told:?}");
            }
            thread::sleep(POLL);
        }
    }

    /// Whether it shines now.
    pub(crate) fn shines(&self) -> bool {
        self.told().last().is_some_and(|told| told.shines)
    }

    /// Takes it away, as a pulled cable would, and waits until the kernel has noticed.
    pub(crate) fn unplug(mut self) -> Result<()> {
        self.line.write_all(&DESTROY.to_ne_bytes()).context("unplugging the USB light")?;
        self.wait_until(false)
    }

    fn wait_until(&self, there: bool) -> Result<()> {
        let path = Path::new(led::LEDS).join(self.model.red());
        let began = Instant::now();
        while path.join("brightness").exists() != there {
            if began.elapsed() > APPEARS {
                let state = if there { "did not come" } else { "is still there" };
                bail!("{} {state}; there are {:?}", path.display(), led::names()?);
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for UsbLight {
    fn drop(&mut self) {
        // Also ends the listening thread's read. Unplugged twice is an error that nobody needs to know.
        let _ = self.line.write_all(&DESTROY.to_ne_bytes());
    }
}

/// `struct uhid_create2_req`, behind its kind.
fn create(model: Model, serial: &str) -> Result<Vec<u8>> {
    let (vendor, product) = model.vendor_and_product();
    let mut event = CREATE.to_ne_bytes().to_vec();
    for (text, bytes) in [(model.name(), 128), ("usb-test/input0", 64), (serial, 64)] {
        let end = event.len() + bytes;
        event.extend(text.bytes().take(bytes - 1));
        event.resize(end, 0);
    }
    event.extend(u16::try_from(REPORTS.len())?.to_ne_bytes());
    event.extend(BUS_USB.to_ne_bytes());
    for number in [vendor, product, 1, 0] {
        event.extend(number.to_ne_bytes());
    }
    event.extend(REPORTS);
    Ok(event)
}

fn listen(mut line: File, model: Model, told: &Mutex<Vec<Told>>) {
    let mut event = [0; EVENT_BYTES];
    while let Ok(1..) = line.read(&mut event) {
        let Some((kind, content)) = event.split_first_chunk::<4>() else { return };
        match u32::from_ne_bytes(*kind) {
            OUTPUT => {
                let at = kernel::now();
                if let (Some(report), Ok(mut told)) = (report(content), told.lock()) {
                    told.push(Told { shines: model.shines(&report), at, report });
                }
            }
            STOP => return,
            _ => {}
        }
    }
}

/// `struct uhid_output_req`
fn report(content: &[u8]) -> Option<Vec<u8>> {
    let (bytes, behind) = content.split_at_checked(REPORT_SIZE_AT)?;
    let size = u16::from_ne_bytes(*behind.first_chunk()?);
    bytes.get(..usize::from(size)).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_light_is_described_as_the_kernel_reads_it_and_a_report_is_cut_to_its_length() {
        let event = create(Model::Notifier, "41").unwrap();
        assert_eq!(event.len(), 4 + 128 + 64 + 64 + 2 + 2 + 4 * 4 + REPORTS.len());
        assert!(event.starts_with(b"\x0b\0\0\0Webmail Notifier\0") && event.ends_with(&REPORTS));
        assert_eq!(event.get(260..272), Some(&[21, 0, 3, 0, 0x94, 0x12, 0, 0, 0x20, 0x13, 0, 0][..]));
        let mut content = vec![0; EVENT_BYTES - 4];
        content[1] = 2;
        content[REPORT_SIZE_AT] = 6;
        let report = report(&content).unwrap();
        assert_eq!(report, [0, 2, 0, 0, 0, 0]);
        assert!(Model::Notifier.shines(&report) && !Model::Flag.shines(&report));
        assert!(!Model::Notifier.shines(&[0, 1, 0, 0, 0, 0]), "green is not red");
    }
}
