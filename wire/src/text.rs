//! Words and text forms (section 1): each a newtype with one fallible constructor.
//!
//! Owns: the alphabets, lengths and shapes of every word on the wire, and how foreign text is shown to people.
//! Called by: everything that reads or writes a message. Refuses: every second spelling of a value (upper-case hex, padding
//! where none belongs, set trailing bits, white space). Nothing here has a life time.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::de::{self, Deserializer, Visitor};

/// Longest AMP address: what a mail address may have.
const AGENT_BYTES_MAX: usize = 254;
/// Longest name before the `@`, and longest label behind it: what DNS allows a label.
const LABEL_BYTES_MAX: usize = 63;
/// Fewest labels behind the `@`: scope, and a provider of two labels.
const LABELS_MIN: usize = 3;
/// Longest part of a capability name: it stands on screens and in file names.
const PART_BYTES_MAX: usize = 32;

/// What is wrong with a text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Not 48 hex digits in lower case.
    #[error("not 48 lower-case hex digits")]
    Hex48,
    /// Not 64 hex digits in lower case.
    #[error("not 64 lower-case hex digits")]
    Hex64,
    /// Base64url with padding, foreign characters, white space or set trailing bits.
    #[error("not base64url without padding (RFC 4648 section 5, no white space, unused bits zero)")]
    Base64Url,
    /// Standard base64 without its padding, or with foreign characters, white space or set trailing bits.
    #[error("not standard base64 (RFC 4648 section 4, padded, no white space, no data: prefix, unused bits zero)")]
    Base64,
    /// The text decodes to another number of bytes than its form has.
    #[error("decodes to {got} bytes where {want} belong")]
    Length {
        /// Bytes that belong here.
        want: usize,
        /// Bytes that were there.
        got: usize,
    },
    /// Not a full AMP address.
    #[error("not a full agent address in lower case, like name@scope.provider.org")]
    Agent,
    /// Not a capability name.
    #[error("not a capability name, like camera.snapshot or custom.acme.lamp")]
    CapabilityName,
    /// Neither a grant nor a capability name.
    #[error("not a grant, like camera, display.text or custom.acme.lamp")]
    GrantName,
    /// Not six digits.
    #[error("not a claim code, like 482 913")]
    ClaimCode,
    /// Not one of the words this place knows.
    #[error("not one of the words that belong here")]
    Word,
}

/// Serde for a type that is a JSON string: written by `Display`, read by `FromStr`.
macro_rules! serde_as_text {
    ($name:ty) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::text::read_text(deserializer)
            }
        }
    };
}
pub(crate) use serde_as_text;

/// Reads a JSON string through `FromStr`.
pub(crate) fn read_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    struct Text<T>(PhantomData<T>);

    impl<T> Visitor<'_> for Text<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(PhantomData))
}

/// Lower-case hex digits of `bytes`.
pub(crate) fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Several ids are written for each request, so in one piece, and not each byte by the machinery of format strings.
    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    let text: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    f.write_str(&text)
}

/// Exactly `N` bytes from lower-case hex; `None` for anything else.
pub(crate) fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    fn digit(byte: u8) -> Option<u8> {
        match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        }
    }
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// The three kinds of 24 random bytes, kept apart by type.
macro_rules! hex48 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 24]);

        impl $name {
            /// From the bytes themselves; any 24 bytes are valid.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 24]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 24] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = TextError;

            fn from_str(text: &str) -> Result<Self, TextError> {
                read_hex(text).map(Self).ok_or(TextError::Hex48)
            }
        }

        serde_as_text!($name);
    };
}

hex48! {
    /// The `id` of a request, drawn by its controller: 48 lower-case hex digits.
    Id
}
hex48! {
    /// What a device hands out and takes back once: 48 lower-case hex digits, opaque to controllers.
    Challenge
}
hex48! {
    /// The salt of a claim code, drawn by the device after the claim came: 48 lower-case hex digits.
    Salt
}
hex48! {
    /// What a device wants to see again in a `welcome`: 48 lower-case hex digits.
    Nonce
}

/// A newtype over a checked string.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        serde_as_text!($name);
    };
}

