//! A failure on its way to a person: one sentence and what kind it is.

use latchkey_controller::explain::{Attempt, chain, explain};
use latchkey_controller::folder::FolderError;
use latchkey_controller::inventory::StoreError;
use latchkey_controller::{ChanceError, Device, Failure, Kind};
use wire::ErrorCode;
use wire::text::CapabilityName;

/// Why the program does not end with 0.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) sentence: String,
    /// The error code, where there is one.
    pub(crate) code: Option<ErrorCode>,
    /// Whether it may be over in a moment: the device is away, or another process has the key.
    pub(crate) passing: bool,
}

impl Problem {
    pub(crate) fn new(kind: Kind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into(), code: None, passing: kind == Kind::Unreachable }
    }

    pub(crate) fn failed(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Failed, sentence)
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Usage, sentence)
    }

    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Refused, sentence)
    }

    /// A failure of something that was tried with `device`.
    pub(crate) fn with(device: &Device, capability: Option<&CapabilityName>) -> impl Fn(Failure) -> Self {
        let device = device.clone();
        let capability = capability.cloned();
        move |failure| {
            Self::of(
                &failure,
                &Attempt {
                    device: device.name.as_str(),
                    address: Some(&device.address),
                    capability: capability.as_ref(),
                    claim: false,
                },
            )
        }
    }

    pub(crate) fn of(failure: &Failure, attempt: &Attempt<'_>) -> Self {
        Self { code: failure.code(), ..Self::new(failure.kind(), explain(failure, attempt)) }
    }
}

impl From<FolderError> for Problem {
    fn from(error: FolderError) -> Self {
        let kind = match &error {
            FolderError::NoAgents | FolderError::NoSuchAgent { .. } | FolderError::WhichAgent(_) => Kind::Usage,
            FolderError::Unsafe(_)
            | FolderError::File { .. }
            | FolderError::KeyDamaged { .. }
            | FolderError::AgentExists(_)
            | FolderError::Locked { .. }
            | FolderError::Chance(_) => Kind::Failed,
        };
        let passing = matches!(error, FolderError::Locked { .. });
        Self { kind, sentence: chain(&error), code: None, passing }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::of(&Failure::Store(error), &Attempt::default())
    }
}

impl From<ChanceError> for Problem {
    fn from(error: ChanceError) -> Self {
        Self::of(&Failure::Chance(error), &Attempt::default())
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::failed(format!("the output cannot be written: {error}"))
    }
}
