//! The capture itself, in a thread of its own: open, skip frames until exposure has settled, give one picture, close.
//!
//! Called by the camera's handler, once for each picture; owns the stream until its end. Every wait, and every step of looking at a frame and of making the
//! picture, has a deadline and hears `stop` and a lost sign. Any error drops the stream and makes a new one, as a stream is dead after
//! an error, until the attempts or the time are used up.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::frame::Whole;
use super::{CameraFault, CaptureLimits, Source, Stream};
use crate::clock::{BootTime, Clock as _, SystemClock};
use crate::picture::{Bound, TOO_LONG};

/// So many frames are looked at before one counts: the first ones of a cold camera are dark, green or empty.
const FRAMES_MIN: u32 = 4;
/// Two frames whose mean brightness differs by no more than this (of 255) were exposed alike.
const STEADY_WITHIN: u8 = 3;
/// So many frames in a row must have been exposed alike.
const STEADY_FRAMES: u32 = 2;
/// A frame below this mean brightness (of 255) may be one from before the shutter opened; a dark room is believed when time is up.
const DARK_BELOW: u8 = 20;
/// A camera that failed this often in one capture will fail again.
const ATTEMPTS_MAX: u32 = 4;

/// When a capture must end, and what ends it before.
pub(super) struct Watch {
    pub(super) limits: CaptureLimits,
    pub(super) started: BootTime,
    pub(super) stop: CancellationToken,
    pub(super) lost: CancellationToken,
}

/// How a capture ends without a picture.
#[derive(Debug)]
pub(super) enum Ended {
    /// The camera's fault.
    Camera(CameraFault),
    /// Nobody wants it any more, or the sign went out.
    Stopped,
}

impl From<CameraFault> for Ended {
    fn from(fault: CameraFault) -> Self {
        Self::Camera(fault)
    }
}

fn now() -> BootTime {
    SystemClock.boot()
}

impl Watch {
    pub(super) fn begin(limits: CaptureLimits, stop: CancellationToken, lost: CancellationToken) -> Self {
        Self { limits, started: now(), stop, lost }
    }

    /// Time until the deadline; ends the capture when it was stopped.
    fn left(&self) -> Result<Duration, Ended> {
        if self.stop.is_cancelled() || self.lost.is_cancelled() {
            return Err(Ended::Stopped);
        }
        Ok(self.limits.whole.saturating_sub(now().since(self.started)))
    }

    /// Whether the capture may go on.
    fn goes_on(&self) -> bool {
        self.left().is_ok_and(|left| !left.is_zero())
    }

    /// Whether the picture may still be made of what was captured.
    fn may_make(&self) -> bool {
        self.left().is_ok() && now().since(self.started) < self.limits.whole + self.limits.making
    }

    /// Waits, but hears `stop` as soon as any other wait does.
    fn pause(&self, pause: Duration) -> Result<(), Ended> {
        let begun = now();
        loop {
            let left = pause.saturating_sub(now().since(begun)).min(self.left()?);
            if left.is_zero() {
                return Ok(());
            }
            std::thread::park_timeout(left.min(self.limits.slice));
        }
    }
}

/// One JPEG file of at most `bytes_max` bytes, no larger than `largest`.
pub(super) fn shoot(source: &dyn Source, watch: &Watch, bytes_max: usize, largest: Bound) -> Result<Vec<u8>, Ended> {
    let mut attempts = 0;
    loop {
        let fault = match attempt(source, watch) {
            Ok(whole) => return made(whole, watch, bytes_max, largest),
            Err(Ended::Stopped) => return Err(Ended::Stopped),
            // It was there when the capture began.
            Err(Ended::Camera(CameraFault::Missing(_))) if attempts > 0 => CameraFault::Unplugged,
            Err(Ended::Camera(fault)) => fault,
        };
        attempts += 1;
        tracing::debug!(camera = source.name(), attempts, %fault, "the camera gave no picture");
        let again = match &fault {
            // Nothing here mends these.
            CameraFault::Missing(_)
            | CameraFault::Busy
            | CameraFault::Slow
            | CameraFault::Forbidden(_)
            | CameraFault::Unusable(_) => false,
            CameraFault::Unplugged | CameraFault::Silent | CameraFault::Broken(_) | CameraFault::Driver(_) => true,
        };
        if !again || attempts >= ATTEMPTS_MAX || watch.left()?.is_zero() {
            return Err(Ended::Camera(fault));
        }
        watch.pause(watch.limits.pause)?;
    }
}

