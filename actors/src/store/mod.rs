//! The store: one thread, the only holder of the database, and the chain of records.
//!
//! Everything that must outlive a power cut goes through [`Store::write`]: the record and what it stands for (an ownership
//! change with its grant reset, the stored outcome of a call) are one transaction. The thread takes whatever has come in
//! while the last transaction was synced and commits it together, without a timer: one sync serves many calls under load and
//! adds no wait at rest. A failed commit fails all of its batch and changes nothing, the chain included.

mod durable;
mod memory;
mod reader;
mod schema;
mod sqlite;
mod thread;
pub(crate) mod verify;

use handlers::BootTime;
use wire::{Id, RecordHash};

pub use durable::{
    Change, ChangeKind, ChangeState, Deadline, Durable, FolderMemory, GrantRow, OwnerRow, Seal, Withdrawn, WithdrawnBy,
};
pub use memory::MemoryVault;
pub use reader::Reader;
pub use sqlite::{OpenedVault, STATE_FILE, SqliteVault};
pub(crate) use thread::{Effect, Store, StoreError, Written};

/// Why a vault cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// No room to write.
    #[error("the disk is full; free some space on it")]
    Full,
    /// The state was written by a newer program.
    #[error(
        "{path} was written by a newer latchkeyd (state version {found}, this program knows {known}): use that program, or restore the folder as it was before"
    )]
    Newer {
        /// The database file.
        path: String,
        /// Its version.
        found: i64,
        /// The version of this program.
        known: i64,
    },
    /// The content makes no sense.
    #[error("the state is damaged: {0}")]
    Damaged(String),
    /// The database says no.
    #[error("the database refuses: {0}")]
    Database(String),
    /// The files cannot be reached.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        error: String,
    },
}

/// The end of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Sequence number of the first record kept; 0 when there is none.
    pub first: u64,
    /// Sequence number of the last record; 0 when there is none.
    pub last: u64,
    /// Hash of the last record, or the genesis hash.
    pub hash: RecordHash,
}

/// A record as it lies in the vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Sequence number.
    pub sequence: u64,
    /// The record's deterministic CBOR.
    pub cbor: Vec<u8>,
    /// The salt of its digests; exported only on demand.
    pub salt: [u8; 16],
    /// When it was written, wall-clock milliseconds; decides what is pruned.
    pub at_ms: u64,
}

/// The outcome of a call of effect `change`, kept for 24 hours under (ownership number, id).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRow {
    /// Digest of capability and arguments.
    pub content: [u8; 32],
    /// The outcome as JSON; none while nothing proves how it ended.
    pub outcome: Option<String>,
    /// When it was begun, wall-clock milliseconds.
    pub at_ms: u64,
}

/// A call that was begun and whose end is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRow {
    /// Sequence number of its started record.
    pub sequence: u64,
    /// Ownership number.
    pub ownership: u64,
    /// The request's id.
    pub id: Id,
    /// The capability.
    pub what: String,
}

/// Where state and records live. The store's thread calls it, nobody else.
///
/// Between [`Vault::begin`] and [`Vault::commit`] all writes are one transaction; what commit has returned for survives a power
/// cut. Implementations: [`SqliteVault`], and [`MemoryVault`] for tests and measurements.
pub trait Vault: Send {
    /// Makes the vault usable again after a panic or an error of its own: a new connection.
    fn recover(&mut self) -> Result<(), VaultError>;
    /// Begins a transaction.
    fn begin(&mut self) -> Result<(), VaultError>;
    /// Makes the transaction durable.
    fn commit(&mut self) -> Result<(), VaultError>;
    /// Drops the transaction.
    fn rollback(&mut self);
    /// The state; none in a new vault.
    fn durable(&mut self) -> Result<Option<Durable>, VaultError>;
    /// Replaces the state.
    fn put_durable(&mut self, durable: &Durable) -> Result<(), VaultError>;
    /// First and last sequence number, and the last record's hash; none when there is no record.
    fn head(&mut self) -> Result<Option<Head>, VaultError>;
    /// Appends a record.
    fn append(&mut self, row: &Row, hash: &RecordHash) -> Result<(), VaultError>;
    /// Records with a greater sequence number, oldest first, at most so many.
    fn rows(&mut self, after: u64, limit: u32) -> Result<Vec<Row>, VaultError>;
    /// A stored outcome.
    fn outcome(&mut self, ownership: u64, id: &Id) -> Result<Option<OutcomeRow>, VaultError>;
    /// Stores an outcome.
    fn put_outcome(&mut self, ownership: u64, id: &Id, row: &OutcomeRow) -> Result<(), VaultError>;
    /// Forgets one outcome: its call was begun on record and then refused after all.
    fn forget_outcome(&mut self, ownership: u64, id: &Id) -> Result<(), VaultError>;
    /// Forgets outcomes of former ownerships and those begun before a moment.
    fn forget_outcomes(&mut self, ownership: u64, before_ms: u64) -> Result<(), VaultError>;
    /// Notes a begun call.
    fn put_open(&mut self, row: &OpenRow) -> Result<(), VaultError>;
    /// Forgets a begun call.
    fn close(&mut self, sequence: u64) -> Result<(), VaultError>;
    /// The begun calls.
    fn open_calls(&mut self) -> Result<Vec<OpenRow>, VaultError>;
    /// How many bytes the records take, about.
    fn record_bytes(&mut self) -> Result<u64, VaultError>;
    /// The first sequence number written at or after a moment, if any is.
    fn first_since(&mut self, at_ms: u64) -> Result<Option<u64>, VaultError>;
    /// Deletes records with a smaller sequence number.
    fn prune(&mut self, before: u64) -> Result<(), VaultError>;
    /// Housekeeping that must not stand in the way of a commit; called when nothing waits.
    fn tidy(&mut self) -> Result<(), VaultError>;
    /// Notes the end of the chain outside the records, so that a vanished journal is noticed.
    fn note_head(&mut self, head: &Head) -> Result<(), VaultError>;
    /// A clean end.
    fn close_vault(&mut self);
}

/// How long a stored outcome answers a repeated id (PROTOCOL.md section 6).
pub(crate) const OUTCOME_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long a decided change still answers `change.status` (PROTOCOL.md section 7).
pub(crate) const DECISION_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

impl Deadline {
    /// A moment so long from now, on the boot clock, with its wall-clock label.
    pub(crate) fn after(now: BootTime, wall_ms: u64, life_ms: u64) -> Self {
        Self { boot_ms: now.as_ms().saturating_add(life_ms), wall_ms: wall_ms.saturating_add(life_ms) }
    }

    /// Whether it is reached.
    pub(crate) fn reached(&self, now: BootTime) -> bool {
        now.as_ms() >= self.boot_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_what_to_do_about_it() {
        let told = StoreError::Refused(VaultError::Full.to_string()).to_string();
        assert_eq!(told, "no record can be written: the disk is full; free some space on it");
    }
}
