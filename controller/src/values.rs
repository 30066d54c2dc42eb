//! The shapes of values that section 6 fixes, checked before a value counts (section 11).
//!
//! Called after the signature holds, with what the device said. A picture is handed on only if it is what its `mime` says.

use wire::envelope::MEDIA_BYTES_MAX;
use wire::json::Object;
use wire::text::CapabilityName;

/// What every JPEG file begins with.
const JPEG_MAGIC: &[u8] = &[0xff, 0xd8, 0xff];
/// What every PNG file begins with.
const PNG_MAGIC: &[u8] = &[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];

/// The capability that takes a picture.
pub const SNAPSHOT: &str = "camera.snapshot";
/// The capability that listens.
pub const LISTEN: &str = "microphone.listen";

/// Why a value does not fit its capability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Another media type than the capability gives, or none.
    #[error("the device answered `mime` {got} where {want} is due")]
    Mime {
        /// What came.
        got: String,
        /// What the capability gives.
        want: &'static str,
    },
    /// No `data`, or not in standard base64.
    #[error("the `data` that the device answered is not standard base64")]
    Base64,
    /// More than media may have.
    #[error("the `data` that the device answered has {0} bytes, more than {MEDIA_BYTES_MAX}")]
    TooLarge(usize),
    /// The bytes are no such file.
    #[error("the `data` that the device answered is not {0}")]
    Magic(&'static str),
    /// An `activate` answered with another lease.
    #[error("the device answered another lease than the one asked for")]
    Lease,
}

/// A picture or a sound that fits.
#[derive(Clone, PartialEq, Eq)]
pub struct Media {
    /// Its media type.
    pub mime: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
}

/// Size only: what was captured is nobody's business in a log.
impl std::fmt::Debug for Media {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Media({}, {} bytes)", self.mime, self.bytes.len())
    }
}

/// Holds `value` against what section 6 says of `capability`; gives the media it carries, if any. Unknown members are
/// ignored (section 5).
///
/// # Errors
///
/// [`ValueError`].
pub fn check(capability: &CapabilityName, value: &Object) -> Result<Option<Media>, ValueError> {
    match capability.as_str() {
        SNAPSHOT => media(value, "image/jpeg", |bytes| bytes.starts_with(JPEG_MAGIC)).map(Some),
        LISTEN => media(value, "audio/wav", is_wav).map(Some),
        _no_fixed_shape => Ok(None),
    }
}

fn media(value: &Object, want: &'static str, magic: impl Fn(&[u8]) -> bool) -> Result<Media, ValueError> {
    let text = |name| value.get(name).and_then(serde_json::Value::as_str);
    match text("mime") {
        Some(mime) if mime == want => {}
        other => return Err(ValueError::Mime { got: wire::text::visible(other.unwrap_or("nothing")), want }),
    }
    let bytes = wire::text::base64_decode(text("data").ok_or(ValueError::Base64)?).map_err(|_| ValueError::Base64)?;
    if bytes.len() > MEDIA_BYTES_MAX {
        return Err(ValueError::TooLarge(bytes.len()));
    }
    if !magic(&bytes) {
        return Err(ValueError::Magic(want));
    }
    Ok(Media { mime: want, bytes })
}

fn is_wav(bytes: &[u8]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WAVE")
}

/// The media type of a picture that a display takes, by its first bytes.
#[must_use]
pub fn picture_mime(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(JPEG_MAGIC) {
        Some("image/jpeg")
    } else if bytes.starts_with(PNG_MAGIC) {
        Some("image/png")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
