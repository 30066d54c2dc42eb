//! Whether the whole chain holds, read page by page from the vault.

use wire::record::CHECKPOINT;
use wire::{PublicKey, Record, RecordHash};

use super::{Row, Vault, VaultError};
use crate::command::Reply;

/// Records read at once.
const PAGE: u32 = 500;

/// The chain so far.
struct Walk {
    count: u64,
    first: u64,
    last: u64,
    before: RecordHash,
    /// The pruned journal's first `before`, until a checkpoint vouches for it.
    unproven: Option<RecordHash>,
}

/// Walks the chain; damage is an answer, not an error.
pub(crate) fn verify(vault: &mut dyn Vault, device: &PublicKey) -> Result<Reply, VaultError> {
    let mut walk = Walk { count: 0, first: 0, last: 0, before: RecordHash::genesis(device), unproven: None };
    let mut problem = None;
    while problem.is_none() {
        let rows = vault.rows(walk.last, PAGE)?;
        if rows.is_empty() {
            break;
        }
        problem = rows.iter().find_map(|row| walk.step(row).err());
    }
    let head = vault.head()?;
    if problem.is_none() && walk.unproven.is_some() {
        problem = Some(format!("the journal begins at record {} and no checkpoint vouches for that", walk.first));
    }
    if problem.is_none() && head.is_some_and(|head| head.last != walk.last || head.hash != walk.before) {
        problem = Some("the end of the chain is not the one that was noted".to_owned());
    }
    let Walk { count, first, last, .. } = walk;
    Ok(Reply::Verified { count, first, last, ok: problem.is_none(), problem })
}

impl Walk {
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
