//! The handlers folder: which of its files may become capabilities, and why the others may not.
//!
//! Owns the rules for names, kinds, owners and sizes of files there; the parts: `folder/names.rs` reads names, `folder/open.rs` opens
//! files. Called by the runtime's folder service at each look, and by the authors' tools for one file. Refuses links, pipes, devices,
//! files that others may write, names of any other form, two files for one name, and a handler whose `.toml` breaks a rule: each with a
//! sentence, none by silence. Grants nothing and runs nothing. What was read once and did not change is not read again; nothing else is
//! remembered from one look to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Dir;
use rustix::time::{ClockId, clock_gettime};
use wire::CapabilityName;

use crate::digest::Digest;
use crate::manifest::Manifest;
use crate::safe::{SafeError, quoted};

mod names;
mod open;
#[cfg(test)]
mod tests;

use names::Role;
pub use names::passed_over;
use open::{Flaw, Room, Stamp};

/// The largest handler: the largest that tool chains make are 18 MB.
pub const HANDLER_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The largest `.toml`: bounds and lists at their limits are a fifth of it.
pub const MANIFEST_BYTES_MAX: u64 = 64 * 1024;
/// More names than this are not looked at: a thousand handlers with their `.toml` are half of it.
pub const ENTRIES_MAX: usize = 4096;

/// The folder where the keeper drops handlers.
#[derive(Debug)]
pub struct HandlersFolder {
    path: PathBuf,
    named: bool,
    known: BTreeMap<CapabilityName, Known>,
    bytes_read: u64,
}

/// A handler as it was read, and what its files looked like then.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    manifest_stamp: Option<Stamp>,
    file: HandlerFile,
}

/// What lies in the folder now, sorted by name.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// Why not, in words for the keeper, without the file's name.
    pub why: String,
}

/// Why the folder itself is not looked at. Each sentence says how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The settings name a folder that is not there.
    #[error("{}: there is no such folder; run: mkdir -m 755 {}", path.display(), quoted(path))]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// A symbolic link stands in its place.
    #[error("{} is a symbolic link; put the folder itself there, or name the real one as handlers.folder in the settings", path.display())]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// It is no folder, belongs to someone else, or others may write into it.
    #[error(transparent)]
    Unsafe(#[from] SafeError),
    /// The system refused.
    #[error("cannot read {}: {reason}; as its owner, run: chmod a+rx {}", path.display(), quoted(path))]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
}

impl HandlersFolder {
    /// The folder where handlers lie unless the settings name another: while it is missing there are no handlers.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        // Its parts put together again: a slash at the end would follow a link.
        let path = path.into().components().collect();
        Self { path, named: false, known: BTreeMap::new(), bytes_read: 0 }
    }

    /// A folder that the settings name: that it is missing is an error.
    pub fn named(path: impl Into<PathBuf>) -> Self {
        Self { named: true, ..Self::new(path) }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes of files all looks together have read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Looks at every file, and reads those that changed since the last look.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn look(&mut self) -> Result<Look, FolderError> {
        // The clock from which the kernel stamps files: what it stamps after this has a later time, or the same.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        self.look_at((now.tv_sec, now.tv_nsec))
    }

    /// A file whose stamp is older than `now`, a time before it was read, gets another stamp with its next change. A younger one may
    /// change within the same tick and keep its stamp, so it is read again at the next look.
    fn look_at(&mut self, now: (i64, i64)) -> Result<Look, FolderError> {
        let mut known = std::mem::take(&mut self.known);
        let room = match Room::handlers(&self.path) {
            Ok(room) => room,
            Err(FolderError::Missing { .. }) if !self.named => return Ok(Look::default()),
            Err(error) => return Err(error),
        };
        let Listing { groups, mut refused } =
            listing(&room).map_err(|reason| FolderError::Unreadable { path: self.path.clone(), reason })?;
        let mut files = Vec::new();
        for (name, roles) in groups {
            let role = match sole_role(&name, &roles) {
                Ok(role) => role,
                Err(claims) => {
                    refused.extend(claims);
                    continue;
                }
            };
            match handler(&room, &name, role, known.remove(&name)) {
                Ok((found, read)) => {
                    self.bytes_read = self.bytes_read.saturating_add(read);
                    files.push(found.file.clone());
                    if found.settled(now) {
                        self.known.insert(name, found);
                    }
                }
                // It went between two steps of this look.
                Err((_, Trouble::Flaw(Flaw::Missing))) => {}
                Err((role, trouble)) => refused.push(trouble.of(&name, role)),
            }
        }
        refused.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(Look { files, refused })
    }
}

