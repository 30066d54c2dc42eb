//! Records (section 6): the receipts of a device, each holding the hash of the one before.
//!
//! Owns: the CBOR form of a record, its hash, the digests inside, and the chain's beginning. Called by: the journal, which
//! writes records, and whoever verifies them. Refuses: every second spelling of a record, and members out of their form.
//! The part `record/export.rs` writes and verifies signed exports.

use std::fmt;
use std::str::FromStr;

use ciborium::Value;
use sha2::{Digest as _, Sha256};

use crate::cbor::{self, CborError};
use crate::json::Object;
use crate::keys::{PublicKey, RECEIPTS_PREFIX};
use crate::pairing::hmac_sha256;
use crate::text::{CapabilityName, Id, TextError, read_hex, serde_as_text, write_hex};

mod export;

pub use export::{CHECKPOINT, Export, ExportError, Verified, closing_item, verify_export};

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// An invocation: started, or ended.
    Call,
    /// The in-use sign went off after a call.
    Sign,
    /// Ownership changed, or was asked to.
    Change,
    /// The keeper granted, approved, installed or set something.
    Keeper,
}

impl RecordKind {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Sign => "sign",
            Self::Change => "change",
            Self::Keeper => "keeper",
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RecordKind {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        match text {
            "call" => Ok(Self::Call),
            "sign" => Ok(Self::Sign),
            "change" => Ok(Self::Change),
            "keeper" => Ok(Self::Keeper),
            _ => Err(TextError::Word),
        }
    }
}

serde_as_text!(RecordKind);

/// The hash of a record, or the chain's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordHash([u8; 32]);

impl RecordHash {
    /// What the first record of a device refers to.
    #[must_use]
    pub fn genesis(device: &PublicKey) -> Self {
        Self(Sha256::new().chain_update(RECEIPTS_PREFIX).chain_update(device.to_bytes()).finalize().into())
    }

    /// The hash of a record's CBOR.
    #[must_use]
    pub fn of(record_cbor: &[u8]) -> Self {
        Self(Sha256::digest(record_cbor).into())
    }

    /// From the bytes themselves.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordHash({self})")
    }
}

impl FromStr for RecordHash {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        read_hex(text).map(Self).ok_or(TextError::Hex64)
    }
}

serde_as_text!(RecordHash);

/// One record. What its kind does not use is `None`; a *started* record is a call without end and outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is about.
    pub kind: RecordKind,
    /// Its place in the chain, from 1 on.
    pub sequence: u64,
    /// The ownership it was made under.
    pub ownership: u64,
    /// The id of the request.
    pub id: Option<Id>,
    /// The capability, or what changed.
    pub what: Option<String>,
    /// Salted digest of the arguments.
    pub arguments_digest: Option<[u8; 32]>,
    /// When the request came, wall time in ms.
    pub received_at: Option<u64>,
    /// When it ended, wall time in ms.
    pub ended_at: Option<u64>,
    /// `ok` or the error code.
    pub outcome: Option<String>,
    /// Salted digest of the value.
    pub value_digest: Option<[u8; 32]>,
    /// When the sign went on, wall time in ms.
    pub sign_on_at: Option<u64>,
    /// When the sign went off, wall time in ms.
    pub sign_off_at: Option<u64>,
    /// The hash of the record before.
    pub before: RecordHash,
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not deterministic CBOR.
    #[error("not a record")]
    Cbor(#[source] CborError),
    /// Not a map with the keys 0 to 12.
    #[error("not a map with the keys 0 to 12")]
    Keys,
    /// The value of a key is not of its form.
    #[error("the value of key {0} is not of its form")]
    Value(u8),
}

/// Keys of a record: 0 to 12.
const KEYS: usize = 13;

