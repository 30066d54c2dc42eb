//! `speech.*` and `quiet.*`: what speaks, and when nothing is said.
//!
//! Refuses a command that a shell would have to read, a voice that could be an option, and hours that no clock shows.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::layers::Layer;
use super::raw::{RawQuiet, RawSpeech};
use super::{Refusing, SettingsError};

/// A command line is longer only by mistake.
const ARGUMENTS_MAX: usize = 32;
/// The longest path.
const ARGUMENT_BYTES_MAX: usize = 4096;
/// Names of voices are short: `en-us+f3`, `mb-en1`.
const VOICE_BYTES_MAX: usize = 64;
/// Nobody keeps more times apart.
const HOURS_MAX: usize = 16;
/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;

/// `speech.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpeechSettings {
    /// A program that reads text and writes WAV, and its arguments; without it, espeak-ng. Never empty.
    pub command: Option<Vec<String>>,
    /// The voice of espeak-ng; without meaning where another program speaks.
    pub voice: Option<String>,
}

/// `quiet.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuietSettings {
    /// When nothing is said.
    pub hours: Vec<QuietHours>,
}

/// A time of day in which nothing is said, in local time; over midnight where it ends before it begins. Written `22:00-07:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    from: u16,
    until: u16,
}

impl QuietHours {
    /// The minute of the day in which it begins.
    pub const fn from_minute(&self) -> u16 {
        self.from
    }

    /// How long it lasts: 1 to 1440 minutes.
    pub const fn minutes(&self) -> u16 {
        if self.from < self.until { self.until - self.from } else { DAY_MINUTES - self.from + self.until }
    }
}

/// Why a time is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoQuietHours {
    /// It is written in another way.
    #[error("{0:?} is not a time of day such as \"22:00-07:00\"")]
    Unwritten(String),
    /// It would be nothing or everything.
    #[error("{0:?} ends when it begins; the whole day is \"00:00-24:00\"")]
    Empty(String),
}

impl FromStr for QuietHours {
    type Err = NoQuietHours;

    fn from_str(text: &str) -> Result<Self, NoQuietHours> {
        let unwritten = || NoQuietHours::Unwritten(text.to_owned());
        let (from, until) = text.split_once('-').ok_or_else(unwritten)?;
        let from = minute(from).filter(|from| *from < DAY_MINUTES).ok_or_else(unwritten)?;
        let until = minute(until).ok_or_else(unwritten)?;
        if from == until { Err(NoQuietHours::Empty(text.to_owned())) } else { Ok(Self { from, until }) }
    }
}

/// `07:05`, with two digits each, up to `24:00`.
fn minute(text: &str) -> Option<u16> {
    let two = |digits: &str| {
        let number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        number.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    Some(hours * 60 + minutes).filter(|minute| minutes < 60 && *minute <= DAY_MINUTES)
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minute: u16| (minute / 60, minute % 60);
        let ((from_h, from_m), (until_h, until_m)) = (clock(self.from), clock(self.until));
        write!(f, "{from_h:02}:{from_m:02}-{until_h:02}:{until_m:02}")
    }
}

impl Serialize for QuietHours {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub(super) fn read(
    speech: RawSpeech,
    hours: RawQuiet,
    layers: &[Layer],
) -> Result<(SpeechSettings, QuietSettings), SettingsError> {
    let on = |key: &'static str| Refusing { key, layers };
    let command = on("speech.command").optional(speech.command, command)?;
    let voice = on("speech.voice").optional(speech.voice, |text| voice(&text))?;
    let hours = on("quiet.hours").or(hours.hours, |times| quiet(&times), Vec::new())?;
    Ok((SpeechSettings { command, voice }, QuietSettings { hours }))
}

fn command(words: Vec<String>) -> Result<Vec<String>, String> {
    let Some(program) = words.first() else {
        return Err("an empty list names no program; leave the key out for espeak-ng".to_owned());
    };
    if words.len() > ARGUMENTS_MAX || words.iter().any(|word| word.len() > ARGUMENT_BYTES_MAX) {
        return Err(format!("at most {ARGUMENTS_MAX} words of at most {ARGUMENT_BYTES_MAX} bytes"));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err("no word of a command contains U+0000".to_owned());
    }
    if !program.starts_with('/') && (program.is_empty() || program.contains(['/', ' ']) || program.starts_with('-')) {
        return Err(format!(
            "{program:?} is neither a program's whole path nor its name alone; each argument is a text of its own, since no shell reads them"
        ));
    }
    Ok(words)
}

fn voice(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-+_".contains(&byte);
    if text.is_empty() || text.len() > VOICE_BYTES_MAX || text.starts_with('-') || !text.bytes().all(plain) {
        return Err(format!(
            "{text:?} is not the name of a voice, such as \"en-us\" or \"de+f2\" (letters, digits, -, + and _); see: espeak-ng --voices"
        ));
    }
    Ok(text.to_owned())
}

fn quiet(times: &[String]) -> Result<Vec<QuietHours>, String> {
    if times.len() > HOURS_MAX {
        return Err(format!("at most {HOURS_MAX} times, these are {}", times.len()));
    }
    times.iter().map(|time| time.parse().map_err(|error: NoQuietHours| error.to_string())).collect()
}
