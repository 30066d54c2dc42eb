//! Requests (section 4): what an owner, and what a claimant, may say.
//!
//! Owns: the members of each request, their forms and ranges, and the bytes they are written as. Called by: the envelope,
//! which alone reads them, and controllers, which write them. Refuses: members that are missing, wrong, out of range, or not
//! defined for the type.

use crate::envelope::{Refused, unknown_type};
use crate::json::{MemberError, Members, Object, Value};
use crate::keys::PublicKey;
use crate::pairing::Proof;
use crate::text::{Agent, CapabilityName, Challenge, Id};

/// Shortest lease: long enough for a call and a renewal.
pub const LEASE_MS_MIN: u64 = 5_000;
/// Longest lease: a lost controller frees the device within five minutes.
pub const LEASE_MS_MAX: u64 = 300_000;

/// What every request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Drawn by the controller.
    pub id: Id,
    /// Handed out by the device on the same link.
    pub challenge: Challenge,
    /// The key of the addressee.
    pub to: PublicKey,
}

/// How long an activation lasts, 5,000 to 300,000 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(u64);

impl Lease {
    /// A lease of that many milliseconds, if that is within the limits.
    #[must_use]
    pub fn from_ms(lease_ms: u64) -> Option<Self> {
        (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms).then_some(Self(lease_ms))
    }

    /// Its milliseconds.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }
}

/// What an owner may ask for.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnerRequest {
    /// How a transfer, a release or its own claim stands.
    ChangeStatus {
        /// The id of that request.
        target: Id,
    },
    /// What the device is and offers.
    Registration,
    /// Make the device the agent's active one.
    Activate {
        /// For how long.
        lease: Lease,
    },
    /// End that.
    Deactivate,
    /// Run a capability.
    Invoke {
        /// Which one.
        capability: CapabilityName,
        /// With what; not yet held against bounds.
        arguments: Object,
    },
    /// Cancel a running invoke.
    Cancel {
        /// Its id.
        target: Id,
    },
    /// Fetch text inputs.
    Inputs {
        /// The last one already taken.
        after: u64,
    },
    /// Give the device to another agent.
    Transfer {
        /// The new owner's address.
        agent: Agent,
        /// The new owner's key.
        key: PublicKey,
    },
    /// Give the device up.
    Release,
}

/// What somebody may ask for who is not the owner.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimantRequest {
    /// Own the device.
    Claim {
        /// The claimant's address.
        agent: Agent,
        /// The claimant's key, which signs this.
        key: PublicKey,
        /// That the claimant read the secret on the device's screen; held by the gate.
        proof: Proof,
    },
    /// How the change stands that this key asked for.
    ChangeStatus {
        /// The id of that request.
        target: Id,
    },
}

const CHANGE_STATUS: &str = "change.status";

impl OwnerRequest {
    /// Its `type`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::ChangeStatus { .. } => CHANGE_STATUS,
            Self::Registration => "registration",
            Self::Activate { .. } => "activate",
            Self::Deactivate => "deactivate",
            Self::Invoke { .. } => "invoke",
            Self::Cancel { .. } => "cancel",
            Self::Inputs { .. } => "inputs",
            Self::Transfer { .. } => "transfer",
            Self::Release => "release",
        }
    }

    /// The body that is signed.
    #[must_use]
    pub fn to_body(&self, head: &Head) -> Vec<u8> {
        let mut body = begin(self.type_name(), head);
        match self {
            Self::Registration | Self::Deactivate | Self::Release => {}
            Self::ChangeStatus { target } | Self::Cancel { target } => {
                body.insert("target", target.to_string());
            }
            Self::Activate { lease } => {
                body.insert("lease_ms", lease.as_ms());
            }
            Self::Invoke { capability, arguments } => {
                body.insert("capability", capability.as_str());
                if !arguments.is_empty() {
                    body.insert("arguments", arguments.clone());
                }
            }
            Self::Inputs { after } => {
                body.insert("after", *after);
            }
            Self::Transfer { agent, key } => {
                body.insert("agent", agent.as_str());
                body.insert("key", key.to_string());
            }
        }
        body.to_vec()
    }

    /// Reads the members of a body whose signature holds.
    pub(crate) fn read(kind: &str, body: Object) -> Result<(Head, Self), Refused> {
        let mut members = Members::new(body);
        let message = match kind {
            CHANGE_STATUS => Self::ChangeStatus { target: members.text("target")? },
            "registration" => Self::Registration,
            "activate" => {
                let lease = Lease::from_ms(members.integer("lease_ms")?);
                let range = || MemberError::new("lease_ms", format_args!("must be {LEASE_MS_MIN} to {LEASE_MS_MAX}"));
                Self::Activate { lease: lease.ok_or_else(range)? }
            }
            "deactivate" => Self::Deactivate,
            "invoke" => Self::Invoke {
                capability: members.text("capability")?,
                arguments: if members.has("arguments") { members.object("arguments")? } else { Object::new() },
            },
            "cancel" => Self::Cancel { target: members.text("target")? },
            "inputs" => Self::Inputs { after: members.integer("after")? },
            "transfer" => Self::Transfer { agent: members.text("agent")?, key: members.text("key")? },
            "release" => Self::Release,
            other => return Err(unknown_type(other)),
        };
        Ok((end(members, kind)?, message))
    }
}

