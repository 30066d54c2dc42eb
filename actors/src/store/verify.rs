//! Whether the whole chain holds, read page by page from the vault.
//!
//! Called by the keeper's `receipts --verify`, with and without a daemon. The verdict names the first record that is wrong.

use wire::record::CHECKPOINT;
use wire::{PublicKey, Record, RecordHash};

use super::{Row, Vault, VaultError};
use crate::command::Reply;

/// Records read at once.
const PAGE: u32 = 500;

/// The chain so far.
#[derive(Debug)]
pub(crate) struct Walk {
    count: u64,
    first: u64,
    last: u64,
    before: RecordHash,
    /// The pruned journal's first `before`, until a checkpoint vouches for it.
    unproven: Option<RecordHash>,
}

/// Walks the chain; damage is an answer, not an error.
pub(crate) fn verify(vault: &mut dyn Vault, device: &PublicKey) -> Result<Reply, VaultError> {
    let mut walk = Walk::begin(device);
    loop {
        if let Some(verdict) = walk.page(vault)? {
            return Ok(verdict);
        }
    }
}

impl Walk {
    pub(crate) fn begin(device: &PublicKey) -> Self {
        Self { count: 0, first: 0, last: 0, before: RecordHash::genesis(device), unproven: None }
    }

    /// Goes on by a page; the verdict comes with the first flaw or after the last record.
    pub(crate) fn page(&mut self, vault: &mut dyn Vault) -> Result<Option<Reply>, VaultError> {
        let rows = vault.rows(self.last, PAGE)?;
        if let Some(problem) = rows.iter().find_map(|row| self.step(row).err()) {
            return Ok(Some(self.verdict(Some(problem))));
        }
        if !rows.is_empty() {
            return Ok(None);
        }
        let head = vault.head()?;
        let problem = if self.unproven.is_some() {
            Some(format!("the journal begins at record {} and no checkpoint vouches for that", self.first))
        } else if head.is_some_and(|head| head.last != self.last || head.hash != self.before) {
            Some("the end of the chain is not the one that was noted".to_owned())
        } else {
            None
        };
        Ok(Some(self.verdict(problem)))
    }

    fn verdict(&self, problem: Option<String>) -> Reply {
        let Self { count, first, last, .. } = *self;
        Reply::Verified { count, first, last, ok: problem.is_none(), problem }
    }

    fn step(&mut self, row: &Row) -> Result<(), String> {
        let sequence = row.sequence;
        let record = Record::from_cbor(&row.cbor).map_err(|error| format!("record {sequence} is damaged: {error}"))?;
        if record.sequence != sequence {
            return Err(format!("record {sequence} says that it is {}", record.sequence));
        }
        if self.count == 0 && sequence > 1 {
            self.unproven = Some(record.before);
        } else if self.count > 0 && sequence != self.last + 1 {
            return Err(format!("record {} is missing", self.last + 1));
        } else if record.before != self.before {
            return Err(format!("record {sequence} does not follow the one before it"));
        }
        let vouches = record.kind == wire::record::RecordKind::Keeper && record.what.as_deref() == Some(CHECKPOINT);
        if vouches && self.unproven.is_some_and(|hash| record.value_digest == Some(*hash.as_bytes())) {
            self.unproven = None;
        }
        if self.count == 0 {
            self.first = sequence;
        }
        self.count += 1;
        self.last = sequence;
        self.before = RecordHash::of(&row.cbor);
        Ok(())
    }
}
