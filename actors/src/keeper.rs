//! The keeper's commands: one place for the socket and the pages, so no page is a second way in.
//!
//! Called through [`crate::House::command`]. Owns nothing: what reads is answered from the snapshot and the store, what changes is asked
//! of the state actor. Refuses names that do not exist here, and says which do.

use std::time::Duration;
use tokio::sync::oneshot;
use tracing::info;
use wire::text::{base64_encode, visible};
use wire::{GrantName, Record};

use crate::command::{
    Caller, Command, FailCode, Failure, GrantLine, JournalLine, OwnerLine, ReceiptLine, Reply, Status,
};
use crate::inner::Inner;
use crate::state::{Act, Say};
use crate::store::verify::Walk;
use crate::store::{Head, Row, Store, StoreError};
use crate::tree::NodeState;
use crate::{ownership, seals};

mod handlers;

/// Records in one reply.
pub(crate) const RECORDS_MAX: u32 = 500;
/// The longest long poll.
const WAIT_MAX_MS: u64 = 30_000;
/// How long the keeper waits to hear how a restart went.
const RESTART_MAX: Duration = Duration::from_secs(5);

/// Carries out a command.
pub(crate) async fn command(inner: &Inner, caller: Caller, command: Command) -> Reply {
    match command {
        Command::Status => status(inner),
        Command::Claims => claims(inner),
        Command::Grants => grants(inner),
        Command::Receipts { after, limit, wait_ms } => receipts(inner, after, limit, wait_ms).await,
        Command::Verify => reply(verify(inner).await),
        Command::ExportHead => export_head(inner),
        Command::ExportPage { after, until } => {
            reply(inner.store.query(move |vault| vault.rows(after, RECORDS_MAX).map(|rows| page(&rows, until))).await)
        }
        Command::Handlers => handlers::list(inner),
        Command::HandlerLog { name } => handlers::log(inner, &name),
        Command::Restart { capability } => restart(inner, &capability).await,
        Command::Pair => act(inner, caller, Act::Pair).await,
        Command::ClosePairing => act(inner, caller, Act::ClosePairing).await,
        Command::Approve { which } => act(inner, caller, Act::Approve { which }).await,
        Command::Refuse { which } => act(inner, caller, Act::Refuse { which }).await,
        Command::Release => act(inner, caller, Act::Release).await,
        Command::Deactivate => act(inner, caller, Act::Deactivate).await,
        Command::Grant { name } => match grant_name(&name) {
            Ok(name) => act(inner, caller, Act::Grant { name }).await,
            Err(failure) => failure.into(),
        },
        Command::Revoke { name } => match grant_name(&name) {
            Ok(name) => act(inner, caller, Act::Revoke { name }).await,
            Err(failure) => failure.into(),
        },
    }
}

async fn act(inner: &Inner, caller: Caller, act: Act) -> Reply {
    info!(?caller, ?act, "keeper");
    let (reply, done) = oneshot::channel();
    inner.state.send(Say::Keeper { act, reply });
    done.await.unwrap_or_else(|_| {
        failed(FailCode::NotNow, "the state is not at work; nothing was changed; look at: latchkeyd status")
    })
}

fn failed(code: FailCode, message: impl Into<String>) -> Reply {
    Failure::new(code, message).into()
}

fn grant_name(name: &str) -> Result<GrantName, Failure> {
    name.parse().map_err(|error| {
        Failure::new(FailCode::Invalid, format!("{} is {error}; `latchkeyd grants` lists them", visible(name)))
    })
}

pub(crate) fn reply(result: Result<Reply, StoreError>) -> Reply {
    result.unwrap_or_else(|error| failed(FailCode::Storage, format!("the journal cannot be read: {error}")))
}

fn status(inner: &Inner) -> Reply {
    let snapshot = inner.snapshot();
    let now = inner.clock.boot();
    let durable = &snapshot.durable;
    let pairing = snapshot.open_pairing(now).map(|pairing| pairing.until.wall_ms);
    let mut notices = inner.notices.clone();
    if !inner.store.writable() {
        notices.push("no record can be written, so nothing but health works; is the disk full?".to_owned());
    }
    Reply::Status(Box::new(Status {
        device: inner.signer.public().to_string(),
        fingerprint: inner.signer.public().fingerprint(),
        name: inner.name(),
        version: inner.version.to_owned(),
        simulated: inner.simulated,
        running: true,
        pid: Some(std::process::id()),
        owner: durable.owner.as_ref().map(OwnerLine::from),
        ownership: durable.ownership,
        active_until: snapshot.active.filter(|until| !until.reached(now)).map(|until| until.wall_ms),
        pairing_until: pairing,
        waiting: pending(durable),
        waiting_handlers: seals::waiting(&inner.catalogue.now(), durable),
        grants_on: durable.grants.keys().map(ToString::to_string).collect(),
        journal: journal_line(&inner.store),
        sign: inner.sign.describe(),
        notices,
        tree: Some(inner.board.tree()),
    }))
}

pub(crate) fn pending(durable: &crate::store::Durable) -> usize {
    durable.changes.iter().filter(|change| change.state == crate::store::ChangeState::Pending).count()
}

fn journal_line(store: &Store) -> JournalLine {
    let head = *store.head().borrow();
    JournalLine { writable: store.writable(), ..JournalLine::from(head) }
}

