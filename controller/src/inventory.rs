//! What one agent knows of its devices: names, pinned keys, addresses, pending changes, and which may still be active.
//!
//! An inventory is a convenience, never the truth: that is the device's signed answer. It belongs to one agent and is
//! changed by that agent's [`Controller`](crate::Controller) alone, which hands each new version to a [`Store`].
//! Reading is strict; a file that does not fit is named, left as it is, and nothing is written over it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use wire::keys::PublicKey;
use wire::pairing::{ClaimCode, PairingLink};
use wire::text::{Agent, Id};

use crate::activation::Hold;

/// The form of the file. A reader of an older form refuses a newer one rather than losing what it does not know.
const VERSION: u64 = 1;

/// The largest inventory file: several thousand devices.
pub(crate) const INVENTORY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Longest local name: fits a table and a command line.
const NAME_BYTES_MAX: usize = 64;

/// Characters of a key that may stand for the whole: fewer would match by accident.
const KEY_PREFIX_MIN: usize = 6;

/// How much a typed name may differ from a known one to be offered as what was meant.
const SIMILAR_MIN: f64 = 0.7;

/// Where a device listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// TLS with the device's key; plain HTTP only if the pairing link said so.
    pub tls: bool,
    /// Name or IP literal, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Address {
    /// `host:port`, IPv6 in brackets, as the `Host` header has it.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Whether the address cannot leave this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

impl From<&PairingLink> for Address {
    fn from(link: &PairingLink) -> Self {
        Self { tls: link.tls, host: link.host.clone(), port: link.port }
    }
}

/// Why a text cannot name a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or too much.
    #[error("a device name has 1 to {NAME_BYTES_MAX} bytes")]
    Length,
    /// A character that would not survive a command line.
    #[error("a device name has letters, digits, `-`, `_` and `.` only, and starts with a letter or digit")]
    Character,
}

/// A local name for a device: letters and digits of any script, `-`, `_`, `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

impl DeviceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name made of what a device calls itself: what does not fit becomes `-`.
    #[must_use]
    pub(crate) fn from_device(own: &str) -> Self {
        let mut name = String::new();
        for c in own.chars() {
            let c = if c.is_alphanumeric() || matches!(c, '_' | '.') { c } else { '-' };
            if c == '-' && (name.is_empty() || name.ends_with('-')) {
                continue;
            }
            if name.len() + c.len_utf8() > NAME_BYTES_MAX {
                break;
            }
            name.push(c);
        }
        name.trim_matches(|c| matches!(c, '-' | '_' | '.')).parse().unwrap_or_else(|_| Self("device".to_owned()))
    }

    /// This name, or the first of `name-2`, `name-3`, … that is not `taken`.
    #[must_use]
    pub(crate) fn free_among(&self, taken: impl Fn(&Self) -> bool) -> Self {
        let mut candidate = self.clone();
        let mut number = 2_u32;
        while taken(&candidate) {
            let suffix = format!("-{number}");
            let mut base = self.0.clone();
            while base.len() + suffix.len() > NAME_BYTES_MAX {
                base.pop();
            }
            candidate = Self(base + &suffix);
            number = number.saturating_add(1);
        }
        candidate
    }
}

impl FromStr for DeviceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(NameError::Length);
        }
        let fits = text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !fits || !text.starts_with(char::is_alphanumeric) {
            return Err(NameError::Character);
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for DeviceName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the device and this agent stand, as far as is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Asked for, not approved.
    Claiming,
    /// Approved.
    Owned,
    /// Transferred or released; kept until forgotten.
    Gone,
}

/// What the keeper was asked to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// This agent wants the device.
    Claim,
    /// Another agent shall have it.
    Transfer {
        /// The new owner.
        to: Agent,
    },
    /// Nobody shall have it.
    Release,
}

/// How a change stands (section 7, `change.status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeState {
    /// The keeper has not answered.
    Pending,
    /// Done.
    Approved,
    /// The keeper said no.
    Refused,
    /// The keeper said nothing in time.
    Expired,
}

/// A change of owner that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which change.
    pub kind: ChangeKind,
    /// The id of its request, under which `change.status` finds it.
    pub id: Id,
    /// What the keeper compares; a release has none, and a claim has none until it is answered.
    pub code: Option<ClaimCode>,
    /// When it was asked for, on the wall clock.
    pub asked_at: u64,
    /// When it expires, on the wall clock.
    pub expires_at: u64,
    /// The last known state.
    pub state: ChangeState,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The local name.
    pub name: DeviceName,
    /// Whether a person chose the name, so that the device's own does not replace it.
    pub named: bool,
    /// The pinned key.
    pub key: PublicKey,
    /// Where it listens.
    pub address: Address,
    /// How it stands.
    pub standing: Standing,
    /// The change under way, or how the last one ended if not as wished.
    pub change: Option<Change>,
    /// How long it may still be active.
    pub hold: Option<Hold>,
}

