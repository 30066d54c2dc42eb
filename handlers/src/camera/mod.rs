//! `camera.snapshot`: one picture from a camera, under a lit sign.
//!
//! Owns the capture thread. A capture runs in a thread of its own, which holds the sign until the device is closed again and ends by
//! itself within [`CaptureLimits::whole`]; a thread that hangs in the driver keeps the sign lit and the camera unavailable. Refuses a sign
//! that pretends for a camera that does not, and the reverse.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use tokio::sync::oneshot;
use wire::envelope::MEDIA_BYTES_MAX;
use wire::{Declaration, Object};

use crate::handler::{Call, CaptureHandler, Fault};
use crate::sign::Lit;

mod capture;
mod frame;
mod ring;
mod simulated;
#[cfg(test)]
mod tests;
mod video4linux;
#[cfg(test)]
mod vivid;

pub use frame::{Frame, PixelFormat};
pub use simulated::{CameraCounts, CameraEvent, CameraTrouble, SimulatedCamera};
pub use video4linux::CameraChoice;

use capture::{Ended, Watch};

/// Where pictures come from.
pub trait Source: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
    /// Whether a capture has the device; shared by every handler over the same device, so that one made anew knows of a thread that
    /// still hangs.
    fn taken(&self) -> Arc<AtomicBool>;
    /// Opens the device and starts it. Called in the capture thread; may block for as long as the driver does.
    ///
    /// # Errors
    /// See [`CameraFault`].
    fn open(&self) -> Result<Box<dyn Stream>, CameraFault>;
}

/// A camera that runs; dropping it closes the device.
pub trait Stream {
    /// The next frame, or `None` when none came within `wait`.
    ///
    /// # Errors
    /// See [`CameraFault`]; after one the stream is dead.
    fn next(&mut self, wait: Duration) -> Result<Option<Frame>, CameraFault>;
}

/// Why there is no picture. Each is told apart in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CameraFault {
    /// There is no such camera now.
    #[error("{0}")]
    Missing(String),
    /// Another program holds it.
    #[error("the camera is busy: another program uses it")]
    Busy,
    /// It went away while in use.
    #[error("the camera was unplugged")]
    Unplugged,
    /// It runs and sends nothing.
    #[error("the camera is silent: it sends no pictures")]
    Silent,
    /// It sends nothing but broken pictures.
    #[error("the camera sends broken pictures: {0}")]
    Broken(String),
    /// We may not open it.
    #[error("{0}")]
    Forbidden(String),
    /// It is something else, or offers nothing that we know.
    #[error("{0}")]
    Unusable(String),
    /// The driver refused or failed.
    #[error("the camera failed: {0}")]
    Driver(String),
}

/// How long a capture waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureLimits {
    /// The whole capture: 2 s less than the capability's time-out, so that the reason reaches the caller.
    pub whole: Duration,
    /// From opening to the first whole frame: a cold camera may take 3 s.
    pub first_frame: Duration,
    /// After a whole frame, until silence means that no more will come.
    pub stall: Duration,
    /// After the first whole frame, until a picture is taken that has not settled.
    pub settle: Duration,
    /// How often `stop` is looked at while waiting.
    pub slice: Duration,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        Self {
            whole: Duration::from_secs(8),
            first_frame: Duration::from_secs(4),
            stall: Duration::from_secs(1),
            settle: Duration::from_millis(2500),
            slice: Duration::from_millis(100),
        }
    }
}

/// `camera.snapshot` over a source of pictures.
pub struct Camera {
    declaration: Declaration,
    source: Arc<dyn Source>,
    limits: CaptureLimits,
}

impl Camera {
    /// The handler over `source`.
    pub fn new(source: impl Source, limits: CaptureLimits) -> Self {
        Self { declaration: Declaration::camera_snapshot(), source: Arc::new(source), limits }
    }

    /// A camera of the system.
    pub fn v4l(choice: CameraChoice) -> Self {
        Self::new(video4linux::Video4Linux::new(choice), CaptureLimits::default())
    }

    /// A camera that only pretends.
    pub fn simulated(camera: SimulatedCamera) -> Self {
        Self::new(camera, CaptureLimits::default())
    }

    /// Where its pictures come from.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.source)
    }

    /// What people call the camera.
    pub fn name(&self) -> String {
        self.source.name()
    }

    fn refusal(&self, lit: &Lit) -> Option<Fault> {
        match (self.source.simulated(), lit.simulated()) {
            (true, true) | (false, false) => None,
            (false, true) => Some("a simulated in-use sign does not serve a real camera"),
            (true, false) => Some("a real in-use sign does not serve a simulated camera"),
        }
        .map(|reason| Fault::Unavailable(reason.to_owned()))
    }
}

/// A frame as a JPEG file of at most `bytes_max` bytes, as a snapshot has it.
///
/// # Errors
/// [`CameraFault::Broken`] when the frame is not whole or does not get that small.
pub fn jpeg_of(frame: Frame, bytes_max: usize) -> Result<Vec<u8>, CameraFault> {
    let (whole, _) = frame.check().map_err(CameraFault::Broken)?;
    whole.into_jpeg(bytes_max)
}

/// The camera's one place; free again when this is dropped.
struct Seat(Arc<AtomicBool>);

impl Seat {
    fn take(taken: Arc<AtomicBool>) -> Option<Self> {
        (!taken.swap(true, Ordering::AcqRel)).then(|| Self(taken))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CaptureHandler for Camera {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        if let Some(refusal) = self.refusal(&lit) {
            return ready(Err(refusal)).boxed();
        }
        let Some(seat) = Seat::take(self.source.taken()) else {
            let reason = "a former capture still hangs in the camera's driver";
            return ready(Err(Fault::Unavailable(reason.to_owned()))).boxed();
        };
        snapshot(Arc::clone(&self.source), self.limits, call, lit, seat).boxed()
    }
}

async fn snapshot(
    source: Arc<dyn Source>,
    limits: CaptureLimits,
    call: Call,
    lit: Lit,
    seat: Seat,
) -> Result<Object, Fault> {
    let stop = call.stop.child_token();
    // A caller that goes away stops the thread.
    let _guard = stop.clone().drop_guard();
    let watch = Watch::begin(limits, stop, lit.lost());
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("camera".to_owned()).spawn(move || {
        let shot = catch_unwind(AssertUnwindSafe(|| capture::shoot(&*source, &watch, MEDIA_BYTES_MAX)));
        let value = into_value(shot);
        // The device is closed by now: the next capture may come, and the sign may go off.
        drop(seat);
        drop(lit);
        // The caller may have gone.
        let _ = done.send(value);
    });
    if let Err(error) = thread {
        return Err(Fault::Unavailable(format!("no thread for the camera: {error}")));
    }
    outcome.await.unwrap_or_else(|_| Err(Fault::Unavailable("the camera's thread ended early".to_owned())))
}

fn into_value(shot: Result<Result<Vec<u8>, Ended>, Box<dyn Any + Send>>) -> Result<Object, Fault> {
    match shot {
        Ok(Ok(file)) => {
            let mut value = Object::new();
            value.insert("mime", "image/jpeg");
            value.insert("data", wire::text::base64_encode(&file));
            Ok(value)
        }
        Ok(Err(Ended::Stopped)) => Err(Fault::Stopped),
        Ok(Err(Ended::Camera(fault))) => Err(Fault::Unavailable(fault.to_string())),
        Err(panic) => Err(Fault::Unavailable(format!("the camera's driver crashed: {}", panic_text(&*panic)))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
