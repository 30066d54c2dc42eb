//! Every pixel format of ours that the driver offers, and sizes that are not even.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::bus::{About, Agreed, Bus, Feed, Mode, Node, NodeId, Place, Size, Sizes};
use super::super::device::Device;
use super::super::frame::PixelFormat;
use super::super::video4linux::Video4Linux;
use super::super::{CameraChoice, CameraFault, CaptureLimits};
use super::{ANY_SIZE, BLUE, NODE, PIECES, RED, SMALL, adapter, handles, picture, picture_within, show, shows};

/// The system's cameras, as if each had one format and one size.
struct Only(Mode);

impl Bus for Only {
    fn paths(&self, place: Place) -> Vec<PathBuf> {
        Video4Linux.paths(place)
    }

    fn node_at(&self, path: &Path) -> Option<NodeId> {
        Video4Linux.node_at(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Node>> {
        Ok(Box::new(Narrow { node: Video4Linux.open(path)?, mode: self.0 }))
    }
}

struct Narrow {
    node: Box<dyn Node>,
    mode: Mode,
}

impl Node for Narrow {
    fn id(&self) -> NodeId {
        self.node.id()
    }

    fn about(&self) -> io::Result<About> {
        self.node.about()
    }

    fn formats(&self) -> io::Result<Vec<[u8; 4]>> {
        let offered = self.node.formats()?;
        Ok(offered.into_iter().filter(|code| *code == self.mode.code).collect())
    }

    fn sizes(&self, _: [u8; 4]) -> io::Result<Vec<Sizes>> {
        Ok(vec![Sizes::One(self.mode.size)])
    }

    fn interval(&self, code: [u8; 4], size: Size) -> Option<Duration> {
        self.node.interval(code, size)
    }

    fn set(&mut self, mode: Mode) -> io::Result<Agreed> {
        let agreed = self.node.set(mode)?;
        assert_eq!((agreed.code, agreed.size), (self.mode.code, self.mode.size), "the driver agrees to what was asked");
        Ok(agreed)
    }

    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>> {
        self.node.start()
    }
}

/// What a camera shows in one form. The driver has no Motion JPEG.
fn check(node: &str, format: PixelFormat, size: Size, (pattern, colour): (i64, [u8; 3])) {
    show(node, (pattern, colour));
    let code = format.codes().first().copied().unwrap();
    let only = Only(Mode { code, size, interval: None });
    let file = picture(&adapter(only, CameraChoice::Named(node.to_owned()), size));
    let file = file.unwrap_or_else(|fault| panic!("{format:?} {size:?}: {fault}"));
    let wanted = match format {
        // What red and blue weigh in brightness.
        PixelFormat::Grey => [if pattern == RED.0 { 76 } else { 29 }; 3],
        _ => colour,
    };
    assert!(shows(&file, size, wanted), "{format:?} {size:?} {pattern}");
}

fn raw() -> impl Iterator<Item = PixelFormat> {
    PixelFormat::ALL.into_iter().filter(|format| *format != PixelFormat::Mjpeg)
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn each_pixel_format_of_a_real_device_shows_its_colours() {
    for format in raw() {
        for colour in [RED, BLUE] {
            check(NODE, format, SMALL, colour);
        }
    }
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn the_interface_for_pictures_in_pieces_serves_for_those_in_one_piece_alone() {
    for format in raw() {
        check(PIECES, format, SMALL, BLUE);
    }
    // The same pixels as NV12, brightness and colour apart.
    let mut node = Device::open(Path::new(PIECES)).unwrap();
    let two_pieces = *b"NM12";
    assert!(node.formats().unwrap().contains(&two_pieces));
    let refused = node.set(Mode { code: two_pieces, size: SMALL, interval: None }).unwrap_err();
    assert!(refused.kind() == io::ErrorKind::InvalidInput && refused.to_string().contains("pieces"), "{refused}");
    drop(node);
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn odd_widths_and_heights_of_a_real_device_are_whole_to_the_last_row() {
    for format in raw() {
        for (width, height) in [(333, 101), (641, 361), (17, 17)] {
            let size = match format {
                // Half as many rows of colour, an odd number; for odd widths the driver leaves out a part of them.
                PixelFormat::Nv12 | PixelFormat::Yu12 => Size { width: (width + 3) & !3, height: height + 1 },
                _ => Size { width, height },
            };
            check(ANY_SIZE, format, size, RED);
        }
    }
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_frame_of_which_the_driver_leaves_out_a_part_is_broken_and_no_picture() {
    let size = Size { width: 333, height: 101 };
    let [code, ..] = PixelFormat::Nv12.codes() else { panic!("it has a code") };
    let only = Only(Mode { code: *code, size, interval: None });
    let adapter = adapter(only, CameraChoice::Named(ANY_SIZE.to_owned()), size);
    let limits = CaptureLimits { whole: Duration::from_secs(2), ..CaptureLimits::default() };
    let fault = picture_within(&adapter, limits).unwrap_err();
    assert!(matches!(fault, CameraFault::Broken(_)), "{fault}");
    assert_eq!(handles(), 0);
}
