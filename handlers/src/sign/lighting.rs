//! The lighting itself: who holds it, when it goes off, what happens when it is lost. The only place that makes a [`Lit`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{SignBackend, SignFault};
use crate::clock::{BootTime, Clock};

mod examine;
mod lit;

pub use examine::Examined;

/// How long the sign stays on at least: long enough for a person to notice that a picture was taken.
pub const ON_MIN: Duration = Duration::from_secs(3);
/// How often a lit sign is confirmed: a capture outlives a dead sign by no more than this and one confirmation.
pub const CHECK_EACH: Duration = Duration::from_millis(250);
/// A backend that takes longer than this to answer is broken.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often darkening is tried again when a backend failed to go dark (an LED that was pulled out comes back lit or dark).
const DARK_AGAIN: Duration = Duration::from_secs(2);

/// What the sign does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignState {
    /// Off.
    Dark,
    /// On and confirmed.
    Lit {
        /// Since when, wall time in ms.
        since_ms: u64,
        /// Who carries it; several are joined by " and ".
        backend: String,
        /// Whether it only pretends.
        simulated: bool,
    },
    /// It was on and went out, or could not be darkened; captures under it are cancelled.
    Lost(String),
}

/// The sign of a device.
pub struct Sign {
    shared: Arc<Shared>,
}

struct Shared {
    backends: Vec<Arc<dyn SignBackend>>,
    clock: Arc<dyn Clock>,
    state: watch::Sender<SignState>,
    /// Whoever changes what the backends do holds this, so that lighting and darkening never cross.
    turn: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    /// Wakes the tending loop: the last hold was dropped, or the sign was lit.
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    tended: bool,
    holds: usize,
    lighting: Option<Lighting>,
    /// Something may be lit that no lighting accounts for: at start, after an attempt that failed or was given up.
    stray: bool,
}

struct Lighting {
    on_at: BootTime,
    on_at_ms: u64,
    simulated: bool,
    /// Which backends confirmed, by their place in the list.
    carriers: Vec<usize>,
    lost: CancellationToken,
}

/// Proof that the sign was confirmed on, and a hold on it: the sign stays on until every hold is dropped.
///
/// Only [`Sign::light`] makes one, after the backends were read back:
///
/// ```compile_fail
/// let forged = latchkey_handlers::Lit { on_at_ms: 0, simulated: false };
/// ```
///
/// and it cannot be copied past the sign's count, only held again:
///
/// ```compile_fail
/// fn copy(lit: &latchkey_handlers::Lit) -> latchkey_handlers::Lit { lit.clone() }
/// ```
///
/// ```
/// fn hold(lit: &latchkey_handlers::Lit) -> latchkey_handlers::Lit { lit.hold() }
/// ```
#[must_use = "the sign may go off as soon as this is dropped"]
pub struct Lit {
    shared: Arc<Shared>,
    on_at_ms: u64,
    simulated: bool,
    lost: CancellationToken,
}

impl Sign {
    /// A sign carried by `backends`; it can be lit once [`Sign::tend`] runs.
    pub fn new(backends: Vec<Arc<dyn SignBackend>>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let shared = Shared {
            backends,
            clock,
            state: watch::Sender::new(SignState::Dark),
            turn: tokio::sync::Mutex::new(()),
            inner: Mutex::new(Inner { stray: true, ..Inner::default() }),
            changed: Notify::new(),
        };
        Arc::new(Self { shared: Arc::new(shared) })
    }

    /// Lights the sign, or joins the present lighting after confirming it anew.
    ///
    /// # Errors
    /// See [`SignFault`]; what an attempt that failed may have lit is darkened.
    pub fn light(&self) -> BoxFuture<'static, Result<Lit, SignFault>> {
        Arc::clone(&self.shared).light().boxed()
    }

    /// Whether it could be lit now; quick, changes nothing.
    ///
    /// # Errors
    /// See [`SignFault`].
    pub fn ready(&self) -> Result<(), SignFault> {
        if !self.shared.lock().tended {
            return Err(SignFault::Unwatched);
        }
        self.shared.ready().map(|_| ())
    }

    /// Whether the sign that would be lit only pretends.
    pub fn simulated(&self) -> bool {
        !self.shared.backends.is_empty() && self.shared.backends.iter().all(|backend| backend.simulated())
    }

    /// One line for people: the backends and how they are.
    pub fn describe(&self) -> String {
        if self.shared.backends.is_empty() {
            return "none".to_owned();
        }
        let lines: Vec<String> = (self.shared.backends.iter())
            .map(|backend| match backend.ready() {
                Ok(()) => backend.name(),
                Err(fault) => format!("{} ({})", backend.name(), reason(&fault)),
            })
            .collect();
        lines.join(", ")
    }

    /// Follows the sign's state.
    pub fn watch(&self) -> watch::Receiver<SignState> {
        self.shared.state.subscribe()
    }

    /// The loop that watches and darkens the sign. While none runs, the sign cannot be lit, and what was lit counts as lost.
    ///
    /// Darkens everything at its start, as a crash may have left an LED on, unless a capture still holds the light. Ends with `stop`.
    pub async fn tend(self: Arc<Self>, stop: CancellationToken) {
        let shared = &self.shared;
        let watching = Watching::begin(Arc::clone(shared));
        while !stop.is_cancelled() {
            let next_check = match shared.tend_once().await {
                Some(pause) => tokio::time::sleep(pause).left_future(),
                None => futures_util::future::pending().right_future(),
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = shared.changed.notified() => {}
                () = next_check => {}
            }
        }
        drop(watching);
        shared.darken_if_free().await;
    }
}

