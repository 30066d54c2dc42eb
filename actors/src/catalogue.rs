//! What the device offers: its capabilities, the grants that follow from them, and what else lies in the handlers folder.
//!
//! Read by every call, by the registration, by the keeper's commands and by the state actor, none of which waits: an [`Offer`] is
//! replaced as a whole. What the program brings with it stands from the start to the end; what the keeper dropped comes and goes
//! with [`follow`]. Refuses names that are taken, declarations that break their rules, and what fits no registration any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use handlers::Clock;
use tokio::sync::{Mutex, oneshot, watch};
use wire::declaration::DECLARATIONS_BYTES_MAX;
use wire::text::visible;
use wire::{CapabilityName, Declaration, GrantName};

use crate::authority::Snapshot;
use crate::capability::{CapabilityParts, Perform, child, path_of};
use crate::command::{Event, FailCode, Failure};
use crate::folder::{Custom, FolderNow, RefusedHandler};
use crate::house::GrowError;
use crate::inner::Inner;
use crate::nearest::among;
use crate::parts::Installed;
use crate::slots::Slots;
use crate::state::Say;
use crate::store::Seal;
use crate::supervise::{Child, Children, Place, Supervise};
use crate::tree::{Board, NodeState, Post};

/// How long a start, or a look at the folder, waits for the capabilities that it started: healthy ones are made in no time.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(1);

/// The one place where what the device offers is found.
pub(crate) struct Catalogue {
    offer: ArcSwap<Offer>,
    soil: Soil,
    /// The one place that all captures share.
    captures: Slots,
    /// The folder is followed one look at a time.
    turn: Mutex<()>,
}

/// What every capability's actor stands on.
#[derive(Clone)]
pub(crate) struct Soil {
    pub(crate) board: Board,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
}

/// What is offered at one moment.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) capabilities: BTreeMap<CapabilityName, Arc<Installation>>,
    /// The grants with what they cover: those of the program, then those of the handlers by name.
    pub(crate) grants: Vec<(GrantName, Vec<String>)>,
    /// None until somebody has looked into the folder.
    pub(crate) folder: Option<Arc<Folder>>,
}

/// What lies in the handlers folder beside what serves.
#[derive(Debug, PartialEq)]
pub(crate) struct Folder {
    pub(crate) pending: BTreeMap<CapabilityName, Seal>,
    /// Why what is pending cannot be compiled now.
    pub(crate) held: Option<String>,
    /// What the folder's reader refused, and then what the house did.
    pub(crate) refused: Vec<RefusedHandler>,
    pub(crate) notice: Option<String>,
}

/// A capability in service.
pub(crate) struct Installation {
    pub(crate) declaration: Arc<Declaration>,
    /// What it has beyond that as a file of the keeper.
    pub(crate) custom: Option<Custom>,
    pub(crate) post: Post,
    pub(crate) slots: Slots,
    pub(crate) actor: Place<Perform>,
    child: Child,
    /// About what its declaration takes in a registration.
    bytes: usize,
}

impl Installation {
    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.custom.as_ref().map(|custom| &custom.seal)
    }
}

impl Offer {
    /// What a grant covers, if it exists here.
    pub(crate) fn covered(&self, name: &GrantName) -> Option<&[String]> {
        self.grants.iter().find(|(known, _)| known == name).map(|(_, covered)| covered.as_slice())
    }

    /// The handler that a grant is for; none for what the program brings with it.
    pub(crate) fn handler(&self, grant: &GrantName) -> Option<&Arc<Installation>> {
        let name: CapabilityName = grant.as_str().parse().ok()?;
        self.capabilities.get(&name).filter(|installation| installation.custom.is_some())
    }

