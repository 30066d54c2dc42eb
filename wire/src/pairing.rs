//! Pairing (section 7): the secret on the device's screen, the proof that a claimant read it, and the code that lets the
//! keeper see whose claim it is.
//!
//! Owns: the pairing link and the two derivations. Called by: the gate and the keeper's tool on a device, and controllers.
//! Refuses: links that lack a part, proofs and codes of the wrong form. Ends: a [`PairingSecret`] is wiped when it is dropped.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::keys::{KeyError, PublicKey};
use crate::text::{Id, Salt, TextError, base64url_array, base64url_encode, serde_as_text};

/// What a proof covers first: no other HMAC of this program has this beginning.
const PAIR_PREFIX: &[u8] = b"latchkey-pair/1\0";
/// What a claim code covers first, for the same reason.
const CLAIM_PREFIX: &[u8] = b"latchkey-claim/1\0";
/// Six digits: read out by people, and the salt leaves nothing to search.
const CODES: u64 = 1_000_000;
/// Longest host name in DNS.
const HOST_BYTES_MAX: usize = 253;

/// 16 random bytes that stand on the device's screen while pairing is open; wiped when dropped, never in a log.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PairingSecret([u8; 16]);

impl PairingSecret {
    /// From 16 random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its text, for the screen and the QR code alone.
    #[must_use]
    pub fn expose(&self) -> String {
        base64url_encode(&self.0)
    }

    /// The proof that `claimant` knows this secret, for the request `id`.
    #[must_use]
    pub fn proof(&self, claimant: &PublicKey, id: &Id) -> Proof {
        Proof(hmac_sha256(&self.0, &[PAIR_PREFIX, &claimant.to_bytes(), id.as_bytes()]))
    }

    /// Whether `proof` is that proof, in constant time.
    #[must_use]
    pub fn check(&self, claimant: &PublicKey, id: &Id, proof: &Proof) -> bool {
        self.proof(claimant, id).0.ct_eq(&proof.0).into()
    }
}

impl FromStr for PairingSecret {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        base64url_array(text).map(Self)
    }
}

impl fmt::Debug for PairingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingSecret(hidden)")
    }
}

/// HMAC-SHA-256 over the parts, one behind the other.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// What a claimant shows instead of the secret: 32 bytes of HMAC, as base64url.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Proof([u8; 32]);

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url_encode(&self.0))
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({self})")
    }
}

impl FromStr for Proof {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        base64url_array(text).map(Self)
    }
}

serde_as_text!(Proof);

/// The code that the device and the controller both show: six digits with a space in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimCode(u32);

impl ClaimCode {
    /// The code of the claim `id` by which `device` would go to `new_owner`.
    #[must_use]
    pub fn derive(device: &PublicKey, new_owner: &PublicKey, id: &Id, salt: &Salt) -> Self {
        let mut hash = Sha256::new();
        for part in [CLAIM_PREFIX, &device.to_bytes(), &new_owner.to_bytes(), id.as_bytes(), salt.as_bytes()] {
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        let code = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % CODES;
        Self(u32::try_from(code).unwrap_or(0)) // below a million, so it always fits
    }
}

impl fmt::Display for ClaimCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:03} {:03}", self.0 / 1000, self.0 % 1000))
    }
}

impl FromStr for ClaimCode {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let digits = match text.split_once(' ') {
            Some((one, other)) if one.len() == 3 && other.len() == 3 => [one, other].concat(),
            Some(_) => return Err(TextError::ClaimCode),
            None => text.to_owned(),
        };
        if digits.len() != 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TextError::ClaimCode);
        }
        digits.parse().map(Self).map_err(|_| TextError::ClaimCode)
    }
}

serde_as_text!(ClaimCode);

/// What the device shows while pairing is open: where it is, which key it has, and the secret.
#[derive(Debug, Clone)]
pub struct PairingLink {
    /// Whether the link runs over TLS.
    pub tls: bool,
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The device's key.
    pub device: PublicKey,
    /// The secret.
    pub secret: PairingSecret,
}

/// Which part of a pairing link is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Neither `https://` nor `http://`.
    #[error("the pairing link must begin with https:// or http://")]
    Scheme,
    /// Nothing behind a `#`.
    #[error("the pairing link has no part behind #; in a shell, put the link in quotes")]
    NoFragment,
    /// A path or query stands before the `#`.
    #[error("the pairing link has a path; it should read https://host:port/#key.secret")]
    Path,
    /// The host is missing or not one.
    #[error("the host of the pairing link is missing or malformed")]
    Host,
    /// The port is missing or not one.
    #[error("the port of the pairing link is missing or not a number from 1 to 65535")]
    Port,
    /// The device's key is wrong.
    #[error("the device key of the pairing link is damaged")]
    Key(#[source] KeyError),
    /// The secret is missing or wrong.
    #[error("the secret of the pairing link is missing or damaged")]
    Secret,
}

impl PairingLink {
    /// The link with its secret, for the screen, the QR code and the terminal alone.
    #[must_use]
    pub fn expose(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{scheme}://{open}{}{close}:{}/#{}.{}", self.host, self.port, self.device, self.secret.expose())
    }
}

impl FromStr for PairingLink {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let text = text.trim();
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(LinkError::Scheme),
        };
        let (place, fragment) = rest.split_once('#').ok_or(LinkError::NoFragment)?;
        let place = place.strip_suffix('/').unwrap_or(place);
        if place.contains(['/', '?']) {
            return Err(LinkError::Path);
        }
        let (host, port) = split_place(place)?;
        let (key, secret) = fragment.split_once('.').ok_or(LinkError::Secret)?;
        Ok(Self {
            tls,
            host,
            port,
            device: key.parse().map_err(LinkError::Key)?,
            secret: secret.parse().map_err(|_| LinkError::Secret)?,
        })
    }
}

/// Host and port of `host:port` or `[address]:port`.
fn split_place(place: &str) -> Result<(String, u16), LinkError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(LinkError::Host)?;
            let address: Ipv6Addr = address.parse().map_err(|_| LinkError::Host)?;
            (address.to_string(), port.strip_prefix(':').ok_or(LinkError::Port)?)
        }
        None => {
            let (host, port) = place.rsplit_once(':').ok_or(LinkError::Port)?;
            let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(good) {
                return Err(LinkError::Host);
            }
            (host.to_owned(), port)
        }
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number @ 1..) if digits => Ok((host, number)),
        Ok(_) | Err(_) => Err(LinkError::Port),
    }
}
