//! What a webcam says about itself, and how it agrees on a mode: descriptors of USB 2.0 chapter 9 and of the USB Video Class 1.0, with one
//! stream over a bulk endpoint.

use crate::{Form, Look, usbip::Answer};

/// Numbers set aside for tests by pid.codes.
const VENDOR: u16 = 0x1209;
const PRODUCT: u16 = 0x0001;
const MAKER: &str = "Latchkey";
const NAME: &str = "Test webcam";
const LANGUAGE: [u8; 2] = [0x09, 0x04];

/// The endpoint that pictures come from, and the most that the bus moves of it at a time.
const PICTURES: u8 = 0x81;
const PACKET_BYTES: u16 = 512;
/// The most of a picture that is sent behind one head.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 16_384;
/// 15 pictures in a second, in steps of 100 ns.
pub(crate) const INTERVAL: u32 = 666_666;
const CLOCK_HZ: u32 = 48_000_000;

const DEVICE: u8 = 1;
const CONFIGURATION: u8 = 2;
const STRING: u8 = 3;

/// Standard requests: type and number.
const GET_DESCRIPTOR: (u8, u8) = (0x80, 6);
const GET_STATUS: [u8; 3] = [0x80, 0x81, 0x82];
const SET_CONFIGURATION: (u8, u8) = (0x00, 9);
const SET_INTERFACE: (u8, u8) = (0x01, 11);
const CLEAR_HALT: (u8, u8) = (0x02, 1);
/// Requests of the video class to an interface.
const SET_CURRENT: (u8, u8) = (0x21, 0x01);
const GET_FIRST: (u8, u8) = (0xa1, 0x81);
const GET_LAST: (u8, u8) = (0xa1, 0x87);
const GET_LENGTH: (u8, u8) = (0xa1, 0x85);
const GET_INFO: (u8, u8) = (0xa1, 0x86);
const PROBE: u8 = 1;
const COMMIT: u8 = 2;
/// GET and SET are allowed.
const BOTH_WAYS: u8 = 3;
const MODE_BYTES: u16 = 26;

/// How a control request changed the webcam.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Both sides agreed on a mode: pictures are next.
    Begins,
}

/// The answer to one control request.
pub(crate) fn control(look: &Look, setup: [u8; 8], data: &[u8]) -> (Answer, Change) {
    let [kind, request, low, high, ..] = setup;
    let answer = match (kind, request) {
        GET_DESCRIPTOR => descriptor(look, high, low).map_or(Answer::Stall, Answer::Bytes),
        (kind, 0) if GET_STATUS.contains(&kind) => Answer::Bytes(vec![0, 0]),
        SET_CONFIGURATION | SET_INTERFACE | CLEAR_HALT => Answer::Bytes(Vec::new()),
        SET_CURRENT if high == COMMIT && !data.is_empty() => return (Answer::Bytes(Vec::new()), Change::Begins),
        SET_CURRENT if high == PROBE => Answer::Bytes(Vec::new()),
        GET_LENGTH if high == PROBE || high == COMMIT => Answer::Bytes(MODE_BYTES.to_le_bytes().to_vec()),
        GET_INFO if high == PROBE || high == COMMIT => Answer::Bytes(vec![BOTH_WAYS]),
        (kind, get) if kind == GET_FIRST.0 && (GET_FIRST.1..=GET_LAST.1).contains(&get) && high <= COMMIT => {
            // There is one mode, whatever was asked for.
            Answer::Bytes(mode(look))
        }
        _ => Answer::Stall,
    };
    (answer, Change::None)
}

/// The one mode.
fn mode(look: &Look) -> Vec<u8> {
    let mut bytes = vec![0, 0, 1, 1];
    bytes.extend(INTERVAL.to_le_bytes());
    bytes.extend([0; 10]);
    bytes.extend(look.picture_bytes_max().to_le_bytes());
    bytes.extend(PAYLOAD_BYTES_MAX.to_le_bytes());
    bytes
}

fn descriptor(look: &Look, kind: u8, index: u8) -> Option<Vec<u8>> {
    match (kind, index) {
        (DEVICE, 0) => Some(device()),
        (CONFIGURATION, 0) => Some(configuration(look)),
        (STRING, 0) => Some(sized(STRING, &LANGUAGE)),
        (STRING, index) => {
            let text = [MAKER, NAME, &look.serial].get(usize::from(index).checked_sub(1)?).copied()?;
            Some(sized(STRING, &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()))
        }
        _ => None,
    }
}

/// A descriptor: its length, its type, its content.
fn sized(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() + 2).unwrap_or(u8::MAX);
    [&[length, kind], content].concat()
}

fn device() -> Vec<u8> {
    let mut content = vec![0x00, 0x02, 0xef, 0x02, 0x01, 64];
    content.extend(VENDOR.to_le_bytes());
    content.extend(PRODUCT.to_le_bytes());
    content.extend([0x00, 0x01, 1, 2, 3, 1]);
    sized(DEVICE, &content)
}

