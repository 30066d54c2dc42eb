//! The Video4Linux adapter against a real device of the kernel's `vivid` driver, which can be told to fail. `make test-vm` runs these
//! in a throw-away machine that has one (`scripts/test-vm.sh`); elsewhere they are ignored.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ::v4l::control::{Control, Value};
use ::v4l::device::Device;
use tokio_util::sync::CancellationToken;
use wire::envelope::MEDIA_BYTES_MAX;

use super::adapter::Adapter;
use super::capture::{Ended, Watch, shoot};
use super::video4linux::Video4Linux;
use super::{CameraChoice, CameraFault, CameraSetup, CaptureLimits, Source as _};
use crate::picture::jpeg;

const NODE: &str = "/dev/video0";
const TEST_PATTERN: u32 = 0x00f0_f000;
const OSD_TEXT: u32 = 0x00f0_f001;
const DISCONNECT: u32 = 0x00f0_f041;
const DAMAGED_FRAME: u32 = 0x00f0_f042;
const FAIL_REQBUFS: u32 = 0x00f0_f043;
const FAIL_STREAMON: u32 = 0x00f0_f045;
const FATAL: u32 = 0x00f0_f046;
const DROPPED_PERCENT: u32 = 0x00f0_f040;
/// Numbers of the driver's test patterns that are one colour.
const COLOURS: [(i64, [u8; 3]); 3] = [(7, [255, 0, 0]), (8, [0, 255, 0]), (9, [0, 0, 255])];

fn set(id: u32, value: i64) {
    let device = Device::with_path(NODE).unwrap();
    device.set_control(Control { id, value: Value::Integer(value) }).unwrap();
}

type Real = Adapter<Video4Linux>;

fn of(choice: CameraChoice) -> Real {
    Adapter::new(Arc::new(Video4Linux), choice, CameraSetup::default().wanted(), false, Arc::default())
}

fn source() -> Real {
    of(CameraChoice::Named(NODE.to_owned()))
}

fn picture(source: &Real) -> Result<Vec<u8>, CameraFault> {
    // The machine is emulated, some ten times slower than a real one.
    let limits = CaptureLimits {
        whole: Duration::from_secs(40),
        first_frame: Duration::from_secs(10),
        ..CaptureLimits::default()
    };
    let watch = Watch::begin(limits, CancellationToken::new(), CancellationToken::new());
    match shoot(source, &watch, MEDIA_BYTES_MAX, CameraSetup::default().bound()) {
        Ok(file) => Ok(file),
        Err(Ended::Camera(fault)) => Err(fault),
        Err(Ended::Stopped) => panic!("nobody stopped it"),
    }
}

fn shows(file: &[u8], wanted: [u8; 3]) -> bool {
    let (rgb, width, height) = jpeg::to_rgb(file).unwrap();
    assert_eq!((width, height), (1280, 720));
    let middle = rgb.chunks(3).nth(usize::try_from(height / 2 * width + width / 2).unwrap()).unwrap();
    middle.iter().zip(wanted).all(|(found, wanted)| found.abs_diff(wanted) < 40)
}

/// How many descriptors of this process lead to a camera.
fn handles() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|entry| fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|path| path.starts_with(NODE))).count()
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_a_real_device_shows_its_colour_and_leaves_no_handle() {
    set(OSD_TEXT, 2);
    for choice in [CameraChoice::First, CameraChoice::Named(NODE.to_owned())] {
        for (pattern, colour) in COLOURS {
            set(TEST_PATTERN, pattern);
            let file = picture(&of(choice.clone())).unwrap();
            assert!(shows(&file, colour), "pattern {pattern}");
        }
    }
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_a_busy_device_is_busy_and_its_descriptor_is_not_inherited() {
    let holder = source().open().unwrap();
    assert_eq!(picture(&source()).unwrap_err(), CameraFault::Busy);
    let inherited = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let leads = fs::read_link(entry.path()).ok()?.starts_with(NODE);
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().to_str().unwrap())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
        Some(leads && u32::from_str_radix(&flags, 8).unwrap() & 0o2_000_000 == 0)
    });
    assert_eq!(inherited.filter(|inherited| *inherited).count(), 0);
    drop(holder);
    picture(&source()).unwrap();
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_a_device_that_goes_away_is_unplugged_and_works_when_it_is_back() {
    let mut stream = source().open().unwrap();
    while stream.next(Duration::from_secs(1)).unwrap().is_none() {}
    set(DISCONNECT, 1);
    let fault = loop {
        if let Err(fault) = stream.next(Duration::from_secs(1)) {
            break fault;
        }
    };
    assert_eq!(fault, CameraFault::Unplugged);
    drop(stream);
    picture(&source()).unwrap();
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_a_device_that_fails_once_gives_its_picture_to_a_new_stream() {
    for failure in [FAIL_REQBUFS, FAIL_STREAMON] {
        set(failure, 1);
        picture(&source()).unwrap();
    }
    let mut stream = source().open().unwrap();
    while stream.next(Duration::from_secs(1)).unwrap().is_none() {}
    set(DAMAGED_FRAME, 1);
    let damaged = (0..20).any(|_| stream.next(Duration::from_secs(1)).unwrap().is_some_and(|frame| frame.damaged));
    assert!(damaged, "the driver's mark is seen");
    set(FATAL, 1);
    let fault = loop {
        if let Err(fault) = stream.next(Duration::from_secs(1)) {
            break fault;
        }
    };
    assert!(matches!(fault, CameraFault::Driver(_)), "{fault}");
    drop(stream);
    picture(&source()).unwrap();
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_a_device_that_drops_every_frame_is_silent() {
    set(DROPPED_PERCENT, 100);
    let ended = picture(&source());
    set(DROPPED_PERCENT, 0);
    assert_eq!(ended.unwrap_err(), CameraFault::Silent);
    picture(&source()).unwrap();
    assert_eq!(handles(), 0);
}
