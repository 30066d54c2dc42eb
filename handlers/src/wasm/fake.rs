//! Processes for the tests of the parent's side: tasks on pipes in memory, which do what the call's argument `do` says.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests; their tasks end with their life"
)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::confine::Confinement;
use super::frame::{self, CallFrame, Compiled, Done, Ended, FromChild, HttpRequest, Role, Start, ToChild, VERSION};
use super::log::Level;
use super::spawn::{Born, Life, Starter};

pub(super) const ENGINE: &str = "engine of tests";
/// Between the two: a process that obeys late, and one that does not.
pub(super) const LATE: Duration = Duration::from_millis(150);

/// What a compiler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compiling {
    Well,
    Refuses,
    Dies,
    Hangs,
    Babbles,
}

/// How processes start, and how many did.
pub(super) struct Fake {
    pub(super) confinement: Mutex<Confinement>,
    pub(super) not_ready: AtomicBool,
    pub(super) refuses_load: AtomicBool,
    pub(super) compiling: Mutex<Compiling>,
    /// A runner takes one before it says that it is loaded.
    pub(super) loads: Semaphore,
    /// Lets calls that `wait` go on.
    pub(super) waits: Semaphore,
    pub(super) starts: Mutex<Vec<Start>>,
    /// Runners that live, by their number.
    pub(super) living: watch::Sender<Vec<usize>>,
    /// Calls that run.
    pub(super) calling: watch::Sender<usize>,
    runners: AtomicUsize,
    /// Ends the runner with this number.
    kills: Mutex<Vec<(usize, CancellationToken)>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            confinement: Mutex::new(Confinement { landlock_abi: Some(4), seccomp: true }),
            not_ready: AtomicBool::new(false),
            refuses_load: AtomicBool::new(false),
            compiling: Mutex::new(Compiling::Well),
            loads: Semaphore::new(1000),
            waits: Semaphore::new(0),
            starts: Mutex::default(),
            living: watch::Sender::new(Vec::new()),
            calling: watch::Sender::new(0),
            runners: AtomicUsize::new(0),
            kills: Mutex::default(),
        }
    }
}

impl Fake {
    pub(super) fn started(&self, role: Role) -> usize {
        self.starts.lock().unwrap().iter().filter(|start| start.role == role).count()
    }

    pub(super) fn kill(&self, runner: usize) {
        self.kills.lock().unwrap().iter().find(|(number, _)| *number == runner).unwrap().1.cancel();
    }

    /// Waits until exactly these runners live.
    pub(super) async fn until_living(&self, runners: &[usize]) {
        let mut living = self.living.subscribe();
        living.wait_for(|living| living == runners).await.unwrap();
    }

    pub(super) async fn until_calling(&self, calls: usize) {
        self.calling.subscribe().wait_for(|calling| *calling == calls).await.unwrap();
    }
}

/// A starter of fakes; a type of ours, since the fake is shared.
pub(super) struct Fakes(pub(super) Arc<Fake>);

impl Starter for Fakes {
    fn start(&self, alive: TaskTrackerToken) -> BoxFuture<'static, io::Result<Born>> {
        let fake = Arc::clone(&self.0);
        async move {
            let (out, from) = tokio::io::duplex(64 * 1024);
            let (to, input) = tokio::io::duplex(64 * 1024);
            let (killed, ended) = (CancellationToken::new(), CancellationToken::new());
            let mut process = Process { fake, input, out, runner: None, killed: killed.clone() };
            let (dies, over) = (killed.clone(), ended.clone().drop_guard());
            tokio::spawn(async move {
                let _alive = (alive, over);
                tokio::select! {
                    _ended = process.live() => {}
                    () = dies.cancelled() => {}
                }
            });
            Ok(Born {
                from: Box::new(from),
                to: Box::new(to),
                life: Box::new(FakeLife { ended, _kill: killed.drop_guard() }),
            })
        }
        .boxed()
    }
}

struct FakeLife {
    ended: CancellationToken,
    _kill: DropGuard,
}

impl Life for FakeLife {
    fn end(&mut self) -> BoxFuture<'_, String> {
        async {
            self.ended.cancelled().await;
            "the fake ended".to_owned()
        }
        .boxed()
    }
}

struct Process {
    fake: Arc<Fake>,
    input: DuplexStream,
    out: DuplexStream,
    runner: Option<usize>,
    killed: CancellationToken,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runner) = self.runner {
            self.fake.living.send_modify(|living| living.retain(|number| *number != runner));
        }
    }
}

