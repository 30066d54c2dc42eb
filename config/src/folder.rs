//! The handlers folder, looked at.

use std::path::{Path, PathBuf};

use wire::CapabilityName;

use crate::digest::Digest;
use crate::manifest::Manifest;

/// The largest handler file: the largest guests that tool chains make are under 20 MB.
pub const HANDLER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The folder where the keeper drops handlers.
#[derive(Debug)]
pub struct HandlersFolder {
    path: PathBuf,
    named: bool,
}

/// What lies in the folder now, sorted by name.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Files that may become capabilities.
    pub files: Vec<HandlerFile>,
    /// Files that may not, each with its reason.
    pub refused: Vec<RefusedFile>,
}

/// A handler's file and what the keeper says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerFile {
    /// The capability that it becomes.
    pub name: CapabilityName,
    /// Where it lies.
    pub path: PathBuf,
    /// Whether it is text (`.wat`).
    pub text: bool,
    /// Of its content.
    pub digest: Digest,
    /// Of its `.toml`, if there is one.
    pub manifest_digest: Option<Digest>,
    /// What its `.toml` says, or the defaults.
    pub manifest: Manifest,
    /// Its size.
    pub bytes: u64,
}

/// A file that does not become a capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedFile {
    /// Its name, escaped for a screen.
    pub file: String,
    /// The capability that it would have been, where its name says so.
    pub name: Option<CapabilityName>,
    /// Why not, in words for the keeper.
    pub why: String,
}

/// Why the folder itself is not looked at.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// There is nothing at the path.
    #[error("{}: there is no such folder", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
}

impl HandlersFolder {
    /// The folder where handlers lie unless the settings name another: while it is missing there are no handlers.
    pub fn new(path: PathBuf) -> Self {
        Self { path, named: false }
    }

    /// A folder that the settings name: that it is missing is an error.
    pub fn named(path: PathBuf) -> Self {
        Self { path, named: true }
    }

    /// Looks at every file.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn look(&mut self) -> Result<Look, FolderError> {
        if self.named { Err(FolderError::Missing { path: self.path.clone() }) } else { Ok(Look::default()) }
    }
}

impl HandlerFile {
    /// Opens one file and its `.toml`, also outside the folder.
    ///
    /// # Errors
    /// [`RefusedFile`] with the reason.
    pub fn open(path: &Path) -> Result<Self, RefusedFile> {
        Err(RefusedFile { file: path.display().to_string(), name: None, why: "unfinished".to_owned() })
    }

    /// The file's bytes, when they are still those that were looked at.
    ///
    /// # Errors
    /// One sentence.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        Err("unfinished".to_owned())
    }
}
