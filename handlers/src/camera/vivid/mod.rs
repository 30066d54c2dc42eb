//! The Video4Linux adapter against real devices of the kernel's `vivid` driver, which can be told to fail. `make test-vm` runs these
//! in a throw-away machine that has them (`scripts/test-vm.sh`); elsewhere they are ignored.
//!
//! The machine has three webcams and an input that scales to any size; each test leaves them as it found them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "real devices are waited for in real time")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::v4l::control::{Control, Value};
use ::v4l::device::Device;
use tokio_util::sync::CancellationToken;
use wire::envelope::MEDIA_BYTES_MAX;

use super::adapter::Adapter;
use super::bus::{Bus, Size};
use super::capture::{Ended, Watch, shoot};
use super::video4linux::Video4Linux;
use super::{CameraChoice, CameraFault, CameraSetup, CaptureLimits, Source};
use crate::picture::jpeg;

mod faults;
mod forms;
mod many;
mod names;
mod pixels;

/// The first webcam.
const NODE: &str = "/dev/video0";
/// Another one.
const OTHER: &str = "/dev/video1";
/// An input that scales to any size, odd ones too.
const ANY_SIZE: &str = "/dev/video2";
/// A webcam by the kernel's interface for pictures in several pieces.
const PIECES: &str = "/dev/video3";
const TEST_PATTERN: u32 = 0x00f0_f000;
const OSD_TEXT: u32 = 0x00f0_f001;
const NO_TEXT: i64 = 2;
/// Numbers of the driver's test patterns that are one colour.
const RED: (i64, [u8; 3]) = (7, [255, 0, 0]);
const GREEN: (i64, [u8; 3]) = (8, [0, 255, 0]);
const BLUE: (i64, [u8; 3]) = (9, [0, 0, 255]);
/// How far a channel may be off: colour spaces and JPEG round, by a few steps each.
const TOLERANCE: u8 = 40;
/// The smallest picture of the webcams.
pub(super) const SMALL: Size = Size { width: 320, height: 180 };
/// Long enough for anything of the emulated machine.
const SOON: Duration = Duration::from_secs(20);

fn set(node: &str, id: u32, value: i64) {
    let device = Device::with_path(node).unwrap();
    device.set_control(Control { id, value: Value::Integer(value) }).unwrap();
}

/// Makes a camera show a colour and nothing else.
fn show(node: &str, (pattern, _): (i64, [u8; 3])) {
    set(node, OSD_TEXT, NO_TEXT);
    set(node, TEST_PATTERN, pattern);
}

type Real = Adapter<Video4Linux>;

fn adapter<B: Bus>(bus: B, choice: CameraChoice, wanted: Size) -> Adapter<B> {
    Adapter::new(Arc::new(bus), choice, wanted, false, Arc::default())
}

pub(super) fn named(name: &str) -> Real {
    adapter(Video4Linux, CameraChoice::Named(name.to_owned()), SMALL)
}

fn source() -> Real {
    named(NODE)
}

pub(super) fn picture(source: &dyn Source) -> Result<Vec<u8>, CameraFault> {
    // The machine is emulated, some ten times slower than a real one.
    let [whole, first_frame, settle] = [40, 10, 1].map(Duration::from_secs);
    picture_within(source, CaptureLimits { whole, first_frame, settle, ..CaptureLimits::default() })
}

pub(super) fn picture_within(source: &dyn Source, limits: CaptureLimits) -> Result<Vec<u8>, CameraFault> {
    let watch = Watch::begin(limits, CancellationToken::new(), CancellationToken::new());
    match shoot(source, &watch, MEDIA_BYTES_MAX, CameraSetup::default().bound()) {
        Ok(file) => Ok(file),
        Err(Ended::Camera(fault)) => Err(fault),
        Err(Ended::Stopped) => panic!("nobody stopped it"),
    }
}

/// Whether a picture has that size and, in its middle and near all four corners, that colour; says where not. The driver leaves the last
/// column empty where the width is odd.
pub(super) fn shows(file: &[u8], size: Size, wanted: [u8; 3]) -> bool {
    let (rgb, width, height) = jpeg::to_rgb(file).unwrap();
    assert_eq!((width, height), (size.width, size.height));
    let (right, bottom) = ((width & !1) - 1, height - 1);
    let points = [(width / 2, height / 2), (0, 0), (right, 0), (0, bottom), (right, bottom)];
    points.into_iter().all(|(x, y)| {
        let pixel = rgb.chunks(3).nth(usize::try_from(y * width + x).unwrap()).unwrap();
        let near = pixel.iter().zip(wanted).all(|(found, wanted)| found.abs_diff(wanted) < TOLERANCE);
        if !near {
            println!("at {x}, {y} it shows {pixel:?}, not {wanted:?}");
        }
        near
    })
}

/// How many descriptors of this process lead to a camera.
pub(super) fn handles() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let camera = |path: &Path| path.to_string_lossy().starts_with("/dev/video");
    open.filter(|entry| fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|path| camera(&path))).count()
}

pub(super) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn a_real_device_shows_its_colour_and_leaves_no_handle() {
    for (choice, colour) in
        [(CameraChoice::First, RED), (CameraChoice::Named(NODE.to_owned()), GREEN), (CameraChoice::First, BLUE)]
    {
        show(NODE, colour);
        let size = CameraSetup::default().wanted();
        let file = picture(&adapter(Video4Linux, choice, size)).unwrap();
        assert!(shows(&file, size, colour.1), "{colour:?}");
    }
    assert_eq!(handles(), 0);
}
