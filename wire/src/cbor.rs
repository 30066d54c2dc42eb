//! Deterministic CBOR (RFC 8949, 4.2.1): shortest forms, keys in bytewise order of their encoding.
//!
//! Owns: the order of map keys, which ciborium leaves to its caller, and the check that bytes have no second spelling.
//! Called by: record, and the digests of section 6. Refuses: anything that is not the deterministic form of its value,
//! duplicate keys, more than [`DEPTH_MAX`] items inside one another, more than [`ITEM_BYTES_MAX`] bytes.

use ciborium::Value;

/// Items inside one another: a record has two, JSON turned to CBOR at most sixteen and the array around it.
pub const DEPTH_MAX: usize = 20;
/// Largest item that is read: far above any record, small enough to hold.
pub const ITEM_BYTES_MAX: usize = 64 * 1024;

/// Why bytes are not one item of deterministic CBOR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    /// More than [`ITEM_BYTES_MAX`] bytes.
    #[error("an item of more than {ITEM_BYTES_MAX} bytes")]
    TooLarge,
    /// Not CBOR, cut off, or deeper than [`DEPTH_MAX`].
    #[error("not CBOR, cut off, or too deep")]
    Malformed,
    /// CBOR in another spelling than the deterministic one, a key twice, or something behind the item.
    #[error("not deterministic CBOR")]
    NotDeterministic,
}

/// The deterministic encoding of `value`.
#[must_use]
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    write(value, &mut bytes);
    bytes
}

fn write(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Array(items) => {
            write_head(ARRAY, items.len(), bytes);
            items.iter().for_each(|item| write(item, bytes));
        }
        Value::Map(members) => {
            write_head(MAP, members.len(), bytes);
            let mut members: Vec<_> = members.iter().map(|(key, value)| (to_vec(key), value)).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (key, value) in members {
                bytes.extend_from_slice(&key);
                write(value, bytes);
            }
        }
        Value::Tag(tag, inner) => {
            write_number(TAG, *tag, bytes);
            write(inner, bytes);
        }
        // Shortest forms of what holds nothing else are ciborium's work. Writing to memory does not fail.
        scalar => drop(ciborium::into_writer(scalar, bytes)),
    }
}

const ARRAY: u8 = 4 << 5;
const MAP: u8 = 5 << 5;
const TAG: u8 = 6 << 5;

fn write_head(major: u8, length: usize, bytes: &mut Vec<u8>) {
    write_number(major, u64::try_from(length).unwrap_or(u64::MAX), bytes);
}

/// The shortest head of a major type with its number.
fn write_number(major: u8, number: u64, bytes: &mut Vec<u8>) {
    let all = number.to_be_bytes();
    let [.., a, b, c, d] = all;
    match number {
        0..=23 => bytes.push(major | d),
        24..=0xff => bytes.extend([major | 24, d]),
        0x100..=0xffff => bytes.extend([major | 25, c, d]),
        0x1_0000..=0xffff_ffff => bytes.extend([major | 26, a, b, c, d]),
        _ => {
            bytes.push(major | 27);
            bytes.extend(all);
        }
    }
}

/// JSON as CBOR: integers as integers, other numbers as floats, names as texts.
#[must_use]
pub fn from_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => Value::from(integer),
            (None, Some(integer), _) => Value::from(integer),
            (None, None, Some(float)) => Value::Float(float),
            (None, None, None) => Value::Null, // no such number without arbitrary precision, which is off
        },
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(from_json).collect()),
        serde_json::Value::Object(map) => {
            Value::Map(map.iter().map(|(name, value)| (Value::Text(name.clone()), from_json(value))).collect())
        }
    }
}

/// The deterministic encoding of JSON, as [`to_vec`] of [`from_json`] would give it, without the tree between: records of
/// calls are digested thousands of times a second.
#[must_use]
pub fn json_to_vec(map: &serde_json::Map<String, serde_json::Value>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    write_json_map(map, &mut bytes);
    bytes
}

const TEXT: u8 = 3 << 5;

fn write_json(value: &serde_json::Value, bytes: &mut Vec<u8>) {
    match value {
        serde_json::Value::String(text) => write_text(text, bytes),
        serde_json::Value::Array(items) => {
            write_head(ARRAY, items.len(), bytes);
            items.iter().for_each(|item| write_json(item, bytes));
        }
        serde_json::Value::Object(map) => write_json_map(map, bytes),
        serde_json::Value::Number(number) => match number.as_u64() {
            Some(number) => write_number(0, number, bytes),
            None => write(&from_json(value), bytes),
        },
        serde_json::Value::Null | serde_json::Value::Bool(_) => write(&from_json(value), bytes),
    }
}

fn write_json_map(map: &serde_json::Map<String, serde_json::Value>, bytes: &mut Vec<u8>) {
    write_head(MAP, map.len(), bytes);
    let mut members: Vec<_> = map.iter().collect();
    // An encoded text begins with its length, so that shorter names come first.
    members.sort_unstable_by(|(one, _), (other, _)| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
    for (name, value) in members {
        write_text(name, bytes);
        write_json(value, bytes);
    }
}

fn write_text(text: &str, bytes: &mut Vec<u8>) {
    write_head(TEXT, text.len(), bytes);
    bytes.extend_from_slice(text.as_bytes());
}

/// One item of deterministic CBOR and nothing behind it.
///
/// # Errors
/// [`CborError`].
pub fn from_slice(bytes: &[u8]) -> Result<Value, CborError> {
    if bytes.len() > ITEM_BYTES_MAX {
        return Err(CborError::TooLarge);
    }
    let value = ciborium::de::from_reader_with_recursion_limit(bytes, DEPTH_MAX).map_err(|_| CborError::Malformed)?;
    deterministic(value, bytes)
}

/// `value`, if `bytes` are its deterministic encoding.
pub(crate) fn deterministic(value: Value, bytes: &[u8]) -> Result<Value, CborError> {
    if to_vec(&value) == bytes && keys_differ(&value) { Ok(value) } else { Err(CborError::NotDeterministic) }
}

/// Whether no map holds a key twice; keys stand in order already, so that equal ones are neighbours.
fn keys_differ(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(keys_differ),
        Value::Map(members) => {
            members.is_sorted_by(|(one, _), (other, _)| one != other)
                && members.iter().all(|(key, value)| keys_differ(key) && keys_differ(value))
        }
        Value::Tag(_, inner) => keys_differ(inner),
        _ => true,
    }
}
