//! The capability actor: it keeps the time, and the work runs apart from it.
//!
//! One actor for each capability owns the handler and takes `(Permit, …)` and nothing else. The work runs in a task of its own,
//! so a cancel, a revoked grant, a lost sign or the time-out is acted on while it runs. A panic in the handler ends the actor,
//! and its supervisor makes both anew; calls beside it go on. Work that will not stop is abandoned, counted, and its handler
//! replaced.

#![expect(
    clippy::disallowed_methods,
    reason = "work runs apart from the actor, which keeps its stop token and abandons it by count"
)]

use std::sync::Arc;
use std::time::Duration;

use handlers::{Call, Clock, Fault, Lit};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::{Agent, Arguments, Declaration, Object};

use crate::Installed;
use crate::authority::{Permit, Snapshot};
use crate::parts::Work;
use crate::slots::Slot;
use crate::supervise::{Child, Intensity, Place, Start, panic_text};
use crate::tree::Board;

/// How long a handler may take to be made; longer counts as a failed start.
const MAKE_MAX: Duration = Duration::from_secs(5);
/// How long work may take to stop once told to, before it is abandoned.
const STOP_MAX: Duration = Duration::from_secs(2);

/// What a capability actor stands on.
#[derive(Clone)]
pub(crate) struct CapabilityParts {
    pub(crate) installed: Installed,
    pub(crate) path: String,
    pub(crate) board: Board,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
}

