//! Supervision as in OTP: a child that dies is started again, with back-off, within an intensity; past it the child alone is
//! given up.
//!
//! A [`Supervisor`] owns the lives of its children and nothing of their work. Starting happens in a task apart, so a child whose
//! start never returns holds up nobody; a start that fails is charged to the child like a death. Two of ractor's edges are
//! handled here and nowhere else: its default supervisor ends with its child, and a failing `pre_start` is no supervision
//! event but an answer to whoever spawned.

#![expect(
    clippy::disallowed_methods,
    reason = "starts and tasks belong to their actor, which ends them by kill or token"
)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use handlers::{BootTime, Chance, Clock};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::tree::{Board, NodeState};

mod task;

pub(crate) use task::task;

/// How many restarts in which time; one more and the child is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intensity {
    pub(crate) restarts: usize,
    pub(crate) within: Duration,
}

impl Intensity {
    /// For parts that stand on hardware or on handlers: five restarts take some three seconds of back-off, so what fails at
    /// once is given up in seconds, and what fails every quarter of a minute goes on.
    pub(crate) const USUAL: Self = Self { restarts: 5, within: Duration::from_secs(60) };
}

/// The first restart comes at once; from the second on the wait doubles from here.
const BACK_OFF_FIRST: Duration = Duration::from_millis(200);
/// No restart waits longer than this, so that hardware that comes back is found again soon.
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// How long a child may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(2);

/// What to do about a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Start again after so long.
    Restart(Duration),
    /// Too often: given up.
    GiveUp,
}

/// The deaths of one child, against its intensity.
#[derive(Debug)]
pub(crate) struct Budget {
    intensity: Intensity,
    deaths: VecDeque<BootTime>,
}

impl Budget {
    pub(crate) fn new(intensity: Intensity) -> Self {
        Self { intensity, deaths: VecDeque::new() }
    }

    /// Charges one death. Deaths older than the intensity's time are paid off by healthy life.
    pub(crate) fn died(&mut self, now: BootTime) -> Verdict {
        let within_ms = u64::try_from(self.intensity.within.as_millis()).unwrap_or(u64::MAX);
        while self.deaths.front().is_some_and(|death| now.as_ms().saturating_sub(death.as_ms()) >= within_ms) {
            self.deaths.pop_front();
        }
        if self.deaths.len() >= self.intensity.restarts {
            return Verdict::GiveUp;
        }
        let before = u32::try_from(self.deaths.len()).unwrap_or(u32::MAX);
        self.deaths.push_back(now);
        Verdict::Restart(match before.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => BACK_OFF_FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(BACK_OFF_MAX),
        })
    }

    /// Forgets all deaths: the keeper wants it tried again.
    pub(crate) fn reset(&mut self) {
        self.deaths.clear();
    }
}

/// Starts a child, linked to the supervisor it is given.
pub(crate) type Start =
    Arc<dyn Fn(ActorCell) -> BoxFuture<'static, Result<ActorCell, ActorProcessingErr>> + Send + Sync>;

/// A child to be kept alive.
#[derive(Clone)]
pub(crate) struct Child {
    /// Its path on the board.
    pub(crate) path: String,
    pub(crate) intensity: Intensity,
    pub(crate) start: Start,
}

/// What a supervisor needs besides its children.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) board: Board,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<dyn Chance>,
}

/// Messages to a supervisor.
pub(crate) enum Supervise {
    /// A start ended, well or not.
    Started { number: u64, result: Result<ActorCell, ActorProcessingErr> },
    /// The back-off of a child is over.
    Restart { number: u64 },
    /// The keeper wants a child tried again, or made anew.
    Renew { path: String, reply: oneshot::Sender<bool> },
    /// One more child, after the others; one whose path is taken is the same child again.
    Add { child: Child },
    /// Ends a child for good.
    Remove { path: String },
    /// Stop the children, last one first, then yourself.
    Stop,
}

/// Keeps children alive.
pub(crate) struct Supervisor;

struct Life {
    child: Child,
    cell: Option<ActorCell>,
    budget: Budget,
    /// A start is under way or a back-off runs: another is not begun.
    pending: bool,
    started_before: bool,
    /// The next end of this child was asked for, and is charged to nobody.
    renewing: bool,
}

pub(crate) struct Lives {
    ground: Ground,
    /// In the order of their start.
    lives: BTreeMap<u64, Life>,
    numbers: HashMap<String, u64>,
    next: u64,
    /// Removed children whose end is on its way.
    leaving: Vec<ActorId>,
    /// Children that died before the word of their start came, with the reason; that word is on its way.
    early: Vec<(ActorId, String)>,
    stopping: bool,
}

