//! The confinement of a handler's process.

use serde::{Deserialize, Serialize};

/// What the kernel gave to confine a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The version of Landlock's interface; none where the kernel lacks it.
    pub landlock_abi: Option<u32>,
    /// Whether system calls are filtered.
    pub seccomp: bool,
}
