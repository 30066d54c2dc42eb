//! The Video4Linux adapter against a real device of the kernel's `vivid` driver, which can be told to fail. `make test-vm` runs these
//! in a throw-away machine that has one (`scripts/test-vm.sh`); elsewhere they are ignored.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods, reason = "tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::v4l::control::{Control, Value};
use ::v4l::device::Device;
use config::PictureSize;
use tokio_util::sync::CancellationToken;
use wire::envelope::MEDIA_BYTES_MAX;

use super::adapter::Adapter;
use super::bus::{Mode, Node as _, Size};
use super::capture::{Ended, Watch, shoot};
use super::video4linux::Video4Linux;
use super::{CameraChoice, CameraFault, CameraSetup, CaptureLimits, Frame, PixelFormat, Source as _};
use crate::clock::{Clock as _, SystemClock};
use crate::picture::jpeg;

const NODE: &str = "/dev/video0";
/// The driver's second camera, which has any size in place of a webcam's few.
const ANY_SIZE: &str = "/dev/video1";
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

/// A picture of the camera at `path` in this format and size, without any that the device would rather have.
fn in_format(path: &str, code: [u8; 4], size: Size) -> Result<(Vec<u8>, u32, u32), String> {
    let mut node = super::device::Device::open(Path::new(path)).map_err(|error| error.to_string())?;
    let agreed = node.set(Mode { code, size, interval: None }).map_err(|error| error.to_string())?;
    node.fill(size).map_err(|error| error.to_string())?;
    let format = agreed.format().filter(|_| agreed.code == code).ok_or("the device takes another format")?;
    let mut feed = Box::new(node).start().map_err(|error| error.to_string())?;
    for _ in 0..100 {
        if feed.wait(Duration::from_millis(500)).map_err(|error| error.to_string())?
            && let Some(taken) = feed.take().map_err(|error| error.to_string())?
        {
            let Size { width, height } = agreed.size;
            let (bytes, damaged) = (taken.bytes, taken.damaged);
            let frame = Frame { format, width, height, stride: agreed.stride, bytes, damaged };
            return frame.to_rgb().map(|rgb| (rgb, width, height));
        }
    }
    Err("no frame came".to_owned())
}

