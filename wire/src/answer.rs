//! Results (section 5): what a device answers once a request was accepted.
//!
//! Owns: the error codes, the form of a result, and the controller's check that a result belongs to its request (section
//! 11). Called by: the gate, which writes them, and controllers, which read them through [`crate::Envelope::open_answer`].
//! Refuses: undefined members, a result that is both good and bad, unknown error codes.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::envelope::{Refused, unknown_type};
use crate::json::{Members, Object};
use crate::keys::PublicKey;
use crate::request::Head;
use crate::text::{Challenge, Id, TextError, cut, serde_as_text};

/// Longest `message` of a refusal: one line that a terminal can show.
pub const MESSAGE_BYTES_MAX: usize = 500;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why an accepted request did not do what it asked for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// All of them, in the order of section 5.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }

        impl FromStr for ErrorCode {
            type Err = TextError;

            fn from_str(text: &str) -> Result<Self, TextError> {
                match text {
                    $($word => Ok(Self::$name),)*
                    _ => Err(TextError::Word),
                }
            }
        }
    };
}

error_codes! {
    /// The capability's local grant is off.
    Denied = "denied",
    /// It runs only while active, and the device is not.
    NotActive = "not_active",
    /// No such capability here.
    Unsupported = "unsupported",
    /// Outside the declared bounds; the message names the member.
    InvalidArguments = "invalid_arguments",
    /// The hardware, or the in-use sign, is missing, broken or given up.
    HardwareUnavailable = "hardware_unavailable",
    /// Its concurrency limit or queue is full, or it is being restarted.
    Busy = "busy",
    /// Cut off at its own time-out (effect `read`).
    Timeout = "timeout",
    /// By `cancel`, loss of the grant, of activation or of the sign (effect `read`).
    Cancelled = "cancelled",
    /// The handler reported an error, crashed or is given up, or the result would not fit.
    Failed = "failed",
    /// It began and nothing proves how it ended (effect `change`).
    UnknownOutcome = "unknown_outcome",
    /// The same `id` came with different content.
    IdReused = "id_reused",
    /// The same `id` is still running.
    InProgress = "in_progress",
    /// Too many requests; the message says when to come back.
    RateLimited = "rate_limited",
    /// Owned already, another change is pending, or the key is the present one.
    Conflict = "conflict",
    /// No receipt can be written, so nothing is done.
    StorageFull = "storage_full",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

serde_as_text!(ErrorCode);

/// What a device says instead of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}: {message}")]
pub struct Refusal {
    /// The code.
    pub error: ErrorCode,
    /// One line for people.
    pub message: String,
}

impl Refusal {
    /// A refusal with its line for people.
    pub fn new(error: ErrorCode, message: impl Into<String>) -> Self {
        Self { error, message: message.into() }
    }
}

/// A result.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The id of the request.
    pub id: Id,
    /// The challenge of the request.
    pub challenge: Challenge,
    /// The key that signed the request.
    pub to: PublicKey,
    /// The value, or why there is none.
    pub outcome: Result<Object, Refusal>,
}

/// A result that belongs to another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another `id` than was sent.
    #[error("the result carries another id")]
    Id,
    /// Another `challenge` than was sent.
    #[error("the result carries another challenge")]
    Challenge,
    /// Made for another key.
    #[error("the result is for another key")]
    To,
}

/// A result as it is written, its members in the order of section 5.
#[derive(Serialize)]
struct Written<'a> {
    r#type: &'a str,
    id: &'a Id,
    challenge: &'a Challenge,
    to: &'a PublicKey,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl Answer {
    const TYPE: &str = "result";

    /// The body that is signed. The message of a refusal is cut to one line of at most [`MESSAGE_BYTES_MAX`] bytes.
    #[must_use]
    pub fn to_body(&self) -> Vec<u8> {
        Self::body_of(&self.id, &self.challenge, &self.to, self.outcome.as_ref())
    }

    /// As [`Answer::to_body`], of an outcome that somebody else holds: a picture is not copied to be sent.
    #[must_use]
    pub fn body_of(id: &Id, challenge: &Challenge, to: &PublicKey, outcome: Result<&Object, &Refusal>) -> Vec<u8> {
        let message = outcome.err().map(|refusal| one_line(&refusal.message));
        let written = Written {
            r#type: Self::TYPE,
            id,
            challenge,
            to,
            ok: outcome.is_ok(),
            value: outcome.ok(),
            error: outcome.err().map(|refusal| refusal.error.as_str()),
            message: message.as_deref(),
        };
        serde_json::to_vec(&written).unwrap_or_default() // names are texts, so that it cannot fail
    }

    /// Whether this is the answer to the request with `head` that `to` signed (section 11).
    ///
    /// # Errors
    /// [`Mismatch`] naming the member that differs.
    pub fn matches(&self, head: &Head, to: &PublicKey) -> Result<(), Mismatch> {
        if self.id != head.id {
            return Err(Mismatch::Id);
        }
        if self.challenge != head.challenge {
            return Err(Mismatch::Challenge);
        }
        if self.to == *to { Ok(()) } else { Err(Mismatch::To) }
    }

    /// Reads the members of a body whose signature holds.
    pub(crate) fn read(kind: &str, body: Object) -> Result<Self, Refused> {
        if kind != Self::TYPE {
            return Err(unknown_type(kind));
        }
        let mut members = Members::new(body);
        members.word("type", kind)?;
        let (id, challenge, to) = (members.text("id")?, members.text("challenge")?, members.text("to")?);
        let outcome = if members.boolean("ok")? {
            Ok(members.object("value")?)
        } else {
            Err(Refusal { error: members.text("error")?, message: members.text("message")? })
        };
        members.end()?;
        Ok(Self { id, challenge, to, outcome })
    }
}

/// Control characters and line ends become spaces; then the longest prefix that fits.
fn one_line(message: &str) -> String {
    let line: String =
        message.chars().map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c }).collect();
    cut(&line, MESSAGE_BYTES_MAX).to_owned()
}
