//! The strict JSON of section 1: one object, and nothing that two programs could read in two ways.
//!
//! Owns: the lexical guard and the reader that refuses duplicate members. Called by: everything that reads JSON from
//! outside, before any type sees a value. Refuses: a byte order mark, text that is not UTF-8, duplicate members at any depth
//! (compared after escapes), more than [`DEPTH_MAX`] containers inside one another, lone surrogates, integers beyond
//! ±(2^53-1) or written `-0`, numbers that are not finite, anything but one object, anything behind it.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::Map;
pub use serde_json::Value;

use crate::text::visible_cut;

/// Containers inside one another, the outermost counted: the recursion of every reader stays small.
pub const DEPTH_MAX: usize = 16;
/// Largest integer that every JSON reader keeps exactly (2^53 - 1).
pub const INTEGER_MAX: i64 = 9_007_199_254_740_991;
/// How much of a foreign name or reason an error carries.
const SHOWN_BYTES_MAX: usize = 120;

/// Why bytes are not the JSON of section 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Begins with a byte order mark.
    #[error("begins with a byte order mark")]
    Bom,
    /// Is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// Breaks the grammar of RFC 8259.
    #[error("not JSON, near byte {near}")]
    Syntax {
        /// Where the reader stopped, counted in bytes of its line.
        near: usize,
    },
    /// Holds a member twice.
    #[error("member {0} stands twice")]
    Duplicate(String),
    /// Holds more than [`DEPTH_MAX`] containers inside one another.
    #[error("more than {DEPTH_MAX} containers inside one another")]
    TooDeep,
    /// Holds half of a surrogate pair.
    #[error("a lone surrogate")]
    LoneSurrogate,
    /// Holds a number that is not finite, or an integer beyond ±(2^53-1) or written `-0`.
    #[error("a number that is not finite, or an integer beyond 2^53-1 or written -0")]
    Number,
    /// Is JSON, but no object.
    #[error("not an object")]
    NotObject,
    /// Has something behind its object.
    #[error("something stands behind the object")]
    Trailing,
    /// Is not what the reader's type says.
    #[error("{0}")]
    Member(String),
}

impl JsonError {
    /// A stable name for logs and counters.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Bom => "json_bom",
            Self::NotUtf8 => "json_utf8",
            Self::Syntax { .. } => "json_syntax",
            Self::Duplicate(_) => "json_duplicate",
            Self::TooDeep => "json_depth",
            Self::LoneSurrogate => "json_surrogate",
            Self::Number => "json_number",
            Self::NotObject => "json_not_object",
            Self::Trailing => "json_trailing",
            Self::Member(_) => "member",
        }
    }
}

/// A JSON object whose members keep their order; clones share them until one is changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object(Arc<Map<String, Value>>);

impl Object {
    /// An object without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The member `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Sets the member `name`; gives back what stood there.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        Arc::make_mut(&mut self.0).insert(name.into(), value.into())
    }

    /// Members in their order.
    pub fn iter(&self) -> serde_json::map::Iter<'_> {
        self.0.iter()
    }

    /// How many members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The map inside.
    #[must_use]
    pub fn into_map(self) -> Map<String, Value> {
        Arc::unwrap_or_clone(self.0)
    }

    /// The JSON text, without white space.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        serde_json::to_vec(self.as_map()).unwrap_or_default() // names are texts, so that it cannot fail
    }

    /// No more bytes than this stand in [`Object::to_vec`]; quickly counted, up to six times too many.
    #[must_use]
    pub fn bytes_at_most(&self) -> usize {
        map_bytes_at_most(&self.0)
    }

    /// Containers inside one another, this one counted. A value has to leave room for what is put around it.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.0.values().map(depth).max().unwrap_or(0)
    }
}

/// A byte of a text takes six at most when it is escaped; a number is shorter than 32.
fn bytes_at_most(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 32,
        Value::String(text) => text_bytes_at_most(text),
        Value::Array(items) => {
            items.iter().map(|item| bytes_at_most(item).saturating_add(1)).fold(2, usize::saturating_add)
        }
        Value::Object(map) => map_bytes_at_most(map),
    }
}

