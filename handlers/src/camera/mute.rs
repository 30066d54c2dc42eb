//! Modes that sent nothing when they were tried.
//!
//! Owned by the adapter of a camera, for as long as that lives; told by each stream of it. A mode is known by what the node was asked for, as that is what
//! is chosen from the next time: a node may agree to something else. Forgets a mode after [`MUTE_FOR`], and at its first frame.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::bus::{Mode, Size};
use crate::clock::BootTime;

/// What kept a camera silent (a hub without power, a driver that woke up badly) may be over by then, and the best mode is worth another try.
const MUTE_FOR: Duration = Duration::from_secs(300);

/// A code and a size, as asked for.
pub(super) type Asked = ([u8; 4], Size);

/// The modes that sent nothing, and when.
#[derive(Debug, Default)]
pub(super) struct Mute(Mutex<Vec<(Asked, BootTime)>>);

impl Mute {
    /// Those that are still believed to send nothing.
    pub(super) fn known(&self, now: BootTime) -> Vec<Asked> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, since)| now.since(*since) < MUTE_FOR);
        known.iter().map(|(asked, _)| *asked).collect()
    }

    /// It was waited for, and sent nothing.
    pub(super) fn add(&self, mode: Mode, now: BootTime) {
        self.forget(mode);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(((mode.code, mode.size), now));
    }

    /// It sent something.
    pub(super) fn forget(&self, mode: Mode) {
        let asked = (mode.code, mode.size);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, SystemClock};

    #[test]
    fn a_mode_that_sent_nothing_is_tried_again_after_some_minutes() {
        let (mute, now) = (Mute::default(), SystemClock.boot());
        let size = Size { width: 640, height: 480 };
        mute.add(Mode { code: *b"MJPG", size, interval: None }, now);
        let rows = [(Duration::ZERO, 1), (MUTE_FOR - Duration::from_secs(1), 1), (MUTE_FOR, 0)];
        for (later, known) in rows {
            assert_eq!(mute.known(now.add(later)).len(), known, "{later:?}");
        }
    }
}
