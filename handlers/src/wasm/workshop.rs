//! Where handlers are compiled, and what their processes share.
//!
//! Owns the cache of native code, the one compiler at a time, the places for processes, and what the kernel was found to give. Called by
//! `runtime`, which has files inspected and handlers made here, and by those handlers. Refuses what a compiler refuses and every
//! handler where the kernel cannot confine one. [`Workshop::drain`] ends it and every process of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::digest::Digest;
use config::manifest::Reach;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use wire::{CapabilityName, Declaration};

use super::cache::Cache;
use super::children::Children;
use super::confine::Confinement;
use super::conversation::{kind, why_lost};
use super::frame::{
    self, Compiled, FROM_CHILD_BYTES_MAX, FROM_COMPILER_BYTES_MAX, FromChild, Role, Start, TO_CHILD_BYTES_MAX, ToChild,
    VERSION,
};
use super::handler::WasmHandler;
use super::line::Line;
use super::log::HandlerLog;
use super::outbound::Outbound;
use super::reach::Protected;
use super::spawn::{Born, Life, Program, Spawner, Starter};
use crate::clock::{Chance, Clock};

/// The largest component known takes 24 s of a small processor; five times that for a busy one.
const COMPILE_MAX: Duration = Duration::from_secs(120);
/// A process is confined in milliseconds; a machine that swaps takes longer.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// A killed process is gone in milliseconds, unless it hangs in a driver; the house does not wait for that.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Refused files that are remembered; a folder with more is looked into anew.
const REFUSED_KEPT: usize = 1024;
/// How much of what a process says of itself is shown.
const WORDS_BYTES_MAX: usize = 1000;

/// What a workshop is made of.
pub struct WorkshopParts {
    /// The program that children are.
    pub program: Program,
    /// Where native code is kept; made with mode 0700 where it is absent.
    pub cache_dir: PathBuf,
    /// What no handler may reach.
    pub protected: Protected,
    /// Sends handlers' requests.
    pub outbound: Arc<dyn Outbound>,
    /// Goes on where the kernel lacks Landlock or seccomp: the keeper said so.
    pub accept_weak: bool,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Makes the key of the cache.
    pub chance: Arc<dyn Chance>,
}

/// Why there is no workshop.
#[derive(Debug, thiserror::Error)]
pub enum WorkshopError {
    /// The cache folder is not ours alone, or cannot be used.
    #[error("the folder for native code cannot be used")]
    Cache(#[from] config::safe::SafeError),
    /// The thread that starts processes could not be started.
    #[error("the thread that starts handlers' processes could not be started")]
    Thread(#[source] std::io::Error),
}

/// Why a handler, or every handler, cannot be had: one sentence for the keeper.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A handler's file.
#[derive(Clone)]
pub struct Source {
    /// Of its bytes.
    pub digest: Digest,
    /// Whether it is the text of a component.
    pub text: bool,
    /// Reads it once more; refuses, in a sentence, when the bytes are no longer those of the digest.
    pub read: Arc<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>,
}

/// What compiling found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// What the component imports, sorted.
    pub imports: Vec<String>,
    /// The bytes of its descriptor, not yet looked at.
    pub descriptor: Option<Vec<u8>>,
    /// Whether the cache held it.
    pub cached: bool,
    /// How long it took.
    pub took: Duration,
}

/// What one handler is.
#[derive(Clone)]
pub struct Spec {
    /// Its name.
    pub name: CapabilityName,
    /// Its file.
    pub source: Source,
    /// What it is called, takes and needs; its time limit is the whole call's.
    pub declaration: Declaration,
    /// Linear memory, in bytes.
    pub memory_bytes: usize,
    /// The longest result, in bytes.
    pub result_bytes_max: usize,
    /// What it may touch.
    pub reach: Reach,
    /// Where its lines go.
    pub log: Arc<HandlerLog>,
}

/// Compiles handlers and keeps their processes.
pub struct Workshop {
    pub(super) parts: WorkshopParts,
    pub(super) children: Arc<Children>,
    /// What goes on without its caller: starts, and the watch over those that rest.
    pub(super) tasks: TaskTracker,
    /// Fires when the house closes.
    pub(super) over: CancellationToken,
    starter: Arc<dyn Starter>,
    cache: Arc<Cache>,
    probed: OnceCell<Probed>,
    compiling: Semaphore,
    /// Files that are no handlers, so that looking again costs nothing.
    refused: Mutex<HashMap<(Digest, bool), Refused>>,
    /// Processes that are not reaped yet.
    alive: TaskTracker,
    handlers: AtomicU64,
}

/// What a probe said.
struct Probed {
    confinement: Confinement,
    engine: Arc<str>,
}

/// A process that is confined and waits for what it is for.
pub(super) struct Confined {
    pub(super) line: Line,
    pub(super) life: Box<dyn Life>,
    pub(super) confinement: Confinement,
    pub(super) engine: String,
}

/// Why there is no such process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoProcess {
    #[error("no process can be started: {0}")]
    Spawn(String),
    #[error("{0}")]
    NotReady(String),
    #[error("{0}")]
    Broken(String),
}

