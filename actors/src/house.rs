//! The house of a device: what the gate, the keeper's commands and the tree have in common.
//!
//! [`House::grow`] starts the supervision tree; [`House::drain`] ends it. In between the house is reached by links
//! ([`House::challenge`], [`House::answer`]) and by the keeper ([`House::command`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use handlers::CaptureHandler;
use tokio::sync::{broadcast, watch};
use wire::{CapabilityName, Challenge, Object, Refused, Sealed};

use crate::inner::Inner;
use crate::{Caller, Command, Event, Parts, Reply, SettingsChange, SignTrial, Tree};

/// Where a request came from; a challenge serves only on the link that issued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// The direct link.
    Direct,
    /// A WebSocket that the device opened, by its connection's number.
    Reverse(u64),
    /// A hub.
    Hub,
}

/// A request that gets no signed answer: 403, whatever the reason, which is for the log alone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub Refused);

/// Why a house did not grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The state cannot be read or written.
    #[error("the state cannot be used: {0}")]
    State(String),
    /// A declaration breaks its rules, or two capabilities share a name.
    #[error("capability {0}")]
    Capability(String),
}

/// The house; cheap to clone.
#[derive(Clone)]
pub struct House {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").finish_non_exhaustive()
    }
}

impl House {
    /// Starts the supervision tree and waits until state and journal are at work.
    ///
    /// # Errors
    ///
    /// [`GrowError::State`] when what is on disk cannot be used; [`GrowError::Capability`] for a declaration that breaks its rules.
    pub async fn grow(parts: Parts) -> Result<Self, GrowError> {
        crate::grow::grow(parts).await
    }

    /// A fresh challenge for a link; costs no memory.
    #[must_use]
    pub fn challenge(&self, link: Link) -> Challenge {
        self.inner.challenges.issue(link, self.inner.clock.boot())
    }

    /// The one gate: bytes in, signed bytes out.
    ///
    /// # Errors
    ///
    /// [`Forbidden`] for everything that PROTOCOL.md section 3 answers with 403. It spends nothing and changes nothing.
    pub async fn answer(&self, link: Link, body: Bytes) -> Result<Sealed, Forbidden> {
        crate::gate::answer(&self.inner, link, body).await
    }

    /// A command of the keeper.
    pub async fn command(&self, caller: Caller, command: Command) -> Reply {
        crate::keeper::command(&self.inner, caller, command).await
    }

    /// The keeper tries a capture: on record, at its place, under the lit sign, without a grant. What it captured is the caller's to
    /// judge and to let go.
    ///
    /// # Errors
    /// One sentence that says why there is nothing.
    pub async fn try_capture(
        &self,
        name: &CapabilityName,
        handler: Arc<dyn CaptureHandler>,
        arguments: Object,
    ) -> Result<Object, String> {
        crate::trial::capture(&self.inner, name, handler, arguments).await
    }

    /// The keeper tries the in-use sign: on and off, each read back.
    ///
    /// # Errors
    /// When no record of it can be written; then nothing moved.
    pub async fn try_sign(&self) -> Result<SignTrial, String> {
        crate::trial::sign(&self.inner).await
    }

    /// The supervision tree, as the actors publish it.
    #[must_use]
    pub fn tree(&self) -> watch::Receiver<Tree> {
        self.inner.board.watch()
    }

    /// What happens in the house.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// The device's name, as people call it.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Takes over what a reload of the settings changed; leaves a keeper record.
    pub async fn settings_changed(&self, change: SettingsChange) {
        let inner = &self.inner;
        *inner.name.write().unwrap_or_else(std::sync::PoisonError::into_inner) = change.name;
        inner.bucket.set(change.limits);
        for name in &change.renew {
            if let Some(installation) = inner.catalogue.get(name) {
                inner.renew(&installation).await;
            }
        }
        inner.note("settings".to_owned()).await;
    }

    /// Ends the house: no new work, running work has `limit`, then services and actors stop and the records are closed.
    pub async fn drain(&self, limit: Duration) {
        crate::grow::drain(&self.inner, limit).await;
    }
}
