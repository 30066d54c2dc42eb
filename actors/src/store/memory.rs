//! A vault in memory: for tests in simulated time, and for measuring what durability costs. No setting leads here.

use std::collections::BTreeMap;

use wire::{Id, RecordHash};

use super::{Durable, Head, OpenRow, OutcomeRow, Row, Vault, VaultError};

/// Records and state that are gone with the process. Transactions roll back like those on disk.
#[derive(Debug, Default, Clone)]
pub struct MemoryVault {
    now: Content,
    before: Option<Box<Content>>,
    keep_records: Option<usize>,
}

#[derive(Debug, Default, Clone)]
struct Content {
    durable: Option<Durable>,
    rows: BTreeMap<u64, (Row, RecordHash)>,
    last: Option<Head>,
    outcomes: BTreeMap<(u64, Id), OutcomeRow>,
    open: BTreeMap<u64, OpenRow>,
}

impl MemoryVault {
    /// An empty vault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A vault that keeps only the last so many records and cannot roll back: a measurement may write millions.
    #[must_use]
    pub fn bounded(records: usize) -> Self {
        Self { keep_records: Some(records), ..Self::default() }
    }
}

impl Vault for MemoryVault {
    fn recover(&mut self) -> Result<(), VaultError> {
        self.rollback();
        Ok(())
    }

    fn begin(&mut self) -> Result<(), VaultError> {
        if self.keep_records.is_none() {
            self.before = Some(Box::new(self.now.clone()));
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), VaultError> {
        self.before = None;
        Ok(())
    }

    fn rollback(&mut self) {
        if let Some(before) = self.before.take() {
            self.now = *before;
        }
    }

    fn durable(&mut self) -> Result<Option<Durable>, VaultError> {
        Ok(self.now.durable.clone())
    }

    fn put_durable(&mut self, durable: &Durable) -> Result<(), VaultError> {
        self.now.durable = Some(durable.clone());
        Ok(())
    }

    fn head(&mut self) -> Result<Option<Head>, VaultError> {
        let first = self.now.rows.first_key_value().map_or(0, |(sequence, _)| *sequence);
        Ok(self.now.last.map(|head| Head { first, ..head }))
    }

    fn append(&mut self, row: &Row, hash: &RecordHash) -> Result<(), VaultError> {
        self.now.last = Some(Head { first: 0, last: row.sequence, hash: *hash });
        self.now.rows.insert(row.sequence, (row.clone(), *hash));
        if self.keep_records.is_some_and(|most| self.now.rows.len() > most) {
            self.now.rows.pop_first();
        }
        Ok(())
    }

    fn rows(&mut self, after: u64, limit: u32) -> Result<Vec<Row>, VaultError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let range = self.now.rows.range(after.saturating_add(1)..);
        Ok(range.take(limit).map(|(_, (row, _))| row.clone()).collect())
    }

    fn outcome(&mut self, ownership: u64, id: &Id) -> Result<Option<OutcomeRow>, VaultError> {
        Ok(self.now.outcomes.get(&(ownership, *id)).cloned())
    }

    fn put_outcome(&mut self, ownership: u64, id: &Id, row: &OutcomeRow) -> Result<(), VaultError> {
        self.now.outcomes.insert((ownership, *id), row.clone());
        Ok(())
    }

    fn forget_outcome(&mut self, ownership: u64, id: &Id) -> Result<(), VaultError> {
        self.now.outcomes.remove(&(ownership, *id));
        Ok(())
    }

    fn forget_outcomes(&mut self, ownership: u64, before_ms: u64) -> Result<(), VaultError> {
        self.now.outcomes.retain(|(of, _), row| *of == ownership && row.at_ms >= before_ms);
        Ok(())
    }

    fn put_open(&mut self, row: &OpenRow) -> Result<(), VaultError> {
        self.now.open.insert(row.sequence, row.clone());
        Ok(())
    }

    fn close(&mut self, sequence: u64) -> Result<(), VaultError> {
        self.now.open.remove(&sequence);
        Ok(())
    }

    fn open_calls(&mut self) -> Result<Vec<OpenRow>, VaultError> {
        Ok(self.now.open.values().cloned().collect())
    }

    fn record_bytes(&mut self) -> Result<u64, VaultError> {
        let bytes: usize = self.now.rows.values().map(|(row, _)| row.cbor.len()).sum();
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    fn first_since(&mut self, at_ms: u64) -> Result<Option<u64>, VaultError> {
        Ok(self.now.rows.values().find(|(row, _)| row.at_ms >= at_ms).map(|(row, _)| row.sequence))
    }

    fn prune(&mut self, before: u64) -> Result<(), VaultError> {
        self.now.rows.retain(|sequence, _| *sequence >= before);
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), VaultError> {
        Ok(())
    }

    fn note_head(&mut self, _head: &Head) -> Result<(), VaultError> {
        Ok(())
    }

    fn close_vault(&mut self) {}
}
