//! One invocation from admission to its record (PROTOCOL.md section 6).
//!
//! The order of the checks is the protocol's, and the first that fails answers. Every outcome is on disk before its result
//! leaves; what changes something, and every capture, is on disk as *started* before the handler, or the sign, moves.

use std::sync::Arc;
use std::time::Duration;

use handlers::{Fault, Lit, SignState};
use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use wire::envelope::RESULT_BODY_BYTES_MAX;
use wire::record::{RecordKind, content_digest};
use wire::{Agent, Arguments, CapabilityName, Effect as CallEffect, ErrorCode, Id, Object, Refusal};

use crate::authority::{Permit, authorise};
use crate::capability::{Ending, OUT_OF_SERVICE, Perform, ReplyTo, Run};
use crate::catalogue::Installation;
use crate::command::Event;
use crate::inner::Inner;
use crate::journal::{Draft, Value};
use crate::registry::{Shut, Ticket};
use crate::slots::{NoPlace, Slot};
use crate::store::{Effect, OutcomeRow, StoreError, Written};
use crate::tree::NodeState;

/// How long the sign may take to be lit and confirmed.
const LIGHT_MAX: Duration = Duration::from_secs(3);
/// The envelope of a result and its other members need some room beside the value.
const VALUE_BYTES_MAX: usize = RESULT_BODY_BYTES_MAX - 4 * 1024;
/// How long health waits for its record: a disk that hangs must not silence the one capability that can say so.
const HEALTH_RECORD_MAX: Duration = Duration::from_millis(500);

/// An admitted invocation.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) id: Id,
    pub(crate) capability: CapabilityName,
    pub(crate) arguments: Object,
    pub(crate) agent: Agent,
    pub(crate) ownership: u64,
    pub(crate) received_ms: u64,
}

impl Invocation {
    /// Everything but health works on record or not at all.
    fn is_health(&self) -> bool {
        self.capability.as_str() == "device.health"
    }
}

/// A value is shared between its record and its result, never copied.
pub(crate) type Outcome = Result<Arc<Object>, Refusal>;

/// Runs an invocation and writes it down.
pub(crate) async fn invoke(inner: Arc<Inner>, call: Invocation) -> Outcome {
    match checked(&inner, &call).await {
        Checked::Go(go) => run(&inner, &call, *go).await,
        Checked::Answer(outcome) => refused(&inner, &call, outcome).await,
    }
}

/// What the checks gave: everything that the run needs, or the answer.
enum Checked {
    Go(Box<Go>),
    /// Nothing runs: a refusal, or the stored outcome of the same id and content.
    Answer(Outcome),
}

/// An authorised call with its place.
struct Go {
    /// What it was authorised for: another may stand under its name a moment later.
    installation: Arc<Installation>,
    permit: Permit,
    arguments: Arguments,
    ticket: Ticket,
    slot: Slot,
}

fn no(error: ErrorCode, message: impl Into<String>) -> Checked {
    Checked::Answer(Err(Refusal::new(error, message)))
}

async fn checked(inner: &Inner, call: &Invocation) -> Checked {
    if let Err(wait_ms) = inner.bucket.take(inner.clock.boot()) {
        return no(ErrorCode::RateLimited, format!("too many requests; come back in {wait_ms} ms"));
    }
    let Some(installation) = inner.catalogue.get(&call.capability) else {
        return no(ErrorCode::Unsupported, format!("there is no {} on this device", call.capability));
    };
    let arguments = match installation.declaration.bounds.check(call.arguments.clone()) {
        Ok(arguments) => arguments,
        Err(error) => return no(ErrorCode::InvalidArguments, error.to_string()),
    };
    let ticket = match inner.registry.enter(call.id, installation.changes()) {
        Ok(ticket) => ticket,
        Err(Shut::InProgress) => {
            return no(ErrorCode::InProgress, "a call with this id is still running");
        }
        Err(Shut::Closed) => {
            return no(ErrorCode::Busy, "the device is shutting down or changing hands");
        }
    };
    if installation.changes()
        && let Some(known) = known(inner, call, &arguments).await
    {
        return Checked::Answer(known);
    }
    let permit = {
        let snapshot = inner.snapshots.borrow();
        match authorise(&snapshot, &installation.declaration, installation.seal(), call.ownership, inner.clock.boot()) {
            Ok(permit) => permit,
            Err(refusal) => return Checked::Answer(Err(refusal)),
        }
    };
    if !call.is_health() && !inner.journal_alive() {
        return no(ErrorCode::StorageFull, "no record can be written, so nothing is done; see the device's status");
    }
    match ready(inner, &installation, &ticket).await {
        Ok(slot) => Checked::Go(Box::new(Go { installation, permit, arguments, ticket, slot })),
        Err(refusal) => Checked::Answer(Err(refusal)),
    }
}

