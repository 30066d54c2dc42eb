//! The state of a device whose daemon does not run, read-only.
//!
//! Called by the keeper's command line. Answers what only reads; refuses everything else with how to start the daemon.

use std::cell::RefCell;
use std::path::Path;

use wire::{PublicKey, Signer};

use super::{Head, SqliteVault, Vault, VaultError, verify};
use crate::command::{Command, FailCode, GrantLine, JournalLine, OwnerLine, Reply, Status};
use crate::{keeper, ownership, seals};
use wire::RecordHash;

/// Reads what is on disk; changes nothing.
#[derive(Debug)]
pub struct Reader {
    vault: RefCell<SqliteVault>,
    device: PublicKey,
}

impl Reader {
    /// Opens the state of a device for reading. None: there is no state yet.
    ///
    /// # Errors
    ///
    /// [`VaultError`] when the state cannot be read, is damaged, or is of a newer version.
    pub fn open(state_dir: &Path, device: &PublicKey) -> Result<Option<Self>, VaultError> {
        let vault = SqliteVault::open_to_read(state_dir)?;
        Ok(vault.map(|vault| Self { vault: RefCell::new(vault), device: device.clone() }))
    }

    /// Answers the commands that need no daemon; for the others it says how to start one.
    #[must_use]
    pub fn command(&self, signer: &dyn Signer, now_wall_ms: u64, command: &Command) -> Reply {
        let answered = match command {
            Command::Status => self.status(),
            Command::Claims => self.durable().map(|durable| Reply::Claims {
                claims: durable.changes.iter().map(|change| ownership::waiting(&durable, change)).collect(),
            }),
            Command::Grants => self.durable().map(|durable| Reply::Grants {
                grants: durable
                    .grants
                    .iter()
                    .map(|(name, row)| GrantLine {
                        name: name.to_string(),
                        on: true,
                        capabilities: Vec::new(),
                        since: Some(row.since_ms),
                    })
                    .collect(),
            }),
            Command::Receipts { after, limit, .. } => {
                let limit = (*limit).clamp(1, keeper::RECORDS_MAX);
                self.head().and_then(|head| Ok(keeper::lines(&self.vault.borrow_mut().rows(*after, limit)?, head.last)))
            }
            Command::Verify => self.verify(),
            Command::ExportHead => self.head().map(|head| keeper::export_tail(signer, &head, now_wall_ms)),
            Command::ExportPage { after, until } => {
                self.vault.borrow_mut().rows(*after, keeper::RECORDS_MAX).map(|rows| keeper::page(&rows, *until))
            }
            Command::Pair
            | Command::ClosePairing
            | Command::Approve { .. }
            | Command::Refuse { .. }
            | Command::Grant { .. }
            | Command::Revoke { .. }
            | Command::Release
            | Command::Deactivate
            | Command::Handlers
            | Command::HandlerLog { .. }
            | Command::Restart { .. } => {
                let message = "latchkeyd is not running, and this needs it; start it with: latchkeyd run".to_owned();
                return Reply::Failed { code: FailCode::NotNow, message };
            }
        };
        answered.unwrap_or_else(|error| Reply::Failed { code: FailCode::Storage, message: error.to_string() })
    }

    fn verify(&self) -> Result<Reply, VaultError> {
        let mut vault = self.vault.borrow_mut();
        vault.begin_reading()?;
        let verdict = verify::verify(&mut *vault, &self.device);
        vault.rollback();
        verdict
    }

    fn durable(&self) -> Result<super::Durable, VaultError> {
        Ok(self.vault.borrow_mut().durable()?.unwrap_or_else(|| super::Durable::new("")))
    }

    fn head(&self) -> Result<Head, VaultError> {
        let found = self.vault.borrow_mut().head()?;
        Ok(found.unwrap_or_else(|| Head { first: 0, last: 0, hash: RecordHash::genesis(&self.device) }))
    }

    fn status(&self) -> Result<Reply, VaultError> {
        let durable = self.durable()?;
        Ok(Reply::Status(Box::new(Status {
            device: self.device.to_string(),
            fingerprint: self.device.fingerprint(),
            name: String::new(),
            version: String::new(),
            simulated: false,
            running: false,
            pid: None,
            owner: durable.owner.as_ref().map(OwnerLine::from),
            ownership: durable.ownership,
            active_until: None,
            pairing_until: None,
            waiting: keeper::pending(&durable),
            grants_on: durable.grants.keys().map(ToString::to_string).collect(),
            waiting_handlers: seals::waiting_unseen(&durable),
            journal: JournalLine::from(self.head()?),
            sign: "not running".to_owned(),
            notices: Vec::new(),
            tree: None,
        })))
    }
}