fn map_bytes_at_most(map: &Map<String, Value>) -> usize {
    let member = |(name, value): (&String, &Value)| text_bytes_at_most(name).saturating_add(bytes_at_most(value));
    map.iter().map(|one| member(one).saturating_add(2)).fold(2, usize::saturating_add)
}

fn text_bytes_at_most(text: &str) -> usize {
    text.len().saturating_mul(6).saturating_add(2)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self.as_map()).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl From<Map<String, Value>> for Object {
    fn from(map: Map<String, Value>) -> Self {
        Self(Arc::new(map))
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.into_map())
    }
}

impl<'a> IntoIterator for &'a Object {
    type Item = (&'a String, &'a Value);
    type IntoIter = serde_json::map::Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_map().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match (Strict { duplicate: &RefCell::new(None) }).deserialize(deserializer)? {
            Value::Object(map) => Ok(Self::from(map)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(de::Error::custom("not an object"))
            }
        }
    }
}

/// One object by the rules of section 1.
///
/// # Errors
/// [`JsonError`] with the rule that was broken.
pub fn parse(bytes: &[u8]) -> Result<Object, JsonError> {
    let text = guard(bytes)?;
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { duplicate: &duplicate }.deserialize(&mut reader);
    match (value, duplicate.into_inner()) {
        (_, Some(member)) => Err(JsonError::Duplicate(member)),
        (Ok(Value::Object(map)), None) => Ok(Object::from(map)),
        (Ok(_), None) => Err(JsonError::NotObject),
        (Err(error), None) => Err(JsonError::Syntax { near: error.column() }),
    }
}

/// [`parse`], then the type `T`, which has to refuse unknown members itself.
///
/// # Errors
/// [`JsonError`]; [`JsonError::Member`] when the object is not a `T`.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let object = parse(bytes)?;
    T::deserialize(Value::from(object))
        .map_err(|error| JsonError::Member(visible_cut(&error.to_string(), SHOWN_BYTES_MAX)))
}

/// The rules that stand below the grammar: encoding, depth, surrogates, numbers, one object and nothing behind it. Gives the
/// same bytes as text; what it lets pass still has to be JSON.
pub(crate) fn guard(bytes: &[u8]) -> Result<&str, JsonError> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(JsonError::Bom);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| JsonError::NotUtf8)?;
    let mut rest = bytes.trim_ascii_start();
    match rest.first() {
        Some(b'{') => {}
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => return Err(JsonError::NotObject),
        Some(_) | None => return Err(JsonError::Syntax { near: bytes.len() - rest.len() }),
    }
    let mut depth = 0_usize;
    while let Some((byte, after)) = rest.split_first() {
        let from = std::mem::replace(&mut rest, after);
        match byte {
            b'"' => rest = behind_string(after)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(JsonError::TooDeep);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            b'-' | b'0'..=b'9' => rest = behind_number(from)?,
            b'N' if after.starts_with(b"aN") => return Err(JsonError::Number),
            b'I' if after.starts_with(b"nfinity") => return Err(JsonError::Number),
            _ => {}
        }
    }
    let behind = rest.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    if behind { Ok(text) } else { Err(JsonError::Trailing) }
}

/// What follows a string whose first quote is already behind us.
fn behind_string(mut rest: &[u8]) -> Result<&[u8], JsonError> {
    loop {
        let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
            return Ok(&[]); // not closed: the grammar says so
        };
        let (_, stop) = rest.split_at(at);
        match stop {
            [b'\\', b'u', escape @ ..] => rest = behind_unicode(escape)?,
            [b'\\', _, after @ ..] | [b'"', after @ ..] => {
                if stop.first() == Some(&b'"') {
                    return Ok(after);
                }
                rest = after;
            }
            _ => return Ok(&[]),
        }
    }
}

