//! A HID device on USB that the test plays, through `/dev/uhid`: the kernel's driver for its numbers drives it, and what the driver sends
//! to it arrives here. Numbers and layouts are those of `linux/uhid.h`.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    thread,
};

use anyhow::{Context, Result};

const UHID: &str = "/dev/uhid";
const DESTROY: u32 = 1;
const STOP: u32 = 3;
const OUTPUT: u32 = 6;
const GET_REPORT: u32 = 9;
const GET_REPORT_REPLY: u32 = 10;
const CREATE: u32 = 11;
const SET_REPORT: u32 = 13;
const SET_REPORT_REPLY: u32 = 14;
/// What the kernel writes of one event: its kind and the largest of its contents.
const EVENT_BYTES: usize = 4 + 4372;
/// Where the length of a report that the kernel sends stands, behind room for the longest.
const SENT_SIZE_AT: usize = 4096;
const BUS_USB: u16 = 0x03;

/// What a device says that it is.
pub(crate) struct About<'a> {
    pub(crate) name: &'a str,
    pub(crate) serial: &'a str,
    pub(crate) vendor: u32,
    pub(crate) product: u32,
    /// What it says of its reports.
    pub(crate) reports: &'a [u8],
}

/// What the driver does with a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does<'a> {
    /// Sends it, with its number first where it has one.
    Sends(&'a [u8]),
    /// Asks for the one with this number.
    Asks(u8),
}

/// A plugged-in device; it vanishes when this is dropped.
pub(crate) struct Uhid {
    line: File,
}

impl Uhid {
    /// Plugs it in; `told` gets what the driver does, in a thread of its own, and gives what it asks for.
    pub(crate) fn plug_in(
        about: &About<'_>,
        mut told: impl FnMut(Does<'_>) -> Vec<u8> + Send + 'static,
    ) -> Result<Self> {
        let mut line = OpenOptions::new().read(true).write(true).open(UHID).context("opening /dev/uhid")?;
        line.write_all(&create(about)?).with_context(|| format!("plugging in {}", about.name))?;
        let mut listened = line.try_clone()?;
        thread::spawn(move || {
            let mut event = [0; EVENT_BYTES];
            while let Ok(1..) = listened.read(&mut event) {
                let (kind, content) = number(&event);
                let reply = match kind {
                    OUTPUT => sent(content).map(|report| told(Does::Sends(report))).and(None),
                    SET_REPORT => set(content, &mut told),
                    GET_REPORT => got(content, &mut told),
                    STOP => return,
                    _ => None,
                };
                // A reply that does not arrive is missed by the driver, which says so.
                let _ = reply.map(|reply| listened.write(&reply));
            }
        });
        Ok(Self { line })
    }
}

impl Drop for Uhid {
    fn drop(&mut self) {
        // As a pulled cable; also ends the listening thread's read.
        let _ = self.line.write_all(&DESTROY.to_ne_bytes());
    }
}

/// `struct uhid_create2_req`, behind its kind.
fn create(about: &About<'_>) -> Result<Vec<u8>> {
    let mut event = CREATE.to_ne_bytes().to_vec();
    for (text, bytes) in [(about.name, 128), ("usb-test/input0", 64), (about.serial, 64)] {
        let end = event.len() + bytes;
        event.extend(text.bytes().take(bytes - 1));
        event.resize(end, 0);
    }
    event.extend(u16::try_from(about.reports.len())?.to_ne_bytes());
    event.extend(BUS_USB.to_ne_bytes());
    for number in [about.vendor, about.product, 1, 0] {
        event.extend(number.to_ne_bytes());
    }
    event.extend(about.reports);
    Ok(event)
}

/// The number at the beginning, and what follows it.
fn number(bytes: &[u8]) -> (u32, &[u8]) {
    bytes.split_first_chunk().map_or((0, &[]), |(number, rest)| (u32::from_ne_bytes(*number), rest))
}

/// The report of a `struct uhid_output_req`.
fn sent(content: &[u8]) -> Option<&[u8]> {
    let (bytes, behind) = content.split_at_checked(SENT_SIZE_AT)?;
    let size = u16::from_ne_bytes(*behind.first_chunk()?);
    bytes.get(..usize::from(size))
}

/// `struct uhid_set_report_req`: the request's number, the report's, its kind, its length and itself. Answered with the request's number and no error.
fn set(content: &[u8], told: &mut impl FnMut(Does<'_>) -> Vec<u8>) -> Option<Vec<u8>> {
    let (request, [_, _, low, high, report @ ..]) = number(content) else { return None };
    told(Does::Sends(report.get(..usize::from(u16::from_ne_bytes([*low, *high])))?));
    Some([SET_REPORT_REPLY.to_ne_bytes().as_slice(), &request.to_ne_bytes(), &[0, 0]].concat())
}

/// `struct uhid_get_report_req`: the request's number, the report's, its kind. Answered with the request's number, no error, and the report.
fn got(content: &[u8], told: &mut impl FnMut(Does<'_>) -> Vec<u8>) -> Option<Vec<u8>> {
    let (request, [wanted, ..]) = number(content) else { return None };
    let report = told(Does::Asks(*wanted));
    let size = u16::try_from(report.len()).ok()?.to_ne_bytes();
    Some([GET_REPORT_REPLY.to_ne_bytes().as_slice(), &request.to_ne_bytes(), &[0, 0], &size, &report].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_described_as_the_kernel_reads_it_and_a_report_is_cut_to_its_length() {
        let about = About { name: "Webmail Notifier", serial: "41", vendor: 0x1294, product: 0x1320, reports: &[6, 0] };
        let event = create(&about).unwrap();
        assert_eq!(event.len(), 4 + 128 + 64 + 64 + 2 + 2 + 4 * 4 + 2);
        assert!(event.starts_with(b"\x0b\0\0\0Webmail Notifier\0") && event.ends_with(&[6, 0]));
        assert_eq!(event.get(260..272), Some(&[2, 0, 3, 0, 0x94, 0x12, 0, 0, 0x20, 0x13, 0, 0][..]));
        let mut content = vec![0; EVENT_BYTES - 4];
        content[1] = 2;
        content[SENT_SIZE_AT] = 6;
        assert_eq!(sent(&content).unwrap(), [0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn what_the_driver_sets_and_asks_is_answered_with_the_number_of_its_request() {
        let mut seen = Vec::new();
        let set_reply = set(&[7, 0, 0, 0, 4, 0, 2, 0, 4, 9, 9], &mut |does| {
            seen.push(format!("{does:?}"));
            Vec::new()
        });
        assert_eq!(set_reply.unwrap(), [14, 0, 0, 0, 7, 0, 0, 0, 0, 0]);
        let got_reply = got(&[8, 0, 0, 0, 3, 0], &mut |does| {
            seen.push(format!("{does:?}"));
            vec![3, 255]
        });
        assert_eq!(got_reply.unwrap(), [10, 0, 0, 0, 8, 0, 0, 0, 0, 0, 2, 0, 3, 255]);
        assert_eq!(seen, ["Sends([4, 9])", "Asks(3)"]);
        assert_eq!(set(&[7, 0, 0, 0, 4, 0, 9, 0, 4], &mut |_| Vec::new()), None, "cut off");
    }
}
