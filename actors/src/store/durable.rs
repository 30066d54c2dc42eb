//! The state that outlives a restart: who owns the device, what is granted, which changes wait.
//!
//! Plain data, as it lies in the database; members it does not know are refused as damage. The rules over it are in `ownership`.

use std::collections::{BTreeMap, BTreeSet};

use config::digest::Digest;
use serde::{Deserialize, Serialize};
use wire::{Agent, CapabilityName, ClaimCode, GrantName, Id, PublicKey, Salt};

/// Ownership, grants and changes. Only the state actor writes it; it is replaced as a whole, in one transaction with the
/// record that tells of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durable {
    /// Grows with each change of owner.
    pub ownership: u64,
    /// The owner.
    pub owner: Option<OwnerRow>,
    /// The grants that are on; everything else is off.
    pub grants: BTreeMap<GrantName, GrantRow>,
    /// Changes that wait, and decided ones that still answer `change.status`.
    pub changes: Vec<Change>,
    /// How many transfers or releases were refused in a row.
    pub refusals: u32,
    /// Until then no transfer or release is taken.
    pub refused_until: Option<Deadline>,
    /// The boot on whose clock the deadlines count.
    pub boot_id: String,
    /// Grants that were turned off because the handler behind them changed or went, until the keeper grants or revokes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub withdrawn: BTreeMap<GrantName, Withdrawn>,
    /// What the journal says about the handlers folder already.
    #[serde(default, skip_serializing_if = "FolderMemory::is_empty")]
    pub folder: FolderMemory,
}

/// The owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerRow {
    /// Its address.
    pub agent: Agent,
    /// Its key.
    pub key: PublicKey,
    /// Since when, wall-clock milliseconds.
    pub since_ms: u64,
}

/// A grant that is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantRow {
    /// Since when, wall-clock milliseconds.
    pub since_ms: u64,
    /// Of a custom capability: the content that was granted, and nothing else under its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

/// The content of a handler: its file, and what the keeper wrote about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// SHA-256 of the file.
    pub file: Digest,
    /// SHA-256 of its `.toml`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Digest>,
}

/// A grant that the house turned off, because what had been granted is not there any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withdrawn {
    /// What happened to the handler.
    pub by: WithdrawnBy,
    /// When, wall-clock milliseconds.
    pub at_ms: u64,
}

/// What happened to a handler that had been granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawnBy {
    /// Its file has another content.
    File,
    /// Its `.toml` has another content.
    Manifest,
    /// Both have.
    Both,
    /// Its file is gone.
    Removed,
    /// Its file is not taken any more.
    Refused,
}

/// What the journal says about the handlers folder already, so that a restart does not say it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderMemory {
    /// The handlers that were installed, as they were seen last.
    pub known: BTreeMap<CapabilityName, Seal>,
    /// The refusals: digests of file and reason.
    pub refused: BTreeSet<Digest>,
}

impl FolderMemory {
    fn is_empty(&self) -> bool {
        self.known.is_empty() && self.refused.is_empty()
    }
}

/// A claim, transfer or release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The id of the request that asked for it.
    pub id: Id,
    /// What it would change.
    pub kind: ChangeKind,
    /// The key that asked for it, which alone may ask how it stands.
    pub asked_by: PublicKey,
    /// How it stands.
    pub state: ChangeState,
    /// When it expires, or, once decided, when it is forgotten.
    pub until: Deadline,
}

/// What a change would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeKind {
    /// A first owner.
    Claim {
        /// The claimant.
        agent: Agent,
        /// Its key.
        key: PublicKey,
        /// Drawn by the device.
        salt: Salt,
        /// What both sides show.
        code: ClaimCode,
    },
    /// Another owner.
    Transfer {
        /// The new owner.
        agent: Agent,
        /// Its key.
        key: PublicKey,
        /// Drawn by the device.
        salt: Salt,
        /// What both sides show.
        code: ClaimCode,
    },
    /// No owner.
    Release,
}

/// How a change stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// It waits for the keeper.
    Pending,
    /// Done.
    Approved,
    /// The keeper said no, or another claim was approved.
    Refused,
    /// Nobody decided in time.
    Expired,
}

/// A moment on the boot clock, with its wall-clock label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// Counts.
    pub boot_ms: u64,
    /// Is shown.
    pub wall_ms: u64,
}

impl Durable {
    /// The state of a new device: nobody's, everything off.
    #[must_use]
    pub fn new(boot_id: &str) -> Self {
        Self {
            ownership: 1,
            owner: None,
            grants: BTreeMap::new(),
            changes: Vec::new(),
            refusals: 0,
            refused_until: None,
            boot_id: boot_id.to_owned(),
            withdrawn: BTreeMap::new(),
            folder: FolderMemory::default(),
        }
    }

    /// Whether a grant is on for this content; what the program brings with it has no seal.
    #[must_use]
    pub fn granted(&self, name: &GrantName, seal: Option<&Seal>) -> bool {
        self.grants.get(name).is_some_and(|grant| grant.seal.as_ref() == seal)
    }

    /// The key that asked for a change, if it is on record.
    #[must_use]
    pub fn asked_by(&self, id: &Id) -> Option<&PublicKey> {
        self.changes.iter().find(|change| change.id == *id).map(|change| &change.asked_by)
    }
}

impl ChangeKind {
    /// `claim`, `transfer` or `release`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::Transfer { .. } => "transfer",
            Self::Release => "release",
        }
    }

    /// The code that both sides show; a release has none.
    #[must_use]
    pub fn code(&self) -> Option<&ClaimCode> {
        match self {
            Self::Claim { code, .. } | Self::Transfer { code, .. } => Some(code),
            Self::Release => None,
        }
    }
}

impl ChangeState {
    /// As `change.status` says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Refused => "refused",
            Self::Expired => "expired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it was written before there were handlers.
    const OLD: &str = r#"{"ownership":3,"owner":null,"grants":{"camera":{"since_ms":5}},"changes":[],"refusals":0,
        "refused_until":null,"boot_id":"b"}"#;

    #[test]
    fn a_state_from_before_there_were_handlers_is_read_and_its_grants_hold() {
        let durable: Durable = serde_json::from_str(OLD).unwrap();
        assert!(durable.granted(&"camera".parse().unwrap(), None));
        assert_eq!((durable.withdrawn.len(), durable.folder.known.len()), (0, 0));
        let written: serde_json::Value = serde_json::to_value(&durable).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(OLD).unwrap(), "and nothing is added unasked");
        assert!(serde_json::from_str::<Durable>(&OLD.replace("boot_id", "boot_di")).is_err());
    }

    #[test]
    fn a_grant_of_a_handler_is_for_one_content() {
        let seal = |text: &str| Seal { file: Digest::of(text.as_bytes()), manifest: None };
        let mut durable = Durable::new("b");
        let name: GrantName = "custom.acme.lamp".parse().unwrap();
        durable.grants.insert(name.clone(), GrantRow { since_ms: 0, seal: Some(seal("a")) });
        let again: Durable = serde_json::from_str(&serde_json::to_string(&durable).unwrap()).unwrap();
        assert_eq!(again, durable);
        assert!(again.granted(&name, Some(&seal("a"))));
        assert!(!again.granted(&name, Some(&seal("b"))) && !again.granted(&name, None));
    }
}
