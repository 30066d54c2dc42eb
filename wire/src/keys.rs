//! Ed25519 keys, domains and the one strict verifier (sections 1 and 2).
//!
//! Owns: which keys exist for us, what a signature covers, and the only call into ed25519-dalek. Called by: envelope,
//! record, and everybody who holds a key. Refuses: keys of small order, non-canonical encodings, non-canonical `S`,
//! small-order `R`, and every signature that holds only with the cofactor. There is no switch for less.
//! Ends: a [`SecretKey`] is wiped when it is dropped.

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use ed25519_dalek::ed25519::signature::MultipartSigner as _;
use ed25519_dalek::{SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::text::{TextError, base64url_array, base64url_encode, serde_as_text};

/// Why 32 bytes are not a key here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not 43 characters of base64url.
    #[error("not a key of 43 base64url characters")]
    Text(#[source] TextError),
    /// The encoding is not the one of its point.
    #[error("not the canonical encoding of a key")]
    NonCanonical,
    /// No point of the curve.
    #[error("not a point of the curve")]
    NotOnCurve,
    /// A point whose signatures hold for more than one message.
    #[error("a key of small order")]
    SmallOrder,
}

/// The signature does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not hold")]
pub struct BadSignature;

/// An Ed25519 public key that is canonical and not of small order. Cloning is cheap; the decoded point is kept.
#[derive(Clone)]
pub struct PublicKey(Arc<VerifyingKey>);

thread_local! {
    /// The key this thread read last. A device reads its own key in the `to` of every request, and decoding a point costs
    /// more than all other parsing of a small request.
    static LAST_READ: RefCell<Option<PublicKey>> = const { RefCell::new(None) };
}

impl PublicKey {
    /// The key with these 32 bytes.
    ///
    /// # Errors
    /// [`KeyError`] for a non-canonical encoding, no point of the curve, or a point of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let known = LAST_READ.with_borrow(|last| last.as_ref().filter(|key| key.0.as_bytes() == bytes).cloned());
        if let Some(key) = known {
            return Ok(key);
        }
        if !is_canonical(bytes) {
            return Err(KeyError::NonCanonical);
        }
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::NotOnCurve)?;
        if key.is_weak() {
            return Err(KeyError::SmallOrder);
        }
        let key = Self(Arc::new(key));
        LAST_READ.set(Some(key.clone()));
        Ok(key)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// `ed25519:` and base64url of SHA-256 over the 32 bytes.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("ed25519:{}", base64url_encode(&Sha256::digest(self.0.as_bytes())))
    }

    /// Whether `signature` is this key's over `message` in `domain`, by the strict rule.
    ///
    /// # Errors
    /// [`BadSignature`], whatever the reason.
    pub fn verify(&self, domain: Domain, message: &[u8], signature: &Signature) -> Result<(), BadSignature> {
        let prefix = domain.prefix();
        if prefix.is_empty() {
            return self.verify_prefixed(message, signature);
        }
        self.verify_prefixed(&[prefix, message].concat(), signature)
    }

    /// [`PublicKey::verify`] for bytes that carry their domain's prefix already.
    pub(crate) fn verify_prefixed(&self, prefixed: &[u8], signature: &Signature) -> Result<(), BadSignature> {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.0.verify_strict(prefixed, &signature).map_err(|_| BadSignature)
    }
}

/// Whether `y` is below the field's prime. The other second spelling, a sign on x = 0, belongs to points of small order.
fn is_canonical(bytes: &[u8; 32]) -> bool {
    let [low, middle @ .., high] = bytes;
    !(*low >= 0xed && high | 0x80 == 0xff && middle.iter().all(|byte| *byte == 0xff))
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl Eq for PublicKey {}

impl Hash for PublicKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&base64url_encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(&base64url_array(text).map_err(KeyError::Text)?)
    }
}

serde_as_text!(PublicKey);

/// 64 bytes that may be a signature; only [`PublicKey::verify`] knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// From the bytes themselves.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; 64]) -> Self {
        Self(*bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 64] {
        self.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url_encode(&self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

impl FromStr for Signature {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        base64url_array(text).map(Self)
    }
}

serde_as_text!(Signature);

/// What a signature is for. The prefix is signed with the message, so that a signature made for one purpose never holds
/// for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// Envelopes: without it, a record or a handshake could pass as a message.
    Link,
    /// Heads of exports: without it, a signed message could pass as the head of forged records.
    Receipts,
    /// TLS 1.3 handshakes and the device's own certificate: nothing is added, because TLS prescribes every byte and carries
    /// a context string of its own.
    Tls,
}

/// What [`Domain::Link`] puts before a body.
pub(crate) const LINK_PREFIX: &[u8] = b"ai-maestro-device/1\0";
/// What [`Domain::Receipts`] puts before a head, and the chain's genesis before the device key.
pub(crate) const RECEIPTS_PREFIX: &[u8] = b"latchkey-receipts/1\0";
/// What is signed, alone, when a caller asks to sign something as TLS that TLS does not sign.
const REFUSED_PREFIX: &[u8] = b"latchkey-refused/1\0";
/// What a TLS 1.3 server signs begins with this (RFC 8446, 4.4.3), behind 64 spaces.
const TLS_SERVER_CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";
/// First byte of a DER SEQUENCE: the part of a certificate that its issuer signs.
const DER_SEQUENCE: u8 = 0x30;

impl Domain {
    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Link => LINK_PREFIX,
            Self::Receipts => RECEIPTS_PREFIX,
            Self::Tls => b"",
        }
    }
}

/// Who can sign for a named domain. Other rooms hold this, never the key.
pub trait Signer: Send + Sync {
    /// The key that its signatures hold with.
    fn public(&self) -> &PublicKey;

    /// The signature over `message` in `domain`.
    ///
    /// For [`Domain::Tls`] the message must be a TLS 1.3 server handshake (64 spaces and its context string) or a DER
    /// SEQUENCE (the device's own certificate); for anything else an implementation signs the fixed text
    /// `latchkey-refused/1` and a zero byte instead, which is good for nothing: no peer can have bytes of its choice signed.
    fn sign(&self, domain: Domain, message: &[u8]) -> Signature;
}

/// An Ed25519 secret key: not `Clone`, wiped when dropped, shown by its public key only.
pub struct SecretKey {
    signing: SigningKey,
    public: PublicKey,
}

impl SecretKey {
    /// The key that grows from these 32 random bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(seed);
        let public = PublicKey(Arc::new(signing.verifying_key()));
        Self { signing, public }
    }

    /// The 32 bytes it grew from, for the one place that stores them; wiped when dropped.
    #[must_use]
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.signing.to_bytes())
    }
}

impl Signer for SecretKey {
    fn public(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, domain: Domain, message: &[u8]) -> Signature {
        let parts: [&[u8]; 2] = match domain {
            Domain::Tls if !is_tls(message) => [REFUSED_PREFIX, b""],
            Domain::Link | Domain::Receipts | Domain::Tls => [domain.prefix(), message],
        };
        Signature(self.signing.multipart_sign(&parts).to_bytes())
    }
}

fn is_tls(message: &[u8]) -> bool {
    let handshake = message
        .split_at_checked(64)
        .is_some_and(|(spaces, rest)| spaces.iter().all(|byte| *byte == b' ') && rest.starts_with(TLS_SERVER_CONTEXT));
    handshake || message.first() == Some(&DER_SEQUENCE)
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public)
    }
}
