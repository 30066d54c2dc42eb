//! Which of the modes that a camera offers is taken.
//!
//! First of all it has to deliver: the biggest raw mode of some cameras needs seconds for each frame. Then the size counts, then what the format costs.

use std::time::Duration;

use super::bus::{Mode, Node, Size, Sizes};
use super::frame::PixelFormat;

/// Four frames have to come before one counts, and a cold camera may take three seconds before its first; slower than this is too slow.
const INTERVAL_MAX: Duration = Duration::from_millis(400);
/// More modes than this are not asked for their pace: some drivers list hundreds.
const MODES_MAX: usize = 128;

/// The modes of a node in known formats, the best first. Those in `mute`, which sent nothing when they were tried, come last.
pub(super) fn ranked(
    node: &dyn Node,
    wanted: Size,
    mute: &[([u8; 4], Size)],
) -> std::io::Result<(Vec<Mode>, Vec<[u8; 4]>)> {
    let offered = node.formats()?;
    let known = PixelFormat::ALL.iter().flat_map(|format| format.codes()).filter(|code| offered.contains(code));
    let mut modes = Vec::new();
    for code in known {
        let sizes = node.sizes(*code).unwrap_or_default();
        let mut sizes: Vec<Size> = sizes.iter().filter_map(|sizes| nearest(*sizes, wanted)).collect();
        if sizes.is_empty() {
            // A driver that lists no sizes adjusts the one that it is asked for.
            sizes.push(wanted);
        }
        for size in sizes.into_iter().take(MODES_MAX.saturating_sub(modes.len())) {
            modes.push(Mode { code: *code, size, interval: node.interval(*code, size) });
        }
    }
    modes.sort_by_key(|mode| rank(*mode, wanted, mute));
    Ok((modes, offered))
}

/// The smaller the better, from left to right.
fn rank(mode: Mode, wanted: Size, mute: &[([u8; 4], Size)]) -> (bool, bool, bool, u64, usize, Duration) {
    let (pixels, enough) = (mode.size.pixels(), wanted.pixels());
    let format = PixelFormat::from_code(mode.code);
    (
        mute.contains(&(mode.code, mode.size)),
        mode.interval.is_some_and(|interval| interval > INTERVAL_MAX),
        pixels > enough,
        pixels.abs_diff(enough),
        PixelFormat::ALL.iter().position(|known| Some(*known) == format).unwrap_or(usize::MAX),
        mode.interval.unwrap_or(INTERVAL_MAX),
    )
}

/// The size nearest to the wanted one that one entry of a node's list allows.
fn nearest(offered: Sizes, wanted: Size) -> Option<Size> {
    let step = |min: u32, max: u32, step: u32, wanted: u32| {
        if min > max {
            return None;
        }
        let steps = (wanted.clamp(min, max) - min) / step.max(1);
        min.checked_add(steps.checked_mul(step.max(1))?)
    };
    let size = match offered {
        Sizes::One(size) => size,
        Sizes::Range(min, max, by) => Size {
            width: step(min.width, max.width, by.width, wanted.width)?,
            height: step(min.height, max.height, by.height, wanted.height)?,
        },
    };
    (size.pixels() > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    const WANTED: Size = size(1280, 720);

    fn mode(code: &[u8; 4], (width, height): (u32, u32), interval_ms: u64) -> Mode {
        let interval = (interval_ms > 0).then(|| Duration::from_millis(interval_ms));
        Mode { code: *code, size: size(width, height), interval }
    }

    fn best(modes: &[Mode], mute: &[([u8; 4], Size)]) -> Option<Mode> {
        modes.iter().min_by_key(|mode| rank(**mode, WANTED, mute)).copied()
    }

    #[test]
    fn the_mode_delivers_in_time_then_has_the_right_size_then_the_cheapest_format() {
        let rows = [
            // A raw mode of five megapixels that takes two seconds a frame, beside Motion JPEG.
            (vec![mode(b"YUYV", (2592, 1944), 2000), mode(b"MJPG", (1280, 720), 33)], 1),
            (vec![mode(b"YUYV", (1280, 720), 1000), mode(b"YUYV", (640, 480), 33)], 1),
            (vec![mode(b"YUYV", (1280, 720), 100), mode(b"MJPG", (1280, 720), 33)], 1),
            (vec![mode(b"YUYV", (1280, 720), 200), mode(b"MJPG", (640, 480), 33)], 0),
            (vec![mode(b"YUYV", (640, 480), 0), mode(b"YUYV", (1280, 720), 0)], 1),
            (vec![mode(b"MJPG", (3840, 2160), 33), mode(b"MJPG", (1920, 1080), 33)], 1),
            (vec![mode(b"MJPG", (1920, 1080), 33), mode(b"MJPG", (320, 180), 33)], 1),
            (vec![mode(b"MJPG", (1280, 720), 100), mode(b"JPEG", (1280, 720), 33)], 1),
            // All too slow: one of them all the same.
            (vec![mode(b"YUYV", (2592, 1944), 2000), mode(b"YUYV", (1280, 720), 500)], 1),
        ];
        for (modes, wanted) in rows {
            assert_eq!(best(&modes, &[]), modes.get(wanted).copied(), "{modes:?}");
        }
    }

    #[test]
    fn a_mode_that_sent_nothing_comes_last_the_next_time() {
        let modes = [mode(b"MJPG", (1280, 720), 33), mode(b"YUYV", (640, 480), 33)];
        assert_eq!(best(&modes, &[(*b"MJPG", size(1280, 720))]), modes.get(1).copied());
        assert_eq!(best(&modes, &[(*b"MJPG", size(1280, 720)), (*b"YUYV", size(640, 480))]), modes.first().copied());
    }

    #[test]
    fn a_range_of_sizes_is_met_on_its_steps() {
        let range = |min: u32, max: u32, step: u32| Sizes::Range(size(min, min), size(max, max), size(step, step));
        assert_eq!(nearest(range(16, 16_384, 2), WANTED), Some(size(1280, 720)));
        assert_eq!(nearest(range(100, 640, 7), WANTED), Some(size(639, 639)));
        assert_eq!(nearest(range(16, 1000, 0), WANTED), Some(size(1000, 720)));
        assert_eq!(nearest(range(2000, 4000, 1), WANTED), Some(size(2000, 2000)));
        assert_eq!(nearest(range(10, 5, 1), WANTED), None);
        assert_eq!(nearest(Sizes::One(size(0, 0)), WANTED), None);
    }
}
