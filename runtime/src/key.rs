//! The device's secret key on disk.
//!
//! Owns `device.key` in the state folder: one line, the 32 bytes of the seed in base64url, mode 0600. Made once, at the first start;
//! never replaced, because controllers have pinned it and every record is bound to it. Refuses a state without its key.

use std::path::{Path, PathBuf};

use actors::STATE_FILE;
use config::safe::{self, SafeError};
use handlers::Chance;
use wire::SecretKey;
use wire::text::{base64url_decode, base64url_encode};
use zeroize::{Zeroize, Zeroizing};

/// The key's name in the state folder.
pub const KEY_FILE: &str = "device.key";

/// One line of 43 characters; a little more for those who edited it.
const KEY_BYTES_MAX: usize = 128;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// No device lives here.
    #[error("there is no device in {} yet", state_dir.display())]
    NoDevice {
        /// The state folder.
        state_dir: PathBuf,
    },
    /// The state is there and its key is not.
    #[error(
        "{} holds the state of a device, but not its key {KEY_FILE}; put the key back from a backup, or move {STATE_FILE} away to start as a new device",
        state_dir.display()
    )]
    Lost {
        /// The state folder.
        state_dir: PathBuf,
    },
    /// The file is not a key.
    #[error("{} is damaged; put it back from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file or folder is not safe.
    #[error(transparent)]
    Safe(#[from] SafeError),
}

/// Reads the key of a device that was started before.
///
/// # Errors
/// See [`KeyFileError`].
pub fn read(state_dir: &Path) -> Result<SecretKey, KeyFileError> {
    let path = state_dir.join(KEY_FILE);
    if !path.try_exists().unwrap_or(true) {
        let state_dir = state_dir.to_owned();
        let lost = state_dir.join(STATE_FILE).exists();
        return Err(if lost { KeyFileError::Lost { state_dir } } else { KeyFileError::NoDevice { state_dir } });
    }
    let bytes = Zeroizing::new(safe::read_private(&path, KEY_BYTES_MAX)?);
    parse(&bytes).ok_or(KeyFileError::Damaged { path })
}

/// Reads the key, or makes it at the first start. The flag says whether it was made.
///
/// # Errors
/// See [`KeyFileError`].
pub fn read_or_make(state_dir: &Path, chance: &dyn Chance) -> Result<(SecretKey, bool), KeyFileError> {
    match read(state_dir) {
        Ok(key) => Ok((key, false)),
        Err(KeyFileError::NoDevice { .. }) => {
            let mut seed = Zeroizing::new([0; 32]);
            chance.fill(seed.as_mut_slice());
            let mut line = Zeroizing::new(base64url_encode(seed.as_slice()));
            line.push('\n');
            let made = safe::create_private(&state_dir.join(KEY_FILE), line.as_bytes())?;
            // Somebody else's file that appeared meanwhile is read like any other.
            if made { Ok((SecretKey::from_seed(&seed), true)) } else { read(state_dir).map(|key| (key, false)) }
        }
        Err(error) => Err(error),
    }
}

fn parse(bytes: &[u8]) -> Option<SecretKey> {
    let text = std::str::from_utf8(bytes).ok()?;
    let decoded = Zeroizing::new(base64url_decode(text.trim_end()).ok()?);
    let mut seed: [u8; 32] = decoded.as_slice().try_into().ok()?;
    let key = SecretKey::from_seed(&seed);
    seed.zeroize();
    Some(key)
}
