//! The envelope (section 2), and the one way from bytes to a message whose signature holds.
//!
//! Owns: sizes, the order of checks below the gate, [`Opened`] and every reason for a refusal. Called by: the gate of a
//! device ([`Envelope::open_owner`], [`Envelope::open_claimant`]) and a controller ([`Envelope::open_answer`]). Refuses:
//! what is too large, not an envelope, not signed by the key that the place names, not strict JSON, or not a message of that
//! place. A body is parsed only after its signature holds; the one exception is the `type` and `key` of a claimant.

use std::borrow::Cow;

use serde::Deserialize;

use crate::answer::Answer;
use crate::json::{self, JsonError, MemberError, Object};
use crate::keys::{Domain, LINK_PREFIX, PublicKey, Signature, Signer};
use crate::request::{ClaimantRequest, Head, OwnerRequest};
use crate::text::{Id, TextError, base64url_append, base64url_encode, visible_cut};

/// Largest body of a request: a picture for the display fits.
pub const BODY_BYTES_MAX: usize = 524_288;
/// Largest envelope of a request: its body in base64url, the signature, and room for white space.
pub const ENVELOPE_BYTES_MAX: usize = 704 * 1024;
/// Largest body of a result: 1 MiB of media in base64, and what stands around it.
pub const RESULT_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest envelope of a result, in the same proportion as that of a request.
pub const RESULT_ENVELOPE_BYTES_MAX: usize = 4 * ENVELOPE_BYTES_MAX;
/// Largest picture or sound, decoded.
pub const MEDIA_BYTES_MAX: usize = 1024 * 1024;

/// How much of a foreign word an error carries.
const SHOWN_BYTES_MAX: usize = 64;

/// Why a device answers 403, or a controller does not take a result. The peer never learns which; the log does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Larger than its place allows.
    #[error("too large")]
    TooLarge,
    /// Not an object with exactly the texts `body` and `signature`.
    #[error("not an envelope: {0}")]
    Envelope(String),
    /// `body` or `signature` is not strict base64url of the right length.
    #[error("{member} of the envelope: {flaw}")]
    Base64 {
        /// `body` or `signature`.
        member: &'static str,
        /// What is wrong.
        flaw: TextError,
    },
    /// The signature does not hold with the key that this place names.
    #[error("the signature does not hold")]
    Signature,
    /// The body breaks a rule of section 1.
    #[error("body: {0}")]
    Json(JsonError),
    /// A member is missing, wrong, out of range, or not defined.
    #[error("member {member}: {reason}")]
    Member {
        /// Which one.
        member: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No message of this type is expected here.
    #[error("unknown type {0}")]
    UnknownType(String),
    /// Signed for another device.
    #[error("signed for another device")]
    WrongTo,
    /// This key may not ask for this.
    #[error("this key may not ask for this")]
    NotAllowed,
    /// The proof of a claim is not made with the secret on the screen.
    #[error("the proof does not fit the pairing secret")]
    Proof,
    /// Not a challenge of this device, this start and this link.
    #[error("not a challenge of this link")]
    Challenge,
    /// The challenge is older than 30 s.
    #[error("the challenge has expired")]
    Expired,
    /// The challenge was used before.
    #[error("the challenge was used before")]
    Spent,
    /// Its challenge was issued before the last accepted `deactivate`, or before the present ownership.
    #[error("superseded by a later deactivate or a change of owner")]
    Superseded,
    /// No room to remember another challenge or claim.
    #[error("no room for another one")]
    Full,
}

impl Refused {
    /// A stable name for logs and counters.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Envelope(_) => "envelope",
            Self::Base64 { .. } => "base64",
            Self::Signature => "signature",
            Self::Json(error) => error.label(),
            Self::Member { .. } => "member",
            Self::UnknownType(_) => "unknown_type",
            Self::WrongTo => "wrong_to",
            Self::NotAllowed => "not_allowed",
            Self::Proof => "proof",
            Self::Challenge => "challenge",
            Self::Expired => "challenge_expired",
            Self::Spent => "challenge_spent",
            Self::Superseded => "superseded",
            Self::Full => "full",
        }
    }
}

impl From<MemberError> for Refused {
    fn from(error: MemberError) -> Self {
        Self::Member { member: error.member, reason: error.reason }
    }
}

/// Why [`Envelope::open_owner`] gave no request.
#[derive(Debug)]
pub enum Unopened {
    /// The owner's signature holds, and the message is none of an owner's.
    Refused(Refused),
    /// The owner's signature does not hold, or it holds over a `claim`: the claimant's way may be tried.
    NotOwner(Envelope),
}

/// An envelope of the right shape; nothing in it is trusted yet.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The domain's prefix and the body in one buffer, as the signature covers them.
    signed: Vec<u8>,
    signature: Signature,
}

/// The envelope's JSON, borrowed where no escapes stand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEnvelope<'a> {
    #[serde(borrow)]
    body: Cow<'a, str>,
    #[serde(borrow)]
    signature: Cow<'a, str>,
}

