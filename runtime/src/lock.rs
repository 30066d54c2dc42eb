//! One daemon for each state folder.
//!
//! Owns `latchkeyd.lock`, held by the kernel for as long as the process lives, so that a killed daemon leaves nothing to clean up.
//! The file names the pid of the holder, for the sentence that a second daemon ends with.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The lock's name in the state folder.
const LOCK_FILE: &str = "latchkeyd.lock";

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("latchkeyd is running already for {} ({holder}); stop that one first, or name another folder with --state-dir", state_dir.display())]
    Held {
        /// The state folder.
        state_dir: PathBuf,
        /// `pid 123`.
        holder: String,
    },
    /// The lock cannot be made.
    #[error("cannot lock {}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// The lock; dropping it frees the folder.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the folder of a device that has run here before; where none has, nothing is made and nothing taken.
    ///
    /// # Errors
    /// [`LockError::Held`] names the daemon that has it.
    pub fn take_if_there(state_dir: &Path) -> Result<Option<Self>, LockError> {
        if state_dir.join(LOCK_FILE).exists() { Self::take(state_dir).map(Some) } else { Ok(None) }
    }

    /// Takes the folder.
    ///
    /// # Errors
    /// [`LockError::Held`] names the daemon that has it.
    pub fn take(state_dir: &Path) -> Result<Self, LockError> {
        let path = state_dir.join(LOCK_FILE);
        let system = |error: io::Error| LockError::System { path: path.clone(), error };
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(system)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LockError::Held { state_dir: state_dir.to_owned(), holder: holder(&mut file) });
            }
            Err(errno) => return Err(system(errno.into())),
        }
        file.set_len(0).map_err(system)?;
        writeln!(file, "{}", std::process::id()).map_err(system)?;
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(16).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("pid {pid}"),
        _ => "another process".to_owned(),
    }
}
