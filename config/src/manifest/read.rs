//! A manifest's text, from its first byte to the last value.
//!
//! Every refusal names the line and the key. Keys are held against the known ones first, so that a misspelt key is what is reported, not
//! what is missing without it.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr as _;

use toml_edit::{ImDocument, Item, TableLike};
use wire::text::visible;
use wire::{Activation, Effect};

use super::{
    MEMORY_MAX, MEMORY_MIN, Manifest, ManifestError, Origin, REACH_ENTRIES_MAX, RESULT_BYTES_MAX, RESULT_BYTES_MIN,
    Reach, arguments, description, units,
};
use crate::keys;
use crate::settings::syntax_reason;

/// Every key of a manifest; what stands below `arguments` is read elsewhere.
pub(super) const KEYS: [&str; 11] = [
    "description",
    "effect",
    "activation",
    "captures",
    "timeout",
    "memory",
    "result_bytes_max",
    ARGUMENTS,
    "reach.read",
    "reach.write",
    "reach.http",
];
const ARGUMENTS: &str = "arguments";
const REACH: &str = "reach";
/// The longest path that the system takes.
const PATH_BYTES_MAX: usize = 4095;

impl Manifest {
    /// Reads the text of a `.toml`. A byte order mark is dropped; lines may end with CR LF.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let reader = Reader { text };
        let document = ImDocument::parse(text).map_err(|error| ManifestError::Syntax {
            line: reader.line_at(error.span().map_or(text.len(), |span| span.start)),
            reason: visible(&syntax_reason(&error)),
        })?;
        reader.check_keys(document.as_table(), "")?;
        let mut manifest = Self::default();
        for (name, item) in document.as_table() {
            manifest.take(&reader, document.as_table(), name, item)?;
        }
        Ok(manifest)
    }

    fn take(
        &mut self,
        reader: &Reader<'_>,
        table: &dyn TableLike,
        name: &str,
        item: &Item,
    ) -> Result<(), ManifestError> {
        let line = reader.line_of(table, name, item);
        let refuse = |reason| reader.invalid(line, name, reason);
        match name {
            "description" => self.description = Some(text(item).and_then(description).map_err(refuse)?),
            "effect" => self.effect = text(item).and_then(effect).map_err(refuse)?,
            "activation" => self.activation = text(item).and_then(activation).map_err(refuse)?,
            "captures" => self.captures = item.as_bool().ok_or_else(|| refuse(expected("true or false", item)))?,
            "timeout" => self.timeout = text(item).and_then(units::timeout).map_err(refuse)?,
            "memory" => self.memory_bytes = size(item, MEMORY_MIN, MEMORY_MAX).map_err(refuse)?,
            "result_bytes_max" => {
                self.result_bytes_max = size(item, RESULT_BYTES_MIN, RESULT_BYTES_MAX).map_err(refuse)?;
            }
            ARGUMENTS => {
                let table = item.as_table_like().ok_or_else(|| refuse(expected("a table of bounds", item)))?;
                self.arguments = Some(arguments::read(reader, table, line)?);
            }
            _ => {
                let table = item.as_table_like().ok_or_else(|| refuse(expected("a table", item)))?;
                self.reach = reach(reader, table)?;
            }
        }
        Ok(())
    }
}

fn effect(text: &str) -> Result<Effect, String> {
    text.parse().map_err(|_| format!("{text:?} is neither \"read\" nor \"change\""))
}

fn activation(text: &str) -> Result<Activation, String> {
    text.parse().map_err(|_| format!("{text:?} is neither \"active\" nor \"any\""))
}

fn text(item: &Item) -> Result<&str, String> {
    item.as_str().ok_or_else(|| expected("text in quotes", item))
}

/// A size: a whole number of bytes, or text with a unit.
fn size(item: &Item, least: usize, most: usize) -> Result<usize, String> {
    match (item.as_integer(), item.as_str()) {
        (Some(number), _) => {
            // What is below zero or beyond the machine is below or beyond the limits too.
            let bytes = usize::try_from(number).unwrap_or(if number < 0 { 0 } else { usize::MAX });
            units::bytes_within(bytes, &number.to_string(), least, most)
        }
        (None, Some(text)) => units::bytes_within(units::bytes(text)?, &format!("{text:?}"), least, most),
        (None, None) => Err(expected("a size, such as \"64KiB\" or 65536", item)),
    }
}

