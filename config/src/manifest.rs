//! What the keeper says about a handler: the `.toml` beside a handler's file, and the description that the file may carry itself.
//!
//! Owns the form of both and their limits. Called when the handlers folder is looked at, and by the authors' tools. Refuses unknown
//! keys, strings and arrays without a bound, sizes and times beyond their limits, and a description that asks for more than to
//! describe. Grants stand nowhere here: what a handler may is the keeper's word at the device, never a file's.

use std::path::PathBuf;
use std::time::Duration;

use wire::{Activation, Bounds, CapabilityName, Declaration, Effect};

/// Time for one call unless the manifest says otherwise: instantiation and host calls included.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Memory of a handler unless the manifest says otherwise.
pub const MEMORY_DEFAULT: usize = 32 * 1024 * 1024;
/// The most memory that a manifest may give.
pub const MEMORY_MAX: usize = 256 * 1024 * 1024;
/// The longest result unless the manifest says otherwise.
pub const RESULT_BYTES_DEFAULT: usize = 64 * 1024;
/// The longest result that a manifest may allow: what one signed result can carry.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

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
    /// Neither the `.toml` nor the file says what the handler does.
    #[error("nothing says what it does")]
    NoDescription,
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
    /// Reads a `.toml`.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(_text: &str) -> Result<Self, ManifestError> {
        Err(ManifestError::NoDescription)
    }

    /// The capability that the handler becomes.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn declaration(&self, _name: &CapabilityName, _descriptor: &Descriptor) -> Result<Declaration, ManifestError> {
        Err(ManifestError::NoDescription)
    }
}

impl Descriptor {
    /// Reads a file's own description.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(_json: &[u8]) -> Result<Self, ManifestError> {
        Err(ManifestError::NoDescription)
    }
}

/// Not scheme, host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OriginError(String);

impl std::str::FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        Err(OriginError(text.to_owned()))
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.host)
    }
}
