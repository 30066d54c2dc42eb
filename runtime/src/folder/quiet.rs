//! When to look at the handlers folder: not while somebody is still writing into it.
//!
//! Pure: events and times come in, the time of the next look goes out. A copy that is under way would be taken for a damaged handler,
//! and its whole self a moment later for a change of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

/// Nothing happened for so long: a copy of many files, and an editor's few steps of saving one, are over.
pub(crate) const QUIET: Duration = Duration::from_millis(200);

/// A file that is open for writing and gets nothing for so long counts as done: a slow copy writes each few seconds, and a program that
/// only keeps the file open must not hold up the others.
pub(crate) const WRITER_SILENT_MAX: Duration = Duration::from_secs(30);

/// Looked at all the same after so long, as often as nobody writes: whoever writes for ever must not keep a handler in service that is
/// not on disk any more.
pub(crate) const UNQUIET_MAX: Duration = Duration::from_secs(60);

/// Files written at once that are remembered; beyond that quiet alone decides.
const WRITERS_MAX: usize = 256;

/// What happened in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// A name came, went or changed.
    Changed,
    /// A file is being written.
    Writing(PathBuf),
    /// A file is written no more: closed, moved or removed.
    Written(PathBuf),
    /// Some were lost.
    Lost,
}

/// What is known of who writes.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// The first thing not looked at yet.
    first: Option<Instant>,
    /// The last thing that happened.
    last: Option<Instant>,
    writers: HashMap<PathBuf, Instant>,
}

impl Quiet {
    pub(crate) fn heard(&mut self, word: Word, now: Instant) {
        self.ask(now);
        self.last = Some(now);
        match word {
            Word::Changed => {}
            Word::Writing(path) => {
                if self.writers.contains_key(&path) || self.writers.len() < WRITERS_MAX {
                    self.writers.insert(path, now);
                }
            }
            Word::Written(path) => {
                self.writers.remove(&path);
            }
            // Whoever was closed may be among them.
            Word::Lost => self.writers.clear(),
        }
    }

    /// Asks for a look although nothing was heard.
    pub(crate) fn ask(&mut self, now: Instant) {
        self.first.get_or_insert(now);
    }

    /// When to look, if anybody wants to.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first = self.first?;
        let quiet = self.last.map_or(first, |last| last + QUIET);
        let writers = self.writers.values().map(|last| *last + WRITER_SILENT_MAX).max();
        Some(quiet.max(writers.unwrap_or(quiet)).min(first + UNQUIET_MAX))
    }

    /// A look begins now. Who writes is still known.
    pub(crate) fn looked(&mut self, now: Instant) {
        self.first = None;
        self.writers.retain(|_, last| now.saturating_duration_since(*last) < WRITER_SILENT_MAX);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn file(name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    /// Words with their times in milliseconds, and when the look is due.
    fn check(words: &[(u64, Word)], due: Option<u64>) {
        let start = Instant::now();
        let mut quiet = Quiet::default();
        for (at, word) in words {
            quiet.heard(word.clone(), start + Duration::from_millis(*at));
        }
        assert_eq!(quiet.due().map(|due| (due - start).as_millis()), due.map(u128::from), "{words:?}");
    }

    #[test]
    fn a_look_waits_for_quiet_and_for_whoever_still_writes() {
        use Word::{Changed, Lost, Writing, Written};
        check(&[], None);
        check(&[(0, Changed)], Some(200));
        check(&[(0, Changed), (150, Changed)], Some(350));
        check(&[(0, Writing(file("a")))], Some(30_000));
        check(&[(0, Writing(file("a"))), (9_000, Writing(file("a")))], Some(39_000));
        check(&[(0, Writing(file("a"))), (9_000, Written(file("a")))], Some(9_200));
        check(&[(0, Writing(file("a"))), (9_000, Written(file("b")))], Some(30_000));
        check(&[(0, Writing(file("a"))), (9_000, Lost)], Some(9_200));
    }

    #[test]
    fn whoever_writes_for_ever_holds_up_no_look_for_longer_than_a_minute() {
        let words: Vec<_> = (0..70).map(|second| (second * 1000, Word::Writing(file("a")))).collect();
        check(&words, Some(60_000));
    }

    #[test]
    fn a_look_that_nobody_waits_for_is_at_once_and_forgets_no_writer() {
        let start = Instant::now();
        let mut quiet = Quiet::default();
        quiet.ask(start);
        assert_eq!(quiet.due(), Some(start));
        quiet.heard(Word::Writing(file("a")), start);
        quiet.looked(start);
        assert_eq!(quiet.due(), None);
        quiet.ask(start + QUIET);
        assert_eq!(quiet.due(), Some(start + WRITER_SILENT_MAX), "the rescan waits for the writer too");
    }
}
