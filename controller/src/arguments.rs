//! Arguments as people type them, made into JSON by what the device declared.
//!
//! Called by command lines with the words after the capability: `name=value`, `name=@FILE`, or one JSON object. The type
//! of a value follows from the declared bound, never from its looks: `text=17` is a text where a text is declared.
//! What comes out is then held against the bounds as everything is.

mod example;

pub use example::example;

use std::path::{Path, PathBuf};

use serde_json::{Number, Value};
use wire::bounds::{Bounds, Property};
use wire::json::{INTEGER_MAX, JsonError, Object};

/// How much a typed argument name may differ from a declared one to be offered as what was meant.
const SIMILAR_MIN: f64 = 0.7;

/// Why words are no arguments. Names the argument and, where there is one, its bound.
#[derive(Debug, thiserror::Error)]
pub enum WordError {
    /// Neither `name=value` nor JSON.
    #[error("{0:?} is neither name=value nor a JSON object")]
    Form(String),
    /// Not JSON.
    #[error("the JSON arguments cannot be read")]
    Json(#[source] JsonError),
    /// No such argument.
    #[error("no argument is called {name}{}; declared: {declared}", .meant.as_ref().map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default())]
    Unknown {
        /// What was typed.
        name: String,
        /// The most similar declared one.
        meant: Option<String>,
        /// All of them, as text.
        declared: String,
    },
    /// One argument twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// The value is not of the declared type.
    #[error("{name}: {bound}, and {value:?} is not")]
    Type {
        /// The argument.
        name: String,
        /// What is declared.
        bound: String,
        /// What was typed.
        value: String,
    },
    /// The file cannot be read.
    #[error("{name}: {} cannot be read", path.display())]
    File {
        /// The argument.
        name: String,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than the argument may be.
    #[error("{name}: {}, and {} is larger", bound, path.display())]
    FileTooLarge {
        /// The argument.
        name: String,
        /// What is declared.
        bound: String,
        /// The file.
        path: PathBuf,
    },
    /// The file is not text where text is declared.
    #[error("{name}: {} is not UTF-8 text", path.display())]
    FileNotText {
        /// The argument.
        name: String,
        /// The file.
        path: PathBuf,
    },
}

/// Reads files named by `name=@FILE`: at most so many bytes and one more, so that too large a file is known without
/// reading it whole.
pub type ReadFile<'a> = dyn Fn(&Path, usize) -> std::io::Result<Vec<u8>> + 'a;

/// The arguments that `words` mean under `bounds`. They still have to pass [`Bounds::check`].
///
/// # Errors
///
/// [`WordError`].
pub fn from_words(bounds: &Bounds, words: &[String], read: &ReadFile<'_>) -> Result<Object, WordError> {
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        return wire::json::parse(only.as_bytes()).map_err(WordError::Json);
    }
    let mut arguments = Object::new();
    for word in words {
        let (name, typed) = word.split_once('=').ok_or_else(|| WordError::Form(word.clone()))?;
        let property = declared(bounds, name)?;
        let value = value(name, property, typed, read)?;
        if arguments.insert(name, value).is_some() {
            return Err(WordError::Twice(name.to_owned()));
        }
    }
    Ok(arguments)
}

fn declared<'a>(bounds: &'a Bounds, name: &str) -> Result<&'a Property, WordError> {
    if let Some((_, property, _)) = bounds.properties().find(|(declared, ..)| *declared == name) {
        return Ok(property);
    }
    let names: Vec<&str> = bounds.properties().map(|(declared, ..)| declared).collect();
    let meant = names
        .iter()
        .map(|declared| (strsim::jaro_winkler(declared, name), *declared))
        .filter(|(likeness, _)| *likeness >= SIMILAR_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, declared)| declared.to_owned());
    let all = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(WordError::Unknown { name: name.to_owned(), meant, declared: all })
}