impl From<Head> for JournalLine {
    fn from(head: Head) -> Self {
        let records = if head.last == 0 { 0 } else { head.last - head.first + 1 };
        Self { records, first: head.first, last: head.last, head: head.hash.to_string(), writable: true }
    }
}

impl From<&crate::store::OwnerRow> for OwnerLine {
    fn from(owner: &crate::store::OwnerRow) -> Self {
        Self {
            agent: owner.agent.to_string(),
            key: owner.key.to_string(),
            fingerprint: owner.key.fingerprint(),
            since: Some(owner.since_ms),
        }
    }
}

fn claims(inner: &Inner) -> Reply {
    let durable = inner.snapshot().durable;
    Reply::Claims { claims: durable.changes.iter().map(|change| ownership::waiting(&durable, change)).collect() }
}

fn grants(inner: &Inner) -> Reply {
    let durable = inner.snapshot().durable;
    let offer = inner.catalogue.now();
    let lines = offer.grants.iter().map(|(name, capabilities)| GrantLine {
        name: name.to_string(),
        on: durable.granted(name, offer.handler(name).and_then(|handler| handler.seal())),
        capabilities: capabilities.clone(),
        since: durable.grants.get(name).map(|grant| grant.since_ms),
    });
    Reply::Grants { grants: lines.collect() }
}

async fn receipts(inner: &Inner, after: u64, limit: u32, wait_ms: u64) -> Reply {
    let mut head = inner.store.head();
    if wait_ms > 0 {
        let wait = Duration::from_millis(wait_ms.min(WAIT_MAX_MS));
        // Nothing new in that time is an answer too.
        drop(tokio::time::timeout(wait, head.wait_for(|head| head.last > after)).await);
    }
    let last = head.borrow().last;
    let limit = limit.clamp(1, RECORDS_MAX);
    reply(inner.store.query(move |vault| vault.rows(after, limit).map(|rows| lines(&rows, last))).await)
}

/// Walks the chain page by page, so that no call waits for more than a page.
async fn verify(inner: &Inner) -> Result<Reply, StoreError> {
    let mut walk = Walk::begin(inner.signer.public());
    loop {
        let page = move |vault: &mut dyn crate::store::Vault| {
            let verdict = walk.page(vault)?;
            Ok((walk, verdict))
        };
        match inner.store.query(page).await? {
            (_, Some(verdict)) => return Ok(verdict),
            (after, None) => walk = after,
        }
    }
}

/// Rows as people see them.
pub(crate) fn lines(rows: &[Row], last: u64) -> Reply {
    Reply::Receipts { records: rows.iter().map(line).collect(), last }
}

fn line(row: &Row) -> ReceiptLine {
    let hash = wire::RecordHash::of(&row.cbor).to_string();
    match Record::from_cbor(&row.cbor) {
        Ok(record) => ReceiptLine {
            sequence: row.sequence,
            kind: record.kind.as_str().to_owned(),
            ownership: record.ownership,
            id: record.id.map(|id| id.to_string()),
            what: record.what,
            received_at: record.received_at,
            ended_at: record.ended_at,
            outcome: record.outcome,
            sign_on_at: record.sign_on_at,
            sign_off_at: record.sign_off_at,
            hash,
        },
        Err(error) => ReceiptLine {
            sequence: row.sequence,
            kind: "damaged".to_owned(),
            ownership: 0,
            id: None,
            what: Some(error.to_string()),
            received_at: None,
            ended_at: None,
            outcome: None,
            sign_on_at: None,
            sign_off_at: None,
            hash,
        },
    }
}

fn export_head(inner: &Inner) -> Reply {
    let head = *inner.store.head().borrow();
    export_tail(inner.signer.as_ref(), &head, inner.clock.wall_ms())
}

/// The closing item of an export that ends at a head.
pub(crate) fn export_tail(signer: &dyn wire::Signer, head: &Head, now_ms: u64) -> Reply {
    let count = JournalLine::from(*head).records;
    let tail = wire::record::closing_item(signer, count, &head.hash, now_ms);
    Reply::ExportHead { first: head.first, until: head.last, tail: base64_encode(&tail) }
}

/// The rows of an export up to its end, as one CBOR sequence.
pub(crate) fn page(rows: &[Row], until: u64) -> Reply {
    let wanted = rows.iter().filter(|row| row.sequence <= until);
    let last = wanted.clone().next_back().map_or(until, |row| row.sequence);
    let records: Vec<u8> = wanted.flat_map(|row| row.cbor.iter().copied()).collect();
    Reply::ExportPage { last, records: base64_encode(&records) }
}

async fn restart(inner: &Inner, name: &str) -> Reply {
    let offer = inner.catalogue.now();
    let installation = match offer.find(name) {
        Ok(installation) => installation,
        Err(failure) => return failure.into(),
    };
    let name = &installation.declaration.name;
    inner.note(format!("restart {name}")).await;
    if !inner.renew(installation).await {
        return failed(FailCode::NotNow, format!("{name} cannot be restarted now; look at: latchkeyd status"));
    }
    let settled = inner.board.until(|_| installation.post.state() != Some(NodeState::Restarting));
    drop(tokio::time::timeout(RESTART_MAX, settled).await);
    if installation.post.state() == Some(NodeState::Running) {
        return Reply::Done { message: format!("{name} was started again.") };
    }
    let why = inner.board.error_of(installation.post.path()).unwrap_or_else(|| "it is not ready yet".to_owned());
    failed(FailCode::NotNow, format!("{name} does not start: {why}; look at: latchkeyd status"))
}