/// One call, with everything it needs to run.
pub(crate) struct Run {
    pub(crate) permit: Permit,
    pub(crate) arguments: Arguments,
    pub(crate) agent: Agent,
    /// The lit sign, for a capture.
    pub(crate) lit: Option<Lit>,
    /// Fires when the call is cancelled from outside.
    pub(crate) stop: CancellationToken,
    pub(crate) slot: Slot,
    /// A dropped reply means that the actor died under the call.
    pub(crate) reply: oneshot::Sender<Ending>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Ending {
    Value(Object),
    Fault(Fault),
    TimedOut,
    Cancelled(&'static str),
    /// The permit no longer held when the work was to begin: it did not.
    NotBegun(&'static str),
    Crashed(String),
}

/// Messages to a capability actor.
pub(crate) enum Perform {
    Run(Box<Run>),
    /// The work of a call broke the handler; it is not used again.
    Broken(String),
}

/// The capability actor.
pub(crate) struct Capability;

pub(crate) struct Hands {
    parts: CapabilityParts,
    work: Work,
}

impl Actor for Capability {
    type Msg = Perform;
    type State = Hands;
    type Arguments = CapabilityParts;

    async fn pre_start(&self, _myself: ActorRef<Perform>, parts: CapabilityParts) -> Result<Hands, ActorProcessingErr> {
        let make = Arc::clone(&parts.installed.make);
        let made = tokio::time::timeout(MAKE_MAX, tokio::task::spawn_blocking(move || make())).await;
        match made {
            Ok(Ok(Ok(work))) => Ok(Hands { parts, work }),
            Ok(Ok(Err(fault))) => Err(fault.to_string().into()),
            Ok(Err(panic)) => Err(format!("panicked: {}", panic_text(panic)).into()),
            Err(_) => Err(format!("was not ready within {} s", MAKE_MAX.as_secs()).into()),
        }
    }

    async fn handle(
        &self,
        myself: ActorRef<Perform>,
        message: Perform,
        hands: &mut Hands,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Perform::Run(run) => {
                hands.begin(*run, myself);
                Ok(())
            }
            Perform::Broken(why) => Err(why.into()),
        }
    }
}

impl Hands {
    fn begin(&self, run: Run, myself: ActorRef<Perform>) {
        if run.reply.is_closed() {
            return;
        }
        if !run.permit.is_for(&self.parts.installed.declaration.name) {
            drop(run.reply.send(Ending::NotBegun("its permit is for another capability")));
            return;
        }
        let held = run.permit.holds(&self.parts.snapshots.borrow(), self.parts.clock.boot());
        if let Err(lost) = held {
            drop(run.reply.send(Ending::NotBegun(lost.in_words())));
            return;
        }
        if run.stop.is_cancelled() {
            drop(run.reply.send(Ending::NotBegun("it was cancelled")));
            return;
        }
        tokio::spawn(perform(self.parts.clone(), self.work.clone(), run, myself));
    }
}

/// One call from its start to the last trace of its work.
async fn perform(parts: CapabilityParts, work: Work, run: Run, actor: ActorRef<Perform>) {
    let Run { permit, arguments, agent, lit, stop: cancelled, slot, reply } = run;
    let timeout = parts.installed.declaration.timeout;
    let sign_lost = lit.as_ref().map(Lit::lost);
    let stop = CancellationToken::new();
    let call = Call { arguments, stop: stop.clone(), clock: Arc::clone(&parts.clock), agent };
    let began = parts.clock.boot();
    parts.board.began(&parts.path);
    let mut task: JoinHandle<Result<Object, Fault>> = tokio::spawn(async move {
        match (work, lit) {
            (Work::Plain(handler), _) => handler.run(call).await,
            (Work::Capture(handler), Some(lit)) => handler.run(call, lit).await,
            (Work::Capture(_), None) => Err(Fault::Unavailable("there is no working in-use sign".to_owned())),
        }
    });
    let (ending, running) = tokio::select! {
        biased;
        done = &mut task => (ended(done), false),
        () = cancelled.cancelled() => (Ending::Cancelled("it was cancelled"), true),
        why = permit_lost(&permit, &parts) => (Ending::Cancelled(why), true),
        () = token(sign_lost.as_ref()) => (Ending::Cancelled("the in-use sign was lost"), true),
        () = tokio::time::sleep(timeout) => (Ending::TimedOut, true),
    };
    let broken = if let Ending::Crashed(why) = &ending { Some(why.clone()) } else { None };
    parts.board.ended(&parts.path, parts.clock.boot().since(began));
    match &ending {
        Ending::Fault(fault) => parts.board.error(&parts.path, fault.to_string()),
        Ending::TimedOut => parts.board.error(&parts.path, format!("cut off after {} ms", timeout.as_millis())),
        Ending::Value(_) | Ending::Cancelled(_) | Ending::NotBegun(_) | Ending::Crashed(_) => {}
    }
    drop(reply.send(ending));
    if let Some(why) = broken {
        drop(slot);
        drop(actor.cast(Perform::Broken(why)));
    } else if running {
        stop.cancel();
        wind_down(task, slot, &parts, &actor).await;
    }
}

/// Waits for work that was told to stop; past the limit it is abandoned and its handler replaced.
async fn wind_down(
    mut task: JoinHandle<Result<Object, Fault>>,
    slot: Slot,
    parts: &CapabilityParts,
    actor: &ActorRef<Perform>,
) {
    if tokio::time::timeout(STOP_MAX, &mut task).await.is_ok() {
        return;
    }
    parts.board.abandoned(&parts.path, 1);
    drop(slot);
    task.abort();
    drop(actor.cast(Perform::Broken("its work would not stop".to_owned())));
    drop(task.await);
    parts.board.abandoned(&parts.path, -1);
}

fn ended(done: Result<Result<Object, Fault>, tokio::task::JoinError>) -> Ending {
    match done {
        Ok(Ok(value)) => Ending::Value(value),
        Ok(Err(Fault::Stopped)) => Ending::Cancelled("it was stopped"),
        Ok(Err(fault)) => Ending::Fault(fault),
        Err(panic) => Ending::Crashed(format!("panicked: {}", panic_text(panic))),
    }
}

/// Comes true when what the permit stands on is gone.
async fn permit_lost(permit: &Permit, parts: &CapabilityParts) -> &'static str {
    let mut snapshots = parts.snapshots.clone();
    loop {
        if let Err(lost) = permit.holds(&snapshots.borrow_and_update(), parts.clock.boot()) {
            return lost.in_words();
        }
        if snapshots.changed().await.is_err() {
            return "the house ended";
        }
    }
}

async fn token(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

/// The capability as a child of its supervisor.
pub(crate) fn child(parts: CapabilityParts, place: Place<Perform>) -> Child {
    let path = parts.path.clone();
    let start: Start = Arc::new(move |parent| {
        let (parts, place) = (parts.clone(), place.clone());
        Box::pin(async move {
            let (actor, _) = Actor::spawn_linked(None, Capability, parts, parent).await?;
            place.put(actor.clone());
            Ok(actor.get_cell())
        })
    });
    Child { path, intensity: Intensity::USUAL, start }
}

/// Where a capability stands in the tree.
pub(crate) fn path_of(declaration: &Declaration) -> String {
    if declaration.name.is_custom() {
        format!("capabilities/custom/{}", declaration.name)
    } else {
        format!("capabilities/{}", declaration.name)
    }
}
