//! Looks at a picture as a person would who glances at its middle.

use anyhow::{Context, Result, ensure};
use zune_jpeg::{JpegDecoder, zune_core::bytestream::ZCursor};

/// The mean colour of the middle quarter of a JPEG picture.
pub(crate) fn middle(jpeg: &[u8]) -> Result<[u8; 3]> {
    let mut decoder = JpegDecoder::new(ZCursor::new(jpeg));
    let pixels = decoder.decode().context("the picture does not decode")?;
    let (width, height) = decoder.dimensions().context("a picture without a size")?;
    ensure!(pixels.len() == width * height * 3, "the picture is not in three colours");
    let (mut sums, mut count) = ([0_u64; 3], 0_u64);
    for row in pixels.chunks_exact(width * 3).skip(height / 4).take(height / 2) {
        for pixel in row.chunks_exact(3).skip(width / 4).take(width / 2) {
            for (sum, channel) in sums.iter_mut().zip(pixel) {
                *sum += u64::from(*channel);
            }
            count += 1;
        }
    }
    ensure!(count > 0, "the picture has no middle");
    Ok(sums.map(|sum| u8::try_from(sum / count).unwrap_or(u8::MAX)))
}
