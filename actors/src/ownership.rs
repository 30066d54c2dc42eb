//! Claims, transfers, releases and grants as rules over [`Durable`]: no clock, no randomness, no waiting (PROTOCOL.md section 7).
//!
//! The state actor calls these on a copy, writes the copy together with its record, and only then lets it be seen.

use handlers::BootTime;
use wire::{Agent, ClaimCode, ErrorCode, GrantName, Id, PublicKey, Refusal, Salt};

use crate::command::Waiting;
use crate::store::{Change, ChangeKind, ChangeState, DECISION_KEPT_MS, Deadline, Durable, GrantRow, OwnerRow, Seal};

/// How long a change waits for the keeper.
pub(crate) const PENDING_MS: u64 = 10 * 60 * 1_000;
/// Claims that wait at once; more would only hide the right one.
pub(crate) const CLAIMS_PENDING_MAX: usize = 4;
/// After a refused transfer or release none is taken for this long, doubled with each refusal in a row.
pub(crate) const REFUSED_PAUSE_MS: u64 = 10 * 60 * 1_000;
/// The pause stops doubling at a week.
const REFUSED_PAUSE_MAX_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Decided changes kept at once, newest last; older ones answer no more.
const DECIDED_MAX: usize = 64;

/// Now, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) boot: BootTime,
    pub(crate) wall_ms: u64,
}

impl Now {
    pub(crate) fn after(&self, life_ms: u64) -> Deadline {
        Deadline::after(self.boot, self.wall_ms, life_ms)
    }
}

/// What a request for a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The change, as recorded.
    pub(crate) change: Change,
    /// False when the same request had been made before.
    pub(crate) new: bool,
}

fn conflict(message: impl Into<String>) -> Refusal {
    Refusal { error: ErrorCode::Conflict, message: message.into() }
}

/// Somebody asks to be the first owner.
pub(crate) fn claim(
    durable: &mut Durable,
    device: &PublicKey,
    id: Id,
    claimant: (Agent, PublicKey),
    salt: Salt,
    now: &Now,
) -> Result<Asked, Refusal> {
    let (agent, key) = claimant;
    if let Some(known) = same(durable, &id, &key) {
        return Ok(known);
    }
    if durable.owner.is_some() {
        return Err(conflict("this device is owned already"));
    }
    id_is_free(durable, &id, &key)?;
    let pending = durable.changes.iter().filter(|change| change.state == ChangeState::Pending);
    if pending.clone().any(|change| change.asked_by == key) {
        return Err(conflict("a claim of this key waits already"));
    }
    if pending.count() >= CLAIMS_PENDING_MAX {
        return Err(conflict("too many claims wait already; decide them at the device first"));
    }
    let code = ClaimCode::derive(device, &key, &id, &salt);
    let asked_by = key.clone();
    Ok(record(durable, id, ChangeKind::Claim { agent, key, salt, code }, asked_by, now))
}

/// The owner asks to hand the device on.
pub(crate) fn transfer(
    durable: &mut Durable,
    device: &PublicKey,
    id: Id,
    to: (Agent, PublicKey),
    salt: Salt,
    now: &Now,
) -> Result<Asked, Refusal> {
    let owner = may_change(durable, &id, now)?;
    let owner = match owner {
        May::Known(asked) => return Ok(*asked),
        May::Ask(owner) => owner,
    };
    let (agent, key) = to;
    if key == owner.key {
        return Err(conflict("this key owns the device already"));
    }
    let code = ClaimCode::derive(device, &key, &id, &salt);
    Ok(record(durable, id, ChangeKind::Transfer { agent, key, salt, code }, owner.key, now))
}

/// The owner asks to give the device up.
pub(crate) fn release(durable: &mut Durable, id: Id, now: &Now) -> Result<Asked, Refusal> {
    match may_change(durable, &id, now)? {
        May::Known(asked) => Ok(*asked),
        May::Ask(owner) => Ok(record(durable, id, ChangeKind::Release, owner.key, now)),
    }
}

enum May {
    Known(Box<Asked>),
    Ask(OwnerRow),
}

fn may_change(durable: &Durable, id: &Id, now: &Now) -> Result<May, Refusal> {
    let owner = durable.owner.clone().ok_or_else(|| conflict("this device has no owner"))?;
    if let Some(known) = same(durable, id, &owner.key) {
        return Ok(May::Known(Box::new(known)));
    }
    id_is_free(durable, id, &owner.key)?;
    if durable.changes.iter().any(|change| change.state == ChangeState::Pending) {
        return Err(conflict("another change waits for the keeper"));
    }
    match durable.refused_until {
        Some(until) if !until.reached(now.boot) => {
            let minutes = (until.boot_ms - now.boot.as_ms()).div_ceil(60_000);
            Err(conflict(format!("the keeper refused the last change; ask again in {minutes} min")))
        }
        Some(_) | None => Ok(May::Ask(owner)),
    }
}

