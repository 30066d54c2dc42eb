//! What sound cards there are, for people who choose one.

use cpal::traits::{DeviceTrait as _, HostTrait as _};

use super::kernel::{Kernel, KernelCard, Names, names};
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
    /// Its other names, which the settings take too.
    pub also: Vec<String>,
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
    let of_kernel = Kernel::system().cards();
    for device in devices {
        let Ok(id) = device.id() else { continue };
        let id = id.id();
        if !is_choice(id) {
            continue;
        }
        let Names { own, also } = lasting(id, &of_kernel);
        if cards.iter().any(|card| card.id == own) {
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
        cards.push(Card { id: own, also, name, records, plays });
    }
    let there = |way| look(&CardChoice::Default, way) == Presence::There;
    let (records, plays) = (there(Way::In), there(Way::Out));
    if (records || plays) && cards.iter().all(|card| card.id != DEFAULT) {
        // ALSA has a default wherever there is a card, and lists it only where somebody gave it a description.
        let (id, name) = (DEFAULT.to_owned(), "Default sound card".to_owned());
        cards.push(Card { id, also: Vec::new(), name, records, plays });
    }
    cards.sort_by_key(|card| (card.id != DEFAULT, card.id.clone()));
    cards
}

/// The names of what ALSA calls so.
fn lasting(id: &str, of_kernel: &[KernelCard]) -> Names {
    let card = named_card(id).and_then(|(card, device)| {
        let of_that_id = of_kernel.iter().find(|one| one.id == card)?;
        Some(names(of_kernel, of_that_id, device?))
    });
    card.unwrap_or_else(|| Names { own: id.to_owned(), also: Vec::new() })
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