    /// The handlers in service, by name.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (&CapabilityName, &Arc<Installation>, &Custom)> {
        self.capabilities.iter().filter_map(|(name, one)| Some((name, one, one.custom.as_ref()?)))
    }

    /// A capability by the name that somebody typed.
    pub(crate) fn find(&self, name: &str) -> Result<&Arc<Installation>, Failure> {
        let parsed: Option<CapabilityName> = name.parse().ok();
        let found = parsed.as_ref().and_then(|name| self.capabilities.get(name));
        found.ok_or_else(|| match parsed.and_then(|name| self.not_in_service(&name)) {
            Some(why) => Failure::new(FailCode::NotNow, why),
            None => {
                let known = self.capabilities.keys().map(CapabilityName::as_str).collect();
                Failure::new(FailCode::NotFound, format!("there is no {} here; {}", visible(name), among(name, known)))
            }
        })
    }

    /// Why a grant that does not exist here cannot be given.
    pub(crate) fn no_grant(&self, grant: &GrantName) -> Failure {
        let name: Option<CapabilityName> = grant.as_str().parse().ok();
        match name.and_then(|name| self.not_in_service(&name)) {
            Some(why) => Failure::new(FailCode::NotNow, why),
            None => {
                let known = self.grants.iter().map(|(known, _)| known.as_str()).collect();
                Failure::new(
                    FailCode::NotFound,
                    format!("there is no grant {grant} here; {}", among(grant.as_str(), known)),
                )
            }
        }
    }

    /// What to say of a file that is there and does not serve.
    fn not_in_service(&self, name: &CapabilityName) -> Option<String> {
        let folder = self.folder.as_ref()?;
        if folder.pending.contains_key(name) {
            return Some(match &folder.held {
                None => {
                    format!("{name} is still being compiled; try again when `latchkeyd handlers` shows it as ready")
                }
                Some(why) => format!("{name} cannot be compiled now: {why}"),
            });
        }
        let refused = folder.refused.iter().find(|refused| refused.name.as_ref() == Some(name))?;
        Some(format!("{} is refused: {}", refused.file, refused.why))
    }

    fn has_nothing_in_the_folder(&self) -> bool {
        let empty = |folder: &Folder| folder.pending.is_empty() && folder.refused.is_empty() && folder.notice.is_none();
        self.handlers().next().is_none() && self.folder.as_deref().is_none_or(empty)
    }

    fn same_as(&self, other: &Self) -> bool {
        self.folder == other.folder
            && self.capabilities.len() == other.capabilities.len()
            && self.capabilities.values().zip(other.capabilities.values()).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Those of this offer that are not, or not as they are here, in another.
    fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<Installation>> {
        let kept = |name: &CapabilityName, one: &Arc<Installation>| {
            other.capabilities.get(name).is_some_and(|other| Arc::ptr_eq(one, other))
        };
        self.capabilities.iter().filter(move |(name, one)| !kept(name, one)).map(|(_, one)| one)
    }
}

impl Catalogue {
    /// The catalogue of what the program brings with it.
    pub(crate) fn new(installed: Vec<Installed>, soil: Soil) -> Result<Self, GrowError> {
        let captures = Slots::captures();
        let (mut capabilities, mut grants) = (BTreeMap::new(), Vec::<(GrantName, Vec<String>)>::new());
        for one in installed {
            let name = one.declaration.name.clone();
            let one = install(one, &soil, &captures).map_err(|why| GrowError::Capability(format!("{name}: {why}")))?;
            if let Some(grant) = &one.declaration.grant {
                match grants.iter_mut().find(|(known, _)| known == grant) {
                    Some((_, covered)) => covered.push(name.to_string()),
                    None => grants.push((grant.clone(), vec![name.to_string()])),
                }
            }
            if capabilities.insert(name.clone(), Arc::new(one)).is_some() {
                return Err(GrowError::Capability(format!("{name} is installed twice")));
            }
        }
        let bytes: usize = capabilities.values().map(|one| one.bytes).sum();
        if bytes > DECLARATIONS_BYTES_MAX {
            let message =
                format!("declarations take {bytes} bytes together, and a device may declare {DECLARATIONS_BYTES_MAX}");
            return Err(GrowError::Capability(message));
        }
        let offer = ArcSwap::from_pointee(Offer { capabilities, grants, folder: None });
        Ok(Self { offer, soil, captures, turn: Mutex::new(()) })
    }