impl Workshop {
    /// A workshop with its cache and its thread; no process is started yet.
    ///
    /// # Errors
    /// See [`WorkshopError`].
    pub fn new(parts: WorkshopParts) -> Result<Arc<Self>, WorkshopError> {
        let spawner = Spawner::new(parts.program.clone()).map_err(WorkshopError::Thread)?;
        Self::with_starter(parts, Arc::new(spawner))
    }

    pub(super) fn with_starter(parts: WorkshopParts, starter: Arc<dyn Starter>) -> Result<Arc<Self>, WorkshopError> {
        let cache = Arc::new(Cache::open(&parts.cache_dir, &*parts.chance)?);
        let over = CancellationToken::new();
        Ok(Arc::new(Self {
            parts,
            children: Children::new(over.clone()),
            tasks: TaskTracker::new(),
            over,
            starter,
            cache,
            probed: OnceCell::new(),
            compiling: Semaphore::new(1),
            refused: Mutex::default(),
            alive: TaskTracker::new(),
            handlers: AtomicU64::new(0),
        }))
    }

    /// What the kernel gives to confine a handler; asked once.
    ///
    /// # Errors
    /// [`Refused`] when that is too little and the keeper has not accepted it, or when no process can be started.
    pub async fn probe(&self) -> Result<Confinement, Refused> {
        self.probed().await.map(|probed| probed.confinement.clone())
    }

    /// Looks into a handler's file, and compiles it unless the cache holds it. One file at a time.
    ///
    /// # Errors
    /// [`Refused`] when it is no handler, cannot be read any more, or takes too long.
    pub async fn inspect(&self, source: &Source) -> Result<Inspection, Refused> {
        let began = self.parts.clock.boot();
        let (Compiled { imports, descriptor, .. }, cached) = self.compiled(source).await?;
        Ok(Inspection { imports, descriptor, cached, took: self.parts.clock.boot().since(began) })
    }

    /// A handler; its process starts at the first call.
    pub fn handler(self: &Arc<Self>, spec: Spec) -> WasmHandler {
        let number = self.handlers.fetch_add(1, Ordering::Relaxed);
        WasmHandler::new(Arc::clone(self), number, spec)
    }

    /// Removes from the cache what is not of these files, or of another engine.
    pub async fn keep_only(&self, used: &[Digest]) {
        self.refused().retain(|(digest, _), _| used.contains(digest));
        // While this is held nobody writes there.
        let Ok(_one) = self.compiling.acquire().await else { return };
        let (cache, used) = (Arc::clone(&self.cache), used.to_vec());
        let engine = self.probed.get().map(|probed| Arc::clone(&probed.engine));
        drop(tokio::task::spawn_blocking(move || cache.keep_only(&used, engine.as_deref())).await);
    }

    /// Ends all processes and waits until they are gone; nothing starts afterwards.
    pub async fn drain(&self) {
        self.over.cancel();
        self.compiling.close();
        self.children.close();
        self.tasks.close();
        self.alive.close();
        let gone = async {
            self.tasks.wait().await;
            self.alive.wait().await;
        };
        if tokio::time::timeout(DRAIN_MAX, gone).await.is_err() {
            warn!("{} processes of handlers were killed and are not gone yet", self.alive.len());
        }
    }

