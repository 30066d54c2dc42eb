//! `camera.snapshot`: one picture from a camera, under a lit sign.
//!
//! Owns the capture thread. A capture runs in a thread of its own, which holds the sign until the device is closed again and ends by
//! itself within [`CaptureLimits::whole`]; a thread that hangs in the driver keeps the sign lit and the camera unavailable. Refuses a sign
//! that pretends for a camera that does not, and the reverse. No picture leaves that is larger than the keeper allows.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config::PictureSize;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use tokio::sync::oneshot;
use wire::envelope::MEDIA_BYTES_MAX;
use wire::{Declaration, Object};

use crate::handler::{Call, CaptureHandler, Fault};
use crate::picture::Bound;
use crate::sign::Lit;

mod adapter;
mod bare;
mod bus;
mod capture;
mod colour;
mod device;
mod frame;
mod mode;
mod mute;
mod simulated;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod tests;
mod video4linux;
#[cfg(test)]
mod vivid;
#[cfg(test)]
mod webcam;

pub use bare::Bare;
pub use colour::Coding;
pub use frame::{Frame, PixelFormat};
pub use simulated::{BusyAt, CameraCounts, CameraEvent, CameraTrouble, SimulatedCamera};

use adapter::Adapter;
use bus::Size;
use capture::{Ended, Watch};
use video4linux::Video4Linux;

/// Which camera the keeper chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameraChoice {
    /// The first device that captures video, in the order of names by-id, then by-path, then numbers.
    First,
    /// This one and no other: a name under /dev/v4l/by-id or by-path, or a path.
    Named(String),
}

/// What the keeper chose: which camera, and how large its pictures are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CameraSetup {
    /// The camera.
    pub choice: CameraChoice,
    /// The size that a picture is wanted at, where the camera offers it.
    pub size: PictureSize,
    /// The size above which a picture is made smaller before it leaves.
    pub largest: PictureSize,
}

impl Default for CameraSetup {
    fn default() -> Self {
        Self {
            choice: CameraChoice::First,
            size: PictureSize { width: 1280, height: 720 },
            largest: PictureSize { width: 1920, height: 1080 },
        }
    }
}

impl CameraSetup {
    /// What the camera is asked for: what is wanted, but never more than may leave.
    fn wanted(&self) -> Size {
        Size { width: self.size.width.min(self.largest.width), height: self.size.height.min(self.largest.height) }
    }

    const fn bound(&self) -> Bound {
        Bound { width: self.largest.width, height: self.largest.height }
    }
}

/// A camera that could be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCamera {
    /// What `camera.device` takes to mean this one and no other: its name by-id, or else by-path, or else its path.
    pub id: String,
    /// What its maker called it; empty when it could not be asked.
    pub name: String,
    /// The node, as numbered at this start.
    pub node: PathBuf,
    /// Other lasting names of the same camera.
    pub also: Vec<String>,
    /// Why it cannot be used now, if it cannot.
    pub problem: Option<String>,
}

/// The cameras of the system, each once. Asks each what it is, and captures nothing.
#[must_use]
pub fn cameras() -> Vec<FoundCamera> {
    adapter::list(&Video4Linux)
}

/// A camera's one place, shared by every handler over the same camera, and what went wrong there last.
#[derive(Debug, Default)]
pub struct Post {
    taken: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Post {
    /// One line in the log when trouble begins, changes or ends, however often it is met in between.
    fn note(&self, camera: &str, ended: &Result<Object, Fault>) {
        let now = match ended {
            Ok(_) => None,
            Err(Fault::Unavailable(reason)) => Some(reason.clone()),
            // Nobody waited to see.
            Err(_) => return,
        };
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match &now {
            _ if *trouble == now => return,
            Some(reason) => tracing::warn!(camera, %reason, "no picture"),
            None => tracing::info!(camera, "the camera gives pictures again"),
        }
        *trouble = now;
    }
}

/// Where pictures come from.
pub trait Source: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
    /// The device's one place; a handler made anew learns from it of a thread that still hangs.
    fn post(&self) -> Arc<Post>;
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
    /// Whether the name that the keeper chose still leads to this device.
    fn is_chosen(&self) -> bool {
        true
    }
    /// It was waited for as long as the coldest camera may take, and nothing came. Not called when the capture ended for another reason.
    fn gave_nothing(&self) {}
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
    /// What it sends, or the picture that has to be made of it, takes more time than there is.
    #[error("the camera's pictures take too long to work through; a smaller camera.size may help")]
    Slow,
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
    /// After it, until the picture must be made of what was captured: the rest of the time-out but half a second.
    pub making: Duration,
    /// From opening to the first whole frame: a cold camera may take 3 s.
    pub first_frame: Duration,
    /// After a whole frame, until silence means that no more will come.
    pub stall: Duration,
    /// After the first whole frame, until a picture is taken that has not settled.
    pub settle: Duration,
    /// How often `stop` is looked at while waiting.
    pub slice: Duration,
    /// Between two attempts: a device that re-enumerates takes about this long.
    pub pause: Duration,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        Self {
            whole: Duration::from_secs(8),
            making: Duration::from_millis(1500),
            first_frame: Duration::from_secs(4),
            stall: Duration::from_secs(1),
            settle: Duration::from_millis(2500),
            slice: Duration::from_millis(100),
            pause: Duration::from_millis(200),
        }
    }
}

