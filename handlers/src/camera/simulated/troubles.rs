//! How a simulated camera misbehaves: every fault of real cameras that people have reported, each with its word.

use crate::trouble::Trouble;

/// Where another program that holds the camera is noticed: opening a busy device succeeds on most drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyAt {
    /// At once.
    Opening,
    /// When the mode is set.
    Mode,
    /// When buffers are asked for.
    Buffers,
    /// When the stream starts.
    Start,
}

/// How a simulated camera misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraTrouble {
    /// There is none.
    Missing,
    /// Another camera is there in its place.
    Other,
    /// Only its node for metadata is there.
    MetadataOnly,
    /// Another program holds it.
    Busy(BusyAt),
    /// It is out: what runs ends, and who looks for it finds none.
    Unplugged,
    /// It is pulled out under each capture, when the first frame is asked for.
    PulledOut,
    /// It is there, and every call to it says that it is not.
    Gone,
    /// It opens and never sends a frame.
    Silent,
    /// Its first frames are black.
    DarkFirst(u32),
    /// Its first frames are green, as zeros are in most raw formats.
    GreenFirst(u32),
    /// Its first frames are marked as damaged by the driver.
    BrokenFirst(u32),
    /// Its first frames are Motion JPEG that is cut off, or does not even begin as a picture.
    CutFirst(u32),
    /// Its first raw frames are shorter than their rows need.
    ShortFirst(u32),
    /// It says "not yet" so many times before each frame.
    NotYet(u32),
    /// It sends one frame and no more.
    OneFrame,
    /// It sends Motion JPEG without Huffman tables.
    NoTables,
    /// The rows of its raw frames are longer than their pixels.
    Padded,
    /// Its pictures have an odd number of pixels across and down.
    Odd,
    /// Its biggest raw mode takes two seconds for each frame, and only Motion JPEG is fast.
    SlowRaw,
    /// It has twelve megapixels.
    Large,
    /// Its driver panics.
    Panic,
    /// Its driver hangs and hears nothing until [`super::SimulatedCamera::release`].
    Hang,
}

/// As many frames as cold cameras need to settle.
const FIRST: u32 = 5;

impl Trouble for CameraTrouble {
    const PART: &'static str = "camera";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("missing", Self::Missing, "there is no camera"),
        ("other", Self::Other, "another camera is connected in its place"),
        ("metadata-only", Self::MetadataOnly, "only its second node is there, which sends no pictures"),
        ("busy", Self::Busy(BusyAt::Start), "another program holds it, which is noticed when the stream starts"),
        ("busy-open", Self::Busy(BusyAt::Opening), "another program holds it, which is noticed when it is opened"),
        ("busy-mode", Self::Busy(BusyAt::Mode), "another program holds it, which is noticed when its mode is set"),
        (
            "busy-buffers",
            Self::Busy(BusyAt::Buffers),
            "another program holds it, which is noticed when buffers are asked for",
        ),
        ("unplug", Self::Unplugged, "it is pulled out: a running capture ends, and the next finds no camera"),
        ("pulled-out", Self::PulledOut, "it is pulled out in the middle of each capture, and back for the next"),
        ("gone", Self::Gone, "its node is there, and every call to it says that there is no such device"),
        ("silent", Self::Silent, "it opens and never sends a frame"),
        ("one-frame", Self::OneFrame, "it sends one frame and no more"),
        ("not-yet", Self::NotYet(50), "it says fifty times before each frame that there is none yet"),
        ("dark-first", Self::DarkFirst(FIRST), "its first five frames are black"),
        ("green-first", Self::GreenFirst(FIRST), "its first five frames are green"),
        ("broken-first", Self::BrokenFirst(FIRST), "its first five frames are damaged, as the driver says"),
        (
            "cut-first",
            Self::CutFirst(FIRST),
            "its first five frames are JPEG that is cut off or does not begin as a picture",
        ),
        ("short-first", Self::ShortFirst(FIRST), "its first five raw frames are shorter than their rows need"),
        ("broken", Self::BrokenFirst(u32::MAX), "every frame is damaged, as the driver says"),
        ("cut", Self::CutFirst(u32::MAX), "every frame is JPEG that is cut off or does not begin as a picture"),
        ("short", Self::ShortFirst(u32::MAX), "every raw frame is shorter than its rows need"),
        ("no-dht", Self::NoTables, "it sends JPEG frames without their Huffman tables"),
        ("padding", Self::Padded, "the rows of its raw frames are longer than their pixels"),
        ("odd", Self::Odd, "its pictures have an odd number of pixels across and down"),
        ("slow-raw", Self::SlowRaw, "its biggest raw mode takes two seconds for each frame, and only JPEG is fast"),
        ("large", Self::Large, "it has twelve megapixels"),
        ("panic", Self::Panic, "its driver crashes"),
        ("hang", Self::Hang, "its driver hangs for good"),
    ];
}

/// What a set of troubles that hold at once makes of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// R G B, as the plain simulation draws.
    Rgb,
    /// Motion JPEG.
    File,
    /// Y U Y V with so many bytes behind each row.
    Pairs(usize),
}

/// The bytes behind each row of a padded frame: what a real camera was seen to add.
const PADDING: usize = 32;

pub(super) fn form(troubles: &[CameraTrouble]) -> Form {
    let any = |of: fn(&CameraTrouble) -> bool| troubles.iter().any(of);
    if any(|trouble| {
        matches!(
            trouble,
            CameraTrouble::NoTables | CameraTrouble::CutFirst(_) | CameraTrouble::Large | CameraTrouble::SlowRaw
        )
    }) {
        Form::File
    } else if any(|trouble| matches!(trouble, CameraTrouble::Padded)) {
        Form::Pairs(PADDING)
    } else if any(|trouble| {
        matches!(trouble, CameraTrouble::Odd | CameraTrouble::ShortFirst(_) | CameraTrouble::GreenFirst(_))
    }) {
        Form::Pairs(0)
    } else {
        Form::Rgb
    }
}
