//! Whether a card is there, as the kernel shows it without any card being opened, and the words for one that is not.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Access, access};

use super::kernel::Kernel;
use super::{ALSA, CardChoice, Way};
use crate::clock::{BootTime, Clock as _, SystemClock};
use crate::sound::SoundFault;

/// Where the kernel lists its cards.
const CARDS: &str = "/proc/asound";
/// Where their devices are.
const DEVICES: &str = "/dev/snd";
/// How long it is believed whether a default that is no card of the kernel can be opened.
pub(super) const BELIEVED: Duration = Duration::from_secs(5);
/// The list of all devices is about a line a device.
const LIST_BYTES_MAX: usize = 64 * 1024;

/// What the kernel says of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Absent,
    /// It is not a card of the kernel; only opening it would tell.
    Unknown,
}

/// What is known of cards that the kernel does not know: each choice and way with the moment when it was last opened, or not.
static OPENED: Mutex<Vec<(CardChoice, Way, BootTime, bool)>> = Mutex::new(Vec::new());
/// Choices that are remembered; a device has two at a time, and settings change seldom.
const CHOICES_MAX: usize = 8;

/// Remembers whether a card could be opened.
pub(super) fn remember(choice: &CardChoice, way: Way, opened: bool) {
    let mut known = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(other, other_way, ..)| other != choice || *other_way != way);
    if known.len() >= CHOICES_MAX {
        known.remove(0);
    }
    known.push((choice.clone(), way, SystemClock.boot(), opened));
}

/// When a card was last opened, or not.
pub(super) fn remembered(choice: &CardChoice, way: Way) -> Option<(BootTime, bool)> {
    let known = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|(other, other_way, ..)| other == choice && *other_way == way);
    found.map(|(_, _, at, opened)| (*at, *opened))
}

/// Whether a card could not be opened a moment ago.
fn failed_lately(choice: &CardChoice, way: Way) -> bool {
    remembered(choice, way).is_some_and(|(at, opened)| !opened && SystemClock.boot().since(at) < BELIEVED)
}

/// What the kernel says of `choice`.
pub(super) fn look(choice: &CardChoice, way: Way) -> Presence {
    look_in(Path::new(CARDS), choice, way)
}

fn look_in(cards: &Path, choice: &CardChoice, way: Way) -> Presence {
    let there = |there| if there { Presence::There } else { Presence::Absent };
    match choice {
        // A default that could not be opened a moment ago leads to none of the cards there are.
        CardChoice::Default if any(cards, way) && !failed_lately(choice, way) => Presence::There,
        CardChoice::Default => Presence::Unknown,
        CardChoice::Usb(name) => match Kernel::system().resolve(name) {
            Ok(card) => look_in(cards, &CardChoice::Named(card.alsa_name(name.device)), way),
            Err(_) => Presence::Absent,
        },
        CardChoice::Named(name) => match named_card(name) {
            Some((card, Some(device))) => {
                let end = if way == Way::In { 'c' } else { 'p' };
                there(cards.join(card).join(format!("pcm{device}{end}")).exists())
            }
            Some((card, None)) => there(cards.join(card).exists()),
            None => Presence::Unknown,
        },
    }
}

/// The card that a name such as `plughw:CARD=PCH,DEV=0` speaks of, and its device.
pub(super) fn named_card(name: &str) -> Option<(&str, Option<u32>)> {
    let (_, parts) = name.trim_start_matches(ALSA).split_once(':')?;
    let part = |wanted: &str| parts.split(',').find_map(|part| part.trim().strip_prefix(wanted)?.strip_prefix('='));
    let card = part("CARD").filter(|card| !card.is_empty() && !card.contains(['/', '.']))?;
    Some((card, part("DEV").and_then(|device| device.parse().ok())))
}

/// Whether the kernel has any device for that way.
fn any(cards: &Path, way: Way) -> bool {
    let Ok(bytes) = fs::read(cards.join("pcm")) else { return false };
    let list = String::from_utf8_lossy(bytes.get(..LIST_BYTES_MAX).unwrap_or(&bytes)).into_owned();
    let word = if way == Way::In { "capture" } else { "playback" };
    list.lines().any(|line| line.split(':').skip(2).any(|part| part.trim_start().starts_with(word)))
}

/// Why a card that was not found is not there: absent, or closed to us.
pub(super) fn missing(choice: &CardChoice, way: Way) -> SoundFault {
    if look(choice, way) != Presence::Absent && closed_to_us() {
        return forbidden();
    }
    absent(choice, way)
}

/// The words for a card that is absent.
pub(super) fn absent(choice: &CardChoice, way: Way) -> SoundFault {
    let or_cannot = |name: &str| format!("the sound card {name} is not connected, or cannot {}", way.verb());
    SoundFault::Missing(match choice {
        CardChoice::Default => format!("there is no sound card that can {} on this device", way.verb()),
        CardChoice::Usb(name) => match Kernel::system().resolve(name) {
            Err(lost) => return lost.fault(name),
            Ok(_) => or_cannot(&name.to_string()),
        },
        CardChoice::Named(name) => or_cannot(name),
    })
}

/// The words for a card that may not be opened.
pub(super) fn forbidden() -> SoundFault {
    SoundFault::Forbidden("this program may not open the sound card; add its user to the group audio".to_owned())
}

/// Whether there are sound devices and none of them may be opened.
fn closed_to_us() -> bool {
    let Ok(entries) = fs::read_dir(DEVICES) else { return false };
    let mut devices = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("pcm"))
        .peekable();
    devices.peek().is_some() && devices.all(|entry| access(entry.path(), Access::READ_OK | Access::WRITE_OK).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_card_and_a_number_or_a_path_is_none() {
        let rows = [
            ("plughw:CARD=PCH,DEV=3", Some(("PCH", Some(3)))),
            ("alsa:hw:CARD=Loopback,DEV=0", Some(("Loopback", Some(0)))),
            ("sysdefault:CARD=USB", Some(("USB", None))),
            ("plughw:CARD=../../etc,DEV=0", None),
            ("default", None),
            ("pulse", None),
            ("hw:CARD=", None),
        ];
        for (name, card) in rows {
            assert_eq!(named_card(name), card, "{name}");
        }
    }

    #[test]
    fn a_card_is_there_when_the_kernel_lists_it_for_that_way() {
        let folder = tempfile::tempdir().unwrap();
        let cards = folder.path();
        let named = |name: &str| CardChoice::Named(name.to_owned());
        let both = |choice: &CardChoice| [look_in(cards, choice, Way::In), look_in(cards, choice, Way::Out)];
        assert_eq!(
            both(&CardChoice::Default),
            [Presence::Unknown; 2],
            "no card at all; a sound server may still be there"
        );
        fs::create_dir_all(cards.join("USB/pcm0c")).unwrap();
        fs::write(cards.join("pcm"), "00-00: USB Audio : USB Audio : capture 1\n").unwrap();
        assert_eq!(both(&CardChoice::Default), [Presence::There, Presence::Unknown]);
        assert_eq!(both(&named("plughw:CARD=USB,DEV=0")), [Presence::There, Presence::Absent]);
        assert_eq!(both(&named("plughw:CARD=PCH,DEV=0")), [Presence::Absent; 2]);
        assert_eq!(both(&named("pulse")), [Presence::Unknown; 2]);
        fs::write(cards.join("pcm"), "00-00: playback : capture : playback 8 : capture 8\n").unwrap();
        assert_eq!(both(&CardChoice::Default), [Presence::There; 2]);
    }
}
