//! Troubles that a simulated part can be told to have, each with the word by which people ask for it, and the time in which it holds.
//!
//! Each simulated part has an enum of its own that implements [`Trouble`]; its table is the one place where a word stands, and the command
//! line, its help, `docs/simulation.md` and the tests read it. [`Troubles`] is what a part has been told; it looks at the clock when the part
//! is used, so nothing runs beside it.

use std::fmt;
use std::time::Duration;

use crate::clock::{BootTime, Clock as _, SystemClock};

/// The troubles of one kind of simulated part.
pub trait Trouble: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// What the part is called on the command line.
    const PART: &'static str;
    /// The word for each trouble, the trouble, and what it means for people; in the order of the guide.
    const TROUBLES: &'static [(&'static str, Self, &'static str)];

    /// The trouble that people call `word`.
    fn named(word: &str) -> Option<Self> {
        Self::TROUBLES.iter().find(|(known, ..)| *known == word).map(|(_, trouble, _)| *trouble)
    }
}

/// From when to when a trouble holds, counted from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    after: Duration,
    until: Option<Duration>,
}

/// Why a span of time is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// It is not written as a time.
    #[error("a time is written 2s or 500ms, and 2s..5s when the trouble ends again")]
    Unwritten,
    /// It ends before it begins.
    #[error("it would end before it begins")]
    Backwards,
}

impl Span {
    /// From the start on, for good.
    pub const ALWAYS: Self = Self { after: Duration::ZERO, until: None };

    /// Reads `2s`, `500ms` or `2s..5s`; `..5s` begins at once.
    ///
    /// # Errors
    /// See [`SpanError`].
    pub fn parse(text: &str) -> Result<Self, SpanError> {
        let (after, until) = match text.split_once("..") {
            Some(("", until)) => (Duration::ZERO, Some(duration(until)?)),
            Some((after, until)) => (duration(after)?, Some(duration(until)?)),
            None => (duration(text)?, None),
        };
        if until.is_some_and(|until| until <= after) {
            return Err(SpanError::Backwards);
        }
        Ok(Self { after, until })
    }

    /// Whether it holds so long after the start.
    #[must_use]
    pub fn holds(&self, since: Duration) -> bool {
        since >= self.after && self.until.is_none_or(|until| since < until)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.after, self.until) {
            (Duration::ZERO, None) => f.write_str("from the start"),
            (after, None) => write!(f, "{after:?} after the start"),
            (after, Some(until)) => write!(f, "from {after:?} to {until:?} after the start"),
        }
    }
}

/// Whole seconds or milliseconds, at most six digits: eleven days.
fn duration(text: &str) -> Result<Duration, SpanError> {
    const DIGITS_MAX: usize = 6;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.strip_suffix(unit).unwrap_or_default();
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return Err(SpanError::Unwritten);
    }
    let number = digits.parse().map_err(|_| SpanError::Unwritten)?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(SpanError::Unwritten),
    }
}

/// One trouble and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned<T> {
    /// What goes wrong.
    pub trouble: T,
    /// And when.
    pub span: Span,
}

/// What one simulated part was told to have.
#[derive(Debug, Clone)]
pub struct Troubles<T> {
    began: BootTime,
    planned: Vec<Planned<T>>,
}

impl<T> Default for Troubles<T> {
    fn default() -> Self {
        Self { began: SystemClock.boot(), planned: Vec::new() }
    }
}

impl<T: Trouble> Troubles<T> {
    /// These, counted from now.
    pub fn planned(planned: Vec<Planned<T>>) -> Self {
        Self { began: SystemClock.boot(), planned }
    }

    /// This one from now on, or none.
    pub fn only(trouble: Option<T>) -> Self {
        Self::planned(trouble.into_iter().map(|trouble| Planned { trouble, span: Span::ALWAYS }).collect())
    }

    /// Those that hold now, in the order in which they were told.
    pub fn now(&self) -> Vec<T> {
        let since = SystemClock.boot().since(self.began);
        self.planned.iter().filter(|planned| planned.span.holds(since)).map(|planned| planned.trouble).collect()
    }

    /// The first of those that hold now, for parts that have one trouble at a time.
    pub fn first(&self) -> Option<T> {
        self.now().first().copied()
    }

    /// Whether this one holds now.
    pub fn has(&self, trouble: T) -> bool {
        self.now().contains(&trouble)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_span_of_time_is_read_as_it_is_meant_or_refused() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let rows = [
            ("2s", Ok((s(2), None))),
            ("500ms", Ok((ms(500), None))),
            ("0s", Ok((s(0), None))),
            ("2s..5s", Ok((s(2), Some(s(5))))),
            ("900ms..1s", Ok((ms(900), Some(s(1))))),
            ("..3s", Ok((s(0), Some(s(3))))),
            ("5s..2s", Err(SpanError::Backwards)),
            ("2s..2s", Err(SpanError::Backwards)),
            ("2", Err(SpanError::Unwritten)),
            ("", Err(SpanError::Unwritten)),
            ("s", Err(SpanError::Unwritten)),
            ("2m", Err(SpanError::Unwritten)),
            ("-2s", Err(SpanError::Unwritten)),
            ("2 s", Err(SpanError::Unwritten)),
            ("2s..", Err(SpanError::Unwritten)),
            ("1234567s", Err(SpanError::Unwritten)),
        ];
        for (text, wanted) in rows {
            assert_eq!(Span::parse(text), wanted.map(|(after, until)| Span { after, until }), "{text:?}");
        }
    }

    #[test]
    fn a_trouble_holds_from_its_beginning_until_its_end() {
        let span = Span::parse("2s..5s").unwrap();
        let held: Vec<bool> =
            [0, 1999, 2000, 4999, 5000, 900_000].map(|at_ms| span.holds(Duration::from_millis(at_ms))).to_vec();
        assert_eq!(held, [false, false, true, true, false, false]);
        assert!(Span::ALWAYS.holds(Duration::ZERO) && Span::ALWAYS.holds(Duration::MAX));
        assert_eq!(span.to_string(), "from 2s to 5s after the start");
    }
}
