//! The stream of a simulated camera: its troubles are looked up for each frame, so that one that begins in the middle of a capture is noticed there.

use std::io;
use std::time::Duration;

use super::super::bus::{Agreed, Feed, Taken};
use super::draw::{Canvas, without_tables};
use super::troubles::CameraTrouble;
use super::{FILE, Handle, PAIRS, SLOW, SLOW_SIZE, errno};
use crate::clock::{Clock as _, SystemClock};

pub(super) struct Running {
    handle: Handle,
    agreed: Agreed,
    asked: u32,
    sent: u32,
    /// A file that is sent again and again, since encoding twelve megapixels takes longer than a frame may.
    again: Option<Vec<u8>>,
}

impl Running {
    pub(super) const fn new(handle: Handle, agreed: Agreed) -> Self {
        Self { handle, agreed, asked: 0, sent: 0, again: None }
    }
}

impl Feed for Running {
    fn wait(&self, wait: Duration) -> io::Result<bool> {
        let camera = &self.handle.camera;
        let mute = camera.suffers(|trouble| match trouble {
            CameraTrouble::Silent => true,
            CameraTrouble::OneFrame => self.sent > 0,
            _ => false,
        });
        if mute {
            camera.nothing(wait);
            return Ok(false);
        }
        if self.agreed.size == SLOW_SIZE && wait < SLOW {
            camera.nothing(wait);
            return Ok(false);
        }
        Ok(true)
    }

    #[expect(clippy::panic, reason = "one of the troubles is a driver that panics")]
    fn take(&mut self) -> io::Result<Option<Taken>> {
        self.asked += 1;
        let troubles = self.handle.camera.troubles();
        for trouble in &troubles {
            match trouble {
                CameraTrouble::Missing | CameraTrouble::Unplugged | CameraTrouble::PulledOut | CameraTrouble::Gone => {
                    return Err(errno(libc::ENODEV));
                }
                CameraTrouble::NotYet(times) if !self.asked.is_multiple_of(times.saturating_add(1)) => return Ok(None),
                CameraTrouble::Panic => panic!("the simulated driver was told to panic"),
                CameraTrouble::Hang => self.handle.camera.hang(),
                _ => {}
            }
        }
        Ok(Some(self.frame(&troubles)))
    }
}

impl Running {
    fn frame(&mut self, troubles: &[CameraTrouble]) -> Taken {
        let early = |count: u32| self.sent < count;
        let (mut dark, mut green, mut damaged, mut cut, mut short, mut bare) =
            (false, false, false, false, false, false);
        for trouble in troubles {
            match *trouble {
                CameraTrouble::DarkFirst(count) => dark |= early(count),
                CameraTrouble::GreenFirst(count) => green |= early(count),
                CameraTrouble::BrokenFirst(count) => damaged |= early(count),
                CameraTrouble::CutFirst(count) => cut |= early(count),
                CameraTrouble::ShortFirst(count) => short |= early(count),
                CameraTrouble::NoTables => bare = true,
                _ => {}
            }
        }
        self.sent += 1;
        let canvas = if dark { self.plain([0; 3]) } else { self.scene() };
        let mut bytes = if self.agreed.code == FILE { self.file(&canvas) } else { self.rows(&canvas) };
        if bare {
            bytes = without_tables(&bytes);
        }
        if green {
            bytes.fill(0);
        }
        if short {
            bytes.truncate(bytes.len() * 3 / 5);
        }
        if cut {
            // Now without its end, now without its beginning.
            if self.sent.is_multiple_of(2) { bytes.truncate(bytes.len() * 3 / 5) } else { drop(bytes.drain(..7)) }
        }
        Taken { bytes, damaged }
    }

    fn plain(&self, colour: [u8; 3]) -> Canvas {
        self.handle.camera.lock().counts.frames += 1;
        Canvas::plain(self.agreed.size, colour)
    }

    fn scene(&self) -> Canvas {
        let (colour, number) = {
            let mut state = self.handle.camera.lock();
            state.counts.frames += 1;
            (state.colour, state.counts.frames)
        };
        if self.again.is_some() {
            return Canvas::plain(super::Size { width: 1, height: 1 }, [0; 3]);
        }
        Canvas::scene(self.agreed.size, colour, number, SystemClock.wall_ms())
    }

    fn file(&mut self, canvas: &Canvas) -> Vec<u8> {
        if self.agreed.size != super::LARGE_SIZE {
            return canvas.to_jpeg();
        }
        self.again.get_or_insert_with(|| canvas.to_jpeg()).clone()
    }

    fn rows(&self, canvas: &Canvas) -> Vec<u8> {
        if self.agreed.code == PAIRS {
            return canvas.to_yuyv(usize::try_from(self.agreed.stride).unwrap_or(0));
        }
        canvas.rgb.clone()
    }
}