fn reach(reader: &Reader<'_>, table: &dyn TableLike) -> Result<Reach, ManifestError> {
    let mut reach = Reach::default();
    for (name, item) in table.iter() {
        let line = reader.line_of(table, name, item);
        let key = format!("{REACH}.{name}");
        let refuse = |reason| reader.invalid(line, &key, reason);
        match name {
            "read" => reach.read = list(item, folder).map_err(refuse)?,
            "write" => reach.write = list(item, folder).map_err(refuse)?,
            _ => reach.http = list(item, server).map_err(refuse)?,
        }
    }
    Ok(reach)
}

fn list<T>(item: &Item, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let items = item.as_array().ok_or_else(|| expected("a list of texts", item))?;
    if items.len() > REACH_ENTRIES_MAX {
        return Err(format!("at most {REACH_ENTRIES_MAX} entries, these are {}", items.len()));
    }
    let text = |value: &toml_edit::Value| match value.as_str() {
        Some(text) => one(text),
        None => Err(format!("expected a list of texts, found {} in it", kind_of(value.type_name()))),
    };
    items.iter().map(text).collect()
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!("{text:?} is not a whole path, from / on"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} has `..` in it; write the path that is meant"));
    }
    if text.contains('\0') || text.len() > PATH_BYTES_MAX {
        return Err(format!("a path has at most {PATH_BYTES_MAX} bytes and no U+0000, this has {}", text.len()));
    }
    Ok(path.to_owned())
}

fn server(text: &str) -> Result<Origin, String> {
    Origin::from_str(text).map_err(|error| error.to_string())
}

fn expected(wanted: &str, item: &Item) -> String {
    format!("expected {wanted}, found {}", kind_of(item.type_name()))
}

/// toml_edit's name of a type, with its article.
pub(super) fn kind_of(name: &str) -> String {
    match name {
        "string" => "text".to_owned(),
        "integer" => "an integer".to_owned(),
        "array" => "a list".to_owned(),
        "datetime" => "a date or time".to_owned(),
        "inline table" => "a table".to_owned(),
        "array of tables" => "a list of tables".to_owned(),
        other => format!("a {other}"),
    }
}

/// The text, for the lines that refusals name.
pub(super) struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn line_at(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    /// The line of the member `name`, which is `item`.
    pub(super) fn line_of(&self, table: &dyn TableLike, name: &str, item: &Item) -> usize {
        self.line_at(self.offset_of(table, name, item))
    }

    fn offset_of(&self, table: &dyn TableLike, name: &str, item: &Item) -> usize {
        let key = table.get_key_value(name).and_then(|(key, _)| key.span());
        key.or_else(|| item.span()).map_or(0, |span| span.start)
    }

    pub(super) fn invalid(&self, line: usize, key: &str, reason: String) -> ManifestError {
        ManifestError::Invalid { line, key: visible(key), reason: visible(&reason) }
    }

    pub(super) fn unknown(&self, line: usize, key: &str, nearest: &[String]) -> ManifestError {
        let names: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
        let hint = match names.as_slice() {
            [] => String::new(),
            names => format!("; did you mean {}?", names.join(" or ")),
        };
        ManifestError::Unknown { line, key: visible(key), hint: visible(&hint) }
    }

    /// Refuses the first key, in the order of the text, that nobody knows.
    fn check_keys(&self, table: &dyn TableLike, above: &str) -> Result<(), ManifestError> {
        let mut strangers = Vec::new();
        self.collect_unknown(table, above, &mut strangers);
        let Some((offset, path)) = strangers.into_iter().min() else { return Ok(()) };
        let near = keys::nearest_of(&path, &KEYS, &[REACH]);
        let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
        Err(match self.unknown(self.line_at(offset), &path, &near) {
            ManifestError::Unknown { line, key, hint } if hint.is_empty() => {
                ManifestError::Unknown { line, key, hint: format!("; the keys are {}", KEYS.join(", ")) }
            }
            named => named,
        })
    }

    fn collect_unknown(&self, table: &dyn TableLike, above: &str, strangers: &mut Vec<(usize, String)>) {
        for (name, item) in table.iter() {
            let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
            match item.as_table_like() {
                _ if KEYS.contains(&path.as_str()) => {}
                Some(below) if path == REACH => self.collect_unknown(below, &path, strangers),
                None if path == REACH => {}
                Some(_) | None => strangers.push((self.offset_of(table, name, item), path)),
            }
        }
    }
}