impl Actor for Supervisor {
    type Msg = Supervise;
    type State = Lives;
    type Arguments = (Ground, Vec<Child>);

    async fn pre_start(
        &self,
        myself: ActorRef<Supervise>,
        (ground, children): Self::Arguments,
    ) -> Result<Lives, ActorProcessingErr> {
        let mut lives = Lives {
            ground,
            lives: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 0,
            leaving: Vec::new(),
            early: Vec::new(),
            stopping: false,
        };
        for child in children {
            lives.add(child, &myself);
        }
        Ok(lives)
    }

    async fn handle(
        &self,
        myself: ActorRef<Supervise>,
        message: Supervise,
        lives: &mut Lives,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Supervise::Started { number, result } => lives.started(number, result, &myself),
            Supervise::Restart { number } if !lives.stopping => lives.begin(number, &myself),
            Supervise::Restart { .. } => {}
            Supervise::Add { child } => lives.add(child, &myself),
            Supervise::Remove { path } => lives.remove(&path),
            Supervise::Renew { path, reply } => drop(reply.send(lives.renew(&path, &myself))),
            Supervise::Stop => {
                lives.stop().await;
                myself.stop(None);
            }
        }
        Ok(())
    }

    /// ractor kills what a supervisor leaves behind; a graceful end stops the children first.
    async fn post_stop(&self, _myself: ActorRef<Supervise>, lives: &mut Lives) -> Result<(), ActorProcessingErr> {
        lives.stop().await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Supervise>,
        event: SupervisionEvent,
        lives: &mut Lives,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => lives.died(&cell, error.to_string(), &myself),
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                lives.died(&cell, reason.unwrap_or_else(|| "ended unasked".to_owned()), &myself);
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl Lives {
    fn add(&mut self, child: Child, myself: &ActorRef<Supervise>) {
        if self.stopping || self.numbers.contains_key(&child.path) {
            return;
        }
        self.ground.board.plant(&child.path);
        let (number, budget) = (self.next, Budget::new(child.intensity));
        self.next += 1;
        self.numbers.insert(child.path.clone(), number);
        let life = Life { child, cell: None, budget, pending: true, started_before: false, renewing: false };
        self.lives.insert(number, life);
        self.begin(number, myself);
    }

    /// Its end is nobody's fault, and a start that is still under way comes to nothing.
    fn remove(&mut self, path: &str) {
        let Some(life) = self.numbers.remove(path).and_then(|number| self.lives.remove(&number)) else {
            return;
        };
        if let Some(cell) = life.cell {
            self.leaving.push(cell.get_id());
            cell.stop(Some("taken out of service".to_owned()));
        }
        self.ground.board.uproot(path);
    }

    /// Starts a child in a task of its own and reports back.
    fn begin(&self, number: u64, myself: &ActorRef<Supervise>) {
        let Some(life) = self.lives.get(&number) else {
            return;
        };
        let (start, myself) = (Arc::clone(&life.child.start), myself.clone());
        tokio::spawn(async move {
            let result = start(myself.get_cell()).await;
            if let Err(ractor::MessagingErr::SendErr(Supervise::Started { result: Ok(cell), .. })) =
                myself.cast(Supervise::Started { number, result })
            {
                cell.kill();
            }
        });
    }

    fn started(&mut self, number: u64, result: Result<ActorCell, ActorProcessingErr>, myself: &ActorRef<Supervise>) {
        let stopping = self.stopping;
        let Some(life) = self.lives.get_mut(&number) else {
            return result.into_iter().for_each(|cell| self.unwanted(&cell));
        };
        life.pending = false;
        match result {
            Ok(cell) if stopping => cell.stop(None),
            Ok(cell) => {
                if life.started_before {
                    self.ground.board.restarted(&life.child.path);
                    info!(part = life.child.path, "started again");
                } else {
                    life.started_before = true;
                    self.ground.board.state(&life.child.path, NodeState::Running, None);
                }
                life.cell = Some(cell.clone());
                if let Some(at) = self.early.iter().position(|(id, _)| *id == cell.get_id()) {
                    let (_, why) = self.early.swap_remove(at);
                    self.died(&cell, why, myself);
                }
            }
            Err(error) => self.charge(number, format!("does not start: {error}"), myself),
        }
    }

    /// A child that was removed while it started.
    fn unwanted(&mut self, cell: &ActorCell) {
        match self.early.iter().position(|(id, _)| *id == cell.get_id()) {
            Some(at) => drop(self.early.swap_remove(at)),
            None => {
                self.leaving.push(cell.get_id());
                cell.stop(Some("taken out of service".to_owned()));
            }
        }
    }

    fn died(&mut self, cell: &ActorCell, why: String, myself: &ActorRef<Supervise>) {
        if let Some(at) = self.leaving.iter().position(|id| *id == cell.get_id()) {
            self.leaving.swap_remove(at);
            return;
        }
        let found = self
            .lives
            .iter_mut()
            .find(|(_, life)| life.cell.as_ref().is_some_and(|known| known.get_id() == cell.get_id()));
        let Some((&number, life)) = found else {
            self.early.push((cell.get_id(), why));
            return;
        };
        life.cell = None;
        if self.stopping {
            self.ground.board.state(&life.child.path, NodeState::Stopped, None);
        } else if std::mem::take(&mut life.renewing) {
            life.pending = true;
            self.begin(number, myself);
        } else {
            self.charge(number, why, myself);
        }
    }

    fn charge(&mut self, number: u64, why: String, myself: &ActorRef<Supervise>) {
        let now = self.ground.clock.boot();
        let Some(life) = self.lives.get_mut(&number) else {
            return;
        };
        let path = life.child.path.clone();
        match life.budget.died(now) {
            Verdict::Restart(after) => {
                warn!(part = path, error = why, after_ms = after.as_millis(), "died; starting again");
                self.ground.board.state(&path, NodeState::Restarting, Some(why));
                life.pending = true;
                if after.is_zero() {
                    self.begin(number, myself);
                } else {
                    myself
                        .send_after(jitter(after, self.ground.chance.as_ref()), move || Supervise::Restart { number });
                }
            }
            Verdict::GiveUp => {
                error!(part = path, error = why, "died too often; given up");
                self.ground.board.state(&path, NodeState::Unavailable, Some(why));
            }
        }
    }

    /// Starts a given-up child again, or ends a living one so that it is made anew. False: no such child.
    fn renew(&mut self, path: &str, myself: &ActorRef<Supervise>) -> bool {
        let Some(&number) = self.numbers.get(path) else { return false };
        let Some(life) = self.lives.get_mut(&number) else { return false };
        life.budget.reset();
        if let Some(cell) = &life.cell {
            life.renewing = true;
            self.ground.board.state(path, NodeState::Restarting, None);
            cell.stop(Some("made anew".to_owned()));
        } else if !life.pending {
            life.pending = true;
            self.ground.board.state(path, NodeState::Restarting, None);
            self.begin(number, myself);
        }
        true
    }

    async fn stop(&mut self) {
        self.stopping = true;
        for life in self.lives.values_mut().rev() {
            let Some(cell) = life.cell.take() else { continue };
            if cell.stop_and_wait(None, Some(STOP_MAX)).await.is_err() {
                cell.kill();
            }
            self.ground.board.state(&life.child.path, NodeState::Stopped, None);
        }
    }
}

/// Up to a quarter more, so that parts that died together do not come back together.
fn jitter(base: Duration, chance: &dyn Chance) -> Duration {
    let mut byte = [0_u8];
    chance.fill(&mut byte);
    base + base.mul_f64(f64::from(byte[0]) / 1024.0)
}

/// Gives the children of a supervisor, at its start and at each restart.
pub(crate) type Children = Arc<dyn Fn() -> Vec<Child> + Send + Sync>;

/// A child that is a supervisor with children of its own.
pub(crate) fn branch(path: &str, ground: Ground, children: Children, place: Place<Supervise>) -> Child {
    let start: Start = Arc::new(move |parent| {
        let (ground, children, place) = (ground.clone(), children(), place.clone());
        Box::pin(async move {
            let (actor, _) =
                Actor::spawn_linked(None, Supervisor, (ground, children), parent).await.map_err(why_not_started)?;
            place.put(actor.clone());
            Ok(actor.get_cell())
        })
    });
    Child { path: path.to_owned(), intensity: Intensity::USUAL, start }
}

/// Where the current actor of a kind is found by those who send to it; restarts put the next one here.
pub(crate) struct Place<M>(Arc<arc_swap::ArcSwapOption<ActorRef<M>>>);

impl<M> Clone for Place<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Default for Place<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M: ractor::Message> Place<M> {
    pub(crate) fn put(&self, actor: ActorRef<M>) {
        self.0.store(Some(Arc::new(actor)));
    }

    /// Sends; false when nobody is there, and then the message, with any reply channel in it, is gone.
    pub(crate) fn send(&self, message: M) -> bool {
        self.0.load().as_ref().is_some_and(|actor| actor.cast(message).is_ok())
    }
}

/// Why an actor did not start, without ractor's words around it: a start that fails is no panic.
pub(crate) fn why_not_started(error: SpawnErr) -> ActorProcessingErr {
    match error {
        SpawnErr::StartupFailed(why) => why,
        other => other.into(),
    }
}

/// What a panic said, for a log line and the board.
pub(crate) fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without words".to_owned()),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
