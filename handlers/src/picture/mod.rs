//! Pictures as bytes: whether a file is what it says, whole and small enough to be shown; and what a camera's pixels become.
//!
//! Pure: bytes in, bytes out, no clock and no device. Called by the camera for its frames and by the display for what it is given, and driven by
//! the fuzz targets, which take this folder alone. Refuses what is cut off, damaged, or would take more memory than its limits allow; nothing is
//! decoded before its header was held against them.

mod bits;
mod intake;
pub(crate) mod jpeg;
mod kind;
mod png;
mod scale;
mod scan;
mod tables;
mod upright;
mod walk;

pub(crate) use intake::{Picture, intake};
pub use kind::ImageType;
pub(crate) use scale::{Bound, within};

/// The most pixels a picture may have: a camera's of 4,608 x 3,456.
pub(crate) const PIXELS_MAX: u64 = 16 * 1024 * 1024;
/// The most pixels of a picture that has to be made anew before it is shown, which takes all of them in memory twice.
pub(crate) const REMADE_PIXELS_MAX: u64 = 8 * 1024 * 1024;

/// What is said of a picture whose caller stopped waiting: the work on it ends where it stands.
pub(crate) const TOO_LONG: &str = "it takes too long";

/// Refuses what would take too much memory.
pub(crate) fn within_pixels(width: u32, height: u32, pixels_max: u64) -> Result<(), String> {
    match u64::from(width) * u64::from(height) {
        0 => Err(format!("it has no pixels ({width} x {height})")),
        pixels if pixels <= pixels_max => Ok(()),
        _ => Err(format!("{width} x {height} is more than {pixels_max} pixels")),
    }
}

/// Goes on only while the picture is `wanted`; asked between steps that cannot be ended themselves.
pub(crate) fn going_on(wanted: &dyn Fn() -> bool) -> Result<(), String> {
    if wanted() { Ok(()) } else { Err(TOO_LONG.to_owned()) }
}

/// What the fuzz targets drive; the same functions run over changed files in the ordinary tests.
#[cfg(any(test, fuzzing))]
pub(crate) mod drive;

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::upright::tests::exif_block;
}
