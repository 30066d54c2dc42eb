//! Folders and files that only one person may touch.

use std::path::{Path, PathBuf};

/// Why a folder or file is not safe to use. Each sentence says how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    /// There is nothing at the path.
    #[error("{}: there is no such file or folder", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
}

/// Makes the folder with mode 0700 where it is absent, then holds it to [`check_private_dir`].
///
/// # Errors
/// See [`SafeError`].
pub fn ensure_private_dir(path: &Path) -> Result<(), SafeError> {
    let _ = path;
    todo!()
}

/// The folder is ours and closed to everyone else.
///
/// # Errors
/// See [`SafeError`].
pub fn check_private_dir(path: &Path) -> Result<(), SafeError> {
    let _ = path;
    todo!()
}

/// The file or folder is writable by us or root alone; others may read it.
///
/// # Errors
/// See [`SafeError`].
pub fn check_not_writable(path: &Path) -> Result<(), SafeError> {
    let _ = path;
    todo!()
}

/// Reads a private file of at most `bytes_max` bytes: ours, 0600, not through a symbolic link.
///
/// # Errors
/// See [`SafeError`].
pub fn read_private(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SafeError> {
    let _ = (path, bytes_max);
    todo!()
}

/// Writes a private file so that it appears whole or not at all, replacing a former one; on disk when this returns.
///
/// # Errors
/// See [`SafeError`].
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), SafeError> {
    let _ = (path, bytes);
    todo!()
}

/// Like [`write_private`], but never replaces: `false` when a file was there already.
///
/// # Errors
/// See [`SafeError`].
pub fn create_private(path: &Path, bytes: &[u8]) -> Result<bool, SafeError> {
    let _ = (path, bytes);
    todo!()
}
