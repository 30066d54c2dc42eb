//! What every capability is to its actor: a declaration and a run.
//!
//! Implemented by everything that does work here, called by capability actors alone. An actor calls `run` once for each admitted invocation and keeps the time limit itself; a handler watches `stop` and ends early.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wire::{Agent, Arguments, Declaration, Object};

use crate::clock::Clock;
use crate::sign::Lit;

/// A capability that captures nothing.
pub trait Handler: Send + Sync {
    /// What it is called, takes and needs.
    fn declaration(&self) -> &Declaration;
    /// Does the work once.
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>>;
}

/// A capability that captures: it cannot be called without a lit sign.
pub trait CaptureHandler: Send + Sync {
    /// What it is called, takes and needs.
    fn declaration(&self) -> &Declaration;
    /// Does the work once. The sign stays lit until the handler has dropped `lit` and everything held from it.
    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>>;
}

/// One invocation, as a handler sees it.
#[derive(Clone)]
pub struct Call {
    /// Held to the declared bounds already.
    pub arguments: Arguments,
    /// Fires when the work is no longer wanted.
    pub stop: CancellationToken,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who acts, for the screen.
    pub agent: Agent,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("arguments", &self.arguments).field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// How a handler ends without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The hardware or the sign is missing, busy or broken (`hardware_unavailable`).
    #[error("{0}")]
    Unavailable(String),
    /// The handler has no room for this call (`busy`).
    #[error("{0}")]
    Busy(String),
    /// An argument inside its bounds that still cannot be used (`invalid_arguments`).
    #[error("{member}: {reason}")]
    Invalid {
        /// The argument.
        member: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The work was tried and went wrong (`failed`).
    #[error("{0}")]
    Failed(String),
    /// The work crashed; the handler is as good as before for the next call (`failed`, or `unknown_outcome` of a change).
    #[error("{0}")]
    Crashed(String),
    /// The work crashed, and the handler is to be made anew: it crashed too often in a row, or its process died.
    #[error("{0}")]
    Broken(String),
    /// The handler saw `stop`, or the sign went out under it.
    #[error("stopped before it was done")]
    Stopped,
}
