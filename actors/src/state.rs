//! The state actor: the one writer of ownership, grants, activation and pairing.
//!
//! Everything it changes is first written, with its record, and only then seen: a crash leaves the old state or the new one.
//! Readers take [`Snapshot`]s from a watch. Before a change of owner is seen, all running work is cancelled and nobody may
//! anything. Activation and pairing live in memory only; a restart ends both. When the actor dies, its successor reads what is
//! on disk.

use std::sync::Arc;
use std::time::Duration;

use handlers::{Chance, Clock};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{broadcast, oneshot, watch};
use tracing::info;
use wire::{Agent, GrantName, Id, Lease, PairingSecret, PublicKey, Refusal, Refused, Salt};

use crate::authority::{Pairing, Snapshot};
use crate::catalogue::Catalogue;
use crate::challenge::{Challenges, Issue};
use crate::command::{Event, FailCode, Failure, Reply};
use crate::journal::Draft;
use crate::ownership::{self, Asked, Now};
use crate::registry::Registry;
use crate::store::{Change, ChangeKind, Durable, Effect, Store, StoreError};

mod follow;
mod granting;

pub(crate) use follow::Retired;

/// How long pairing stays open (PROTOCOL.md section 7).
const PAIRING_MS: u64 = 10 * 60 * 1_000;
/// How long running work may take to end when the device changes hands; what takes longer is abandoned and answered to nobody.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);
/// How long a new life waits for the store to be at work.
const STORE_MAX: Duration = Duration::from_secs(2);

/// What the state actor stands on.
#[derive(Clone)]
pub(crate) struct StateParts {
    pub(crate) device: PublicKey,
    pub(crate) boot_id: String,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) snapshots: watch::Sender<Snapshot>,
    pub(crate) events: broadcast::Sender<Event>,
    /// The grants that exist here, and the capabilities they cover.
    pub(crate) catalogue: Arc<Catalogue>,
}

/// Messages to the state actor. A dropped reply means that it died under the call.
pub(crate) enum Say {
    Claim {
        id: Id,
        ownership: u64,
        agent: Agent,
        key: PublicKey,
        reply: oneshot::Sender<Result<Change, Refusal>>,
    },
    Transfer {
        id: Id,
        ownership: u64,
        agent: Agent,
        key: PublicKey,
        reply: oneshot::Sender<Result<Change, Refusal>>,
    },
    Release {
        id: Id,
        ownership: u64,
        reply: oneshot::Sender<Result<Change, Refusal>>,
    },
    Activate {
        issue: Issue,
        ownership: u64,
        lease: Lease,
        reply: oneshot::Sender<Result<(), Refused>>,
    },
    Deactivate {
        ownership: u64,
        reply: oneshot::Sender<()>,
    },
    Keeper {
        act: Act,
        reply: oneshot::Sender<Reply>,
    },
    /// The handlers folder is another; the catalogue says how.
    Folder {
        reply: oneshot::Sender<()>,
    },
    /// Time passes.
    Tick,
}

/// What the keeper does.
#[derive(Debug)]
pub(crate) enum Act {
    Pair,
    ClosePairing,
    Approve { which: String },
    Refuse { which: String },
    Grant { name: GrantName },
    Revoke { name: GrantName },
    Release,
    Deactivate,
}

/// The state actor.
pub(crate) struct State;

pub(crate) struct Holder {
    parts: StateParts,
    seen: Snapshot,
    /// Records of what is seen already, for which the disk had no room.
    unwritten: Vec<Draft>,
    /// The store broke down under a write: only what is on disk tells what holds now, and a successor reads it.
    unsure: bool,
}

impl Actor for State {
    type Msg = Say;
    type State = Holder;
    type Arguments = StateParts;