word! {
    /// A full AMP address in lower case, `name@scope.provider`, at most 254 bytes.
    Agent
}
word! {
    /// `area.verb` or `custom.OWNER.ACTION`.
    CapabilityName
}
word! {
    /// What the keeper turns on: `camera`, `microphone`, or a capability's own name.
    GrantName
}

impl FromStr for Agent {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let label = |label: &str, underscore: bool| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-') || underscore && b == b'_')
        };
        let (name, domain) = text.split_once('@').ok_or(TextError::Agent)?;
        let labels = domain.split('.').count();
        let good = text.len() <= AGENT_BYTES_MAX
            && label(name, true)
            && labels >= LABELS_MIN
            && domain.split('.').all(|part| label(part, false));
        if good { Ok(Self(text.to_owned())) } else { Err(TextError::Agent) }
    }
}

impl CapabilityName {
    /// Whether it is `custom.OWNER.ACTION`.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.0.starts_with("custom.")
    }

    /// The grant that stands before it: `camera` for `camera.snapshot`, `microphone` for `microphone.listen`, else its own name.
    #[must_use]
    pub fn grant(&self) -> GrantName {
        GrantName(match self.as_str() {
            "camera.snapshot" => "camera".to_owned(),
            "microphone.listen" => "microphone".to_owned(),
            own => own.to_owned(),
        })
    }
}

impl FromStr for CapabilityName {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let part = |part: &str| {
            part.len() <= PART_BYTES_MAX
                && part.starts_with(|c: char| c.is_ascii_lowercase())
                && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
        };
        let parts = text.split('.').count();
        let shape = if text.starts_with("custom.") { parts == 3 } else { parts == 2 };
        if shape && text.split('.').all(part) { Ok(Self(text.to_owned())) } else { Err(TextError::CapabilityName) }
    }
}

impl FromStr for GrantName {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if matches!(text, "camera" | "microphone") {
            return Ok(Self(text.to_owned()));
        }
        text.parse().map(|name: CapabilityName| name.grant()).map_err(|_| TextError::GrantName)
    }
}

/// Base64url without padding.
#[must_use]
pub fn base64url_encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Strict base64url: no padding, no white space, unused trailing bits zero.
///
/// # Errors
/// [`TextError::Base64Url`] for any other spelling.
pub fn base64url_decode(text: &str) -> Result<Vec<u8>, TextError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TextError::Base64Url)
}

/// Strict base64url of exactly `N` bytes.
pub(crate) fn base64url_array<const N: usize>(text: &str) -> Result<[u8; N], TextError> {
    let mut bytes = [0; N];
    match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
        Ok(got) if got == N => Ok(bytes),
        Ok(got) => Err(TextError::Length { want: N, got }),
        Err(base64::DecodeSliceError::OutputSliceTooSmall) => {
            base64url_decode(text).and_then(|longer| Err(TextError::Length { want: N, got: longer.len() }))
        }
        Err(base64::DecodeSliceError::DecodeError(_)) => Err(TextError::Base64Url),
    }
}

/// Strict base64url into the tail of `buffer`, without a copy in between.
pub(crate) fn base64url_append(text: &str, buffer: &mut Vec<u8>) -> Result<(), TextError> {
    URL_SAFE_NO_PAD.decode_vec(text, buffer).map_err(|_| TextError::Base64Url)
}

/// Standard base64 with padding.
#[must_use]
pub fn base64_encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Strict standard base64: padding required, no white space, unused trailing bits zero.
///
/// # Errors
/// [`TextError::Base64`] for any other spelling.
pub fn base64_decode(text: &str) -> Result<Vec<u8>, TextError> {
    STANDARD.decode(text).map_err(|_| TextError::Base64)
}

/// Foreign text for a terminal or a log: what could move the cursor, hide or reorder text (controls, DEL, C1, bidi marks,
/// separators of lines, the byte order mark) stands there as `\u{..}`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let hides = c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if hides { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// [`visible`], cut to `bytes_max` bytes at a character.
pub(crate) fn visible_cut(text: &str, bytes_max: usize) -> String {
    let mut shown = visible(cut(text, bytes_max));
    shown.truncate(cut(&shown, bytes_max).len());
    shown
}

/// The longest prefix of at most `bytes_max` bytes that ends at a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}
