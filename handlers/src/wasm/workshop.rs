//! workshop (being written).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::digest::Digest;
use config::manifest::Reach;
use wire::{CapabilityName, Declaration};

use super::confine::Confinement;
use super::handler::WasmHandler;
use super::log::HandlerLog;
use super::outbound::Outbound;
use super::reach::Protected;
use super::spawn::Program;
use crate::clock::{Chance, Clock};

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
    parts: WorkshopParts,
}

impl Workshop {
    /// A workshop with its cache and its thread; no process is started yet.
    ///
    /// # Errors
    /// See [`WorkshopError`].
    pub fn new(parts: WorkshopParts) -> Result<Arc<Self>, WorkshopError> {
        config::safe::ensure_private_dir(&parts.cache_dir)?;
        Ok(Arc::new(Self { parts }))
    }

    /// What the kernel gives to confine a handler; asked once.
    ///
    /// # Errors
    /// [`Refused`] when that is too little and the keeper has not accepted it, or when no process can be started.
    pub async fn probe(&self) -> Result<Confinement, Refused> {
        let _ = &self.parts;
        Err(Refused("being written".to_owned()))
    }

    /// Looks into a handler's file, and compiles it unless the cache holds it. One file at a time.
    ///
    /// # Errors
    /// [`Refused`] when it is no handler, cannot be read any more, or takes too long.
    pub async fn inspect(&self, source: &Source) -> Result<Inspection, Refused> {
        let _ = source;
        Err(Refused("being written".to_owned()))
    }

    /// A handler; its process starts at the first call.
    pub fn handler(self: &Arc<Self>, spec: Spec) -> WasmHandler {
        WasmHandler::new(Arc::clone(self), spec)
    }

    /// Removes from the cache what is not of these files, or of another engine.
    pub async fn keep_only(&self, used: &[Digest]) {
        let _ = used;
    }

    /// Ends all processes; nothing starts afterwards.
    pub async fn drain(&self) {}
}
