//! The named points at which `crash_device` stops until it is killed.

use std::fmt;
use std::str::FromStr;

/// A point on the way of a call, or of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The *started* record is about to be committed.
    BeforeStarted,
    /// It is on disk; nothing has moved yet.
    AfterStarted,
    /// The in-use sign is on, the camera is not open.
    SignLit,
    /// The handler is at work and has done nothing yet.
    HandlerBegun,
    /// The handler has done what cannot be undone.
    HandlerActed,
    /// The record of the end is about to be committed.
    BeforeEnd,
    /// It is on disk.
    AfterEnd,
    /// The answer is about to be signed.
    BeforeAnswer,
    /// The record of a release is in the transaction.
    ReleaseRecorded,
    /// So is the new state.
    ReleaseState,
    /// So is the end of all stored outcomes.
    ReleaseForgotten,
    /// The release is about to be committed.
    BeforeRelease,
    /// It is on disk, and nobody in the device knows yet.
    AfterRelease,
}

/// Points of a call, in the order in which they are passed.
pub const CALL: &[Point] = &[
    Point::BeforeStarted,
    Point::AfterStarted,
    Point::SignLit,
    Point::HandlerBegun,
    Point::HandlerActed,
    Point::BeforeEnd,
    Point::AfterEnd,
    Point::BeforeAnswer,
];

/// Points of a release, likewise.
pub const RELEASE: &[Point] =
    &[Point::ReleaseRecorded, Point::ReleaseState, Point::ReleaseForgotten, Point::BeforeRelease, Point::AfterRelease];

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = CALL.iter().chain(RELEASE).find(|point| point.to_string() == name);
        found.copied().ok_or_else(|| format!("there is no point {name}"))
    }
}
