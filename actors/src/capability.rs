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
use crate::supervise::{Child, Intensity, Place, Start, panic_text, why_not_started};
use crate::tree::Post;

/// How long a handler may take to be made; longer counts as a failed start.
const MAKE_MAX: Duration = Duration::from_secs(5);
/// How long work may take to stop once told to, before it is abandoned.
const STOP_MAX: Duration = Duration::from_secs(2);
/// While work runs, the clock is held against its permit at least this often.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Why a call of a handler that changed or went does not begin.
pub(crate) const OUT_OF_SERVICE: &str = "its file was changed or removed";

/// What a capability actor stands on.
#[derive(Clone)]
pub(crate) struct CapabilityParts {
    pub(crate) installed: Installed,
    pub(crate) post: Post,
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
    pub(crate) reply: ReplyTo,
}

/// Where the ending of a call goes. Dropped before the work began, it says so: a call that died in the mailbox did nothing.
/// After that, a dropped reply means that nothing proves how the call ended.
pub(crate) struct ReplyTo(Option<oneshot::Sender<Ending>>);

impl ReplyTo {
    pub(crate) fn new(reply: oneshot::Sender<Ending>) -> Self {
        Self(Some(reply))
    }

    fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// The work begins: from here on a dropped reply proves nothing.
    fn begun(mut self) -> Option<oneshot::Sender<Ending>> {
        self.0.take()
    }

    fn not_begun(mut self, why: &'static str) {
        if let Some(reply) = self.0.take() {
            drop(reply.send(Ending::NotBegun(why)));
        }
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            drop(reply.send(Ending::Unreached));
        }
    }
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
    /// The actor died before the call came to it.
    Unreached,
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
        if let Err(why) = self.may_begin(&run) {
            run.reply.not_begun(why);
            return;
        }
        let Run { permit, arguments, agent, lit, stop, slot, reply } = run;
        let Some(reply) = reply.begun() else { return };
        let begun = Begun { permit, arguments, agent, lit, cancelled: stop, slot, reply };
        tokio::spawn(perform(self.parts.clone(), self.work.clone(), begun, myself));
    }

    /// Grant, activation, sign and the caller's wish, once more right before the work starts.
    fn may_begin(&self, run: &Run) -> Result<(), &'static str> {
        if !run.permit.is_for(&self.parts.installed.declaration.name) {
            return Err("its permit is for another capability");
        }
        if self.parts.post.has_left() {
            return Err(OUT_OF_SERVICE);
        }
        let held = run.permit.holds(&self.parts.snapshots.borrow(), self.parts.clock.boot());
        held.map_err(crate::authority::Lost::in_words)?;
        if run.lit.as_ref().is_some_and(|lit| lit.lost().is_cancelled()) {
            return Err("the in-use sign was lost");
        }
        if run.stop.is_cancelled() { Err("it was cancelled") } else { Ok(()) }
    }
}

/// A call whose last checks held.
struct Begun {
    permit: Permit,
    arguments: Arguments,
    agent: Agent,
    lit: Option<Lit>,
    cancelled: CancellationToken,
    slot: Slot,
    reply: oneshot::Sender<Ending>,
}

/// One call from its start to the last trace of its work.
async fn perform(parts: CapabilityParts, work: Work, run: Begun, actor: ActorRef<Perform>) {
    let Begun { permit, arguments, agent, lit, cancelled, slot, reply } = run;
    let timeout = parts.installed.declaration.timeout_of(&arguments);
    let sign_lost = lit.as_ref().map(Lit::lost);
    let stop = CancellationToken::new();
    let call = Call { arguments, stop: stop.clone(), clock: Arc::clone(&parts.clock), agent };
    let began = parts.clock.boot();
    parts.post.began();
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
    parts.post.ended(parts.clock.boot().since(began));
    match &ending {
        Ending::Fault(Fault::Broken(why)) => {
            parts.post.error(why.clone());
            drop(actor.cast(Perform::Broken(why.clone())));
        }
        Ending::Fault(fault) => parts.post.error(fault.to_string()),
        Ending::TimedOut => parts.post.error(format!("cut off after {} ms", timeout.as_millis())),
        // Told before the reply, so that no later call is handed to the broken handler.
        Ending::Crashed(why) => drop(actor.cast(Perform::Broken(why.clone()))),
        Ending::Value(_) | Ending::Cancelled(_) | Ending::NotBegun(_) | Ending::Unreached => {}
    }
    if running {
        stop.cancel();
        drop(reply.send(ending));
        wind_down(task, slot, &parts, &actor).await;
    } else {
        // The place first: whoever has the answer may call again at once.
        drop(slot);
        drop(reply.send(ending));
    }
}

/// Waits for work that was told to stop; past the limit it is abandoned and its handler replaced.
async fn wind_down(
    mut task: JoinHandle<Result<Object, Fault>>,
    slot: Slot,
    parts: &CapabilityParts,
    actor: &ActorRef<Perform>,
) {
    if let Ok(done) = tokio::time::timeout(STOP_MAX, &mut task).await {
        match ended(done) {
            Ending::Crashed(why) | Ending::Fault(Fault::Broken(why)) => drop(actor.cast(Perform::Broken(why))),
            Ending::Fault(Fault::Crashed(why)) => parts.post.error(why),
            Ending::Fault(_)
            | Ending::Value(_)
            | Ending::TimedOut
            | Ending::Cancelled(_)
            | Ending::NotBegun(_)
            | Ending::Unreached => {}
        }
        return;
    }
    parts.post.abandoned(1);
    drop(slot);
    task.abort();
    drop(actor.cast(Perform::Broken("its work would not stop".to_owned())));
    drop(task.await);
    parts.post.abandoned(-1);
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
        // Looked at again after a while also without news: a lease ends by the clock, whether or not the state actor says so.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK_AGAIN, snapshots.changed()).await {
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
    let path = parts.post.path().to_owned();
    let start: Start = Arc::new(move |parent| {
        let (parts, place) = (parts.clone(), place.clone());
        Box::pin(async move {
            let (actor, _) = Actor::spawn_linked(None, Capability, parts, parent).await.map_err(why_not_started)?;
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