/// The last checks: the sign, the actor, the place.
async fn ready(inner: &Inner, installation: &Installation, ticket: &Ticket) -> Result<Slot, Refusal> {
    let name = &installation.declaration.name;
    if installation.declaration.captures
        && let Err(fault) = inner.sign.ready()
    {
        return Err(Refusal::new(ErrorCode::HardwareUnavailable, format!("no working in-use sign: {fault}")));
    }
    installation.refuse_if_down()?;
    let limit = installation.declaration.timeout;
    let place = installation.slots.take(limit, ticket.stop(), &installation.post).await;
    place.map_err(|no_place| match no_place {
        NoPlace::Full => Refusal::new(ErrorCode::Busy, format!("{name} is in use; as many calls wait as may")),
        NoPlace::WaitedTooLong => Refusal::new(ErrorCode::Busy, format!("{name} stayed in use")),
        NoPlace::Cancelled => Refusal::new(ErrorCode::Cancelled, "it was cancelled before it began"),
    })
}

impl Installation {
    fn changes(&self) -> bool {
        self.declaration.effect == CallEffect::Change
    }

    fn started_on_record(&self) -> bool {
        self.changes() || self.declaration.captures
    }

    fn refuse_if_down(&self) -> Result<(), Refusal> {
        let name = &self.declaration.name;
        match self.post.state() {
            Some(NodeState::Running) => Ok(()),
            Some(NodeState::Restarting) | None => {
                Err(Refusal::new(ErrorCode::Busy, format!("{name} is being restarted; try again in a few seconds")))
            }
            Some(NodeState::Unavailable | NodeState::Stopped) => {
                let message =
                    format!("{name} failed too often and was given up; at the device: latchkeyd restart {name}");
                Err(Refusal::new(ErrorCode::HardwareUnavailable, message))
            }
        }
    }
}

impl Inner {
    /// Whether records can be written. A full disk is tried again by the journal's own probe.
    fn journal_alive(&self) -> bool {
        let up = |path| self.board.state_of(path) != Some(NodeState::Unavailable);
        self.store.writable() && up("store") && up("state") && up("journal")
    }
}

/// A repeated id of effect `change`: the stored outcome, or why there is none.
async fn known(inner: &Inner, call: &Invocation, arguments: &Arguments) -> Option<Outcome> {
    let (ownership, id) = (call.ownership, call.id);
    let row = match inner.store.query(move |vault| vault.outcome(ownership, &id)).await {
        Ok(row) => row?,
        Err(error) => return Some(Err(storage_full(&error))),
    };
    Some(repeated(&row, &content_digest(&call.capability, arguments.as_object())))
}

fn repeated(row: &OutcomeRow, content: &[u8; 32]) -> Outcome {
    if row.content != *content {
        return Err(Refusal::new(ErrorCode::IdReused, "this id came before with other content"));
    }
    let unknown = |why: &str| Err(Refusal::new(ErrorCode::UnknownOutcome, why));
    match &row.outcome {
        None => unknown("it began, and nothing proves how it ended"),
        Some(json) => restore(json).unwrap_or_else(|| unknown("its outcome cannot be read")),
    }
}