    async fn pre_start(&self, _myself: ActorRef<Say>, parts: StateParts) -> Result<Holder, ActorProcessingErr> {
        drop(tokio::time::timeout(STORE_MAX, parts.store.ready()).await);
        let found = parts.store.query(|vault| vault.durable()).await?;
        let new = found.is_none();
        let mut durable = found.unwrap_or_else(|| Durable::new(&parts.boot_id));
        let now = now(&parts);
        let expired = ownership::after_reboot(&mut durable, &parts.boot_id, &now);
        let seen = Snapshot { changing: false, ..Snapshot::nobody(durable) };
        let mut holder = Holder { parts, seen, unwritten: Vec::new(), unsure: false };
        holder.seen.activate_after = Some(holder.parts.challenges.latest());
        if new {
            let draft = Draft::keeper("device.new", holder.seen.durable.ownership, now.wall_ms);
            holder
                .commit(Durable::clone(&holder.seen.durable), draft, Vec::new())
                .await
                .map_err(|_| "no record can be written")?;
        } else if !expired.is_empty() {
            holder.write_expired(Durable::clone(&holder.seen.durable), &expired, &now).await;
        }
        // A predecessor may have died under a change of the folder, or while the device changed hands.
        holder.follow().await;
        holder.parts.registry.reopen();
        holder.show();
        Ok(holder)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Say>,
        message: Say,
        holder: &mut Holder,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Say::Claim { id, ownership, agent, key, reply } => {
                let (device, salt) = (holder.parts.device.clone(), holder.salt());
                let rule =
                    |durable: &mut Durable, now: &Now| ownership::claim(durable, &device, id, (agent, key), salt, now);
                drop(reply.send(holder.ask(ownership, rule).await));
            }
            Say::Transfer { id, ownership, agent, key, reply } => {
                let (device, salt) = (holder.parts.device.clone(), holder.salt());
                let rule = |durable: &mut Durable, now: &Now| {
                    ownership::transfer(durable, &device, id, (agent, key), salt, now)
                };
                drop(reply.send(holder.ask(ownership, rule).await));
            }
            Say::Release { id, ownership, reply } => {
                let rule = |durable: &mut Durable, now: &Now| ownership::release(durable, id, now);
                drop(reply.send(holder.ask(ownership, rule).await));
            }
            Say::Activate { issue, ownership, lease, reply } => {
                drop(reply.send(holder.activate(issue, ownership, lease)));
            }
            Say::Deactivate { ownership, reply } => {
                if ownership == holder.seen.durable.ownership {
                    holder.deactivate();
                }
                let _ = reply.send(());
            }
            Say::Keeper { act, reply } => drop(reply.send(holder.keeper(act).await)),
            Say::Folder { reply } => {
                holder.follow().await;
                let _ = reply.send(());
            }
            Say::Tick => {
                holder.tick().await;
                holder.follow_up().await;
            }
        }
        if holder.unsure { Err("the store broke down under a write; reading what is on disk".into()) } else { Ok(()) }
    }
}

fn now(parts: &StateParts) -> Now {
    Now { boot: parts.clock.boot(), wall_ms: parts.clock.wall_ms() }
}

fn storage(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailCode::Storage, format!("nothing was changed: {error}"))
}

impl Holder {
    fn show(&self) {
        self.parts.snapshots.send_replace(self.seen.clone());
    }

    fn tell(&self, event: Event) {
        // Without a terminal or a page nobody listens, which is no fault.
        drop(self.parts.events.send(event));
    }

    fn salt(&self) -> Salt {
        let mut bytes = [0; 24];
        self.parts.chance.fill(&mut bytes);
        Salt::from_bytes(bytes)
    }

    /// Writes the next state together with its record, then keeps it. What is written is not yet shown.
    async fn commit(&mut self, next: Durable, draft: Draft, more: Vec<Effect>) -> Result<(), Failure> {
        let mut effects = vec![Effect::State(Box::new(next.clone()))];
        effects.extend(more);
        effects.extend(self.unwritten.iter().map(|draft| Effect::Also(Box::new(draft.clone()))));
        match self.parts.store.write(draft, effects).await {
            Ok(_) => {
                self.unwritten.clear();
                self.seen.durable = Arc::new(next);
                Ok(())
            }
            Err(StoreError::Unsure) => {
                self.doubt();
                let message = "the journal broke down under this; see whether it was done with: latchkeyd status";
                Err(Failure::new(FailCode::Storage, message))
            }
            Err(error @ (StoreError::Refused(_) | StoreError::Gone)) => Err(storage(error)),
        }
    }

    /// Nothing is granted and nothing active until a successor has read what is on disk.
    fn doubt(&mut self) {
        self.unsure = true;
        self.seen.active = None;
        self.seen.retired = Arc::default();
        let mut bare = Durable::clone(&self.seen.durable);
        bare.grants.clear();
        self.seen.durable = Arc::new(bare);
        self.show();
    }

