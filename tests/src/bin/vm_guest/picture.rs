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

/// The file without its Huffman tables, as many webcams send it; nothing where it is no JPEG file.
pub(crate) fn without_tables(jpeg: &[u8]) -> Option<Vec<u8>> {
    const START: [u8; 2] = [0xff, 0xd8];
    const TABLES: u8 = 0xc4;
    const SCAN: u8 = 0xda;
    let mut rest = jpeg.strip_prefix(&START)?;
    let mut bare = START.to_vec();
    while let [0xff, marker, high, low, ..] = rest {
        let length = 2 + usize::from(u16::from_be_bytes([*high, *low]));
        let part = rest.get(..length)?;
        match *marker {
            TABLES => {}
            SCAN => {
                bare.extend(rest);
                return Some(bare);
            }
            _ => bare.extend(part),
        }
        rest = rest.get(length..)?;
    }
    None
}
