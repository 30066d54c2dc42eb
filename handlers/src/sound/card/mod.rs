//! Sound cards of the system, through cpal and ALSA.
//!
//! Finds a card by its name, asks what it advertises, and turns the system's errors into [`SoundFault`]s. A card that was named is that
//! card or none: one on USB is looked up by what is lasting about it at each opening, and again once it is open. Cards are looked for anew each time, and nothing stays open between two sounds.

use std::str::FromStr as _;

use config::UsbCard;
use cpal::traits::{DeviceTrait as _, HostTrait as _};
use cpal::{ErrorKind, SampleFormat, SupportedBufferSize, SupportedStreamConfigRange};

use self::kernel::{Kernel, KernelCard, Lost};
use super::SoundFault;
use super::flow::Upset;
use super::form::{Form, Format, Offer};

mod identity;
mod kernel;
mod listing;
#[cfg(test)]
mod loopback;
mod playback;
mod presence;
mod recording;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod usb;

pub use listing::{Card, cards};
pub use playback::CardPlayback;
pub use recording::CardRecording;

/// Which card the keeper chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardChoice {
    /// What ALSA calls `default`.
    Default,
    /// This one on USB and no other, by what is lasting about it.
    Usb(UsbCard),
    /// This one and no other, by a name of ALSA's.
    Named(String),
}

impl CardChoice {
    /// The card that a setting names; unset, or `default`, is the default one.
    pub fn of_setting(setting: Option<&str>) -> Self {
        match setting {
            None | Some(DEFAULT) => Self::Default,
            Some(name) => name.parse().map_or_else(|_| Self::Named(name.to_owned()), Self::Usb),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Default => "default sound card".to_owned(),
            Self::Usb(card) => card.to_string(),
            Self::Named(name) => name.clone(),
        }
    }
}

/// What ALSA calls its default card.
const DEFAULT: &str = "default";
/// How cpal marks its names of ALSA's devices.
const ALSA: &str = "alsa:";
/// How ALSA names a card of the kernel, with conversions, so that it can be used by several ways.
const CARD_NAME: &str = "plughw:CARD=";

/// Which way sound goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Into this program.
    In,
    /// Out of it.
    Out,
}

impl Way {
    /// What a card for it does.
    const fn verb(self) -> &'static str {
        match self {
            Self::In => "record",
            Self::Out => "play",
        }
    }
}

/// Keeps what ALSA's library would write to stderr in this thread away from there.
fn hush() {
    // Without it the lines appear, and nothing else changes.
    let _ = alsa::Output::local_error_handler();
}

/// The chosen card, as it was found.
struct Found {
    device: cpal::Device,
    /// What a name for a card on USB led to.
    usb: Option<(UsbCard, KernelCard)>,
}

impl Found {
    /// Refuses a card that is not any more what was chosen: it went, and another one may have its number. Asked between opening and the first sound.
    fn is_still_it(&self) -> Result<(), SoundFault> {
        let Some((name, card)) = &self.usb else { return Ok(()) };
        match Kernel::system().resolve(name) {
            Ok(now) if now.is(card) => Ok(()),
            Ok(_) | Err(Lost::Gone) => Err(SoundFault::Unplugged),
            Err(several) => Err(several.fault(name)),
        }
    }
}

/// Looks for the chosen card.
fn find(choice: &CardChoice, way: Way) -> Result<Found, SoundFault> {
    hush();
    let host = cpal::host_from_id(cpal::HostId::Alsa);
    let host = host.map_err(|error| SoundFault::Missing(format!("ALSA is not available: {error}")))?;
    let named = |name: &str| {
        let id = cpal::DeviceId::from_str(&format!("{ALSA}{}", name.trim_start_matches(ALSA)));
        id.ok().and_then(|id| host.device_by_id(&id))
    };
    let (device, usb) = match choice {
        CardChoice::Default => match way {
            Way::In => (host.default_input_device(), None),
            Way::Out => (host.default_output_device(), None),
        },
        CardChoice::Named(name) => (named(name), None),
        CardChoice::Usb(name) => {
            let card = Kernel::system().resolve(name).map_err(|lost| lost.fault(name))?;
            (named(&card.alsa_name(name.device)), Some((name.clone(), card)))
        }
    };
    let device = device.ok_or_else(|| presence::missing(choice, way))?;
    Ok(Found { device, usb })
}