/// The picture as a file, unless it was stopped or its sign was lost meanwhile.
fn made(whole: Whole, watch: &Watch, bytes_max: usize, largest: Bound) -> Result<Vec<u8>, Ended> {
    watch.left()?;
    let file = whole.into_jpeg_while(bytes_max, largest, &|| watch.may_make());
    watch.left()?;
    if watch.may_make() { Ok(file?) } else { Err(CameraFault::Slow.into()) }
}

/// One stream, from its opening to its closing.
fn attempt(source: &dyn Source, watch: &Watch) -> Result<Whole, Ended> {
    watch.left()?;
    let mut stream = source.open()?;
    let mut settling = Settling::new(watch.limits);
    loop {
        let left = watch.left()?;
        if left.is_zero() {
            return chosen(&*stream, settling.give_up()?);
        }
        match stream.next(watch.limits.slice.min(left))? {
            Some(frame) => {
                if let Some(settled) = settling.see(frame.check_while(&|| watch.goes_on())) {
                    return chosen(&*stream, settled);
                }
            }
            None if settling.waited_enough() => {
                if settling.is_silent() {
                    stream.gave_nothing();
                }
                return chosen(&*stream, settling.give_up()?);
            }
            None => {}
        }
    }
}

/// The picture, unless its camera is no longer the one that the keeper chose: another may have taken over its number.
fn chosen(stream: &dyn Stream, whole: Whole) -> Result<Whole, Ended> {
    if stream.is_chosen() { Ok(whole) } else { Err(CameraFault::Unplugged.into()) }
}

/// Which frame is the picture.
struct Settling {
    limits: CaptureLimits,
    opened: BootTime,
    /// When the first and the last whole frame came.
    first: Option<BootTime>,
    last: BootTime,
    /// The best picture so far: the latest whole frame.
    best: Option<Whole>,
    mean: u8,
    frames: u32,
    steady: u32,
    /// Why the latest broken frame was refused.
    broken: Option<String>,
}

impl Settling {
    fn new(limits: CaptureLimits) -> Self {
        let opened = now();
        Self { limits, opened, first: None, last: opened, best: None, mean: 0, frames: 0, steady: 0, broken: None }
    }

    /// Looks at one more frame; gives the picture once exposure has settled or has had its time.
    fn see(&mut self, frame: Result<(Whole, u8), String>) -> Option<Whole> {
        let (whole, mean) = match frame {
            Ok(seen) => seen,
            Err(reason) => {
                self.broken = Some(reason);
                return None;
            }
        };
        let alike = self.frames > 0 && mean.abs_diff(self.mean) <= STEADY_WITHIN;
        self.steady = if alike { self.steady + 1 } else { 0 };
        self.frames += 1;
        self.mean = mean;
        self.last = now();
        let first = *self.first.get_or_insert(self.last);
        let settled = self.frames >= FRAMES_MIN && self.steady >= STEADY_FRAMES && mean >= DARK_BELOW;
        if settled || self.last.since(first) >= self.limits.settle {
            return Some(whole);
        }
        self.best = Some(whole);
        None
    }

    /// Whether a camera that sends nothing has been waited for long enough.
    fn waited_enough(&self) -> bool {
        let wait = if self.best.is_some() { self.limits.stall } else { self.limits.first_frame };
        now().since(self.last.max(self.opened)) >= wait
    }

    /// Whether not even a broken frame has come.
    const fn is_silent(&self) -> bool {
        self.best.is_none() && self.broken.is_none()
    }

    /// The picture there is, or why there is none.
    fn give_up(self) -> Result<Whole, Ended> {
        match (self.best, self.broken) {
            (Some(whole), _) => Ok(whole),
            (None, Some(reason)) if reason == TOO_LONG => Err(CameraFault::Slow.into()),
            (None, Some(reason)) => Err(CameraFault::Broken(reason).into()),
            (None, None) => Err(CameraFault::Silent.into()),
        }
    }
}

#[cfg(test)]
mod tests;
