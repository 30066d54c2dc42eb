//! What the keeper may ask of the house, and what it answers: plain data, the same for the command socket and for pages.
//!
//! These types are a stable surface (`--json` prints them), so members are added, never renamed. Times are wall-clock
//! milliseconds since the Unix epoch and serve as labels only.

use ::handlers::wasm::log::LogLine;
use serde::{Deserialize, Serialize};

use crate::tree::Tree;

mod handlers;

pub use handlers::{HandlerLine, HandlerState};

/// Who asks: the peer's uid as the kernel gave it, and the way it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// User id of the peer.
    pub uid: u32,
    /// The way it came.
    pub way: Way,
}

/// The ways by which a keeper reaches the house.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The command socket in the state folder.
    Socket,
    /// A page served on loopback.
    Page,
}

/// One request of the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Everything at a glance.
    Status,
    /// Opens pairing for ten minutes with a fresh secret.
    Pair,
    /// Closes pairing; pending claims stay.
    ClosePairing,
    /// Claims, transfers and releases of the last 24 hours.
    Claims,
    /// Approves a pending change.
    Approve {
        /// Its id, or its code with or without the space.
        which: String,
    },
    /// Refuses a pending change.
    Refuse {
        /// Its id, or its code with or without the space.
        which: String,
    },
    /// Every grant, on or off.
    Grants,
    /// Turns a grant on.
    Grant {
        /// A grant's or a capability's name.
        name: String,
    },
    /// Turns a grant off; running work under it is cancelled.
    Revoke {
        /// A grant's or a capability's name.
        name: String,
    },
    /// Records after a sequence number, oldest first.
    Receipts {
        /// Records with a greater sequence number are wanted.
        after: u64,
        /// At most this many (the house gives at most 500).
        limit: u32,
        /// How long to wait for the first one, in milliseconds (at most 30,000).
        wait_ms: u64,
    },
    /// Checks the whole chain.
    Verify,
    /// Begins an export: the signed head of the chain as it is now.
    ExportHead,
    /// The records of an export, page by page.
    ExportPage {
        /// Records with a greater sequence number.
        after: u64,
        /// The last sequence number of the export.
        until: u64,
    },
    /// Frees the device of its owner, at once.
    Release,
    /// Ends the owner's activation.
    Deactivate,
    /// Tries a given-up capability again.
    Restart {
        /// The capability's name.
        capability: String,
    },
    /// Every file of the handlers folder, in service or not.
    Handlers,
    /// What a handler logged last.
    HandlerLog {
        /// The capability's name.
        name: String,
    },
}

/// What the house answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Everything at a glance.
    Status(Box<Status>),
    /// Pairing is open.
    Pairing {
        /// The secret of the link, base64url.
        secret: String,
        /// When it closes.
        expires_ms: u64,
    },
    /// Changes that wait or were decided.
    Claims {
        /// Newest last.
        claims: Vec<Waiting>,
    },
    /// A change was decided.
    Decided {
        /// The change as it stands now.
        change: Waiting,
    },
    /// Every grant.
    Grants {
        /// In the order of the capabilities.
        grants: Vec<GrantLine>,
    },
    /// A grant as it stands now.
    Granted {
        /// The grant.
        grant: GrantLine,
        /// Whether this command changed it.
        changed: bool,
    },
    /// Records.
    Receipts {
        /// Oldest first.
        records: Vec<ReceiptLine>,
        /// The last sequence number of the journal.
        last: u64,
    },
    /// How the chain stands.
    Verified {
        /// Records read.
        count: u64,
        /// First sequence number, 0 for an empty journal.
        first: u64,
        /// Last sequence number, 0 for an empty journal.
        last: u64,
        /// Whether all of it verifies.
        ok: bool,
        /// The first fault.
        problem: Option<String>,
    },
    /// The closing item of an export.
    ExportHead {
        /// First sequence number.
        first: u64,
        /// Last sequence number.
        until: u64,
        /// The closing CBOR item, standard base64.
        tail: String,
    },
    /// A page of an export.
    ExportPage {
        /// The last sequence number in it.
        last: u64,
        /// The records' CBOR one after the other, standard base64.
        records: String,
    },
    /// The handlers folder.
    Handlers {
        /// Each file, by name.
        handlers: Vec<HandlerLine>,
        /// What is wrong with the folder itself, or with this machine, in a sentence.
        notice: Option<String>,
    },
    /// What a handler logged last.
    HandlerLog {
        /// The capability's name.
        name: String,
        /// Oldest first.
        lines: Vec<LogLine>,
    },
    /// The device is free.
    Released {
        /// Who owned it.
        was: Option<String>,
    },
    /// Done, with a line for people.
    Done {
        /// What was done.
        message: String,
    },
    /// Not done.
    Failed {
        /// The kind of failure.
        code: FailCode,
        /// One sentence with the next step.
        message: String,
    },
}

