//! The state that outlives a restart: who owns the device, what is granted, which changes wait.
//!
//! Plain data, as it lies in the database; members it does not know are refused as damage. The rules over it are in `ownership`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{Agent, ClaimCode, GrantName, Id, PublicKey, Salt};

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
        }
    }

    /// Whether a grant is on.
    #[must_use]
    pub fn granted(&self, name: &GrantName) -> bool {
        self.grants.contains_key(name)
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
