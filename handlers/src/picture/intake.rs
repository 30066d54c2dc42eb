//! Pictures from outside, on their way to a screen.
//!
//! What comes out is a JPEG or PNG file that shows upright by itself and holds nothing but the picture: no text, no EXIF, no animation. A file that is
//! so already passes byte for byte; one that is turned, has inks in place of light, or sixteen bits a channel is made anew.

use super::kind::real_type;
use super::scan::{Headers, complete};
use super::upright::Orientation;
use super::walk::{APP1, APP2, APP14, APP15, COM, EOI, Walk};
use super::{ImageType, REMADE_PIXELS_MAX, going_on, jpeg, png, within_pixels};

/// A picture that may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) kind: ImageType,
    pub(crate) bytes: Vec<u8>,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// The picture in `bytes`, if they are what they are declared to be and all of it is there. Ends early when it is not `wanted` any more.
pub(crate) fn intake(declared: ImageType, bytes: &[u8], wanted: &dyn Fn() -> bool) -> Result<Picture, String> {
    let (mime, real) = (declared.as_mime(), real_type(bytes));
    if real != mime {
        return Err(format!("declared as {mime}, but these bytes are {real}"));
    }
    let picture = match declared {
        ImageType::Jpeg => still_jpeg(bytes, wanted),
        ImageType::Png => png::still(bytes, wanted).map(|still| Picture {
            kind: declared,
            bytes: still.bytes,
            width: still.width,
            height: still.height,
        }),
    };
    picture.map_err(|reason| format!("this {mime} cannot be shown: {reason}"))
}

fn still_jpeg(file: &[u8], wanted: &dyn Fn() -> bool) -> Result<Picture, String> {
    let headers = complete(file, wanted)?;
    let (bare, orientation) = bare(file)?;
    let Headers { width, height, .. } = headers;
    if headers.is_plain() && orientation == Orientation::UPRIGHT {
        return Ok(Picture { kind: ImageType::Jpeg, bytes: bare, width, height });
    }
    within_pixels(width, height, REMADE_PIXELS_MAX)?;
    headers.decodable()?;
    going_on(wanted)?;
    let (rgb, width, height) = jpeg::to_rgb(&bare)?;
    going_on(wanted)?;
    let (rgb, width, height) = orientation.turn(&rgb, width, height, 3);
    going_on(wanted)?;
    let bytes = jpeg::encode_finely(&rgb, width, height)?;
    Ok(Picture { kind: ImageType::Jpeg, bytes, width, height })
}

/// The file without comments and application data other than a colour profile and Adobe's colour transform, and which way up its EXIF block says
/// that it is.
fn bare(file: &[u8]) -> Result<(Vec<u8>, Orientation), String> {
    let mut bare = file.get(..2).unwrap_or_default().to_vec();
    let mut orientation = None;
    let mut end = 0;
    for segment in Walk::new(file)? {
        let segment = segment?;
        let kept = match segment.marker {
            APP1 => {
                if let Some(block) = segment.payload.strip_prefix(b"Exif\0\0") {
                    orientation = orientation.or(Some(Orientation::of(block)));
                }
                false
            }
            APP2 => segment.payload.starts_with(b"ICC_PROFILE\0"),
            APP14 => true,
            COM | 0xE3..=APP15 => false,
            _ => true,
        };
        if kept {
            bare.extend_from_slice(file.get(segment.start..segment.end).unwrap_or_default());
        }
        if segment.marker == EOI {
            end = segment.end;
        }
    }
    if file.get(end..).unwrap_or_default().iter().any(|byte| *byte != 0) {
        return Err("something follows its end".to_owned());
    }
    Ok((bare, orientation.unwrap_or(Orientation::UPRIGHT)))
}
