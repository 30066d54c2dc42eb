//! The real clock, the real chance, the environment: read here, once, and handed on as values.

use std::path::PathBuf;

use latchkey_controller::{Chance, ChanceError, Clock};
use rustix::time::{ClockId, clock_gettime};

/// The machine's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock {
    boot_id: String,
}

impl SystemClock {
    /// Reads which start of the machine this is. On a system that does not tell, all starts count as one: the boot clock of
    /// a later start then runs behind the one on disk, which only lengthens waits.
    pub(crate) fn new() -> Self {
        let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot_id = match told.trim() {
            "" => "unknown".to_owned(),
            id => id.to_owned(),
        };
        Self { boot_id }
    }
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

impl Clock for SystemClock {
    fn boot_ms(&self) -> u64 {
        milliseconds(ClockId::Boottime)
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn wall_ms(&self) -> u64 {
        milliseconds(ClockId::Realtime)
    }
}

/// The operating system's randomness.
#[derive(Debug)]
pub(crate) struct SystemChance;

impl Chance for SystemChance {
    #[expect(clippy::disallowed_methods, reason = "the one real source, of this program")]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError> {
        getrandom::fill(bytes).map_err(|_| ChanceError)
    }
}

#[expect(clippy::disallowed_methods, reason = "the program reads its environment here and nowhere else")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The state folder that the environment means. `None` without a home.
pub(crate) fn state_dir() -> Option<PathBuf> {
    if let Some(dir) = variable("LATCHKEY_CONTROLLER_DIR") {
        return Some(PathBuf::from(dir));
    }
    let xdg = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = xdg.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local/state")))?;
    Some(state.join("latchkey-controller"))
}

/// Whether the environment allows colour.
pub(crate) fn colour_allowed() -> bool {
    variable("NO_COLOR").is_none() && variable("TERM").is_none_or(|term| term != "dumb")
}
