//! An open Video4Linux device: what it says of itself, how it is set, and ([`ring`]) the buffers that it fills.
//!
//! The kernel has two interfaces for captures: the plain one, and one for pictures that lie in several pieces of memory, which cameras of phones'
//! and boards' chips use, most for pictures in one piece too. Both are spoken here; pictures in several pieces are refused.
//!
//! The `v4l` crate gives the kernel's structures. Its own device is not used: it opens without `O_CLOEXEC`, so a program started at that moment
//! would inherit the camera, and it panics on names that are not UTF-8. Nor is its stream: after a time-out it queues a buffer that the kernel still
//! owns, it cannot be asked again after "not yet", and its drop panics. This one waits in slices, takes "not yet" for an answer, and gives
//! everything back without a panic. Called by the Video4Linux bus in the capture thread; ends with its drop.
#![allow(unsafe_code, reason = "ioctls and mapped buffers have no safe interface; each block says what it relies on")]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode as Access, OFlags};
use v4l::buffer::Type;
use v4l::frameinterval::FrameIntervalEnum;
use v4l::framesize::FrameSizeEnum;
use v4l::v4l_sys::{
    v4l2_capability, v4l2_fmtdesc, v4l2_format, v4l2_format__bindgen_ty_1, v4l2_fract, v4l2_frmivalenum,
    v4l2_frmsizeenum, v4l2_pix_format, v4l2_pix_format_mplane, v4l2_plane_pix_format, v4l2_streamparm,
    v4l2_streamparm__bindgen_ty_1,
};
use v4l::v4l2::{self, vidioc};

use self::ring::Ring;
use super::bus::{About, Agreed, CAPTURES, Feed, Mode, Node, NodeId, Size, Sizes};
use super::colour::Said;

mod ring;

/// A list that goes on for longer than this is a broken driver's.
const LIST_MAX: u32 = 256;
/// `V4L2_CAP_DEVICE_CAPS`: the driver tells the node's own capabilities apart from its own.
const TELLS_NODES_APART: u32 = 0x8000_0000;
/// `V4L2_FIELD_NONE`: whole pictures, not every other row.
const WHOLE_PICTURES: u32 = 1;
/// The kernel counts the time from frame to frame in fractions of a second; these are microseconds.
const PER_SECOND: u32 = 1_000_000;

/// Which of the kernel's interfaces a device speaks; the plain one where it speaks both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Plain,
    /// For pictures in pieces, which are called planes.
    Pieces,
}

impl Interface {
    /// `V4L2_BUF_TYPE_VIDEO_CAPTURE`, or `…_MPLANE`.
    const fn kind(self) -> u32 {
        match self {
            Self::Plain => Type::VideoCapture as u32,
            Self::Pieces => Type::VideoCaptureMplane as u32,
        }
    }
}

/// An open device.
pub(super) struct Device {
    handle: OwnedFd,
    id: NodeId,
    interface: Interface,
}

