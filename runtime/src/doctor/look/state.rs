//! The state folder and its disk: whose the folder is, whether what is written there stays, and how much room there is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::safe::{self, SafeError};
use rustix::fs::StatVfsMountFlags;

use crate::doctor::{Finding, Part};

/// A day of heavy use writes less than this.
const FREE_BYTES_LOW: u64 = 64 * 1024 * 1024;
/// What is written to see that it can be.
const TRIAL: [u8; 4096] = [0x5a; 4096];
/// File systems in memory, by the numbers that the kernel gives them: what is on them is gone after a restart.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// What was found in place of the state folder.
#[derive(Debug)]
pub(crate) enum Folder {
    /// Nothing: no device has started here.
    Missing,
    /// Something that a device would refuse.
    Unsafe(SafeError),
    /// It cannot be written.
    Stuck(io::Error),
    /// It can be written, and this file system holds it.
    Good {
        /// The name of a file system that forgets.
        in_memory: Option<&'static str>,
        /// The running device says that it can write no records.
        records_stuck: bool,
    },
}

/// Looks at the folder, and writes a file into it that is gone again at once.
pub(crate) fn look(folder: &Path, records_stuck: bool) -> Folder {
    match safe::check_private_dir(folder) {
        Err(SafeError::Missing { .. }) => return Folder::Missing,
        // Root looks after the folder of a service.
        Err(SafeError::Owner { .. }) if rustix::process::geteuid().is_root() => {
            if let Some(error) = loose(folder) {
                return Folder::Unsafe(error);
            }
        }
        Err(error) => return Folder::Unsafe(error),
        Ok(()) => {}
    }
    match written(folder) {
        Ok(()) => Folder::Good { in_memory: in_memory(folder), records_stuck },
        Err(error) => Folder::Stuck(error),
    }
}

fn loose(folder: &Path) -> Option<SafeError> {
    let mode = fs::metadata(folder).ok()?.mode() & 0o777;
    (mode & 0o077 != 0).then(|| SafeError::Loose { path: folder.to_owned(), mode, mend: "700" })
}

/// A file without a name, so that nothing is left of it whatever happens.
fn written(folder: &Path) -> io::Result<()> {
    let mut file: File = tempfile::tempfile_in(folder)?;
    file.write_all(&TRIAL)?;
    file.sync_all()
}

#[allow(clippy::useless_conversion, reason = "the kernel's word has 32 bits on some machines")]
fn in_memory(folder: &Path) -> Option<&'static str> {
    let found = rustix::fs::statfs(folder).ok()?;
    let kind = u64::try_from(found.f_type).ok()? & 0xffff_ffff;
    IN_MEMORY.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

pub(crate) fn judge(folder: &Path, found: &Folder) -> Finding {
    let path = folder.display();
    match found {
        Folder::Missing => Finding::not_needed(
            Part::State,
            format!("no device has started in {path}; the first start makes the folder"),
        ),
        Folder::Unsafe(error) => {
            let sentence = crate::cli::chain(error);
            let (what, mend) = split(&sentence);
            Finding::broken(Part::State, what, mend.unwrap_or_else(|| format!("ls -ld {path}")))
        }
        Folder::Stuck(error) => {
            let what = format!("nothing can be written in {path}: {error}");
            Finding::broken(Part::State, what, format!("df -h {path}"))
        }
        Folder::Good { records_stuck: true, .. } => Finding::broken(
            Part::State,
            "the running device can write no records, so nothing but device.health works",
            format!("df -h {path}"),
        ),
        Folder::Good { in_memory: Some(kind), .. } => Finding::broken(
            Part::State,
            format!(
                "{path} lies in memory ({kind}): after a restart of the machine the device has no key and no owner"
            ),
            "latchkeyd run --state-dir FOLDER, on a disk",
        ),
        Folder::Good { in_memory: None, records_stuck: false } => {
            Finding::works(Part::State, format!("{path} is private, and what is written there stays"))
        }
    }
}

/// A sentence that names its own mend: what is wrong, and the last command that it says to run.
pub(crate) fn split(sentence: &str) -> (String, Option<String>) {
    match sentence.rsplit_once("run: ") {
        Some((what, mend)) => {
            let what = what.trim_end().trim_end_matches("or").trim_end().trim_end_matches([';', ',']);
            (what.to_owned(), Some(mend.trim().to_owned()))
        }
        None => (sentence.to_owned(), None),
    }
}