/// Nobody's change makes way for another key's under the same id.
fn id_is_free(durable: &Durable, id: &Id, key: &PublicKey) -> Result<(), Refusal> {
    match durable.asked_by(id) {
        Some(other) if other != key => Err(conflict("this id belongs to a change of another key")),
        Some(_) | None => Ok(()),
    }
}

/// The same request again gets the same answer, while it waits.
fn same(durable: &Durable, id: &Id, key: &PublicKey) -> Option<Asked> {
    let change = durable.changes.iter().find(|change| change.id == *id && change.asked_by == *key)?;
    (change.state == ChangeState::Pending).then(|| Asked { change: change.clone(), new: false })
}

fn record(durable: &mut Durable, id: Id, kind: ChangeKind, asked_by: PublicKey, now: &Now) -> Asked {
    let change = Change { id, kind, asked_by, state: ChangeState::Pending, until: now.after(PENDING_MS) };
    durable.changes.retain(|known| known.id != id);
    durable.changes.push(change.clone());
    Asked { change, new: true }
}

/// What a decision changed.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// The decided change, as it stands now.
    pub(crate) change: Change,
    /// Others that fell with it.
    pub(crate) fallen: Vec<Change>,
    /// Whether the device has another owner now, or none.
    pub(crate) new_owner: bool,
}

/// The keeper says yes to a pending change.
pub(crate) fn approve(durable: &mut Durable, id: &Id, now: &Now) -> Option<Decided> {
    // Also when its end could not be written yet.
    durable.changes.iter().find(|change| change.id == *id && !change.until.reached(now.boot))?;
    let change = decide(durable, id, ChangeState::Approved, now)?;
    let owner = match &change.kind {
        ChangeKind::Claim { agent, key, .. } | ChangeKind::Transfer { agent, key, .. } => {
            Some(OwnerRow { agent: agent.clone(), key: key.clone(), since_ms: now.wall_ms })
        }
        ChangeKind::Release => None,
    };
    durable.refusals = 0;
    durable.refused_until = None;
    let fallen = hand_over(durable, owner, now);
    Some(Decided { change, fallen, new_owner: true })
}

/// The keeper says no to a pending change.
pub(crate) fn refuse(durable: &mut Durable, id: &Id, now: &Now) -> Option<Decided> {
    let change = decide(durable, id, ChangeState::Refused, now)?;
    if !matches!(change.kind, ChangeKind::Claim { .. }) {
        durable.refusals = durable.refusals.saturating_add(1);
        durable.refused_until = Some(now.after(pause_ms(durable.refusals)));
    }
    Some(Decided { change, fallen: Vec::new(), new_owner: false })
}

/// The pause after so many refusals in a row.
fn pause_ms(refusals: u32) -> u64 {
    REFUSED_PAUSE_MS.saturating_mul(2_u64.saturating_pow(refusals.saturating_sub(1))).min(REFUSED_PAUSE_MAX_MS)
}

/// The keeper frees the device at once. None: it has no owner.
pub(crate) fn release_here(durable: &mut Durable, now: &Now) -> Option<(OwnerRow, Vec<Change>)> {
    let was = durable.owner.clone()?;
    durable.refusals = 0;
    durable.refused_until = None;
    Some((was, hand_over(durable, None, now)))
}

/// Another owner, or none: every grant off, every other change refused, the ownership number raised.
fn hand_over(durable: &mut Durable, owner: Option<OwnerRow>, now: &Now) -> Vec<Change> {
    durable.owner = owner;
    durable.grants.clear();
    durable.withdrawn.clear();
    durable.ownership = durable.ownership.saturating_add(1);
    let pending = durable.changes.iter().filter(|change| change.state == ChangeState::Pending).map(|change| change.id);
    let pending: Vec<Id> = pending.collect();
    pending.iter().filter_map(|id| decide(durable, id, ChangeState::Refused, now)).collect()
}

fn decide(durable: &mut Durable, id: &Id, state: ChangeState, now: &Now) -> Option<Change> {
    let found = durable.changes.iter_mut().find(|change| change.id == *id && change.state == ChangeState::Pending)?;
    found.state = state;
    found.until = now.after(DECISION_KEPT_MS);
    Some(found.clone())
}

