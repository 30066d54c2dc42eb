//! `device.health`.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use wire::{Declaration, Object};

use crate::clock::Clock;
use crate::handler::{Call, Fault, Handler};

/// What only the actors know: states of capabilities, links, counters. Merged into the health value.
pub trait Census: Send + Sync {
    /// The members to merge, such as `capabilities` and `links`.
    fn report(&self) -> Object;
}

/// `device.health`.
pub struct Health {
    declaration: Declaration,
}

/// What a [`Health`] is made of.
pub struct HealthParts {
    /// The program's version.
    pub version: &'static str,
    /// Whether the device is a simulation.
    pub simulated: bool,
    /// The folder whose disk is measured: the state folder.
    pub folder: PathBuf,
    /// The time; the device's up time counts from the making of the handler.
    pub clock: Arc<dyn Clock>,
    /// What the actors know.
    pub census: Arc<dyn Census>,
}

impl Health {
    /// The handler for one device.
    pub fn new(parts: HealthParts) -> Self {
        let _ = parts;
        todo!()
    }
}

impl Handler for Health {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let _ = call;
        todo!()
    }
}