    /// Somebody asks for a change; what was asked under a former ownership is asked of nobody any more.
    async fn ask(
        &mut self,
        ownership: u64,
        rule: impl FnOnce(&mut Durable, &Now) -> Result<Asked, Refusal>,
    ) -> Result<Change, Refusal> {
        if ownership != self.seen.durable.ownership {
            return Err(Refusal::new(wire::ErrorCode::Conflict, "the device changed hands meanwhile"));
        }
        let now = now(&self.parts);
        let mut next = Durable::clone(&self.seen.durable);
        let asked = rule(&mut next, &now)?;
        if asked.new {
            let what = format!("{}.asked", asked.change.kind.as_str());
            let draft = Draft::change(what, next.ownership, Some(asked.change.id), now.wall_ms);
            let stored = self.commit(next, draft, Vec::new()).await;
            stored.map_err(|failure| Refusal::new(wire::ErrorCode::StorageFull, failure.message))?;
            self.show();
            self.tell(Event::Waiting { change: ownership::waiting(&self.seen.durable, &asked.change) });
        }
        Ok(asked.change)
    }

    fn activate(&mut self, issue: Issue, ownership: u64, lease: Lease) -> Result<(), Refused> {
        let Some(owner) = self.seen.durable.owner.as_ref().filter(|_| ownership == self.seen.durable.ownership) else {
            return Err(Refused::NotAllowed);
        };
        if self.seen.activate_after.is_some_and(|mark| issue <= mark) {
            return Err(Refused::Superseded);
        }
        let until = now(&self.parts).after(lease.as_ms());
        let agent = owner.agent.to_string();
        self.seen.active = Some(until);
        self.show();
        self.tell(Event::Activated { agent, until: until.wall_ms });
        Ok(())
    }

    /// Ends activation; what was asked for before this moment cannot revive it.
    fn deactivate(&mut self) {
        self.seen.activate_after = Some(self.parts.challenges.latest());
        if self.seen.active.take().is_some() {
            self.tell(Event::Deactivated);
        }
        self.show();
    }

    async fn keeper(&mut self, act: Act) -> Reply {
        let done = match act {
            Act::Pair => self.pair().await,
            Act::ClosePairing => Ok(self.close_pairing()),
            Act::Approve { which } => self.decide(&which, true).await,
            Act::Refuse { which } => self.decide(&which, false).await,
            Act::Grant { name } => self.grant(name, true).await,
            Act::Revoke { name } => self.grant(name, false).await,
            Act::Release => self.release().await,
            Act::Deactivate => {
                let was = self.seen.active.is_some();
                self.deactivate();
                let message = if was { "The device is not active any more." } else { "The device was not active." };
                Ok(Reply::Done { message: message.to_owned() })
            }
        };
        done.unwrap_or_else(Reply::from)
    }

    async fn pair(&mut self) -> Result<Reply, Failure> {
        if let Some(owner) = &self.seen.durable.owner {
            let message = format!(
                "this device is owned by {}; its owner can transfer it, or you free it first with: latchkeyd release",
                owner.agent
            );
            return Err(Failure::new(FailCode::Conflict, message));
        }
        let draft = Draft::keeper("pairing.open", self.seen.durable.ownership, now(&self.parts).wall_ms);
        self.parts.store.write(draft, Vec::new()).await.map_err(storage)?;
        let mut bytes = [0; 16];
        self.parts.chance.fill(&mut bytes);
        let secret = PairingSecret::from_bytes(bytes);
        let until = now(&self.parts).after(PAIRING_MS);
        let reply = Reply::Pairing { secret: secret.expose(), expires_ms: until.wall_ms };
        self.seen.pairing = Some(Arc::new(Pairing { secret, until }));
        self.show();
        self.tell(Event::PairingOpened { until: until.wall_ms });
        Ok(reply)
    }

    fn close_pairing(&mut self) -> Reply {
        let was = self.seen.pairing.take().is_some();
        if was {
            self.show();
            self.tell(Event::PairingClosed);
        }
        let message = if was { "Pairing is closed." } else { "Pairing was not open." };
        Reply::Done { message: message.to_owned() }
    }

    async fn decide(&mut self, which: &str, yes: bool) -> Result<Reply, Failure> {
        let not_found = |message: String| Failure::new(FailCode::NotFound, message);
        let now = now(&self.parts);
        // What has run out is not approved because nobody looked in between.
        self.tick().await;
        let id = ownership::find_pending(&self.seen.durable, which).map_err(not_found)?;
        let mut next = Durable::clone(&self.seen.durable);
        let rule = if yes { ownership::approve } else { ownership::refuse };
        let Some(decided) = rule(&mut next, &id, &now) else {
            return Err(not_found(format!("nothing waits under {which}")));
        };
        let word = if yes { "approved" } else { "refused" };
        let what = format!("{}.{word}", decided.change.kind.as_str());
        let draft = Draft::change(what, next.ownership, Some(id), now.wall_ms);
        let waiting = ownership::waiting(&self.seen.durable, &decided.change);
        let fallen = fallen_records(&decided.fallen, next.ownership, now.wall_ms);
        if decided.new_owner {
            self.hand_over(next, draft, fallen).await?;
        } else {
            self.commit(next, draft, fallen).await?;
            self.show();
        }
        self.tell(Event::Decided { change: waiting.clone() });
        for change in &decided.fallen {
            self.tell(Event::Decided { change: ownership::waiting(&self.seen.durable, change) });
        }
        Ok(Reply::Decided { change: waiting })
    }

