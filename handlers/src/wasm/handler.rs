//! A handler of the keeper, as its capability actor calls it.
//!
//! Owns what is known of one handler: its process between calls (kept by `children`), and how often it failed in a row. Called by a
//! capability actor, which keeps the call's time and says `stop`. A crash of the guest is told and forgotten; the third in a row, and
//! every process that dies, breaks the order of frames or will not stop, is [`Fault::Broken`], which supervision charges to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use config::manifest::Origin;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::{Arguments, Declaration, Object};

use super::children::Running;
use super::conversation::{Close, GRACE, converse, kind, why_lost};
use super::frame::{
    self, Done, Ended, FROM_CHILD_BYTES_MAX, Folder, FromChild, Role, Start, TO_CHILD_BYTES_MAX, ToChild, VERSION,
};
use super::log::{Level, LogLine};
use super::reach;
use super::requests::Requests;
use super::workshop::{Confined, NoProcess, Refused, Spec, Workshop, shown};
use crate::handler::{Call, CaptureHandler, Fault, Handler};
use crate::sign::Lit;

/// Crashes in a row that make a handler be made anew.
const CRASHES_MAX: u32 = 3;
/// Lines of one call; the world's own limit, held once more.
const LOG_LINES_MAX: usize = 64;
/// One line; likewise.
const LOG_LINE_BYTES_MAX: usize = 1024;
/// The word of a guest that failed; likewise.
const CODE_BYTES_MAX: usize = 200;
/// A process that is not ready after so long is given up, whether or not anybody waits for it.
const START_MAX: Duration = Duration::from_secs(10);

/// A handler of the keeper. Clones share one process.
#[derive(Clone)]
pub struct WasmHandler {
    inner: Arc<Inner>,
}

struct Inner {
    workshop: Arc<Workshop>,
    number: u64,
    spec: Spec,
    /// Held by the call that runs, and by a start that its caller left.
    turn: Arc<tokio::sync::Mutex<()>>,
    crashes: AtomicU32,
}

/// What a call took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// From the call to its end, without the start of a process.
    pub wall: Duration,
    /// Processor time of the process, in microseconds.
    pub cpu_us: u64,
    /// The most linear memory, in bytes.
    pub memory_bytes: u64,
}

/// The right to be the one call of a handler.
type Turn = OwnedMutexGuard<()>;

impl WasmHandler {
    pub(super) fn new(workshop: Arc<Workshop>, number: u64, spec: Spec) -> Self {
        let (turn, crashes) = (Arc::default(), AtomicU32::new(0));
        Self { inner: Arc::new(Inner { workshop, number, spec, turn, crashes }) }
    }

    /// Runs once and tells what it took, for `latchkeyd handler run`. [`Fault::Stopped`] when the time ran out.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn run_measured(&self, arguments: Arguments, within: Duration) -> (Result<Object, Fault>, Spent) {
        let stop = CancellationToken::new();
        let deadline = Instant::now() + within;
        let call = self.inner.call(&arguments, deadline, &stop);
        tokio::pin!(call);
        tokio::select! {
            biased;
            ended = &mut call => return ended,
            () = tokio::time::sleep_until(deadline) => stop.cancel(),
        }
        call.await
    }

    fn run_call(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let deadline = Instant::now() + inner.spec.declaration.timeout;
            inner.call(&call.arguments, deadline, &call.stop).await.0
        }
        .boxed()
    }
}

impl Handler for WasmHandler {
    fn declaration(&self) -> &Declaration {
        &self.inner.spec.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        self.run_call(call)
    }
}

impl CaptureHandler for WasmHandler {
    fn declaration(&self) -> &Declaration {
        &self.inner.spec.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        let running = self.run_call(call);
        async move {
            let ended = running.await;
            // Dark only when the process has ended the call, or is ended itself.
            drop(lit);
            ended
        }
        .boxed()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.workshop.children.forget(self.number);
    }
}