fn value(name: &str, property: &Property, typed: &str, read: &ReadFile<'_>) -> Result<Value, WordError> {
    let wrong = || WordError::Type { name: name.to_owned(), bound: bound(property), value: typed.to_owned() };
    match property {
        Property::String { .. } => text(name, property, typed, read).map(Value::String),
        Property::Integer { .. } => typed.parse::<i64>().map(Value::from).map_err(|_| wrong()),
        Property::Number { .. } => {
            let number = match typed.parse::<i64>() {
                Ok(integer) => Some(Number::from(integer)),
                Err(_) => typed.parse::<f64>().ok().and_then(Number::from_f64),
            };
            number.map(Value::Number).ok_or_else(wrong)
        }
        Property::Boolean { .. } => typed.parse::<bool>().map(Value::Bool).map_err(|_| wrong()),
        Property::Array { .. } | Property::Object { .. } => {
            // Through the strict reader, which takes objects only.
            let inside = format!("{{\"value\":{typed}}}");
            let object = wire::json::parse(inside.as_bytes()).map_err(|_| wrong())?;
            let fits = |value: &&Value| match property {
                Property::Array { .. } => value.is_array(),
                _object => value.is_object(),
            };
            object.get("value").filter(fits).filter(|_| object.len() == 1).cloned().ok_or_else(wrong)
        }
    }
}

fn text(name: &str, property: &Property, typed: &str, read: &ReadFile<'_>) -> Result<String, WordError> {
    let Property::String { max_bytes, base64, .. } = property else { return Ok(typed.to_owned()) };
    let Some(path) = typed.strip_prefix('@') else { return Ok(typed.to_owned()) };
    if path.starts_with('@') {
        // `@@x` is the text `@x`.
        return Ok(path.to_owned());
    }
    let path = PathBuf::from(path);
    let encoded_max = max_bytes / 4 * 3;
    let bytes_max = base64.as_ref().map_or(*max_bytes, |held| held.max_decoded.unwrap_or(encoded_max).min(encoded_max));
    let name = name.to_owned();
    let bytes = match read(&path, bytes_max) {
        Ok(bytes) => bytes,
        Err(source) => return Err(WordError::File { name, path, source }),
    };
    if bytes.len() > bytes_max {
        return Err(WordError::FileTooLarge { name, bound: bound(property), path });
    }
    if base64.is_some() {
        return Ok(wire::text::base64_encode(&bytes));
    }
    String::from_utf8(bytes).map_err(|_| WordError::FileNotText { name, path })
}

/// A bound in words: "an integer from 1 to 15".
#[must_use]
pub fn bound(property: &Property) -> String {
    match property {
        Property::String { max_bytes, min_bytes, choices, base64, .. } => {
            string_bound(*max_bytes, *min_bytes, choices, base64)
        }
        Property::Integer { minimum, maximum, .. } => match (*minimum > -INTEGER_MAX, *maximum < INTEGER_MAX) {
            (false, false) => "an integer".to_owned(),
            (true, false) => format!("an integer of at least {minimum}"),
            (false, true) => format!("an integer of at most {maximum}"),
            (true, true) => format!("an integer from {minimum} to {maximum}"),
        },
        Property::Number { minimum, maximum, .. } => match (minimum, maximum) {
            (None, None) => "a number".to_owned(),
            (Some(minimum), None) => format!("a number of at least {minimum}"),
            (None, Some(maximum)) => format!("a number of at most {maximum}"),
            (Some(minimum), Some(maximum)) => format!("a number from {minimum} to {maximum}"),
        },
        Property::Boolean { .. } => "true or false".to_owned(),
        Property::Array { items, max_items, .. } => {
            format!("a JSON list of at most {max_items}, each {}", bound(items))
        }
        Property::Object { members, .. } => {
            let names: Vec<&str> = members.iter().map(|(name, ..)| name).collect();
            format!("a JSON object with {}", names.join(", "))
        }
    }
}

fn string_bound(
    max_bytes: usize,
    min_bytes: usize,
    choices: &[String],
    base64: &Option<wire::bounds::Base64Bound>,
) -> String {
    if !choices.is_empty() {
        return format!("one of {}", choices.join(", "));
    }
    if let Some(held) = base64 {
        let media = held.media.as_deref().unwrap_or("a file");
        let bytes = held.max_decoded.unwrap_or(max_bytes / 4 * 3);
        return format!("{media} in base64, at most {bytes} bytes decoded");
    }
    if min_bytes > 0 {
        return format!("a text of {min_bytes} to {max_bytes} bytes");
    }
    format!("a text of at most {max_bytes} bytes")
}

#[cfg(test)]
mod tests;
