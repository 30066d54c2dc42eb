//! JPEG files: the tables that some cameras leave out, whether one is whole, its pixels, and new ones of a bounded size.

use std::borrow::Cow;
use std::panic::catch_unwind;

use jpeg_encoder::{ColorType, Encoder};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::scale::shrink;
use super::scan::complete;
use super::tables::standard_tables;
use super::walk::{CUT_OFF, DHT, EOI, SOF2, SOS, Walk};
use super::{PIXELS_MAX, going_on, within_pixels};

/// The longest side, which every decoder and encoder here can count.
const SIDE_MAX: usize = 16_384;

/// The qualities tried, in turn, until a picture fits its limit. Below the last one, a smaller picture shows more.
const QUALITIES: [u8; 4] = [85, 70, 55, 40];
/// Of pictures that were decoded only to be turned: little is lost beyond what they had lost before.
const FINE_QUALITY: u8 = 92;
/// A picture smaller than this is not made smaller to fit a limit.
const SIDE_MIN: u32 = 16;

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

/// The frame as a file that any decoder opens: bytes after its end are dropped, and the standard Huffman tables, which a camera may
/// leave out of its frames, are put back before the scan. A file that needs neither comes back as it is. A progressive one is refused: cameras send
/// none, and it takes several times the time and memory.
pub(crate) fn whole(frame: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let (mut scan, mut tables) = (None, false);
    for segment in Walk::new(frame)? {
        let segment = segment?;
        match segment.marker {
            SOF2 => return Err("it is progressive JPEG, which is not taken from a camera".to_owned()),
            DHT => tables |= scan.is_none(),
            SOS => scan = scan.or(Some(segment.start)),
            EOI => {
                let file = frame.get(..segment.end).unwrap_or(frame);
                let (head, rest) = file.split_at_checked(scan.ok_or("it has no picture in it")?).ok_or(CUT_OFF)?;
                if tables {
                    return Ok(Cow::Borrowed(file));
                }
                return Ok(Cow::Owned([head, &standard_tables(), rest].concat()));
            }
            _ => {}
        }
    }
    Err(CUT_OFF.to_owned())
}

/// The file without its Huffman tables, as many cameras send it.
pub(crate) fn without_tables(file: &[u8]) -> Vec<u8> {
    let mut bare = file.get(..2).unwrap_or_default().to_vec();
    for segment in Walk::new(file).into_iter().flatten().flatten().filter(|segment| segment.marker != DHT) {
        bare.extend_from_slice(file.get(segment.start..segment.end).unwrap_or_default());
    }
    bare
}

/// Decodes the whole file, and says what is wrong with it if anything is. Ends early when it is not `wanted` any more.
pub(crate) fn look_while(file: &[u8], wanted: &dyn Fn() -> bool) -> Result<Seen, String> {
    let headers = complete(file, wanted)?;
    headers.decodable()?;
    going_on(wanted)?;
    let colours = if headers.is_plain() { ColorSpace::Luma } else { ColorSpace::RGB };
    let (levels, width, height) = decode(file, colours)?;
    let sum: u64 = levels.iter().map(|level| u64::from(*level)).sum();
    let mean = sum / u64::try_from(levels.len().max(1)).unwrap_or(u64::MAX);
    Ok(Seen { width, height, mean: u8::try_from(mean).unwrap_or(u8::MAX) })
}

/// The same for as long as it takes.
#[cfg(any(test, fuzzing))]
pub(crate) fn look(file: &[u8]) -> Result<Seen, String> {
    look_while(file, &|| true)
}

/// The file's pixels as RGB; of a file that was found complete and decodable.
pub(crate) fn to_rgb(file: &[u8]) -> Result<(Vec<u8>, u32, u32), String> {
    decode(file, ColorSpace::RGB)
}

fn decode(file: &[u8], colours: ColorSpace) -> Result<(Vec<u8>, u32, u32), String> {
    // The decoder indexes where it should ask; one file must not end the thread that looks at it.
    catch_unwind(|| decode_once(file, colours))
        .unwrap_or_else(|_| Err("it does not decode: the decoder failed".to_owned()))
}

fn decode_once(file: &[u8], colours: ColorSpace) -> Result<(Vec<u8>, u32, u32), String> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(SIDE_MAX)
        .set_max_height(SIDE_MAX)
        .jpeg_set_out_colorspace(colours);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(|error| format!("it does not decode: {error}"))?;
    let info = decoder.info().ok_or("it does not say its size")?;
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    within_pixels(width, height, PIXELS_MAX)?;
    let pixels = decoder.decode().map_err(|error| format!("it does not decode: {error}"))?;
    Ok((pixels, width, height))
}

