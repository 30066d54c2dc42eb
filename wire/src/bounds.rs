//! Bounds of arguments: the JSON Schema subset of section 6, read once and checked on every call.
//!
//! Owns: what a declaration may ask for, and the only way to make [`Arguments`]. Called by: the gate, handlers' manifests,
//! and controllers before they send. Refuses: in a declaration, unknown keywords, strings and arrays without a maximum, more
//! than [`BOUNDS_BYTES_MAX`]; in arguments, undeclared members, missing ones, wrong types, and values outside their bounds.
//! The parts: `bounds/property.rs` reads a declared property, `bounds/check.rs` holds a value against it.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::json::{Object, Value};

mod check;
mod property;

pub use check::BoundsError;
pub use property::{Base64Bound, Members, Property};

/// Largest bounds of one capability, as JSON: a registration carries all of them.
pub const BOUNDS_BYTES_MAX: usize = 4 * 1024;
/// Longest description of a capability or of one argument.
pub const DESCRIPTION_BYTES_MAX: usize = 200;

/// Why a declaration is refused when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// A keyword outside the subset, or one that does not belong to its type.
    #[error("{place}: unknown keyword {keyword}")]
    Keyword {
        /// Which property.
        place: String,
        /// The keyword.
        keyword: String,
    },
    /// A keyword with a value that it cannot have.
    #[error("{place}: {keyword} must be {want}")]
    Value {
        /// Which property.
        place: String,
        /// The keyword.
        keyword: String,
        /// What belongs there.
        want: &'static str,
    },
    /// A string without `maxLength`, or an array without `maxItems`.
    #[error("{place}: {keyword} is missing, everything needs a maximum")]
    Unbounded {
        /// Which property.
        place: String,
        /// The keyword that is missing.
        keyword: &'static str,
    },
    /// `required` names a property that is not declared.
    #[error("{place}: required names {name}, which is not a property")]
    RequiredUnknown {
        /// Which object.
        place: String,
        /// The name.
        name: String,
    },
    /// More bytes than allowed.
    #[error("{what}: at most {max} bytes, this has {got}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit.
        max: usize,
        /// Its size.
        got: usize,
    },
    /// A member of a registration that is missing or wrong.
    #[error("{member}: {reason}")]
    Member {
        /// Which member.
        member: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// What arguments a capability takes.
#[derive(Clone)]
pub struct Bounds {
    declared: Object,
    root: Members,
}

impl Bounds {
    /// No arguments at all.
    #[must_use]
    pub fn none() -> Self {
        let mut declared = Object::new();
        declared.insert("type", "object");
        declared.insert("additionalProperties", false);
        Self { declared, root: Members::default() }
    }

    /// Reads declared bounds.
    ///
    /// # Errors
    /// [`DeclarationError`] for anything outside the subset of section 6, and for strings and arrays without a maximum.
    pub fn parse(declared: Object) -> Result<Self, DeclarationError> {
        let got = declared.to_vec().len();
        if got > BOUNDS_BYTES_MAX {
            return Err(DeclarationError::TooLarge { what: "arguments", max: BOUNDS_BYTES_MAX, got });
        }
        match Property::parse("arguments", &Value::from(declared.clone()))? {
            Property::Object { members, .. } => Ok(Self { declared, root: members }),
            Property::String { .. }
            | Property::Integer { .. }
            | Property::Number { .. }
            | Property::Boolean { .. }
            | Property::Array { .. } => Err(DeclarationError::Value {
                place: "arguments".to_owned(),
                keyword: "type".to_owned(),
                want: "object",
            }),
        }
    }

    /// Holds arguments against the bounds.
    ///
    /// # Errors
    /// [`BoundsError`] naming the member, and what is wrong with it.
    pub fn check(&self, arguments: Object) -> Result<Arguments, BoundsError> {
        self.root.check("", arguments.as_map())?;
        Ok(Arguments::assertion(arguments))
    }

    /// The declared properties in their order: name, bound, whether it is required.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Property, bool)> {
        self.root.iter()
    }

    /// The declaration as it was read.
    #[must_use]
    pub fn to_object(&self) -> Object {
        self.declared.clone()
    }
}

impl PartialEq for Bounds {
    fn eq(&self, other: &Self) -> bool {
        self.declared == other.declared
    }
}

impl fmt::Debug for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bounds({})", self.declared)
    }
}

impl Serialize for Bounds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.declared.serialize(serializer)
    }
}

/// Arguments that fit declared bounds; made by [`Bounds::check`] alone.
#[derive(Clone, PartialEq)]
pub struct Arguments(Object);

impl Arguments {
    fn assertion(object: Object) -> Self {
        Self(object)
    }

    /// The text of a string argument.
    #[must_use]
    pub fn string(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// The value of an integer argument.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    /// The value of an integer or number argument.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    /// The value of a boolean argument.
    #[must_use]
    pub fn boolean(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// All of them.
    #[must_use]
    pub fn as_object(&self) -> &Object {
        &self.0
    }
}

/// Names only: arguments are what an agent wants kept out of logs.
impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Arguments")?;
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