    async fn probed(&self) -> Result<&Probed, Refused> {
        let probed = self.probed.get_or_try_init(|| self.ask_kernel()).await?;
        weak(&probed.confinement).filter(|_| !self.parts.accept_weak).map_or(Ok(probed), Err)
    }

    /// One process tells what confines it, and ends.
    async fn ask_kernel(&self) -> Result<Probed, Refused> {
        // Weakness is judged by us, in words for the keeper.
        let start = Start { accept_weak: true, ..plain(Role::Probe) };
        match tokio::time::timeout(PROBE_MAX, self.begin(start)).await {
            Ok(Ok(Confined { confinement, engine, .. })) => Ok(Probed { confinement, engine: engine.into() }),
            Ok(Err(why)) => Err(Refused(format!("handlers stay off, since their processes cannot be confined: {why}"))),
            Err(_) => {
                let seconds = PROBE_MAX.as_secs();
                Err(Refused(format!("handlers stay off: a process for them was not confined within {seconds} s")))
            }
        }
    }

    /// Starts a process and waits until it is confined.
    pub(super) async fn begin(&self, start: Start) -> Result<Confined, NoProcess> {
        if self.over.is_cancelled() {
            return Err(NoProcess::Spawn("the device is going down".to_owned()));
        }
        let born = self.starter.start(self.alive.token()).await;
        let Born { from, to, mut life } = born.map_err(|error| NoProcess::Spawn(error.to_string()))?;
        let mut line = Line::new(from, to);
        let heard = match line.say(&ToChild::Start(start)) {
            Ok(()) => line.hear::<FromChild>(FROM_CHILD_BYTES_MAX).await,
            Err(error) => Err(error),
        };
        match heard {
            Ok(FromChild::Ready { version: VERSION, confinement, engine }) => {
                Ok(Confined { line, life, confinement, engine })
            }
            Ok(FromChild::Ready { version, .. }) => {
                Err(NoProcess::Broken(format!("its process speaks version {version}, not {VERSION}")))
            }
            Ok(FromChild::NotReady { why }) => Err(NoProcess::NotReady(shown(&why))),
            Ok(other) => Err(NoProcess::Broken(format!("its process said {:?} first", kind(&other)))),
            Err(error) => Err(NoProcess::Broken(why_lost(&mut *life, &error).await)),
        }
    }

    /// What a compiler makes of a file, and whether that was in the cache.
    pub(super) async fn compiled(&self, source: &Source) -> Result<(Compiled, bool), Refused> {
        let engine = Arc::clone(&self.probed().await?.engine);
        if let Some(found) = self.found(source.digest, &engine).await {
            return Ok((found, true));
        }
        let _one = self.compiling.acquire().await.map_err(|_| going_down())?;
        // Somebody else may have had it compiled meanwhile.
        if let Some(found) = self.found(source.digest, &engine).await {
            return Ok((found, true));
        }
        let key = (source.digest, source.text);
        if let Some(refused) = self.refused().get(&key) {
            return Err(refused.clone());
        }
        let limit = tokio::time::timeout(COMPILE_MAX, self.compile(source, &engine));
        let made = tokio::select! {
            made = limit => made.map_err(|_| {
                Refused(format!("compiling it took longer than {} s", COMPILE_MAX.as_secs()))
            })?,
            () = self.over.cancelled() => return Err(going_down()),
        };
        let compiled = match made {
            Ok(compiled) => compiled,
            Err(NotCompiled::NoHandler(refused)) => {
                self.remember(key, &refused);
                return Err(refused);
            }
            Err(NotCompiled::Now(refused)) => return Err(refused),
        };
        Ok((self.keep(source.digest, &engine, compiled).await?, false))
    }

    async fn found(&self, digest: Digest, engine: &Arc<str>) -> Option<Compiled> {
        let (cache, engine) = (Arc::clone(&self.cache), Arc::clone(engine));
        tokio::task::spawn_blocking(move || cache.find(&digest, &engine)).await.ok().flatten()
    }

