//! Ten thousand snapshots of a camera that misbehaves in every way: nothing is left behind, and no picture is a broken one.
//!
//! Small pictures and short limits, so that it ends within a minute; the troubles that cost whole seconds have tests of their own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

use std::collections::BTreeMap;
use std::fs;

use tokio_util::sync::CancellationToken;
use wire::Arguments;

use super::*;
use crate::clock::{Clock as _, SystemClock};
use crate::picture::jpeg;
use crate::sign::{Sign, SimulatedSign};

const SNAPSHOTS: u64 = 10_000;
/// Long enough for what can be mended within a capture, and no longer.
const LIMITS: CaptureLimits = CaptureLimits {
    whole: Duration::from_millis(60),
    making: Duration::from_secs(5),
    first_frame: Duration::from_millis(4),
    stall: Duration::from_millis(1),
    settle: Duration::from_millis(3),
    slice: Duration::from_millis(1),
    pause: Duration::from_millis(1),
};
/// Memory that the process may hold more at the end than after the first thousand.
const GROWTH_KIB_MAX: u64 = 1024;

/// The troubles in turn, and whether a picture can come of each. `None` is a camera that works.
const TROUBLES: [(Option<CameraTrouble>, bool); 21] = [
    (None, true),
    (Some(CameraTrouble::Missing), false),
    (Some(CameraTrouble::Other), false),
    (Some(CameraTrouble::MetadataOnly), false),
    (Some(CameraTrouble::Busy(BusyAt::Opening)), false),
    (Some(CameraTrouble::Busy(BusyAt::Mode)), false),
    (Some(CameraTrouble::Busy(BusyAt::Buffers)), false),
    (Some(CameraTrouble::Busy(BusyAt::Start)), false),
    (Some(CameraTrouble::Unplugged), false),
    (Some(CameraTrouble::PulledOut), false),
    (Some(CameraTrouble::Gone), false),
    (Some(CameraTrouble::Silent), false),
    (Some(CameraTrouble::OneFrame), true),
    (Some(CameraTrouble::NotYet(9)), true),
    (Some(CameraTrouble::DarkFirst(3)), true),
    (Some(CameraTrouble::BrokenFirst(3)), true),
    (Some(CameraTrouble::CutFirst(3)), true),
    (Some(CameraTrouble::ShortFirst(3)), true),
    (Some(CameraTrouble::NoTables), true),
    (Some(CameraTrouble::Padded), true),
    (Some(CameraTrouble::Panic), false),
];

/// Those that take all the time that a capture has; each is met once in so many snapshots.
const SLOW_TROUBLES: [CameraTrouble; 3] =
    [CameraTrouble::CutFirst(u32::MAX), CameraTrouble::ShortFirst(u32::MAX), CameraTrouble::BrokenFirst(u32::MAX)];
const SLOW_EVERY: u64 = 100;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A number of `/proc/self/status`, such as its threads or its memory in KiB.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.map(|task| of(task.unwrap()).split_whitespace().count()).sum()
}

fn arguments() -> Arguments {
    Declaration::camera_snapshot().bounds.check(Object::new()).unwrap()
}

async fn snapshot(camera: &Camera, sign: &Sign) -> Result<Vec<u8>, Fault> {
    let agent = "eve@home.example.org".parse().unwrap();
    let call = Call { arguments: arguments(), stop: CancellationToken::new(), clock: Arc::new(SystemClock), agent };
    let value = camera.run(call, sign.light().await.unwrap()).await?;
    Ok(wire::text::base64_decode(value.get("data").unwrap().as_str().unwrap()).unwrap())
}

#[tokio::test]
async fn ten_thousand_snapshots_of_a_misbehaving_camera_leave_nothing_behind_and_none_is_broken() {
    // The reports of four hundred panics that were ordered would drown everything else.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |report| {
        if !report.to_string().contains("was told to panic") {
            hook(report);
        }
    }));
    let device = SimulatedCamera::new();
    device.resolution(64, 48);
    let camera = Camera::simulated_within(device.clone(), &CameraSetup::default(), LIMITS);
    let sign = Sign::new(vec![Arc::new(SimulatedSign::new(|_| {}))], Arc::new(SystemClock));
    tokio::spawn(Arc::clone(&sign).tend(CancellationToken::new()));
    tokio::task::yield_now().await;

    let mut pictures: BTreeMap<usize, u64> = BTreeMap::new();
    let mut before = (0, 0, 0, 0);
    for number in 0..SNAPSHOTS {
        let kind = usize::try_from(number).unwrap() % TROUBLES.len();
        let (mut trouble, mut may_show) = *TROUBLES.get(kind).unwrap();
        if number % SLOW_EVERY == 0 {
            let slow = usize::try_from(number / SLOW_EVERY).unwrap() % SLOW_TROUBLES.len();
            (trouble, may_show) = (SLOW_TROUBLES.get(slow).copied(), false);
        }
        let level = u8::try_from(60 + number % 150).unwrap();
        device.colour(Some([level; 3]));
        device.trouble(trouble);
        match snapshot(&camera, &sign).await {
            Ok(file) => {
                assert!(may_show, "{trouble:?} gave a picture");
                let seen = jpeg::look(&file).unwrap_or_else(|reason| panic!("{trouble:?}: {reason}"));
                assert_eq!((seen.width, seen.height), (64, 48), "{trouble:?}");
                // A fifth of it is black; what was written there, and what the encoder lost, is the rest.
                let wanted = u8::try_from(u32::from(level) * 4 / 5).unwrap();
                assert!(seen.mean.abs_diff(wanted) < 16, "{trouble:?}: {} of {wanted}", seen.mean);
                *pictures.entry(kind).or_default() += 1;
            }
            Err(Fault::Unavailable(reason)) => assert!(!reason.is_empty(), "{trouble:?}"),
            Err(fault) => panic!("{trouble:?}: {fault:?}"),
        }
        if number == SNAPSHOTS / 10 {
            before = (descriptors(), status("Threads"), children(), status("VmRSS"));
        }
    }
    let counts = device.counts();
    assert_eq!(counts.opens, counts.closes, "every handle was closed");
    // The thread of the last capture may be on its way out.
    let ended = SystemClock.boot();
    while status("Threads") > before.1 && SystemClock.boot().since(ended) < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let after = (descriptors(), status("Threads"), children(), status("VmRSS"));
    assert_eq!((after.0, after.2), (before.0, before.2), "descriptors, children");
    assert!(after.1 <= before.1, "{} threads, {} before", after.1, before.1);
    assert!(after.3 <= before.3 + GROWTH_KIB_MAX, "{} KiB, {} before", after.3, before.3);
    for (kind, (trouble, may_show)) in TROUBLES.iter().enumerate().filter(|(_, (_, may_show))| *may_show) {
        let got = pictures.get(&kind).copied().unwrap_or(0);
        // On a machine under load some captures run out of their few milliseconds.
        assert!(*may_show && got > SNAPSHOTS / 21 / 2, "{trouble:?} gave {got} pictures");
    }
}
