//! The buffers that a Video4Linux device fills, mapped into this process, over the handle that the `v4l` crate opens.
//!
//! The crate's own stream is not used: after a time-out it queues a buffer that the kernel still owns, it cannot be asked again after
//! "not yet", and its drop panics, twice if the device fails twice, which ends the process. This one waits in slices, takes "not yet" for
//! an answer, and gives everything back without a panic. Called by the Video4Linux adapter in the capture thread; ends with its drop.
#![allow(unsafe_code, reason = "ioctls and mapped buffers have no safe interface; each block says what it relies on")]

use std::io;
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use v4l::buffer::Type;
use v4l::device::Device;
use v4l::memory::Memory;
use v4l::v4l_sys::{v4l2_buffer, v4l2_capability, v4l2_requestbuffers};
use v4l::v4l2::{self, vidioc};

/// Enough for a driver that fills one while we copy another and two wait.
const BUFFERS: u32 = 4;
/// A driver that gives more than asked is taken at its word up to here.
const BUFFERS_MAX: u32 = 32;
/// `V4L2_BUF_FLAG_ERROR`: filled, but damaged.
const FLAG_ERROR: u32 = 0x40;
/// After a descriptor that polls as ready and has nothing: keeps a confused driver from taking a whole core.
const NOT_YET_PAUSE: Duration = Duration::from_millis(10);

/// Keeps the device from being inherited by programs that this one starts, which `v4l` leaves to its caller.
pub(super) fn close_on_exec(device: &Device) -> io::Result<()> {
    let handle = device.handle();
    // SAFETY: the handle keeps the descriptor open for as long as `handle` lives, which is past the call.
    let fd = unsafe { BorrowedFd::borrow_raw(handle.fd()) };
    fcntl_setfd(fd, FdFlags::CLOEXEC).map_err(io::Error::from)
}

/// What this node of the device can do (`V4L2_CAP_…`). The crate's own question panics on names that are not UTF-8.
pub(super) fn node_capabilities(device: &Device) -> io::Result<u32> {
    // SAFETY: plain numbers and bytes, for which zero is a value.
    let mut found: v4l2_capability = unsafe { zeroed() };
    ask(device, vidioc::VIDIOC_QUERYCAP, &mut found)?;
    Ok(found.device_caps)
}

/// One ioctl that reads and writes `argument`.
fn ask<T>(device: &Device, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
    // SAFETY: the callers here pair each request with the structure that the kernel's interface defines for it, and the pointer is to a
    // live, exclusive value of that structure.
    unsafe { v4l2::ioctl(device.handle().fd(), request, std::ptr::from_mut(argument).cast()) }
}

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

/// What one buffer held.
pub(super) struct Taken {
    pub(super) bytes: Vec<u8>,
    pub(super) damaged: bool,
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
    pub(super) fn start(device: Device) -> io::Result<Self> {
        let mut ring = Self { buffers: Vec::new(), device };
        let mut asked = request(BUFFERS);
        ask(&ring.device, vidioc::VIDIOC_REQBUFS, &mut asked)?;
        if asked.count == 0 || asked.count > BUFFERS_MAX {
            return Err(io::Error::other(format!("it offers {} buffers", asked.count)));
        }
        for index in 0..asked.count {
            ring.map(index)?;
        }
        for index in 0..asked.count {
            ask(&ring.device, vidioc::VIDIOC_QBUF, &mut buffer(index))?;
        }
        let mut kind = Type::VideoCapture as u32;
        ask(&ring.device, vidioc::VIDIOC_STREAMON, &mut kind)?;
        Ok(ring)
    }

    fn map(&mut self, index: u32) -> io::Result<()> {
        let mut described = buffer(index);
        ask(&self.device, vidioc::VIDIOC_QUERYBUF, &mut described)?;
        let length = usize::try_from(described.length).unwrap_or(0);
        // SAFETY: for mapped memory the kernel fills in `offset` of the union.
        let offset = unsafe { described.m.offset };
        let offset = libc::off_t::from(offset);
        // SAFETY: a fresh mapping at an address of the kernel's choice, of the length and offset that it gave for this buffer.
        let start = unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            v4l2::mmap(std::ptr::null_mut(), length, access, flags, self.device.handle().fd(), offset)?
        };
        self.buffers.push(Mapped { start: start.cast(), length });
        Ok(())
    }

    /// Waits until a frame, or an error, can be taken; `false` when neither came within `wait`.
    pub(super) fn wait(&self, wait: Duration) -> io::Result<bool> {
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        match self.device.handle().poll(libc::POLLIN, wait_ms) {
            Ok(ready) => Ok(ready > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes a frame out and gives its buffer back to the driver; `None` when there is none yet.
    pub(super) fn take(&mut self) -> io::Result<Option<Taken>> {
        let mut filled = buffer(0);
        match ask(&self.device, vidioc::VIDIOC_DQBUF, &mut filled) {
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
        ask(&self.device, vidioc::VIDIOC_QBUF, &mut buffer(filled.index))?;
        Ok(Some(Taken { bytes, damaged }))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut kind = Type::VideoCapture as u32;
        // A device that was pulled out refuses all of this; closing it, which follows, gives everything back.
        let _ = ask(&self.device, vidioc::VIDIOC_STREAMOFF, &mut kind);
        for mapped in self.buffers.drain(..) {
            // SAFETY: mapped by `map` with this length, and no slice of it outlives `take`.
            let _ = unsafe { v4l2::munmap(mapped.start.cast(), mapped.length) };
        }
        let _ = ask(&self.device, vidioc::VIDIOC_REQBUFS, &mut request(0));
    }
}