fn configuration(look: &Look) -> Vec<u8> {
    /// `CS_INTERFACE` of the video class, INTERFACE, ENDPOINT and INTERFACE ASSOCIATION of USB.
    const CLASS: u8 = 0x24;
    const INTERFACE: u8 = 4;
    const ENDPOINT: u8 = 5;
    const ASSOCIATION: u8 = 11;

    let camera = sized(CLASS, &[0x02, 1, 0x01, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    let output = sized(CLASS, &[0x03, 2, 0x01, 0x01, 0, 1, 0]);
    let control = headed(&[0x00, 0x01], &[&CLOCK_HZ.to_le_bytes(), [1, 1].as_slice()].concat(), &[camera, output]);

    let format = sized(CLASS, &look.form.description());
    let mut frame = vec![look.form.frame_kind(), 1, 0];
    frame.extend(look.width.to_le_bytes());
    frame.extend(look.height.to_le_bytes());
    let bits = look.picture_bytes_max().saturating_mul(8);
    frame.extend([bits, bits.saturating_mul(15), look.picture_bytes_max(), INTERVAL].map(u32::to_le_bytes).concat());
    frame.push(1);
    frame.extend(INTERVAL.to_le_bytes());
    let stream = headed(&[1], &[PICTURES, 0, 2, 0, 0, 0, 1, 0], &[format, sized(CLASS, &frame)]);

    let mut all = Vec::new();
    all.extend(sized(ASSOCIATION, &[0, 2, 0x0e, 0x03, 0, 2]));
    all.extend(sized(INTERFACE, &[0, 0, 0, 0x0e, 0x01, 0, 0]));
    all.extend(control);
    all.extend(sized(INTERFACE, &[1, 0, 1, 0x0e, 0x02, 0, 0]));
    all.extend(stream);
    let [low, high] = PACKET_BYTES.to_le_bytes();
    all.extend(sized(ENDPOINT, &[PICTURES, 0x02, low, high, 0]));

    let length = u16::try_from(all.len() + 9).unwrap_or(u16::MAX).to_le_bytes();
    let own = sized(CONFIGURATION, &[&length, [2, 1, 0, 0x80, 50].as_slice()].concat());
    [own, all].concat()
}

/// A class descriptor that says how long it is together with those that belong to it: what stands before the length, and behind it.
fn headed(before: &[u8], behind: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    const CLASS: u8 = 0x24;
    const HEADER: u8 = 0x01;
    let parts = parts.concat();
    let own = 2 + 1 + before.len() + 2 + behind.len();
    let length = u16::try_from(own + parts.len()).unwrap_or(u16::MAX).to_le_bytes();
    [sized(CLASS, &[&[HEADER], before, &length, behind].concat()), parts].concat()
}

impl Form {
    /// `FORMAT_MJPEG`, or `FORMAT_UNCOMPRESSED` with the name of YUY2.
    fn description(self) -> Vec<u8> {
        match self {
            Self::Jpeg => vec![0x06, 1, 1, 1, 1, 0, 0, 0, 0],
            Self::Pairs => {
                let name = *b"YUY2\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71";
                [&[0x04, 1, 1], name.as_slice(), &[16, 1, 0, 0, 0, 0]].concat()
            }
        }
    }

    const fn frame_kind(self) -> u8 {
        match self {
            Self::Jpeg => 0x07,
            Self::Pairs => 0x05,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(form: Form) -> Look {
        Look { form, width: 320, height: 180, serial: "0001".to_owned() }
    }

    /// Every descriptor says its own length, and the whole adds up.
    #[test]
    fn descriptors_add_up() {
        for form in [Form::Jpeg, Form::Pairs] {
            let all = configuration(&look(form));
            let said = u16::from_le_bytes(all.get(2..4).unwrap().try_into().unwrap());
            assert_eq!(usize::from(said), all.len());
            let mut rest = all.as_slice();
            let mut kinds = Vec::new();
            while let [length, kind, ..] = rest {
                kinds.push(*kind);
                rest = rest.get(usize::from(*length)..).unwrap();
            }
            assert_eq!(kinds, [2, 11, 4, 0x24, 0x24, 0x24, 4, 0x24, 0x24, 0x24, 5], "{form:?}");
        }
        assert_eq!((device().len(), mode(&look(Form::Jpeg)).len()), (18, usize::from(MODE_BYTES)));
    }

    #[test]
    fn pictures_begin_when_a_mode_is_agreed_and_what_is_unknown_is_refused() {
        let look = look(Form::Jpeg);
        let ask = |kind: u8, request: u8, high: u8| control(&look, [kind, request, 0, high, 1, 0, 26, 0], &[0; 26]);
        assert_eq!(ask(0x21, 1, PROBE).1, Change::None);
        assert_eq!(ask(0x21, 1, COMMIT).1, Change::Begins);
        assert_eq!(ask(0xa1, 0x81, PROBE).0, Answer::Bytes(mode(&look)));
        assert_eq!(ask(0xc0, 1, 0).0, Answer::Stall);
        assert_eq!(ask(0x80, 6, 15).0, Answer::Stall);
    }

    #[test]
    fn its_serial_is_told_as_text() {
        let text = descriptor(&look(Form::Jpeg), STRING, 3).unwrap();
        assert_eq!(text, [10, 3, b'0', 0, b'0', 0, b'0', 0, b'1', 0]);
        assert_eq!(descriptor(&look(Form::Jpeg), STRING, 4), None);
    }
}
