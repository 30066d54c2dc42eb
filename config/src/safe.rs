//! Folders and files that only one person may touch.
//!
//! Owns the rules for the state folder, for secrets in files, and for who may write settings. Called by both programs before they trust
//! a path. Refuses loose permissions, another owner, symbolic links in place of secrets, and files larger than expected; each
//! sentence ends with the command that mends it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Why a folder or file is not safe to use. Each sentence says how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    /// There is nothing at the path.
    #[error("{}: there is no such file or folder", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// There is something else than expected.
    #[error("{} is not a {expected}", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// What was expected: "folder" or "file".
        expected: &'static str,
    },
    /// A symbolic link stands where a secret should.
    #[error("{} is a symbolic link; put the file itself there", path.display())]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// Others may read or write it.
    #[error("{} is open to other users (mode {mode:04o}); run: chmod {mend} {}", path.display(), quoted(path))]
    Loose {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The mode that `chmod` should set.
        mend: &'static str,
    },
    /// It belongs to someone else.
    #[error("{} belongs to user {owner}, and this program runs as user {user}; run as user {owner}, or run: chown -R {user} {}", path.display(), quoted(path))]
    Owner {
        /// The path.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// Our number.
        user: u32,
    },
    /// It is larger than it can rightly be.
    #[error("{} is larger than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The most that is read.
        bytes_max: usize,
    },
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What was tried: "read", "write", "make the folder".
        action: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Bits that open a private file or folder to others.
const OTHERS: u32 = 0o077;
/// Bits that let others change a file or folder.
pub(crate) const OTHERS_WRITE: u32 = 0o022;
/// The permission bits of a mode.
pub(crate) const PERMISSIONS: u32 = 0o7777;

impl SafeError {
    fn system(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path: path.to_owned() },
            _ => Self::System { path: path.to_owned(), action, source },
        }
    }
}

/// The path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:,".contains(&byte)) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Makes the folder with mode 0700 where it is absent, then holds it to [`check_private_dir`].
///
/// # Errors
/// See [`SafeError`].
pub fn ensure_private_dir(path: &Path) -> Result<(), SafeError> {
    match check_private_dir(path) {
        Err(SafeError::Missing { .. }) => {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| SafeError::System {
                path: path.to_owned(),
                action: "make the folder",
                source,
            })?;
            check_private_dir(path)
        }
        other => other,
    }
}

/// The folder is ours and closed to everyone else.
///
/// # Errors
/// See [`SafeError`].
pub fn check_private_dir(path: &Path) -> Result<(), SafeError> {
    let found = fs::metadata(path).map_err(SafeError::system(path, "read"))?;
    if !found.is_dir() {
        return Err(SafeError::Kind { path: path.to_owned(), expected: "folder" });
    }
    check_owner(path, &found, false)?;
    check_mode(path, &found, OTHERS, "700")
}

/// The file or folder is writable by us or root alone; others may read it.
///
/// # Errors
/// See [`SafeError`].
pub(crate) fn check_not_writable(path: &Path) -> Result<(), SafeError> {
    let found = fs::metadata(path).map_err(SafeError::system(path, "read"))?;
    check_owner(path, &found, true)?;
    check_mode(path, &found, OTHERS_WRITE, "go-w")
}

/// A folder that was opened already: ours or root's, and others may read it but not write into it.
pub(crate) fn check_open_folder(path: &Path, found: &fs::Metadata) -> Result<(), SafeError> {
    if !found.is_dir() {
        return Err(SafeError::Kind { path: path.to_owned(), expected: "folder" });
    }
    check_owner(path, found, true)?;
    check_mode(path, found, OTHERS_WRITE, "go-w")
}

fn check_owner(path: &Path, found: &fs::Metadata, root_too: bool) -> Result<(), SafeError> {
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if owner == user || (root_too && owner == 0) {
        return Ok(());
    }
    Err(SafeError::Owner { path: path.to_owned(), owner, user })
}

fn check_mode(path: &Path, found: &fs::Metadata, forbidden: u32, mend: &'static str) -> Result<(), SafeError> {
    let mode = found.mode() & PERMISSIONS;
    if mode & forbidden == 0 {
        return Ok(());
    }
    Err(SafeError::Loose { path: path.to_owned(), mode, mend })
}

/// Reads a private file of at most `bytes_max` bytes: ours, 0600, not through a symbolic link.
///
/// # Errors
/// See [`SafeError`].
pub fn read_private(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SafeError> {
    // NONBLOCK: a pipe in place of the file must not hold us up before it is refused.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP => SafeError::Link { path: path.to_owned() },
        _ => SafeError::system(path, "read")(errno.into()),
    })?;
    let file = File::from(opened);
    let found = file.metadata().map_err(SafeError::system(path, "read"))?;
    if !found.is_file() {
        return Err(SafeError::Kind { path: path.to_owned(), expected: "file" });
    }
    check_owner(path, &found, false)?;
    check_mode(path, &found, OTHERS, "600")?;
    read_bounded(path, file, bytes_max)
}

/// Reads any file of at most `bytes_max` bytes.
///
/// # Errors
/// See [`SafeError`].
pub(crate) fn read_limited(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SafeError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| SafeError::system(path, "read")(errno.into()))?;
    let file = File::from(opened);
    if !file.metadata().map_err(SafeError::system(path, "read"))?.is_file() {
        return Err(SafeError::Kind { path: path.to_owned(), expected: "file" });
    }
    read_bounded(path, file, bytes_max)
}