impl ClaimantRequest {
    pub(crate) const CLAIM: &str = "claim";

    /// Its `type`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Claim { .. } => Self::CLAIM,
            Self::ChangeStatus { .. } => CHANGE_STATUS,
        }
    }

    /// The body that is signed.
    #[must_use]
    pub fn to_body(&self, head: &Head) -> Vec<u8> {
        let mut body = begin(self.type_name(), head);
        match self {
            Self::Claim { agent, key, proof } => {
                body.insert("agent", agent.as_str());
                body.insert("key", key.to_string());
                body.insert("proof", proof.to_string());
            }
            Self::ChangeStatus { target } => {
                body.insert("target", target.to_string());
            }
        }
        body.to_vec()
    }

    /// The key that has to have signed a body of this `kind`; uses nothing else of the body.
    pub(crate) fn signer(
        kind: &str,
        body: &Object,
        asked_by: impl FnOnce(&Id) -> Option<PublicKey>,
    ) -> Result<PublicKey, Refused> {
        match kind {
            Self::CLAIM => Ok(text_of(body, "key")?),
            CHANGE_STATUS => asked_by(&text_of(body, "target")?).ok_or(Refused::NotAllowed),
            // What only an owner signs, and the owner's signature did not hold.
            "registration" | "activate" | "deactivate" | "invoke" | "cancel" | "inputs" | "transfer" | "release" => {
                Err(Refused::Signature)
            }
            other => Err(unknown_type(other)),
        }
    }

    /// Reads the members of a body whose signature holds.
    pub(crate) fn read(kind: &str, body: Object) -> Result<(Head, Self), Refused> {
        let mut members = Members::new(body);
        let message = match kind {
            Self::CLAIM => {
                Self::Claim { agent: members.text("agent")?, key: members.text("key")?, proof: members.text("proof")? }
            }
            CHANGE_STATUS => Self::ChangeStatus { target: members.text("target")? },
            other => return Err(unknown_type(other)),
        };
        Ok((end(members, kind)?, message))
    }
}

fn begin(kind: &str, head: &Head) -> Object {
    let mut body = Object::new();
    body.insert("type", kind);
    body.insert("id", head.id.to_string());
    body.insert("challenge", head.challenge.to_string());
    body.insert("to", head.to.to_string());
    body
}

/// The members common to all, once the others are taken; nothing may be left.
fn end(mut members: Members, kind: &str) -> Result<Head, MemberError> {
    members.word("type", kind)?;
    let head = Head { id: members.text("id")?, challenge: members.text("challenge")?, to: members.text("to")? };
    members.end()?;
    Ok(head)
}

/// One text of a body that is not trusted yet.
fn text_of<T: std::str::FromStr>(body: &Object, name: &str) -> Result<T, MemberError>
where
    T::Err: std::fmt::Display,
{
    match body.get(name).map(Value::as_str) {
        Some(Some(text)) => text.parse().map_err(|error| MemberError::new(name, error)),
        Some(None) => Err(MemberError::new(name, "must be a text")),
        None => Err(MemberError::new(name, "is missing")),
    }
}