    /// A disk that is full costs the next start its time, and nothing else.
    async fn keep(&self, digest: Digest, engine: &Arc<str>, compiled: Compiled) -> Result<Compiled, Refused> {
        let (cache, engine) = (Arc::clone(&self.cache), Arc::clone(engine));
        let kept = tokio::task::spawn_blocking(move || {
            if let Err(error) = cache.keep(&digest, &engine, &compiled) {
                warn!(%digest, "native code could not be kept: {error}");
            }
            compiled
        });
        kept.await.map_err(|_| going_down())
    }

    async fn compile(&self, source: &Source, engine: &str) -> Result<Compiled, NotCompiled> {
        let (read, text) = (Arc::clone(&source.read), source.text);
        let frame = tokio::task::spawn_blocking(move || {
            let source = read()?;
            frame::encode(&ToChild::Compile { source, text }, TO_CHILD_BYTES_MAX).map_err(|error| error.to_string())
        });
        let frame = frame.await.map_err(|_| NotCompiled::Now(going_down()))?;
        let frame = frame.map_err(|why| NotCompiled::Now(Refused(why)))?;
        let start = Start { accept_weak: self.parts.accept_weak, ..plain(Role::Compile) };
        let begun = self.begin(start).await;
        let mut child = begun.map_err(|why| NotCompiled::Now(Refused(format!("it could not be compiled: {why}"))))?;
        if child.engine != engine {
            return Err(NotCompiled::Now(Refused("the program was replaced while it runs; restart it".to_owned())));
        }
        let heard = match child.line.say_encoded(frame) {
            Ok(()) => child.line.hear_encoded(FROM_COMPILER_BYTES_MAX).await,
            Err(error) => Err(error),
        };
        // Long frames are decoded where nobody waits.
        let heard = match heard {
            Ok(bytes) => tokio::task::spawn_blocking(move || frame::decode::<FromChild>(&bytes))
                .await
                .map_err(|_| NotCompiled::Now(going_down()))?,
            Err(error) => Err(error),
        };
        match heard {
            Ok(FromChild::Compiled(compiled)) => Ok(compiled),
            Ok(FromChild::Refused { why }) => Err(NotCompiled::NoHandler(Refused(shown(&why)))),
            Ok(other) => {
                let said = format!("its compiler said {:?}", kind(&other));
                Err(NotCompiled::Now(Refused(said)))
            }
            Err(error) => {
                // Killed for want of memory, or by somebody: the file may be good.
                let why = why_lost(&mut *child.life, &error).await;
                Err(NotCompiled::Now(Refused(format!("it could not be compiled: {why}"))))
            }
        }
    }

    fn remember(&self, key: (Digest, bool), refused: &Refused) {
        let mut known = self.refused();
        if known.len() < REFUSED_KEPT {
            known.insert(key, refused.clone());
        }
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<(Digest, bool), Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a file was not compiled.
enum NotCompiled {
    /// It is no handler, and will not be one later.
    NoHandler(Refused),
    /// It may work another time.
    Now(Refused),
}

fn going_down() -> Refused {
    Refused("the device is going down".to_owned())
}

/// A start with nothing to reach.
fn plain(role: Role) -> Start {
    Start {
        version: VERSION,
        role,
        folders: Vec::new(),
        http: false,
        memory_bytes: 0,
        result_bytes_max: 0,
        accept_weak: false,
    }
}

/// Why this is too little, unless it is enough.
fn weak(confinement: &Confinement) -> Option<Refused> {
    let lacks = match confinement {
        Confinement { landlock_abi: Some(_), seccomp: true } => return None,
        Confinement { landlock_abi: None, seccomp: true } => "Landlock (Linux 5.13 or newer, with it switched on)",
        Confinement { landlock_abi: Some(_), seccomp: false } => "seccomp filters",
        Confinement { landlock_abi: None, seccomp: false } => {
            "Landlock (Linux 5.13 or newer, with it switched on) and no seccomp filters"
        }
    };
    let way_out = "handlers stay off; to run them without it set handlers.accept_weak_sandbox = true";
    Some(Refused(format!("this kernel has no {lacks}; {way_out}")))
}

/// Words of a process, as fit for the keeper.
pub(super) fn shown(text: &str) -> String {
    wire::text::visible(text.get(..text.floor_char_boundary(WORDS_BYTES_MAX)).unwrap_or(text))
}

#[cfg(test)]
mod tests;
