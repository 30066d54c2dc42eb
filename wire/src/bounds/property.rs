//! One declared property: reads a schema node and refuses every keyword it does not know.

use crate::bounds::{DESCRIPTION_BYTES_MAX, DeclarationError};
use crate::json::{INTEGER_MAX, Object, Value};
use crate::text::visible_cut;

/// How much of a foreign name an error carries.
const NAME_SHOWN_BYTES: usize = 64;

/// What one argument may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// A text, never with U+0000.
    String {
        /// Most UTF-8 bytes.
        max_bytes: usize,
        /// Fewest UTF-8 bytes.
        min_bytes: usize,
        /// The only values allowed; empty when any is.
        choices: Vec<String>,
        /// Set when the text is standard base64 of something else.
        base64: Option<Base64Bound>,
        /// What it is for.
        description: Option<String>,
    },
    /// An integer.
    Integer {
        /// Smallest value.
        minimum: i64,
        /// Largest value.
        maximum: i64,
        /// What it is for.
        description: Option<String>,
    },
    /// Any finite number.
    Number {
        /// Smallest value, if there is one.
        minimum: Option<f64>,
        /// Largest value, if there is one.
        maximum: Option<f64>,
        /// What it is for.
        description: Option<String>,
    },
    /// True or false.
    Boolean {
        /// What it is for.
        description: Option<String>,
    },
    /// A list.
    Array {
        /// What each of its items may be.
        items: Box<Self>,
        /// Most items.
        max_items: usize,
        /// What it is for.
        description: Option<String>,
    },
    /// An object without further members.
    Object {
        /// Its members.
        members: Members,
        /// What it is for.
        description: Option<String>,
    },
}

/// What a base64 text holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64Bound {
    /// Its media type, where declared.
    pub media: Option<String>,
    /// Most bytes after decoding, where declared.
    pub max_decoded: Option<usize>,
}

/// The declared members of an object, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Members(Vec<Member>);

#[derive(Debug, Clone, PartialEq)]
struct Member {
    name: String,
    property: Property,
    required: bool,
}

impl Members {
    /// Name, bound, and whether it is required.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Property, bool)> {
        self.0.iter().map(|member| (member.name.as_str(), &member.property, member.required))
    }
}

impl Property {
    /// What it is for, in the words of who declared it.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        match self {
            Self::String { description, .. }
            | Self::Integer { description, .. }
            | Self::Number { description, .. }
            | Self::Boolean { description }
            | Self::Array { description, .. }
            | Self::Object { description, .. } => description.as_deref(),
        }
    }

    /// Reads one schema node; `place` names it in errors.
    pub(super) fn parse(place: &str, node: &Value) -> Result<Self, DeclarationError> {
        let Value::Object(map) = node else {
            return Err(DeclarationError::Value {
                place: place.to_owned(),
                keyword: "each property".to_owned(),
                want: "an object",
            });
        };
        let mut node = Node { place, rest: Object::from(map.clone()) };
        let description = node.description()?;
        let property = match node.text("type")?.as_deref() {
            Some("string") => node.string(description)?,
            Some("integer") => node.integer(description)?,
            Some("number") => node.number(description)?,
            Some("boolean") => Self::Boolean { description },
            Some("array") => node.array(description)?,
            Some("object") => node.object(description)?,
            Some(_) | None => {
                return Err(node.wrong("type", "object, string, integer, number, boolean or array"));
            }
        };
        node.end()?;
        Ok(property)
    }
}

/// A schema node whose keywords are taken out one by one; what stays is unknown.
struct Node<'a> {
    place: &'a str,
    rest: Object,
}

