//! A real device that fails: each failure that the driver can be told to have, a cable that is pulled, and another user.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::{CameraFault, CaptureLimits, Source as _, Stream};
use super::{BLUE, NODE, RED, SMALL, handles, picture, picture_within, set, show, shows, source, wait_until};

const DROPPED_PERCENT: u32 = 0x00f0_f040;
pub(super) const DISCONNECT: u32 = 0x00f0_f041;
pub(super) const DAMAGED_FRAME: u32 = 0x00f0_f042;
pub(super) const FAIL_REQBUFS: u32 = 0x00f0_f043;
const FAIL_QBUF: u32 = 0x00f0_f044;
pub(super) const FAIL_STREAMON: u32 = 0x00f0_f045;
pub(super) const FATAL: u32 = 0x00f0_f046;
const FAIL_VALIDATION: u32 = 0x00f0_f048;
/// The driver's handle on its devices, and their name there.
const DRIVER: &str = "/sys/bus/platform/drivers/vivid";
const DEVICE: &str = "vivid.0";
/// A busy camera has to be called busy within this.
const TOLD_BUSY: Duration = Duration::from_secs(2);
/// Far fewer than these are asked for before the driver tells what it was told to.
const ASKED_MAX: usize = 200;

fn streaming() -> Box<dyn Stream> {
    let mut stream = source().open().unwrap();
    while stream.next(Duration::from_secs(1)).unwrap().is_none() {}
    stream
}

fn fault_of(stream: &mut dyn Stream) -> CameraFault {
    let met = (0..ASKED_MAX).find_map(|_| stream.next(Duration::from_secs(1)).err());
    met.unwrap_or_else(|| panic!("the stream goes on"))
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_device_that_fails_at_its_start_is_told_apart_and_gives_its_picture_to_a_new_stream() {
    show(NODE, RED);
    for (failure, step) in [(FAIL_REQBUFS, "start"), (FAIL_QBUF, "start"), (FAIL_STREAMON, "start")] {
        set(NODE, failure, 1);
        let fault = source().open().map(|_| ()).unwrap_err();
        let CameraFault::Driver(reason) = &fault else { panic!("{failure:#x}: {fault}") };
        assert!(reason.contains(step), "{failure:#x}: {reason}");
        set(NODE, failure, 1);
        assert!(shows(&picture(&source()).unwrap(), SMALL, RED.1), "{failure:#x}: mended within one capture");
        assert_eq!(handles(), 0, "{failure:#x}");
    }
    // The driver holds this one back for requests, which nobody makes here.
    set(NODE, FAIL_VALIDATION, 1);
    picture(&source()).unwrap();
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_device_that_fails_while_it_streams_is_told_apart_and_works_in_a_new_stream() {
    show(NODE, BLUE);
    let mended = |failure: u32, wanted: &dyn Fn(&CameraFault) -> bool| {
        let mut stream = streaming();
        set(NODE, failure, 1);
        let fault = fault_of(&mut *stream);
        assert!(wanted(&fault), "{failure:#x}: {fault}");
        drop(stream);
        assert!(shows(&picture(&source()).unwrap(), SMALL, BLUE.1), "{failure:#x}");
        assert_eq!(handles(), 0, "{failure:#x}");
    };
    mended(DISCONNECT, &|fault| *fault == CameraFault::Unplugged);
    mended(FATAL, &|fault| matches!(fault, CameraFault::Driver(_)));
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_frame_that_the_driver_marks_as_damaged_is_never_the_picture() {
    show(NODE, RED);
    let mut stream = streaming();
    set(NODE, DAMAGED_FRAME, 1);
    let damaged =
        (0..ASKED_MAX).any(|_| stream.next(Duration::from_secs(1)).unwrap().is_some_and(|frame| frame.damaged));
    assert!(damaged, "the driver's mark is seen");
    drop(stream);
    set(NODE, DAMAGED_FRAME, 1);
    assert!(shows(&picture(&source()).unwrap(), SMALL, RED.1));
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_device_that_drops_every_frame_is_silent() {
    set(NODE, DROPPED_PERCENT, 100);
    let [whole, first_frame] = [3, 1].map(Duration::from_secs);
    let ended = picture_within(&source(), CaptureLimits { whole, first_frame, ..CaptureLimits::default() });
    set(NODE, DROPPED_PERCENT, 0);
    assert_eq!(ended.unwrap_err(), CameraFault::Silent);
    picture(&source()).unwrap();
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_busy_device_is_called_busy_within_two_seconds_and_its_handle_is_not_inherited() {
    let holder = source().open().unwrap();
    let began = Instant::now();
    assert_eq!(picture(&source()).unwrap_err(), CameraFault::Busy);
    let took = began.elapsed();
    assert!(took < TOLD_BUSY, "{took:?}");
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
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_cable_pulled_out_of_a_stream_is_unplugged_then_missing_and_put_back_it_works() {
    let command = |verb: &str| fs::write(Path::new(DRIVER).join(verb), DEVICE).unwrap();
    for round in 0..2 {
        let mut stream = streaming();
        command("unbind");
        let fault = fault_of(&mut *stream);
        assert_eq!(fault, CameraFault::Unplugged, "round {round}");
        let fault = picture(&source()).unwrap_err();
        assert!(matches!(fault, CameraFault::Missing(_)), "round {round}: {fault}");
        drop(stream);
        assert_eq!(handles(), 0, "round {round}");
        command("bind");
        wait_until("the camera is back", || Path::new(NODE).exists());
        show(NODE, RED);
        assert!(shows(&picture(&source()).unwrap(), SMALL, RED.1), "round {round}");
    }
    assert_eq!(handles(), 0);
}
