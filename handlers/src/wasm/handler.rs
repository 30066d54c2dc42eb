//! handler (being written).

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use wire::{Arguments, Declaration, Object};

use super::workshop::{Spec, Workshop};
use crate::handler::{Call, CaptureHandler, Fault, Handler};
use crate::sign::Lit;

/// A handler of the keeper. Clones share one process.
#[derive(Clone)]
pub struct WasmHandler {
    inner: Arc<Inner>,
}

struct Inner {
    #[expect(dead_code, reason = "being written")]
    workshop: Arc<Workshop>,
    spec: Spec,
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

impl WasmHandler {
    pub(super) fn new(workshop: Arc<Workshop>, spec: Spec) -> Self {
        Self { inner: Arc::new(Inner { workshop, spec }) }
    }

    /// Runs once and tells what it took, for `latchkeyd handler run`. [`Fault::Stopped`] when the time ran out.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn run_measured(&self, arguments: Arguments, within: Duration) -> (Result<Object, Fault>, Spent) {
        let _ = (arguments, within);
        (Err(Fault::Stopped), Spent::default())
    }
}

impl Handler for WasmHandler {
    fn declaration(&self) -> &Declaration {
        &self.inner.spec.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        drop(call);
        async { Err(Fault::Stopped) }.boxed()
    }
}

impl CaptureHandler for WasmHandler {
    fn declaration(&self) -> &Declaration {
        &self.inner.spec.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        drop((call, lit));
        async { Err(Fault::Stopped) }.boxed()
    }
}
