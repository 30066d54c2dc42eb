//! The in-use sign: what tells a person in the room that a device captures.
//!
//! [`Sign`] owns the lighting; [`SignBackend`]s carry it (an LED, a GPIO line, a page, a simulation). The capability actors ask for light before a
//! capture and get a [`Lit`], without which no capture can be called; the sign actor runs [`Sign::tend`], which confirms the sign while
//! it is lit and darkens it. Refuses to light when nobody tends it, when a required backend fails, or when none confirms. There is no
//! way to darken it from outside: it goes off by itself, at the later of [`ON_MIN`] after it went on and the drop of the last [`Lit`].

use std::sync::Arc;

use config::SignCarrier;
use futures_util::future::BoxFuture;

pub mod gpio;
mod led;
mod lighting;
mod simulated;
#[cfg(test)]
mod tests;

pub use gpio::GpioSign;
pub use led::{FoundLed, LEDS, LedSign, leds};
pub use lighting::{CHECK_EACH, Examined, Lit, ON_MIN, Sign, SignState};
pub use simulated::{SignTrouble, SimulatedSign};

/// One thing that can carry the sign.
pub trait SignBackend: Send + Sync {
    /// What people call it: "LED kitchen::inuse", "display page".
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
    /// Whether the sign counts as lit only when this one is. Of those that are not required, one that works suffices.
    fn required(&self) -> bool {
        false
    }
    /// Which of the settings it is; none for what only pretends.
    fn carrier(&self) -> Option<SignCarrier> {
        None
    }
    /// Lights it; resolves when it has been read back or confirmed.
    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>>;
    /// Whether it is still lit, confirmed anew.
    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>>;
    /// Whether it could be lit now (page open, LED present); quick, changes nothing.
    fn ready(&self) -> Result<(), SignFault>;
    /// Darkens it. Also called when it may be dark already. [`SignFault::NotReady`] says that it is not there, so that nothing of it is
    /// lit; it is tried again until it is there and dark.
    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>>;
}

/// A backend that must work, whatever else carries the sign beside it.
pub struct Needed(Arc<dyn SignBackend>);

impl Needed {
    /// The backend, as one that must work.
    #[allow(clippy::new_ret_no_self, reason = "it is only ever used as a backend")]
    pub fn new(backend: Arc<dyn SignBackend>) -> Arc<dyn SignBackend> {
        Arc::new(Self(backend))
    }
}

impl SignBackend for Needed {
    fn name(&self) -> String {
        self.0.name()
    }

    fn simulated(&self) -> bool {
        self.0.simulated()
    }

    fn required(&self) -> bool {
        true
    }

    fn carrier(&self) -> Option<SignCarrier> {
        self.0.carrier()
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.0.light()
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.0.check()
    }

    fn ready(&self) -> Result<(), SignFault> {
        self.0.ready()
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.0.dark()
    }
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
    /// It cannot be lit: page closed, LED missing.
    #[error("the in-use sign ({sign}) cannot be lit: {reason}")]
    NotReady {
        /// The backend's name.
        sign: String,
        /// Why.
        reason: String,
    },
    /// It was told to light, or to go dark, and did not confirm.
    #[error("the in-use sign ({sign}) did not obey: {reason}")]
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

impl SignFault {
    /// Whether it is the fault of the backend of this name.
    fn names(&self, backend: &str) -> bool {
        match self {
            Self::NotReady { sign, .. } | Self::Unconfirmed { sign, .. } => sign == backend,
            Self::NoBackend | Self::Unwatched | Self::Lost(_) => false,
        }
    }
}
