//! What the keeper says about a handler: the `.toml` beside a handler's file, and the description that the file may carry itself.
//!
//! Owns the form of both and their limits; the parts: `manifest/read.rs` reads the `.toml`, `manifest/arguments.rs` its bounds,
//! `manifest/units.rs` sizes and times, `manifest/origin.rs` servers, `manifest/descriptor.rs` a file's own description. Called when the handlers folder is looked at, and by the authors' tools. Refuses unknown
//! keys, strings and arrays without a bound, sizes and times beyond their limits, and a description that asks for more than to
//! describe. Grants stand nowhere here: what a handler may is the keeper's word at the device, never a file's.

use std::path::PathBuf;
use std::time::Duration;

use wire::bounds::{DESCRIPTION_BYTES_MAX, DeclarationError};
use wire::{Activation, Bounds, CapabilityName, Declaration, Effect};

mod arguments;
mod descriptor;
mod origin;
mod read;
#[cfg(test)]
mod tests;
mod units;

pub use origin::OriginError;
pub use units::size_in_words;

/// Time for one call unless the manifest says otherwise: instantiation and host calls included.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Memory of a handler unless the manifest says otherwise.
pub const MEMORY_DEFAULT: usize = 32 * 1024 * 1024;
/// The least memory that a manifest may give: one page, which every guest that has memory at all needs.
pub const MEMORY_MIN: usize = 64 * 1024;
/// The most memory that a manifest may give: eight handlers at once still fit a small device.
pub const MEMORY_MAX: usize = 256 * 1024 * 1024;
/// The longest result unless the manifest says otherwise.
pub const RESULT_BYTES_DEFAULT: usize = 64 * 1024;
/// The shortest limit of a result: `{}`.
pub const RESULT_BYTES_MIN: usize = 2;
/// The longest result that a manifest may allow: what one signed result can carry.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// More folders or servers in one list of `reach` are a mistake: a handler does one thing.
pub const REACH_ENTRIES_MAX: usize = 16;
/// Bounds stand inside five containers of a signed registration, which has 16 at most; one is left to spare.
pub const ARGUMENTS_DEPTH_MAX: usize = 10;
/// Longest description in a file: bounds of at most 4 KiB, a line of at most 200 bytes, and what JSON puts around them.
pub const DESCRIPTOR_BYTES_MAX: usize = 8 * 1024;

/// What the keeper says about a handler.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// What it does, for people and models; at most 200 bytes.
    pub description: Option<String>,
    /// What a call does to the world.
    pub effect: Effect,
    /// When it may run.
    pub activation: Activation,
    /// Whether it captures, and so needs the in-use sign.
    pub captures: bool,
    /// The whole call, with instantiation and host calls.
    pub timeout: Duration,
    /// Linear memory, in bytes.
    pub memory_bytes: usize,
    /// The longest result, in bytes of JSON.
    pub result_bytes_max: usize,
    /// What arguments it takes.
    pub arguments: Option<Bounds>,
    /// What it may touch beyond its own memory.
    pub reach: Reach,
}

/// What a handler may touch beyond its own memory; nothing unless the keeper said so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Folders it may read.
    pub read: Vec<PathBuf>,
    /// Folders it may read and write.
    pub write: Vec<PathBuf>,
    /// Servers it may send requests to.
    pub http: Vec<Origin>,
}

/// Scheme, host and port of an HTTP server, exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Whether it is `https`.
    pub tls: bool,
    /// A lower-case name or an IP literal; of IPv6 without brackets.
    pub host: String,
    /// The port, also where the manifest left it to the scheme.
    pub port: u16,
}

/// What a handler's file says about itself (custom section `device:handler/descriptor`, JSON): it describes, and gives nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Descriptor {
    /// What it does.
    pub description: Option<String>,
    /// What arguments it takes.
    pub arguments: Option<Bounds>,
}

/// Why a manifest or a descriptor is refused: one line for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not TOML.
    #[error("line {line}: {reason}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// Nobody knows this key.
    #[error("line {line}: unknown key `{key}`{hint}")]
    Unknown {
        /// Counted from 1.
        line: usize,
        /// The whole key.
        key: String,
        /// "; did you mean …?"
        hint: String,
    },
    /// The value does not do for this key.
    #[error("line {line}: `{key}`: {reason}")]
    Invalid {
        /// Counted from 1.
        line: usize,
        /// The whole key.
        key: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// The bounds of its arguments break the rules for bounds.
    #[error("line {line}: {reason}")]
    Arguments {
        /// Counted from 1.
        line: usize,
        /// Which rule, and where.
        reason: DeclarationError,
    },
    /// What the file says about itself breaks a rule.
    #[error("its own description (section device:handler/descriptor): {reason}")]
    Descriptor {
        /// Which rule.
        reason: String,
    },
    /// Neither the `.toml` nor the file says what the handler does.
    #[error("nothing says what it does; write into {name}.toml: description = \"…\"")]
    NoDescription {
        /// The handler.
        name: CapabilityName,
    },
    /// The whole is larger than a declaration may be.
    #[error("{0}")]
    Declaration(DeclarationError),
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            description: None,
            effect: Effect::Change,
            activation: Activation::Active,
            captures: false,
            timeout: TIMEOUT_DEFAULT,
            memory_bytes: MEMORY_DEFAULT,
            result_bytes_max: RESULT_BYTES_DEFAULT,
            arguments: None,
            reach: Reach::default(),
        }
    }
}

impl Manifest {
    /// The capability `name` that the handler becomes. Description and arguments are the manifest's, else the descriptor's; without
    /// arguments anywhere it takes none.
    ///
    /// # Errors
    /// [`ManifestError::NoDescription`], [`ManifestError::Declaration`].
    pub fn declaration(&self, name: &CapabilityName, descriptor: &Descriptor) -> Result<Declaration, ManifestError> {
        let description = self.description.as_ref().or(descriptor.description.as_ref());
        let arguments = self.arguments.as_ref().or(descriptor.arguments.as_ref());
        Declaration {
            name: name.clone(),
            description: description.ok_or_else(|| ManifestError::NoDescription { name: name.clone() })?.clone(),
            bounds: arguments.cloned().unwrap_or_else(Bounds::none),
            effect: self.effect,
            activation: self.activation,
            grant: Some(name.grant()),
            captures: self.captures,
            timeout: self.timeout,
            asked_time: None,
        }
        .within_limits()
        .map_err(ManifestError::Declaration)
    }
}

/// A description as people read it: something, and no more than a declaration may carry.
fn description(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.len() > DESCRIPTION_BYTES_MAX {
        return Err(format!("a description has 1 to {DESCRIPTION_BYTES_MAX} bytes, this has {}", text.len()));
    }
    Ok(text.to_owned())
}