impl Record {
    /// Its deterministic CBOR.
    #[must_use]
    pub fn to_cbor(&self) -> Vec<u8> {
        let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
        let or_null = |value: Option<Value>| value.unwrap_or(Value::Null);
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::from);
        let values = [
            Value::from(self.kind.as_str()),
            Value::from(self.sequence),
            Value::from(self.ownership),
            or_null(self.id.map(|id| bytes(id.as_bytes()))),
            or_null(self.what.clone().map(Value::Text)),
            or_null(self.arguments_digest.map(|digest| bytes(&digest))),
            number(self.received_at),
            number(self.ended_at),
            or_null(self.outcome.clone().map(Value::Text)),
            or_null(self.value_digest.map(|digest| bytes(&digest))),
            number(self.sign_on_at),
            number(self.sign_off_at),
            bytes(self.before.as_bytes()),
        ];
        cbor::to_vec(&Value::Map((0_u8..).map(Value::from).zip(values).collect()))
    }

    /// Reads a record from its deterministic CBOR.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, RecordError> {
        Self::from_value(cbor::from_slice(bytes).map_err(RecordError::Cbor)?)
    }

    pub(crate) fn from_value(value: Value) -> Result<Self, RecordError> {
        let Value::Map(members) = value else { return Err(RecordError::Keys) };
        if members.len() != KEYS
            || !members.iter().map(|(key, _)| key).eq((0_u8..13).map(Value::from).collect::<Vec<_>>().iter())
        {
            return Err(RecordError::Keys);
        }
        let mut rest = Values { next: 0, values: members.into_iter().map(|(_, value)| value) };
        Ok(Self {
            kind: rest.text()?.and_then(|word| word.parse().ok()).ok_or(RecordError::Value(0))?,
            sequence: rest.number()?.ok_or(RecordError::Value(1))?,
            ownership: rest.number()?.ok_or(RecordError::Value(2))?,
            id: rest.bytes()?.map(Id::from_bytes),
            what: rest.text()?,
            arguments_digest: rest.bytes()?,
            received_at: rest.number()?,
            ended_at: rest.number()?,
            outcome: rest.text()?,
            value_digest: rest.bytes()?,
            sign_on_at: rest.number()?,
            sign_off_at: rest.number()?,
            before: rest.bytes()?.map(RecordHash).ok_or(RecordError::Value(12))?,
        })
    }

    /// The SHA-256 of its CBOR.
    #[must_use]
    pub fn hash(&self) -> RecordHash {
        RecordHash::of(&self.to_cbor())
    }
}

/// The values of a record in the order of their keys.
struct Values<I> {
    next: u8,
    values: I,
}

impl<I: Iterator<Item = Value>> Values<I> {
    /// The next value as `read` understands it; null is `None`.
    fn next<T>(&mut self, read: impl FnOnce(Value) -> Option<T>) -> Result<Option<T>, RecordError> {
        let key = self.next;
        self.next += 1;
        match self.values.next() {
            Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or(RecordError::Value(key)),
            None => Err(RecordError::Keys),
        }
    }

    fn text(&mut self) -> Result<Option<String>, RecordError> {
        self.next(|value| value.into_text().ok())
    }

    fn number(&mut self) -> Result<Option<u64>, RecordError> {
        self.next(|value| value.into_integer().ok().and_then(|number| u64::try_from(number).ok()))
    }

    fn bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, RecordError> {
        self.next(|value| value.into_bytes().ok().and_then(|bytes| bytes.try_into().ok()))
    }
}

/// What makes two invocations of one id the same: SHA-256 of the deterministic CBOR of `[capability, arguments]`.
#[must_use]
pub fn content_digest(capability: &CapabilityName, arguments: &Object) -> [u8; 32] {
    Sha256::digest(content_cbor(capability, arguments)).into()
}

fn content_cbor(capability: &CapabilityName, arguments: &Object) -> Vec<u8> {
    cbor::to_vec(&Value::Array(vec![Value::from(capability.as_str()), object_to_cbor(arguments)]))
}

/// The digest of arguments or a value as a record holds it: HMAC-SHA-256, under that record's salt, of its deterministic
/// CBOR. The salt keeps short arguments from being guessed.
#[must_use]
pub fn salted_digest(salt: &[u8; 16], value: &Object) -> [u8; 32] {
    hmac_sha256(salt, &[&cbor::json_to_vec(value.as_map())])
}

fn object_to_cbor(object: &Object) -> Value {
    Value::Map(object.iter().map(|(name, value)| (Value::from(name.as_str()), cbor::from_json(value))).collect())
}
