//! Running the handler: native code in place, then one fresh instance for each call.
//!
//! Owns what is prepared once and the limits of a call. Called by [`super::serve`] with one call at a time. Nothing of a call is left
//! for the next but the folders of the reach; a trap ends its call alone.
#![expect(unsafe_code, reason = "taking native code back from bytes is unsafe: see `Runner::load`")]

use std::time::Duration;

use wasmtime::component::{Component, ComponentExportIndex, InstancePre};
use wasmtime::{Engine, Store};

use super::compile::{INVOKE, linked};
use super::engine::Ticker;
use super::guest::{Folders, Guest, HandlerError, Invoked, Shared, cut};
use super::http::{Door, Outgoing};
use super::words;
use crate::wasm::frame::{CallFrame, Ended};

/// What a call hands over beside its result: code and message of an error, or a line of the log.
const BESIDE_RESULT_BYTES: usize = 4 * 1024;
/// What a handler with folders or servers may hand over in one piece, when its result may be less: what its library writes at once.
const WRITE_BYTES: usize = 1024 * 1024;
/// The parent keeps the time of a call; this process ends a call so much later, should the parent not.
const LATER: Duration = Duration::from_millis(250);
/// The longest word for an error.
const CODE_BYTES_MAX: usize = 200;
/// The longest line about an error.
const MESSAGE_BYTES_MAX: usize = 1000;

/// What a handler may use, and what it may reach.
pub(super) struct Terms {
    /// Linear memory of one call.
    pub(super) memory_bytes: usize,
    /// The longest result.
    pub(super) result_bytes_max: usize,
    /// Folders of the reach.
    pub(super) folders: Folders,
    /// The way to servers, where the reach names some.
    pub(super) door: Option<Door>,
}

impl Terms {
    /// The most that a guest may hand over in one piece.
    fn copied_bytes_max(&self) -> usize {
        let writes = self.door.is_some() || !self.folders.is_empty();
        let most = if writes { self.result_bytes_max.max(WRITE_BYTES) } else { self.result_bytes_max };
        most.saturating_add(BESIDE_RESULT_BYTES)
    }
}

/// A handler that can be called.
pub(super) struct Runner {
    linked: InstancePre<Guest>,
    invoke: ComponentExportIndex,
    terms: Terms,
    ticker: Ticker,
}

impl Runner {
    /// Puts native code in place.
    ///
    /// # Errors
    /// Why it is none, in a sentence.
    pub(super) fn load(engine: &Engine, native: Vec<u8>, terms: Terms) -> Result<Self, String> {
        // SAFETY: these bytes were made by `Component::serialize` in a compiler's process that ran no guest code, and the parent has held
        // a MAC against them whose key no handler's process ever has. Bytes from elsewhere would be run as they are: hence the rule that
        // the parent alone speaks on this pipe. Should it be wrong all the same, the code runs in a process that has nothing.
        let component = unsafe { Component::deserialize(engine, &native) }.map_err(|error| words::refusal(&error))?;
        drop(native);
        // Loading may use more memory than running, so pictures of initial memory are made now and not in the first call.
        component.initialize_copy_on_write_image().map_err(|error| words::refusal(&error))?;
        let linked = linked(engine, &component)?;
        let invoke = component.get_export_index(None, INVOKE).ok_or_else(|| format!("it exports no `{INVOKE}`"))?;
        let ticker = Ticker::start(engine.weak()).map_err(|error| format!("it cannot be interrupted: {error}"))?;
        Ok(Self { linked, invoke, terms, ticker })
    }

    /// The record for a call.
    pub(super) fn record(&self) -> Shared {
        Shared::new(self.terms.memory_bytes)
    }

    /// Runs it once. Dropping the future ends the call at its next interruption or host call.
    pub(super) async fn call(&self, call: CallFrame, record: Shared) -> Ended {
        let _awake = self.ticker.awake();
        let outgoing = Outgoing::new(self.terms.door.clone());
        let mut store = Store::new(self.linked.engine(), Guest::new(&self.terms.folders, outgoing, record.clone()));
        store.limiter(Guest::limiter);
        store.set_hostcall_fuel(self.terms.copied_bytes_max());
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        let within = Duration::from_millis(call.within_ms).saturating_add(LATER);
        match tokio::time::timeout(within, self.invoke(&mut store, call.arguments)).await {
            Err(_) => Ended::TimedOut,
            Ok(Err(error)) => {
                let broken = record.record().budget.broken();
                Ended::Trapped(words::crash(&error, broken, self.terms.memory_bytes, self.terms.copied_bytes_max()))
            }
            Ok(Ok(Ok(value))) if value.len() > self.terms.result_bytes_max => {
                Ended::Trapped(words::too_long(self.terms.result_bytes_max))
            }
            Ok(Ok(Ok(value))) => Ended::Value(value),
            Ok(Ok(Err(HandlerError { code, message }))) => Ended::Failed {
                code: cut(&code, CODE_BYTES_MAX).to_owned(),
                message: cut(&message, MESSAGE_BYTES_MAX).to_owned(),
            },
        }
    }

    async fn invoke(&self, store: &mut Store<Guest>, arguments: Vec<u8>) -> wasmtime::Result<Invoked> {
        let instance = self.linked.instantiate_async(&mut *store).await?;
        let invoke = instance.get_typed_func::<(Vec<u8>,), (Invoked,)>(&mut *store, self.invoke)?;
        let (invoked,) = invoke.call_async(&mut *store, (arguments,)).await?;
        Ok(invoked)
    }
}
