//! The sound cards as the kernel shows them in `/sys`, and which of them has a lasting name now.
//!
//! Called at each opening of a card on USB, and again once it is open: a card that went while another one took its number is told by that.
//! Opens no sound device. Believes nothing that a card says of itself beyond its own name: what cannot be read is no identity, and a name
//! that two cards have is none of theirs.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::{UsbCard, UsbKind, UsbMark};

use super::{CARD_NAME, identity};
use crate::sound::SoundFault;

/// More than the kernel gives numbers to.
const CARDS_MAX: usize = 256;
/// A file of sysfs is at most a page.
const FILE_BYTES_MAX: u64 = 4096;

/// Where the kernel shows its cards; another folder than `/` in tests.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    class: PathBuf,
}

/// A card of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelCard {
    pub(super) number: u32,
    /// What ALSA calls it: the kind, and a number behind it where there are several.
    pub(super) id: String,
    /// One life of a card: the kernel gives its folder a number that no later one gets.
    life: u64,
    usb: Option<UsbPlace>,
}

/// A card on USB.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UsbPlace {
    kind: UsbKind,
    /// None where nothing lasting is known of the way to it.
    port: Option<UsbMark>,
    /// The folder of the USB device. Its serial number is read only when it is needed, since the kernel lets that wait while the device
    /// is being set up.
    folder: PathBuf,
}

impl UsbPlace {
    fn serial(&self) -> Option<UsbMark> {
        let bytes = read(&self.folder.join("serial"))?;
        identity::of_serial(bytes.strip_suffix(b"\n").unwrap_or(&bytes))
    }

    fn has(&self, name: &UsbCard) -> bool {
        self.kind == name.kind
            && match &name.mark {
                UsbMark::Port(_) => self.port.as_ref() == Some(&name.mark),
                UsbMark::Serial(_) => self.serial().as_ref() == Some(&name.mark),
            }
    }
}

/// Why no card can be used under a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// None has it.
    Gone,
    /// These have it; each with a name that is its own.
    Several(Vec<String>),
}

impl Lost {
    /// In words, about the name that was looked for.
    pub(super) fn fault(self, name: &UsbCard) -> SoundFault {
        match self {
            Self::Gone => SoundFault::Missing(format!("the sound card {name} is not connected")),
            Self::Several(own) => {
                let (count, own) = (own.len(), own.join(" or "));
                SoundFault::Ambiguous(format!("{count} sound cards have the name {name}; write {own} instead"))
            }
        }
    }
}

/// The names of a card, the one to choose it by first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) own: String,
    pub(super) also: Vec<String>,
}

impl Kernel {
    /// Of this system.
    pub(super) fn system() -> Self {
        Self::under(Path::new("/"))
    }

    pub(super) fn under(root: &Path) -> Self {
        Self { class: root.join("sys/class/sound") }
    }

    /// The cards there are now.
    pub(super) fn cards(&self) -> Vec<KernelCard> {
        let Ok(entries) = fs::read_dir(&self.class) else { return Vec::new() };
        let numbers = entries.filter_map(Result::ok).filter_map(|entry| number(entry.file_name().to_str()?));
        let mut cards: Vec<KernelCard> = numbers.take(CARDS_MAX).filter_map(|number| self.card(number)).collect();
        cards.sort_by_key(|card| card.number);
        cards
    }

    fn card(&self, number: u32) -> Option<KernelCard> {
        let folder = self.class.join(format!("card{number}"));
        let life = fs::metadata(&folder).ok()?.ino();
        let id = String::from_utf8(read(&folder.join("id"))?).ok()?.trim_end().to_owned();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        if id.is_empty() || !id.chars().all(plain) {
            return None;
        }
        let usb = fs::canonicalize(folder.join("device")).ok().and_then(|device| usb(&device));
        Some(KernelCard { number, id, life, usb })
    }