fn paint(node: &str, pattern: i64) {
    let device = Device::with_path(node).unwrap();
    for (id, value) in [(OSD_TEXT, 2), (TEST_PATTERN, pattern)] {
        device.set_control(Control { id, value: Value::Integer(value) }).unwrap();
    }
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_each_raw_format_and_odd_sizes_show_their_colour_in_every_pixel_that_is_drawn() {
    let raw = PixelFormat::ALL.into_iter().filter(|format| *format != PixelFormat::Mjpeg);
    for (pattern, colour) in COLOURS {
        paint(ANY_SIZE, pattern);
        for format in raw.clone() {
            // Of formats in planes the driver leaves colour out at sizes that are no multiple of four, which is refused as too short.
            let planes = matches!(format, PixelFormat::Nv12 | PixelFormat::Yu12);
            let sizes = if planes { [(640, 360), (320, 104)] } else { [(641, 361), (333, 101)] };
            for (width, height) in sizes {
                let code = *format.codes().first().unwrap();
                let (rgb, wide, high) = in_format(ANY_SIZE, code, Size { width, height }).unwrap();
                assert_eq!((wide, high), (width, height), "{format:?}");
                let (across, down) = (usize::try_from(wide).unwrap(), usize::try_from(high).unwrap());
                for (at, pixel) in rgb.chunks(3).enumerate() {
                    let (x, y) = (at % across, at / across);
                    // The driver draws pairs of pixels and of rows; half a pair at the end is what was there before.
                    if x >= across / 2 * 2 || y >= down / 2 * 2 {
                        continue;
                    }
                    let level = *pixel.first().unwrap();
                    let right = match format {
                        PixelFormat::Grey => pixel.iter().all(|other| other.abs_diff(level) < 4),
                        _ => pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) < 40),
                    };
                    assert!(right, "{format:?} {width}x{height} at {x}, {y}: {pixel:?}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_a_camera_keeps_its_name_and_no_other_takes_its_place() {
    // In a machine without udev the test makes the links that udev would.
    let folder = Path::new("/dev/v4l/by-id");
    fs::create_dir_all(folder).unwrap();
    let link = |name: &str, node: &str| {
        let _ = fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(node, folder.join(name)).unwrap();
    };
    link("a-video-index0", NODE);
    link("b-video-index0", ANY_SIZE);
    let of_name = |name: &str| picture(&of(CameraChoice::Named(name.to_owned())));
    paint(NODE, 7);
    paint(ANY_SIZE, 8);
    assert!(shows(&of_name("a-video-index0").unwrap(), [255, 0, 0]));
    link("a-video-index0", ANY_SIZE);
    link("b-video-index0", NODE);
    assert!(shows(&of_name("b-video-index0").unwrap(), [255, 0, 0]), "the camera that has the name now");
    let listed: Vec<String> = super::cameras().into_iter().map(|camera| camera.id).collect();
    assert_eq!(listed, ["a-video-index0", "b-video-index0"]);
    fs::remove_file(folder.join("a-video-index0")).unwrap();
    let refused = "the camera a-video-index0 is not connected; another one is, and never takes its place";
    assert_eq!(of_name("a-video-index0").unwrap_err(), CameraFault::Missing(refused.to_owned()));
    fs::remove_dir_all("/dev/v4l").unwrap();
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_no_child_inherits_the_camera() {
    let of_child = || {
        let child = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        String::from_utf8(child.stdout).unwrap().matches(NODE).count()
    };
    let stream = source().open().unwrap();
    assert_eq!((handles(), of_child()), (1, 0), "this process holds it, its child does not");
    // Control: the way in which the v4l crate opens is seen in a child.
    let inherited = Device::with_path(NODE).unwrap();
    assert_eq!(of_child(), 1);
    drop(inherited);
    drop(stream);
    assert_eq!(handles(), 0);
}

/// A number of `/proc/self/status`, such as its threads or its memory in KiB.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_three_hundred_snapshots_with_faults_at_random_leave_nothing_behind() {
    const SNAPSHOTS: u32 = 300;
    let small = CameraSetup { size: PictureSize { width: 320, height: 180 }, ..CameraSetup::default() };
    let choice = CameraChoice::Named(NODE.to_owned());
    let source = Adapter::new(Arc::new(Video4Linux), choice, small.wanted(), false, Arc::default());
    let mut chance = std::process::id() | 1;
    println!("seed {chance}");
    let mut before = (0, 0);
    let (mut good, mut bad) = (0, 0);
    for number in 0..SNAPSHOTS {
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        let (pattern, colour) = *COLOURS.get(usize::try_from(chance >> 8).unwrap() % 3).unwrap();
        paint(NODE, pattern);
        if let Some(fault) =
            [DISCONNECT, DAMAGED_FRAME, FAIL_REQBUFS, FAIL_STREAMON, FATAL].get(usize::try_from(chance).unwrap() % 8)
        {
            // One that needs a stream is refused without one, and then nothing is wrong.
            let device = Device::with_path(NODE).unwrap();
            let _ = device.set_control(Control { id: *fault, value: Value::Integer(1) });
        }
        match picture(&source) {
            Ok(file) => {
                let (rgb, width, height) = jpeg::to_rgb(&file).unwrap();
                assert_eq!((width, height), (320, 180));
                let near = |pixel: &[u8]| pixel.iter().zip(colour).all(|(found, wanted)| found.abs_diff(wanted) < 60);
                assert!(rgb.chunks(3).all(near), "a broken picture in snapshot {number}");
                good += 1;
            }
            Err(fault) => {
                println!("snapshot {number}: {fault}");
                bad += 1;
            }
        }
        assert_eq!(handles(), 0, "snapshot {number}");
        if number == SNAPSHOTS / 5 {
            before = (status("Threads"), status("VmRSS"));
        }
    }
    println!("{good} pictures, {bad} refusals");
    assert!(good > SNAPSHOTS / 2);
    let after = (status("Threads"), status("VmRSS"));
    assert_eq!(after.0, before.0, "threads");
    assert!(after.1 <= before.1 + 1024, "{} KiB, {} before", after.1, before.1);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this file"]
fn vivid_pulled_out_in_a_stream_it_is_unplugged_then_missing_and_works_when_it_is_back() {
    const DRIVER: &str = "/sys/bus/platform/drivers/vivid";
    let mut stream = source().open().unwrap();
    while stream.next(Duration::from_secs(1)).unwrap().is_none() {}
    fs::write(format!("{DRIVER}/unbind"), "vivid.0").unwrap();
    let fault = loop {
        if let Err(fault) = stream.next(Duration::from_secs(1)) {
            break fault;
        }
    };
    assert_eq!(fault, CameraFault::Unplugged);
    drop(stream);
    let missing = format!("the camera {NODE} is not connected");
    assert_eq!(picture(&source()).unwrap_err(), CameraFault::Missing(missing));
    fs::write(format!("{DRIVER}/bind"), "vivid.0").unwrap();
    let until = SystemClock.boot();
    while !Path::new(NODE).exists() {
        assert!(SystemClock.boot().since(until) < Duration::from_secs(20), "it comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
    picture(&source()).unwrap();
    assert_eq!(handles(), 0);
}