async fn run(inner: &Arc<Inner>, call: &Invocation, go: Go) -> Outcome {
    let Go { installation, permit, arguments, ticket, slot } = go;
    let content = installation.changes().then(|| content_digest(&call.capability, arguments.as_object()));
    let started = if installation.started_on_record() {
        match begin(inner, call, content).await {
            Ok(sequence) => Some(sequence),
            Err(NoStart::Known(outcome)) => return refused(inner, call, outcome).await,
            Err(NoStart::Store(error)) => return Err(storage_full(&error)),
        }
    } else {
        None
    };
    let shown = !call.is_health();
    if shown {
        let (id, agent) = (call.id.to_string(), call.agent.to_string());
        inner.tell(Event::Acting { id, agent, capability: call.capability.to_string() });
    }
    let acted = act(inner, call, &installation, (permit, arguments, slot), &ticket).await;
    let stored = end(inner, call, content, started, &acted).await;
    // Until here the call is under way: a repeated id finds either this place taken or the outcome on record.
    drop(ticket);
    let outcome = acted.outcome;
    let outcome = match stored {
        Ok(()) => outcome,
        // Health answers also without a journal; everything else says what cannot be shown on record.
        Err(_) if call.is_health() => outcome,
        Err(error) if installation.changes() => {
            Err(Refusal::new(ErrorCode::UnknownOutcome, format!("it was done, but its record is missing: {error}")))
        }
        Err(error) => Err(storage_full(&error)),
    };
    if shown {
        let word = outcome.as_ref().map_or_else(|refusal| refusal.error.as_str(), |_| "ok");
        let (id, capability) = (call.id.to_string(), call.capability.to_string());
        info!(%id, %capability, outcome = word, "call");
        inner.tell(Event::Acted { id, capability, outcome: word.to_owned() });
    }
    outcome
}

/// Why a call is not on record as started.
enum NoStart {
    /// Another call with its id was, before it.
    Known(Outcome),
    Store(StoreError),
}

/// The *started* record; of two calls with one id, one writes it.
async fn begin(inner: &Inner, call: &Invocation, content: Option<[u8; 32]>) -> Result<u64, NoStart> {
    let draft = Draft { ended_at: None, outcome: None, ..draft(inner, call) };
    let mut effects = vec![Effect::Open];
    if let Some(content) = content {
        effects.push(Effect::Begin { id: call.id, content });
    }
    match inner.store.write(draft, effects).await {
        Ok(Written::Done { sequence }) => Ok(sequence),
        Ok(Written::Known(row)) => Err(NoStart::Known(repeated(&row, &content.unwrap_or_default()))),
        Err(error) => Err(NoStart::Store(error)),
    }
}

/// What a run came to.
struct Acted {
    outcome: Outcome,
    /// Whether the handler was reached; if not, nothing was done and the id is not used up.
    begun: bool,
    sign_on_at: Option<u64>,
}

impl Acted {
    fn not_begun(refusal: Refusal) -> Self {
        Self { outcome: Err(refusal), begun: false, sign_on_at: None }
    }
}

/// Lights the sign if it must, and has the actor do the work.
async fn act(
    inner: &Arc<Inner>,
    call: &Invocation,
    installation: &Installation,
    (permit, arguments, slot): (Permit, Arguments, Slot),
    ticket: &Ticket,
) -> Acted {
    let lit = if installation.declaration.captures {
        match light(inner, ticket).await {
            Ok(lit) => Some(lit),
            Err(refusal) => return Acted::not_begun(refusal),
        }
    } else {
        None
    };
    let sign_on_at = lit.as_ref().map(Lit::on_at_ms);
    if let Some(on_at) = sign_on_at {
        record_sign_off(inner, call, on_at);
    }
    let (reply, ending) = oneshot::channel();
    let (stop, reply) = (ticket.stop().clone(), ReplyTo::new(reply));
    let run = Run { permit, arguments, agent: call.agent.clone(), lit, stop, slot, reply };
    installation.actor.send(Perform::Run(Box::new(run)));
    let ending = match ending.await.ok() {
        Some(Ending::Unreached) if installation.post.has_left() => Some(Ending::NotBegun(OUT_OF_SERVICE)),
        ending => ending,
    };
    let begun = !matches!(ending, Some(Ending::NotBegun(_) | Ending::Unreached));
    Acted { outcome: outcome_of(ending, installation.declaration.effect, &call.capability), begun, sign_on_at }
}