    /// The one card that has this name now.
    pub(super) fn resolve(&self, name: &UsbCard) -> Result<KernelCard, Lost> {
        let cards = self.cards();
        let mut having = cards.iter().filter(|card| card.usb.as_ref().is_some_and(|usb| usb.has(name)));
        match (having.next(), having.next()) {
            (None, _) => Err(Lost::Gone),
            (Some(card), None) => Ok(card.clone()),
            (Some(one), Some(other)) => {
                let all = [one, other].into_iter().chain(having);
                Err(Lost::Several(all.map(|card| names(&cards, card, name.device).own).collect()))
            }
        }
    }
}

/// What a card may be called in the settings: by its serial number if no other has the same, else by its place, else as ALSA does.
pub(super) fn names(cards: &[KernelCard], card: &KernelCard, device: u32) -> Names {
    let alsa = card.alsa_name(device);
    let Some(usb) = &card.usb else { return Names { own: alsa, also: Vec::new() } };
    let name = |mark| UsbCard { kind: usb.kind, mark, device };
    let alone = |name: &UsbCard| {
        let others = cards.iter().filter(|other| other.number != card.number);
        others.filter_map(|other| other.usb.as_ref()).all(|other| !other.has(name))
    };
    let mut names: Vec<String> = usb
        .serial()
        .into_iter()
        .chain(usb.port.clone())
        .map(name)
        .filter(alone)
        .map(|name| name.to_string())
        .chain([alsa])
        .collect();
    let own = names.remove(0);
    Names { own, also: names }
}

impl KernelCard {
    /// Whether both are the same card in the same life of it.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.number, self.life) == (other.number, other.life)
    }

    /// As ALSA opens it, with conversions.
    pub(super) fn alsa_name(&self, device: u32) -> String {
        format!("{CARD_NAME}{},DEV={device}", self.id)
    }
}

/// The USB device that a card is a part of, and where it is plugged in.
fn usb(part: &Path) -> Option<UsbPlace> {
    let (folder, kind) = part.ancestors().find_map(|folder| {
        let kind = UsbKind::spelled(&text(&folder.join("idVendor"))?, &text(&folder.join("idProduct"))?)?;
        Some((folder, kind))
    })?;
    Some(UsbPlace { kind, port: port(part, folder), folder: folder.to_owned() })
}

/// Where a part of the USB device in `folder` is plugged in.
fn port(part: &Path, folder: &Path) -> Option<UsbMark> {
    // `1-2.4:1.0` is the first part of what is plugged into port 4 of the hub at port 2. The number before it is the bus's, dealt anew at
    // each start; the controller that has the bus stands in its place.
    let ports = part.file_name()?.to_str()?.split_once('-')?.1;
    let hub =
        folder.ancestors().find(|folder| folder.file_name().is_some_and(|name| is_bus(&name.to_string_lossy())))?;
    // The two buses of one controller, of USB 2 and 3, number their ports alike.
    let version = text(&hub.join("version")).and_then(|text| text.chars().next()).filter(char::is_ascii_digit);
    let bus = version.map_or_else(|| "usb".to_owned(), |version| format!("usbv{version}"));
    Some(identity::of_port(&format!("{}-{bus}-0:{ports}", controller(hub.parent()?)?)))
}

/// The lasting name of a USB controller, as udev spells it: `pci-0000:00:14.0`. Nothing where it has none.
fn controller(folder: &Path) -> Option<String> {
    // `xhci-hcd.0.auto` has its number by the order at this start, and so has a `dwc3.1.auto` above it; what they belong to has an address.
    let lasting = folder.ancestors().find(|folder| folder.extension().is_none_or(|end| end != "auto"))?;
    let name = lasting.file_name()?.to_str()?;
    let subsystem = fs::read_link(lasting.join("subsystem")).ok();
    match subsystem.as_deref().and_then(Path::file_name) {
        Some(subsystem) => Some(format!("{}-{name}", subsystem.to_str()?)),
        // Above the last of them is a folder that is no device, whatever it is called.
        None => (lasting == folder).then(|| name.to_owned()),
    }
}

/// `usb1`: the hub that a controller itself is.
fn is_bus(name: &str) -> bool {
    let number = name.strip_prefix("usb").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number in `card3`.
fn number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("card")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

fn text(file: &Path) -> Option<String> {
    Some(String::from_utf8(read(file)?).ok()?.trim().to_owned())
}

fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