/// Room on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) read_only: bool,
}

/// The disk that holds the folder, or would.
pub(crate) fn room(folder: &Path) -> Option<(PathBuf, Room)> {
    let at = folder.ancestors().find(|path| path.exists())?;
    let disk = rustix::fs::statvfs(at).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    let room = Room {
        free_bytes: bytes(disk.f_bavail),
        total_bytes: bytes(disk.f_blocks),
        read_only: disk.f_flag.contains(StatVfsMountFlags::RDONLY),
    };
    Some((at.to_owned(), room))
}

pub(crate) fn judge_room(found: Option<&(PathBuf, Room)>) -> Finding {
    let Some((at, room)) = found else {
        return Finding::broken(Part::Disk, "the disk of the state folder cannot be read", "df -h");
    };
    let at = at.display();
    let mib = |bytes: u64| bytes / (1024 * 1024);
    if room.read_only {
        let what = format!("the disk that holds {at} is mounted read-only");
        return Finding::broken(Part::Disk, what, format!("mount -o remount,rw \"$(findmnt -no TARGET -T {at})\""));
    }
    if room.free_bytes < FREE_BYTES_LOW {
        let what = format!(
            "{} MiB are free on the disk that holds {at}; without room for records the device does nothing",
            mib(room.free_bytes)
        );
        return Finding::broken(Part::Disk, what, format!("du -xh {at} | sort -h | tail"));
    }
    Finding::works(Part::Disk, format!("{} of {} MiB are free", mib(room.free_bytes), mib(room.total_bytes)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_state_folder_is_private_and_writable_or_it_says_what_mends_it() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("state");
        let told = |stuck: bool| judge(&path, &look(&path, stuck));
        assert_eq!(told(false).verdict, Verdict::NotNeeded);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let loose = told(false);
        let shown = path.display();
        assert_eq!(loose.verdict, Verdict::Broken);
        assert_eq!(loose.what, format!("{shown} is open to other users (mode 0755)"));
        assert_eq!(loose.mend, Some(format!("chmod 700 {shown}")));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        // Where tests lie in memory, that is told instead.
        if in_memory(&path).is_none() {
            assert_eq!(told(false).verdict, Verdict::Works);
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is left of the trial");
        assert_eq!(told(true).verdict, Verdict::Broken);
        let forgets = judge(&path, &Folder::Good { in_memory: Some("tmpfs"), records_stuck: false });
        assert!(forgets.verdict == Verdict::Broken && forgets.what.contains("tmpfs"));
        let full = judge(&path, &Folder::Stuck(io::ErrorKind::StorageFull.into()));
        assert_eq!((full.verdict, full.mend), (Verdict::Broken, Some(format!("df -h {shown}"))));
    }

    #[test]
    fn the_mend_is_the_last_command_of_a_sentence() {
        let rows = [
            ("a is open (mode 0755); run: chmod 700 a", "a is open (mode 0755)", Some("chmod 700 a")),
            (
                "a belongs to user 1; run as user 1, or run: chown -R 0 a",
                "a belongs to user 1; run as user 1",
                Some("chown -R 0 a"),
            ),
            ("a is not a folder", "a is not a folder", None),
        ];
        for (sentence, what, mend) in rows {
            assert_eq!(split(sentence), (what.to_owned(), mend.map(str::to_owned)));
        }
    }

    #[test]
    fn a_disk_without_room_and_one_that_is_read_only_are_broken() {
        let (at, good) = room(Path::new("/none/of/this")).unwrap();
        assert!(at == Path::new("/") && good.total_bytes > 0);
        let rows = [
            (Room { free_bytes: FREE_BYTES_LOW, read_only: false, ..good }, Verdict::Works, "64 of"),
            (Room { free_bytes: FREE_BYTES_LOW - 1, read_only: false, ..good }, Verdict::Broken, "63 MiB are free"),
            (Room { free_bytes: FREE_BYTES_LOW, read_only: true, ..good }, Verdict::Broken, "read-only"),
        ];
        for (room, verdict, words) in rows {
            let finding = judge_room(Some(&(at.clone(), room)));
            assert_eq!(finding.verdict, verdict);
            assert!(finding.what.contains(words), "{}", finding.what);
        }
        assert_eq!(judge_room(None).verdict, Verdict::Broken);
    }
}
