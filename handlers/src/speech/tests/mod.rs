//! Speech engines that do what engines do, and a speaker over hardware that counts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod engine;
mod speaker;

use super::wav::tests::format_chunk;

/// A file with this much of a tone in it, whose header does not know how much that is.
fn wav(seconds: usize) -> Vec<u8> {
    const RATE_HZ: u32 = 8_000;
    let samples = (0..8_000 * seconds).flat_map(|at| if at % 20 < 10 { [0, 0x20] } else { [0, 0xE0] });
    let head =
        [b"RIFF\x24\xF0\xFF\x7FWAVE".as_slice(), &format_chunk(1, 1, RATE_HZ, 16), b"data\0\xF0\xFF\x7F"].concat();
    head.into_iter().chain(samples).collect()
}
