//! A vault that fails, panics, blocks or is copied at an operation of the test's choice.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use latchkey_actors::store::{Durable, Head, OpenRow, OutcomeRow, Row};
use latchkey_actors::{Vault, VaultError};
use tokio::sync::watch;
use wire::{Id, RecordHash};

use crate::fakes::Trace;

/// The operations of a vault by which tests choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Recover,
    Begin,
    Commit,
    Durable,
    PutDurable,
    Head,
    Append,
    Rows,
    Outcome,
    PutOutcome,
    ForgetOutcome,
    ForgetOutcomes,
    PutOpen,
    Close,
    OpenCalls,
    NoteHead,
    Other,
}

/// What befalls the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Full,
    Panic,
    /// It has done what was asked, and panics then.
    PanicAfter,
    Block,
}

/// What the tests hold of a vault that has moved to the store's thread.
pub(crate) struct Plan {
    trouble: Mutex<Vec<(Op, Trouble, u32)>>,
    open: (Mutex<bool>, Condvar),
    /// Times trouble befell.
    pub(crate) befell: watch::Sender<u32>,
    pub(crate) dropped: watch::Sender<bool>,
    /// Times old records were looked for.
    pub(crate) looked: watch::Sender<u32>,
    copies: Mutex<Option<Copies>>,
    trace: Arc<Trace>,
}

struct Copies {
    from: PathBuf,
    to: PathBuf,
    count: u32,
    note: Box<dyn Fn() -> u32 + Send>,
    notes: Vec<(PathBuf, Op, u32)>,
}

impl Plan {
    pub(crate) fn new(trace: &Arc<Trace>) -> Arc<Self> {
        Arc::new(Self {
            trouble: Mutex::default(),
            open: (Mutex::new(true), Condvar::new()),
            befell: watch::Sender::new(0),
            dropped: watch::Sender::new(false),
            looked: watch::Sender::new(0),
            copies: Mutex::new(None),
            trace: Arc::clone(trace),
        })
    }

    /// From now on each such operation meets the trouble.
    pub(crate) fn set(&self, op: Op, trouble: Trouble) {
        self.set_times(op, trouble, u32::MAX);
    }

    pub(crate) fn set_times(&self, op: Op, trouble: Trouble, times: u32) {
        if trouble == Trouble::Block {
            *self.open.0.lock().unwrap() = false;
        }
        self.trouble.lock().unwrap().push((op, trouble, times));
    }

    /// No trouble any more; what was blocked goes on.
    pub(crate) fn clear(&self) {
        self.trouble.lock().unwrap().clear();
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }

    /// From now on the folder is copied before each operation, as a power cut would leave it, with a number beside it.
    pub(crate) fn copy(&self, from: &Path, to: &Path, note: impl Fn() -> u32 + Send + 'static) {
        let (from, to) = (from.to_owned(), to.to_owned());
        *self.copies.lock().unwrap() = Some(Copies { from, to, count: 0, note: Box::new(note), notes: Vec::new() });
    }

    /// The copies, each with the operation before which it was made and its number.
    pub(crate) fn copies(&self) -> Vec<(PathBuf, Op, u32)> {
        self.copies.lock().unwrap().take().map(|copies| copies.notes).unwrap_or_default()
    }

    fn meets(&self, op: Op) -> Option<Trouble> {
        if let Some(copies) = &mut *self.copies.lock().unwrap() {
            copies.make(op);
        }
        let mut planned = self.trouble.lock().unwrap();
        let (_, trouble, left) = planned.iter_mut().find(|(at, _, left)| *at == op && *left > 0)?;
        *left -= 1;
        let trouble = *trouble;
        drop(planned);
        self.befell.send_modify(|times| *times += 1);
        Some(trouble)
    }
}

impl Copies {
    fn make(&mut self, op: Op) {
        let to = self.to.join(format!("{:03}", self.count));
        self.count += 1;
        // Another process copies: closing a second descriptor here would drop SQLite's locks.
        let copied = std::process::Command::new("cp").arg("-r").arg(&self.from).arg(&to).status().unwrap();
        assert!(copied.success());
        self.notes.push((to, op, (self.note)()));
    }
}

pub(crate) struct Trap {
    pub(crate) inner: Box<dyn Vault>,
    pub(crate) plan: Arc<Plan>,
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.plan.dropped.send_replace(true);
    }
}

