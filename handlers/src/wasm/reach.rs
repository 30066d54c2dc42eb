//! reach (being written).

use std::net::SocketAddr;
use std::path::PathBuf;

use config::manifest::{Origin, Reach};

use super::Refused;
use super::frame::Folder;

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

/// Judges a reach against what stands on the machine now.
///
/// # Errors
/// [`Refused`] with the first thing that may not be reached, and why.
pub fn check(reach: &Reach, captures: bool, protected: &Protected) -> Result<Resolved, Refused> {
    let _ = (captures, protected);
    Ok(Resolved { folders: Vec::new(), http: reach.http.clone() })
}
