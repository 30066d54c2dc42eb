//! A capture whose end comes while its last frame is looked at, or while the picture is made.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::colour::{Coding, Said};
use super::super::{CameraSetup, Frame, PixelFormat, Post};
use super::*;
use crate::picture::jpeg;

use std::sync::Arc;

/// A camera that gives one frame again and again, and after so many of them does something else first.
struct Sudden {
    frame: Frame,
    then: Arc<dyn Fn() + Send + Sync>,
}

impl Source for Sudden {
    fn name(&self) -> String {
        "sudden".to_owned()
    }

    fn simulated(&self) -> bool {
        false
    }

    fn post(&self) -> Arc<Post> {
        Arc::default()
    }

    fn open(&self) -> Result<Box<dyn Stream>, CameraFault> {
        Ok(Box::new(Frames { frame: self.frame.clone(), given: 0, then: Arc::clone(&self.then) }))
    }
}

struct Frames {
    frame: Frame,
    given: u32,
    then: Arc<dyn Fn() + Send + Sync>,
}

impl Stream for Frames {
    fn next(&mut self, _wait: Duration) -> Result<Option<Frame>, CameraFault> {
        self.given += 1;
        if self.given == FRAMES_MIN {
            (self.then)();
        }
        Ok(Some(self.frame.clone()))
    }
}

fn raw() -> Frame {
    let bytes = vec![90; 64 * 48];
    Frame {
        format: PixelFormat::Grey,
        width: 64,
        height: 48,
        stride: 0,
        coding: Coding::of(Said::default(), PixelFormat::Grey),
        bytes,
        damaged: false,
    }
}

fn file() -> Frame {
    Frame { format: PixelFormat::Mjpeg, bytes: jpeg::tests::file(64, 48), ..raw() }
}

fn limits() -> CaptureLimits {
    let long = Duration::from_secs(20);
    CaptureLimits { whole: long, making: long, settle: long, ..CaptureLimits::default() }
}

fn taken(frame: Frame, watch: &Watch, then: impl Fn() + Send + Sync + 'static) -> Result<Vec<u8>, Ended> {
    let source = Sudden { frame, then: Arc::new(then) };
    shoot(&source, watch, usize::MAX, CameraSetup::default().bound())
}

#[test]
fn a_sign_that_is_lost_or_a_caller_that_leaves_at_the_last_frame_leaves_no_picture() {
    for frame in [raw, file] {
        for which in ["stop", "lost", "neither"] {
            let (stop, lost) = (CancellationToken::new(), CancellationToken::new());
            let cancelled = match which {
                "stop" => stop.clone(),
                "lost" => lost.clone(),
                _ => CancellationToken::new(),
            };
            let watch = Watch::begin(limits(), stop, lost);
            let ended = taken(frame(), &watch, move || cancelled.cancel());
            match which {
                "neither" => drop(ended.unwrap()),
                _ => assert!(matches!(ended, Err(Ended::Stopped)), "{which}: {ended:?}"),
            }
        }
    }
}

#[test]
fn a_capture_that_is_over_time_before_its_picture_is_made_says_that_it_is_slow() {
    // The last frame comes after the capture's end; what was seen before it is taken, if there is time left to make a file of it.
    let late = || std::thread::park_timeout(Duration::from_millis(300));
    let limits = |making| CaptureLimits { whole: Duration::from_millis(150), making, ..limits() };
    for (making, in_time) in [(Duration::ZERO, false), (Duration::from_secs(20), true)] {
        let watch = Watch::begin(limits(making), CancellationToken::new(), CancellationToken::new());
        match taken(raw(), &watch, late) {
            Ok(_) => assert!(in_time),
            Err(Ended::Camera(CameraFault::Slow)) => assert!(!in_time),
            Err(ended) => unreachable!("{ended:?}"),
        }
    }
}

#[test]
fn a_frame_that_cannot_be_looked_at_in_time_is_slow_and_not_broken() {
    let limits = CaptureLimits { whole: Duration::from_millis(1), ..limits() };
    let watch = Watch::begin(limits, CancellationToken::new(), CancellationToken::new());
    let mut settling = Settling::new(limits);
    std::thread::park_timeout(Duration::from_millis(5));
    assert!(settling.see(file().check_while(&|| watch.goes_on())).is_none());
    assert!(matches!(settling.give_up(), Err(Ended::Camera(CameraFault::Slow))));
}
