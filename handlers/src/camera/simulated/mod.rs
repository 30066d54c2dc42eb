//! A camera that only pretends, for devices without hardware and for tests. It draws "simulated" into every picture, and can be told to
//! misbehave as real ones do. It counts what was done to it.
//!
//! It stands behind the same adapter as the cameras of the system: it has names, nodes, capabilities, modes and error numbers of its own, and each
//! open node holds a real descriptor, so that a handle that leaks, or that a child inherits, is one that can be found.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::bus::{About, Agreed, Bus, CAPTURES, Feed, Mode, Node, NodeId, Place, STREAMS, Size, Sizes};
use super::colour::Said;
use super::{FoundCamera, Post, adapter};
use crate::trouble::{Planned, Troubles};

mod draw;
mod feed;
mod troubles;

pub use troubles::{BusyAt, CameraTrouble};

use feed::Running;
use troubles::{Form, form};

/// What the simulated camera is called under by-id.
pub(super) const ID: &str = "simulated-camera-video-index0";
/// What the camera is called that trouble puts in its place.
const OTHER: &str = "simulated-other-video-index0";
/// The name of the memory that an open node holds, by which a test finds it among descriptors.
pub(super) const HANDLE: &str = "latchkey-simulated-camera";
/// The pictures of a camera without trouble.
const SIZE: Size = Size { width: 640, height: 480 };
const ODD_SIZE: Size = Size { width: 639, height: 479 };
const LARGE_SIZE: Size = Size { width: 4000, height: 3000 };
/// The raw mode that is too slow, and how slow.
const SLOW_SIZE: Size = Size { width: 2592, height: 1944 };
const SLOW: Duration = Duration::from_secs(2);
const FAST: Duration = Duration::from_millis(33);
/// `V4L2_CAP_META_CAPTURE` and `V4L2_CAP_STREAMING`.
const METADATA: u32 = 0x0080_0000 | 0x0400_0000;
const RGB: [u8; 4] = *b"RGB3";
const PAIRS: [u8; 4] = *b"YUYV";
const FILE: [u8; 4] = *b"MJPG";

/// What a simulated camera has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CameraCounts {
    /// Times it was opened.
    pub opens: u64,
    /// Frames it gave.
    pub frames: u64,
    /// Times it was closed.
    pub closes: u64,
    /// Times its driver began to hang.
    pub hangs: u64,
}

/// What happens to a simulated camera, for those who want to know when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraEvent {
    /// It was opened.
    Opened,
    /// It was closed.
    Closed,
}

type Listener = Box<dyn Fn(CameraEvent) + Send + Sync>;

/// A camera that only pretends; clones are the same camera.
#[derive(Clone)]
pub struct SimulatedCamera {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    listener: Listener,
    post: Arc<Post>,
}

struct State {
    size: Size,
    colour: Option<[u8; 3]>,
    troubles: Troubles<CameraTrouble>,
    counts: CameraCounts,
    /// Counts calls of `release`; whoever hangs waits for the next one.
    releases: u64,
}

impl Default for SimulatedCamera {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedCamera {
    /// A working camera that shows colour bars.
    pub fn new() -> Self {
        Self::with_listener(|_| {})
    }

    /// A working camera that tells `listener`, in the capture thread, when it is opened and closed.
    pub fn with_listener(listener: impl Fn(CameraEvent) + Send + Sync + 'static) -> Self {
        let state = State {
            size: SIZE,
            colour: None,
            troubles: Troubles::default(),
            counts: CameraCounts::default(),
            releases: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Condvar::new(),
                listener: Box::new(listener),
                post: Arc::default(),
            }),
        }
    }

    /// From now on it shows this colour, or bars.
    pub fn colour(&self, rgb: Option<[u8; 3]>) {
        self.lock().colour = rgb;
    }

    /// From now on its pictures have this size, where no trouble gives them another.
    pub fn resolution(&self, width: u32, height: u32) {
        self.lock().size = Size { width, height };
    }

    /// From now on it misbehaves like this, or works.
    pub fn trouble(&self, trouble: Option<CameraTrouble>) {
        self.lock().troubles = Troubles::only(trouble);
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<CameraTrouble>>) {
        self.lock().troubles = Troubles::planned(planned);
    }

    /// Lets go of every capture that hangs now.
    pub fn release(&self) {
        self.lock().releases += 1;
        self.shared.changed.notify_all();
    }

    /// What it has done so far.
    pub fn counts(&self) -> CameraCounts {
        self.lock().counts
    }

    /// As `latchkeyd hardware` lists it.
    pub fn listed(&self) -> Vec<FoundCamera> {
        adapter::list(self)
    }

    pub(super) fn post(&self) -> Arc<Post> {
        Arc::clone(&self.shared.post)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn troubles(&self) -> Vec<CameraTrouble> {
        self.lock().troubles.now()
    }

    /// Whether one of the troubles that hold now is of this kind.
    fn suffers(&self, of: impl Fn(CameraTrouble) -> bool) -> bool {
        self.troubles().into_iter().any(of)
    }

    /// Waits as a camera without frames does: for all of `wait`.
    fn nothing(&self, wait: Duration) {
        let (state, wait_over) = (self.lock(), |_: &mut State| true);
        drop(self.shared.changed.wait_timeout_while(state, wait, wait_over));
    }

    fn hang(&self) {
        let mut state = self.lock();
        state.counts.hangs += 1;
        let before = state.releases;
        drop(self.shared.changed.wait_while(state, |state| state.releases == before));
    }

    /// What its file in the folder of lasting names is called now, if there is one.
    fn connected(&self) -> Option<&'static str> {
        if self.suffers(|trouble| matches!(trouble, CameraTrouble::Missing | CameraTrouble::Unplugged)) {
            return None;
        }
        Some(if self.suffers(|trouble| trouble == CameraTrouble::Other) { OTHER } else { ID })
    }

    fn offered(&self) -> Vec<Mode> {
        let (troubles, size) = { (self.troubles(), self.lock().size) };
        let has = |trouble| troubles.contains(&trouble);
        let size = if has(CameraTrouble::Odd) { ODD_SIZE } else { size };
        let code = match form(&troubles) {
            Form::Rgb => RGB,
            Form::Pairs(_) => PAIRS,
            Form::File => FILE,
        };
        let size = if has(CameraTrouble::Large) { LARGE_SIZE } else { size };
        let mut offered = vec![Mode { code, size, interval: Some(FAST) }];
        if has(CameraTrouble::SlowRaw) {
            offered.insert(0, Mode { code: PAIRS, size: SLOW_SIZE, interval: Some(SLOW) });
        }
        offered
    }
}

