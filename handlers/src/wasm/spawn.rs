//! spawn (being written).

use std::path::PathBuf;

/// Which program a child is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The one that runs, also when its file was replaced meanwhile.
    This,
    /// The one at a path, for tests.
    At(PathBuf),
}