/// Why a command was not carried out; small, for the way back up to a [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: FailCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: FailCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Self::Failed { code: failure.code, message: failure.message }
    }
}

/// Kinds of failure of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailCode {
    /// No such change, grant or capability.
    NotFound,
    /// It contradicts what stands.
    Conflict,
    /// The command's own words are wrong.
    Invalid,
    /// The journal or the disk refuses.
    Storage,
    /// Not possible at this moment.
    NotNow,
    /// A fault of ours.
    Internal,
}

/// Everything at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The device key.
    pub device: String,
    /// Its fingerprint.
    pub fingerprint: String,
    /// The device's name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// Whether its hardware is simulated.
    pub simulated: bool,
    /// Whether the daemon runs.
    pub running: bool,
    /// Its process id.
    pub pid: Option<u32>,
    /// The owner.
    pub owner: Option<OwnerLine>,
    /// The ownership number; it grows with each change of owner.
    pub ownership: u64,
    /// Until when the device is active.
    pub active_until: Option<u64>,
    /// Until when pairing is open.
    pub pairing_until: Option<u64>,
    /// How many changes wait for the keeper.
    pub waiting: usize,
    /// The grants that are on.
    pub grants_on: Vec<String>,
    /// Handlers that had been granted and changed since: what changed, and the command that grants them again.
    #[serde(default)]
    pub waiting_handlers: Vec<String>,
    /// The journal.
    pub journal: JournalLine,
    /// The in-use sign, in words.
    pub sign: String,
    /// What the keeper should know: a lost journal, a given-up part.
    pub notices: Vec<String>,
    /// The supervision tree, of a running daemon.
    pub tree: Option<Tree>,
}

/// The owner as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerLine {
    /// Its address.
    pub agent: String,
    /// Its key.
    pub key: String,
    /// The key's fingerprint.
    pub fingerprint: String,
    /// Since when.
    pub since: Option<u64>,
}

/// The journal as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JournalLine {
    /// Number of records kept.
    pub records: u64,
    /// First sequence number kept.
    pub first: u64,
    /// Last sequence number.
    pub last: u64,
    /// Hash of the last record, hex.
    pub head: String,
    /// Whether records can be written.
    pub writable: bool,
}

/// A claim, transfer or release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The id of the request that asked for it.
    pub id: String,
    /// `claim`, `transfer` or `release`.
    pub kind: String,
    /// The agent that would own the device; of a release, the one that does.
    pub agent: String,
    /// Its key.
    pub key: String,
    /// The code that both sides show; empty for a release.
    pub code: String,
    /// `pending`, `approved`, `refused` or `expired`.
    pub state: String,
    /// When it expires, or when it is forgotten once decided.
    pub expires_at: u64,
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantLine {
    /// Its name.
    pub name: String,
    /// On or off.
    pub on: bool,
    /// The capabilities it covers.
    pub capabilities: Vec<String>,
    /// Since when it is on.
    pub since: Option<u64>,
}

/// One record of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptLine {
    /// Sequence number.
    pub sequence: u64,
    /// `call`, `sign`, `change` or `keeper`.
    pub kind: String,
    /// Ownership number.
    pub ownership: u64,
    /// The request's id.
    pub id: Option<String>,
    /// The capability, or what changed.
    pub what: Option<String>,
    /// When it came in.
    pub received_at: Option<u64>,
    /// When it ended; none on a started record.
    pub ended_at: Option<u64>,
    /// `ok` or an error code; none on a started record.
    pub outcome: Option<String>,
    /// When the sign went on.
    pub sign_on_at: Option<u64>,
    /// When the sign went off.
    pub sign_off_at: Option<u64>,
    /// The record's hash, hex.
    pub hash: String,
}

/// What happens in the house, for a terminal or a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A change waits for the keeper.
    Waiting {
        /// The change.
        change: Waiting,
    },
    /// A change was decided or expired.
    Decided {
        /// The change.
        change: Waiting,
    },
    /// Pairing was opened.
    PairingOpened {
        /// When it closes.
        until: u64,
    },
    /// Pairing was closed.
    PairingClosed,
    /// The device has another owner, or none.
    Owner {
        /// The new owner.
        agent: Option<String>,
    },
    /// A grant was turned on or off.
    Grant {
        /// Its name.
        name: String,
        /// On or off.
        on: bool,
    },
    /// Work began.
    Acting {
        /// The request's id.
        id: String,
        /// Who acts.
        agent: String,
        /// With what.
        capability: String,
    },
    /// Work ended.
    Acted {
        /// The request's id.
        id: String,
        /// With what.
        capability: String,
        /// `ok` or the error code.
        outcome: String,
    },
    /// The device became active.
    Activated {
        /// The agent.
        agent: String,
        /// Until when.
        until: u64,
    },
    /// The device is active no more.
    Deactivated,
    /// What the handlers folder offers is another.
    Handlers,
    /// Something the keeper should know.
    Notice {
        /// In a sentence.
        message: String,
    },
}
