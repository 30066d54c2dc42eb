//! The one gate (PROTOCOL.md sections 3 and 4): from bytes to an admitted request, and from its outcome to signed bytes.
//!
//! Called by every link through [`crate::House::answer`]. Each step takes the type of the step before by value. Whatever fails up to admission is one and the same 403, spends
//! nothing, and goes to the log with its reason. Whatever comes after is a signed result.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use handlers::BootTime;
use tokio::sync::oneshot;
use tracing::{Instrument, info_span, warn};
use wire::{
    Answer, ClaimantRequest, Envelope, ErrorCode, Head, Id, Object, Opened, OwnerRequest, PublicKey, Refusal, Refused,
    Sealed, Unopened,
};

use crate::authority::Snapshot;
use crate::challenge::{Issue, Spender};
use crate::house::{Forbidden, Link};
use crate::inner::Inner;
use crate::invoke::{Invocation, Outcome, invoke};
use crate::state::{Say, pending_value};
use crate::store::Change;

/// Above this, verifying and signing move off the async threads: SHA-512 over them takes longer than a switch.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// A request with its signature, its receiver, its asker and its challenge all held.
#[must_use]
struct Admitted<T> {
    head: Head,
    signer: PublicKey,
    request: T,
    issue: Issue,
    /// The ownership under which it was admitted.
    ownership: u64,
}

impl<T> Admitted<T> {
    fn assertion(opened: Opened<T>, issue: Issue, ownership: u64) -> Self {
        let (head, signer, request) = opened.into_parts();
        Self { head, signer, request, issue, ownership }
    }
}

enum Opening {
    Owner(Opened<OwnerRequest>),
    Claimant(Opened<ClaimantRequest>),
}

enum Passed {
    Owner(Admitted<OwnerRequest>),
    Claimant(Admitted<ClaimantRequest>),
}

/// Bytes in, signed bytes out.
pub(crate) async fn answer(inner: &Arc<Inner>, link: Link, body: Bytes) -> Result<Sealed, Forbidden> {
    let received_ms = inner.clock.wall_ms();
    let passed = pass(inner, link, body).await.map_err(|refused| forbid(inner, link, refused))?;
    let (head, to) = match &passed {
        Passed::Owner(admitted) => (admitted.head.clone(), admitted.signer.clone()),
        Passed::Claimant(admitted) => (admitted.head.clone(), admitted.signer.clone()),
    };
    let span = info_span!("request", id = %head.id, ?link);
    // In a task of its own: a caller who leaves does not leave a call without its end on record.
    let worker = inner.tracker.spawn(serve(Arc::clone(inner), passed, received_ms).instrument(span));
    let outcome = match worker.await {
        Ok(served) => served.map_err(|refused| forbid(inner, link, refused))?,
        Err(panic) => {
            warn!(error = %panic, "a request was lost in the house");
            Err(Refusal::new(ErrorCode::Failed, "the device lost this request; look at its status"))
        }
    };
    Ok(seal(inner, &head, &to, &outcome).await)
}

/// Everything up to admission.
async fn pass(inner: &Arc<Inner>, link: Link, body: Bytes) -> Result<Passed, Refused> {
    let snapshot = inner.snapshot();
    let now = inner.clock.boot();
    let opening = if body.len() <= INLINE_BYTES_MAX {
        open(&body, &snapshot, now)
    } else {
        let seen = snapshot.clone();
        let opened = tokio::task::spawn_blocking(move || open(&body, &seen, now)).await;
        opened.unwrap_or_else(|_| Err(Refused::Envelope("it could not be read".to_owned())))
    };
    match opening? {
        Opening::Owner(opened) => admit_owner(inner, link, opened, &snapshot).map(Passed::Owner),
        Opening::Claimant(opened) => admit_claimant(inner, link, opened, &snapshot).map(Passed::Claimant),
    }
}

/// The owner's key is tried first; only if that fails, and somebody else may have something to say, is the body looked at.
fn open(body: &[u8], snapshot: &Snapshot, now: BootTime) -> Result<Opening, Refused> {
    let envelope = Envelope::parse(body)?;
    let envelope = match snapshot.owner_key() {
        None => envelope,
        Some(owner) => match envelope.open_owner(owner) {
            Ok(opened) => return Ok(Opening::Owner(opened)),
            Err(Unopened::Refused(refused)) => return Err(refused),
            Err(Unopened::NotOwner(envelope)) => envelope,
        },
    };
    if !snapshot.hears_strangers(now) {
        return Err(Refused::Signature);
    }
    let durable = Arc::clone(&snapshot.durable);
    envelope.open_claimant(move |id: &Id| durable.asked_by(id).cloned()).map(Opening::Claimant)
}

