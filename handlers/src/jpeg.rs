//! JPEG files: whether one is whole, the tables that some cameras leave out, and new ones of a bounded size.
//!
//! Called by the camera for its frames and by the display for what it is given. Refuses files that are cut off, that decode with any
//! error, or that claim more pixels than [`PIXELS_MAX`]; nothing is decoded before its header was held against that.

use std::borrow::Cow;

use jpeg_encoder::{ColorType, Encoder};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The most pixels a picture may have: a 4,608 x 3,456 camera's, decoded within 16 MiB of brightness.
pub(crate) const PIXELS_MAX: u64 = 16 * 1024 * 1024;
/// The longest side, which every decoder and encoder here can count.
const SIDE_MAX: usize = 16_384;

/// The qualities tried, in turn, until a picture fits its limit. Below the last one, a smaller picture shows more.
const QUALITIES: [u8; 4] = [85, 70, 55, 40];
/// A picture smaller than this is not made smaller to fit a limit.
const SIDE_MIN: u32 = 16;

const SOI: u8 = 0xD8;
const EOI: u8 = 0xD9;
const SOS: u8 = 0xDA;
const DHT: u8 = 0xC4;

/// What a whole JPEG file is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Pixels across.
    pub(crate) width: u32,
    /// Pixels down.
    pub(crate) height: u32,
    /// Mean brightness, 0 to 255.
    pub(crate) mean: u8,
}

/// Where a JPEG file's parts lie.
struct Layout {
    /// Offset of the first start-of-scan marker.
    scan: usize,
    /// Whether Huffman tables stand before it.
    tables: bool,
    /// Offset just past the end marker.
    end: usize,
}

/// Walks the segments up to the scan and finds the end marker after it.
fn layout(file: &[u8]) -> Result<Layout, &'static str> {
    if !file.starts_with(&[0xFF, SOI]) {
        return Err("it does not begin as a JPEG file");
    }
    let mut at = 2;
    let mut tables = false;
    loop {
        let [0xFF, marker] = *file.get(at..).and_then(<[u8]>::first_chunk::<2>).ok_or(CUT_OFF)? else {
            return Err("its segments are damaged");
        };
        match marker {
            // Padding before a marker.
            0xFF => at += 1,
            SOS => break,
            EOI => return Err("it has no picture in it"),
            _ => {
                tables |= marker == DHT;
                let length = file.get(at + 2..).and_then(<[u8]>::first_chunk::<2>).ok_or(CUT_OFF)?;
                at += 2 + usize::from(u16::from_be_bytes(*length)).max(2);
            }
        }
    }
    let coded = file.get(at..).unwrap_or_default();
    // The last end marker: a whole file may hold several scans and, in its comments, anything.
    let end = coded.windows(2).rposition(|pair| pair == [0xFF, EOI]).ok_or(CUT_OFF)?;
    Ok(Layout { scan: at, tables, end: at + end + 2 })
}

const CUT_OFF: &str = "it is cut off";

/// The frame as a file that any decoder opens: bytes after its end are dropped, and the standard Huffman tables, which a camera may
/// leave out of its frames, are put back before the scan. A file that needs neither comes back as it is.
pub(crate) fn whole(frame: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let layout = layout(frame)?;
    let file = frame.get(..layout.end).unwrap_or(frame);
    if layout.tables {
        return Ok(Cow::Borrowed(file));
    }
    let (head, scan) = file.split_at_checked(layout.scan).ok_or(CUT_OFF)?;
    Ok(Cow::Owned([head, &standard_tables(), scan].concat()))
}

/// Decodes the whole file, and says what is wrong with it if anything is.
pub(crate) fn look(file: &[u8]) -> Result<Seen, String> {
    let layout = layout(file)?;
    if layout.end != file.len() && file.get(layout.end..).unwrap_or_default().iter().any(|byte| *byte != 0) {
        return Err("something follows its end".to_owned());
    }
    let (brightness, width, height) = decode(file, ColorSpace::Luma)?;
    let sum: u64 = brightness.iter().map(|level| u64::from(*level)).sum();
    let mean = sum / u64::try_from(brightness.len().max(1)).unwrap_or(u64::MAX);
    Ok(Seen { width, height, mean: u8::try_from(mean).unwrap_or(u8::MAX) })
}

/// The file's pixels as RGB.
pub(crate) fn to_rgb(file: &[u8]) -> Result<(Vec<u8>, u32, u32), String> {
    decode(file, ColorSpace::RGB)
}

