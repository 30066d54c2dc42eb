//! Opening a file in a folder that somebody else may fill: nothing is opened before it is known to be a file.
//!
//! A path handle tells what lies there without touching it, so that no pipe holds us up and no device notices. What is then opened
//! must be the same file.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::FolderError;
use crate::safe::{self, OTHERS_WRITE, PERMISSIONS, quoted};

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    #[error("there is no such file")]
    Missing,
    #[error("this is a symbolic link; put the file itself there")]
    Link,
    #[error("this is a {0}, not a file")]
    Kind(&'static str),
    #[error(
        "this belongs to user {owner}, and a handler's file belongs to {wanted}; run: chown {mend} {}",
        quoted(path)
    )]
    Owner { path: PathBuf, owner: u32, wanted: String, mend: u32 },
    #[error("other users may write this (mode {mode:04o}); run: chmod go-w {}", quoted(path))]
    Loose { path: PathBuf, mode: u32 },
    #[error("this has {bytes} bytes, and at most {bytes_max} are read")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("this changed while it was read; it is looked at again when it rests")]
    Changed,
    #[error("this cannot be read: {0}")]
    System(io::Error),
}

/// Everything that changes when a file's content does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
    /// Seconds and nanoseconds; nobody can set it.
    pub(super) changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            dev: found.dev(),
            ino: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Who may own a handler's files: root, and those named here.
#[derive(Debug, Clone, Copy)]
struct Owners {
    /// Who owns the folder.
    folder: u32,
    /// Who runs this program, where that is enough.
    caller: Option<u32>,
}

impl Owners {
    fn include(self, owner: u32) -> bool {
        owner == 0 || owner == self.folder || Some(owner) == self.caller
    }

    /// The two that make sense in a handlers folder.
    fn wanted(self) -> String {
        match self.folder {
            0 => "root".to_owned(),
            folder => format!("root or user {folder}"),
        }
    }
}

/// An open folder, and who may own the files in it.
#[derive(Debug)]
pub(super) struct Room {
    dir: OwnedFd,
    path: PathBuf,
    owners: Owners,
}

impl Room {
    /// The handlers folder itself: no link, ours or root's, closed to other writers.
    pub(super) fn handlers(path: &Path) -> Result<Self, FolderError> {
        let unreadable = |reason: io::Error| match reason.kind() {
            io::ErrorKind::NotFound => FolderError::Missing { path: path.to_owned() },
            _ => FolderError::Unreadable { path: path.to_owned(), reason },
        };
        let handle = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle =
            File::from(rustix::fs::open(path, handle, Mode::empty()).map_err(|errno| unreadable(errno.into()))?);
        let found = handle.metadata().map_err(unreadable)?;
        if found.is_symlink() {
            return Err(FolderError::Link { path: path.to_owned() });
        }
        safe::check_open_folder(path, &found)?;
        let dir = rustix::fs::openat(&handle, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let dir = dir.map_err(|errno| unreadable(errno.into()))?;
        Ok(Self { dir, path: path.to_owned(), owners: Owners { folder: found.uid(), caller: None } })
    }

    /// The folder around a file that somebody named: any folder will do, since the caller chose it.
    pub(super) fn around(path: &Path) -> Result<Self, Flaw> {
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = File::from(rustix::fs::openat(CWD, folder, flags, Mode::empty()).map_err(flaw_of)?);
        let owner = dir.metadata().map_err(Flaw::System)?.uid();
        let owners = Owners { folder: owner, caller: Some(geteuid().as_raw()) };
        Ok(Self { dir: dir.into(), path: folder.to_owned(), owners })
    }

    /// Where the file of that name lies.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The open folder, to list it.
    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// What lies there, once it was found to be a file that may be read.
    pub(super) fn stamp(&self, name: &str, bytes_max: u64) -> Result<Stamp, Flaw> {
        let handle = self.open(name, OFlags::PATH)?;
        let found = handle.metadata().map_err(Flaw::System)?;
        self.check(name, &found, bytes_max)?;
        Ok(Stamp::of(&found))
    }

    /// The whole file, whose stamp was the same before and after.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<(Vec<u8>, Stamp), Flaw> {
        let before = self.stamp(name, bytes_max)?;
        let mut file = self.open(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if Stamp::of(&file.metadata().map_err(Flaw::System)?) != before {
            return Err(Flaw::Changed);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.size).unwrap_or(0));
        (&mut file).take(before.size.saturating_add(1)).read_to_end(&mut bytes).map_err(Flaw::System)?;
        let whole = u64::try_from(bytes.len()).is_ok_and(|read| read == before.size);
        if !whole || Stamp::of(&file.metadata().map_err(Flaw::System)?) != before {
            return Err(Flaw::Changed);
        }
        Ok((bytes, before))
    }

    fn open(&self, name: &str, how: OFlags) -> Result<File, Flaw> {
        let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, OsStr::new(name), flags, Mode::empty()).map(File::from).map_err(flaw_of)
    }

    fn check(&self, name: &str, found: &Metadata, bytes_max: u64) -> Result<(), Flaw> {
        let kind = found.file_type();
        if kind.is_symlink() {
            return Err(Flaw::Link);
        }
        if !kind.is_file() {
            return Err(Flaw::Kind(match () {
                () if kind.is_dir() => "folder",
                () if kind.is_fifo() => "pipe",
                () if kind.is_socket() => "socket",
                () => "device",
            }));
        }
        let owner = found.uid();
        if !self.owners.include(owner) {
            let (path, wanted, mend) = (self.path_of(name), self.owners.wanted(), self.owners.folder);
            return Err(Flaw::Owner { path, owner, wanted, mend });
        }
        let mode = found.mode() & PERMISSIONS;
        if mode & OTHERS_WRITE != 0 {
            return Err(Flaw::Loose { path: self.path_of(name), mode });
        }
        if found.size() > bytes_max {
            return Err(Flaw::TooLarge { bytes: found.size(), bytes_max });
        }
        Ok(())
    }
}

fn flaw_of(errno: Errno) -> Flaw {
    match errno {
        Errno::NOENT => Flaw::Missing,
        Errno::LOOP => Flaw::Link,
        other => Flaw::System(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_folders_owner_may_own_a_file_and_the_caller_only_where_that_is_said() {
        let of = |folder, caller| Owners { folder, caller };
        let rows = [
            (of(0, None), 0, true),
            (of(0, None), 1000, false),
            (of(1000, None), 0, true),
            (of(1000, None), 1000, true),
            (of(1000, None), 1001, false),
            (of(0, Some(1000)), 1000, true),
            (of(0, Some(1000)), 998, false),
            (of(998, Some(1000)), 998, true),
            (of(998, Some(1000)), 997, false),
        ];
        for (owners, owner, may) in rows {
            assert_eq!(owners.include(owner), may, "{owners:?} {owner}");
        }
    }
}