    async fn release(&mut self) -> Result<Reply, Failure> {
        let now = now(&self.parts);
        let mut next = Durable::clone(&self.seen.durable);
        let Some((was, fallen)) = ownership::release_here(&mut next, &now) else {
            return Ok(Reply::Released { was: None });
        };
        let draft = Draft::change("release.here", next.ownership, None, now.wall_ms);
        let fallen = fallen_records(&fallen, next.ownership, now.wall_ms);
        self.hand_over(next, draft, fallen).await?;
        Ok(Reply::Released { was: Some(was.agent.to_string()) })
    }

    /// A change of owner: first nobody may anything and all work ends, then one transaction, then the new state is seen.
    async fn hand_over(&mut self, next: Durable, draft: Draft, mut more: Vec<Effect>) -> Result<(), Failure> {
        self.seen.changing = true;
        self.show();
        self.parts.registry.clear(HAND_OVER_MAX).await;
        more.push(Effect::ForgetFormer);
        let stored = self.commit(next, draft, more).await;
        if self.unsure {
            // Nobody may anything until it is known whose the device is.
            return stored;
        }
        self.seen.changing = false;
        if stored.is_ok() {
            self.parts.challenges.forget_all();
            self.seen.active = None;
            self.seen.activate_after = Some(self.parts.challenges.latest());
            self.seen.pairing = None;
            self.seen.retired = Arc::default();
        }
        self.parts.registry.reopen();
        self.show();
        stored?;
        let agent = self.seen.durable.owner.as_ref().map(|owner| owner.agent.to_string());
        info!(owner = agent.as_deref().unwrap_or("nobody"), "the device changed hands");
        self.tell(Event::Owner { agent });
        Ok(())
    }

    async fn tick(&mut self) {
        let now = now(&self.parts);
        if self.seen.active.is_some_and(|until| until.reached(now.boot)) {
            self.seen.active = None;
            self.show();
            self.tell(Event::Deactivated);
        }
        if self.seen.pairing.as_ref().is_some_and(|pairing| pairing.until.reached(now.boot)) {
            self.close_pairing();
        }
        if self.seen.durable.changes.iter().any(|change| change.until.reached(now.boot)) {
            let mut next = Durable::clone(&self.seen.durable);
            let expired = ownership::expire(&mut next, &now);
            self.write_expired(next, &expired, &now).await;
        }
    }

    async fn write_expired(&mut self, next: Durable, expired: &[Change], now: &Now) {
        let ownership = next.ownership;
        let Some((first, rest)) = expired.split_first() else {
            // Forgetting a decided change needs no record; it is written with the next one.
            self.seen.durable = Arc::new(next);
            self.show();
            return;
        };
        let record = |change: &Change| {
            Draft::change(format!("{}.expired", change.kind.as_str()), ownership, Some(change.id), now.wall_ms)
        };
        let more = rest.iter().map(|change| Effect::Also(Box::new(record(change)))).collect();
        // When the disk is full the change stays pending on disk, and the next tick tries again.
        if self.commit(next, record(first), more).await.is_ok() {
            self.show();
            for change in expired {
                self.tell(Event::Decided { change: ownership::waiting(&self.seen.durable, change) });
            }
        }
    }
}

fn fallen_records(fallen: &[Change], ownership: u64, now_ms: u64) -> Vec<Effect> {
    let record = |change: &Change| {
        let what = format!("{}.refused", change.kind.as_str());
        Effect::Also(Box::new(Draft::change(what, ownership, Some(change.id), now_ms)))
    };
    fallen.iter().map(record).collect()
}

/// What a `claim`, `transfer` or `release` is answered while it waits (PROTOCOL.md section 7).
pub(crate) fn pending_value(change: &Change) -> wire::Object {
    let mut value = wire::Object::new();
    value.insert("state", "pending");
    match &change.kind {
        ChangeKind::Claim { salt, code, .. } | ChangeKind::Transfer { salt, code, .. } => {
            value.insert("salt", salt.to_string());
            value.insert("code", code.to_string());
        }
        ChangeKind::Release => {}
    }
    value.insert("expires_ms", ownership::PENDING_MS);
    value
}
