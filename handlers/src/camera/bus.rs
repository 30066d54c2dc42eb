//! The cameras of a system as the adapter sees them: names, nodes, and what can be asked of a node.
//!
//! Video4Linux stands behind it on a real device, [`super::SimulatedCamera`] on a simulated one; so what the adapter makes of names, capabilities,
//! modes and errors is the same code in both. Errors are the system's own numbers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::colour::Said;
use super::frame::PixelFormat;

/// A device's number, which names what a path leads to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u64);

/// Where a system lists cameras, those with lasting names first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// By what they are.
    Kind,
    /// By where they are plugged in; one camera may have several such names.
    Plug,
    /// By the number that they were given at this start.
    Number,
}

impl Place {
    pub(super) const ALL: [Self; 3] = [Self::Kind, Self::Plug, Self::Number];

    /// The folder.
    pub(super) fn folder(self) -> &'static Path {
        Path::new(match self {
            Self::Kind => "/dev/v4l/by-id",
            Self::Plug => "/dev/v4l/by-path",
            Self::Number => "/dev",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Size {
    pub(super) const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }
}

/// A way in which a node sends pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    /// The system's code of the format.
    pub(super) code: [u8; 4],
    pub(super) size: Size,
    /// The shortest time from frame to frame, where the node says one.
    pub(super) interval: Option<Duration>,
}

/// What a node really agreed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) code: [u8; 4],
    pub(super) size: Size,
    /// Bytes from row to row; 0 where there are no rows.
    pub(super) stride: u32,
    /// What the node says of its colours.
    pub(super) colours: Said,
}

/// Sizes that a node offers for one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    One(Size),
    /// From the first to the second in steps of the third.
    Range(Size, Size, Size),
}

/// What a node says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// `V4L2_CAP_…` of this node alone; the driver as a whole always lists more.
    pub(super) capabilities: u32,
    /// What its maker called it.
    pub(super) card: String,
}

/// What one buffer held.
pub(super) struct Taken {
    pub(super) bytes: Vec<u8>,
    pub(super) damaged: bool,
}

/// All cameras.
pub(super) trait Bus: Send + Sync + 'static {
    /// The paths in one place, in a lasting order.
    fn paths(&self, place: Place) -> Vec<PathBuf>;
    /// What a path leads to now, if anything.
    fn node_at(&self, path: &Path) -> Option<NodeId>;
    /// Opens what a path leads to; no child inherits it.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Node>>;
}

/// An open node; dropping it closes it.
pub(super) trait Node {
    fn id(&self) -> NodeId;
    fn about(&self) -> io::Result<About>;
    fn formats(&self) -> io::Result<Vec<[u8; 4]>>;
    fn sizes(&self, code: [u8; 4]) -> io::Result<Vec<Sizes>>;
    /// The shortest time from frame to frame; `None` where the node does not say.
    fn interval(&self, code: [u8; 4], size: Size) -> Option<Duration>;
    /// Sets format, size and, where it can, pace. The node may agree to something else.
    fn set(&mut self, mode: Mode) -> io::Result<Agreed>;
    /// Asks for buffers and starts the stream.
    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>>;
}

/// A node that streams; dropping it stops and closes it.
pub(super) trait Feed {
    /// Waits until a frame, or an error, can be taken; `false` when neither came within `wait`.
    fn wait(&self, wait: Duration) -> io::Result<bool>;
    /// The frame; `None` when there is none yet after all.
    fn take(&mut self) -> io::Result<Option<Taken>>;
}

/// `V4L2_CAP_VIDEO_CAPTURE`: captures pictures, each in one piece.
pub(super) const CAPTURES: u32 = 0x0000_0001;
/// `V4L2_CAP_VIDEO_CAPTURE_MPLANE`: the same by the interface for pictures in several pieces, though most come in one.
pub(super) const CAPTURES_IN_PIECES: u32 = 0x0000_1000;
/// `V4L2_CAP_STREAMING`.
pub(super) const STREAMS: u32 = 0x0400_0000;
/// `V4L2_CAP_VIDEO_OUTPUT` and `…_MPLANE`, by which older drivers of codecs say that they take pictures too.
const TAKES: u32 = 0x0000_0002 | 0x0000_2000;

impl About {
    /// Whether it captures pictures, in a stream. The second node that webcams make for metadata does not, and a codec is no camera.
    pub(super) const fn is_camera(&self) -> bool {
        let captures = self.capabilities & (CAPTURES | CAPTURES_IN_PIECES) != 0;
        captures && self.capabilities & STREAMS != 0 && self.capabilities & TAKES == 0
    }
}

impl Agreed {
    pub(super) fn format(self) -> Option<PixelFormat> {
        PixelFormat::from_code(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v3_what_captures_pictures_in_a_stream_is_a_camera_and_metadata_and_codecs_are_none() {
        const METADATA: u32 = 0x0080_0000;
        const CODEC: u32 = 0x0000_4000;
        let rows = [
            (CAPTURES | STREAMS, true),
            (CAPTURES | STREAMS | 0x0100_0000, true),
            (CAPTURES_IN_PIECES | STREAMS, true),
            (CAPTURES | CAPTURES_IN_PIECES | STREAMS, true),
            (METADATA | STREAMS, false),
            (CAPTURES, false),
            (STREAMS, false),
            (CODEC | STREAMS, false),
            (CAPTURES_IN_PIECES | TAKES | STREAMS, false),
            (0, false),
        ];
        for (capabilities, camera) in rows {
            assert_eq!(About { capabilities, card: String::new() }.is_camera(), camera, "{capabilities:#x}");
        }
    }
}
