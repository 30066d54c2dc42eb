//! An open Video4Linux device: what it says of itself, how it is set, and the buffers that it fills, mapped into this process.
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

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode as Access, OFlags};
use v4l::buffer::Type;
use v4l::frameinterval::FrameIntervalEnum;
use v4l::framesize::FrameSizeEnum;
use v4l::memory::Memory;
use v4l::v4l_sys::{
    v4l2_buffer, v4l2_capability, v4l2_fmtdesc, v4l2_format, v4l2_format__bindgen_ty_1, v4l2_fract, v4l2_frmivalenum,
    v4l2_frmsizeenum, v4l2_pix_format, v4l2_requestbuffers, v4l2_streamparm, v4l2_streamparm__bindgen_ty_1,
};
use v4l::v4l2::{self, vidioc};

use super::bus::{About, Agreed, Feed, Mode, Node, NodeId, Size, Sizes, Taken};

/// Enough for a driver that fills one while we copy another and two wait.
const BUFFERS: u32 = 4;
/// A driver that gives more than asked is taken at its word up to here.
const BUFFERS_MAX: u32 = 32;
/// A list that goes on for longer than this is a broken driver's.
const LIST_MAX: u32 = 256;
/// `V4L2_BUF_FLAG_ERROR`: filled, but damaged.
const FLAG_ERROR: u32 = 0x40;
/// `V4L2_CAP_DEVICE_CAPS`: the driver tells the node's own capabilities apart from its own.
const TELLS_NODES_APART: u32 = 0x8000_0000;
/// `V4L2_FIELD_NONE`: whole pictures, not every other row.
const WHOLE_PICTURES: u32 = 1;
/// After a descriptor that polls as ready and has nothing: keeps a confused driver from taking a whole core.
const NOT_YET_PAUSE: Duration = Duration::from_millis(10);
/// The kernel counts the time from frame to frame in fractions of a second; these are microseconds.
const PER_SECOND: u32 = 1_000_000;

/// An open device.
pub(super) struct Device {
    handle: OwnedFd,
    id: NodeId,
}

impl Device {
    /// Opens it; no program that this one starts inherits it, from the first moment on.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let handle = rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Access::empty())?;
        let id = NodeId(rustix::fs::fstat(&handle)?.st_rdev);
        Ok(Self { handle, id })
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

    fn set_pace(&self, interval: Duration) {
        let Ok(numerator) = u32::try_from(interval.as_micros()) else { return };
        // SAFETY: plain numbers, for which zero is a value.
        let mut pace: v4l2_streamparm = unsafe { zeroed() };
        pace.type_ = Type::VideoCapture as u32;
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
        // SAFETY: plain numbers and bytes, for which zero is a value.
        let mut found: v4l2_capability = unsafe { zeroed() };
        self.ask(vidioc::VIDIOC_QUERYCAP, &mut found)?;
        let apart = found.capabilities & TELLS_NODES_APART != 0;
        let card: Vec<u8> = found.card.iter().copied().take_while(|byte| *byte != 0).collect();
        Ok(About {
            capabilities: if apart { found.device_caps } else { found.capabilities },
            card: String::from_utf8_lossy(&card).into_owned(),
        })
    }