/// Lets time pass: pending changes expire, decided ones are forgotten. Gives those that expired.
pub(crate) fn expire(durable: &mut Durable, now: &Now) -> Vec<Change> {
    let due =
        durable.changes.iter().filter(|change| change.state == ChangeState::Pending && change.until.reached(now.boot));
    let due: Vec<Id> = due.map(|change| change.id).collect();
    let expired = due.iter().filter_map(|id| decide(durable, id, ChangeState::Expired, now)).collect();
    durable.changes.retain(|change| change.state == ChangeState::Pending || !change.until.reached(now.boot));
    let decided = durable.changes.iter().filter(|change| change.state != ChangeState::Pending).count();
    for _ in DECIDED_MAX..decided {
        if let Some(oldest) = durable.changes.iter().position(|change| change.state != ChangeState::Pending) {
            durable.changes.remove(oldest);
        }
    }
    expired
}

/// After a reboot the boot clock says nothing about deadlines set before: what waited expires, what was decided is kept a
/// full time longer, and a pause after a refusal begins anew. Never shorter than promised.
pub(crate) fn after_reboot(durable: &mut Durable, boot_id: &str, now: &Now) -> Vec<Change> {
    if durable.boot_id == boot_id {
        return expire(durable, now);
    }
    durable.boot_id = boot_id.to_owned();
    for change in &mut durable.changes {
        change.until = match change.state {
            ChangeState::Pending => now.after(0),
            ChangeState::Approved | ChangeState::Refused | ChangeState::Expired => now.after(DECISION_KEPT_MS),
        };
    }
    durable.refused_until = durable.refused_until.map(|_| now.after(pause_ms(durable.refusals)));
    expire(durable, now)
}

/// Turns a grant on, of a handler for this content; false when it was on.
pub(crate) fn grant(durable: &mut Durable, name: GrantName, seal: Option<Seal>, now: &Now) -> bool {
    if durable.granted(&name, seal.as_ref()) {
        return false;
    }
    durable.withdrawn.remove(&name);
    durable.grants.insert(name, GrantRow { since_ms: now.wall_ms, seal });
    true
}

/// Turns a grant off; false when it was off, and nothing about it waited for the keeper.
pub(crate) fn revoke(durable: &mut Durable, name: &GrantName) -> bool {
    let waited = durable.withdrawn.remove(name).is_some();
    durable.grants.remove(name).is_some() || waited
}

/// The pending change that the keeper means, by id or by code with or without its space.
pub(crate) fn find_pending(durable: &Durable, which: &str) -> Result<Id, String> {
    let pending = durable.changes.iter().filter(|change| change.state == ChangeState::Pending);
    let wanted = which.trim();
    let means = |change: &&Change| match (wanted.parse::<Id>(), wanted.parse::<ClaimCode>()) {
        (Ok(id), _) => change.id == id,
        (Err(_), Ok(code)) => change.kind.code() == Some(&code),
        (Err(_), Err(_)) => change.kind.code().is_none() && wanted == change.kind.as_str(),
    };
    let mut found = pending.filter(means);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.id),
        (Some(_), Some(_)) => Err(format!("{wanted} fits two claims; name the id that `latchkeyd claims` shows")),
        (None, _) => match durable.changes.iter().find(|change| means(change)) {
            Some(decided) => Err(format!("{wanted} is {} already", decided.state.as_str())),
            None => Err(format!("nothing waits under {wanted}; `latchkeyd claims` lists what does")),
        },
    }
}

/// A change as people see it.
pub(crate) fn waiting(durable: &Durable, change: &Change) -> Waiting {
    let (agent, key) = match &change.kind {
        ChangeKind::Claim { agent, key, .. } | ChangeKind::Transfer { agent, key, .. } => {
            (agent.to_string(), key.clone())
        }
        ChangeKind::Release => {
            let owner = durable.owner.as_ref().filter(|owner| owner.key == change.asked_by);
            (owner.map(|owner| owner.agent.to_string()).unwrap_or_default(), change.asked_by.clone())
        }
    };
    Waiting {
        id: change.id.to_string(),
        kind: change.kind.as_str().to_owned(),
        agent,
        key: key.to_string(),
        code: change.kind.code().map(ToString::to_string).unwrap_or_default(),
        state: change.state.as_str().to_owned(),
        expires_at: change.until.wall_ms,
    }
}

#[cfg(test)]
mod tests;