impl Device {
    /// Opens it; no program that this one starts inherits it, from the first moment on.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let handle = rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Access::empty())?;
        let id = NodeId(rustix::fs::fstat(&handle)?.st_rdev);
        let mut device = Self { handle, id, interface: Interface::Plain };
        // What cannot say what it is will be asked again, and is no camera.
        let captures_plainly = device.capabilities().map_or(true, |(own, _)| own & CAPTURES != 0);
        if !captures_plainly {
            device.interface = Interface::Pieces;
        }
        Ok(device)
    }

    /// What this node can do, and what its maker called the device.
    fn capabilities(&self) -> io::Result<(u32, String)> {
        // SAFETY: plain numbers and bytes, for which zero is a value.
        let mut found: v4l2_capability = unsafe { zeroed() };
        self.ask(vidioc::VIDIOC_QUERYCAP, &mut found)?;
        let apart = found.capabilities & TELLS_NODES_APART != 0;
        let card: Vec<u8> = found.card.iter().copied().take_while(|byte| *byte != 0).collect();
        let own = if apart { found.device_caps } else { found.capabilities };
        Ok((own, String::from_utf8_lossy(&card).into_owned()))
    }

    /// One ioctl that reads and writes `argument`.
    fn ask<T>(&self, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
        // SAFETY: the callers here pair each request with the structure that the kernel's interface defines for it, and the pointer is to a
        // live, exclusive value of that structure.
        unsafe { v4l2::ioctl(self.handle.as_raw_fd(), request, std::ptr::from_mut(argument).cast()) }
    }

    /// Asks for entry after entry of a list, until the device has no more.
    fn each<T, V>(
        &self,
        request: vidioc::_IOC_TYPE,
        entry: impl Fn(u32) -> T,
        value: impl Fn(T) -> Option<V>,
    ) -> io::Result<Vec<V>> {
        let mut found = Vec::new();
        for index in 0..LIST_MAX {
            let mut asked = entry(index);
            match self.ask(request, &mut asked) {
                Ok(()) => found.extend(value(asked)),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                // A driver without such a list.
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn set_plain(&self, mode: Mode) -> io::Result<Agreed> {
        // SAFETY: plain numbers and a union of them, for which zero is a value.
        let zero: v4l2_pix_format = unsafe { zeroed() };
        let Size { width, height } = mode.size;
        let pixelformat = u32::from_le_bytes(mode.code);
        let pix = v4l2_pix_format { width, height, pixelformat, field: WHOLE_PICTURES, ..zero };
        let mut format = v4l2_format { type_: self.interface.kind(), fmt: v4l2_format__bindgen_ty_1 { pix } };
        self.ask(vidioc::VIDIOC_S_FMT, &mut format)?;
        // SAFETY: `pix` was written above, and the kernel answers in the member that belongs to the type.
        let agreed = unsafe { format.fmt.pix };
        Ok(Agreed {
            code: agreed.pixelformat.to_le_bytes(),
            size: Size { width: agreed.width, height: agreed.height },
            stride: agreed.bytesperline,
            colours: Said {
                colorspace: agreed.colorspace,
                // SAFETY: both members of the union are one number of 32 bits.
                ycbcr_enc: unsafe { agreed.__bindgen_anon_1.ycbcr_enc },
                quantization: agreed.quantization,
            },
        })
    }

    fn set_pieces(&self, mode: Mode) -> io::Result<Agreed> {
        // SAFETY: plain numbers and a union of them, for which zero is a value.
        let zero: v4l2_pix_format_mplane = unsafe { zeroed() };
        let Size { width, height } = mode.size;
        let pixelformat = u32::from_le_bytes(mode.code);
        let pix_mp =
            v4l2_pix_format_mplane { width, height, pixelformat, field: WHOLE_PICTURES, num_planes: 1, ..zero };
        let mut format = v4l2_format { type_: self.interface.kind(), fmt: v4l2_format__bindgen_ty_1 { pix_mp } };
        self.ask(vidioc::VIDIOC_S_FMT, &mut format)?;
        // SAFETY: as above, of the other type.
        let agreed = unsafe { format.fmt.pix_mp };
        if agreed.num_planes != 1 {
            // As if it had refused the mode: another one may come in one piece.
            let count = agreed.num_planes;
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("its pictures come in {count} pieces")));
        }
        let [v4l2_plane_pix_format { bytesperline, .. }, ..] = agreed.plane_fmt;
        Ok(Agreed {
            code: agreed.pixelformat.to_le_bytes(),
            size: Size { width: agreed.width, height: agreed.height },
            stride: bytesperline,
            colours: Said {
                colorspace: agreed.colorspace,
                // SAFETY: both members of the union are one number of 8 bits.
                ycbcr_enc: u32::from(unsafe { agreed.__bindgen_anon_1.ycbcr_enc }),
                quantization: u32::from(agreed.quantization),
            },
        })
    }

    fn set_pace(&self, interval: Duration) {
        let Ok(numerator) = u32::try_from(interval.as_micros()) else { return };
        // SAFETY: plain numbers, for which zero is a value.
        let mut pace: v4l2_streamparm = unsafe { zeroed() };
        pace.type_ = self.interface.kind();
        // SAFETY: as above.
        let mut capture = unsafe { pace.parm.capture };
        capture.timeperframe = v4l2_fract { numerator, denominator: PER_SECOND };
        pace.parm = v4l2_streamparm__bindgen_ty_1 { capture };
        // A device that keeps its own pace refuses this, and is waited for.
        let _ = self.ask(vidioc::VIDIOC_S_PARM, &mut pace);
    }
}

