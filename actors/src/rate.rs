//! How many invocations the owner may make: a bucket that fills by the clock.
//!
//! Asked first of all checks of an invocation; a reload of the settings gives it new limits. Refuses with the time to come back.

use std::sync::{Mutex, PoisonError};

use handlers::BootTime;

use crate::Limits;

/// A bucket of whole requests, counted in thousandths so that slow rates fill evenly.
#[derive(Debug)]
pub(crate) struct Bucket {
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    limits: Limits,
    thousandths: u64,
    at: BootTime,
}

impl Bucket {
    pub(crate) fn new(limits: Limits, now: BootTime) -> Self {
        Self { level: Mutex::new(Level { limits, thousandths: full(limits), at: now }) }
    }

    /// Takes one request out, or says in how many milliseconds there will be one.
    pub(crate) fn take(&self, now: BootTime) -> Result<(), u64> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let per_ms = u64::from(level.limits.rate_per_second);
        let gained = now.as_ms().saturating_sub(level.at.as_ms()).saturating_mul(per_ms);
        level.thousandths = level.thousandths.saturating_add(gained).min(full(level.limits));
        level.at = now;
        match level.thousandths.checked_sub(1_000) {
            Some(rest) => {
                level.thousandths = rest;
                Ok(())
            }
            None => Err((1_000 - level.thousandths).div_ceil(per_ms.max(1))),
        }
    }

    /// Takes new limits; what was used stays used.
    pub(crate) fn set(&self, limits: Limits) {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        level.limits = limits;
        level.thousandths = level.thousandths.min(full(limits));
    }
}

fn full(limits: Limits) -> u64 {
    u64::from(limits.rate_burst).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate_and_says_when_to_come_back() {
        let bucket = Bucket::new(Limits { rate_per_second: 4, rate_burst: 2 }, BootTime::from_ms(0));
        let take = |ms| bucket.take(BootTime::from_ms(ms));
        assert_eq!((take(0), take(0), take(0)), (Ok(()), Ok(()), Err(250)));
        assert_eq!((take(249), take(250), take(251)), (Err(1), Ok(()), Err(249)));
        assert_eq!((take(60_000), take(60_000), take(60_000)), (Ok(()), Ok(()), Err(250)));
    }
}