impl Known {
    fn settled(&self, now: (i64, i64)) -> bool {
        self.stamp.changed < now && self.manifest_stamp.is_none_or(|stamp| stamp.changed < now)
    }
}

/// The names in a folder: handlers' files by their handler, and what is no handler's.
struct Listing {
    groups: BTreeMap<CapabilityName, BTreeSet<Role>>,
    refused: Vec<RefusedFile>,
}

/// The first [`ENTRIES_MAX`] names in their order, whatever order the folder has them in.
fn listing(room: &Room) -> io::Result<Listing> {
    let mut kept = BTreeSet::new();
    let mut beyond: Option<OsString> = None;
    let mut beyond_count = 0_usize;
    for entry in Dir::read_from(room.dir())? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if passed_over(name) {
            continue;
        }
        kept.insert(name.to_owned());
        if kept.len() > ENTRIES_MAX {
            beyond_count += 1;
            let last = kept.pop_last();
            beyond = match (beyond, last) {
                (Some(first), Some(last)) => Some(first.min(last)),
                (first, last) => first.or(last),
            };
        }
    }
    let mut listing = Listing { groups: BTreeMap::new(), refused: Vec::new() };
    for name in kept {
        match names::parse(&name) {
            Ok((handler, role)) => {
                listing.groups.entry(handler).or_default().insert(role);
            }
            Err(why) => listing.refused.push(RefusedFile { file: names::shown(&name), name: None, why }),
        }
    }
    if let Some(first) = beyond {
        // The handler that the cut goes through has files on both sides of it.
        if let Ok((cut, _)) = names::parse(&first) {
            beyond_count += listing.groups.remove(&cut).map_or(0, |roles| roles.len());
        }
        listing.refused.push(RefusedFile {
            file: "further files".to_owned(),
            name: None,
            why: format!("at most {ENTRIES_MAX} names are looked at, the first by name; {beyond_count} more lie here"),
        });
    }
    Ok(listing)
}

/// The one file that is the handler; else what is wrong with those that are there.
fn sole_role(name: &CapabilityName, roles: &BTreeSet<Role>) -> Result<Role, Vec<RefusedFile>> {
    let refused = |role: Role, why: String| RefusedFile { file: role.file_of(name), name: Some(name.clone()), why };
    let (binary, text) = (Role::Binary.file_of(name), Role::Text.file_of(name));
    match (roles.contains(&Role::Binary), roles.contains(&Role::Text)) {
        (true, false) => Ok(Role::Binary),
        (false, true) => Ok(Role::Text),
        (true, true) => {
            let why = format!("{binary} and {text} claim the same name, so neither is taken; remove one");
            Err(vec![refused(Role::Binary, why.clone()), refused(Role::Text, why)])
        }
        (false, false) => Err(vec![refused(Role::Manifest, format!("there is no {binary} or {text} beside it"))]),
    }
}

/// What is wrong with one of a handler's files.
enum Trouble {
    Flaw(Flaw),
    Content(String),
}

impl Trouble {
    fn of(self, name: &CapabilityName, role: Role) -> RefusedFile {
        let why = match self {
            Self::Flaw(flaw) => flaw.to_string(),
            Self::Content(why) => why,
        };
        RefusedFile { file: role.file_of(name), name: Some(name.clone()), why }
    }
}

