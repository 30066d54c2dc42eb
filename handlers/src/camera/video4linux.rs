//! Cameras of the system, through Video4Linux.
//!
//! Chooses the device and its mode, and turns the system's errors into [`CameraFault`]s. A camera that was named is that camera or none.
//! Nothing stays open between captures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::v4l::device::Device;
use ::v4l::format::{FieldOrder, Format, FourCC};
use ::v4l::framesize::FrameSizeEnum;
use ::v4l::video::Capture as _;

use super::frame::{Frame, PixelFormat};
use super::ring::{Ring, close_on_exec, node_capabilities};
use super::{CameraFault, Source, Stream};

/// The size a picture is wanted at: enough to read a label across a room, small enough for the raw modes of old cameras.
const WANTED: Size = Size { width: 1280, height: 720 };
/// `V4L2_CAP_VIDEO_CAPTURE` and `V4L2_CAP_STREAMING`: what a node must have of its own. The second node that webcams make for metadata
/// has neither; the driver as a whole always lists both.
const NEEDED: u32 = 0x0000_0001 | 0x0400_0000;
/// Where the system names cameras by what they are, and by where they are plugged in.
const NAMED: [&str; 2] = ["/dev/v4l/by-id", "/dev/v4l/by-path"];

/// Which camera the keeper chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameraChoice {
    /// The first device that captures video, in the order of names by-id, then by-path, then numbers.
    First,
    /// This one and no other: a name under /dev/v4l/by-id or by-path, or a path.
    Named(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    width: u32,
    height: u32,
}

impl Size {
    const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }
}

/// A camera of the system.
pub(super) struct Video4Linux {
    choice: CameraChoice,
}

impl Video4Linux {
    pub(super) const fn new(choice: CameraChoice) -> Self {
        Self { choice }
    }
}

impl Source for Video4Linux {
    fn name(&self) -> String {
        match &self.choice {
            CameraChoice::First => "first camera of the system".to_owned(),
            CameraChoice::Named(name) => name.clone(),
        }
    }

    fn simulated(&self) -> bool {
        false
    }

    fn taken(&self) -> Arc<AtomicBool> {
        /// One for the process: the device has one camera, whichever it is.
        static TAKEN: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
        Arc::clone(&TAKEN)
    }

    fn open(&self) -> Result<Box<dyn Stream>, CameraFault> {
        let device = match &self.choice {
            CameraChoice::First => first()?,
            CameraChoice::Named(name) => named(name)?,
        };
        let mode = set_mode(&device)?;
        let ring = Ring::start(device).map_err(|error| fault("start", &error))?;
        Ok(Box::new(Running { ring, mode }))
    }
}

/// What the device really agreed to.
#[derive(Debug, Clone, Copy)]
struct Mode {
    format: PixelFormat,
    size: Size,
    stride: u32,
}

struct Running {
    ring: Ring,
    mode: Mode,
}

impl Stream for Running {
    fn next(&mut self, wait: Duration) -> Result<Option<Frame>, CameraFault> {
        if !self.ring.wait(wait).map_err(|error| fault("wait", &error))? {
            return Ok(None);
        }
        let taken = self.ring.take().map_err(|error| fault("read", &error))?;
        Ok(taken.map(|taken| Frame {
            format: self.mode.format,
            width: self.mode.size.width,
            height: self.mode.size.height,
            stride: self.mode.stride,
            bytes: taken.bytes,
            damaged: taken.damaged,
        }))
    }
}

/// What an error of the system means. Busy may come at any step after opening: from setting the mode, asking for buffers, or starting.
fn fault(step: &str, error: &io::Error) -> CameraFault {
    match error.raw_os_error() {
        Some(libc::EBUSY) => CameraFault::Busy,
        Some(libc::ENODEV | libc::ENXIO) => CameraFault::Unplugged,
        _ => CameraFault::Driver(format!("{error} (at {step})")),
    }
}

