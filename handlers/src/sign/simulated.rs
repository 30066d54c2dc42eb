//! A sign that only pretends, for devices without hardware and for tests.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{SignBackend, SignFault};

/// How a simulated sign misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignTrouble {
    /// It works.
    None,
    /// It is not there.
    Missing,
    /// It is there and does not confirm.
    Unconfirmed,
    /// It goes out once lit.
    GoesOut,
}

/// A sign that only pretends.
#[derive(Clone)]
pub struct SimulatedSign {
    changed: Arc<dyn Fn(bool) + Send + Sync>,
}

impl SimulatedSign {
    /// `changed` is called with `true` each time it goes on and with `false` each time it goes off.
    pub fn new(changed: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { changed: Arc::new(changed) }
    }

    /// From now on it misbehaves like this.
    pub fn trouble(&self, trouble: SignTrouble) {
        let _ = trouble;
        (self.changed)(false);
        todo!()
    }

    /// Whether it is on.
    pub fn is_lit(&self) -> bool {
        todo!()
    }
}

impl SignBackend for SimulatedSign {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        todo!()
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        todo!()
    }

    fn ready(&self) -> Result<(), SignFault> {
        todo!()
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        todo!()
    }
}
