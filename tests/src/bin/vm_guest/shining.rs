//! When a light that the test plays shone, as what drives it was told by the kernel's driver.

#![allow(clippy::disallowed_methods, reason = "a test of real hardware polls the kernel")]

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::kernel;

const POLL: Duration = Duration::from_millis(20);

/// Whether the light shines from here on, and when that was told, by the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    shines: bool,
    at: Duration,
}

/// All that was told so far, the first first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shining(Arc<Mutex<Vec<Told>>>);

impl Shining {
    pub(crate) fn tell(&self, shines: bool) {
        let at = kernel::now();
        if let Ok(mut told) = self.0.lock() {
            told.push(Told { shines, at });
        }
    }

    fn told(&self) -> Vec<Told> {
        self.0.lock().map(|told| told.clone()).unwrap_or_default()
    }

    /// How often something was told.
    pub(crate) fn count(&self) -> usize {
        self.told().len()
    }

    /// Whether it shines now.
    pub(crate) fn now(&self) -> bool {
        self.told().last().is_some_and(|told| told.shines)
    }

    /// How often it was told to shine.
    pub(crate) fn times_lit(&self) -> usize {
        self.told().iter().filter(|told| told.shines).count()
    }

    /// The lighting that began after so much was told: when it went on and when it went off, as soon as it is over.
    pub(crate) fn lighting(&self, from: usize, limit: Duration) -> Result<(Duration, Duration)> {
        let began = Instant::now();
        loop {
            let told = self.told();
            let mut new = told.iter().skip(from).skip_while(|told| !told.shines);
            if let Some(on) = new.next()
                && let Some(off) = new.find(|told| !told.shines)
            {
                return Ok((on.at, off.at));
            }
            if began.elapsed() > limit {
                bail!("the light did not go on and off within {limit:?}; it was told {told:?}");
            }
            thread::sleep(POLL);
        }
    }
}
