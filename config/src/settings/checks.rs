//! From what was written to what is valid: one function for each kind of value, each refusing with a reason for people.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

use super::{LogFormat, PictureSize, Scheme};
use crate::usb_card::UsbCard;

/// A device's name fits the lists and pages that show it.
const NAME_BYTES_MAX: usize = 64;
/// The longest host name the domain system has.
const HOST_BYTES_MAX: usize = 253;
/// Longest name of a sound card: ALSA's own are far shorter.
const CARD_BYTES_MAX: usize = 200;
/// More host names than this are a mistake.
const HOSTS_MAX: usize = 32;
/// From a picture on which nothing can be seen to more than any camera has.
const SIDES: RangeInclusive<u32> = 16..=16_384;
/// More requests a second than any device can answer.
const RATE_PER_SECOND_MAX: u32 = 100_000;
/// A burst that would hold the device for ten seconds at the highest rate.
const RATE_BURST_MAX: u32 = 1_000_000;

pub(super) fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes, this has {}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("a name has no control characters".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an address with a port, such as \"127.0.0.1:7601\" or \"[::1]:7601\""))
}

pub(super) fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    let address = address(text)?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(format!("{text:?} is not a loopback address; the keeper's page is for this machine alone"))
    }
}

/// A host name, lower case, or an address without brackets.
pub(super) fn host(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if is_host_name(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("{text:?} is not a host name or address (without scheme and port)"))
    }
}

/// Whether the domain system could know this name.
pub(crate) fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= HOST_BYTES_MAX && text.split('.').all(label)
}

pub(super) fn hosts(texts: &[String]) -> Result<Vec<String>, String> {
    if texts.len() > HOSTS_MAX {
        return Err(format!("at most {HOSTS_MAX} names, these are {}", texts.len()));
    }
    texts.iter().map(|text| host(text)).collect()
}

pub(super) fn scheme(text: &str) -> Result<Scheme, String> {
    match text {
        "auto" => Ok(Scheme::Auto),
        "https" => Ok(Scheme::Https),
        "http" => Ok(Scheme::Http),
        _ => Err(format!("{text:?} is none of \"auto\", \"https\", \"http\"")),
    }
}

pub(super) fn camera(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') || (!text.starts_with('/') && text.contains('/')) {
        return Err(format!("{text:?} is neither a name under /dev/v4l/by-id or by-path nor a path"));
    }
    Ok(text.to_owned())
}

pub(super) fn picture_size(text: &str) -> Result<PictureSize, String> {
    let side = |text: &str| {
        // Not "+640" or "0640": one size, one spelling.
        text.parse::<u32>().ok().filter(|side| side.to_string() == text && SIDES.contains(side))
    };
    let sides = text.split_once('x').map(|(width, height)| (side(width), side(height)));
    match sides {
        Some((Some(width), Some(height))) => Ok(PictureSize { width, height }),
        _ => Err(format!(
            "{text:?} is not a size in pixels, such as \"1280x720\" (each side {} to {})",
            SIDES.start(),
            SIDES.end()
        )),
    }
}

/// A card by name. A number is refused: cards are numbered anew at each start, and another one would take its place.
pub(super) fn sound_card(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > CARD_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!("{text:?} is not a sound card's name"));
    }
    if UsbCard::is_meant(text) {
        return text.parse::<UsbCard>().map(|card| card.to_string()).map_err(|refused| refused.to_string());
    }
    let name = text.strip_prefix("alsa:").unwrap_or(text);
    let card = name.split_once(':').map(|(_, rest)| rest.strip_prefix("CARD=").unwrap_or(rest));
    if card.is_some_and(|card| card.starts_with(|first: char| first.is_ascii_digit())) {
        return Err(format!(
            "{text:?} names a card by number, which changes; name it by its name, as in plughw:CARD=NAME,DEV=0"
        ));
    }
    Ok(name.to_owned())
}

pub(super) fn led(text: &str) -> Result<String, String> {
    if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) {
        return Err(format!("{text:?} is not a name under /sys/class/leds"));
    }
    Ok(text.to_owned())
}

pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() || text.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} is not a folder's whole path, from / on and without `..`"));
    }
    Ok(path.to_owned())
}

pub(super) fn rate_per_second(rate: u32) -> Result<u32, String> {
    within(rate, RATE_PER_SECOND_MAX)
}

pub(super) fn rate_burst(burst: u32) -> Result<u32, String> {
    within(burst, RATE_BURST_MAX)
}

pub(super) fn percent(value: u32) -> Result<u8, String> {
    within(value, 100).map(|percent| u8::try_from(percent).unwrap_or(u8::MAX))
}

fn within(value: u32, most: u32) -> Result<u32, String> {
    if (1..=most).contains(&value) { Ok(value) } else { Err(format!("{value} is not within 1 and {most}")) }
}

pub(super) fn filter(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("a filter such as \"info\"".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("{text:?} is neither \"text\" nor \"json\"")),
    }
}
