//! The outside as the tests want it: time by hand, dice that count, handlers and a sign that misbehave when told to.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use handlers::{BootTime, Call, CaptureHandler, Chance, Clock, Fault, Handler, Lit, SignBackend, SignFault};
use latchkey_actors::{Installed, Work};
use tokio::sync::watch;
use wire::{Declaration, Object};

/// Both clocks, moved by hand and apart.
#[derive(Debug)]
pub(crate) struct HandClock {
    boot: AtomicU64,
    wall: AtomicU64,
}

pub(crate) const WALL_MS: u64 = 1_790_000_000_000;

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { boot: AtomicU64::new(1_000_000), wall: AtomicU64::new(WALL_MS) })
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.boot.fetch_add(ms, Ordering::SeqCst);
        self.wall.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn pass_boot(&self, ms: u64) {
        self.boot.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn set_wall(&self, ms: u64) {
        self.wall.store(ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn boot(&self) -> BootTime {
        BootTime::from_ms(self.boot.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }
}

/// Different bytes at each call, the same in each run. Two dice with different seeds differ, as two starts of a device do.
#[derive(Debug)]
pub(crate) struct Counting(AtomicU64);

impl Counting {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(seed << 32)))
    }
}

impl Chance for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let next = self.0.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&next.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// What happened, in order, across fakes.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<Vec<String>>);

impl Trace {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// What a handler does when called.
#[derive(Debug, Clone)]
pub(crate) enum Mood {
    /// Has its effect and gives a value.
    Work,
    /// Begins, and panics before its effect.
    Panic,
    /// Begins, and has its effect when [`Fake::go`] comes; ends early, without effect, when told to stop.
    Wait,
    /// Begins and never ends, whatever it is told; has no effect.
    Ignore,
    /// Blocks its thread until [`Fake::go`]; no word reaches it.
    Block,
    /// Has its effect and reports a fault.
    Fail(Fault),
    /// Waits until told to stop, and panics then.
    PanicAtStop,
    /// Waits until told to stop, and reports a fault then.
    FailAtStop(Fault),
    /// Has its effect and gives this value.
    Give(Object),
}

/// How a handler is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Making {
    Well,
    /// So many times it fails, then it goes well.
    FailsTimes(u32),
    Panics,
    /// It never returns, until the fake is let go.
    Hangs,
}

/// A handler of either kind, with its counters.
pub(crate) struct Fake {
    pub(crate) declaration: Declaration,
    pub(crate) mood: Mutex<Mood>,
    pub(crate) making: Mutex<Making>,
    /// Times the work was begun.
    pub(crate) begun: watch::Sender<u32>,
    /// Times it had its effect.
    pub(crate) effects: AtomicU32,
    /// Times it saw that it should stop.
    pub(crate) stopped: watch::Sender<u32>,
    /// Times the future of the work was dropped, whatever its end.
    pub(crate) ended: watch::Sender<u32>,
    pub(crate) made: AtomicU32,
    at_once: AtomicU32,
    pub(crate) most_at_once: AtomicU32,
    go: watch::Sender<u32>,
    blocked: (Mutex<bool>, Condvar),
    trace: Arc<Trace>,
}

