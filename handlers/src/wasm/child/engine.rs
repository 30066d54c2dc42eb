//! The engine that compiles and runs guests: one set of settings for all, and the limits of one call.
//!
//! Owns the settings, the ticker that interrupts guest code, and the account of memory and tables. Made once in a process. Native code is
//! good for an engine with the same [`name`] and for no other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use config::manifest::MEMORY_MAX;
use wasmtime::{Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

/// The crate's, for the name of the engine: held against the lock file by a test. `device.health` tells it, so that whoever reads of a hole
/// in an engine knows which devices have it.
pub(crate) const WASMTIME: &str = "48.0.8";
/// How often guest code is interrupted, and so how late a deadline or a cancel may act.
pub(super) const TICK: Duration = Duration::from_millis(10);
/// Stack of guest code; deep recursion ends here.
const STACK_BYTES: usize = 512 * 1024;
/// Stack of a call: the guest's, and what host functions use above it.
const CALL_STACK_BYTES: usize = 1024 * 1024;
/// Core instances of one component: a Python component has 38.
pub(super) const INSTANCES: usize = 64;
/// Linear memories of one component: tool chains make one, with an adapter or composed parts a few. Each reserves addresses, no memory.
pub(super) const MEMORIES: usize = 16;
/// Tables of one component: about one for each core instance.
pub(super) const TABLES: usize = 64;
/// Elements of all tables of a call: a large JavaScript engine has some 7,000.
pub(super) const TABLE_ELEMENTS: usize = 20_000;
/// Bytes of a core instance's own record, which grows with its functions and globals: the engine's default, too small for none that
/// was tried.
const INSTANCE_RECORD_BYTES: usize = 1024 * 1024;
/// What of a memory is wiped by hand after a call rather than given back: cheaper for small guests.
const WIPED_BYTES: usize = 128 * 1024;

/// The engine; the same in each process, whatever the handler.
pub(super) fn engine() -> wasmtime::Result<Engine> {
    let (instances, memories, tables) = (u32::try_from(INSTANCES)?, u32::try_from(MEMORIES)?, u32::try_from(TABLES)?);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(1)
        .total_core_instances(instances)
        .max_core_instances_per_component(instances)
        .total_memories(memories)
        .max_memories_per_component(memories)
        .max_memories_per_module(memories)
        .total_tables(tables)
        .max_tables_per_component(tables)
        .max_tables_per_module(tables)
        .table_elements(TABLE_ELEMENTS)
        .total_stacks(1)
        .max_component_instance_size(INSTANCE_RECORD_BYTES)
        .max_core_instance_size(INSTANCE_RECORD_BYTES)
        .max_memory_size(MEMORY_MAX)
        .max_unused_warm_slots(0)
        .linear_memory_keep_resident(WIPED_BYTES);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_reservation(u64::try_from(MEMORY_MAX)?)
        .memory_may_move(false)
        .memory_init_cow(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(CALL_STACK_BYTES)
        // What a guest is made of is its own business: no names or frames of it come into our words.
        .wasm_backtrace_max_frames(None)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false);
    Engine::new(&config)
}

/// Engine, settings and processor in one line.
pub(super) fn name(engine: &Engine) -> String {
    let mut settings = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut settings);
    format!("wasmtime {WASMTIME} {:016x} {}", settings.finish(), std::env::consts::ARCH)
}

/// Interrupts guest code each [`TICK`], and sleeps while none runs.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Ticking>,
    changed: Condvar,
    ticks: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ticking {
    Asleep,
    Awake,
    Over,
}

/// While it lives, the ticker ticks.
#[derive(Debug)]
#[must_use]
pub(super) struct Awake<'a>(&'a Shared);

impl Ticker {
    /// Starts its thread.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub(super) fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let shared =
            Arc::new(Shared { state: Mutex::new(Ticking::Asleep), changed: Condvar::new(), ticks: AtomicU64::new(0) });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ticker".to_owned()).spawn(move || tick(&theirs, &engine))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How often it has ticked.
    #[cfg(test)]
    pub(super) fn ticks(&self) -> u64 {
        self.shared.ticks.load(Ordering::Relaxed)
    }

    /// Ticks until the value is dropped.
    pub(super) fn awake(&self) -> Awake<'_> {
        self.shared.set(Ticking::Awake);
        Awake(&self.shared)
    }
}

impl Shared {
    fn set(&self, now: Ticking) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.changed.notify_all();
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.set(Ticking::Asleep);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.set(Ticking::Over);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn tick(shared: &Shared, engine: &EngineWeak) {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        state = match *state {
            Ticking::Over => return,
            Ticking::Asleep => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Ticking::Awake => {
                let (state, waited) =
                    shared.changed.wait_timeout(state, TICK).unwrap_or_else(|poisoned| poisoned.into_inner());
                match engine.upgrade() {
                    Some(engine) if waited.timed_out() => {
                        engine.increment_epoch();
                        shared.ticks.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(_) => {}
                    None => return,
                }
                state
            }
        };
    }
}

/// What one call may use of memory and tables, in sum over all of its instances.
#[derive(Debug)]
pub(super) struct Budget {
    memory_bytes_max: usize,
    memory_bytes: usize,
    table_elements: usize,
    last_growth: usize,
    broken: Option<Limit>,
}

/// A limit that a guest met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// Linear memory.
    Memory,
    /// Elements of tables.
    Table,
}

impl Budget {
    /// Nothing used yet.
    pub(super) fn new(memory_bytes_max: usize) -> Self {
        Self { memory_bytes_max, memory_bytes: 0, table_elements: 0, last_growth: 0, broken: None }
    }

    /// The most that was used: within a call memory only grows.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The last limit that refused it something.
    pub(super) fn broken(&self) -> Option<Limit> {
        self.broken
    }

    /// Whether a memory may grow so; it then counts as grown.
    pub(super) fn grow_memory(&mut self, current: usize, desired: usize) -> bool {
        let growth = desired.saturating_sub(current);
        let sum = self.memory_bytes.saturating_add(growth);
        let fits = sum <= self.memory_bytes_max;
        if fits {
            (self.memory_bytes, self.last_growth) = (sum, growth);
        } else {
            (self.broken, self.last_growth) = (Some(Limit::Memory), 0);
        }
        fits
    }

    /// The growth that was allowed last did not come about.
    pub(super) fn undo_growth(&mut self) {
        self.memory_bytes = self.memory_bytes.saturating_sub(std::mem::take(&mut self.last_growth));
    }

    /// Whether a table may grow so; it then counts as grown.
    pub(super) fn grow_table(&mut self, current: usize, desired: usize) -> bool {
        let sum = self.table_elements.saturating_add(desired.saturating_sub(current));
        let fits = sum <= TABLE_ELEMENTS;
        if fits {
            self.table_elements = sum;
        } else {
            self.broken = Some(Limit::Table);
        }
        fits
    }
}
