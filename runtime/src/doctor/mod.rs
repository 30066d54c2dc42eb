//! What `latchkeyd doctor` looks at and tries: each part of a device, and what it came to.
//!
//! `look` holds what is only looked at and needs no daemon, one part a file, each a reading and a judgement apart from it. `try` holds
//! what is tried for real, under the lit sign, by the daemon when it runs and by the command itself when it does not. Nothing here
//! mends anything: it says what would.

use serde::{Deserialize, Serialize};

pub(crate) mod look;
pub mod trial;

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The settings file and its layers.
    Settings,
    /// The state folder: whose it is, and whether what is written stays.
    State,
    /// Room on its disk.
    Disk,
    /// The wall clock.
    Clock,
    /// Whether the device's user may open cameras, sound cards and chips.
    Groups,
    /// Where it listens.
    Listen,
    /// The in-use sign as a whole.
    Sign,
    /// The LED of `sign.led`.
    Led,
    /// The line of `sign.gpio`.
    Gpio,
    /// The display page.
    Display,
    /// One picture.
    Camera,
    /// One second of sound from the room.
    Microphone,
    /// One second of a tone.
    Speaker,
    /// What makes speech of a text.
    Speech,
    /// What the kernel must give to custom handlers.
    Handlers,
    /// Versions with known flaws.
    Versions,
}

impl Part {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 16] = [
        Self::Settings,
        Self::State,
        Self::Disk,
        Self::Clock,
        Self::Groups,
        Self::Listen,
        Self::Sign,
        Self::Led,
        Self::Gpio,
        Self::Display,
        Self::Camera,
        Self::Microphone,
        Self::Speaker,
        Self::Speech,
        Self::Handlers,
        Self::Versions,
    ];

    /// Its name, as people type it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::State => "state",
            Self::Disk => "disk",
            Self::Clock => "clock",
            Self::Groups => "groups",
            Self::Listen => "listen",
            Self::Sign => "sign",
            Self::Led => "led",
            Self::Gpio => "gpio",
            Self::Display => "display",
            Self::Camera => "camera",
            Self::Microphone => "microphone",
            Self::Speaker => "speaker",
            Self::Speech => "speech",
            Self::Handlers => "handlers",
            Self::Versions => "versions",
        }
    }
}

/// How a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It works.
    Works,
    /// It is not there, and nothing asks for it.
    NotNeeded,
    /// It is asked for and does not work.
    Broken,
}

/// What a part came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The part.
    pub part: Part,
    /// How it is.
    pub verdict: Verdict,
    /// In one sentence.
    pub what: String,
    /// The command that mends it; always there for what is broken.
    pub mend: Option<String>,
}

impl Finding {
    pub(crate) fn works(part: Part, what: impl Into<String>) -> Self {
        Self { part, verdict: Verdict::Works, what: what.into(), mend: None }
    }

    /// The reason follows "not there and not needed".
    pub(crate) fn not_needed(part: Part, why: impl std::fmt::Display) -> Self {
        Self { part, verdict: Verdict::NotNeeded, what: format!("not there and not needed: {why}"), mend: None }
    }

    pub(crate) fn broken(part: Part, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { part, verdict: Verdict::Broken, what: what.into(), mend: Some(mend.into()) }
    }
}
