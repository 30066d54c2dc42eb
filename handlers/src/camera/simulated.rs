//! A camera that only pretends.

/// How a simulated camera misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraTrouble {
    /// Another program holds it.
    Busy,
    /// It was pulled out.
    Unplugged,
    /// It opens and never sends a frame.
    Silent,
    /// Its first frames are dark.
    DarkFirst(u32),
    /// Its first frames are broken.
    BrokenFirst(u32),
    /// Its driver panics.
    Panic,
    /// Its driver hangs and hears nothing until [`SimulatedCamera::release`].
    Hang,
}

/// A camera that only pretends; clones share everything.
#[derive(Clone, Debug, Default)]
pub struct SimulatedCamera;

/// What a simulated camera has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CameraCounts {
    /// Times it was opened.
    pub opens: u64,
    /// Frames it gave.
    pub frames: u64,
    /// Times it was closed.
    pub closes: u64,
}

impl SimulatedCamera {
    /// A working camera that shows colour bars.
    pub fn new() -> Self {
        Self
    }

    /// From now on it shows this colour instead of bars.
    pub fn colour(&self, rgb: Option<[u8; 3]>) {
        let _ = rgb;
        todo!()
    }

    /// From now on it misbehaves like this.
    pub fn trouble(&self, trouble: Option<CameraTrouble>) {
        let _ = trouble;
        todo!()
    }

    /// Lets go of every capture that hangs.
    pub fn release(&self) {
        todo!()
    }

    /// What it has done so far.
    pub fn counts(&self) -> CameraCounts {
        todo!()
    }
}
