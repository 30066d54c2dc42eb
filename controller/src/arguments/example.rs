//! Words of a call that would pass, made from the declared bounds: for a person who wants a line to copy and change.

use serde_json::{Map, Number, Value};
use wire::bounds::{Bounds, Property};
use wire::json::INTEGER_MAX;

/// What stands for a text, repeated or cut to its length.
const SOME_TEXT: &str = "text ";
/// Longest text of an example: more is of no use to a reader. A bound that wants more gets its least.
const SHOWN_BYTES: usize = 4;

/// `name=value` words for what is required, or for the first argument if nothing is; quoted as a shell wants them. They pass the
/// bounds, but for a file that has to be named where base64 is wanted.
#[must_use]
pub fn example(bounds: &Bounds) -> Vec<String> {
    let required: Vec<_> = bounds.properties().filter(|(.., required)| *required).collect();
    let shown = if required.is_empty() { bounds.properties().take(1).collect() } else { required };
    shown.into_iter().map(|(name, property, _)| quoted(&format!("{name}={}", typed(property)))).collect()
}

/// A value as `from_words` reads it.
fn typed(property: &Property) -> String {
    match property {
        Property::String { base64: Some(_), .. } => "@FILE".to_owned(),
        Property::String { .. } => match value(property) {
            // A leading @ would name a file.
            Value::String(text) if text.starts_with('@') => format!("@{text}"),
            Value::String(text) => text,
            other => other.to_string(),
        },
        Property::Integer { .. }
        | Property::Number { .. }
        | Property::Boolean { .. }
        | Property::Array { .. }
        | Property::Object { .. } => value(property).to_string(),
    }
}

fn value(property: &Property) -> Value {
    match property {
        Property::String { choices, min_bytes, max_bytes, .. } => match choices.first() {
            Some(first) => Value::from(first.clone()),
            None => Value::from(text((*min_bytes).max(SHOWN_BYTES).min(*max_bytes))),
        },
        Property::Integer { minimum, maximum, .. } => Value::from(between(*minimum, *maximum)),
        Property::Number { minimum, maximum, .. } => number(*minimum, *maximum),
        Property::Boolean { .. } => Value::from(true),
        Property::Array { items, max_items, .. } => Value::from(vec![value(items); (*max_items).min(1)]),
        Property::Object { members, .. } => {
            let required = members.iter().filter(|(.., required)| *required);
            Value::from(required.map(|(name, property, _)| (name.to_owned(), value(property))).collect::<Map<_, _>>())
        }
    }
}

fn text(bytes: usize) -> String {
    SOME_TEXT.chars().cycle().take(bytes).collect()
}

/// The middle of a range with two ends, else what is nearest to 1.
fn between(minimum: i64, maximum: i64) -> i64 {
    if minimum > -INTEGER_MAX && maximum < INTEGER_MAX {
        return minimum.midpoint(maximum);
    }
    1.clamp(minimum, maximum)
}

fn number(minimum: Option<f64>, maximum: Option<f64>) -> Value {
    let middle = match (minimum, maximum) {
        (Some(minimum), Some(maximum)) => minimum.midpoint(maximum),
        (Some(minimum), None) => minimum.max(1.0),
        (None, Some(maximum)) => maximum.min(1.0),
        (None, None) => 1.0,
    };
    Number::from_f64(middle).map_or(Value::Null, Value::Number)
}

/// As it is typed in a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '=' | '@' | '.' | ',' | '-' | '_' | '/' | '+' | ':');
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