/// Says that somebody tends the sign, until it is dropped, by whatever end.
struct Watching(Arc<Shared>);

impl Watching {
    fn begin(shared: Arc<Shared>) -> Self {
        shared.lock().tended = true;
        Self(shared)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.lock().tended = false;
        self.0.lose("nobody watches it any more");
    }
}

/// An attempt to light; wakes the tending loop however it ends.
struct Attempt<'a>(&'a Shared);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The counts stay right when a holder panics: each change is a single step.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backends that could be lit now; refused when a required one or all of them could not.
    fn ready(&self) -> Result<Vec<usize>, SignFault> {
        let mut first = None;
        let mut able = Vec::new();
        for (at, backend) in self.backends.iter().enumerate() {
            match backend.ready() {
                Ok(()) => able.push(at),
                Err(fault) if backend.required() => return Err(fault),
                Err(fault) => first = first.or(Some(fault)),
            }
        }
        if able.is_empty() { Err(first.unwrap_or(SignFault::NoBackend)) } else { Ok(able) }
    }

    async fn light(self: Arc<Self>) -> Result<Lit, SignFault> {
        let _turn = self.turn.lock().await;
        if let Some(joined) = self.join().await? {
            return Ok(joined);
        }
        let able = self.ready()?;
        // From here on something may be lit, also when this future is dropped halfway: the tending loop darkens what no lighting
        // accounts for once it has its turn.
        self.lock().stray = true;
        let _attempt = Attempt(&self);
        let carriers = self.light_all(&able).await?;
        self.assertion(carriers)
    }

    /// Another hold on the present lighting, confirmed anew. A lighting without holders that cannot be confirmed makes room for a new one.
    async fn join(self: &Arc<Self>) -> Result<Option<Lit>, SignFault> {
        if !self.lock().tended {
            return Err(SignFault::Unwatched);
        }
        let Some(held) = self.present() else { return Ok(None) };
        if !held.lost.is_cancelled() {
            let confirmed = self.confirm().await;
            if confirmed.is_ok() {
                return Ok(Some(held));
            }
        }
        // Ours is the only hold when nobody else captures under the light that was lost.
        if self.lock().holds > 1 {
            return Err(SignFault::Lost(self.lost_reason()));
        }
        drop(held);
        let mut inner = self.lock();
        inner.lighting = None;
        inner.stray = true;
        Ok(None)
    }

    /// A hold on the present lighting, unconfirmed; kept inside this file.
    fn present(self: &Arc<Self>) -> Option<Lit> {
        let mut inner = self.lock();
        let lighting = inner.lighting.as_ref()?;
        let (on_at_ms, simulated, lost) = (lighting.on_at_ms, lighting.simulated, lighting.lost.clone());
        inner.holds += 1;
        Some(Lit { shared: Arc::clone(self), on_at_ms, simulated, lost })
    }

    /// Lights each of `able`; gives those that confirmed, a required one or all failing is a fault.
    async fn light_all(&self, able: &[usize]) -> Result<Vec<usize>, SignFault> {
        let mut first = None;
        let mut carriers = Vec::new();
        for (at, backend) in self.chosen(able) {
            match answered(backend, backend.light()).await {
                Ok(()) => carriers.push(at),
                Err(fault) if backend.required() => return Err(fault),
                Err(fault) => first = first.or(Some(fault)),
            }
        }
        if carriers.is_empty() { Err(first.unwrap_or(SignFault::NoBackend)) } else { Ok(carriers) }
    }

    fn chosen<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = (usize, &'a Arc<dyn SignBackend>)> {
        self.backends.iter().enumerate().filter(|(at, _)| places.contains(at))
    }

    /// The birth of a [`Lit`]: `carriers` have confirmed that they are lit.
    fn assertion(self: &Arc<Self>, carriers: Vec<usize>) -> Result<Lit, SignFault> {
        let simulated = self.chosen(&carriers).all(|(_, backend)| backend.simulated());
        let names: Vec<String> = self.chosen(&carriers).map(|(_, backend)| backend.name()).collect();
        let (on_at, on_at_ms) = (self.clock.boot(), self.clock.wall_ms());
        let lost = CancellationToken::new();
        {
            let mut inner = self.lock();
            if !inner.tended {
                return Err(SignFault::Unwatched);
            }
            inner.holds += 1;
            inner.stray = false;
            inner.lighting = Some(Lighting { on_at, on_at_ms, simulated, carriers, lost: lost.clone() });
        }
        let backend = names.join(" and ");
        self.state.send_replace(SignState::Lit { since_ms: on_at_ms, backend, simulated });
        Ok(Lit { shared: Arc::clone(self), on_at_ms, simulated, lost })
    }

    /// Asks the carriers whether they are still lit. One that is not required may drop out while another carries the sign.
    async fn confirm(&self) -> Result<(), SignFault> {
        let carriers = match &self.lock().lighting {
            Some(lighting) => lighting.carriers.clone(),
            None => return Ok(()),
        };
        let mut first = None;
        let mut still = Vec::new();
        for (at, backend) in self.chosen(&carriers) {
            match answered(backend, backend.check()).await {
                Ok(()) => still.push(at),
                Err(fault) if backend.required() => return self.lost(fault),
                Err(fault) => first = first.or(Some(fault)),
            }
        }
        // A simulated carrier cannot stand in for a real one that dropped out.
        let simulated = self.chosen(&still).all(|(_, backend)| backend.simulated());
        let promised = self.lock().lighting.as_ref().is_some_and(|lighting| lighting.simulated);
        match first {
            Some(fault) if still.is_empty() || simulated != promised => self.lost(fault),
            _ => {
                if let Some(lighting) = &mut self.lock().lighting {
                    lighting.carriers = still;
                }
                Ok(())
            }
        }
    }

    fn lost(&self, fault: SignFault) -> Result<(), SignFault> {
        self.lose(&reason(&fault));
        Err(fault)
    }

    /// Cancels every capture under the present lighting.
    fn lose(&self, why: &str) {
        let lost = match &self.lock().lighting {
            Some(lighting) if !lighting.lost.is_cancelled() => lighting.lost.clone(),
            _ => return,
        };
        self.state.send_replace(SignState::Lost(why.to_owned()));
        lost.cancel();
    }

    fn lost_reason(&self) -> String {
        match &*self.state.borrow() {
            SignState::Lost(reason) => reason.clone(),
            SignState::Dark | SignState::Lit { .. } => "a capture under it has not ended".to_owned(),
        }
    }

    /// One round of the tending loop; gives the time until the next one is due, or `None` when nothing is.
    async fn tend_once(&self) -> Option<Duration> {
        let _turn = self.turn.lock().await;
        let (lit, free) = {
            let inner = self.lock();
            let lit = inner.lighting.as_ref().map(|lighting| (lighting.on_at, lighting.lost.is_cancelled()));
            (lit, inner.holds == 0)
        };
        match lit {
            None if !self.lock().stray => None,
            None => self.darken().await,
            Some((_, true)) if free => self.darken().await,
            Some((_, true)) => Some(CHECK_EACH),
            Some((on_at, false)) => {
                let left = ON_MIN.saturating_sub(self.clock.boot().since(on_at));
                if free && left.is_zero() {
                    return self.darken().await;
                }
                // Its failure has been told to everyone who holds the light.
                let _ = self.confirm().await;
                Some(if left.is_zero() { CHECK_EACH } else { left.min(CHECK_EACH) })
            }
        }
    }

    /// Darkens everything unless something captures; for the end of tending.
    async fn darken_if_free(&self) {
        let _turn = self.turn.lock().await;
        if self.lock().holds == 0 {
            self.darken().await;
        }
    }

    /// Darkens every backend; called in turn and with no holds. Gives the time until it should be tried again, if it should.
    async fn darken(&self) -> Option<Duration> {
        let (mut fault, mut gone) = (None, false);
        for backend in &self.backends {
            match answered(backend, backend.dark()).await {
                Ok(()) => {}
                // What is not there shines on nobody. It may come back lit, so it is tried until it is there.
                Err(SignFault::NotReady { .. }) => gone = true,
                Err(found) => fault = fault.or(Some(found)),
            }
        }
        let mut inner = self.lock();
        let was_lit = inner.lighting.take().is_some();
        inner.stray = fault.is_some() || gone;
        drop(inner);
        match fault {
            None => {
                self.state.send_if_modified(|state| std::mem::replace(state, SignState::Dark) != SignState::Dark);
                gone.then_some(DARK_AGAIN)
            }
            Some(fault) => {
                if was_lit {
                    self.state.send_replace(SignState::Lost(format!("it did not go dark: {}", reason(&fault))));
                }
                Some(DARK_AGAIN)
            }
        }
    }
}

/// What a backend answers, or that it did not in time.
async fn answered(
    backend: &Arc<dyn SignBackend>,
    asked: BoxFuture<'static, Result<(), SignFault>>,
) -> Result<(), SignFault> {
    match tokio::time::timeout(ANSWER_MAX, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(SignFault::Unconfirmed { sign: backend.name(), reason: "it did not answer in time".to_owned() }),
    }
}

/// The reason alone, for a line that names the sign already.
fn reason(fault: &SignFault) -> String {
    match fault {
        SignFault::NotReady { reason, .. } | SignFault::Unconfirmed { reason, .. } | SignFault::Lost(reason) => {
            reason.clone()
        }
        SignFault::NoBackend | SignFault::Unwatched => fault.to_string(),
    }
}

impl std::fmt::Debug for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sign").field("state", &*self.shared.state.borrow()).finish_non_exhaustive()
    }
}