    /// What is offered now.
    pub(crate) fn now(&self) -> Arc<Offer> {
        self.offer.load_full()
    }

    /// A capability in service.
    pub(crate) fn get(&self, name: &CapabilityName) -> Option<Arc<Installation>> {
        self.offer.load().capabilities.get(name).cloned()
    }

    /// The actors of what the program brings with it, or of the handlers.
    pub(crate) fn children(self: &Arc<Self>, custom: bool) -> Children {
        let catalogue = Arc::clone(self);
        Arc::new(move || {
            let offer = catalogue.now();
            let wanted = offer.capabilities.values().filter(|one| one.custom.is_some() == custom);
            wanted.map(|one| one.child.clone()).collect()
        })
    }

    /// What would be offered with the folder as it is now, and what of it the house does not take. `known` are those that served
    /// before, which keep their room when newer ones find none.
    fn draft(
        &self,
        before: &Offer,
        now: FolderNow,
        known: &BTreeMap<CapabilityName, Seal>,
    ) -> (Offer, Vec<RefusedHandler>) {
        let built_in = before.capabilities.iter().filter(|(_, one)| one.custom.is_none());
        let mut capabilities: BTreeMap<_, _> = built_in.map(|(name, one)| (name.clone(), Arc::clone(one))).collect();
        let taken: usize = capabilities.values().map(|one| one.bytes).sum();
        let mut room = DECLARATIONS_BYTES_MAX.saturating_sub(taken);
        let mut grants = before.grants.clone();
        grants.retain(|(name, _)| before.handler(name).is_none());
        let mut wanted = now.installed;
        let new = |one: &Installed| known.get(&one.declaration.name) != one.custom.as_ref().map(|custom| &custom.seal);
        wanted.sort_by(|a, b| (new(a), &a.declaration.name).cmp(&(new(b), &b.declaration.name)));
        let mut own = Vec::new();
        for one in wanted {
            let name = one.declaration.name.clone();
            let seal = one.custom.as_ref().map(|custom| custom.seal);
            let file = one.custom.as_ref().map_or_else(|| name.to_string(), |custom| custom.about.file.clone());
            let taken = match before.capabilities.get(&name).filter(|served| still(served, &one)) {
                _ if capabilities.contains_key(&name) => {
                    Err("another capability of this device has its name".to_owned())
                }
                Some(served) => Ok(Arc::clone(served)),
                None => custom(one, &self.soil, &self.captures).map(Arc::new),
            };
            match taken.and_then(|one| fit(&mut room, one)) {
                Ok(one) => drop(capabilities.insert(name, one)),
                Err(why) => own.push(RefusedHandler { file, name: Some(name), why, seal }),
            }
        }
        let handlers = capabilities.iter().filter(|(_, one)| one.custom.is_some());
        grants.extend(handlers.map(|(name, _)| (name.grant(), vec![name.to_string()])));
        let mut refused = now.refused;
        refused.extend(own.iter().cloned());
        let folder = Folder { pending: now.pending.into_iter().collect(), held: now.held, refused, notice: now.notice };
        (Offer { capabilities, grants, folder: Some(Arc::new(folder)) }, own)
    }
}

/// Whether what serves is the same content as what is wanted.
fn still(served: &Installation, wanted: &Installed) -> bool {
    served.seal().is_some() && served.seal() == wanted.custom.as_ref().map(|custom| &custom.seal)
}

/// Takes room in the registration.
fn fit(room: &mut usize, one: Arc<Installation>) -> Result<Arc<Installation>, String> {
    let left = room.checked_sub(one.bytes).ok_or_else(|| {
        format!(
            "there is no room for it: all declarations of a device together may take {DECLARATIONS_BYTES_MAX} bytes"
        )
    })?;
    *room = left;
    Ok(one)
}

