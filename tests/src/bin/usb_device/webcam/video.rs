//! What a webcam says about itself, and how it agrees on a mode: descriptors of the USB Video Class 1.0, with one stream over a bulk
//! endpoint.

use super::{Form, Look};
use crate::{
    about::{ASSOCIATION, About, ENDPOINT, INTERFACE, OF_CLASS, headed, sized},
    usbip::Answer,
};

const PRODUCT: u16 = 0x0001;
const NAME: &str = "Test webcam";

/// The endpoint that pictures come from, and the most that the bus moves of it at a time.
const PICTURES: u8 = 0x81;
const PACKET_BYTES: u16 = 512;
/// The most of a picture that is sent behind one head.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 16_384;
/// 15 pictures in a second, in steps of 100 ns.
pub(crate) const INTERVAL: u32 = 666_666;
const CLOCK_HZ: u32 = 48_000_000;

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
    if let Some(answer) = about(look).answer(setup) {
        return (answer, Change::None);
    }
    let [kind, request, _, high, ..] = setup;
    let answer = match (kind, request) {
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

fn about(look: &Look) -> About<'_> {
    // Its interfaces belong together, which is a class of its own.
    let class = [0xef, 0x02, 0x01];
    About { product: PRODUCT, class, name: NAME, serial: &look.serial, interfaces: 2, parts: parts(look) }
}

/// Its two interfaces, of control and of pictures.
fn parts(look: &Look) -> Vec<u8> {
    let camera = sized(OF_CLASS, &[0x02, 1, 0x01, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    let output = sized(OF_CLASS, &[0x03, 2, 0x01, 0x01, 0, 1, 0]);
    let control = headed(&[0x00, 0x01], &[&CLOCK_HZ.to_le_bytes(), [1, 1].as_slice()].concat(), &[camera, output]);

    let format = sized(OF_CLASS, &look.form.description());
    let mut frame = vec![look.form.frame_kind(), 1, 0];
    frame.extend(look.width.to_le_bytes());
    frame.extend(look.height.to_le_bytes());
    let bits = look.picture_bytes_max().saturating_mul(8);
    frame.extend([bits, bits.saturating_mul(15), look.picture_bytes_max(), INTERVAL].map(u32::to_le_bytes).concat());
    frame.push(1);
    frame.extend(INTERVAL.to_le_bytes());
    let stream = headed(&[1], &[PICTURES, 0, 2, 0, 0, 0, 1, 0], &[format, sized(OF_CLASS, &frame)]);

    let [low, high] = PACKET_BYTES.to_le_bytes();
    [
        sized(ASSOCIATION, &[0, 2, 0x0e, 0x03, 0, 2]),
        sized(INTERFACE, &[0, 0, 0, 0x0e, 0x01, 0, 0]),
        control,
        sized(INTERFACE, &[1, 0, 1, 0x0e, 0x02, 0, 0]),
        stream,
        sized(ENDPOINT, &[PICTURES, 0x02, low, high, 0]),
    ]
    .concat()
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
    use crate::about::kinds;

    fn look(form: Form) -> Look {
        Look { form, width: 320, height: 180, serial: "0001".to_owned() }
    }

    #[test]
    fn descriptors_add_up() {
        for form in [Form::Jpeg, Form::Pairs] {
            let look = look(form);
            assert_eq!(kinds(&about(&look)), [2, 11, 4, 0x24, 0x24, 0x24, 4, 0x24, 0x24, 0x24, 5], "{form:?}");
            assert_eq!(mode(&look).len(), usize::from(MODE_BYTES));
        }
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
}
