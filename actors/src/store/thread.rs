//! The thread that owns the vault, and the handle by which everybody else reaches it.
//!
//! Supervised as the child `store`; a life ends with [`Store::close`] or a panic inside the vault, which then waits for the next life.
//! Refuses jobs while no thread is at work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handlers::{Chance, Clock};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{error, info, warn};
use wire::record::{Record, salted_digest};
use wire::{Id, PublicKey, RecordHash};

use super::{Durable, Head, OpenRow, OutcomeRow, Row, Vault, VaultError};
use crate::journal::{Draft, Value};

/// Jobs that may wait for the thread. More calls than this cannot run at once, so a full queue only slows its senders.
const QUEUE_MAX: usize = 1_024;
/// At most so many jobs share a transaction, which bounds what one failed commit fails.
const BATCH_MAX: usize = 512;
/// How long the last records may take to be written.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Every so many commits the write-ahead log is looked at, if nothing waits.
const TIDY_EVERY: u32 = 256;

/// One record with what it stands for, in one transaction.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) draft: Draft,
    pub(crate) effects: Vec<Effect>,
}

/// What changes together with a record.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The state of ownership and grants.
    State(Box<Durable>),
    /// A call of effect `change` begins; if its id is known already, nothing is written at all.
    Begin { id: Id, content: [u8; 32] },
    /// The call of this record is begun and has no end yet.
    Open,
    /// The end of a begun call.
    Close { started: u64 },
    /// The outcome that a repeated id gets.
    Finish { id: Id, content: [u8; 32], outcome: String },
    /// The call was begun and then refused before its work started: its id is free again.
    Unbegin { id: Id },
    /// Outcomes of former ownerships go.
    ForgetFormer,
    /// One more record, after the first.
    Also(Box<Draft>),
}

/// What a write came to.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is on disk under this sequence number.
    Done { sequence: u64 },
    /// [`Effect::Begin`] met a known id: this is its row, and nothing was written.
    Known(OutcomeRow),
}

/// Why a write is not on disk.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("no record can be written: {0}")]
    Refused(String),
    /// It was not even tried.
    #[error("the journal is not at work")]
    Gone,
    /// The thread died under it.
    #[error("the journal broke down, and nothing proves whether this record is in it")]
    Unsure,
}

type Query = Box<dyn FnOnce(&mut dyn Vault) + Send>;

enum Job {
    Write(Box<Write>, oneshot::Sender<Result<Written, StoreError>>),
    Query(Query),
    Close(oneshot::Sender<()>),
}

/// The handle; cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    device: PublicKey,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    jobs: arc_swap::ArcSwapOption<mpsc::Sender<Job>>,
    /// Between two lives of the thread the vault waits here.
    rest: Mutex<Option<Box<dyn Vault>>>,
    writable: AtomicBool,
    head: watch::Sender<Head>,
    lives: watch::Sender<bool>,
}

impl Store {
    pub(crate) fn new(
        mut vault: Box<dyn Vault>,
        device: PublicKey,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Result<Self, VaultError> {
        let head = head_of(vault.as_mut(), &device)?;
        let inner = Inner {
            device,
            clock,
            chance,
            jobs: arc_swap::ArcSwapOption::empty(),
            rest: Mutex::new(Some(vault)),
            writable: AtomicBool::new(true),
            head: watch::channel(head).0,
            lives: watch::channel(false).0,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Appends a record with its effects; returns when it is on disk.
    pub(crate) async fn write(&self, draft: Draft, effects: Vec<Effect>) -> Result<Written, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Write(Box::new(Write { draft, effects }), reply)).await?;
        answer.await.unwrap_or(Err(StoreError::Unsure))
    }

    /// Reads from the vault.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Vault) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let query: Query = Box::new(move |vault| drop(reply.send(read(vault))));
        self.send(Job::Query(query)).await?;
        answer.await.map_err(|_| StoreError::Gone)?.map_err(|error| StoreError::Refused(error.to_string()))
    }

    /// Whether the last commit went well.
    pub(crate) fn writable(&self) -> bool {
        self.inner.writable.load(Ordering::Relaxed)
    }

    /// The end of the chain, as it grows.
    pub(crate) fn head(&self) -> watch::Receiver<Head> {
        self.inner.head.subscribe()
    }

