//! The bounds of a handler's arguments, from TOML to the form that the wire knows.
//!
//! The rules for bounds stand in `wire::bounds`; here are the line that a refusal names, the nearest keyword, and the depth that a
//! registration has room for.

use serde_json::{Map, Number};
use toml_edit::{Item, TableLike, Value as Toml};
use wire::bounds::DeclarationError;
use wire::json::Value;
use wire::{Bounds, Object};

use super::read::{Reader, kind_of};
use super::{ARGUMENTS_DEPTH_MAX, ManifestError};

/// Every keyword that some type knows.
const KEYWORDS: [&str; 14] = [
    "type",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "maxLength",
    "minLength",
    "enum",
    "minimum",
    "maximum",
    "items",
    "maxItems",
    "contentEncoding",
    "contentMediaType",
];
/// The one keyword that JSON Schema does not have.
const MAX_DECODED: &str = "x-max-decoded-bytes";

/// Why bounds are refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    /// By the rules of the wire.
    #[error("{0}")]
    Declared(DeclarationError),
    /// A registration could not be read any more.
    #[error("arguments: {0} objects and lists inside one another, at most {ARGUMENTS_DEPTH_MAX}")]
    Deep(usize),
}

/// Bounds that also fit a registration.
pub(super) fn bounds(declared: Object) -> Result<Bounds, Flaw> {
    let depth = declared.depth();
    if depth > ARGUMENTS_DEPTH_MAX {
        return Err(Flaw::Deep(depth));
    }
    Bounds::parse(declared).map_err(Flaw::Declared)
}

/// The table `[arguments]`.
pub(super) fn read(reader: &Reader<'_>, table: &dyn TableLike, line: usize) -> Result<Bounds, ManifestError> {
    let root = Node { place: "arguments".to_owned(), key: "arguments".to_owned(), table, line };
    let mut nodes = Vec::new();
    collect(reader, root, &mut nodes)?;
    let declared = object(reader, "arguments", table)?;
    bounds(declared).map_err(|flaw| match flaw {
        Flaw::Deep(_) => {
            let key = "arguments".to_owned();
            ManifestError::Invalid { line, key, reason: flaw.to_string() }
        }
        Flaw::Declared(reason) => {
            let place = place_of(&reason);
            let at = nodes.iter().find(|(known, _)| Some(known.as_str()) == place).map_or(line, |(_, line)| *line);
            ManifestError::Arguments { line: at, reason }
        }
    })
}

/// One schema node: what the wire's errors call it, its whole key, and where it stands.
struct Node<'a> {
    place: String,
    key: String,
    table: &'a dyn TableLike,
    line: usize,
}

/// Refuses unknown keywords, and notes on which line each node stands.
fn collect(reader: &Reader<'_>, node: Node<'_>, nodes: &mut Vec<(String, usize)>) -> Result<(), ManifestError> {
    for (keyword, item) in node.table.iter() {
        let line = reader.line_of(node.table, keyword, item);
        let key = format!("{}.{keyword}", node.key);
        if !KEYWORDS.contains(&keyword) && keyword != MAX_DECODED {
            let nearest = crate::keys::likeliest(keyword, KEYWORDS.into_iter().chain([MAX_DECODED]));
            return Err(reader.unknown(line, &key, nearest.map(|near| format!("{}.{near}", node.key)).as_slice()));
        }
        match (keyword, item.as_table_like()) {
            ("properties", Some(properties)) => {
                for (name, below) in properties.iter() {
                    let Some(table) = below.as_table_like() else { continue };
                    let place = format!("{}.{}", node.place, wire::text::visible(name));
                    let line = reader.line_of(properties, name, below);
                    collect(reader, Node { place, key: format!("{key}.{name}"), table, line }, nodes)?;
                }
            }
            ("items", Some(table)) => {
                collect(reader, Node { place: format!("{}[]", node.place), key, table, line }, nodes)?
            }
            _ => {}
        }
    }
    nodes.push((node.place, node.line));
    Ok(())
}

/// Which node an error is about.
fn place_of(reason: &DeclarationError) -> Option<&str> {
    match reason {
        DeclarationError::Keyword { place, .. }
        | DeclarationError::Value { place, .. }
        | DeclarationError::Unbounded { place, .. }
        | DeclarationError::RequiredUnknown { place, .. } => Some(place),
        DeclarationError::TooLarge { .. } | DeclarationError::Member { .. } => None,
    }
}

fn object(reader: &Reader<'_>, above: &str, table: &dyn TableLike) -> Result<Object, ManifestError> {
    let mut map = Map::new();
    for (name, item) in table.iter() {
        let key = format!("{above}.{name}");
        let line = reader.line_of(table, name, item);
        let value = match item {
            Item::None => continue,
            Item::Value(value) => value_of(reader, &key, line, value)?,
            Item::Table(below) => Value::from(object(reader, &key, below)?),
            Item::ArrayOfTables(_) => {
                return Err(reader.invalid(line, &key, "a list of tables has no place in bounds".to_owned()));
            }
        };
        map.insert(name.to_owned(), value);
    }
    Ok(Object::from(map))
}

fn value_of(reader: &Reader<'_>, key: &str, line: usize, value: &Toml) -> Result<Value, ManifestError> {
    Ok(match value {
        Toml::String(text) => Value::String(text.value().clone()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Boolean(truth) => Value::Bool(*truth.value()),
        Toml::Float(number) => match Number::from_f64(*number.value()) {
            Some(number) => Value::Number(number),
            None => return Err(reader.invalid(line, key, "a bound is a finite number".to_owned())),
        },
        Toml::Datetime(_) => {
            return Err(reader.invalid(line, key, format!("{} has no place in bounds", kind_of("datetime"))));
        }
        Toml::Array(items) => {
            Value::Array(items.iter().map(|item| value_of(reader, key, line, item)).collect::<Result<_, _>>()?)
        }
        Toml::InlineTable(below) => Value::from(object(reader, key, below)?),
    })
}