/// What ends a process: nothing more to read, or its own will.
struct Over;

type Goes<T> = Result<T, Over>;

impl Process {
    async fn hear(&mut self) -> Goes<ToChild> {
        let mut head = [0; 4];
        self.input.read_exact(&mut head).await.map_err(|_| Over)?;
        let mut bytes = vec![0; frame::length(head, frame::TO_CHILD_BYTES_MAX).map_err(|_| Over)?];
        self.input.read_exact(&mut bytes).await.map_err(|_| Over)?;
        Ok(frame::decode(&bytes).unwrap())
    }

    async fn say(&mut self, message: &FromChild) -> Goes<()> {
        let bytes = frame::encode(message, frame::FROM_COMPILER_BYTES_MAX).unwrap();
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Goes<()> {
        self.out.write_all(bytes).await.map_err(|_| Over)
    }

    async fn live(&mut self) -> Goes<()> {
        let ToChild::Start(start) = self.hear().await? else { panic!("no start") };
        self.fake.starts.lock().unwrap().push(start.clone());
        if self.fake.not_ready.load(Ordering::Relaxed) {
            return self.say(&FromChild::NotReady { why: "a door would not close".to_owned() }).await;
        }
        let confinement = self.fake.confinement.lock().unwrap().clone();
        self.say(&FromChild::Ready { version: VERSION, confinement, engine: ENGINE.to_owned() }).await?;
        match start.role {
            Role::Probe => Ok(()),
            Role::Compile => self.compile().await,
            Role::Run => self.run().await,
        }
    }

    async fn compile(&mut self) -> Goes<()> {
        let ToChild::Compile { source, .. } = self.hear().await? else { panic!("nothing to compile") };
        let compiling = *self.fake.compiling.lock().unwrap();
        match compiling {
            Compiling::Well => {
                let native = [b"native of ", source.as_slice()].concat();
                let imports = vec!["device:handler/host@0.1.0".to_owned()];
                self.say(&FromChild::Compiled(Compiled { native, imports, descriptor: Some(b"{}".to_vec()) })).await
            }
            Compiling::Refuses => self.say(&FromChild::Refused { why: "no export `invoke`\u{7}".to_owned() }).await,
            Compiling::Dies => Err(Over),
            Compiling::Hangs => std::future::pending().await,
            Compiling::Babbles => self.say(&FromChild::Loaded).await,
        }
    }

    async fn run(&mut self) -> Goes<()> {
        let number = self.fake.runners.fetch_add(1, Ordering::Relaxed);
        self.runner = Some(number);
        self.fake.kills.lock().unwrap().push((number, self.killed.clone()));
        self.fake.living.send_modify(|living| living.push(number));
        let ToChild::Load { native } = self.hear().await? else { panic!("nothing to load") };
        assert!(native.starts_with(b"native of "));
        let fake = Arc::clone(&self.fake);
        fake.loads.acquire().await.unwrap().forget();
        if fake.refuses_load.load(Ordering::Relaxed) {
            return self.say(&FromChild::Refused { why: "native code of another engine".to_owned() }).await;
        }
        self.say(&FromChild::Loaded).await?;
        loop {
            match self.hear().await? {
                ToChild::Call(call) => {
                    fake.calling.send_modify(|calls| *calls += 1);
                    let _running = Running(Arc::clone(&fake));
                    self.call(call, number).await?;
                }
                // Crossed the end of its call.
                ToChild::Cancel { .. } | ToChild::Http { .. } => {}
                other => panic!("{other:?} in the place of a call"),
            }
        }
    }

    async fn call(&mut self, call: CallFrame, runner: usize) -> Goes<()> {
        let arguments = wire::json::parse(&call.arguments).unwrap();
        let what = arguments.get("do").and_then(|what| what.as_str()).unwrap_or("answer").to_owned();
        let done = |ended: Ended| done(call.number, ended);
        let value = |text: String| done(Ended::Value(text.into_bytes()));
        let answer = json!({"runner": runner, "call": call.number, "within_ms": call.within_ms}).to_string();
        match what.as_str() {
            "answer" => self.say(&value(answer)).await,
            "text" => self.say(&value("hello".to_owned())).await,
            "array" => self.say(&value("[1]".to_owned())).await,
            "latin" => self.say(&done(Ended::Value(b"{\"a\":\"\xe9\"}".to_vec()))).await,
            "deep" => self.say(&value(format!("{}{{}}{}", "{\"a\":".repeat(16), "}".repeat(16)))).await,
            "deep enough" => self.say(&value(format!("{}{{}}{}", "{\"a\":".repeat(15), "}".repeat(15)))).await,
            "long" => self.say(&value(format!("{{\"a\":\"{}\"}}", "x".repeat(993)))).await,
            "long enough" => self.say(&value(format!("{{\"a\":\"{}\"}}", "x".repeat(992)))).await,
            "trap" => self.say(&done(Ended::Trapped("trapped: \u{1b}unreachable".to_owned()))).await,
            "fail" => {
                let (code, message) = ("no-lamp".to_owned(), "it is\noff".to_owned());
                self.say(&done(Ended::Failed { code, message })).await
            }
            "time" => self.say(&done(Ended::TimedOut)).await,
            "cancelled" => self.say(&done(Ended::Cancelled)).await,
            "log" => self.say(&logged(call.number)).await,
            "garbage" => self.write(b"Segmentation fault\n").await,
            "half" => {
                self.write(&[0, 0, 1, 0, 1]).await?;
                Err(Over)
            }
            "die" => Err(Over),
            "loaded" => self.say(&FromChild::Loaded).await,
            "other number" => self.say(&self::done(call.number + 1, Ended::Value(b"{}".to_vec()))).await,
            "flood" => {
                for number in 0..1000 {
                    self.ask(number, call.number, "http").await?;
                }
                std::future::pending().await
            }
            "stubborn" => std::future::pending().await,
            "late" => {
                self.until_cancelled(call.number).await?;
                tokio::time::sleep(LATE).await;
                self.say(&done(Ended::Cancelled)).await
            }
            "obey" => {
                self.until_cancelled(call.number).await?;
                self.say(&done(Ended::Cancelled)).await
            }
            "wait" => {
                let fake = Arc::clone(&self.fake);
                fake.waits.acquire().await.unwrap().forget();
                self.say(&value(answer)).await
            }
            "http" => self.http(call.number).await,
            "old http" => {
                self.ask(77, call.number.saturating_sub(1), "http").await?;
                self.say(&value(answer)).await
            }
            "hang on http" => {
                self.ask(1, call.number, "http").await?;
                self.until_cancelled(call.number).await?;
                self.ask(2, call.number, "http").await?;
                self.say(&done(Ended::Cancelled)).await
            }
            other => panic!("the tests know no {other}"),
        }
    }

    async fn ask(&mut self, number: u64, call: u64, scheme: &str) -> Goes<()> {
        let request = HttpRequest {
            method: "GET".to_owned(),
            scheme: scheme.to_owned(),
            authority: "192.168.1.20".to_owned(),
            path_and_query: format!("/{number}"),
            headers: Vec::new(),
            body: Vec::new(),
        };
        self.say(&FromChild::Http { number, call, request }).await
    }

    /// One that is allowed and one that is not, both at once.
    async fn http(&mut self, call: u64) -> Goes<()> {
        self.ask(1, call, "http").await?;
        self.ask(2, call, "https").await?;
        let mut texts = Vec::new();
        for _ in 0..2 {
            let ToChild::Http { number, answer } = self.hear().await? else { panic!("no answer") };
            let answer = answer.map(|answer| String::from_utf8(answer.body).unwrap());
            texts.push(format!("{number}: {answer:?}"));
        }
        texts.sort();
        self.say(&done(call, Ended::Value(json!({"answers": texts}).to_string().into_bytes()))).await
    }

    async fn until_cancelled(&mut self, call: u64) -> Goes<()> {
        loop {
            if matches!(self.hear().await?, ToChild::Cancel { number } if number == call) {
                return Ok(());
            }
        }
    }
}

struct Running(Arc<Fake>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.calling.send_modify(|calls| *calls -= 1);
    }
}

fn done(number: u64, ended: Ended) -> FromChild {
    FromChild::Done(Done { number, ended, log: Vec::new(), log_dropped: 0, cpu_us: 1200, memory_bytes: 65_536 })
}

fn logged(number: u64) -> FromChild {
    let log = (0..70).map(|at| (Level::Info, format!("{at:04}{}", "é".repeat(1000)))).collect();
    let ended = Ended::Value(b"{}".to_vec());
    FromChild::Done(Done { number, ended, log, log_dropped: 5, cpu_us: 0, memory_bytes: 0 })
}
