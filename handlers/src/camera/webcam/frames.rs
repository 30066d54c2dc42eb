//! What a webcam sends: frames without tables, cut off, broken, marked, of another size; and pixels that end too soon.

use std::time::Duration;

use super::super::Source as _;
use super::*;
use crate::picture::jpeg::tests::picture as detailed;

const GREY: [u8; 3] = [128; 3];
const RED: [u8; 3] = [255, 0, 0];

/// A file with detail to its last row, so that nothing of it can be missing unseen.
fn detail() -> Vec<u8> {
    jpeg::encode(detailed(SMALL.width, SMALL.height), SMALL.width, SMALL.height, usize::MAX).unwrap()
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v1_frames_without_huffman_tables_get_them_back_and_frames_with_them_come_out_byte_for_byte() {
    let file = detail();
    let bare = jpeg::without_tables(&file);
    assert!(bare.len() < file.len());
    let webcam = Webcam::of(&[("1.jpg", &bare)]);
    let taken = webcam.picture().unwrap();
    jpeg::look(&taken).unwrap();
    assert_eq!(jpeg::to_rgb(&taken).unwrap(), jpeg::to_rgb(&file).unwrap(), "pixel for pixel");
    drop(webcam);
    let webcam = Webcam::of(&[("1.jpg", &file)]);
    assert_eq!(webcam.picture().unwrap(), file);
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v2_five_black_frames_and_then_a_grey_card_is_a_grey_card() {
    let (black, grey) = (plain([0; 3]), plain(GREY));
    let mut frames: Vec<(&str, &[u8])> = ["1", "2", "3", "4", "5"].map(|name| (name, black.as_slice())).to_vec();
    frames.push(("6", &grey));
    assert_eq!(Webcam::of(&frames).picture().unwrap(), grey);
    // Control: a room that stays dark is believed.
    assert_eq!(Webcam::of(&[("1", &black)]).picture().unwrap(), black);
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v8_frames_that_are_no_picture_or_cut_off_are_passed_over() {
    let good = detail();
    let behind_noise = [b"no picture".as_slice(), &good].concat();
    let cuts: Vec<Vec<u8>> = (1..10).map(|part| good.get(..good.len() * part / 10).unwrap().to_vec()).collect();
    let names: Vec<String> = (1..10).map(|part| format!("1-{part}")).collect();
    let mut frames: Vec<(&str, &[u8])> =
        names.iter().zip(&cuts).map(|(name, cut)| (name.as_str(), cut.as_slice())).collect();
    frames.extend([("0-empty", b"".as_slice()), ("0-noise", &behind_noise)]);
    let broken = Webcam::of(&frames);
    let [whole, first_frame] = [6, 2].map(Duration::from_secs);
    let limits = CaptureLimits { whole, first_frame, ..CaptureLimits::default() };
    let fault = picture_within(&named(&broken.node), limits).unwrap_err();
    assert!(matches!(fault, CameraFault::Broken(_)), "{fault}");
    drop(broken);
    frames.push(("2-good", &good));
    assert_eq!(Webcam::of(&frames).picture().unwrap(), good);
    assert_eq!(handles(), 0);
}

/// Whether any of a stream's first frames comes with the driver's mark.
fn marked(webcam: &Webcam) -> bool {
    const FIRST: u32 = 5;
    let mut stream = named(&webcam.node).open().unwrap();
    let mut next = || stream.next(Duration::from_secs(1)).unwrap();
    (0..FIRST).any(|_| next().is_some_and(|frame| frame.damaged))
}

/// The webcam itself says that a frame is bad; its bytes are a picture all the same.
#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn a_frame_that_the_webcam_marks_as_bad_is_never_the_picture_whether_or_not_the_kernel_hands_it_over() {
    let (bad, good) = (plain(RED), plain(GREY));
    for hands_over in ["1", "0"] {
        fs::write(HANDS_OVER, hands_over).unwrap();
        let webcam = Webcam::of(&[("1-damaged", &bad), ("2-damaged", &bad), ("3", &good)]);
        assert_eq!(marked(&webcam), hands_over == "1", "nodrop={hands_over}");
        assert_eq!(webcam.picture().unwrap(), good, "nodrop={hands_over}");
        drop(webcam);
        // Control: without its mark it is a picture.
        assert_eq!(Webcam::of(&[("1", &bad)]).picture().unwrap(), bad, "nodrop={hands_over}");
    }
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn a_stream_that_breaks_off_is_opened_anew_within_one_capture() {
    let good = detail();
    let webcam = Webcam::of(&[("1-stall-once", b""), ("2", &good)]);
    assert_eq!(webcam.picture().unwrap(), good);
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn progressive_frames_are_passed_over() {
    let mut progressive = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut progressive, 80);
    encoder.set_progressive(true);
    let [width, height] = [SMALL.width, SMALL.height].map(|side| u16::try_from(side).unwrap());
    encoder.encode(&detailed(SMALL.width, SMALL.height), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    let good = plain(GREY);
    assert_eq!(Webcam::of(&[("1", &progressive), ("2", &progressive), ("3", &good)]).picture().unwrap(), good);
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn a_picture_of_another_size_than_agreed_is_what_it_is() {
    let small = jpeg::encode(RED.repeat(64 * 48), 64, 48, usize::MAX).unwrap();
    let taken = Webcam::of(&[("1", &small)]).picture().unwrap();
    assert_eq!(taken, small);
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v7_raw_frames_that_end_too_soon_are_passed_over() {
    let pairs = |luma: u8| [luma, 128].repeat(usize::try_from(SMALL.pixels()).unwrap());
    let (black, white) = (pairs(16), pairs(235));
    let short = black.get(..black.len() * 3 / 5).unwrap();
    for hands_over in ["1", "0"] {
        fs::write(HANDS_OVER, hands_over).unwrap();
        let webcam = Webcam::plug_in(&["yuyv"], &[("1", short), ("2", short), ("3", &white)]);
        assert!(shows(&webcam.picture().unwrap(), SMALL, [255; 3]), "nodrop={hands_over}");
    }
    assert_eq!(handles(), 0);
}
