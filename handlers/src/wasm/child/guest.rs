//! What a guest sees of the world: the functions that the host offers, and the state behind them for one call.
//!
//! Owns the linker, which is the whole list of what can be imported: the log of `device:handler/host`, and WASI 0.2 with inert standard
//! streams, no environment, no arguments, no sockets, clocks, chance, and the folders of the reach. Refused is every other import, before
//! anything runs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::component::{ComponentType, Lift, Linker, ResourceTable};
use wasmtime::{Engine, ResourceLimiter, StoreContextMut};
use wasmtime_wasi::filesystem::WasiFilesystemCtx;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::engine::{Budget, INSTANCES, MEMORIES, TABLES};
use super::http::Outgoing;
use crate::wasm::log::Level;

/// Lines that one call may keep; further ones are counted.
const LOG_LINES_MAX: usize = 64;
/// The longest line; the rest is cut.
const LOG_LINE_BYTES_MAX: usize = 1024;
/// Names of all headers of one request or answer with their values: as many as the parent lets pass.
const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Things of the system that a call may hold at once (files, streams, headers). They lie in our memory and not in the guest's, headers
/// with up to [`HEADERS_BYTES_MAX`] each, so this bounds what a guest can make us keep to 16 MiB.
const HELD_MAX: usize = 1024;
/// What a guest can ask of chance in one piece.
const CHANCE_BYTES_MAX: u64 = 64 * 1024;

/// `device:handler/types.handler-error`.
#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(super) struct HandlerError {
    pub(super) code: String,
    pub(super) message: String,
}

/// What `invoke` gives back.
pub(super) type Invoked = Result<Vec<u8>, HandlerError>;

#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "a guest makes them")]
enum GuestLevel {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

/// What is left of a call when its store is gone.
#[derive(Debug)]
pub(super) struct Record {
    /// Kept lines.
    pub(super) log: Vec<(Level, String)>,
    /// Lines that were not kept.
    pub(super) log_dropped: u64,
    /// Memory and tables.
    pub(super) budget: Budget,
}

impl Record {
    fn note(&mut self, level: Level, text: &str) {
        if self.log.len() < LOG_LINES_MAX {
            self.log.push((level, cut(text, LOG_LINE_BYTES_MAX).to_owned()));
        } else {
            self.log_dropped = self.log_dropped.saturating_add(1);
        }
    }
}

/// The folders of the reach as the guest sees them, opened before the doors closed.
#[derive(Clone, Default)]
pub(super) struct Folders {
    opened: WasiFilesystemCtx,
    count: usize,
}

impl Folders {
    /// Opens `(where it is, as the guest names it, whether it may be written)` for good: later calls use the same descriptors.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub(super) fn open(folders: &[(PathBuf, String, bool)]) -> wasmtime::Result<Self> {
        let mut builder = WasiCtx::builder();
        for (place, named, write) in folders {
            let rights = if *write { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
            builder.preopened_dir(place, named, rights)?;
        }
        Ok(Self { opened: builder.build().filesystem().clone(), count: folders.len() })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The state of one call.
pub(super) struct Guest {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outgoing: Outgoing,
    table: ResourceTable,
    record: Shared,
}

/// The record of a call, which outlives the call's store.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<Record>>);

impl Shared {
    /// Of a call that has not begun.
    pub(super) fn new(memory_bytes_max: usize) -> Self {
        let budget = Budget::new(memory_bytes_max);
        Self(Arc::new(Mutex::new(Record { log: Vec::new(), log_dropped: 0, budget })))
    }

    /// To read or add to it.
    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResourceLimiter for Shared {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.record().budget.grow_memory(current, desired))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.record().budget.undo_growth();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.record().budget.grow_table(current, desired))
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }

    fn tables(&self) -> usize {
        TABLES
    }
}

impl Guest {
    /// Fresh: nothing of an earlier call is in it but the open folders.
    pub(super) fn new(folders: &Folders, outgoing: Outgoing, record: Shared) -> Self {
        let mut wasi = WasiCtx::builder()
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(CHANCE_BYTES_MAX)
            .build();
        *wasi.filesystem() = folders.opened.clone();
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HEADERS_BYTES_MAX);
        let mut table = ResourceTable::new();
        table.set_max_capacity(HELD_MAX);
        Self { wasi, http, outgoing, table, record }
    }

    /// What holds it to its limits.
    pub(super) fn limiter(&mut self) -> &mut dyn ResourceLimiter {
        &mut self.record
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Guest {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.outgoing, table: &mut self.table, ctx: &mut self.http }
    }
}

/// Everything that can be imported. The same for compiling and for running, so that what was found good is what runs.
///
/// # Errors
/// When two offers have one name, which a test would have found.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    linker.instance("device:handler/host@0.1.0")?.func_wrap(
        "log",
        |store: StoreContextMut<'_, Guest>, (level, message): (GuestLevel, String)| {
            let level = match level {
                GuestLevel::Debug => Level::Debug,
                GuestLevel::Info => Level::Info,
                GuestLevel::Warn => Level::Warn,
                GuestLevel::Error => Level::Error,
            };
            store.data().record.record().note(level, &message);
            Ok(())
        },
    )?;
    Ok(linker)
}

/// The beginning of a text, at most so many bytes, ending between two characters.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}