/// Why a text finds no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No name, key or fingerprint like it.
    #[error("no device is called {wanted}{}", .meant.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The most similar name.
        meant: Option<DeviceName>,
    },
    /// More than one.
    #[error("{wanted} fits more than one device: {}", .fitting.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Names of the devices it fits.
        fitting: Vec<String>,
    },
}

/// The one device among `devices` that `wanted` names: by its whole name, or else by a fingerprint or a key, whole or the
/// first six or more of its characters.
///
/// # Errors
///
/// [`NotFound`].
pub fn find<'a>(devices: impl Iterator<Item = &'a Device> + Clone, wanted: &str) -> Result<&'a Device, NotFound> {
    let ambiguous = |fitting: Vec<&Device>| NotFound::Ambiguous {
        wanted: wanted.to_owned(),
        fitting: fitting.iter().map(|device| format!("{} ({})", device.name, device.key)).collect(),
    };
    let named: Vec<_> = devices.clone().filter(|device| device.name.as_str() == wanted).collect();
    match named.as_slice() {
        [] => {}
        [one] => return Ok(one),
        [_, ..] => return Err(ambiguous(named)),
    }
    let keyed: Vec<_> = devices.clone().filter(|device| key_fits(&device.key, wanted)).collect();
    match keyed.as_slice() {
        [] => Err(NotFound::Unknown { wanted: wanted.to_owned(), meant: similar(devices, wanted) }),
        [one] => Ok(one),
        [_, ..] => Err(ambiguous(keyed)),
    }
}

fn key_fits(key: &PublicKey, wanted: &str) -> bool {
    let (whole, part) = match wanted.strip_prefix("ed25519:") {
        Some(part) => (key.fingerprint(), part),
        None => (key.to_string(), wanted),
    };
    part.len() >= KEY_PREFIX_MIN && whole.trim_start_matches("ed25519:").starts_with(part)
}

fn similar<'a>(devices: impl Iterator<Item = &'a Device>, wanted: &str) -> Option<DeviceName> {
    devices
        .map(|device| (strsim::jaro_winkler(device.name.as_str(), wanted), &device.name))
        .filter(|(likeness, _)| *likeness >= SIMILAR_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.clone())
}

/// The devices of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// In the order in which they came.
    pub devices: Vec<Device>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: u64,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

/// Why bytes are no inventory.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// Not the JSON it should be.
    #[error("it is damaged")]
    Damaged(#[source] wire::json::JsonError),
    /// Written by a newer version.
    #[error("a newer latchkey wrote it (form {0}, this one knows {VERSION})")]
    Newer(u64),
    /// Two entries with one name or one key.
    #[error("it lists {0} twice")]
    Twice(String),
}

impl Inventory {
    /// Reads the JSON of [`Self::to_json`].
    ///
    /// # Errors
    ///
    /// [`InventoryError`] for anything else.
    pub fn from_json(bytes: &[u8]) -> Result<Self, InventoryError> {
        let VersionOnly { version } = wire::json::read(bytes).map_err(InventoryError::Damaged)?;
        if version != VERSION {
            return Err(InventoryError::Newer(version));
        }
        let Raw { devices, .. } = wire::json::read(bytes).map_err(InventoryError::Damaged)?;
        for (at, device) in devices.iter().enumerate() {
            if devices.iter().take(at).any(|other| other.key == device.key || other.name == device.name) {
                return Err(InventoryError::Twice(device.name.to_string()));
            }
        }
        Ok(Self { devices })
    }

    /// The inventory as JSON, for people to read too.
    ///
    /// # Errors
    ///
    /// None that these types can cause.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec_pretty(&Raw { version: VERSION, devices: self.devices.clone() })?;
        json.push(b'\n');
        Ok(json)
    }

    /// The device with this key.
    #[must_use]
    pub fn device(&self, key: &PublicKey) -> Option<&Device> {
        self.devices.iter().find(|device| device.key == *key)
    }

    /// The device with this key, to change.
    pub(crate) fn device_mut(&mut self, key: &PublicKey) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.key == *key)
    }
}

/// Why an inventory cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not an inventory; it stays as it is.
    #[error("{} cannot be used and was left as it is", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: InventoryError,
    },
    /// The file or its folder.
    #[error("the inventory cannot be read or kept")]
    File(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Where an agent's inventory is kept between two uses.
pub trait Store: Send + Sync {
    /// The last kept inventory; an empty one if there never was any.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the caller then neither sends nor saves.
    fn load(&self) -> Result<Inventory, StoreError>;

    /// Keeps `inventory`, whole or not at all, before it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the former one is then still kept.
    fn save(&self, inventory: &Inventory) -> Result<(), StoreError>;
}

/// An inventory that ends with the process, for servers that keep theirs elsewhere.
#[derive(Debug, Default)]
pub struct InMemory(Mutex<Inventory>);

impl Store for InMemory {
    fn load(&self) -> Result<Inventory, StoreError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn save(&self, inventory: &Inventory) -> Result<(), StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone_from(inventory);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
