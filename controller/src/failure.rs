//! Everything that can come of a request other than its value, in one closed enum.
//!
//! Callers match on it, [`explain`](crate::explain) turns it into sentences, and [`Failure::kind`] into exit codes.
//! Whether the device may have done the work is part of the type: [`Failure::OutcomeUnknown`] stands apart.

use std::time::Duration;

use wire::answer::{ErrorCode, Refusal};
use wire::bounds::BoundsError;
use wire::text::{CapabilityName, Id};

use crate::inventory::{DeviceName, NotFound, StoreError};
use crate::link::LinkError;
use crate::outside::ChanceError;
use crate::values::ValueError;

/// Why a result does not count (section 11).
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// No envelope, or not signed by the pinned key.
    #[error("the answer is not one that this device signed")]
    Envelope(#[source] wire::envelope::Refused),
    /// Signed by the device, but for another request or another controller.
    #[error("the answer belongs to another request")]
    Mismatch(#[source] wire::answer::Mismatch),
    /// A registration that does not fit section 6.
    #[error("the device describes itself in a way that cannot be read")]
    Registration(#[source] wire::bounds::DeclarationError),
    /// A registration of another device.
    #[error("the device describes itself with another key than its own")]
    OtherKey,
    /// The claim code does not follow from the keys and the salt.
    #[error("the code that the device answered does not fit this claim")]
    Code,
    /// A member that the value needs is missing or of another form.
    #[error("the answer lacks a usable `{0}`")]
    Member(&'static str),
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The device was not reached, or a request without lasting effect got no answer.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A request was sent that may have changed something, and nothing proves how it ended.
    #[error("nobody knows whether it was done")]
    OutcomeUnknown {
        /// The id under which it was sent.
        id: Id,
        /// What happened instead of an answer.
        #[source]
        cause: Box<Self>,
    },
    /// An answer came that does not count.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The device refused, signed.
    #[error("{}: {}", .0.error.as_str(), wire::text::visible(&.0.message))]
    Refused(Refusal),
    /// The device has not declared the capability, so nothing was sent.
    #[error("the device declares no {wanted}")]
    Undeclared {
        /// What was asked for.
        wanted: CapabilityName,
        /// What it declares.
        declared: Vec<CapabilityName>,
    },
    /// The arguments do not fit what the device declared, so nothing was sent.
    #[error("{0}")]
    Arguments(BoundsError),
    /// The request would be larger than a device takes, so nothing was sent.
    #[error("the request has {bytes} bytes, a device takes at most {}", wire::envelope::BODY_BYTES_MAX)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The value does not fit the capability.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The capability needs an active device, and activating was not wanted.
    #[error("the device is not active")]
    NotActive,
    /// Another device may still be active, so this one was not activated.
    #[error("{other} may still be active for {} s", .remaining_ms.div_ceil(1000))]
    OtherActive {
        /// The other device.
        other: DeviceName,
        /// How long it may be.
        remaining_ms: u64,
        /// Why it could not be deactivated.
        #[source]
        cause: Box<Self>,
    },
    /// The device is not in the inventory, or more than one fits.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// There is no change to ask about.
    #[error("no change of {0}'s owner is under way")]
    NoChange(DeviceName),
    /// The entry is still needed: the device may be active.
    #[error("{device} may still be active for {} s", .remaining_ms.div_ceil(1000))]
    StillActive {
        /// The device.
        device: DeviceName,
        /// How long it may be.
        remaining_ms: u64,
    },
    /// The inventory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The random source.
    #[error(transparent)]
    Chance(#[from] ChanceError),
}

/// What a program should do about a failure; the exit codes of `latchkey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 1: it was tried and did not work.
    Failed,
    /// 2: what was asked for cannot be asked.
    Usage,
    /// 3: somebody said no.
    Refused,
    /// 4: not reached, or not in time.
    Unreachable,
    /// 5: it may have been done.
    Unknown,
}

impl Kind {
    /// The exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::Unknown => 5,
        }
    }
}

impl Kind {
    /// A stable word for scripts, beside the exit code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
        }
    }
}

impl Failure {
    /// The error code of PROTOCOL.md section 5: as the device signed it, or what it would have answered to what was not sent.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.error),
            Self::OutcomeUnknown { .. } => Some(ErrorCode::UnknownOutcome),
            Self::Undeclared { .. } => Some(ErrorCode::Unsupported),
            Self::Arguments(_) | Self::TooLarge { .. } => Some(ErrorCode::InvalidArguments),
            Self::NotActive => Some(ErrorCode::NotActive),
            Self::Link(_)
            | Self::Answer(_)
            | Self::Value(_)
            | Self::OtherActive { .. }
            | Self::NotFound(_)
            | Self::NoChange(_)
            | Self::StillActive { .. }
            | Self::Store(_)
            | Self::Chance(_) => None,
        }
    }

    /// What a program should do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Link(error) => link_kind(error),
            Self::OutcomeUnknown { .. } => Kind::Unknown,
            Self::Refused(refusal) => refusal_kind(refusal.error),
            Self::Arguments(_) | Self::TooLarge { .. } | Self::NotFound(_) | Self::NoChange(_) => Kind::Usage,
            Self::Undeclared { .. } | Self::NotActive | Self::StillActive { .. } => Kind::Refused,
            Self::OtherActive { .. } => Kind::Unreachable,
            Self::Answer(_) | Self::Value(_) | Self::Store(_) | Self::Chance(_) => Kind::Failed,
        }
    }

    /// How long to wait before the same is worth another try, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::OtherActive { remaining_ms, .. } | Self::StillActive { remaining_ms, .. } => {
                Some(Duration::from_millis(*remaining_ms))
            }
            Self::Link(_)
            | Self::OutcomeUnknown { .. }
            | Self::Answer(_)
            | Self::Refused(_)
            | Self::Undeclared { .. }
            | Self::Arguments(_)
            | Self::TooLarge { .. }
            | Self::Value(_)
            | Self::NotActive
            | Self::NotFound(_)
            | Self::NoChange(_)
            | Self::Store(_)
            | Self::Chance(_) => None,
        }
    }
}

fn link_kind(error: &LinkError) -> Kind {
    match error {
        LinkError::Forbidden | LinkError::HostRefused => Kind::Refused,
        LinkError::NoSuchHost(_)
        | LinkError::NothingListens(_)
        | LinkError::NoWay(_)
        | LinkError::NotTls
        | LinkError::NoHandshake(_)
        | LinkError::TlsRefused(_)
        | LinkError::WrongKey
        | LinkError::KeyNotHeld
        | LinkError::TimedOut(_)
        | LinkError::Broken(_)
        | LinkError::TooLarge { .. }
        | LinkError::NotADevice(_)
        | LinkError::NotTheLink => Kind::Unreachable,
    }
}

fn refusal_kind(code: ErrorCode) -> Kind {
    match code {
        ErrorCode::Denied
        | ErrorCode::NotActive
        | ErrorCode::Unsupported
        | ErrorCode::InvalidArguments
        | ErrorCode::Busy
        | ErrorCode::IdReused
        | ErrorCode::InProgress
        | ErrorCode::RateLimited
        | ErrorCode::Conflict
        | ErrorCode::StorageFull => Kind::Refused,
        ErrorCode::HardwareUnavailable | ErrorCode::Failed | ErrorCode::Cancelled => Kind::Failed,
        ErrorCode::Timeout => Kind::Unreachable,
        ErrorCode::UnknownOutcome => Kind::Unknown,
    }
}
