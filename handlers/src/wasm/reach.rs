//! What a handler may touch, judged against the machine as it stands.
//!
//! Owns the rules of a manifest's `reach`. Called when a file is looked into and again before each start of its process, since links and
//! mounts change. Every rule holds for the path as the manifest names it and for the one behind all links. Refused, each with a
//! sentence: what is, holds or lies under a folder of the device or of the system, or what carries the in-use sign; what is no folder;
//! a camera or a microphone without `captures = true`; the device's own listeners.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use config::manifest::{Origin, Reach};

use super::frame::Folder;
use super::workshop::Refused;

/// What no reach may touch.
#[derive(Debug, Clone, Default)]
pub struct Protected {
    /// Folders of the device, each with what it is in words: `the state folder`.
    pub folders: Vec<(PathBuf, &'static str)>,
    /// What carries the in-use sign: `/sys/class/leds/NAME`.
    pub sign_devices: Vec<PathBuf>,
    /// Where the device itself listens.
    pub listeners: Vec<SocketAddr>,
}

/// A reach whose paths were judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    pub(crate) folders: Vec<Folder>,
    pub(crate) http: Vec<Origin>,
}

/// Folders of the system that hold devices, processes, sockets, accounts and what starts the machine.
const SYSTEM: [(&str, &str); 5] = [
    ("/dev", "the folder of devices"),
    ("/proc", "the folder of processes"),
    ("/run", "the folder of sockets and locks"),
    ("/etc", "the folder of the system's settings"),
    ("/boot", "the folder that starts the machine"),
];
/// Where the system shows its devices.
const SYS: &str = "/sys";
/// Classes of devices that capture.
const CAPTURING: [(&str, &str); 2] = [("video4linux", "a camera"), ("sound", "a microphone")];
/// Names that lead to this machine on every system.
const OWN_NAMES: [&str; 4] = ["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"];

/// Judges a reach against what stands on the machine now.
///
/// # Errors
/// [`Refused`] with the first thing that may not be reached, and why.
pub fn check(reach: &Reach, captures: bool, protected: &Protected) -> Result<Resolved, Refused> {
    Judge { captures, protected, sys: Path::new(SYS) }.reach(reach)
}

/// Whether what was judged still stands where the manifest names it.
pub(crate) fn stands(folder: &Folder) -> bool {
    let inode = fs::metadata(&folder.named).map(|found| (found.dev(), found.ino()));
    inode.is_ok_and(|inode| inode == folder.inode)
        && fs::canonicalize(&folder.named).is_ok_and(|real| real == folder.real)
}

struct Judge<'a> {
    captures: bool,
    protected: &'a Protected,
    sys: &'a Path,
}