impl Inner {
    async fn call(
        self: &Arc<Self>,
        arguments: &Arguments,
        deadline: Instant,
        stop: &CancellationToken,
    ) -> (Result<Object, Fault>, Spent) {
        let mut spent = Spent::default();
        let (mut child, turn) = match self.child(stop).await {
            Ok(ready) => ready,
            Err(fault) => return (Err(fault), spent),
        };
        let began = Instant::now();
        let origins: Arc<[Origin]> = self.spec.reach.http.as_slice().into();
        let requests = Requests::new(origins, Arc::clone(&self.workshop.parts.outbound), deadline);
        let stopped = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.workshop.over.cancelled() => {}
            }
        };
        let arguments = arguments.as_object().to_vec();
        let close = converse(&mut child, arguments, deadline, requests, stopped).await;
        spent.wall = began.elapsed();
        let ended = match close {
            Close::Done(done) => {
                self.account(&done, &mut spent);
                self.judge(done.ended)
            }
            Close::Stopped(done) => {
                self.account(&done, &mut spent);
                Err(Fault::Stopped)
            }
            Close::WouldNotStop => {
                let grace = GRACE.as_millis();
                Err(Fault::Broken(format!("its process would not stop within {grace} ms and was ended")))
            }
            Close::Lost(why) => Err(Fault::Broken(why)),
        };
        // A file operation that hangs goes on in the process after its call was cut off: such a process is not used again.
        let may_hang = matches!(ended, Err(Fault::Stopped)) && !child.folders.is_empty();
        match &ended {
            Err(Fault::Broken(_)) => {
                self.crashes.store(0, Ordering::Relaxed);
                drop(child);
            }
            _ if may_hang => drop(child),
            _ => self.workshop.children.rest(self.number, child, &self.workshop.tasks),
        }
        drop(turn);
        (ended, spent)
    }

    /// The process of this handler: the one that rests, or a new one. A start that its caller does not await goes on, so that a
    /// handler with little time finds its process ready at the next call.
    async fn child(self: &Arc<Self>, stop: &CancellationToken) -> Result<(Running, Turn), Fault> {
        let children = &self.workshop.children;
        let turn = until(stop, Arc::clone(&self.turn).lock_owned()).await?;
        if let Some(child) = children.take(self.number)
            && until(stop, are_the_same(&child.folders)).await?
        {
            return Ok((child, turn));
        }
        let place = until(stop, children.place()).await?;
        let place = place.ok_or_else(|| Fault::Unavailable("the device is going down".to_owned()))?;
        let (give, started) = oneshot::channel();
        let inner = Arc::clone(self);
        self.workshop.tasks.spawn(async move {
            let started = inner.start(place).await;
            if let Err((Ok(child), _turn)) = give.send((started, turn)) {
                inner.workshop.children.rest(inner.number, child, &inner.workshop.tasks);
            }
        });
        let (started, turn) = until(stop, started).await?.map_err(|_| Fault::Stopped)?;
        Ok((started?, turn))
    }

    async fn start(&self, place: OwnedSemaphorePermit) -> Result<Running, Fault> {
        tokio::select! {
            started = self.start_in(place) => started,
            () = self.workshop.over.cancelled() => Err(Fault::Stopped),
        }
    }

    async fn start_in(&self, place: OwnedSemaphorePermit) -> Result<Running, Fault> {
        let unavailable = |Refused(why)| Fault::Unavailable(why);
        // In time, because a place is held meanwhile and a folder may lie on a disk that does not answer.
        let folders = in_time(self.resolve()).await?.map_err(unavailable)?;
        let code = async {
            let (compiled, _) = self.workshop.compiled(&self.spec.source).await.map_err(unavailable)?;
            let load = tokio::task::spawn_blocking(move || {
                frame::encode(&ToChild::Load { native: compiled.native }, TO_CHILD_BYTES_MAX)
            });
            let load = load.await.map_err(|error| Fault::Failed(error.to_string()))?;
            load.map_err(|error| Fault::Failed(error.to_string()))
        };
        let (load, confined) = tokio::try_join!(code, self.confined(folders.clone()))?;
        let Confined { mut line, mut life, .. } = confined;
        let loaded = async {
            line.say_encoded(load)?;
            line.hear::<FromChild>(FROM_CHILD_BYTES_MAX).await
        };
        match in_time(loaded).await? {
            Ok(FromChild::Loaded) => Ok(Running { line, life, folders, calls: 0, place }),
            Ok(FromChild::Refused { why }) => Err(Fault::Broken(shown(&why))),
            Ok(other) => Err(Fault::Broken(format!("its process said {:?} while it loaded", kind(&other)))),
            Err(error) => Err(Fault::Broken(why_lost(&mut *life, &error).await)),
        }
    }

    /// The reach, judged anew: what stood there at the last start may be something else.
    async fn resolve(&self) -> Result<Vec<Folder>, Refused> {
        let (reach, captures) = (self.spec.reach.clone(), self.spec.declaration.captures);
        let protected = self.workshop.parts.protected.clone();
        let judged = tokio::task::spawn_blocking(move || reach::check(&reach, captures, &protected));
        judged.await.map_err(|error| Refused(error.to_string()))?.map(|resolved| resolved.folders)
    }

    async fn confined(&self, folders: Vec<Folder>) -> Result<Confined, Fault> {
        let start = Start {
            version: VERSION,
            role: Role::Run,
            folders,
            http: !self.spec.reach.http.is_empty(),
            memory_bytes: self.spec.memory_bytes,
            result_bytes_max: self.spec.result_bytes_max,
            accept_weak: self.workshop.parts.accept_weak,
        };
        in_time(self.workshop.begin(start)).await?.map_err(|why| match why {
            NoProcess::Spawn(_) | NoProcess::NotReady(_) => Fault::Unavailable(why.to_string()),
            NoProcess::Broken(why) => Fault::Broken(why),
        })
    }

    fn account(&self, done: &Done, spent: &mut Spent) {
        spent.cpu_us = done.cpu_us;
        spent.memory_bytes = done.memory_bytes;
        let at_ms = self.workshop.parts.clock.wall_ms();
        for (level, text) in done.log.iter().take(LOG_LINES_MAX) {
            self.spec.log.push(LogLine { at_ms, level: *level, text: cut(text, LOG_LINE_BYTES_MAX).to_owned() });
        }
        if done.log_dropped > 0 {
            let text = format!("{} more lines of this call were dropped", done.log_dropped);
            self.spec.log.push(LogLine { at_ms, level: Level::Warn, text });
        }
    }

    fn judge(&self, ended: Ended) -> Result<Object, Fault> {
        match ended {
            Ended::Value(bytes) => match self.value(&bytes) {
                Ok(value) => {
                    self.crashes.store(0, Ordering::Relaxed);
                    Ok(value)
                }
                Err(why) => Err(self.crashed(why)),
            },
            Ended::Failed { code, message } => {
                self.crashes.store(0, Ordering::Relaxed);
                let code = cut(&code, CODE_BYTES_MAX);
                Err(Fault::Failed(shown(&format!("{code}: {message}"))))
            }
            Ended::Trapped(why) => Err(self.crashed(shown(&why))),
            // Its clock is later than ours, so we hung; the guest did what it did.
            Ended::TimedOut => Err(Fault::Crashed("its process cut it off for its time".to_owned())),
            Ended::Cancelled => Err(Fault::Broken("its process cancelled a call that nobody cancelled".to_owned())),
        }
    }

    fn value(&self, bytes: &[u8]) -> Result<Object, String> {
        let bytes_max = self.spec.result_bytes_max;
        if bytes.len() > bytes_max {
            return Err(format!("its result has {} bytes, where {bytes_max} are the most", bytes.len()));
        }
        wire::json::parse(bytes).map_err(|error| format!("its result is no JSON object: {error}"))
    }

    fn crashed(&self, why: String) -> Fault {
        // One call at a time, so nobody counts between.
        let crashes = self.crashes.load(Ordering::Relaxed).saturating_add(1);
        self.crashes.store(crashes, Ordering::Relaxed);
        if crashes < CRASHES_MAX {
            return Fault::Crashed(why);
        }
        Fault::Broken(format!("{why} (crashed {CRASHES_MAX} times in a row)"))
    }
}

/// Waits for `work` unless it is not wanted any more.
async fn until<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Fault::Stopped),
        done = work => Ok(done),
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    let late = |_| Fault::Broken(format!("its process was not ready within {} s", START_MAX.as_secs()));
    tokio::time::timeout(START_MAX, work).await.map_err(late)
}

/// Whether what the process opened still stands where the manifest names it.
async fn are_the_same(folders: &[Folder]) -> bool {
    if folders.is_empty() {
        return true;
    }
    let folders = folders.to_vec();
    tokio::task::spawn_blocking(move || folders.iter().all(reach::stands)).await.unwrap_or(false)
}

fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

#[cfg(test)]
mod tests;