impl Envelope {
    /// The envelope of a request.
    ///
    /// # Errors
    /// [`Refused::TooLarge`], [`Refused::Envelope`], [`Refused::Base64`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        Self::parse_within(bytes, ENVELOPE_BYTES_MAX, BODY_BYTES_MAX)
    }

    /// The envelope of a result.
    ///
    /// # Errors
    /// [`Refused::TooLarge`], [`Refused::Envelope`], [`Refused::Base64`].
    pub fn parse_result(bytes: &[u8]) -> Result<Self, Refused> {
        Self::parse_within(bytes, RESULT_ENVELOPE_BYTES_MAX, RESULT_BODY_BYTES_MAX)
    }

    fn parse_within(bytes: &[u8], envelope_bytes_max: usize, body_bytes_max: usize) -> Result<Self, Refused> {
        if bytes.len() > envelope_bytes_max {
            return Err(Refused::TooLarge);
        }
        let text = json::guard(bytes).map_err(|error| Refused::Envelope(error.to_string()))?;
        let raw: RawEnvelope<'_> = serde_json::from_str(text)
            .map_err(|error| Refused::Envelope(visible_cut(&error.to_string(), SHOWN_BYTES_MAX)))?;
        let base64 = |member| move |flaw| Refused::Base64 { member, flaw };
        let signature = raw.signature.parse().map_err(base64("signature"))?;
        let mut signed = Vec::with_capacity(LINK_PREFIX.len() + raw.body.len().div_ceil(4) * 3);
        signed.extend_from_slice(LINK_PREFIX);
        base64url_append(&raw.body, &mut signed).map_err(base64("body"))?;
        if signed.len() - LINK_PREFIX.len() > body_bytes_max {
            return Err(Refused::TooLarge);
        }
        Ok(Self { signed, signature })
    }

    fn body(&self) -> &[u8] {
        self.signed.get(LINK_PREFIX.len()..).unwrap_or_default()
    }

    fn holds_with(&self, key: &PublicKey) -> bool {
        key.verify_prefixed(&self.signed, &self.signature).is_ok()
    }

    /// The body as strict JSON, and its `type`.
    fn message(&self) -> Result<(String, Object), Refused> {
        let object = json::parse(self.body()).map_err(Refused::Json)?;
        match object.get("type") {
            Some(json::Value::String(word)) => Ok((word.clone(), object)),
            Some(_) => Err(MemberError::new("type", "must be a text").into()),
            None => Err(MemberError::new("type", "is missing").into()),
        }
    }

    /// Opens what the owner signed: signature, strict JSON, members with their forms and ranges, in this order.
    ///
    /// # Errors
    /// [`Unopened::NotOwner`] gives the envelope back; [`Unopened::Refused`] is final.
    pub fn open_owner(self, owner: &PublicKey) -> Result<Opened<OwnerRequest>, Unopened> {
        if !self.holds_with(owner) {
            return Err(Unopened::NotOwner(self));
        }
        let (kind, object) = self.message().map_err(Unopened::Refused)?;
        if kind == ClaimantRequest::CLAIM {
            return Err(Unopened::NotOwner(self));
        }
        let (head, message) = OwnerRequest::read(&kind, object).map_err(Unopened::Refused)?;
        Ok(Opened::assertion(head, owner.clone(), message))
    }

    /// Opens what somebody signed who is not the owner: a `claim` with the key inside it, a `change.status` with the key on
    /// record for its `target`, which `asked_by` gives. Nothing else of the body is used before that.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::NotAllowed`] when no key is on record for the target.
    pub fn open_claimant(
        self,
        asked_by: impl FnOnce(&Id) -> Option<PublicKey>,
    ) -> Result<Opened<ClaimantRequest>, Refused> {
        let (kind, object) = self.message()?;
        let key = ClaimantRequest::signer(&kind, &object, asked_by)?;
        if !self.holds_with(&key) {
            return Err(Refused::Signature);
        }
        let (head, message) = ClaimantRequest::read(&kind, object)?;
        Ok(Opened::assertion(head, key, message))
    }

    /// Opens what a device answered.
    ///
    /// # Errors
    /// [`Refused`]; nothing is parsed before the device's signature holds.
    pub fn open_answer(self, device: &PublicKey) -> Result<Opened<Answer>, Refused> {
        if !self.holds_with(device) {
            return Err(Refused::Signature);
        }
        let (kind, object) = self.message()?;
        let answer = Answer::read(&kind, object)?;
        let head = Head { id: answer.id, challenge: answer.challenge, to: answer.to.clone() };
        Ok(Opened::assertion(head, device.clone(), answer))
    }
}

pub(crate) fn unknown_type(kind: &str) -> Refused {
    Refused::UnknownType(visible_cut(kind, SHOWN_BYTES_MAX))
}

/// A message whose signature holds with a key that was known before: authenticated, not yet authorised.
#[must_use = "an opened message says who signed it, not that it may happen"]
#[derive(Debug, Clone)]
pub struct Opened<T> {
    head: Head,
    signer: PublicKey,
    message: T,
}

impl<T> Opened<T> {
    fn assertion(head: Head, signer: PublicKey, message: T) -> Self {
        Self { head, signer, message }
    }

    /// What all messages carry.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The key that the signature holds with.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// The message.
    pub fn message(&self) -> &T {
        &self.message
    }

    /// All three.
    pub fn into_parts(self) -> (Head, PublicKey, T) {
        (self.head, self.signer, self.message)
    }
}

/// A sealed envelope: the JSON that goes over the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

impl Sealed {
    /// The JSON.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The JSON.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Signs a body for the link and puts it into its envelope.
#[must_use]
pub fn seal(signer: &dyn Signer, body: &[u8]) -> Sealed {
    let signature = signer.sign(Domain::Link, body).to_string();
    let body = base64url_encode(body);
    Sealed([r#"{"body":""#, &body, r#"","signature":""#, &signature, r#""}"#].concat().into_bytes())
}