impl Fake {
    pub(crate) fn new(declaration: Declaration, trace: &Arc<Trace>) -> Arc<Self> {
        Arc::new(Self {
            declaration,
            mood: Mutex::new(Mood::Work),
            making: Mutex::new(Making::Well),
            begun: watch::Sender::new(0),
            effects: AtomicU32::new(0),
            stopped: watch::Sender::new(0),
            ended: watch::Sender::new(0),
            made: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            most_at_once: AtomicU32::new(0),
            go: watch::Sender::new(0),
            blocked: (Mutex::new(false), Condvar::new()),
            trace: Arc::clone(trace),
        })
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn make(&self, making: Making) {
        *self.making.lock().unwrap() = making;
    }

    pub(crate) fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    pub(crate) fn begun(&self) -> u32 {
        *self.begun.borrow()
    }

    /// Lets waiting and blocked work go on.
    pub(crate) fn go(&self) {
        self.go.send_modify(|times| *times += 1);
        *self.blocked.0.lock().unwrap() = true;
        self.blocked.1.notify_all();
    }

    pub(crate) async fn begins(&self, times: u32) {
        reaches(&self.begun, times, "the work begins").await;
    }

    fn block(&self) {
        let open = self.blocked.0.lock().unwrap();
        drop(self.blocked.1.wait_while(open, |open| !*open).unwrap());
    }

    fn value(&self) -> Object {
        let mut value = Object::new();
        value.insert("times", self.effects());
        value
    }

    fn effect(&self) -> Object {
        self.effects.fetch_add(1, Ordering::SeqCst);
        self.trace.note(format!("effect {}", self.declaration.name));
        self.value()
    }

    async fn work(self: Arc<Self>, call: Call, lit: Option<Lit>) -> Result<Object, Fault> {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let _inside = Inside(Arc::clone(&self));
        self.trace.note(format!("begin {}", self.declaration.name));
        let mut go = self.go.subscribe();
        let mood = self.mood.lock().unwrap().clone();
        self.begun.send_modify(|times| *times += 1);
        let result = match mood {
            Mood::Work => Ok(self.effect()),
            Mood::Give(value) => {
                self.effect();
                Ok(value)
            }
            Mood::Fail(fault) => {
                self.effect();
                Err(fault)
            }
            Mood::Panic => panic!("told to panic"),
            Mood::Ignore => std::future::pending().await,
            Mood::Block => {
                self.block();
                Ok(self.value())
            }
            Mood::PanicAtStop => {
                call.stop.cancelled().await;
                panic!("told to panic at stop")
            }
            Mood::FailAtStop(fault) => {
                call.stop.cancelled().await;
                Err(fault)
            }
            Mood::Wait => {
                tokio::select! {
                    biased;
                    () = call.stop.cancelled() => {
                        self.stopped.send_modify(|times| *times += 1);
                        Err(Fault::Stopped)
                    }
                    _ = go.changed() => Ok(self.effect()),
                }
            }
        };
        drop(lit);
        result
    }

    fn made(self: &Arc<Self>) -> Result<Work, Fault> {
        self.made.fetch_add(1, Ordering::SeqCst);
        let making = *self.making.lock().unwrap();
        match making {
            Making::Well => {}
            Making::FailsTimes(0) => self.make(Making::Well),
            Making::FailsTimes(times) => {
                self.make(Making::FailsTimes(times - 1));
                return Err(Fault::Unavailable("told not to start".to_owned()));
            }
            Making::Panics => panic!("told to panic while being made"),
            Making::Hangs => self.block(),
        }
        let fake = Arc::clone(self);
        Ok(if self.declaration.captures {
            Work::Capture(Arc::new(FakeCapture(fake)))
        } else {
            Work::Plain(Arc::new(FakeHandler(fake)))
        })
    }

    pub(crate) fn installed(self: &Arc<Self>) -> Installed {
        let fake = Arc::clone(self);
        Installed { declaration: self.declaration.clone(), make: Arc::new(move || fake.made()), custom: None }
    }
}

struct Inside(Arc<Fake>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.send_modify(|times| *times += 1);
    }
}

struct FakeHandler(Arc<Fake>);

impl Handler for FakeHandler {
    fn declaration(&self) -> &Declaration {
        &self.0.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        Arc::clone(&self.0).work(call, None).boxed()
    }
}

struct FakeCapture(Arc<Fake>);

impl CaptureHandler for FakeCapture {
    fn declaration(&self) -> &Declaration {
        &self.0.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        Arc::clone(&self.0).work(call, Some(lit)).boxed()
    }
}

/// A sign that can be told to fail.
pub(crate) struct FakeSign {
    pub(crate) lit: AtomicBool,
    pub(crate) works: AtomicBool,
    /// Lighting never gets confirmed.
    pub(crate) silent: AtomicBool,
    pub(crate) lighted: watch::Sender<u32>,
    trace: Arc<Trace>,
}

impl FakeSign {
    pub(crate) fn new(trace: &Arc<Trace>) -> Arc<Self> {
        Arc::new(Self {
            lit: AtomicBool::new(false),
            works: AtomicBool::new(true),
            silent: AtomicBool::new(false),
            lighted: watch::Sender::new(0),
            trace: Arc::clone(trace),
        })
    }

    pub(crate) fn breaks(&self, broken: bool) {
        self.works.store(!broken, Ordering::SeqCst);
    }

    fn state(&self) -> Result<(), SignFault> {
        if self.works.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(SignFault::NotReady { sign: "fake".to_owned(), reason: "told to break".to_owned() })
    }
}

/// The sign as a backend, which must outlive the call.
pub(crate) struct Carrier(pub(crate) Arc<FakeSign>);

impl SignBackend for Carrier {
    fn name(&self) -> String {
        "fake".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let sign = Arc::clone(&self.0);
        async move {
            sign.lighted.send_modify(|times| *times += 1);
            if sign.silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            sign.state()?;
            sign.lit.store(true, Ordering::SeqCst);
            sign.trace.note("sign on");
            Ok(())
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let state = self.0.state();
        async move { state }.boxed()
    }

    fn ready(&self) -> Result<(), SignFault> {
        self.0.state()
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let sign = Arc::clone(&self.0);
        async move {
            if sign.lit.swap(false, Ordering::SeqCst) {
                sign.trace.note("sign off");
            }
            Ok(())
        }
        .boxed()
    }
}

/// How long a test waits for what must come.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

pub(crate) async fn reaches(counter: &watch::Sender<u32>, times: u32, what: &str) {
    let mut seen = counter.subscribe();
    let came = tokio::time::timeout(PATIENCE, seen.wait_for(|count| *count >= times)).await;
    assert!(came.is_ok(), "{what}: {} instead of {times} times", *counter.borrow());
}

/// Waits for something that no watch tells.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never: {what}");
}