impl Judge<'_> {
    fn reach(&self, reach: &Reach) -> Result<Resolved, Refused> {
        let mut folders: Vec<Folder> = Vec::new();
        let writable = reach.write.iter().map(|path| (path, true));
        // Last, so that one named for both is writable.
        for (named, write) in writable.chain(reach.read.iter().map(|path| (path, false))) {
            if !folders.iter().any(|folder| folder.named == *named) {
                folders.push(self.folder(named, write).map_err(|why| refused(named, &why))?);
            }
        }
        for origin in &reach.http {
            if self.is_own_listener(origin) {
                let why = format!("reach: {origin} is this device itself, which answers its owner alone");
                return Err(Refused(why));
            }
        }
        Ok(Resolved { folders, http: reach.http.clone() })
    }

    fn folder(&self, named: &Path, write: bool) -> Result<Folder, String> {
        if !named.is_absolute() || named.components().any(|part| part == Component::ParentDir) {
            return Err("it is to be named from / on and without ..".to_owned());
        }
        self.place(named)?;
        let real = fs::canonicalize(named).map_err(|error| missing(&error))?;
        self.place(&real)?;
        let found = fs::metadata(&real).map_err(|error| missing(&error))?;
        if !found.is_dir() {
            return Err("it is not a folder".to_owned());
        }
        let inode = (found.dev(), found.ino());
        self.mounted_twice(&real, inode)?;
        self.capturing(named, &real)?;
        Ok(Folder { named: named.to_owned(), real, inode, write })
    }

    /// Holds one spelling of a path against what no handler may touch.
    fn place(&self, path: &Path) -> Result<(), String> {
        if path == Path::new("/") {
            return Err("it holds everything".to_owned());
        }
        for (closed, what) in self.closed() {
            if let Some(how) = touches(path, &closed) {
                return Err(format!("{how} {what} ({}), which no handler may touch", shown(&closed)));
            }
        }
        Ok(())
    }

    /// What no handler may touch, as it is named and as it is without links.
    fn closed(&self) -> impl Iterator<Item = (PathBuf, &'static str)> {
        let system = SYSTEM.iter().map(|(path, what)| (PathBuf::from(path), *what));
        let device = self.protected.folders.iter().cloned();
        let sign = self.protected.sign_devices.iter().map(|path| (path.clone(), "what carries the in-use sign"));
        system.chain(device).chain(sign).flat_map(|(path, what)| {
            let real = fs::canonicalize(&path).ok().filter(|real| *real != path);
            [Some(path), real].into_iter().flatten().map(move |path| (path, what))
        })
    }

    /// A folder that is mounted in two places has two paths and one inode; so have the folders that hold it, and it may hold others.
    fn mounted_twice(&self, real: &Path, inode: Inode) -> Result<(), String> {
        let above: Vec<_> = real.ancestors().filter_map(inode_of).collect();
        for (closed, what) in self.closed() {
            let Some(closed_inode) = inode_of(&closed) else { continue };
            let how = if closed_inode == inode {
                "it is"
            } else if above.contains(&closed_inode) {
                "it lies under"
            } else if closed.ancestors().skip(1).filter_map(inode_of).any(|holder| holder == inode) {
                "it holds"
            } else {
                continue;
            };
            return Err(format!("{how} {what} ({}), mounted elsewhere", shown(&closed)));
        }
        Ok(())
    }

    fn capturing(&self, named: &Path, real: &Path) -> Result<(), String> {
        if self.captures {
            return Ok(());
        }
        for (class, what) in CAPTURING {
            let folder = self.sys.join("class").join(class);
            let devices = fs::read_dir(&folder).into_iter().flatten();
            let devices = devices.filter_map(|entry| fs::canonicalize(entry.ok()?.path()).ok());
            let reached = devices
                .chain([folder])
                .any(|device| [named, real].into_iter().any(|path| touches(path, &device).is_some()));
            if reached {
                return Err(format!("{what} can be reached there, so its .toml needs captures = true"));
            }
        }
        Ok(())
    }

    fn is_own_listener(&self, origin: &Origin) -> bool {
        if !self.protected.listeners.iter().any(|listener| listener.port() == origin.port) {
            return false;
        }
        match origin.host.parse::<IpAddr>() {
            Ok(address) => is_own_address(address.to_canonical()),
            Err(_) => is_own_name(&origin.host),
        }
    }
}

/// Device and number: what a folder is, whatever path led to it.
type Inode = (u64, u64);

fn inode_of(path: &Path) -> Option<Inode> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// How one path touches another, if it does.
fn touches(path: &Path, other: &Path) -> Option<&'static str> {
    match (path.starts_with(other), other.starts_with(path)) {
        (true, true) => Some("it is"),
        (true, false) => Some("it lies under"),
        (false, true) => Some("it holds"),
        (false, false) => None,
    }
}

/// An address that this machine answers for. Only such a one can be bound.
fn is_own_address(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok()
}

fn is_own_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if OWN_NAMES.contains(&host.as_str()) || host.ends_with(".localhost") {
        return true;
    }
    let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let short = machine.split('.').next().unwrap_or_default();
    !short.is_empty() && (host == machine || host == short || host.strip_suffix(".local") == Some(short))
}

fn missing(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        io::ErrorKind::PermissionDenied => "this program may not look there".to_owned(),
        io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
        _ => format!("it cannot be looked at: {error}"),
    }
}

fn refused(named: &Path, why: &str) -> Refused {
    Refused(format!("reach: {}: {why}", shown(named)))
}

fn shown(path: &Path) -> String {
    wire::text::visible(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