/// The camera called `name`, or why it cannot be used.
fn named(name: &str) -> Result<Device, CameraFault> {
    let missing = || CameraFault::Missing(format!("the camera {name} is not connected"));
    let path = if name.starts_with('/') {
        PathBuf::from(name)
    } else {
        let places = NAMED.map(|folder| Path::new(folder).join(name));
        places.into_iter().find(|path| path.exists()).ok_or_else(missing)?
    };
    match open(&path) {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(CameraFault::Unusable(format!("{name} is not a camera that captures video"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
        Err(error) => Err(cannot_open(&path, &error)),
    }
}

/// The first node that captures video. One that cannot be opened is passed over, and named if there is no other.
fn first() -> Result<Device, CameraFault> {
    let mut refused = None;
    for path in nodes() {
        match open(&path) {
            Ok(Some(device)) => return Ok(device),
            Ok(None) => {}
            Err(error) => refused = refused.or(Some(cannot_open(&path, &error))),
        }
    }
    Err(refused.unwrap_or_else(|| CameraFault::Missing("there is no camera on this device".to_owned())))
}

fn cannot_open(path: &Path, error: &io::Error) -> CameraFault {
    match error.kind() {
        io::ErrorKind::PermissionDenied => CameraFault::Forbidden(format!(
            "this program may not open {}; add its user to the group video",
            path.display()
        )),
        _ => fault("open", error),
    }
}

/// Opens a node; `None` when it does not capture video.
fn open(path: &Path) -> io::Result<Option<Device>> {
    let device = Device::with_path(path)?;
    close_on_exec(&device)?;
    match node_capabilities(&device) {
        Ok(found) => Ok((found & NEEDED == NEEDED).then_some(device)),
        // Not a Video4Linux node at all.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every node there may be, those with lasting names first.
fn nodes() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = NAMED.iter().flat_map(|folder| sorted(Path::new(folder), |_| true)).collect();
    found.extend(sorted(Path::new("/dev"), |name| {
        name.strip_prefix("video").is_some_and(|rest| rest.parse::<u32>().is_ok())
    }));
    found
}

/// The entries of `folder`, video2 before video10.
fn sorted(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| wanted(name)).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Sets the best mode that the device agrees to. It may answer with another size, format and row length than asked; those count.
fn set_mode(device: &Device) -> Result<Mode, CameraFault> {
    let offered: Vec<[u8; 4]> = (device.enum_formats().map_err(|error| fault("list formats", &error))?.iter())
        .map(|format| format.fourcc.repr)
        .collect();
    for code in PixelFormat::ALL.iter().flat_map(|format| format.codes()).filter(|code| offered.contains(code)) {
        let sizes = device.enum_framesizes(FourCC::new(code)).unwrap_or_default();
        let size = nearest(sizes.into_iter().filter_map(|size| fitting(&size.size)));
        let mut asked = Format::new(size.width, size.height, FourCC::new(code));
        asked.field_order = FieldOrder::Progressive;
        let got = device.set_format(&asked).map_err(|error| fault("set the mode", &error))?;
        if let Some(format) = PixelFormat::from_code(got.fourcc.repr) {
            let size = Size { width: got.width, height: got.height };
            tracing::debug!(?format, ?size, stride = got.stride, "camera mode");
            return Ok(Mode { format, size, stride: got.stride });
        }
    }
    let offered: Vec<String> = offered.iter().map(|code| String::from_utf8_lossy(code).into_owned()).collect();
    Err(CameraFault::Unusable(format!("the camera offers no known picture format, only {}", offered.join(" "))))
}

/// The size nearest to the wanted one that one entry of the device's list allows.
fn fitting(offered: &FrameSizeEnum) -> Option<Size> {
    let step = |min: u32, max: u32, step: u32, wanted: u32| {
        let steps = wanted.clamp(min, max).checked_sub(min)?.checked_div(step.max(1))?;
        min.checked_add(steps.checked_mul(step.max(1))?)
    };
    match offered {
        FrameSizeEnum::Discrete(size) => Some(Size { width: size.width, height: size.height }),
        FrameSizeEnum::Stepwise(range)
            if range.min_width <= range.max_width && range.min_height <= range.max_height =>
        {
            Some(Size {
                width: step(range.min_width, range.max_width, range.step_width, WANTED.width)?,
                height: step(range.min_height, range.max_height, range.step_height, WANTED.height)?,
            })
        }
        FrameSizeEnum::Stepwise(_) => None,
    }
}

/// The largest size that is not above the wanted one, or else the smallest there is.
fn nearest(sizes: impl Iterator<Item = Size>) -> Size {
    let (mut below, mut above): (Option<Size>, Option<Size>) = (None, None);
    for size in sizes.filter(|size| size.pixels() > 0) {
        if size.pixels() <= WANTED.pixels() {
            below = below.filter(|best| best.pixels() >= size.pixels()).or(Some(size));
        } else {
            above = above.filter(|best| best.pixels() <= size.pixels()).or(Some(size));
        }
    }
    below.or(above).unwrap_or(WANTED)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;
    use ::v4l::framesize::Stepwise;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn the_mode_is_the_largest_that_is_not_above_720p_or_else_the_smallest() {
        type Sizes<'a> = &'a [(u32, u32)];
        let rows: &[(Sizes<'_>, (u32, u32))] = &[
            (&[(320, 180), (1280, 720), (3840, 2160), (640, 480)], (1280, 720)),
            (&[(640, 480), (800, 600), (2592, 1944)], (800, 600)),
            (&[(2592, 1944), (1920, 1080)], (1920, 1080)),
            (&[(0, 0)], (1280, 720)),
            (&[], (1280, 720)),
        ];
        for (offered, wanted) in rows {
            let chosen = nearest(offered.iter().map(|(width, height)| size(*width, *height)));
            assert_eq!(chosen, size(wanted.0, wanted.1), "{offered:?}");
        }
    }

    #[test]
    fn a_range_of_sizes_is_met_on_its_steps() {
        let range = |min, max, step| {
            FrameSizeEnum::Stepwise(Stepwise {
                min_width: min,
                max_width: max,
                step_width: step,
                min_height: min,
                max_height: max,
                step_height: step,
            })
        };
        assert_eq!(fitting(&range(16, 16_384, 2)), Some(size(1280, 720)));
        assert_eq!(fitting(&range(100, 640, 7)), Some(size(639, 639)));
        assert_eq!(fitting(&range(16, 1000, 0)), Some(size(1000, 720)));
        assert_eq!(fitting(&range(2000, 4000, 1)), Some(size(2000, 2000)));
        assert_eq!(fitting(&range(10, 5, 1)), None);
    }

    #[test]
    fn busy_unplugged_and_other_errors_are_told_apart_at_every_step() {
        for step in ["set the mode", "start", "read"] {
            let errno = |code| fault(step, &io::Error::from_raw_os_error(code));
            assert_eq!(errno(libc::EBUSY), CameraFault::Busy);
            assert_eq!(errno(libc::ENODEV), CameraFault::Unplugged);
            assert!(
                matches!(errno(libc::EIO), CameraFault::Driver(reason) if reason.ends_with(&format!("(at {step})")))
            );
        }
    }

    #[test]
    fn a_named_camera_that_is_absent_or_something_else_is_refused_by_name() {
        for name in ["usb-None_Such-video-index0", "/dev/v4l/by-id/none", "/dev/video4000"] {
            let refused = named(name).err().unwrap();
            assert_eq!(refused, CameraFault::Missing(format!("the camera {name} is not connected")));
        }
        let other = named("/dev/null").err().unwrap();
        assert_eq!(other.to_string(), "/dev/null is not a camera that captures video");
    }

    #[test]
    fn nodes_are_taken_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["video10", "video2", "video0", "videodev", "vbi0"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found =
            sorted(folder.path(), |name| name.strip_prefix("video").is_some_and(|rest| rest.parse::<u32>().is_ok()));
        let names: Vec<&str> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["video0", "video2", "video10"]);
    }
}
