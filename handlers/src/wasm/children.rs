//! The processes that run handlers: how many there may be, and which of them rest.
//!
//! Owns the places for them and every process between two calls; during a call its caller owns it, and whoever drops it ends it. Called
//! by `handler`. A process that rested for a minute is ended, and the one that rested longest when another handler needs its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::frame::Folder;
use super::line::Line;
use super::spawn::Life;

/// Processes of handlers at once: each may have its 256 MiB, and a small device has eight times that at most.
pub(crate) const CHILDREN_MAX: usize = 8;
/// A process that nobody called for so long is ended; the next start takes milliseconds.
pub(crate) const REST_MAX: Duration = Duration::from_secs(60);

/// A process that has its handler loaded. Dropping it ends it.
pub(crate) struct Running {
    pub(crate) line: Line,
    pub(crate) life: Box<dyn Life>,
    /// What it opened before it was confined.
    pub(crate) folders: Vec<Folder>,
    /// Calls that it was given.
    pub(crate) calls: u64,
    pub(crate) place: OwnedSemaphorePermit,
}

/// All of them.
pub(crate) struct Children {
    places: Arc<Semaphore>,
    state: Mutex<State>,
    over: CancellationToken,
}

#[derive(Default)]
struct State {
    resting: Vec<Resting>,
    /// Callers who wait for a place.
    waiting: usize,
    /// Whether somebody looks after those that rest.
    watched: bool,
}

struct Resting {
    handler: u64,
    since: Instant,
    child: Running,
}

impl Children {
    pub(crate) fn new(over: CancellationToken) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(CHILDREN_MAX)), state: Mutex::default(), over })
    }

    /// The process of this handler, if it rests and lives.
    pub(crate) fn take(&self, handler: u64) -> Option<Running> {
        let mut child = self.remove(|resting| resting.handler == handler)?;
        match child.life.end().now_or_never() {
            None => Some(child),
            Some(why) => {
                debug!("a handler at rest is started anew: {why}");
                None
            }
        }
    }

    /// A place for a process. Ends the process that rested longest where all are taken, and waits where all of them work; none when
    /// the house closes.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        let waiting = {
            let mut state = self.state();
            let longest = state.resting.iter().enumerate().min_by_key(|(_, resting)| resting.since).map(|(at, _)| at);
            if let Some(at) = longest {
                return Some(state.resting.swap_remove(at).child.place);
            }
            state.waiting = state.waiting.saturating_add(1);
            Waiting(self)
        };
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        drop(waiting);
        place
    }

    /// Lets a process rest after a call. It is ended at once when somebody waits for its place.
    pub(crate) fn rest(self: &Arc<Self>, handler: u64, child: Running, tasks: &TaskTracker) {
        let mut state = self.state();
        // One that the drain has passed already must not rest behind its back: it cancels before it locks.
        if state.waiting > 0 || self.over.is_cancelled() {
            drop(state);
            drop(child);
            return;
        }
        state.resting.push(Resting { handler, since: Instant::now(), child });
        if !std::mem::replace(&mut state.watched, true) {
            tasks.spawn(watch(Arc::downgrade(self), self.over.clone()));
        }
    }

    /// Ends what rests of this handler.
    pub(crate) fn forget(&self, handler: u64) {
        drop(self.remove(|resting| resting.handler == handler));
    }

    /// Ends what rests and gives no place any more. `over` was cancelled before.
    pub(crate) fn close(&self) {
        self.places.close();
        let resting = std::mem::take(&mut self.state().resting);
        drop(resting);
    }

    /// Ends what rested too long; says when to look again, if anything rests.
    fn end_rested(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut ended = Vec::new();
        let mut state = self.state();
        while let Some(at) = state.resting.iter().position(|resting| now >= resting.since + REST_MAX) {
            ended.push(state.resting.swap_remove(at));
        }
        let next = state.resting.iter().map(|resting| resting.since + REST_MAX).min();
        state.watched = next.is_some();
        drop(state);
        next
    }

    fn remove(&self, which: impl Fn(&Resting) -> bool) -> Option<Running> {
        let mut state = self.state();
        let at = state.resting.iter().position(which)?;
        Some(state.resting.swap_remove(at).child)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Someone who waits for a place.
struct Waiting<'a>(&'a Children);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting = state.waiting.saturating_sub(1);
    }
}

/// Ends processes that rested too long, as long as any rest.
async fn watch(children: Weak<Children>, over: CancellationToken) {
    loop {
        // Not held while waiting: the house may go without us.
        let Some(next) = children.upgrade().and_then(|children| children.end_rested()) else { return };
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = over.cancelled() => return,
        }
    }
}
