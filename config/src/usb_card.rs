//! How a sound card on USB is written in the settings: `usb:VENDOR:PRODUCT,SERIAL=…` or `usb:VENDOR:PRODUCT,PORT=…`, and behind it perhaps
//! `,DEV=n`, which of its ways in or out.
//!
//! Read by the settings, obeyed by the sound cards. Refuses what names a kind of card and not one card. Which card has such a name now is asked of
//! the kernel, each time.

use std::fmt;
use std::str::FromStr;

/// How such a name begins.
const USB: &str = "usb:";
const SERIAL: &str = "SERIAL=";
const PORT: &str = "PORT=";
const DEVICE: &str = "DEV=";
/// The longest serial number or place, as it is spelled here: what `latchkeyd hardware` prints is never longer.
pub const MARK_BYTES_MAX: usize = 96;

/// A sound card on USB, or rather one of its ways in or out, as the keeper named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsbCard {
    /// What kind of card.
    pub kind: UsbKind,
    /// Which one of them.
    pub mark: UsbMark,
    /// Which of its ways in or out; 0 where the name does not say.
    pub device: u32,
}

/// What USB calls a kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsbKind {
    vendor: u16,
    product: u16,
}

/// Which of the cards of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsbMark {
    /// The one that says this of itself.
    Serial(String),
    /// The one that is plugged in there.
    Port(String),
}

/// Why a text names no card on USB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no sound card on USB: write usb:VENDOR:PRODUCT,SERIAL=… or usb:VENDOR:PRODUCT,PORT=…, as latchkeyd hardware prints it"
)]
pub struct NoUsbCard(String);

impl UsbKind {
    /// The kind whose numbers are spelled as the kernel spells them: four hexadecimal digits each.
    pub fn spelled(vendor: &str, product: &str) -> Option<Self> {
        let number = |text: &str| {
            let four = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            four.then(|| u16::from_str_radix(text, 16).ok()).flatten()
        };
        Some(Self { vendor: number(vendor)?, product: number(product)? })
    }
}

impl UsbCard {
    /// Whether a text is meant to be such a name; ALSA has no other that begins so.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(USB)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(USB)?.split(',');
        let (vendor, product) = parts.next()?.split_once(':')?;
        let kind = UsbKind::spelled(vendor, product)?;
        let mark = parts.next()?;
        let word = |text: &str| {
            let fits = (1..=MARK_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
            fits.then(|| text.to_owned())
        };
        let mark = match (mark.strip_prefix(SERIAL), mark.strip_prefix(PORT)) {
            (Some(serial), _) => UsbMark::Serial(word(serial)?),
            (None, Some(port)) => UsbMark::Port(word(port)?),
            (None, None) => return None,
        };
        let device = match parts.next() {
            None => 0,
            Some(part) => part.strip_prefix(DEVICE)?.parse().ok()?,
        };
        parts.next().is_none().then_some(Self { kind, mark, device })
    }
}

impl FromStr for UsbCard {
    type Err = NoUsbCard;

    fn from_str(text: &str) -> Result<Self, NoUsbCard> {
        Self::read(text).ok_or_else(|| NoUsbCard(text.to_owned()))
    }
}

impl fmt::Display for UsbCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UsbKind { vendor, product } = self.kind;
        let (which, mark) = match &self.mark {
            UsbMark::Serial(serial) => (SERIAL, serial),
            UsbMark::Port(port) => (PORT, port),
        };
        write!(f, "{USB}{vendor:04x}:{product:04x},{which}{mark},{DEVICE}{}", self.device)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const KIND: UsbKind = UsbKind { vendor: 0x0d8c, product: 0x0014 };

    #[test]
    fn a_name_is_read_as_it_is_written_and_what_is_none_is_refused() {
        let serial = |text: &str| Some(UsbMark::Serial(text.to_owned()));
        let long = format!("usb:0d8c:0014,SERIAL={}", "s".repeat(MARK_BYTES_MAX + 1));
        let rows = [
            ("usb:0d8c:0014,SERIAL=A1,DEV=0", serial("A1"), 0),
            ("usb:0D8C:0014,SERIAL=A1,DEV=3", serial("A1"), 3),
            ("usb:0d8c:0014,SERIAL=A1", serial("A1"), 0),
            (
                "usb:0d8c:0014,PORT=pci-0000:00:14.0-usbv2-0:2.1:1.0,DEV=1",
                Some(UsbMark::Port("pci-0000:00:14.0-usbv2-0:2.1:1.0".to_owned())),
                1,
            ),
            ("usb:0d8c:0014", None, 0),
            ("usb:0d8c:0014,SERIAL=,DEV=0", None, 0),
            ("usb:0d8c:0014,SERIAL=A 1,DEV=0", None, 0),
            ("usb:0d8c:0014,DEV=0", None, 0),
            ("usb:0d8c:0014,SERIAL=A1,DEV=x", None, 0),
            ("usb:0d8c:0014,SERIAL=A1,DEV=0,more", None, 0),
            ("usb:d8c:0014,SERIAL=A1,DEV=0", None, 0),
            ("usb:+d8c:0014,SERIAL=A1,DEV=0", None, 0),
            (&long, None, 0),
            ("usbstream:CARD=Device", None, 0),
            ("plughw:CARD=Device,DEV=0", None, 0),
        ];
        for (text, mark, device) in rows {
            let wanted = mark.map(|mark| UsbCard { kind: KIND, mark, device });
            assert_eq!(text.parse().ok(), wanted, "{text}");
            if let Some(name) = wanted {
                assert_eq!(name.to_string().parse(), Ok(name), "{text} again");
            }
        }
    }

    #[test]
    fn the_refusal_says_how_one_is_written() {
        let said = "usb:0d8c:0014".parse::<UsbCard>().unwrap_err().to_string();
        assert!(said.contains("SERIAL=") && said.contains("latchkeyd hardware"), "{said}");
    }
}
