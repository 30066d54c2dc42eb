//! The ports of time and chance.
//!
//! Life times count on a clock that runs through suspend; wall time is a label. Nothing else in this room asks the system for either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds on the clock that runs through suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// The moment `ms` after the clock's zero.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the clock's zero.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// The moment `wait` later, at most the clock's end.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "the operator's readers would not expect it to stop at the end")]
    pub fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// What time it is.
pub trait Clock: Send + Sync {
    /// For life times and limits.
    fn boot(&self) -> BootTime;
    /// For people and records: milliseconds since the Unix epoch.
    fn wall_ms(&self) -> u64;
}

/// Where unpredictable bytes come from.
pub trait Chance: Send + Sync {
    /// Fills all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

fn read_ms(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
    seconds.saturating_mul(1000).saturating_add(millis)
}

impl Clock for SystemClock {
    fn boot(&self) -> BootTime {
        BootTime(read_ms(ClockId::Boottime))
    }

    fn wall_ms(&self) -> u64 {
        read_ms(ClockId::Realtime)
    }
}

/// The runtime's clock, which tests can pause: boot time since this was made, and a wall time that starts where it is set.
#[derive(Debug, Clone)]
pub struct TokioClock {
    start: tokio::time::Instant,
    wall_base_ms: Arc<AtomicU64>,
}

impl TokioClock {
    /// A clock whose boot time is zero now and whose wall time is `wall_ms` now.
    pub fn new(wall_ms: u64) -> Self {
        Self { start: tokio::time::Instant::now(), wall_base_ms: Arc::new(AtomicU64::new(wall_ms)) }
    }

    /// Sets the wall clock, as a time service would; boot time goes on undisturbed.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.wall_base_ms.store(wall_ms.saturating_sub(self.boot().0), Ordering::Relaxed);
    }
}

impl Clock for TokioClock {
    fn boot(&self) -> BootTime {
        BootTime::default().add(self.start.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        self.wall_base_ms.load(Ordering::Relaxed).saturating_add(self.boot().0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_tests_moves_with_paused_time_and_keeps_its_wall_apart() {
        let clock = TokioClock::new(5_000);
        assert_eq!((clock.boot().as_ms(), clock.wall_ms()), (0, 5_000));
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!((clock.boot().as_ms(), clock.wall_ms()), (1500, 6_500));
        clock.set_wall_ms(1_000_000);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((clock.boot().as_ms(), clock.wall_ms()), (1501, 1_000_001));
    }

    #[test]
    fn boot_time_saturates_at_both_ends() {
        let late = BootTime::from_ms(u64::MAX - 1);
        assert_eq!(late.add(Duration::from_secs(9)), BootTime::from_ms(u64::MAX));
        assert_eq!(BootTime::from_ms(3).since(BootTime::from_ms(9)), Duration::ZERO);
        assert_eq!(BootTime::from_ms(9).since(BootTime::from_ms(3)), Duration::from_millis(6));
    }

    #[test]
    fn the_machines_clocks_run_forward_from_a_plausible_point() {
        let clock = SystemClock;
        let first = clock.boot();
        assert!(clock.boot() >= first && first.as_ms() > 0);
        assert!(clock.wall_ms() > 1_600_000_000_000);
    }
}
