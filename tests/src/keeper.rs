//! The keeper: a person at the device, over the command socket of a daemon or directly in the house of a device composed here.

use std::path::{Path, PathBuf};

use actors::{Caller, Command, House, ReceiptLine, Reply, Status, Waiting, Way};
use runtime::keeper::ask::{Ask, Talk, Told};
use tokio::runtime::Handle;
use wire::{Id, PairingSecret};

/// Whoever may order the device about.
#[derive(Clone)]
pub enum Keeper {
    /// Through the command socket of this state folder.
    Socket(PathBuf),
    /// In the house itself.
    House(House, Handle),
}

impl Keeper {
    pub(crate) fn of(state: &Path) -> Self {
        Self::Socket(state.to_owned())
    }

    /// What the house says to a command.
    #[must_use]
    pub fn ask(&self, command: Command) -> Reply {
        match self {
            Self::Socket(state) => {
                let mut talk = Talk::connect(state).expect("the command socket answers");
                match talk.ask(&Ask::House { command }).expect("an answer") {
                    Told::House { reply } => reply,
                    told => panic!("{told:?}"),
                }
            }
            Self::House(house, handle) => {
                let caller = Caller { uid: rustix::process::geteuid().as_raw(), way: Way::Socket };
                handle.block_on(house.command(caller, command))
            }
        }
    }

    /// Opens pairing.
    #[must_use]
    pub fn pair(&self) -> PairingSecret {
        match self.ask(Command::Pair) {
            Reply::Pairing { secret, .. } => secret.parse().expect("a secret"),
            other => panic!("{other:?}"),
        }
    }

    /// Approves a change by its id.
    pub fn approve(&self, id: &Id) {
        let reply = self.ask(Command::Approve { which: id.to_string() });
        assert!(matches!(&reply, Reply::Decided { change } if change.state == "approved"), "{reply:?}");
    }

    /// Turns a grant on.
    pub fn grant(&self, name: &str) {
        let reply = self.ask(Command::Grant { name: name.to_owned() });
        assert!(matches!(&reply, Reply::Granted { grant, .. } if grant.on), "{reply:?}");
    }

    /// Turns a grant off.
    pub fn revoke(&self, name: &str) {
        let reply = self.ask(Command::Revoke { name: name.to_owned() });
        assert!(matches!(&reply, Reply::Granted { grant, .. } if !grant.on), "{reply:?}");
    }

    /// Frees the device.
    pub fn release(&self) {
        let reply = self.ask(Command::Release);
        assert!(matches!(reply, Reply::Released { was: Some(_) }), "{reply:?}");
    }

    /// Everything at a glance.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.ask(Command::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Claims, transfers and releases.
    #[must_use]
    pub fn claims(&self) -> Vec<Waiting> {
        match self.ask(Command::Claims) {
            Reply::Claims { claims } => claims,
            other => panic!("{other:?}"),
        }
    }

    /// All records after a number.
    #[must_use]
    pub fn records(&self, after: u64) -> Vec<ReceiptLine> {
        match self.ask(Command::Receipts { after, limit: 500, wait_ms: 0 }) {
            Reply::Receipts { records, .. } => records,
            other => panic!("{other:?}"),
        }
    }

    /// The number of the last record.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.status().journal.last
    }

    /// Whether the chain of records holds.
    pub fn verify(&self) {
        let reply = self.ask(Command::Verify);
        assert!(matches!(reply, Reply::Verified { ok: true, .. }), "{reply:?}");
    }
}

/// A record in short: kind, what, outcome. A started record has the outcome "started".
#[must_use]
pub fn short(record: &ReceiptLine) -> String {
    let what = record.what.as_deref().unwrap_or("-");
    format!("{} {what} {}", record.kind, record.outcome.as_deref().unwrap_or("started"))
}
