//! What every device on USB says of itself, and the requests that every one answers: chapter 9 of USB 2.0.

use crate::usbip::Answer;

/// Set aside for tests by pid.codes.
const VENDOR: u16 = 0x1209;
const MAKER: &str = "Latchkey";
const LANGUAGE: [u8; 2] = [0x09, 0x04];

const DEVICE: u8 = 1;
const CONFIGURATION: u8 = 2;
const STRING: u8 = 3;
pub(crate) const INTERFACE: u8 = 4;
pub(crate) const ENDPOINT: u8 = 5;
pub(crate) const ASSOCIATION: u8 = 11;
/// Descriptors of a class, to an interface and to an endpoint.
pub(crate) const OF_CLASS: u8 = 0x24;
pub(crate) const OF_CLASS_ENDPOINT: u8 = 0x25;

/// Standard requests: type and number.
const GET_DESCRIPTOR: (u8, u8) = (0x80, 6);
const GET_STATUS: [u8; 3] = [0x80, 0x81, 0x82];
const SET_CONFIGURATION: (u8, u8) = (0x00, 9);
const SET_INTERFACE: (u8, u8) = (0x01, 11);
const CLEAR_HALT: (u8, u8) = (0x02, 1);

/// A device as its descriptors tell of it.
pub(crate) struct About<'a> {
    pub(crate) product: u16,
    /// Class, subclass and protocol; zeros where each interface has its own.
    pub(crate) class: [u8; 3],
    pub(crate) name: &'a str,
    pub(crate) serial: &'a str,
    pub(crate) interfaces: u8,
    /// Behind the configuration's own descriptor.
    pub(crate) parts: Vec<u8>,
}

impl About<'_> {
    /// The answer to a request that every device knows; nothing where it is none.
    pub(crate) fn answer(&self, setup: [u8; 8]) -> Option<Answer> {
        let [kind, request, low, high, ..] = setup;
        match (kind, request) {
            GET_DESCRIPTOR => Some(self.descriptor(high, low).map_or(Answer::Stall, Answer::Bytes)),
            (kind, 0) if GET_STATUS.contains(&kind) => Some(Answer::Bytes(vec![0, 0])),
            SET_CONFIGURATION | SET_INTERFACE | CLEAR_HALT => Some(Answer::Bytes(Vec::new())),
            _ => None,
        }
    }

    fn descriptor(&self, kind: u8, index: u8) -> Option<Vec<u8>> {
        match (kind, index) {
            (DEVICE, 0) => Some(self.device()),
            (CONFIGURATION, 0) => Some(self.configuration()),
            (STRING, 0) => Some(sized(STRING, &LANGUAGE)),
            (STRING, index) => {
                let text = [MAKER, self.name, self.serial].get(usize::from(index).checked_sub(1)?).copied()?;
                Some(sized(STRING, &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()))
            }
            _ => None,
        }
    }

    fn device(&self) -> Vec<u8> {
        let numbers = [VENDOR, self.product].map(u16::to_le_bytes).concat();
        sized(DEVICE, &[&[0x00, 0x02], self.class.as_slice(), &[64], &numbers, &[0x00, 0x01, 1, 2, 3, 1]].concat())
    }

    fn configuration(&self) -> Vec<u8> {
        let length = u16::try_from(self.parts.len() + 9).unwrap_or(u16::MAX).to_le_bytes();
        let own = sized(CONFIGURATION, &[&length, [self.interfaces, 1, 0, 0x80, 50].as_slice()].concat());
        [own.as_slice(), &self.parts].concat()
    }
}

/// A descriptor: its length, its type, its content.
pub(crate) fn sized(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() + 2).unwrap_or(u8::MAX);
    [&[length, kind], content].concat()
}

/// A class descriptor that says how long it is together with those that belong to it: what stands before the length, and behind it.
pub(crate) fn headed(before: &[u8], behind: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    const HEADER: u8 = 0x01;
    let parts = parts.concat();
    let own = 2 + 1 + before.len() + 2 + behind.len();
    let length = u16::try_from(own + parts.len()).unwrap_or(u16::MAX).to_le_bytes();
    [sized(OF_CLASS, &[&[HEADER], before, &length, behind].concat()), parts].concat()
}

/// The kinds of the descriptors of a configuration, in order; panics where they do not add up.
#[cfg(test)]
pub(crate) fn kinds(about: &About<'_>) -> Vec<u8> {
    let all = about.configuration();
    let said = u16::from_le_bytes(all.get(2..4).unwrap().try_into().unwrap());
    assert_eq!(usize::from(said), all.len());
    let (mut rest, mut kinds) = (all.as_slice(), Vec::new());
    while let [length, kind, ..] = rest {
        kinds.push(*kind);
        rest = rest.get(usize::from(*length)..).unwrap();
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_tells_its_numbers_and_its_serial_and_refuses_what_it_does_not_know() {
        let about =
            About { product: 0x0203, class: [0; 3], name: "Test", serial: "0001", interfaces: 1, parts: Vec::new() };
        let ask = |kind: u8, request: u8, high: u8, low: u8| about.answer([kind, request, low, high, 0, 0, 64, 0]);
        let device = about.device();
        assert_eq!((device.len(), device.get(8..12).unwrap()), (18, [0x09, 0x12, 0x03, 0x02].as_slice()));
        assert_eq!(ask(0x80, 6, STRING, 3), Some(Answer::Bytes(vec![10, 3, b'0', 0, b'0', 0, b'0', 0, b'1', 0])));
        assert_eq!(ask(0x80, 6, STRING, 4), Some(Answer::Stall));
        assert_eq!(ask(0x80, 6, 15, 0), Some(Answer::Stall));
        assert_eq!(ask(0x21, 1, 1, 0), None, "of a class, not of every device");
    }
}
