//! Native code that was compiled before, under a MAC.
//!
//! Owns the folder `cache/` and its key. Called by `workshop`, in blocking threads. Whoever could write native code here would run it
//! in the place of a handler, so an entry is used only when an HMAC over it, the digest of its source and the engine that made it holds;
//! a changed byte, another owner, a link or a loose mode is told once, the entry is removed, and the file is compiled anew. Nothing
//! here is needed: an empty folder costs time alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use config::digest::Digest;
use config::safe::{self, SafeError};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tracing::warn;

use super::frame::{Compiled, FROM_COMPILER_BYTES_MAX};
use crate::clock::Chance;

/// The file of the key.
const KEY_FILE: &str = "key";
/// As long as the MAC: more gives nothing.
const KEY_BYTES: usize = 32;
/// HMAC-SHA-256.
const MAC_BYTES: usize = 32;
/// Longest entry: what a compiler may say, and the MAC.
const ENTRY_BYTES_MAX: usize = FROM_COMPILER_BYTES_MAX + 64 * 1024;
/// Enough of the engine's digest to tell engines apart in a file's name; the MAC holds all of it.
const ENGINE_DIGITS: usize = 16;
/// Ends the names of entries.
const ENTRY_SUFFIX: &str = ".native";
/// Begins the names of files that were being written when the power went.
const UNFINISHED_PREFIX: &str = ".tmp";
/// Keeps these MACs apart from every other use of a key.
const DOMAIN: &[u8] = b"latchkey native code 1\0";

/// The folder of native code.
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
}

/// What stands before the native code of an entry.
#[derive(Serialize, Deserialize)]
struct Head {
    imports: Vec<String>,
    #[serde(with = "serde_bytes")]
    descriptor: Option<Vec<u8>>,
}

/// Why an entry is not used.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error(transparent)]
    File(SafeError),
    #[error("{}: its MAC does not hold, so it is not what was compiled here", path.display())]
    Mac { path: PathBuf },
    #[error("{}: it has no right form", path.display())]
    Form { path: PathBuf },
}

impl Cache {
    /// The folder, made where it is absent, and its key.
    ///
    /// # Errors
    /// [`SafeError`] when folder or key are not ours alone.
    pub(crate) fn open(folder: &Path, chance: &dyn Chance) -> Result<Self, SafeError> {
        safe::ensure_private_dir(folder)?;
        Ok(Self { folder: folder.to_owned(), key: key(&folder.join(KEY_FILE), chance)? })
    }

    /// What was compiled of this source by this engine, if it stands here unchanged.
    pub(crate) fn find(&self, digest: &Digest, engine: &str) -> Option<Compiled> {
        let path = self.path(digest, engine);
        let unfit = match self.read(&path, digest, engine) {
            Ok(compiled) => return Some(compiled),
            Err(Unfit::File(SafeError::Missing { .. })) => return None,
            Err(unfit) => unfit,
        };
        warn!(%digest, "native code is not used and will be compiled anew: {unfit}");
        if let Err(error) = fs::remove_file(&path) {
            warn!(%digest, "it could not be removed: {error}");
        }
        None
    }

    fn read(&self, path: &Path, digest: &Digest, engine: &str) -> Result<Compiled, Unfit> {
        let mut bytes = safe::read_private(path, ENTRY_BYTES_MAX).map_err(Unfit::File)?;
        let form = || Unfit::Form { path: path.to_owned() };
        let (mac, body) = bytes.split_first_chunk::<MAC_BYTES>().ok_or_else(form)?;
        // In constant time; nothing of the body is looked at before.
        self.mac(digest, engine, body).verify_slice(mac).map_err(|_| Unfit::Mac { path: path.to_owned() })?;
        let (length, rest) = body.split_first_chunk::<4>().ok_or_else(form)?;
        let head_bytes = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| form())?;
        let head = rest.get(..head_bytes).ok_or_else(form)?;
        let Head { imports, descriptor } = ciborium::from_reader(head).map_err(|_| form())?;
        let native = bytes.split_off(MAC_BYTES.saturating_add(4).saturating_add(head_bytes));
        Ok(Compiled { native, imports, descriptor })
    }

    /// Stores what was compiled: written beside, synced and renamed, so that it stands whole or not at all.
    ///
    /// # Errors
    /// [`SafeError`] when the disk refuses.
    pub(crate) fn keep(&self, digest: &Digest, engine: &str, compiled: &Compiled) -> Result<(), SafeError> {
        let path = self.path(digest, engine);
        let broken =
            |action, error: String| SafeError::System { path: path.clone(), action, source: io::Error::other(error) };
        let head = Head { imports: compiled.imports.clone(), descriptor: compiled.descriptor.clone() };
        let mut head_bytes = Vec::new();
        ciborium::into_writer(&head, &mut head_bytes).map_err(|error| broken("write", error.to_string()))?;
        let length = u32::try_from(head_bytes.len()).map_err(|error| broken("write", error.to_string()))?;
        let mut bytes = vec![0; MAC_BYTES];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&head_bytes);
        bytes.extend_from_slice(&compiled.native);
        if let Some((mac, body)) = bytes.split_first_chunk_mut::<MAC_BYTES>() {
            *mac = self.mac(digest, engine, body).finalize().into_bytes().into();
        }
        safe::write_private(&path, &bytes)
    }

    /// Removes entries of sources that are not `used`, of other engines where `engine` is known, and what was never finished.
    pub(crate) fn keep_only(&self, used: &[Digest], engine: Option<&str>) {
        let names = match fs::read_dir(&self.folder) {
            Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()),
            Err(error) => return warn!("the folder of native code cannot be read: {error}"),
        };
        let wanted = |name: &str| match name.strip_suffix(ENTRY_SUFFIX).and_then(|stem| stem.split_once('-')) {
            Some((digest, made_by)) => {
                used.iter().any(|used| used.to_string() == digest)
                    && engine.is_none_or(|engine| engine_digits(engine) == made_by)
            }
            // The key, and what is not ours to judge.
            None => !name.starts_with(UNFINISHED_PREFIX),
        };
        for name in names.filter(|name| !wanted(name)) {
            if let Err(error) = fs::remove_file(self.folder.join(&name)) {
                warn!("old native code could not be removed: {error}");
            }
        }
    }

    fn path(&self, digest: &Digest, engine: &str) -> PathBuf {
        self.folder.join(format!("{digest}-{}{ENTRY_SUFFIX}", engine_digits(engine)))
    }

    fn mac(&self, digest: &Digest, engine: &str, body: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of every length");
        mac.update(DOMAIN);
        mac.update(digest.as_bytes());
        // Its length first, so that nothing moves between the engine's text and the body.
        mac.update(&u64::try_from(engine.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(engine.as_bytes());
        mac.update(body);
        mac
    }
}

fn engine_digits(engine: &str) -> String {
    Digest::of(engine.as_bytes()).to_string().chars().take(ENGINE_DIGITS).collect()
}

/// The key, made at the first start. One of another length is replaced: what it vouched for is compiled anew.
fn key(path: &Path, chance: &dyn Chance) -> Result<[u8; KEY_BYTES], SafeError> {
    let found = match safe::read_private(path, KEY_BYTES) {
        Ok(bytes) => bytes.try_into().ok(),
        Err(SafeError::Missing { .. }) => None,
        Err(SafeError::TooLarge { .. }) => None,
        Err(other) => return Err(other),
    };
    if let Some(key) = found {
        return Ok(key);
    }
    let mut key = [0; KEY_BYTES];
    chance.fill(&mut key);
    safe::write_private(path, &key)?;
    Ok(key)
}

#[cfg(test)]
mod tests;