fn admit_owner(
    inner: &Inner,
    link: Link,
    opened: Opened<OwnerRequest>,
    snapshot: &Snapshot,
) -> Result<Admitted<OwnerRequest>, Refused> {
    // Read anew: a large body took its time to verify.
    let now = inner.clock.boot();
    if opened.head().to != *inner.signer.public() {
        return Err(Refused::WrongTo);
    }
    let fresh = inner.challenges.check(&opened.head().challenge, link, now)?;
    let late = matches!(opened.message(), OwnerRequest::Activate { .. })
        && snapshot.activate_after.is_some_and(|mark| fresh.issue() <= mark);
    if late {
        return Err(Refused::Superseded);
    }
    let issue = inner.challenges.spend(fresh, Spender::Known, now)?;
    Ok(Admitted::assertion(opened, issue, snapshot.durable.ownership))
}

fn admit_claimant(
    inner: &Inner,
    link: Link,
    opened: Opened<ClaimantRequest>,
    snapshot: &Snapshot,
) -> Result<Admitted<ClaimantRequest>, Refused> {
    let now = inner.clock.boot();
    if opened.head().to != *inner.signer.public() {
        return Err(Refused::WrongTo);
    }
    let spender = match opened.message() {
        ClaimantRequest::Claim { key, proof, .. } => {
            let pairing = snapshot.open_pairing(now).ok_or(Refused::NotAllowed)?;
            if !pairing.secret.check(key, &opened.head().id, proof) {
                return Err(Refused::Proof);
            }
            Spender::Claimant
        }
        // Its signature held with the key on record for that change.
        ClaimantRequest::ChangeStatus { .. } => Spender::Known,
    };
    let fresh = inner.challenges.check(&opened.head().challenge, link, now)?;
    let issue = inner.challenges.spend(fresh, spender, now)?;
    Ok(Admitted::assertion(opened, issue, snapshot.durable.ownership))
}

/// What an admitted request comes to. `Err` is a 403 after all: the device changed hands meanwhile.
async fn serve(inner: Arc<Inner>, passed: Passed, received_ms: u64) -> Result<Outcome, Refused> {
    match passed {
        Passed::Claimant(admitted) => serve_claimant(&inner, admitted).await.map(|outcome| outcome.map(Arc::new)),
        Passed::Owner(admitted) => {
            let ownership = admitted.ownership;
            let outcome = serve_owner(&inner, admitted, received_ms).await?;
            if still_owned(&inner, ownership).await { Ok(outcome) } else { Err(Refused::NotAllowed) }
        }
    }
}

/// Nothing of a former owner's work is sent to anyone; while the device changes hands, nobody knows yet whose it is.
async fn still_owned(inner: &Inner, ownership: u64) -> bool {
    let mut snapshots = inner.snapshots.clone();
    let settled = snapshots.wait_for(|snapshot| !snapshot.changing).await;
    settled.is_ok_and(|snapshot| snapshot.durable.ownership == ownership)
}

async fn serve_claimant(
    inner: &Inner,
    admitted: Admitted<ClaimantRequest>,
) -> Result<Result<Object, Refusal>, Refused> {
    let (id, ownership) = (admitted.head.id, admitted.ownership);
    Ok(match admitted.request {
        ClaimantRequest::Claim { agent, key, proof: _ } => {
            ask(inner, |reply| Say::Claim { id, ownership, agent, key, reply }).await
        }
        ClaimantRequest::ChangeStatus { target } => change_status(inner, &target, &admitted.signer),
    })
}