    /// One life of the thread: until [`Store::close`], a panic inside the vault, or the end of the task.
    pub(crate) async fn live(self) -> Result<(), String> {
        let Some(mut vault) = self.inner.rest.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Err("the vault has not come back from the last life".to_owned());
        };
        let (jobs, inbox) = mpsc::channel(QUEUE_MAX);
        let (end, ended) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let spawned = std::thread::Builder::new().name("latchkey-store".to_owned()).spawn(move || {
            // Whatever the vault does, it comes back: the next life makes it usable again.
            let life = catch_unwind(AssertUnwindSafe(|| serve(vault.as_mut(), inbox, &inner)));
            let result = life.unwrap_or_else(|_| Err("panicked".to_owned()));
            if result.is_err() {
                inner.writable.store(false, Ordering::Relaxed);
            }
            *inner.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(vault);
            drop(end.send(result));
        });
        spawned.map_err(|error| format!("cannot start its thread: {error}"))?;
        self.inner.jobs.store(Some(Arc::new(jobs)));
        self.inner.lives.send_replace(true);
        let result = ended.await.unwrap_or_else(|_| Err("its thread ended without a word".to_owned()));
        self.inner.jobs.store(None);
        self.inner.lives.send_replace(false);
        result
    }

    /// Writes what is queued, notes the head, and ends the thread.
    pub(crate) async fn close(&self) {
        let (done, wait) = oneshot::channel();
        if self.send(Job::Close(done)).await.is_ok() {
            drop(wait.await);
        }
    }

    /// Drops records below a sequence number, and lets the head begin there.
    pub(crate) async fn prune(&self, keep_from: u64) -> Result<(), StoreError> {
        let head = self.inner.head.clone();
        let done = self.query(move |vault| {
            vault.prune(keep_from)?;
            head.send_modify(|head| head.first = keep_from);
            Ok(())
        });
        done.await
    }

    /// Comes true when the thread takes jobs.
    pub(crate) async fn ready(&self) {
        let mut lives = self.inner.lives.subscribe();
        // The sender lives as long as this handle.
        drop(lives.wait_for(|lives| *lives).await);
    }

    /// Comes true when the thread has ended.
    pub(crate) async fn closed(&self) {
        let mut lives = self.inner.lives.subscribe();
        drop(tokio::time::timeout(CLOSE_MAX, lives.wait_for(|lives| !lives)).await);
    }

    async fn send(&self, job: Job) -> Result<(), StoreError> {
        let Some(jobs) = self.inner.jobs.load_full() else { return Err(StoreError::Gone) };
        jobs.send(job).await.map_err(|_| StoreError::Gone)
    }
}

fn head_of(vault: &mut dyn Vault, device: &PublicKey) -> Result<Head, VaultError> {
    Ok(vault.head()?.unwrap_or_else(|| Head { first: 0, last: 0, hash: RecordHash::genesis(device) }))
}

/// Takes jobs until told to close. An error means the thread should be started anew.
fn serve(vault: &mut dyn Vault, mut inbox: mpsc::Receiver<Job>, inner: &Inner) -> Result<(), String> {
    vault.recover().map_err(|error| error.to_string())?;
    inner.head.send_replace(head_of(vault, &inner.device).map_err(|error| error.to_string())?);
    let mut commits = 0_u32;
    loop {
        let Some(first) = inbox.blocking_recv() else { return Ok(()) };
        let mut batch = vec![first];
        // Whoever is about to send gets to: on one processor this halves the switches, and at rest it costs nothing.
        std::thread::yield_now();
        while batch.len() < BATCH_MAX
            && let Ok(next) = inbox.try_recv()
        {
            batch.push(next);
        }
        if let Done::Closed(reply) = work_off(vault, batch, inner) {
            let _ = reply.send(());
            return Ok(());
        }
        commits = commits.wrapping_add(1);
        if commits.is_multiple_of(TIDY_EVERY)
            && inbox.is_empty()
            && let Err(error) = vault.tidy()
        {
            warn!(%error, "the journal could not be tidied");
        }
    }
}

enum Done {
    More,
    Closed(oneshot::Sender<()>),
}

fn work_off(vault: &mut dyn Vault, batch: Vec<Job>, inner: &Inner) -> Done {
    let (mut writes, mut queries, mut close) = (Vec::new(), Vec::new(), None);
    for job in batch {
        match job {
            Job::Write(write, reply) => writes.push((write, reply)),
            Job::Query(query) => queries.push(query),
            Job::Close(reply) => close = Some(reply),
        }
    }
    if !writes.is_empty() {
        commit(vault, writes, inner);
    }
    for query in queries {
        query(vault);
    }
    match close {
        None => Done::More,
        Some(reply) => {
            let head = *inner.head.borrow();
            if let Err(error) = vault.note_head(&head) {
                warn!(%error, "the end of the chain could not be noted");
            }
            vault.close_vault();
            Done::Closed(reply)
        }
    }
}