fn read_bounded(path: &Path, file: File, bytes_max: usize) -> Result<Vec<u8>, SafeError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(SafeError::system(path, "read"))?;
    if bytes.len() > bytes_max {
        return Err(SafeError::TooLarge { path: path.to_owned(), bytes_max });
    }
    Ok(bytes)
}

/// Writes a private file so that it appears whole or not at all, replacing a former one; on disk when this returns.
///
/// # Errors
/// See [`SafeError`].
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), SafeError> {
    let (folder, fresh) = written_beside(path, bytes)?;
    fresh.persist(path).map_err(|failed| SafeError::system(path, "write")(failed.error))?;
    sync_folder(&folder)
}

/// Like [`write_private`], but never replaces: `false` when a file was there already, which then stays as it was.
///
/// # Errors
/// See [`SafeError`].
pub fn create_private(path: &Path, bytes: &[u8]) -> Result<bool, SafeError> {
    let (folder, fresh) = written_beside(path, bytes)?;
    match fresh.persist_noclobber(path) {
        Ok(_) => sync_folder(&folder).map(|()| true),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(failed) => Err(SafeError::system(path, "write")(failed.error)),
    }
}

/// A 0600 file in the same folder that holds `bytes` on disk already.
fn written_beside(path: &Path, bytes: &[u8]) -> Result<(PathBuf, tempfile::NamedTempFile), SafeError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut fresh = tempfile::NamedTempFile::new_in(&folder).map_err(SafeError::system(&folder, "write into"))?;
    fresh.write_all(bytes).and_then(|()| fresh.as_file().sync_all()).map_err(SafeError::system(path, "write"))?;
    Ok((folder, fresh))
}

fn sync_folder(folder: &Path) -> Result<(), SafeError> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(SafeError::system(folder, "write into"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn bits(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_missing_private_folder_is_made_for_us_alone_and_a_loose_one_is_refused_with_the_mend() {
        let room = tempfile::tempdir().unwrap();
        let folder = room.path().join("deep/state dir");
        ensure_private_dir(&folder).unwrap();
        assert_eq!(bits(&folder), 0o700);
        for loose in [0o750, 0o701, 0o770, 0o755] {
            mode(&folder, loose);
            let refused = check_private_dir(&folder).unwrap_err().to_string();
            let mend = format!("run: chmod 700 '{}'", folder.display());
            assert!(refused.contains(&format!("mode 0{loose:o}")) && refused.ends_with(&mend), "{refused}");
        }
        mode(&folder, 0o700);
        check_private_dir(&folder).unwrap();
    }

    #[test]
    fn a_file_in_place_of_a_folder_and_a_folder_that_cannot_be_made_are_refused() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(ensure_private_dir(&file), Err(SafeError::Kind { expected: "folder", .. })));
        assert!(matches!(ensure_private_dir(&file.join("below")), Err(SafeError::System { .. })));
    }

    #[test]
    fn a_private_file_is_written_whole_with_mode_0600_and_read_back() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("device.key");
        write_private(&file, b"first").unwrap();
        write_private(&file, b"second").unwrap();
        assert_eq!((bits(&file), read_private(&file, 6).unwrap().as_slice()), (0o600, b"second".as_slice()));
        assert!(!create_private(&file, b"third").unwrap(), "an existing file is not replaced");
        assert_eq!(read_private(&file, 6).unwrap(), b"second");
        assert!(create_private(&room.path().join("other"), b"x").unwrap());
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 2, "nothing is left beside the files");
    }

    #[test]
    fn loose_large_linked_and_odd_files_are_refused_in_place_of_a_secret() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("key");
        write_private(&file, b"secret").unwrap();
        read_private(&file, 6).unwrap();
        assert!(matches!(read_private(&file, 5), Err(SafeError::TooLarge { bytes_max: 5, .. })));
        mode(&file, 0o640);
        assert!(matches!(read_private(&file, 6), Err(SafeError::Loose { mode: 0o640, mend: "600", .. })));
        mode(&file, 0o600);
        let link = room.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(matches!(read_private(&link, 6), Err(SafeError::Link { .. })));
        assert!(matches!(read_private(room.path(), 6), Err(SafeError::Kind { expected: "file", .. })));
        assert!(matches!(read_private(&room.path().join("none"), 6), Err(SafeError::Missing { .. })));
    }

    #[test]
    fn a_settings_folder_may_be_read_by_others_but_not_written() {
        let room = tempfile::tempdir().unwrap();
        mode(room.path(), 0o755);
        check_not_writable(room.path()).unwrap();
        for loose in [0o775, 0o757] {
            mode(room.path(), loose);
            let refused = check_not_writable(room.path()).unwrap_err().to_string();
            assert!(refused.contains("run: chmod go-w "), "{refused}");
        }
    }

    #[test]
    fn a_foreign_owner_is_named_with_both_ways_out() {
        let path = PathBuf::from("/var/lib/latchkey");
        let refused = SafeError::Owner { path, owner: 998, user: 1000 }.to_string();
        assert!(refused.contains("run as user 998, or run: chown -R 1000 /var/lib/latchkey"), "{refused}");
    }
}
