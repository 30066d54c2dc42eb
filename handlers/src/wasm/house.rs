//! A workshop of fakes for the tests of the parent's side, and calls of its handlers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::digest::Digest;
use config::manifest::Reach;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wire::{Agent, Arguments, Bounds, CapabilityName, Declaration, Object};

use super::fake::{Fake, Fakes};
use super::handler::WasmHandler;
use super::outbound::{Outbound, OutboundAnswer, OutboundRequest, OutboundTrouble};
use super::reach::Protected;
use super::spawn::Program;
use super::workshop::{Source, Spec, Workshop, WorkshopParts};
use crate::clock::{Chance, TokioClock};
use crate::handler::{Call, Fault, Handler};

/// A workshop whose processes are fakes.
pub(super) struct House {
    pub(super) room: TempDir,
    pub(super) fake: Arc<Fake>,
    pub(super) outbound: Arc<Away>,
    pub(super) workshop: Arc<Workshop>,
}

struct Dice;

impl Chance for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// Answers at once, or never; counts connections that are open.
#[derive(Default)]
pub(super) struct Away {
    pub(super) hangs: AtomicBool,
    pub(super) open: Arc<AtomicUsize>,
    pub(super) asked: Mutex<Vec<OutboundRequest>>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outbound for Away {
    fn send(&self, request: OutboundRequest) -> BoxFuture<'static, Result<OutboundAnswer, OutboundTrouble>> {
        self.asked.lock().unwrap().push(request);
        self.open.fetch_add(1, Ordering::Relaxed);
        let (open, hangs) = (Open(Arc::clone(&self.open)), self.hangs.load(Ordering::Relaxed));
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            drop(open);
            Ok(OutboundAnswer { status: 200, headers: Vec::new(), body: b"on".to_vec() })
        }
        .boxed()
    }
}

impl House {
    pub(super) fn new() -> Self {
        Self::with(tempfile::tempdir().unwrap(), Arc::default(), false)
    }

    pub(super) fn with(room: TempDir, fake: Arc<Fake>, accept_weak: bool) -> Self {
        let outbound = Arc::<Away>::default();
        let parts = WorkshopParts {
            program: Program::At("/nonexistent".into()),
            cache_dir: room.path().join("cache"),
            protected: Protected {
                folders: vec![(room.path().join("state"), "the state folder")],
                ..Protected::default()
            },
            outbound: Arc::clone(&outbound) as Arc<dyn Outbound>,
            accept_weak,
            clock: Arc::new(TokioClock::new(5_000)),
            chance: Arc::new(Dice),
        };
        let workshop = Workshop::with_starter(parts, Arc::new(Fakes(Arc::clone(&fake)))).unwrap();
        Self { room, fake, outbound, workshop }
    }

    pub(super) fn spec(&self, action: &str) -> Spec {
        let name: CapabilityName = format!("custom.acme.{action}").parse().unwrap();
        let declaration = Declaration {
            description: "for tests".to_owned(),
            bounds: bounds(),
            grant: Some(name.grant()),
            name: name.clone(),
            timeout: Duration::from_secs(1),
            ..Declaration::device_health()
        };
        Spec {
            name,
            source: source(action),
            declaration,
            memory_bytes: 1 << 20,
            result_bytes_max: 1000,
            reach: Reach { http: vec!["http://192.168.1.20".parse().unwrap()], ..Reach::default() },
            log: Arc::default(),
        }
    }

    pub(super) fn handler(&self, action: &str) -> WasmHandler {
        self.workshop.handler(self.spec(action))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }
}

pub(super) fn bounds() -> Bounds {
    let declared = json!({"type": "object", "properties": {"do": {"type": "string", "maxLength": 40}}});
    Bounds::parse(wire::json::parse(declared.to_string().as_bytes()).unwrap()).unwrap()
}

pub(super) fn source(text: &str) -> Source {
    let bytes = text.as_bytes().to_vec();
    Source { digest: Digest::of(&bytes), text: true, read: Arc::new(move || Ok(bytes.clone())) }
}

pub(super) fn arguments(what: &str) -> Arguments {
    bounds().check(wire::json::parse(json!({"do": what}).to_string().as_bytes()).unwrap()).unwrap()
}

pub(super) fn call(what: &str, stop: &CancellationToken) -> Call {
    let agent: Agent = "eve@home.example.org".parse().unwrap();
    Call { arguments: arguments(what), stop: stop.clone(), clock: Arc::new(TokioClock::new(0)), agent }
}

pub(super) async fn run(handler: &WasmHandler, what: &str) -> Result<Object, Fault> {
    Handler::run(handler, call(what, &CancellationToken::new())).await
}

/// A call in a task, and what stops it.
pub(super) fn begin(
    handler: &WasmHandler,
    what: &str,
) -> (CancellationToken, tokio::task::JoinHandle<Result<Object, Fault>>) {
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(Handler::run(handler, call(what, &stop))))
}

/// Which runner answered, and with which of its calls.
pub(super) async fn answered(handler: &WasmHandler) -> (u64, u64) {
    let value = run(handler, "answer").await.unwrap();
    let number = |name: &str| value.get(name).unwrap().as_u64().unwrap();
    (number("runner"), number("call"))
}
