//! A controller's state folder: one folder for each agent with its key, its inventory and its lock.
//!
//! ```text
//! STATE/agents/ADDRESS/key               32 bytes in base64url, mode 0600
//! STATE/agents/ADDRESS/inventory.json    the devices, mode 0600
//! STATE/agents/ADDRESS/lock              held by the one process that uses the key
//! ```
//!
//! Used by the program `latchkey`, and by servers that want the same. Folders must be 0700 and ours; loose permissions
//! are refused with the command that mends them. The lock ends with the process, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::safe::{self, SafeError};
use rustix::fs::{FlockOperation, flock};
use tokio::time::Instant;
use wire::keys::{PublicKey, SecretKey, Signer};
use wire::text::Agent;
use zeroize::Zeroizing;

use crate::inventory::{INVENTORY_BYTES_MAX, Inventory, Store, StoreError};
use crate::outside::{Chance, ChanceError};

/// A key file has 43 characters and perhaps a line end.
const KEY_BYTES_MAX: usize = 64;

/// How long a second process waits for the first to finish with the key.
const LOCK_WAIT: Duration = Duration::from_secs(3);

/// A process id and a line end.
const PID_BYTES_MAX: u64 = 32;

/// How often it looks.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// What can be wrong with the folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Permissions, owner, or the file system; says how to mend it.
    #[error(transparent)]
    Unsafe(#[from] SafeError),
    /// The file system.
    #[error("{} cannot be used", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The key file does not hold a key.
    #[error("{} is damaged and was left as it is; put back a copy of it, or make a new agent", path.display())]
    KeyDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The agent exists.
    #[error("the agent {0} has a key already; see: latchkey agent show {0}")]
    AgentExists(Agent),
    /// There is no agent at all.
    #[error("there is no agent yet; make one: latchkey agent new NAME@SCOPE.PROVIDER")]
    NoAgents,
    /// There is no such agent.
    #[error("there is no agent {wanted} here; there is: {}", .known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchAgent {
        /// What was asked for.
        wanted: String,
        /// Those that exist.
        known: Vec<Agent>,
    },
    /// There is more than one agent.
    #[error("there is more than one agent; say which with --agent: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    WhichAgent(Vec<Agent>),
    /// Another process uses the key.
    #[error("another latchkey{} is using the key of {agent}; one process at a time may, so try again when it is done", .pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked {
        /// The agent.
        agent: Agent,
        /// The other process.
        pid: Option<String>,
    },
    /// The random source.
    #[error(transparent)]
    Chance(#[from] ChanceError),
}

/// A state folder.
#[derive(Debug, Clone)]
pub struct Folder {
    agents: PathBuf,
}

/// One agent's part of it.
#[derive(Debug, Clone)]
pub struct AgentFolder {
    agent: Agent,
    path: PathBuf,
}