type Waiting = (Box<Write>, oneshot::Sender<Result<Written, StoreError>>);

fn commit(vault: &mut dyn Vault, writes: Vec<Waiting>, inner: &Inner) {
    let mut head = *inner.head.borrow();
    let (writes, replies): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
    let result = vault.begin().and_then(|()| {
        let written = writes.into_iter().map(|write| apply(vault, *write, &mut head, inner));
        let written = written.collect::<Result<Vec<_>, _>>()?;
        vault.commit()?;
        Ok(written)
    });
    let was_writable = inner.writable.swap(result.is_ok(), Ordering::Relaxed);
    match result {
        Ok(written) => {
            if !was_writable {
                info!("records can be written again");
            }
            inner.head.send_replace(head);
            for (reply, written) in replies.into_iter().zip(written) {
                drop(reply.send(Ok(written)));
            }
        }
        Err(error) => {
            vault.rollback();
            // Once, not for each request that a full disk refuses.
            if was_writable {
                error!(%error, "records cannot be written; nothing but health is done until they can");
            }
            for reply in replies {
                drop(reply.send(Err(StoreError::Refused(error.to_string()))));
            }
        }
    }
}

fn apply(vault: &mut dyn Vault, write: Write, head: &mut Head, inner: &Inner) -> Result<Written, VaultError> {
    let ownership = write.draft.ownership;
    for effect in &write.effects {
        if let Effect::Begin { id, .. } = effect
            && let Some(known) = vault.outcome(ownership, id)?
        {
            return Ok(Written::Known(known));
        }
    }
    let now_ms = inner.clock.wall_ms();
    let (id, what) = (write.draft.id, write.draft.what.clone());
    let sequence = append(vault, write.draft, head, now_ms, inner)?;
    for effect in write.effects {
        match effect {
            Effect::State(durable) => vault.put_durable(&durable)?,
            Effect::Begin { id, content } => {
                vault.put_outcome(ownership, &id, &OutcomeRow { content, outcome: None, at_ms: now_ms })?;
            }
            Effect::Open => {
                if let Some(id) = id {
                    let what = what.clone();
                    vault.put_open(&OpenRow { sequence, ownership, id, what })?;
                }
            }
            Effect::Close { started } => vault.close(started)?,
            Effect::Finish { id, content, outcome } => {
                vault.put_outcome(ownership, &id, &OutcomeRow { content, outcome: Some(outcome), at_ms: now_ms })?;
            }
            Effect::Unbegin { id } => vault.forget_outcome(ownership, &id)?,
            Effect::ForgetFormer => vault.forget_outcomes(ownership, 0)?,
            Effect::Also(draft) => {
                append(vault, *draft, head, now_ms, inner)?;
            }
        }
    }
    Ok(Written::Done { sequence })
}

/// Appends one record at the end of the chain and moves the head.
fn append(vault: &mut dyn Vault, draft: Draft, head: &mut Head, now_ms: u64, inner: &Inner) -> Result<u64, VaultError> {
    let (row, record) = make(draft, head, now_ms, inner.chance.as_ref());
    let hash = RecordHash::of(&row.cbor);
    vault.append(&row, &hash)?;
    *head = Head { first: if head.first == 0 { record.sequence } else { head.first }, last: record.sequence, hash };
    Ok(record.sequence)
}

fn make(draft: Draft, head: &Head, now_ms: u64, chance: &dyn Chance) -> (Row, Record) {
    let mut salt = [0_u8; 16];
    chance.fill(&mut salt);
    let record = Record {
        kind: draft.kind,
        sequence: head.last.saturating_add(1),
        ownership: draft.ownership,
        id: draft.id,
        what: Some(draft.what),
        arguments_digest: draft.arguments.map(|arguments| salted_digest(&salt, &arguments)),
        received_at: draft.received_at,
        ended_at: draft.ended_at,
        outcome: draft.outcome.map(str::to_owned),
        value_digest: match draft.value {
            Value::None => None,
            Value::Object(value) => Some(salted_digest(&salt, &value)),
            Value::Hash(hash) => Some(*hash.as_bytes()),
        },
        sign_on_at: draft.sign_on_at,
        sign_off_at: draft.sign_off_at,
        before: head.hash,
    };
    (Row { sequence: record.sequence, cbor: record.to_cbor(), salt, at_ms: now_ms }, record)
}
