//! The house of a device: what the gate, the keeper's commands and the tree have in common.
//!
//! [`House::grow`] starts the supervision tree; [`House::drain`] ends it. In between the house is reached by links
//! ([`House::challenge`], [`House::answer`]) and by the keeper ([`House::command`]).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use handlers::{Clock, Sign};
use tokio::sync::{broadcast, watch};
use tokio_util::task::TaskTracker;
use wire::{CapabilityName, Challenge, Declaration, GrantName, Refused, Sealed, Signer};

use crate::authority::Snapshot;
use crate::capability::Perform;
use crate::challenge::Challenges;
use crate::rate::Bucket;
use crate::registry::Registry;
use crate::slots::Slots;
use crate::state::Say;
use crate::store::Store;
use crate::supervise::{Place, Supervise};
use crate::tree::Board;
use crate::{Caller, Command, Event, Parts, Reply, SettingsChange, Tree};

/// Where a request came from; a challenge serves only on the link that issued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// The direct link.
    Direct,
    /// A WebSocket that the device opened, by its connection's number.
    Reverse(u64),
    /// A hub.
    Hub,
}

/// A request that gets no signed answer: 403, whatever the reason, which is for the log alone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub Refused);

/// Why a house did not grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The state cannot be read or written.
    #[error("the state cannot be used: {0}")]
    State(String),
    /// A declaration breaks its rules, or two capabilities share a name.
    #[error("capability {0}")]
    Capability(String),
}

/// The house; cheap to clone.
#[derive(Clone)]
pub struct House {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").finish_non_exhaustive()
    }
}

/// What the rooms of the house share.
pub(crate) struct Inner {
    pub(crate) signer: Arc<dyn Signer>,
    pub(crate) name: RwLock<String>,
    pub(crate) version: &'static str,
    pub(crate) simulated: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) bucket: Bucket,
    pub(crate) store: Store,
    pub(crate) sign: Arc<Sign>,
    pub(crate) capabilities: BTreeMap<CapabilityName, Installation>,
    pub(crate) grants: Arc<Vec<(GrantName, Vec<String>)>>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) state: Place<Say>,
    pub(crate) branches: Branches,
    pub(crate) root: ractor::ActorRef<Supervise>,
    pub(crate) board: Board,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) notices: Vec<String>,
    pub(crate) calendar: crate::prune::Calendar,
    pub(crate) leftovers: crate::prune::Leftovers,
    /// Work that outlives its request: calls whose caller left, records of a sign going off.
    pub(crate) tracker: TaskTracker,
    pub(crate) refused: AtomicU64,
    pub(crate) refused_log: crate::gate::RefusedLog,
}

/// A capability in service.
pub(crate) struct Installation {
    pub(crate) declaration: Arc<Declaration>,
    pub(crate) path: String,
    pub(crate) slots: Slots,
    pub(crate) actor: Place<Perform>,
}

/// The supervisors below the root.
#[derive(Clone, Default)]
pub(crate) struct Branches {
    pub(crate) capabilities: Place<Supervise>,
    pub(crate) links: Place<Supervise>,
    pub(crate) keeper: Place<Supervise>,
}

impl House {
    /// Starts the supervision tree and waits until state and journal are at work.
    ///
    /// # Errors
    ///
    /// [`GrowError::State`] when what is on disk cannot be used; [`GrowError::Capability`] for a declaration that breaks its rules.
    pub async fn grow(parts: Parts) -> Result<Self, GrowError> {
        crate::grow::grow(parts).await
    }

    /// A fresh challenge for a link; costs no memory.
    #[must_use]
    pub fn challenge(&self, link: Link) -> Challenge {
        self.inner.challenges.issue(link, self.inner.clock.boot())
    }

    /// The one gate: bytes in, signed bytes out.
    ///
    /// # Errors
    ///
    /// [`Forbidden`] for everything that PROTOCOL.md section 3 answers with 403. It spends nothing and changes nothing.
    pub async fn answer(&self, link: Link, body: Bytes) -> Result<Sealed, Forbidden> {
        crate::gate::answer(&self.inner, link, body).await
    }

    /// A command of the keeper.
    pub async fn command(&self, caller: Caller, command: Command) -> Reply {
        crate::keeper::command(&self.inner, caller, command).await
    }

    /// The supervision tree, as the actors publish it.
    #[must_use]
    pub fn tree(&self) -> watch::Receiver<Tree> {
        self.inner.board.watch()
    }

    /// What happens in the house.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// The device's name, as people call it.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Takes over what a reload of the settings changed; leaves a keeper record.
    pub async fn settings_changed(&self, change: SettingsChange) {
        let inner = &self.inner;
        *inner.name.write().unwrap_or_else(std::sync::PoisonError::into_inner) = change.name;
        inner.bucket.set(change.limits);
        for name in &change.renew {
            if let Some(installation) = inner.capabilities.get(name) {
                inner.renew(&installation.path).await;
            }
        }
        inner.note("settings".to_owned()).await;
    }

    /// Ends the house: no new work, running work has `limit`, then services and actors stop and the records are closed.
    pub async fn drain(&self, limit: Duration) {
        crate::grow::drain(&self.inner, limit).await;
    }
}

impl Inner {
    pub(crate) fn name(&self) -> String {
        self.name.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshots.borrow().clone()
    }

    /// Tells terminals and pages; nobody listening is no fault.
    pub(crate) fn tell(&self, event: Event) {
        drop(self.events.send(event));
    }

    /// Makes a capability's actor anew. False: its supervisor does not know it.
    pub(crate) async fn renew(&self, path: &str) -> bool {
        let (reply, known) = tokio::sync::oneshot::channel();
        self.branches.capabilities.send(Supervise::Renew { path: path.to_owned(), reply })
            && known.await.unwrap_or(false)
    }

    /// Writes a keeper record about something that changed nothing in the state.
    pub(crate) async fn note(&self, what: String) {
        let draft = crate::journal::Draft::keeper(what, self.snapshot().durable.ownership, self.clock.wall_ms());
        if let Err(error) = self.store.write(draft, Vec::new()).await {
            tracing::debug!(%error, "a keeper record could not be written");
        }
    }
}
