//! Calls inside this process, one after the other: a child's, and the whole way through a house to it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::{Custom, FolderNow, HandlerAbout, Installed, Work};
use anyhow::Context;
use config::digest::Digest;
use config::manifest::{MEMORY_DEFAULT, RESULT_BYTES_DEFAULT, Reach};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::SystemClock;
use handlers::wasm::log::HandlerLog;
use handlers::wasm::outbound::{Outbound, OutboundAnswer, OutboundRequest, OutboundTrouble};
use handlers::wasm::reach::Protected;
use handlers::wasm::{Program, Source, Spec, WasmHandler, Workshop, WorkshopParts};
use runtime::SystemChance;
use wire::{Arguments, Bounds, Declaration, OwnerRequest};

use super::{ARGUMENTS, Drop, ECHO};
use crate::house;
use crate::load::Party;
use crate::server::owned_state;

/// A workshop over the program that is measured, and one handler of it.
pub(crate) struct Inside {
    workshop: Arc<Workshop>,
    drop: Drop,
    declaration: Declaration,
}

/// These handlers reach nothing.
struct Nowhere;

impl Outbound for Nowhere {
    fn send(&self, _request: OutboundRequest) -> BoxFuture<'static, Result<OutboundAnswer, OutboundTrouble>> {
        std::future::ready(Err(OutboundTrouble::Denied)).boxed()
    }
}

impl Inside {
    pub(crate) async fn new(latchkeyd: &Path, folder: &Path) -> anyhow::Result<Self> {
        let parts = WorkshopParts {
            program: Program::At(latchkeyd.to_owned()),
            cache_dir: folder.join("cache"),
            protected: Protected { folders: Vec::new(), sign_devices: Vec::new(), listeners: Vec::new() },
            outbound: Arc::new(Nowhere),
            accept_weak: false,
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
        };
        let workshop = Workshop::new(parts)?;
        let drop = Drop::new("echo", ECHO, "1s")?;
        let bounds = serde_json::json!({"type": "object", "properties": {"level": {"type": "integer"}}});
        let declaration = Declaration {
            name: drop.name.clone(),
            description: "measured".to_owned(),
            bounds: Bounds::parse(wire::json::parse(bounds.to_string().as_bytes())?)?,
            effect: wire::Effect::Read,
            activation: wire::Activation::Any,
            grant: Some(drop.name.grant()),
            captures: false,
            timeout: Duration::from_secs(1),
            asked_time: None,
        };
        let inside = Self { workshop, drop, declaration };
        inside.workshop.inspect(&inside.source()).await.map_err(|refused| anyhow::anyhow!("{}", refused.0))?;
        Ok(inside)
    }

    fn source(&self) -> Source {
        let text = self.drop.text.clone().into_bytes();
        Source { digest: Digest::of(&text), text: true, read: Arc::new(move || Ok(text.clone())) }
    }

    fn handler(&self) -> WasmHandler {
        self.workshop.handler(Spec {
            name: self.drop.name.clone(),
            source: self.source(),
            declaration: self.declaration.clone(),
            memory_bytes: MEMORY_DEFAULT,
            result_bytes_max: RESULT_BYTES_DEFAULT,
            reach: Reach::default(),
            log: Arc::<HandlerLog>::default(),
        })
    }

    fn arguments(&self) -> anyhow::Result<Arguments> {
        Ok(self.declaration.bounds.check(wire::json::parse(ARGUMENTS)?)?)
    }

    /// Times of first calls, each in a workshop and a process of its own, over native code that is in the cache.
    pub(crate) async fn cold(latchkeyd: &Path, folder: &Path, starts: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..starts {
            let fresh = Self::new(latchkeyd, folder).await?;
            times.extend(fresh.calls(&fresh.handler(), 1).await?);
            fresh.workshop.drain().await;
        }
        Ok(times)
    }

    /// Times of single calls to a child that runs.
    pub(crate) async fn warm(&self, calls: usize) -> anyhow::Result<Vec<Duration>> {
        let handler = self.handler();
        self.calls(&handler, 20).await?;
        self.calls(&handler, calls).await
    }

    async fn calls(&self, handler: &WasmHandler, calls: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let arguments = self.arguments()?;
            let began = Instant::now();
            handler.run_measured(arguments, Duration::from_secs(5)).await.0?;
            times.push(began.elapsed());
        }
        Ok(times)
    }

    /// Times of whole calls through the gate of a house: verified, authorised, run, recorded, signed.
    pub(crate) async fn through_a_house(&self, calls: usize) -> anyhow::Result<Vec<Duration>> {
        let party = Party::new();
        let mut durable = owned_state(&party)?;
        durable.grants.insert(self.drop.name.grant(), self.drop.grant());
        let house = house::grow(&party, &durable, Vec::new()).await?;
        let handler = self.handler();
        let custom = Custom {
            seal: self.drop.grant().seal.context("a seal")?,
            about: HandlerAbout { file: "echo".to_owned(), memory_bytes: 0, result_bytes_max: 0, reach: Vec::new() },
            log: Arc::default(),
        };
        let make = move || Ok(Work::Plain(Arc::new(handler.clone())));
        let installed = Installed { declaration: self.declaration.clone(), make: Arc::new(make), custom: Some(custom) };
        let now = FolderNow { installed: vec![installed], ..FolderNow::default() };
        let refused = house.folder(now).await;
        anyhow::ensure!(refused.is_empty(), "the house refused the handler: {refused:?}");
        let request =
            OwnerRequest::Invoke { capability: self.drop.name.clone(), arguments: wire::json::parse(ARGUMENTS)? };
        while house::ask(&house, &party, &request).await?.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            anyhow::ensure!(house::ask(&house, &party, &request).await?.is_ok(), "a call failed");
            times.push(began.elapsed());
        }
        house.drain(Duration::ZERO).await;
        Ok(times)
    }
}
