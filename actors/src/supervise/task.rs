//! A child that is one long-running future: a link, a page, the store.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use handlers::Fault;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Child, Intensity, Start, panic_text, why_not_started};

/// Makes the future of a [`Task`] for each of its lives.
pub(crate) type MakeTask = Arc<dyn Fn(CancellationToken) -> BoxFuture<'static, Result<(), Fault>> + Send + Sync>;

/// An actor around one long-running future: its end is the actor's death.
pub(crate) struct Task;

/// A task's end, sent by its own runner.
pub(crate) struct Ended(Result<(), String>);

pub(crate) struct Running {
    stop: CancellationToken,
    /// Cancels the future when the actor ends, however it ends: `post_stop` does not run after a panic or a kill.
    _guard: DropGuard,
    runner: JoinHandle<()>,
}

impl Actor for Task {
    type Msg = Ended;
    type State = Running;
    type Arguments = MakeTask;

    async fn pre_start(&self, myself: ActorRef<Ended>, make: MakeTask) -> Result<Running, ActorProcessingErr> {
        let stop = CancellationToken::new();
        let work = tokio::spawn(make(stop.clone()));
        let runner = tokio::spawn(async move {
            let ended = match work.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(fault)) => Err(fault.to_string()),
                Err(error) => Err(format!("panicked: {}", panic_text(error))),
            };
            // Nobody listens any more when the actor was stopped first.
            drop(myself.cast(Ended(ended)));
        });
        Ok(Running { _guard: stop.clone().drop_guard(), stop, runner })
    }

    /// A graceful end waits for the future; its supervisor's limit ends the wait.
    async fn post_stop(&self, _myself: ActorRef<Ended>, running: &mut Running) -> Result<(), ActorProcessingErr> {
        running.stop.cancel();
        Ok((&mut running.runner).await?)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Ended>,
        Ended(result): Ended,
        _state: &mut Running,
    ) -> Result<(), ActorProcessingErr> {
        Err(result.err().unwrap_or_else(|| "ended unasked".to_owned()).into())
    }
}

/// A child that is a task.
pub(crate) fn task(path: &str, intensity: Intensity, make: MakeTask) -> Child {
    let start: Start = Arc::new(move |parent| {
        let make = Arc::clone(&make);
        Box::pin(async move {
            let (actor, _) = Actor::spawn_linked(None, Task, make, parent).await.map_err(why_not_started)?;
            Ok(actor.get_cell())
        })
    });
    Child { path: path.to_owned(), intensity, start }
}