async fn light(inner: &Inner, ticket: &Ticket) -> Result<Lit, Refusal> {
    let lit = tokio::select! {
        biased;
        () = ticket.stop().cancelled() => {
            return Err(Refusal::new(ErrorCode::Cancelled, "it was cancelled before it began"));
        }
        lit = tokio::time::timeout(LIGHT_MAX, inner.sign.light()) => lit,
    };
    match lit {
        Ok(Ok(lit)) => Ok(lit),
        Ok(Err(fault)) => Err(unlit(&fault.to_string())),
        Err(_) => Err(unlit("it was not confirmed in time")),
    }
}

fn unlit(why: &str) -> Refusal {
    Refusal::new(ErrorCode::HardwareUnavailable, format!("the in-use sign does not light: {why}"))
}

/// How an ending is told, by the effect of the call: what began and has no proof of its end is `unknown_outcome`.
fn outcome_of(ending: Option<Ending>, effect: CallEffect, capability: &CapabilityName) -> Outcome {
    let unless_change = |error: ErrorCode| match effect {
        CallEffect::Read => error,
        CallEffect::Change => ErrorCode::UnknownOutcome,
    };
    let (error, message) = match ending {
        Some(Ending::Value(value)) if !fits(&value) => {
            (ErrorCode::Failed, format!("the result of {capability} does not fit"))
        }
        Some(Ending::Value(value)) => return Ok(Arc::new(value)),
        Some(Ending::Fault(fault)) => match fault {
            Fault::Unavailable(why) => (ErrorCode::HardwareUnavailable, why),
            Fault::Busy(why) => (ErrorCode::Busy, why),
            Fault::Invalid { member, reason } => (ErrorCode::InvalidArguments, format!("{member}: {reason}")),
            Fault::Failed(why) => (ErrorCode::Failed, why),
            Fault::Crashed(why) | Fault::Broken(why) => (unless_change(ErrorCode::Failed), why),
            Fault::Stopped => (unless_change(ErrorCode::Cancelled), "it was stopped".to_owned()),
        },
        Some(Ending::TimedOut) => (unless_change(ErrorCode::Timeout), format!("{capability} took longer than it may")),
        Some(Ending::Cancelled(why)) => (unless_change(ErrorCode::Cancelled), why.to_owned()),
        Some(Ending::NotBegun(why)) => (ErrorCode::Cancelled, format!("{why} before it began")),
        Some(Ending::Unreached) => {
            (ErrorCode::Busy, format!("{capability} is being restarted; try again in a few seconds"))
        }
        Some(Ending::Crashed(_)) => {
            (unless_change(ErrorCode::Failed), format!("{capability} crashed and is restarted"))
        }
        None => (unless_change(ErrorCode::Failed), format!("{capability} was restarted under the call")),
    };
    Err(Refusal::new(error, message))
}

/// Whether a value fits a result: in bytes, and in depth, where the result is the first container.
fn fits(value: &Object) -> bool {
    let bytes_fit = value.bytes_at_most() <= VALUE_BYTES_MAX || value.to_vec().len() <= VALUE_BYTES_MAX;
    bytes_fit && value.depth() < wire::json::DEPTH_MAX
}

/// The last record of a run, with the end of its started one and the outcome that a repeated id gets.
async fn end(
    inner: &Inner,
    call: &Invocation,
    content: Option<[u8; 32]>,
    started: Option<u64>,
    acted: &Acted,
) -> Result<(), StoreError> {
    let outcome = &acted.outcome;
    let draft = Draft { sign_on_at: acted.sign_on_at, ..finished(inner, call, outcome) };
    let mut effects = Vec::new();
    if let Some(started) = started {
        effects.push(Effect::Close { started });
    }
    // Of an unknown outcome the row of the start says enough.
    let known = !matches!(outcome, Err(refusal) if refusal.error == ErrorCode::UnknownOutcome);
    match content {
        // Nothing was done, and a refusal does not use up an id.
        Some(_) if !acted.begun => effects.push(Effect::Unbegin { id: call.id }),
        Some(content) if known => effects.push(Effect::Finish { id: call.id, content, outcome: keep(outcome) }),
        Some(_) | None => {}
    }
    write(inner, call, draft, effects).await
}

