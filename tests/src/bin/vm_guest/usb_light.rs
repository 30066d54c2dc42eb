//! A USB light that the test plays: the kernel's driver hid-led drives it and makes an LED class device of each of its colours, and
//! what the driver sends to the light arrives here. Its LEDs have the same names whenever it is plugged in.

#![allow(clippy::disallowed_methods, reason = "a test of real hardware polls the kernel")]

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::{
    led,
    shining::Shining,
    uhid::{About, Does, Uhid},
};

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

/// A plugged-in light; it vanishes when this is dropped.
pub(crate) struct UsbLight {
    device: Option<Uhid>,
    model: Model,
    pub(crate) shining: Shining,
}

impl UsbLight {
    /// Waits until the kernel has made its LED.
    pub(crate) fn plug_in(model: Model, serial: &str) -> Result<Self> {
        let shining = Shining::default();
        let (vendor, product) = model.vendor_and_product();
        let about = About { name: model.name(), serial, vendor, product, reports: &REPORTS };
        let device = Uhid::plug_in(&about, {
            let shining = shining.clone();
            move |does| {
                if let Does::Sends(report) = does {
                    shining.tell(model.shines(report));
                }
                Vec::new()
            }
        })?;
        let light = Self { device: Some(device), model, shining };
        light.wait_until(true)?;
        Ok(light)
    }

    /// Takes it away, as a pulled cable would, and waits until the kernel has noticed.
    pub(crate) fn unplug(mut self) -> Result<()> {
        drop(self.device.take());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn red_and_nothing_else_shines() {
        assert!(Model::Notifier.shines(&[0, 2, 0, 0, 0, 0]) && !Model::Flag.shines(&[0, 2, 0, 0, 0, 0]));
        assert!(!Model::Notifier.shines(&[0, 1, 0, 0, 0, 0]), "green is not red");
        assert!(Model::Flag.shines(&[0, 1, 1, 255, 0, 0]) && !Model::Flag.shines(&[0, 1, 1, 0, 255, 0]));
    }
}