/// A JPEG file of at most `bytes_max` bytes from RGB pixels without padding: first with less quality, then at half the size. Ends early when it
/// is not `wanted` any more.
pub(crate) fn encode_while(
    mut rgb: Vec<u8>,
    (mut width, mut height): (u32, u32),
    bytes_max: usize,
    wanted: &dyn Fn() -> bool,
) -> Result<Vec<u8>, String> {
    loop {
        for quality in QUALITIES {
            going_on(wanted)?;
            let file = encode_once(&rgb, width, height, quality)?;
            if file.len() <= bytes_max {
                return Ok(file);
            }
        }
        if width < 2 * SIDE_MIN || height < 2 * SIDE_MIN {
            return Err(format!("it does not fit into {bytes_max} bytes"));
        }
        going_on(wanted)?;
        let half = (width / 2, height / 2);
        rgb = shrink(&rgb, (width, height), half);
        (width, height) = half;
    }
}

/// The same for as long as it takes.
pub(crate) fn encode(rgb: Vec<u8>, width: u32, height: u32, bytes_max: usize) -> Result<Vec<u8>, String> {
    encode_while(rgb, (width, height), bytes_max, &|| true)
}

/// A JPEG file that loses little of RGB pixels without padding.
pub(crate) fn encode_finely(rgb: &[u8], width: u32, height: u32) -> Result<Vec<u8>, String> {
    encode_once(rgb, width, height, FINE_QUALITY)
}

fn encode_once(rgb: &[u8], width: u32, height: u32, quality: u8) -> Result<Vec<u8>, String> {
    let side = |side: u32| u16::try_from(side).map_err(|_| format!("a side of {side} pixels is too long"));
    let mut file = Vec::new();
    Encoder::new(&mut file, quality)
        .encode(rgb, side(width)?, side(height)?, ColorType::Rgb)
        .map_err(|error| format!("it could not be encoded: {error}"))?;
    Ok(file)
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

    #[test]
    fn missing_huffman_tables_are_put_back_and_present_ones_left_alone() {
        let file = file(64, 48);
        assert_eq!(whole(&file).unwrap().as_ref(), file, "a file with tables comes out unchanged");
        let bare = without_tables(&file);
        assert!(bare.len() < file.len() && look(&bare).is_err());
        let mended = whole(&bare).unwrap();
        assert_eq!(to_rgb(&mended).unwrap(), to_rgb(&file).unwrap(), "pixel for pixel");
        assert_eq!(look(&mended).unwrap(), look(&file).unwrap());
    }

    #[test]
    fn a_progressive_frame_is_refused_before_it_is_decoded_and_the_same_picture_as_baseline_is_taken() {
        let of = |progressive| {
            let mut file = Vec::new();
            let mut encoder = Encoder::new(&mut file, 80);
            encoder.set_progressive(progressive);
            encoder.encode(&picture(64, 48), 64, 48, ColorType::Rgb).unwrap();
            file
        };
        assert_eq!(whole(&of(true)).unwrap_err(), "it is progressive JPEG, which is not taken from a camera");
        look(&of(true)).unwrap();
        whole(&of(false)).unwrap();
    }

    /// How often it is asked whether the work is wanted, and what comes of it when the answer changes after so many times.
    fn asked<T>(yes: u32, work: impl Fn(&dyn Fn() -> bool) -> Result<T, String>) -> (u32, Result<T, String>) {
        let count = std::cell::Cell::new(0);
        let outcome = work(&|| {
            count.set(count.get() + 1);
            count.get() <= yes
        });
        (count.get(), outcome)
    }

    #[test]
    fn looking_and_encoding_end_at_the_next_step_when_they_are_not_wanted_any_more() {
        let file = file(64, 48);
        let look = |wanted: &dyn Fn() -> bool| look_while(&file, wanted).map(|_| Vec::new());
        // No quality of the whole size is so small.
        let quarter = encode(picture(32, 24), 32, 24, usize::MAX).unwrap().len();
        let encode = |wanted: &dyn Fn() -> bool| encode_while(picture(64, 48), (64, 48), quarter, wanted);
        for work in [&look as &dyn Fn(&dyn Fn() -> bool) -> Result<Vec<u8>, String>, &encode] {
            let (steps, outcome) = asked(u32::MAX, work);
            assert!(outcome.is_ok() && steps > 2, "{steps}");
            for yes in 0..steps {
                assert_eq!(asked(yes, work), (yes + 1, Err("it takes too long".to_owned())));
            }
        }
    }

    #[test]
    fn what_a_camera_leaves_behind_the_end_is_dropped_even_when_it_has_an_end_of_its_own() {
        let file = file(64, 48);
        for behind in [vec![0; 512], file[file.len() / 2..].to_vec(), file.clone()] {
            assert_eq!(whole(&[file.clone(), behind].concat()).unwrap().as_ref(), file);
        }
    }

    #[test]
    fn a_file_cut_off_anywhere_is_refused() {
        let file = file(96, 64);
        look(&file).unwrap();
        for part in 1..20 {
            let cut = &file[..file.len() * part / 20];
            assert!(look(cut).is_err(), "cut at {part} of 20");
        }
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
    fn too_many_pixels_are_refused_by_the_header_alone() {
        let mut file = file(64, 48);
        let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        file[frame + 5..frame + 9].copy_from_slice(&[0x3F, 0xFF, 0x3F, 0xFF]);
        let refused = look(&file).unwrap_err();
        assert_eq!(refused, "16383 x 16383 is more than 16777216 pixels");
    }
}
