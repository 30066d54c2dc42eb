//! The confinement of a handler's process.

use std::fs::File;

use serde::{Deserialize, Serialize};

/// What the kernel gave to confine a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The version of Landlock's interface; none where the kernel lacks it.
    pub landlock_abi: Option<u32>,
    /// Whether system calls are filtered.
    pub seccomp: bool,
}

/// What a process is confined for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To compile one file.
    Compile,
    /// To run one handler.
    Run,
}

/// A folder that stays within reach.
#[derive(Debug)]
pub struct Reachable {
    /// The folder, open.
    pub folder: File,
    /// Whether it may be written.
    pub write: bool,
}

/// How a process is to be confined.
#[derive(Debug)]
pub struct Plan {
    /// For what.
    pub purpose: Purpose,
    /// The folders that stay within reach; none leaves no file to be opened.
    pub folders: Vec<Reachable>,
    /// Linear memory of the guest, in bytes.
    pub memory_bytes: usize,
    /// Goes on where the kernel lacks Landlock: the keeper said so.
    pub accept_weak: bool,
}

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The kernel lacks Landlock, or it is switched off.
    #[error("the kernel has no Landlock")]
    NoLandlock,
}

/// Confines this process for good. To be called before it has a second thread.
///
/// # Errors
/// See [`ConfineError`]; the process is then to end.
pub fn enter(plan: &Plan) -> Result<Confinement, ConfineError> {
    let _ = plan;
    Err(ConfineError::NoLandlock)
}
