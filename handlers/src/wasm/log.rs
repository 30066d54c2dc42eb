//! What a handler logged, kept for the keeper: `latchkeyd handlers log NAME`.
//!
//! Owns the last lines of one handler, in memory alone. Filled by the parent of its process, read by the keeper's commands.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Lines kept for one handler: a few calls of the 64 that each may write.
pub const LINES_KEPT: usize = 256;

/// How serious a line is; the words of the handler's world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For whoever mends the handler.
    Debug,
    /// What happens.
    Info,
    /// What may go wrong.
    Warn,
    /// What went wrong.
    Error,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it reached the device, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How serious it is.
    pub level: Level,
    /// The handler's own words, at most 1 KiB; made visible where they are shown.
    pub text: String,
}

/// The last lines of one handler.
#[derive(Debug, Default)]
pub struct HandlerLog(Mutex<VecDeque<LogLine>>);

impl HandlerLog {
    /// Adds a line; the oldest goes when there are too many.
    pub fn push(&self, line: LogLine) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LogLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