impl Node<'_> {
    fn wrong(&self, keyword: &str, want: &'static str) -> DeclarationError {
        DeclarationError::Value { place: self.place.to_owned(), keyword: keyword.to_owned(), want }
    }

    fn take(&mut self, keyword: &str) -> Option<Value> {
        let mut map = std::mem::take(&mut self.rest).into_map();
        let value = map.shift_remove(keyword);
        self.rest = Object::from(map);
        value
    }

    fn text(&mut self, keyword: &str) -> Result<Option<String>, DeclarationError> {
        match self.take(keyword) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(keyword, "a text")),
        }
    }

    fn count(&mut self, keyword: &str) -> Result<Option<usize>, DeclarationError> {
        match self.take(keyword) {
            None => Ok(None),
            Some(value) => match value.as_u64().map(usize::try_from) {
                Some(Ok(count)) => Ok(Some(count)),
                Some(Err(_)) | None => Err(self.wrong(keyword, "an integer from 0 on")),
            },
        }
    }

    fn description(&mut self) -> Result<Option<String>, DeclarationError> {
        let description = self.text("description")?;
        match description.as_ref().map(String::len) {
            Some(got) if got > DESCRIPTION_BYTES_MAX => {
                Err(DeclarationError::TooLarge { what: "description", max: DESCRIPTION_BYTES_MAX, got })
            }
            Some(_) | None => Ok(description),
        }
    }

    fn string(&mut self, description: Option<String>) -> Result<Property, DeclarationError> {
        let Some(max_bytes) = self.count("maxLength")? else {
            return Err(DeclarationError::Unbounded { place: self.place.to_owned(), keyword: "maxLength" });
        };
        let min_bytes = self.count("minLength")?.unwrap_or(0);
        if min_bytes > max_bytes {
            return Err(self.wrong("minLength", "at most maxLength"));
        }
        let choices = self.choices()?;
        if choices.iter().any(|choice| choice.len() > max_bytes || choice.len() < min_bytes) {
            return Err(self.wrong("enum", "texts within minLength and maxLength"));
        }
        let base64 = self.base64()?;
        Ok(Property::String { max_bytes, min_bytes, choices, base64, description })
    }

    fn choices(&mut self) -> Result<Vec<String>, DeclarationError> {
        let Some(value) = self.take("enum") else { return Ok(Vec::new()) };
        let texts = match value {
            Value::Array(items) => items
                .into_iter()
                .map(|item| if let Value::String(text) = item { Some(text) } else { None })
                .collect::<Option<Vec<_>>>(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
        };
        texts.filter(|texts| !texts.is_empty()).ok_or_else(|| self.wrong("enum", "a list of texts, not empty"))
    }

    fn base64(&mut self) -> Result<Option<Base64Bound>, DeclarationError> {
        match self.text("contentEncoding")?.as_deref() {
            // Their keywords mean nothing without an encoding; they stay behind and are refused as unknown.
            None => Ok(None),
            Some("base64") => Ok(Some(Base64Bound {
                media: self.text("contentMediaType")?,
                max_decoded: self.count("x-max-decoded-bytes")?,
            })),
            Some(_) => Err(self.wrong("contentEncoding", "base64")),
        }
    }

    fn integer(&mut self, description: Option<String>) -> Result<Property, DeclarationError> {
        let mut limit = |keyword, otherwise| match self.take(keyword) {
            None => Ok(otherwise),
            Some(value) => value
                .as_i64()
                .filter(|value| value.unsigned_abs() <= INTEGER_MAX.unsigned_abs())
                .ok_or_else(|| self.wrong(keyword, "an integer within 2^53-1")),
        };
        let minimum = limit("minimum", -INTEGER_MAX)?;
        let maximum = limit("maximum", INTEGER_MAX)?;
        if minimum > maximum {
            return Err(self.wrong("minimum", "at most maximum"));
        }
        Ok(Property::Integer { minimum, maximum, description })
    }

    fn number(&mut self, description: Option<String>) -> Result<Property, DeclarationError> {
        let mut limit = |keyword| match self.take(keyword) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.wrong(keyword, "a number")),
        };
        let minimum = limit("minimum")?;
        let maximum = limit("maximum")?;
        if minimum.zip(maximum).is_some_and(|(minimum, maximum)| minimum > maximum) {
            return Err(self.wrong("minimum", "at most maximum"));
        }
        Ok(Property::Number { minimum, maximum, description })
    }

    fn array(&mut self, description: Option<String>) -> Result<Property, DeclarationError> {
        let Some(max_items) = self.count("maxItems")? else {
            return Err(DeclarationError::Unbounded { place: self.place.to_owned(), keyword: "maxItems" });
        };
        let Some(items) = self.take("items") else { return Err(self.wrong("items", "there")) };
        let items = Box::new(Property::parse(&format!("{}[]", self.place), &items)?);
        Ok(Property::Array { items, max_items, description })
    }

    fn object(&mut self, description: Option<String>) -> Result<Property, DeclarationError> {
        if !matches!(self.take("additionalProperties"), None | Some(Value::Bool(false))) {
            return Err(self.wrong("additionalProperties", "false"));
        }
        let required = self.required()?;
        let declared = match self.take("properties") {
            None => Object::new(),
            Some(Value::Object(map)) => Object::from(map),
            Some(_) => return Err(self.wrong("properties", "an object")),
        };
        if let Some(name) = required.iter().find(|name| declared.get(name).is_none()) {
            let name = visible_cut(name, NAME_SHOWN_BYTES);
            return Err(DeclarationError::RequiredUnknown { place: self.place.to_owned(), name });
        }
        let mut members = Vec::with_capacity(declared.len());
        for (name, node) in &declared {
            let place = format!("{}.{}", self.place, visible_cut(name, NAME_SHOWN_BYTES));
            let property = Property::parse(&place, node)?;
            members.push(Member { name: name.clone(), property, required: required.contains(name) });
        }
        Ok(Property::Object { members: Members(members), description })
    }

    fn required(&mut self) -> Result<Vec<String>, DeclarationError> {
        let texts = match self.take("required") {
            None => Some(Vec::new()),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
            }
            Some(_) => None,
        };
        texts.ok_or_else(|| self.wrong("required", "a list of names"))
    }

    fn end(&self) -> Result<(), DeclarationError> {
        match self.rest.iter().next() {
            None => Ok(()),
            Some((keyword, _)) => Err(DeclarationError::Keyword {
                place: self.place.to_owned(),
                keyword: visible_cut(keyword, NAME_SHOWN_BYTES),
            }),
        }
    }
}