fn seconds(fraction: v4l::fraction::Fraction) -> Option<Duration> {
    let micros = u64::from(fraction.numerator) * 1_000_000;
    micros.checked_div(u64::from(fraction.denominator)).map(Duration::from_micros)
}

impl Node for Device {
    fn id(&self) -> NodeId {
        self.id
    }

    fn about(&self) -> io::Result<About> {
        let (capabilities, card) = self.capabilities()?;
        Ok(About { capabilities, card })
    }

    fn formats(&self) -> io::Result<Vec<[u8; 4]>> {
        let entry = |index| {
            // SAFETY: plain numbers and bytes, for which zero is a value.
            let zero: v4l2_fmtdesc = unsafe { zeroed() };
            v4l2_fmtdesc { index, type_: self.interface.kind(), ..zero }
        };
        self.each(vidioc::VIDIOC_ENUM_FMT, entry, |format| Some(format.pixelformat.to_le_bytes()))
    }

    fn sizes(&self, code: [u8; 4]) -> io::Result<Vec<Sizes>> {
        let entry = |index| {
            // SAFETY: plain numbers and a union of them, for which zero is a value.
            let zero: v4l2_frmsizeenum = unsafe { zeroed() };
            v4l2_frmsizeenum { index, pixel_format: u32::from_le_bytes(code), ..zero }
        };
        self.each(vidioc::VIDIOC_ENUM_FRAMESIZES, entry, |sizes| match FrameSizeEnum::try_from(sizes) {
            Ok(FrameSizeEnum::Discrete(size)) => Some(Sizes::One(Size { width: size.width, height: size.height })),
            Ok(FrameSizeEnum::Stepwise(range)) => Some(Sizes::Range(
                Size { width: range.min_width, height: range.min_height },
                Size { width: range.max_width, height: range.max_height },
                Size { width: range.step_width, height: range.step_height },
            )),
            Err(_) => None,
        })
    }

    fn interval(&self, code: [u8; 4], size: Size) -> Option<Duration> {
        let entry = |index| {
            // SAFETY: plain numbers and a union of them, for which zero is a value.
            let zero: v4l2_frmivalenum = unsafe { zeroed() };
            let Size { width, height } = size;
            v4l2_frmivalenum { index, pixel_format: u32::from_le_bytes(code), width, height, ..zero }
        };
        let found =
            self.each(vidioc::VIDIOC_ENUM_FRAMEINTERVALS, entry, |interval| {
                match FrameIntervalEnum::try_from(interval) {
                    Ok(FrameIntervalEnum::Discrete(interval)) => seconds(interval),
                    Ok(FrameIntervalEnum::Stepwise(range)) => seconds(range.min),
                    Err(_) => None,
                }
            });
        found.unwrap_or_default().into_iter().filter(|interval| !interval.is_zero()).min()
    }

    fn set(&mut self, mode: Mode) -> io::Result<Agreed> {
        let agreed = match self.interface {
            Interface::Plain => self.set_plain(mode)?,
            Interface::Pieces => self.set_pieces(mode)?,
        };
        if let Some(interval) = mode.interval {
            self.set_pace(interval);
        }
        Ok(agreed)
    }

    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>> {
        Ok(Box::new(Ring::start(*self)?))
    }
}