/// `camera.snapshot` over a source of pictures.
pub struct Camera {
    declaration: Declaration,
    source: Arc<dyn Source>,
    limits: CaptureLimits,
    largest: Bound,
}

impl Camera {
    /// The handler over `source`, whose pictures leave no larger than the setup allows.
    pub fn new(source: impl Source, limits: CaptureLimits, setup: &CameraSetup) -> Self {
        let largest = setup.bound();
        Self { declaration: Declaration::camera_snapshot(), source: Arc::new(source), limits, largest }
    }

    /// A camera of the system.
    pub fn v4l(setup: &CameraSetup) -> Self {
        let (bus, choice) = (Arc::new(Video4Linux), setup.choice.clone());
        let adapter = Adapter::new(bus, choice, setup.wanted(), false, Video4Linux::post());
        Self::new(adapter, CaptureLimits::default(), setup)
    }

    /// A camera that only pretends; it is the one that was chosen, whatever the setup says.
    pub fn simulated(camera: SimulatedCamera, setup: &CameraSetup) -> Self {
        Self::simulated_within(camera, setup, CaptureLimits::default())
    }

    /// The same with limits of its own.
    pub fn simulated_within(camera: SimulatedCamera, setup: &CameraSetup, limits: CaptureLimits) -> Self {
        let (post, choice) = (camera.post(), CameraChoice::Named(simulated::ID.to_owned()));
        let adapter = Adapter::new(Arc::new(camera), choice, setup.wanted(), true, post);
        Self::new(adapter, limits, setup)
    }

    /// The camera's frames as it sends them, without a picture made of them: what the benchmark holds a snapshot against. Blocks; under a lit sign,
    /// like any capture: the stream holds it, and the camera's one place, until it is dropped.
    ///
    /// # Errors
    /// As `camera.snapshot`.
    pub fn bare(&self, lit: Lit) -> Result<Bare, Fault> {
        if let Some(refusal) = self.refusal(&lit) {
            return Err(refusal);
        }
        let seat = Seat::take(self.source.post()).ok_or_else(hangs)?;
        Bare::open(&*self.source, self.limits.slice, seat, lit)
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
    whole.into_jpeg(bytes_max, Bound::NONE)
}

/// The camera's one place; free again when this is dropped.
struct Seat(Arc<Post>);

impl Seat {
    fn take(post: Arc<Post>) -> Option<Self> {
        (!post.taken.swap(true, Ordering::AcqRel)).then(|| Self(post))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

fn hangs() -> Fault {
    Fault::Unavailable("a former capture still hangs in the camera's driver".to_owned())
}

impl CaptureHandler for Camera {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        if let Some(refusal) = self.refusal(&lit) {
            return ready(Err(refusal)).boxed();
        }
        let Some(seat) = Seat::take(self.source.post()) else {
            return ready(Err(hangs())).boxed();
        };
        let shot = Shot { source: Arc::clone(&self.source), limits: self.limits, largest: self.largest };
        snapshot(shot, call, lit, seat).boxed()
    }
}

/// What one capture needs of its camera.
struct Shot {
    source: Arc<dyn Source>,
    limits: CaptureLimits,
    largest: Bound,
}

async fn snapshot(shot: Shot, call: Call, lit: Lit, seat: Seat) -> Result<Object, Fault> {
    let Shot { source, limits, largest } = shot;
    let (post, name) = (source.post(), source.name());
    let stop = call.stop.child_token();
    // A caller that goes away stops the thread.
    let _guard = stop.clone().drop_guard();
    let watch = Watch::begin(limits, stop, lit.lost());
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("camera".to_owned()).spawn(move || {
        let shot = || capture::shoot(&*source, &watch, MEDIA_BYTES_MAX, largest);
        let value = into_value(catch_unwind(AssertUnwindSafe(shot)));
        // The device is closed by now: the next capture may come, and the sign may go off.
        drop(seat);
        drop(lit);
        // The caller may have gone.
        let _ = done.send(value);
    });
    if let Err(error) = thread {
        return Err(Fault::Unavailable(format!("no thread for the camera: {error}")));
    }
    let ended = outcome.await.unwrap_or_else(|_| Err(Fault::Unavailable("the camera's thread ended early".to_owned())));
    post.note(&name, &ended);
    ended
}

fn into_value(shot: Result<Result<Vec<u8>, Ended>, Box<dyn Any + Send>>) -> Result<Object, Fault> {
    match shot {
        Ok(Ok(file)) => {
            let mut value = Object::new();
            value.insert("mime", "image/jpeg");
            value.insert("data", wire::text::base64_encode(&file));
            Ok(value)
        }
        Ok(Err(ended)) => Err(fault_of(ended)),
        Err(panic) => Err(Fault::Unavailable(format!("the camera's driver crashed: {}", panic_text(&*panic)))),
    }
}

fn fault_of(ended: Ended) -> Fault {
    match ended {
        Ended::Stopped => Fault::Stopped,
        Ended::Camera(fault) => Fault::Unavailable(fault.to_string()),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