async fn serve_owner(
    inner: &Arc<Inner>,
    admitted: Admitted<OwnerRequest>,
    received_ms: u64,
) -> Result<Outcome, Refused> {
    let (id, ownership) = (admitted.head.id, admitted.ownership);
    let outcome = match admitted.request {
        OwnerRequest::Registration => Ok(crate::registration::registration(inner).to_object()),
        OwnerRequest::ChangeStatus { target } => change_status(inner, &target, &admitted.signer),
        OwnerRequest::Activate { lease } => {
            let (reply, done) = oneshot::channel();
            inner.state.send(Say::Activate { issue: admitted.issue, ownership, lease, reply });
            match done.await {
                Ok(Ok(())) => Ok(one("lease_ms", lease.as_ms())),
                Ok(Err(refused)) => return Err(refused),
                Err(_) => Err(state_down()),
            }
        }
        OwnerRequest::Deactivate => {
            let (reply, done) = oneshot::channel();
            inner.state.send(Say::Deactivate { ownership, reply });
            done.await.map(|()| Object::new()).map_err(|_| state_down())
        }
        OwnerRequest::Invoke { capability, arguments } => {
            let owner = inner.snapshots.borrow().owner_under(ownership).cloned();
            let Some(owner) = owner else { return Err(Refused::NotAllowed) };
            let call = Invocation { id, capability, arguments, agent: owner.agent, ownership, received_ms };
            // In a box: it is the largest of these futures, and the others would all be moved at its size.
            return Ok(Box::pin(invoke(Arc::clone(inner), call)).await);
        }
        OwnerRequest::Cancel { target } => Ok(one("cancelled", inner.registry.cancel(&target))),
        OwnerRequest::Inputs { after } => inputs(after),
        OwnerRequest::Transfer { agent, key } => {
            ask(inner, |reply| Say::Transfer { id, ownership, agent, key, reply }).await
        }
        OwnerRequest::Release => ask(inner, |reply| Say::Release { id, ownership, reply }).await,
    };
    Ok(outcome.map(Arc::new))
}

/// Nothing has been typed at this device, so nothing was delivered, and only 0 can be acknowledged.
fn inputs(after: u64) -> Result<Object, Refusal> {
    if after > 0 {
        let message = "after: nothing up to this number was delivered";
        return Err(Refusal::new(ErrorCode::InvalidArguments, message));
    }
    let mut value = one("inputs", serde_json::Value::Array(Vec::new()));
    value.insert("more", false);
    Ok(value)
}

async fn ask(
    inner: &Inner,
    say: impl FnOnce(oneshot::Sender<Result<Change, Refusal>>) -> Say,
) -> Result<Object, Refusal> {
    let (reply, asked) = oneshot::channel();
    inner.state.send(say(reply));
    asked.await.unwrap_or_else(|_| Err(state_down())).map(|change| pending_value(&change))
}

fn state_down() -> Refusal {
    Refusal::new(
        ErrorCode::StorageFull,
        "the device's state is not at work, so nothing is done; see the device's status",
    )
}

fn change_status(inner: &Inner, target: &Id, asker: &PublicKey) -> Result<Object, Refusal> {
    let snapshot = inner.snapshots.borrow();
    let found = snapshot.durable.changes.iter().find(|change| change.id == *target && change.asked_by == *asker);
    match found {
        Some(change) => Ok(one("state", change.state.as_str())),
        None => Err(Refusal::new(ErrorCode::InvalidArguments, "target: no change of yours is on record under this id")),
    }
}

async fn seal(inner: &Arc<Inner>, head: &Head, to: &PublicKey, outcome: &Outcome) -> Sealed {
    let outcome = outcome.as_ref().map(Arc::as_ref);
    let body = Answer::body_of(&head.id, &head.challenge, to, outcome);
    if body.len() <= INLINE_BYTES_MAX {
        return wire::envelope::seal(inner.signer.as_ref(), &body);
    }
    let signer = Arc::clone(&inner.signer);
    let blocking = tokio::task::spawn_blocking({
        let body = body.clone();
        move || wire::envelope::seal(signer.as_ref(), &body)
    });
    // The runtime is ending when this fails; the answer is sealed here instead.
    blocking.await.unwrap_or_else(|_| wire::envelope::seal(inner.signer.as_ref(), &body))
}

fn forbid(inner: &Inner, link: Link, refused: Refused) -> Forbidden {
    inner.refused.fetch_add(1, Ordering::Relaxed);
    inner.refused_log.line(link, &refused, inner.clock.boot());
    Forbidden(refused)
}

/// Refused requests in the log: anyone can send them, so the log gets some in full and then a count.
#[derive(Debug, Default)]
pub(crate) struct RefusedLog(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    since: u64,
    lines: u32,
    left_out: u64,
}

impl RefusedLog {
    /// Lines in full each second.
    const LINES_MAX: u32 = 20;

    fn line(&self, link: Link, refused: &Refused, now: BootTime) {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_ms().saturating_sub(window.since) >= 1_000 {
            if window.left_out > 0 {
                warn!(count = window.left_out, "more requests were refused");
            }
            *window = Window { since: now.as_ms(), lines: 0, left_out: 0 };
        }
        if window.lines < Self::LINES_MAX {
            window.lines += 1;
            warn!(reason = refused.label(), ?link, detail = %wire::text::visible(&refused.to_string()), "request refused");
        } else {
            window.left_out += 1;
        }
    }
}

/// An object of one member.
fn one(name: &str, value: impl Into<serde_json::Value>) -> Object {
    let mut object = Object::new();
    object.insert(name, value);
    object
}