fn decode(file: &[u8], colours: ColorSpace) -> Result<(Vec<u8>, u32, u32), String> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(SIDE_MAX)
        .set_max_height(SIDE_MAX)
        .jpeg_set_out_colorspace(colours);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(|error| format!("it does not decode: {error}"))?;
    let info = decoder.info().ok_or("it does not say its size")?;
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    within_pixels(width, height)?;
    let pixels = decoder.decode().map_err(|error| format!("it does not decode: {error}"))?;
    Ok((pixels, width, height))
}

/// Refuses what would take too much memory to show.
pub(crate) fn within_pixels(width: u32, height: u32) -> Result<(), String> {
    let pixels = u64::from(width) * u64::from(height);
    match pixels {
        0 => Err(format!("it has no pixels ({width} x {height})")),
        1..=PIXELS_MAX => Ok(()),
        _ => Err(format!("{width} x {height} is more than {PIXELS_MAX} pixels")),
    }
}

/// A JPEG file of at most `bytes_max` bytes from RGB pixels without padding: first with less quality, then at half the size.
pub(crate) fn encode(mut rgb: Vec<u8>, mut width: u32, mut height: u32, bytes_max: usize) -> Result<Vec<u8>, String> {
    loop {
        for quality in QUALITIES {
            let file = encode_once(&rgb, width, height, quality)?;
            if file.len() <= bytes_max {
                return Ok(file);
            }
        }
        if width < 2 * SIDE_MIN || height < 2 * SIDE_MIN {
            return Err(format!("it does not fit into {bytes_max} bytes"));
        }
        (rgb, width, height) = halved(&rgb, width, height);
    }
}

fn encode_once(rgb: &[u8], width: u32, height: u32, quality: u8) -> Result<Vec<u8>, String> {
    let side = |side: u32| u16::try_from(side).map_err(|_| format!("a side of {side} pixels is too long"));
    let mut file = Vec::new();
    Encoder::new(&mut file, quality)
        .encode(rgb, side(width)?, side(height)?, ColorType::Rgb)
        .map_err(|error| format!("it could not be encoded: {error}"))?;
    Ok(file)
}

/// Each pixel the mean of four; an odd last row or column is dropped.
fn halved(rgb: &[u8], width: u32, height: u32) -> (Vec<u8>, u32, u32) {
    let row_bytes = usize::try_from(width).unwrap_or(0) * 3;
    let (wide, high) = (width / 2, height / 2);
    let mut small = Vec::with_capacity(rgb.len() / 4);
    for rows in rgb.chunks_exact(row_bytes * 2) {
        let (above, below) = rows.split_at(row_bytes);
        for (top, bottom) in above.chunks_exact(6).zip(below.chunks_exact(6)) {
            let ([r1, g1, b1, r2, g2, b2], [r3, g3, b3, r4, g4, b4]) = (top, bottom) else { continue };
            small.extend([[r1, r2, r3, r4], [g1, g2, g3, g4], [b1, b2, b3, b4]].map(mean_of_four));
        }
    }
    (small, wide, high)
}

fn mean_of_four(levels: [&u8; 4]) -> u8 {
    let sum: u16 = levels.iter().map(|level| u16::from(**level)).sum();
    u8::try_from(sum / 4).unwrap_or(u8::MAX)
}

/// One Huffman table of ITU-T T.81, annex K.3: how many codes have 1 to 16 bits, then what they stand for.
struct Table {
    /// Class (0 DC, 1 AC) in the high four bits, number in the low four.
    id: u8,
    lengths: [u8; 16],
    values: &'static [u8],
}

/// The four tables that a Motion JPEG frame means when it has none.
const STANDARD: [Table; 4] = [
    Table { id: 0x00, lengths: [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], values: &DC_VALUES },
    Table { id: 0x10, lengths: [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D], values: &AC_LUMA_VALUES },
    Table { id: 0x01, lengths: [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], values: &DC_VALUES },
    Table { id: 0x11, lengths: [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77], values: &AC_CHROMA_VALUES },
];

const DC_VALUES: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

const AC_LUMA_VALUES: [u8; 162] = [
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14,
    0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09,
    0x0A, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A,
    0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65,
    0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88,
    0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9,
    0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA,
    0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA,
    0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
];

const AC_CHROMA_VALUES: [u8; 162] = [
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32,
    0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16,
    0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39,
    0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64,
    0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83, 0x84, 0x85, 0x86,
    0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7,
    0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8,
    0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9,
    0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
];