/// What follows `\u`, whose digits (and those of its other half) come first.
fn behind_unicode(escape: &[u8]) -> Result<&[u8], JsonError> {
    let unit = |digits: &[u8; 4]| std::str::from_utf8(digits).ok().and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let Some((digits, after)) = escape.split_first_chunk::<4>() else { return Ok(&[]) };
    match unit(digits) {
        Some(0xd800..=0xdbff) => match after {
            [b'\\', b'u', second @ ..] => match second.split_first_chunk::<4>() {
                Some((low, after)) if matches!(unit(low), Some(0xdc00..=0xdfff)) => Ok(after),
                Some(_) | None => Err(JsonError::LoneSurrogate),
            },
            _ => Err(JsonError::LoneSurrogate),
        },
        Some(0xdc00..=0xdfff) => Err(JsonError::LoneSurrogate),
        Some(_) | None => Ok(after), // digits that are none: the grammar says so
    }
}

/// What follows the number that stands at the beginning.
fn behind_number(from: &[u8]) -> Result<&[u8], JsonError> {
    let end = from.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let (token, rest) = from.split_at(end.unwrap_or(from.len()));
    let token = std::str::from_utf8(token).map_err(|_| JsonError::NotUtf8)?;
    let fits = if token.contains(['.', 'e', 'E']) {
        token.parse::<f64>().is_ok_and(f64::is_finite)
    } else {
        token != "-0" && token.parse::<i64>().is_ok_and(|value| value.unsigned_abs() <= INTEGER_MAX.unsigned_abs())
    };
    if fits { Ok(rest) } else { Err(JsonError::Number) }
}

/// A message whose members are taken out one by one. Errors name the member and never repeat its value.
pub(crate) struct Members(Map<String, Value>);

/// A member that is missing, wrong, or not defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberError {
    pub(crate) member: String,
    pub(crate) reason: String,
}

impl MemberError {
    pub(crate) fn new(member: &str, reason: impl fmt::Display) -> Self {
        Self { member: visible_cut(member, SHOWN_BYTES_MAX), reason: reason.to_string() }
    }
}

impl Members {
    pub(crate) fn new(object: Object) -> Self {
        Self(object.into_map())
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.swap_remove(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn need(&mut self, name: &str) -> Result<Value, MemberError> {
        self.take(name).ok_or_else(|| MemberError::new(name, "is missing"))
    }

    /// A text, read by the one constructor of its type.
    pub(crate) fn text<T: FromStr>(&mut self, name: &str) -> Result<T, MemberError>
    where
        T::Err: fmt::Display,
    {
        match self.need(name)? {
            Value::String(text) => text.parse().map_err(|error| MemberError::new(name, error)),
            _ => Err(MemberError::new(name, "must be a text")),
        }
    }

    /// An integer from 0 on.
    pub(crate) fn integer(&mut self, name: &str) -> Result<u64, MemberError> {
        let value = self.need(name)?;
        value.as_u64().ok_or_else(|| MemberError::new(name, "must be an integer from 0 on"))
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<bool, MemberError> {
        self.need(name)?.as_bool().ok_or_else(|| MemberError::new(name, "must be true or false"))
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Object, MemberError> {
        match self.need(name)? {
            Value::Object(map) => Ok(Object::from(map)),
            _ => Err(MemberError::new(name, "must be an object")),
        }
    }

    /// The member is there and says exactly this.
    pub(crate) fn word(&mut self, name: &str, word: &str) -> Result<(), MemberError> {
        if self.need(name)? == word { Ok(()) } else { Err(MemberError::new(name, format_args!("must be {word}"))) }
    }

    /// Nothing is left that the message does not define.
    pub(crate) fn end(self) -> Result<(), MemberError> {
        self.0.keys().next().map_or(Ok(()), |name| Err(MemberError::new(name, "no such member is defined")))
    }
}

/// Builds a [`Value`] and refuses a member that stands twice; tells which.
struct Strict<'a> {
    duplicate: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Strict { duplicate: self.duplicate })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if map.contains_key(&name) {
                let shown = visible_cut(&name, SHOWN_BYTES_MAX);
                let error = de::Error::custom(format_args!("member {shown} stands twice"));
                *self.duplicate.borrow_mut() = Some(shown);
                return Err(error);
            }
            let value = access.next_value_seed(Strict { duplicate: self.duplicate })?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}
