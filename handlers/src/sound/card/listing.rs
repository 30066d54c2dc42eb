//! What sound cards there are, for people who choose one.

use cpal::traits::{DeviceTrait as _, HostTrait as _};

use super::presence::{Presence, look, named_card};
use super::{CardChoice, DEFAULT, Way, hush};

/// Ways through ALSA that are no card, or none that a person would choose: its own plug-ins, and names for one part of a card.
const NOT_CARDS: &[&str] =
    &["null", "samplerate", "speexrate", "lavrate", "speex", "upmix", "vdownmix", "jack", "oss", "a52", "lavcrate"];
/// How a card is named here: with conversions, so that it can be used by several ways.
const PREFIX: &str = "plughw:";

/// A sound card, or a sound server in the place of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its lasting name, as the settings take it: it does not change when cards are numbered anew.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whether it can be listened with.
    pub records: bool,
    /// Whether it can be heard.
    pub plays: bool,
}

/// The cards there are now, the default one first. Opens none.
pub fn cards() -> Vec<Card> {
    hush();
    let Ok(host) = cpal::host_from_id(cpal::HostId::Alsa) else { return Vec::new() };
    let Ok(devices) = host.devices() else { return Vec::new() };
    let mut cards: Vec<Card> = Vec::new();
    for device in devices {
        let Ok(id) = device.id() else { continue };
        let id = id.id();
        if !is_choice(id) || cards.iter().any(|card| card.id == id) {
            continue;
        }
        let name = device.description().map_or_else(|_| id.to_owned(), |description| description.name().to_owned());
        // What is no card of the kernel is believed; a card that ALSA lists for both ways may have one.
        let there = |way, said| match look(&CardChoice::of_setting(Some(id)), way) {
            Presence::There => true,
            Presence::Absent => false,
            Presence::Unknown => said,
        };
        let (records, plays) = (there(Way::In, device.supports_input()), there(Way::Out, device.supports_output()));
        cards.push(Card { id: id.to_owned(), name, records, plays });
    }
    let there = |way| look(&CardChoice::Default, way) == Presence::There;
    let (records, plays) = (there(Way::In), there(Way::Out));
    if (records || plays) && cards.iter().all(|card| card.id != DEFAULT) {
        // ALSA has a default wherever there is a card, and lists it only where somebody gave it a description.
        cards.push(Card { id: DEFAULT.to_owned(), name: "Default sound card".to_owned(), records, plays });
    }
    cards.sort_by_key(|card| (card.id != DEFAULT, card.id.clone()));
    cards
}

/// Whether people may choose it: the default, a sound server, or a card by its name.
fn is_choice(id: &str) -> bool {
    match named_card(id) {
        Some((card, device)) => {
            id.starts_with(PREFIX) && device.is_some() && !card.starts_with(|first: char| first.is_ascii_digit())
        }
        None => !id.contains(':') && !NOT_CARDS.contains(&id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_offered_by_name_and_never_by_number() {
        let rows = [
            ("default", true),
            ("pulse", true),
            ("plughw:CARD=PCH,DEV=0", true),
            ("plughw:CARD=0,DEV=0", false),
            ("hw:CARD=PCH,DEV=0", false),
            ("front:CARD=PCH,DEV=0", false),
            ("sysdefault:CARD=PCH", false),
            ("null", false),
            ("speexrate", false),
        ];
        for (id, offered) in rows {
            assert_eq!(is_choice(id), offered, "{id}");
        }
    }
}