impl Trap {
    fn at<T>(&mut self, op: Op, act: impl FnOnce(&mut dyn Vault) -> Result<T, VaultError>) -> Result<T, VaultError> {
        match self.plan.meets(op) {
            None => {}
            Some(Trouble::Full) => return Err(VaultError::Full),
            Some(Trouble::Panic) => panic!("told to panic at {op:?}"),
            Some(Trouble::PanicAfter) => {
                drop(act(self.inner.as_mut()));
                panic!("told to panic after {op:?}")
            }
            Some(Trouble::Block) => {
                let open = self.plan.open.0.lock().unwrap();
                drop(self.plan.open.1.wait_while(open, |open| !*open).unwrap());
            }
        }
        act(self.inner.as_mut())
    }
}

impl Vault for Trap {
    fn recover(&mut self) -> Result<(), VaultError> {
        self.at(Op::Recover, |vault| vault.recover())
    }

    fn begin(&mut self) -> Result<(), VaultError> {
        self.at(Op::Begin, |vault| vault.begin())
    }

    fn commit(&mut self) -> Result<(), VaultError> {
        let done = self.at(Op::Commit, |vault| vault.commit());
        if done.is_ok() {
            self.plan.trace.note("commit");
        }
        done
    }

    fn rollback(&mut self) {
        self.inner.rollback();
    }

    fn durable(&mut self) -> Result<Option<Durable>, VaultError> {
        self.at(Op::Durable, |vault| vault.durable())
    }

    fn put_durable(&mut self, durable: &Durable) -> Result<(), VaultError> {
        self.at(Op::PutDurable, |vault| vault.put_durable(durable))
    }

    fn head(&mut self) -> Result<Option<Head>, VaultError> {
        self.at(Op::Head, |vault| vault.head())
    }

    fn append(&mut self, row: &Row, hash: &RecordHash) -> Result<(), VaultError> {
        self.at(Op::Append, |vault| vault.append(row, hash))
    }

    fn rows(&mut self, after: u64, limit: u32) -> Result<Vec<Row>, VaultError> {
        self.at(Op::Rows, |vault| vault.rows(after, limit))
    }

    fn outcome(&mut self, ownership: u64, id: &Id) -> Result<Option<OutcomeRow>, VaultError> {
        self.at(Op::Outcome, |vault| vault.outcome(ownership, id))
    }

    fn put_outcome(&mut self, ownership: u64, id: &Id, row: &OutcomeRow) -> Result<(), VaultError> {
        self.at(Op::PutOutcome, |vault| vault.put_outcome(ownership, id, row))
    }

    fn forget_outcome(&mut self, ownership: u64, id: &Id) -> Result<(), VaultError> {
        self.at(Op::ForgetOutcome, |vault| vault.forget_outcome(ownership, id))
    }

    fn forget_outcomes(&mut self, ownership: u64, before_ms: u64) -> Result<(), VaultError> {
        self.at(Op::ForgetOutcomes, |vault| vault.forget_outcomes(ownership, before_ms))
    }

    fn put_open(&mut self, row: &OpenRow) -> Result<(), VaultError> {
        self.at(Op::PutOpen, |vault| vault.put_open(row))
    }

    fn close(&mut self, sequence: u64) -> Result<(), VaultError> {
        self.at(Op::Close, |vault| vault.close(sequence))
    }

    fn open_calls(&mut self) -> Result<Vec<OpenRow>, VaultError> {
        self.at(Op::OpenCalls, |vault| vault.open_calls())
    }

    fn record_bytes(&mut self) -> Result<u64, VaultError> {
        self.at(Op::Other, |vault| vault.record_bytes())
    }

    fn first_since(&mut self, at_ms: u64) -> Result<Option<u64>, VaultError> {
        let found = self.at(Op::Other, |vault| vault.first_since(at_ms));
        self.plan.looked.send_modify(|times| *times += 1);
        found
    }

    fn prune(&mut self, before: u64) -> Result<(), VaultError> {
        self.at(Op::Other, |vault| vault.prune(before))
    }

    fn tidy(&mut self) -> Result<(), VaultError> {
        self.at(Op::Other, |vault| vault.tidy())
    }

    fn note_head(&mut self, head: &Head) -> Result<(), VaultError> {
        self.at(Op::NoteHead, |vault| vault.note_head(head))
    }

    fn close_vault(&mut self) {
        self.inner.close_vault();
    }
}
