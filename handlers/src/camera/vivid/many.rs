//! Snapshot after snapshot, with faults at random; and what a child sees of an open camera.

use std::fs;

use ::v4l::control::{Control, Value};
use ::v4l::device::Device;

use super::super::Source as _;
use super::faults::{DAMAGED_FRAME, DISCONNECT, FAIL_REQBUFS, FAIL_STREAMON, FATAL};
use super::{BLUE, GREEN, NODE, RED, handles, picture, show, source};
use crate::picture::jpeg;

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn no_child_inherits_the_camera() {
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
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn three_hundred_snapshots_with_faults_at_random_leave_nothing_behind() {
    const SNAPSHOTS: u32 = 300;
    let source = source();
    let mut chance = std::process::id() | 1;
    println!("seed {chance}");
    let mut before = (0, 0);
    let (mut good, mut bad) = (0, 0);
    for number in 0..SNAPSHOTS {
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        let (pattern, colour) = *[RED, GREEN, BLUE].get(usize::try_from(chance >> 8).unwrap() % 3).unwrap();
        show(NODE, (pattern, colour));
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