/// The handler `name`: as it is known if its files are the same, else read. Also says how many bytes were read.
fn handler(
    room: &Room,
    name: &CapabilityName,
    role: Role,
    known: Option<Known>,
) -> Result<(Known, u64), (Role, Trouble)> {
    let file = role.file_of(name);
    let manifest_file = Role::Manifest.file_of(name);
    let stamp = room.stamp(&file, HANDLER_BYTES_MAX).map_err(|flaw| (role, Trouble::Flaw(flaw)))?;
    let manifest_stamp = match room.stamp(&manifest_file, MANIFEST_BYTES_MAX) {
        Ok(stamp) => Some(stamp),
        Err(Flaw::Missing) => None,
        Err(flaw) => return Err((Role::Manifest, Trouble::Flaw(flaw))),
    };
    let text = role == Role::Text;
    if let Some(known) = known
        && (known.stamp, known.manifest_stamp, known.file.text) == (stamp, manifest_stamp, text)
    {
        return Ok((known, 0));
    }
    // The small file first: a large one is not read for nothing.
    let said = match manifest_stamp {
        Some(_) => Some(manifest(room, &manifest_file).map_err(|trouble| (Role::Manifest, trouble))?),
        None => None,
    };
    let (bytes, stamp) = room.read(&file, HANDLER_BYTES_MAX).map_err(|flaw| (role, Trouble::Flaw(flaw)))?;
    let size = bytes.len() as u64;
    let (manifest, manifest_digest, manifest_stamp, manifest_size) = match said {
        Some(said) => (said.manifest, Some(said.digest), Some(said.stamp), said.size),
        None => (Manifest::default(), None, None, 0),
    };
    let digest = Digest::of(&bytes);
    let path = room.path_of(&file);
    let file = HandlerFile { name: name.clone(), path, text, digest, manifest_digest, manifest, bytes: size };
    Ok((Known { stamp, manifest_stamp, file }, size + manifest_size))
}

/// A `.toml` as it was read.
struct Said {
    manifest: Manifest,
    digest: Digest,
    stamp: Stamp,
    size: u64,
}

fn manifest(room: &Room, file: &str) -> Result<Said, Trouble> {
    let (bytes, stamp) = room.read(file, MANIFEST_BYTES_MAX).map_err(Trouble::Flaw)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Trouble::Content(format!("line {line}: not UTF-8 text"))
    })?;
    let manifest = Manifest::parse(text).map_err(|error| Trouble::Content(error.to_string()))?;
    Ok(Said { manifest, digest: Digest::of(&bytes), stamp, size: bytes.len() as u64 })
}

impl HandlerFile {
    /// Reads one file and its `.toml`, wherever they lie: the rules are those of the folder, except that they may also belong to
    /// whoever runs this program, and that a `.wat` and a `.wasm` of one name may lie side by side.
    ///
    /// # Errors
    /// [`RefusedFile`] with the reason.
    pub fn open(path: &Path) -> Result<Self, RefusedFile> {
        let file_name = path.file_name().unwrap_or_default();
        let file = names::shown(file_name);
        let (name, role) = match names::parse(file_name) {
            Ok(parsed) => parsed,
            Err(why) => return Err(RefusedFile { file, name: None, why }),
        };
        if role == Role::Manifest {
            let why = "this is what a keeper says about a handler; name the .wasm or .wat itself".to_owned();
            return Err(RefusedFile { file, name: Some(name), why });
        }
        let room = Room::around(path).map_err(|flaw| Trouble::Flaw(flaw).of(&name, role))?;
        match handler(&room, &name, role, None) {
            Ok((known, _)) => Ok(known.file),
            Err((role, trouble)) => Err(trouble.of(&name, role)),
        }
    }

    /// The file's bytes, read anew by the same rules, if they are still those of [`HandlerFile::digest`].
    ///
    /// # Errors
    /// One sentence with the file's name.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let role = if self.text { Role::Text } else { Role::Binary };
        let file = role.file_of(&self.name);
        let room = Room::around(&self.path).map_err(|flaw| format!("{file}: {flaw}"))?;
        let (bytes, _) = room.read(&file, HANDLER_BYTES_MAX).map_err(|flaw| format!("{file}: {flaw}"))?;
        if Digest::of(&bytes) == self.digest {
            Ok(bytes)
        } else {
            Err(format!("{file}: this is no longer the file that was looked at"))
        }
    }
}
