//! The confinement of a handler's process: what the kernel takes from it before guest code is near.
//!
//! Owns the order of the steps and what each purpose needs. Called by the handler's process ([`super::child`]) and by the test program
//! that enters the same confinement and tries to leave it. Refuses to go on when a step fails; a kernel without Landlock is let pass
//! only where the keeper accepted that. Nothing here is undone: it ends with the process.
//!
//! Three steps, each of which can only take away: [`alone`] cuts what was inherited; [`enter`], while there is one thread, sets limits,
//! drops capabilities, and closes the file system (Landlock) and the system calls (seccomp); [`seal`], when native code is in place and
//! guest code has not run yet, takes the right to make memory executable, and the memory that loading needed.

mod limits;
mod paths;
mod process;
mod seccomp;

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
    /// To compile one file; it never runs guest code.
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
    /// The folders that stay within reach. Where there are none, no file can be opened at all.
    pub folders: Vec<Reachable>,
    /// Linear memory of the guest, in bytes.
    pub memory_bytes: usize,
    /// Goes on where the kernel lacks Landlock: the keeper said so.
    pub accept_weak: bool,
}

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// What was inherited could not be cut.
    #[error("cannot cut what was inherited: {0}")]
    Alone(std::io::Error),
    /// A limit could not be set.
    #[error("cannot set its limits: {0}")]
    Limits(std::io::Error),
    /// The kernel lacks Landlock, or it was switched off when it started.
    #[error("this kernel gives no Landlock, which keeps a handler from files outside its reach")]
    NoLandlock,
    /// Landlock is there and refused.
    #[error("Landlock refused: {0}")]
    Landlock(landlock::RulesetError),
    /// The system calls could not be filtered.
    #[error("this kernel gives no seccomp filter: {0}")]
    Seccomp(String),
}

/// Cuts what was inherited: every descriptor but 0, 1 and 2, core dumps and debuggers, the mask of new files. From here the process dies
/// with the thread that started it.
///
/// # Errors
/// [`ConfineError::Alone`].
pub fn alone() -> Result<(), ConfineError> {
    process::alone().map_err(ConfineError::Alone)
}

/// Confines this process for good. To be called while it has one thread: those that it starts later inherit what is set here.
///
/// # Errors
/// See [`ConfineError`]; the process is then to end.
pub fn enter(plan: &Plan) -> Result<Confinement, ConfineError> {
    limits::set(plan.purpose, plan.memory_bytes).map_err(ConfineError::Limits)?;
    process::drop_capabilities().map_err(ConfineError::Limits)?;
    let landlock_abi = paths::close(&plan.folders)?;
    if landlock_abi.is_none() && !plan.accept_weak {
        return Err(ConfineError::NoLandlock);
    }
    seccomp::filter(!plan.folders.is_empty())?;
    Ok(Confinement { landlock_abi, seccomp: true })
}

/// Takes what only loading needed, from all threads: making memory executable, files in memory, and, where no folder is within reach,
/// new threads. To be called once native code is in place, before any of it runs.
///
/// # Errors
/// See [`ConfineError`]; the process is then to end.
pub fn seal(plan: &Plan) -> Result<(), ConfineError> {
    limits::tighten().map_err(ConfineError::Limits)?;
    seccomp::seal(!plan.folders.is_empty())
}
