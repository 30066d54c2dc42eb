//! PNG files: only the chunks that make the still picture, and whether all of it is there.
//!
//! Text, profiles, EXIF and animation are cut out by their names before anything is decoded, so nothing in them is ever unpacked, here or by what
//! shows the picture.

use std::io::Cursor;

use png::{BitDepth, ColorType, Compression, Decoder, DecodingError, Encoder, Limits, Transformations};

use super::upright::Orientation;
use super::walk::CUT_OFF;
use super::{PIXELS_MAX, REMADE_PIXELS_MAX, going_on, within_pixels};

const SIGNATURE: usize = 8;
/// What the decoder may take for rows and palettes; pixels that need no change are read row by row and not kept.
const ROWS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Chunks that say how the pixels look. The rest can be left out of any picture.
const KEPT: [&[u8; 4]; 11] =
    [b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD", b"pHYs"];

/// A still picture, upright and of at most 8 bits a channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Still {
    pub(super) bytes: Vec<u8>,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// The still picture in a PNG file, checked to its last row. A file without anything to leave out or change comes back as it is.
pub(super) fn still(file: &[u8], wanted: &dyn Fn() -> bool) -> Result<Still, String> {
    let (bytes, orientation) = bare(file)?;
    let mut reader = decoder(&bytes).read_info().map_err(|error| said(&error))?;
    let info = reader.info();
    let (width, height) = (info.width, info.height);
    if info.bit_depth == BitDepth::Sixteen || orientation != Orientation::UPRIGHT {
        within_pixels(width, height, REMADE_PIXELS_MAX)?;
        return remade(&bytes, orientation, wanted);
    }
    while reader.next_interlaced_row().map_err(|error| said(&error))?.is_some() {
        going_on(wanted)?;
    }
    reader.finish().map_err(|error| said(&error))?;
    Ok(Still { bytes, width, height })
}

fn said(error: &DecodingError) -> String {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => CUT_OFF.to_owned(),
        error => format!("it does not decode: {error}"),
    }
}

fn decoder(file: &[u8]) -> Decoder<Cursor<&[u8]>> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), Limits { bytes: ROWS_BYTES_MAX });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder
}

/// The file with the kept chunks alone, and which way up its EXIF chunk says it is. Its size is held against the limit here.
fn bare(file: &[u8]) -> Result<(Vec<u8>, Orientation), String> {
    let mut bare = file.get(..SIGNATURE).ok_or(CUT_OFF)?.to_vec();
    let mut orientation = Orientation::UPRIGHT;
    let mut rest = file.get(SIGNATURE..).unwrap_or_default();
    loop {
        let length = u32::from_be_bytes(*rest.first_chunk().ok_or(CUT_OFF)?);
        let kind: &[u8; 4] = rest.get(4..).and_then(<[u8]>::first_chunk).ok_or(CUT_OFF)?;
        let size = usize::try_from(length).unwrap_or(usize::MAX).checked_add(12).ok_or(CUT_OFF)?;
        let (chunk, behind) = rest.split_at_checked(size).ok_or(CUT_OFF)?;
        let data = chunk.get(8..chunk.len() - 4).unwrap_or_default();
        rest = behind;
        if KEPT.contains(&kind) {
            bare.extend_from_slice(chunk);
        } else if kind.first().is_some_and(u8::is_ascii_uppercase) {
            return Err(format!("it needs a chunk that is not known here ({})", kind.escape_ascii()));
        } else if kind == b"eXIf" {
            orientation = Orientation::of(data);
        }
        if kind == b"IHDR"
            && let Some([w1, w2, w3, w4, h1, h2, h3, h4]) = data.first_chunk::<8>()
        {
            within_pixels(
                u32::from_be_bytes([*w1, *w2, *w3, *w4]),
                u32::from_be_bytes([*h1, *h2, *h3, *h4]),
                PIXELS_MAX,
            )?;
        }
        if kind == b"IEND" {
            break;
        }
    }
    if rest.is_empty() { Ok((bare, orientation)) } else { Err("something follows its end".to_owned()) }
}

/// Decoded, turned upright, and encoded anew with 8 bits a channel.
fn remade(file: &[u8], orientation: Orientation, wanted: &dyn Fn() -> bool) -> Result<Still, String> {
    let mut decoder = decoder(file);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(|error| said(&error))?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or("it is too large")?];
    let frame = reader.next_frame(&mut pixels).map_err(|error| said(&error))?;
    reader.finish().map_err(|error| said(&error))?;
    pixels.truncate(frame.buffer_size());
    going_on(wanted)?;
    let channels = frame.color_type.samples();
    let (pixels, width, height) = orientation.turn(&pixels, frame.width, frame.height, channels);
    going_on(wanted)?;
    let bytes = encode(&pixels, width, height, frame.color_type)?;
    Ok(Still { bytes, width, height })
}

fn encode(pixels: &[u8], width: u32, height: u32, colours: ColorType) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(colours);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map_err(|error| format!("it could not be encoded anew: {error}"))?;
    Ok(bytes)
}