/// The four standard tables as one segment.
fn standard_tables() -> Vec<u8> {
    let mut tables = Vec::new();
    for table in &STANDARD {
        tables.push(table.id);
        tables.extend(table.lengths);
        tables.extend(table.values);
    }
    let length = u16::try_from(tables.len() + 2).unwrap_or(u16::MAX);
    let mut segment = vec![0xFF, DHT];
    segment.extend(length.to_be_bytes());
    segment.append(&mut tables);
    segment
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    /// A picture with detail in it.
    pub(crate) fn picture(width: u32, height: u32) -> Vec<u8> {
        let mut rgb = Vec::new();
        for y in 0..height {
            for x in 0..width {
                rgb.extend(
                    [x * 255 / width, y * 255 / height, (x * y) % 251].map(|level| u8::try_from(level).unwrap()),
                );
            }
        }
        rgb
    }

    pub(crate) fn file(width: u32, height: u32) -> Vec<u8> {
        encode(picture(width, height), width, height, usize::MAX).unwrap()
    }

    /// The file without its Huffman tables, as many cameras send it.
    pub(crate) fn bare(file: &[u8]) -> Vec<u8> {
        let mut bare = file[..2].to_vec();
        let mut at = 2;
        while file[at + 1] != SOS {
            let next = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
            if file[at + 1] != DHT {
                bare.extend(&file[at..next]);
            }
            at = next;
        }
        bare.extend(&file[at..]);
        bare
    }

    #[test]
    fn missing_huffman_tables_are_put_back_and_present_ones_left_alone() {
        let file = file(64, 48);
        assert_eq!(whole(&file).unwrap().as_ref(), file, "a file with tables comes out unchanged");
        let bare = bare(&file);
        assert!(bare.len() < file.len() && look(&bare).is_err());
        let mended = whole(&bare).unwrap();
        assert_eq!(to_rgb(&mended).unwrap(), to_rgb(&file).unwrap(), "pixel for pixel");
        assert_eq!(look(&mended).unwrap(), look(&file).unwrap());
    }

    #[test]
    fn padding_after_the_end_is_dropped() {
        let file = file(64, 48);
        let mut padded = file.clone();
        padded.extend([0; 512]);
        assert_eq!(whole(&padded).unwrap().as_ref(), file);
    }

    #[test]
    fn a_file_cut_off_anywhere_or_with_something_behind_its_end_is_refused() {
        let file = file(96, 64);
        look(&file).unwrap();
        for part in 1..20 {
            let cut = &file[..file.len() * part / 20];
            assert!(look(cut).is_err(), "cut at {part} of 20");
        }
        assert!(look(&[&file[..], b"GIF89a"].concat()).is_err());
    }

    #[test]
    fn brightness_is_seen() {
        for level in [0_u8, 90, 255] {
            let grey = encode(vec![level; 32 * 32 * 3], 32, 32, usize::MAX).unwrap();
            assert!(look(&grey).unwrap().mean.abs_diff(level) <= 1);
        }
    }

    #[test]
    fn a_picture_gets_less_quality_and_then_half_the_size_until_it_fits() {
        let noise: Vec<u8> =
            (0..256 * 256 * 3_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        let full = encode(noise.clone(), 256, 256, usize::MAX).unwrap();
        for bytes_max in [full.len(), full.len() / 2, full.len() / 20] {
            let file = encode(noise.clone(), 256, 256, bytes_max).unwrap();
            assert!(file.len() <= bytes_max);
            let seen = look(&file).unwrap();
            assert_eq!(seen.width == 256, bytes_max > full.len() / 20, "{bytes_max}: {seen:?}");
        }
        assert!(encode(noise, 256, 256, 100).is_err());
    }

    #[test]
    fn halving_takes_means_and_drops_odd_edges() {
        let (small, width, height) =
            halved(&[[0, 4, 8], [4, 8, 12], [9; 3], [8, 12, 16], [12, 16, 20], [9; 3]].concat(), 3, 2);
        assert_eq!((small.as_slice(), width, height), (&[6, 10, 14][..], 1, 1));
    }

    #[test]
    fn too_many_pixels_are_refused_by_the_header_alone() {
        let mut file = file(64, 48);
        let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        file[frame + 5..frame + 9].copy_from_slice(&[0x3F, 0xFF, 0x3F, 0xFF]);
        let refused = look(&file).unwrap_err();
        assert_eq!(refused, "16383 x 16383 is more than 16777216 pixels");
    }
}
