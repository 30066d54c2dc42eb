//! The buffers that a device fills, mapped into this process, and frames out of them.

use std::io;
use std::mem::zeroed;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use v4l::memory::Memory;
use v4l::v4l_sys::{v4l2_buffer, v4l2_plane, v4l2_requestbuffers};
use v4l::v4l2::{self, vidioc};

use super::super::bus::{Feed, Taken};
use super::{Device, Interface};

/// Enough for a driver that fills one while we copy another and two wait.
const BUFFERS: u32 = 4;
/// A driver that gives more than asked is taken at its word up to here.
const BUFFERS_MAX: u32 = 32;
/// `V4L2_BUF_FLAG_ERROR`: filled, but damaged.
const FLAG_ERROR: u32 = 0x40;
/// After a descriptor that polls as ready and has nothing: keeps a confused driver from taking a whole core.
const NOT_YET_PAUSE: Duration = Duration::from_millis(10);

/// A stretch of memory shared with the driver.
struct Mapped {
    start: *mut u8,
    length: usize,
}

/// Frames as they come. The device closes when this is dropped.
pub(super) struct Ring {
    buffers: Vec<Mapped>,
    // Declared after the buffers and closed in `drop` order: unmapped first, then closed.
    device: Device,
}

/// What the kernel says of a buffer.
struct Buffer {
    index: u32,
    flags: u32,
    /// Where it is mapped from, and how long it is.
    offset: u32,
    length: u32,
    /// Which of its bytes are the frame.
    filled: Range<u32>,
}

impl Device {
    /// One ioctl about one buffer.
    fn ask_buffer(&self, request: vidioc::_IOC_TYPE, index: u32) -> io::Result<Buffer> {
        // SAFETY: plain numbers and unions of numbers and pointers, for which zero is a value.
        let (zero, mut piece): (v4l2_buffer, v4l2_plane) = unsafe { (zeroed(), zeroed()) };
        let mut asked = v4l2_buffer { index, type_: self.interface.kind(), memory: Memory::Mmap as u32, ..zero };
        if self.interface == Interface::Pieces {
            // One piece, as was agreed; it lives until the kernel has answered.
            asked.length = 1;
            asked.m.planes = &raw mut piece;
        }
        self.ask(request, &mut asked)?;
        // SAFETY: for mapped memory the kernel fills in the offsets of the unions, of the buffer or of its piece.
        let (offset, length, filled) = match self.interface {
            Interface::Plain => (unsafe { asked.m.offset }, asked.length, 0..asked.bytesused),
            Interface::Pieces => (unsafe { piece.m.mem_offset }, piece.length, piece.data_offset..piece.bytesused),
        };
        Ok(Buffer { index: asked.index, flags: asked.flags, offset, length, filled })
    }

    fn ask_for_buffers(&self, count: u32) -> io::Result<u32> {
        // SAFETY: plain numbers, for which zero is a value.
        let zero: v4l2_requestbuffers = unsafe { zeroed() };
        let mut asked =
            v4l2_requestbuffers { count, type_: self.interface.kind(), memory: Memory::Mmap as u32, ..zero };
        self.ask(vidioc::VIDIOC_REQBUFS, &mut asked)?;
        Ok(asked.count)
    }

    fn ask_stream(&self, request: vidioc::_IOC_TYPE) -> io::Result<()> {
        self.ask(request, &mut self.interface.kind())
    }
}

impl Ring {
    /// Maps the device's buffers, hands them all to the driver and starts it.
    pub(super) fn start(device: Device) -> io::Result<Self> {
        let mut ring = Self { buffers: Vec::new(), device };
        let count = ring.device.ask_for_buffers(BUFFERS)?;
        if count == 0 || count > BUFFERS_MAX {
            return Err(io::Error::other(format!("it offers {count} buffers")));
        }
        for index in 0..count {
            ring.map(index)?;
        }
        for index in 0..count {
            ring.device.ask_buffer(vidioc::VIDIOC_QBUF, index)?;
        }
        ring.device.ask_stream(vidioc::VIDIOC_STREAMON)?;
        Ok(ring)
    }

    fn map(&mut self, index: u32) -> io::Result<()> {
        let described = self.device.ask_buffer(vidioc::VIDIOC_QUERYBUF, index)?;
        let (length, offset) = (usize::try_from(described.length).unwrap_or(0), libc::off_t::from(described.offset));
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
        let buffer = match self.device.ask_buffer(vidioc::VIDIOC_DQBUF, 0) {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::park_timeout(NOT_YET_PAUSE);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mapped = usize::try_from(buffer.index).ok().and_then(|index| self.buffers.get(index));
        let Some(mapped) = mapped else {
            return Err(io::Error::other(format!("it gave buffer {}, which does not exist", buffer.index)));
        };
        let within = |place: u32| usize::try_from(place).unwrap_or(usize::MAX).min(mapped.length);
        // SAFETY: the mapping lives as long as `self`, what is read does not reach past it, and the driver does not write to a buffer between
        // its dequeuing above and its queuing below.
        let used = unsafe { std::slice::from_raw_parts(mapped.start, within(buffer.filled.end)) };
        let bytes = used.get(within(buffer.filled.start)..).unwrap_or_default().to_vec();
        let damaged = buffer.flags & FLAG_ERROR != 0;
        self.device.ask_buffer(vidioc::VIDIOC_QBUF, buffer.index)?;
        Ok(Some(Taken { bytes, damaged }))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A device that was pulled out refuses all of this; closing it, which follows, gives everything back.
        let _ = self.device.ask_stream(vidioc::VIDIOC_STREAMOFF);
        for mapped in self.buffers.drain(..) {
            // SAFETY: mapped by `map` with this length, and no slice of it outlives `take`.
            let _ = unsafe { v4l2::munmap(mapped.start.cast(), mapped.length) };
        }
        let _ = self.device.ask_for_buffers(0);
    }
}
