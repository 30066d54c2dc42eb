//! How a command ends when it does not end well.
//!
//! Every error of a command passes here on its way to the terminal, where strings from outside are made visible.

use std::error::Error;

use actors::FailCode;
use wire::text::visible;

use crate::keeper::ask::TalkError;

/// How a command ended; the number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Done.
    Done = 0,
    /// Tried, and it went wrong.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The device does not agree.
    Refused = 3,
    /// Nobody answers.
    Unreachable = 4,
}

impl Ended {
    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// Why a command did not do what it was told: one sentence with the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The exit code.
    pub ended: Ended,
    /// The sentence, fit for a terminal.
    pub sentence: String,
}

impl Problem {
    pub(crate) fn new(ended: Ended, sentence: impl AsRef<str>) -> Self {
        Self { ended, sentence: visible(sentence.as_ref()) }
    }

    pub(crate) fn failed(sentence: impl AsRef<str>) -> Self {
        Self::new(Ended::Failed, sentence)
    }

    /// An error with all that lies behind it, as one sentence.
    pub(crate) fn of(error: &dyn Error) -> Self {
        Self::failed(chain(error))
    }

    pub(crate) fn reply(code: FailCode, message: &str) -> Self {
        let ended = match code {
            FailCode::Conflict | FailCode::NotNow => Ended::Refused,
            FailCode::NotFound | FailCode::Invalid | FailCode::Storage | FailCode::Internal => Ended::Failed,
        };
        Self::new(ended, message)
    }

    /// An answer of the daemon that does not fit the question.
    pub(crate) fn unfit() -> Self {
        Self::failed("latchkeyd gave an answer that does not fit the question; are both programs of the same version?")
    }
}

impl From<TalkError> for Problem {
    fn from(error: TalkError) -> Self {
        match &error {
            TalkError::NotRunning { .. } => {
                Self::new(Ended::Unreachable, format!("{error}; start it with: latchkeyd run"))
            }
            TalkError::NotAllowed { .. } => Self::new(Ended::Refused, chain(&error)),
            TalkError::Broken(_) => Self::new(Ended::Unreachable, chain(&error)),
            TalkError::NotUnderstood(_) => Self::of(&error),
        }
    }
}

pub(crate) fn chain(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        // A transparent error repeats its source.
        if !sentence.ends_with(&next) {
            sentence.push_str(": ");
            sentence.push_str(&next);
        }
        source = error.source();
    }
    sentence
}