/// What the card advertises that way. Opens it for a moment.
fn offers(found: &Found, choice: &CardChoice, way: Way) -> Result<Vec<Offer>, SoundFault> {
    let device = &found.device;
    let offered: Result<Vec<Offer>, cpal::Error> = match way {
        Way::In => device.supported_input_configs().map(|all| all.filter_map(|one| offer(&one)).collect()),
        Way::Out => device.supported_output_configs().map(|all| all.filter_map(|one| offer(&one)).collect()),
    };
    let offered = offered.map_err(|error| cannot_open(&error, choice, way))?;
    if offered.is_empty() {
        return Err(SoundFault::Unusable(format!("{} offers no form of sound that is known here", choice.describe())));
    }
    Ok(offered)
}

fn offer(range: &SupportedStreamConfigRange) -> Option<Offer> {
    let period_frames = match *range.buffer_size() {
        SupportedBufferSize::Range { min, max } => Some(min..=max),
        SupportedBufferSize::Unknown => None,
    };
    Some(Offer {
        format: format(range.sample_format())?,
        channels: range.channels(),
        rates_hz: range.min_sample_rate()..=range.max_sample_rate(),
        period_frames,
    })
}

const fn format(format: SampleFormat) -> Option<Format> {
    match format {
        SampleFormat::I8 => Some(Format::I8),
        SampleFormat::U8 => Some(Format::U8),
        SampleFormat::I16 => Some(Format::I16),
        SampleFormat::U16 => Some(Format::U16),
        SampleFormat::I24 => Some(Format::I24),
        SampleFormat::I32 => Some(Format::I32),
        SampleFormat::F32 => Some(Format::F32),
        SampleFormat::F64 => Some(Format::F64),
        // Rare, or not samples at all.
        _ => None,
    }
}

const fn sample_format(format: Format) -> SampleFormat {
    match format {
        Format::I8 => SampleFormat::I8,
        Format::U8 => SampleFormat::U8,
        Format::I16 => SampleFormat::I16,
        Format::U16 => SampleFormat::U16,
        Format::I24 => SampleFormat::I24,
        Format::I32 => SampleFormat::I32,
        Format::F32 => SampleFormat::F32,
        Format::F64 => SampleFormat::F64,
    }
}

/// Opens a card in a form; where it will not have pieces of our size, in its own.
fn build<T>(form: &Form, build: impl Fn(cpal::StreamConfig) -> Result<T, cpal::Error>) -> Result<T, cpal::Error> {
    let config = |buffer_size| cpal::StreamConfig { channels: form.channels, sample_rate: form.rate_hz, buffer_size };
    if let Some(period) = form.period_frames {
        match build(config(cpal::BufferSize::Fixed(period))) {
            Err(error) if error.kind() == ErrorKind::UnsupportedConfig => {}
            done => return done,
        }
    }
    build(config(cpal::BufferSize::Default))
}

/// Why a card could not be opened.
fn cannot_open(error: &cpal::Error, choice: &CardChoice, way: Way) -> SoundFault {
    match error.kind() {
        ErrorKind::DeviceBusy => SoundFault::Busy,
        ErrorKind::DeviceNotAvailable | ErrorKind::HostUnavailable => presence::missing(choice, way),
        ErrorKind::PermissionDenied => presence::forbidden(),
        ErrorKind::UnsupportedConfig | ErrorKind::UnsupportedOperation | ErrorKind::InvalidInput => {
            SoundFault::Unusable(format!("{} cannot {}: {error}", choice.describe(), way.verb()))
        }
        _ => SoundFault::Driver(error.to_string()),
    }
}

/// What a driver says while sound flows.
fn upset(error: &cpal::Error) -> Upset {
    match error.kind() {
        ErrorKind::Xrun => Upset::Gap,
        ErrorKind::DeviceNotAvailable => Upset::Gone,
        _ => Upset::Other(error.to_string()),
    }
}

/// Whether another form may mend it.
const fn another_form_may_help(fault: &SoundFault) -> bool {
    match fault {
        SoundFault::Unusable(_) | SoundFault::Driver(_) | SoundFault::Silent => true,
        SoundFault::Missing(_)
        | SoundFault::Ambiguous(_)
        | SoundFault::Busy
        | SoundFault::Unplugged
        | SoundFault::Forbidden(_)
        | SoundFault::Stopped => false,
    }
}