fn custom(one: Installed, soil: &Soil, captures: &Slots) -> Result<Installation, String> {
    let name = &one.declaration.name;
    let own_grant = one.declaration.grant.as_ref() == Some(&name.grant());
    if one.custom.is_none() || !name.is_custom() || !own_grant {
        return Err("a handler has a custom name, a seal, and a grant of its own".to_owned());
    }
    install(one, soil, captures)
}

fn install(one: Installed, soil: &Soil, captures: &Slots) -> Result<Installation, String> {
    let declaration = one.declaration.clone().within_limits().map_err(|error| error.to_string())?;
    let (post, actor) = (Post::new(&soil.board, &path_of(&declaration)), Place::default());
    let slots = if declaration.captures { captures.clone() } else { Slots::of(&declaration) };
    let (bytes, seal) = (declared_bytes(&declaration), one.custom.clone());
    let parts = CapabilityParts {
        installed: one,
        post: post.clone(),
        clock: Arc::clone(&soil.clock),
        snapshots: soil.snapshots.clone(),
    };
    let child = child(parts, actor.clone());
    Ok(Installation { declaration: Arc::new(declaration), custom: seal, post, slots, actor, child, bytes })
}

/// About what a declaration takes in a registration: its texts, its bounds, and the names of its members.
fn declared_bytes(declaration: &Declaration) -> usize {
    const MEMBER_NAMES: usize = 256;
    declaration.description.len() + declaration.bounds.to_object().to_vec().len() + MEMBER_NAMES
}

/// Takes over the handlers folder, and sees it through although the asker may leave.
pub(crate) async fn follow(inner: &Arc<Inner>, now: FolderNow) -> Vec<RefusedHandler> {
    let followed = inner.tracker.spawn(follow_through(Arc::clone(inner), now)).await;
    followed.unwrap_or_else(|panic| {
        tracing::error!(error = %panic, "the handlers folder could not be followed");
        Vec::new()
    })
}

/// First nobody finds what is not on disk any more, then its grant goes, then what is new begins.
async fn follow_through(inner: Arc<Inner>, now: FolderNow) -> Vec<RefusedHandler> {
    let catalogue = &inner.catalogue;
    let _turn = catalogue.turn.lock().await;
    let (before, durable) = (catalogue.now(), inner.snapshot().durable);
    let (offer, own) = catalogue.draft(&before, now, &durable.folder.known);
    if offer.same_as(&before) {
        // Told when it came.
        return Vec::new();
    }
    let offer = Arc::new(offer);
    catalogue.offer.store(Arc::clone(&offer));
    for gone in before.without(&offer) {
        gone.post.leave();
        let path = gone.post.path();
        if !inner.branches.custom.send(Supervise::Remove { path: path.to_owned() }) {
            // Its supervisor is being started anew, and its actor is gone with the last one.
            inner.board.uproot(path);
        }
    }
    let (reply, done) = oneshot::channel();
    inner.state.send(Say::Folder { reply });
    // A state actor that died reads the catalogue in its next life.
    drop(done.await);
    let fresh: Vec<_> = offer.without(&before).collect();
    let mut living = false;
    for one in &fresh {
        living = inner.branches.custom.send(Supervise::Add { child: one.child.clone() });
    }
    // That the folder is empty is no news at a start.
    if before.folder.is_some() || !offer.has_nothing_in_the_folder() {
        inner.tell(Event::Handlers);
    }
    if living {
        settle(&inner.board, fresh.iter().map(|one| one.post.path()), SETTLE_MAX).await;
    }
    own
}

/// Gives healthy capabilities the moment they need to start; one that hangs holds up nobody.
pub(crate) async fn settle<'a>(board: &Board, paths: impl Iterator<Item = &'a str> + Clone, limit: Duration) {
    let up = board.until(|board| {
        paths.clone().all(|path| board.state_of(path).is_some_and(|state| state != NodeState::Restarting))
    });
    drop(tokio::time::timeout(limit, up).await);
}

#[cfg(test)]
mod tests;
