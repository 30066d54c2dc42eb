//! Names in the handlers folder: which are a handler's, which are passed over, and how a foreign one is shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use wire::CapabilityName;
use wire::text::visible;

/// What a name must look like.
const RULE: &str = "a handler is named custom.MAKER.ACTION.wasm or .wat, and what you say about it custom.MAKER.ACTION.toml; MAKER and \
                    ACTION begin with a-z and have at most 32 of a-z, 0-9, _ and -";

/// Ends of names under which editors and copying programs keep what is not finished.
const UNFINISHED: [&[u8]; 4] = [b".tmp", b"~", b".swp", b".part"];

/// What a file of a handler is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// What the keeper says about it.
    Manifest,
    /// A component.
    Binary,
    /// A component's text.
    Text,
}

impl Role {
    const ALL: [Self; 3] = [Self::Manifest, Self::Binary, Self::Text];

    /// How its name ends.
    pub(super) const fn ending(self) -> &'static str {
        match self {
            Self::Manifest => ".toml",
            Self::Binary => ".wasm",
            Self::Text => ".wat",
        }
    }

    /// The file's name.
    pub(super) fn file_of(self, name: &CapabilityName) -> String {
        format!("{name}{}", self.ending())
    }
}

/// Whether a name says that its file is not meant to be seen yet.
pub fn passed_over(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.starts_with(b".") || UNFINISHED.iter().any(|end| bytes.ends_with(end))
}

/// The handler that a file belongs to, and what it is for.
///
/// # Errors
/// What the name must look like.
pub(super) fn parse(name: &OsStr) -> Result<(CapabilityName, Role), String> {
    let Some(text) = name.to_str() else { return Err(format!("the name is not UTF-8 text; {RULE}")) };
    if text.chars().any(char::is_control) {
        return Err(format!("the name has a line end or another control character in it; {RULE}"));
    }
    let found = Role::ALL.into_iter().find_map(|role| {
        let name: CapabilityName = text.strip_suffix(role.ending())?.parse().ok()?;
        name.is_custom().then_some((name, role))
    });
    found.ok_or_else(|| RULE.to_owned())
}

/// A file's name for a screen: what is not text, or would move the cursor, is escaped.
pub(super) fn shown(name: &OsStr) -> String {
    let mut shown = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        shown.push_str(&visible(chunk.valid()));
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02X}"));
        }
    }
    shown
}