/// The right to use an agent's key; ends when dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Folder {
    /// Opens the folder, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// [`FolderError::Unsafe`] with the mend.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        safe::ensure_private_dir(path)?;
        let agents = path.join("agents");
        safe::ensure_private_dir(&agents)?;
        Ok(Self { agents })
    }

    /// All agents, by name.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn agents(&self) -> Result<Vec<AgentFolder>, FolderError> {
        let failed = |source| FolderError::File { path: self.agents.clone(), source };
        let mut agents = Vec::new();
        for entry in std::fs::read_dir(&self.agents).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // What is not named like an agent was not put there by us.
            if let Some(agent) = entry.file_name().to_str().and_then(|name| name.parse::<Agent>().ok()) {
                agents.push(AgentFolder { agent, path: entry.path() });
            }
        }
        agents.sort_by(|a, b| a.agent.as_str().cmp(b.agent.as_str()));
        Ok(agents)
    }

    /// The agent that `wanted` names, or the only one.
    ///
    /// # Errors
    ///
    /// [`FolderError::NoAgents`], [`FolderError::NoSuchAgent`], [`FolderError::WhichAgent`].
    pub fn agent(&self, wanted: Option<&str>) -> Result<AgentFolder, FolderError> {
        let agents = self.agents()?;
        let names = || agents.iter().map(|one| one.agent.clone()).collect::<Vec<_>>();
        match (wanted, agents.as_slice()) {
            (_, []) => Err(FolderError::NoAgents),
            (None, [only]) => Ok(only.clone()),
            (None, [_, ..]) => Err(FolderError::WhichAgent(names())),
            (Some(wanted), _) => agents
                .iter()
                .find(|one| one.agent.as_str() == wanted)
                .cloned()
                .ok_or_else(|| FolderError::NoSuchAgent { wanted: wanted.to_owned(), known: names() }),
        }
    }

    /// Makes an agent with a new key.
    ///
    /// # Errors
    ///
    /// [`FolderError::AgentExists`] rather than replacing a key.
    pub fn new_agent(&self, agent: &Agent, chance: &dyn Chance) -> Result<(AgentFolder, PublicKey), FolderError> {
        let path = self.agents.join(agent.as_str());
        safe::ensure_private_dir(&path)?;
        let mut seed = Zeroizing::new([0_u8; 32]);
        chance.fill(seed.as_mut_slice())?;
        let key = SecretKey::from_seed(&seed);
        let text = Zeroizing::new(wire::text::base64url_encode(seed.as_slice()) + "\n");
        if !safe::create_private(&path.join("key"), text.as_bytes())? {
            return Err(FolderError::AgentExists(agent.clone()));
        }
        Ok((AgentFolder { agent: agent.clone(), path }, key.public().clone()))
    }
}

impl AgentFolder {
    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Its key.
    ///
    /// # Errors
    ///
    /// [`FolderError::Unsafe`] with the mend, [`FolderError::KeyDamaged`].
    pub fn signer(&self) -> Result<Arc<dyn Signer>, FolderError> {
        safe::check_private_dir(&self.path)?;
        let path = self.path.join("key");
        let text = Zeroizing::new(safe::read_private(&path, KEY_BYTES_MAX)?);
        let seed = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| wire::text::base64url_decode(text.trim_end()).ok())
            .map(Zeroizing::new)
            .and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok())
            .map(Zeroizing::new)
            .ok_or(FolderError::KeyDamaged { path })?;
        Ok(Arc::new(SecretKey::from_seed(&seed)))
    }

    /// Its inventory.
    #[must_use]
    pub fn store(&self) -> InventoryFile {
        InventoryFile { path: self.path.join("inventory.json") }
    }

    /// Waits a little for the right to use the key.
    ///
    /// # Errors
    ///
    /// [`FolderError::Locked`] with the pid of the process that has it.
    pub async fn lock(&self) -> Result<Lock, FolderError> {
        safe::check_private_dir(&self.path)?;
        let path = self.path.join("lock");
        let failed = |source| FolderError::File { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let until = Instant::now() + LOCK_WAIT;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= until {
                let mut pid = String::new();
                let read = (&mut file).take(PID_BYTES_MAX).read_to_string(&mut pid).is_ok();
                let pid = Some(pid.trim().to_owned()).filter(|pid| read && !pid.is_empty());
                return Err(FolderError::Locked { agent: self.agent.clone(), pid });
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Lock { _file: file })
    }
}

/// An inventory in a file of its own.
#[derive(Debug, Clone)]
pub struct InventoryFile {
    path: PathBuf,
}

impl Store for InventoryFile {
    fn load(&self) -> Result<Inventory, StoreError> {
        let bytes = match safe::read_private(&self.path, INVENTORY_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(SafeError::Missing { .. }) => return Ok(Inventory::default()),
            Err(other) => return Err(StoreError::File(Box::new(other))),
        };
        Inventory::from_json(&bytes).map_err(|source| StoreError::Unreadable { path: self.path.clone(), source })
    }

    fn save(&self, inventory: &Inventory) -> Result<(), StoreError> {
        let json = inventory.to_json().map_err(|error| StoreError::File(Box::new(error)))?;
        safe::write_private(&self.path, &json).map_err(|error| StoreError::File(Box::new(error)))
    }
}

#[cfg(test)]
mod tests;
