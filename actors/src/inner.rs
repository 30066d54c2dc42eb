//! What the rooms of the house share: made by [`crate::grow`], held by every [`crate::House`].
//!
//! It decides nothing. The gate, the invocations, the keeper's commands, the census and the registration read it; what changes
//! goes through the actors that it names. It lives until the last handle of its house is gone.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use handlers::{Clock, Sign};
use tokio::sync::{broadcast, oneshot, watch};
use tokio_util::task::TaskTracker;
use wire::Signer;

use crate::Event;
use crate::authority::Snapshot;
use crate::catalogue::{Catalogue, Installation};
use crate::challenge::Challenges;
use crate::journal::Draft;
use crate::rate::Bucket;
use crate::registry::Registry;
use crate::state::Say;
use crate::store::Store;
use crate::supervise::{Place, Supervise};
use crate::tree::Board;

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
    /// What is offered, and what else lies in the handlers folder.
    pub(crate) catalogue: Arc<Catalogue>,
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

/// The supervisors below the root.
#[derive(Clone, Default)]
pub(crate) struct Branches {
    pub(crate) capabilities: Place<Supervise>,
    /// The handlers of the keeper, below the capabilities.
    pub(crate) custom: Place<Supervise>,
    pub(crate) links: Place<Supervise>,
    pub(crate) keeper: Place<Supervise>,
}

impl Inner {
    pub(crate) fn name(&self) -> String {
        self.name.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshots.borrow().clone()
    }

    /// Tells terminals and pages; nobody listening is no fault.
    pub(crate) fn tell(&self, event: Event) {
        drop(self.events.send(event));
    }

    /// Makes a capability's actor anew. False: its supervisor does not know it.
    pub(crate) async fn renew(&self, one: &Installation) -> bool {
        let (reply, known) = oneshot::channel();
        let branch = if one.custom.is_some() { &self.branches.custom } else { &self.branches.capabilities };
        branch.send(Supervise::Renew { path: one.post.path().to_owned(), reply }) && known.await.unwrap_or(false)
    }

    /// Writes a keeper record about something that changed nothing in the state.
    pub(crate) async fn note(&self, what: String) {
        let draft = Draft::keeper(what, self.snapshot().durable.ownership, self.clock.wall_ms());
        if let Err(error) = self.store.write(draft, Vec::new()).await {
            tracing::debug!(%error, "a keeper record could not be written");
        }
    }
}
