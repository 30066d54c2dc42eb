//! The in-use sign.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

mod led;
mod simulated;

pub use led::{LEDS, LedSign};
pub use simulated::{SignTrouble, SimulatedSign};

/// How long the sign stays on at least: long enough for a person to notice that a picture was taken.
pub const ON_MIN: Duration = Duration::from_secs(3);

/// One thing that can carry the sign.
pub trait SignBackend: Send + Sync {
    /// What people call it: "LED kitchen::inuse", "display page".
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
    /// Whether the sign counts as lit only when this one is.
    fn required(&self) -> bool {
        false
    }
    /// Lights it; resolves when it has been read back or confirmed.
    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>>;
    /// Whether it is still lit, confirmed anew.
    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>>;
    /// Whether it could be lit now; quick, changes nothing.
    fn ready(&self) -> Result<(), SignFault>;
    /// Darkens it.
    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>>;
}

/// Why there is no sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignFault {
    /// The device has nothing that could carry a sign.
    #[error("this device has no in-use sign")]
    NoBackend,
    /// Nobody watches the sign, so it must not be lit.
    #[error("the in-use sign is not watched at the moment")]
    Unwatched,
    /// It could not be lit: page closed, LED missing.
    #[error("the in-use sign ({sign}) cannot be lit: {reason}")]
    NotReady {
        /// The backend's name.
        sign: String,
        /// Why.
        reason: String,
    },
    /// It was told to light and did not confirm.
    #[error("the in-use sign ({sign}) did not confirm that it is lit: {reason}")]
    Unconfirmed {
        /// The backend's name.
        sign: String,
        /// Why.
        reason: String,
    },
    /// It was lit and is no more, and a capture under it has not ended yet.
    #[error("the in-use sign went out: {0}")]
    Lost(String),
}

/// What the sign does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignState {
    /// Off.
    Dark,
    /// On and confirmed.
    Lit {
        /// Since when, wall time in ms.
        since_ms: u64,
        /// Who carries it.
        backend: String,
        /// Whether it only pretends.
        simulated: bool,
    },
    /// It was on and went out, or could not be darkened; captures under it are cancelled.
    Lost(String),
}

/// The sign of a device.
pub struct Sign {
    backends: Vec<Arc<dyn SignBackend>>,
    clock: Arc<dyn Clock>,
}

impl Sign {
    /// A dark sign carried by `backends`.
    pub fn new(backends: Vec<Arc<dyn SignBackend>>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { backends, clock })
    }

    /// Lights the sign, or joins the present lighting.
    ///
    /// # Errors
    /// See [`SignFault`].
    pub fn light(&self) -> BoxFuture<'static, Result<Lit, SignFault>> {
        todo!()
    }

    /// Whether it could be lit now.
    ///
    /// # Errors
    /// See [`SignFault`].
    pub fn ready(&self) -> Result<(), SignFault> {
        let _ = &self.backends;
        todo!()
    }

    /// One line for people: the backends and how they are.
    pub fn describe(&self) -> String {
        todo!()
    }

    /// Follows the sign's state.
    pub fn watch(&self) -> watch::Receiver<SignState> {
        let _ = &self.clock;
        todo!()
    }

    /// The loop that watches and darkens the sign; while none runs, the sign cannot be lit.
    pub async fn tend(self: Arc<Self>, stop: CancellationToken) {
        stop.cancelled().await;
    }
}

/// Proof that the sign was confirmed on, and a hold on it: the sign stays on until every hold is dropped.
#[derive(Debug)]
pub struct Lit {
    on_at_ms: u64,
    simulated: bool,
    lost: CancellationToken,
}

impl Lit {
    /// A second hold on the same lighting.
    #[must_use]
    pub fn hold(&self) -> Self {
        todo!()
    }

    /// Whether a simulated backend alone carries the sign.
    pub const fn simulated(&self) -> bool {
        self.simulated
    }

    /// When it went on, wall time in ms.
    pub const fn on_at_ms(&self) -> u64 {
        self.on_at_ms
    }

    /// Fires when the sign goes out under this hold.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }
}