impl std::fmt::Debug for SimulatedCamera {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedCamera").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Bus for SimulatedCamera {
    fn paths(&self, place: Place) -> Vec<PathBuf> {
        let Some(name) = self.connected() else { return Vec::new() };
        match place {
            Place::Kind => vec![place.folder().join(name)],
            Place::Plug => Vec::new(),
            Place::Number => vec![place.folder().join("video0")],
        }
    }

    fn node_at(&self, path: &Path) -> Option<NodeId> {
        let known = Place::ALL.iter().any(|place| self.paths(*place).iter().any(|known| known == path));
        // One number for each of the two cameras, as they are two devices.
        known.then(|| NodeId(u64::from(self.connected() == Some(OTHER))))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Node>> {
        let id = self.node_at(path).ok_or_else(|| errno(libc::ENOENT))?;
        if self.suffers(|trouble| trouble == CameraTrouble::Gone) {
            return Err(errno(libc::ENODEV));
        }
        if self.suffers(|trouble| trouble == CameraTrouble::Busy(BusyAt::Opening)) {
            return Err(errno(libc::EBUSY));
        }
        Ok(Box::new(Opened { handle: Handle::new(self.clone())?, id, agreed: None }))
    }
}

/// One open node; counts its opening and its end.
struct Handle {
    camera: SimulatedCamera,
    _descriptor: OwnedFd,
}

impl Handle {
    fn new(camera: SimulatedCamera) -> io::Result<Self> {
        let descriptor = memfd_create(HANDLE, MemfdFlags::CLOEXEC)?;
        camera.lock().counts.opens += 1;
        (camera.shared.listener)(CameraEvent::Opened);
        Ok(Self { camera, _descriptor: descriptor })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.camera.lock().counts.closes += 1;
        (self.camera.shared.listener)(CameraEvent::Closed);
    }
}

struct Opened {
    handle: Handle,
    id: NodeId,
    agreed: Option<Agreed>,
}

impl Node for Opened {
    fn id(&self) -> NodeId {
        self.id
    }

    fn about(&self) -> io::Result<About> {
        let metadata = self.handle.camera.suffers(|trouble| trouble == CameraTrouble::MetadataOnly);
        let capabilities = if metadata { METADATA } else { CAPTURES | STREAMS };
        Ok(About { capabilities, card: "Simulated camera".to_owned() })
    }

    fn formats(&self) -> io::Result<Vec<[u8; 4]>> {
        Ok(self.handle.camera.offered().iter().map(|mode| mode.code).collect())
    }

    fn sizes(&self, code: [u8; 4]) -> io::Result<Vec<Sizes>> {
        let offered = self.handle.camera.offered();
        Ok(offered.iter().filter(|mode| mode.code == code).map(|mode| Sizes::One(mode.size)).collect())
    }

    fn interval(&self, code: [u8; 4], size: Size) -> Option<Duration> {
        let offered = self.handle.camera.offered();
        offered.iter().find(|mode| (mode.code, mode.size) == (code, size))?.interval
    }

    fn set(&mut self, mode: Mode) -> io::Result<Agreed> {
        let camera = &self.handle.camera;
        if camera.suffers(|trouble| trouble == CameraTrouble::Busy(BusyAt::Mode)) {
            return Err(errno(libc::EBUSY));
        }
        let offered = camera.offered();
        let taken = offered.iter().find(|known| (known.code, known.size) == (mode.code, mode.size));
        let Mode { code, size, .. } = *taken.or(offered.first()).ok_or_else(|| errno(libc::EINVAL))?;
        let stride = match form(&camera.troubles()) {
            Form::Pairs(padding) => size.width.next_multiple_of(2) * 2 + u32::try_from(padding).unwrap_or(0),
            Form::Rgb | Form::File => 0,
        };
        let agreed = Agreed { code, size, stride, colours: Said::default() };
        self.agreed = Some(agreed);
        Ok(agreed)
    }

    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>> {
        let busy = |trouble| matches!(trouble, CameraTrouble::Busy(BusyAt::Buffers | BusyAt::Start));
        if self.handle.camera.suffers(busy) {
            return Err(errno(libc::EBUSY));
        }
        let agreed = self.agreed.ok_or_else(|| errno(libc::EINVAL))?;
        Ok(Box::new(Running::new(self.handle, agreed)))
    }
}
