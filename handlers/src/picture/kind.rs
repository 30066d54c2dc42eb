//! What a file is, by its first bytes.

/// The picture types a screen takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageType {
    /// `image/jpeg`
    Jpeg,
    /// `image/png`
    Png,
}

impl ImageType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::Jpeg, Self::Png];

    /// Its name on the wire.
    pub const fn as_mime(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
        }
    }
}

/// How many bytes may stand before the first tag of a text file.
const TEXT_HEAD: usize = 256;

/// What the first bytes say that a file is, in the words of a media type where there is one.
pub(super) fn real_type(bytes: &[u8]) -> &'static str {
    let head = String::from_utf8_lossy(bytes.get(..TEXT_HEAD).unwrap_or(bytes)).to_ascii_lowercase();
    let head = head.trim_start_matches('\u{feff}').trim_start();
    match bytes {
        [0xFF, 0xD8, 0xFF, ..] => ImageType::Jpeg.as_mime(),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => ImageType::Png.as_mime(),
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        [b'B', b'M', ..] => "image/bmp",
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f', ..] => "image/avif",
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i', b'c' | b'x', ..] => "image/heic",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "image/tiff",
        _ if head.starts_with("<svg") || (head.starts_with("<?xml") && head.contains("<svg")) => "image/svg+xml",
        _ if head.starts_with("<!doctype html") || head.starts_with("<html") => "text/html",
        _ => "of no known picture type",
    }
}