    fn formats(&self) -> io::Result<Vec<[u8; 4]>> {
        let entry = |index| {
            // SAFETY: plain numbers and bytes, for which zero is a value.
            let zero: v4l2_fmtdesc = unsafe { zeroed() };
            v4l2_fmtdesc { index, type_: Type::VideoCapture as u32, ..zero }
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
        // SAFETY: plain numbers and a union of them, for which zero is a value.
        let zero: v4l2_pix_format = unsafe { zeroed() };
        let Size { width, height } = mode.size;
        let pixelformat = u32::from_le_bytes(mode.code);
        let pix = v4l2_pix_format { width, height, pixelformat, field: WHOLE_PICTURES, ..zero };
        let mut format = v4l2_format { type_: Type::VideoCapture as u32, fmt: v4l2_format__bindgen_ty_1 { pix } };
        self.ask(vidioc::VIDIOC_S_FMT, &mut format)?;
        // SAFETY: `pix` was written above, and the kernel answers in the member that belongs to the type.
        let agreed = unsafe { format.fmt.pix };
        if let Some(interval) = mode.interval {
            self.set_pace(interval);
        }
        Ok(Agreed {
            code: agreed.pixelformat.to_le_bytes(),
            size: Size { width: agreed.width, height: agreed.height },
            stride: agreed.bytesperline,
        })
    }

    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>> {
        Ok(Box::new(Ring::start(*self)?))
    }
}

/// A stretch of memory shared with the driver.
struct Mapped {
    start: *mut u8,
    length: usize,
}

/// Frames as they come. The device closes when this is dropped.
struct Ring {
    buffers: Vec<Mapped>,
    // Declared after the buffers and closed in `drop` order: unmapped first, then closed.
    device: Device,
}

fn buffer(index: u32) -> v4l2_buffer {
    // SAFETY: plain numbers and unions of numbers and pointers, for which zero is a value.
    let zero: v4l2_buffer = unsafe { zeroed() };
    v4l2_buffer { index, type_: Type::VideoCapture as u32, memory: Memory::Mmap as u32, ..zero }
}

fn request(count: u32) -> v4l2_requestbuffers {
    // SAFETY: plain numbers, for which zero is a value.
    let zero: v4l2_requestbuffers = unsafe { zeroed() };
    v4l2_requestbuffers { count, type_: Type::VideoCapture as u32, memory: Memory::Mmap as u32, ..zero }
}

impl Ring {
    /// Maps the device's buffers, hands them all to the driver and starts it.
    fn start(device: Device) -> io::Result<Self> {
        let mut ring = Self { buffers: Vec::new(), device };
        let mut asked = request(BUFFERS);
        ring.device.ask(vidioc::VIDIOC_REQBUFS, &mut asked)?;
        if asked.count == 0 || asked.count > BUFFERS_MAX {
            return Err(io::Error::other(format!("it offers {} buffers", asked.count)));
        }
        for index in 0..asked.count {
            ring.map(index)?;
        }
        for index in 0..asked.count {
            ring.device.ask(vidioc::VIDIOC_QBUF, &mut buffer(index))?;
        }
        let mut kind = Type::VideoCapture as u32;
        ring.device.ask(vidioc::VIDIOC_STREAMON, &mut kind)?;
        Ok(ring)
    }

    fn map(&mut self, index: u32) -> io::Result<()> {
        let mut described = buffer(index);
        self.device.ask(vidioc::VIDIOC_QUERYBUF, &mut described)?;
        let length = usize::try_from(described.length).unwrap_or(0);
        // SAFETY: for mapped memory the kernel fills in `offset` of the union.
        let offset = unsafe { described.m.offset };
        let offset = libc::off_t::from(offset);
        // SAFETY: a fresh mapping at an address of the kernel's choice, of the length and offset that it gave for this buffer.
        let start = unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            v4l2::mmap(std::ptr::null_mut(), length, access, flags, self.device.handle.as_raw_fd(), offset)?
        };
        self.buffers.push(Mapped { start: start.cast(), length });
        Ok(())
    }
}

impl Feed for Ring {
    fn wait(&self, wait: Duration) -> io::Result<bool> {
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut asked = [PollFd::new(&self.device.handle, PollFlags::IN)];
        match poll(&mut asked, Some(&wait)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies the frame and gives its buffer back to the driver.
    fn take(&mut self) -> io::Result<Option<Taken>> {
        let mut filled = buffer(0);
        match self.device.ask(vidioc::VIDIOC_DQBUF, &mut filled) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::park_timeout(NOT_YET_PAUSE);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let mapped = usize::try_from(filled.index).ok().and_then(|index| self.buffers.get(index));
        let Some(mapped) = mapped else {
            return Err(io::Error::other(format!("it gave buffer {}, which does not exist", filled.index)));
        };
        let used = usize::try_from(filled.bytesused).unwrap_or(usize::MAX).min(mapped.length);
        // SAFETY: the mapping lives as long as `self`, `used` does not reach past it, and the driver does not write to a buffer between
        // its dequeuing above and its queuing below.
        let bytes = unsafe { std::slice::from_raw_parts(mapped.start, used) }.to_vec();
        let damaged = filled.flags & FLAG_ERROR != 0;
        self.device.ask(vidioc::VIDIOC_QBUF, &mut buffer(filled.index))?;
        Ok(Some(Taken { bytes, damaged }))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut kind = Type::VideoCapture as u32;
        // A device that was pulled out refuses all of this; closing it, which follows, gives everything back.
        let _ = self.device.ask(vidioc::VIDIOC_STREAMOFF, &mut kind);
        for mapped in self.buffers.drain(..) {
            // SAFETY: mapped by `map` with this length, and no slice of it outlives `take`.
            let _ = unsafe { v4l2::munmap(mapped.start.cast(), mapped.length) };
        }
        let _ = self.device.ask(vidioc::VIDIOC_REQBUFS, &mut request(0));
    }
}