/// Writes the record of a call; health does not wait for a disk that hangs.
async fn write(inner: &Inner, call: &Invocation, draft: Draft, effects: Vec<Effect>) -> Result<(), StoreError> {
    let written = inner.store.write(draft, effects);
    let written = if call.is_health() {
        tokio::time::timeout(HEALTH_RECORD_MAX, written).await.unwrap_or(Err(StoreError::Gone))
    } else {
        written.await
    };
    written.map(|_| ())
}

/// Writes an answer that ran nothing, and gives it.
async fn refused(inner: &Inner, call: &Invocation, outcome: Outcome) -> Outcome {
    let stored = write(inner, call, finished(inner, call, &outcome), Vec::new()).await;
    match stored {
        Ok(()) => outcome,
        Err(error) => {
            debug!(%error, "a refusal could not be recorded");
            Err(storage_full(&error))
        }
    }
}

fn storage_full(error: &StoreError) -> Refusal {
    Refusal::new(ErrorCode::StorageFull, error.to_string())
}

fn draft(inner: &Inner, call: &Invocation) -> Draft {
    Draft {
        kind: RecordKind::Call,
        ownership: call.ownership,
        id: Some(call.id),
        what: call.capability.to_string(),
        arguments: Some(call.arguments.clone()),
        received_at: Some(call.received_ms),
        ended_at: Some(inner.clock.wall_ms()),
        outcome: None,
        value: Value::None,
        sign_on_at: None,
        sign_off_at: None,
    }
}

fn finished(inner: &Inner, call: &Invocation, outcome: &Outcome) -> Draft {
    let (word, value) = match outcome {
        Ok(value) => ("ok", Value::Object(Arc::clone(value))),
        Err(refusal) => (refusal.error.as_str(), Value::None),
    };
    Draft { outcome: Some(word), value, ..draft(inner, call) }
}

/// When the sign goes off, a `sign` record with the call's id says when; the result does not wait for it.
fn record_sign_off(inner: &Arc<Inner>, call: &Invocation, on_at: u64) {
    let (house, call) = (Arc::clone(inner), call.clone());
    let mut sign = inner.sign.watch();
    inner.tracker.spawn(async move {
        // An end of the sign itself means that nothing is lit by us any more.
        drop(sign.wait_for(|state| matches!(state, SignState::Dark)).await);
        let off_at = house.clock.wall_ms();
        let draft = Draft {
            kind: RecordKind::Sign,
            arguments: None,
            received_at: None,
            ended_at: None,
            sign_on_at: Some(on_at),
            sign_off_at: Some(off_at),
            ..draft(&house, &call)
        };
        if let Err(error) = house.store.write(draft, Vec::new()).await {
            warn!(%error, "the end of the in-use sign could not be recorded");
        }
    });
}

/// An outcome as it is kept for a repeated id.
fn keep(outcome: &Outcome) -> String {
    let kept = match outcome {
        Ok(value) => serde_json::json!({ "value": value.as_ref() }),
        Err(refusal) => {
            serde_json::json!({ "error": refusal.error.as_str(), "message": refusal.message })
        }
    };
    kept.to_string()
}

fn restore(json: &str) -> Option<Outcome> {
    let mut kept = wire::json::parse(json.as_bytes()).ok()?.into_map();
    if let Some(serde_json::Value::Object(value)) = kept.shift_remove("value") {
        return Some(Ok(Arc::new(Object::from(value))));
    }
    let error = kept.get("error")?.as_str()?.parse().ok()?;
    Some(Err(Refusal::new(error, kept.get("message")?.as_str()?)))
}
