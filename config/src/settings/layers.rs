//! The layers of settings, each as TOML text with a name for each of its keys: the file's line, the variable, the flag.
//!
//! Refuses text that is not TOML and keys that nobody knows, before any type sees a value.

use figment::providers::{Format as _, Toml};
use figment::{Figment, Profile, Provider};
use toml_edit::{ImDocument, Item, TableLike, Value};

use super::{SettingsError, TABLE_WANTED};
use crate::keys::{self, Kind};

/// The prefix of environment variables that set a key.
const ENV_PREFIX: &str = "LATCHKEY_SET_";
/// What stands for the dot in the name of a variable.
const ENV_DOT: &str = "__";

/// One layer of settings.
pub(super) struct Layer {
    origin: Origin,
    document: ImDocument<String>,
}

enum Origin {
    /// A file, named with its path; places in it have lines.
    File(String),
    /// A variable or flag that sets one key.
    Single(String),
}

impl Layer {
    /// The file's bytes. A byte order mark is dropped; lines may end with CR LF.
    pub(super) fn file(path: String, bytes: Vec<u8>) -> Result<Self, SettingsError> {
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            SettingsError::Syntax { place: format!("{path}:{line}"), reason: "not UTF-8 text".to_owned() }
        })?;
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        let document = ImDocument::parse(text.clone()).map_err(|error| {
            let line = line_at(&text, error.span().map_or(text.len(), |span| span.start));
            SettingsError::Syntax { place: format!("{path}:{line}"), reason: syntax_reason(&error) }
        })?;
        Ok(Self { origin: Origin::File(path), document })
    }

    /// `key=value`, as `--set` takes it.
    pub(super) fn set(text: &str) -> Result<Self, SettingsError> {
        let (key, value) = text.split_once('=').ok_or_else(|| SettingsError::NoValue { text: text.to_owned() })?;
        let key = key.trim();
        Self::single(format!("--set {key}"), key, value.trim())
    }

    /// A variable of the environment, if it is one that sets a key.
    pub(super) fn variable(name: &str, value: &str) -> Option<Result<Self, SettingsError>> {
        let key = name.strip_prefix(ENV_PREFIX)?.replace(ENV_DOT, ".").to_ascii_lowercase();
        Some(Self::single(format!("environment variable {name}"), &key, value))
    }

    fn single(place: String, path: &str, value: &str) -> Result<Self, SettingsError> {
        let Some(key) = keys::find(path) else {
            return Err(if keys::is_table(path) {
                SettingsError::Invalid { place, key: path.to_owned(), reason: TABLE_WANTED.to_owned() }
            } else {
                unknown(place, path)
            });
        };
        let line = format!("{path} = {}\n", as_toml(key.kind, value));
        let document = ImDocument::parse(line)
            .map_err(|error| SettingsError::Syntax { place: place.clone(), reason: error.message().to_owned() })?;
        Ok(Self { origin: Origin::Single(place), document })
    }

    /// Where `path` is set in this layer; `None` when it is not.
    pub(super) fn place(&self, path: &str) -> Option<String> {
        let mut table: &dyn TableLike = self.document.as_table();
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let (key, item) = table.get_key_value(part)?;
            if parts.peek().is_none() {
                return Some(self.place_of(key.span().or_else(|| item.span()).map_or(0, |span| span.start)));
            }
            // A value where a table belongs: the mistake is there.
            let Some(below) = item.as_table_like() else {
                return Some(self.place_of(key.span().map_or(0, |span| span.start)));
            };
            table = below;
        }
        None
    }

    fn place_of(&self, offset: usize) -> String {
        match &self.origin {
            Origin::File(path) => format!("{path}:{}", line_at(self.document.raw(), offset)),
            Origin::Single(place) => place.clone(),
        }
    }

    /// Refuses the first key, in the order of the text, that nobody knows.
    pub(super) fn check_keys(&self) -> Result<(), SettingsError> {
        let mut strangers = Vec::new();
        collect_unknown(self.document.as_table(), "", &mut strangers);
        match strangers.into_iter().min_by_key(|(offset, _)| *offset) {
            Some((offset, path)) => Err(unknown(self.place_of(offset), &path)),
            None => Ok(()),
        }
    }

    /// The layer as figment takes it.
    pub(super) fn provider(&self) -> impl Provider + use<> {
        Toml::string(self.document.raw()).profile(Profile::Default)
    }
}

/// All layers, later ones over earlier ones.
pub(super) fn merged(layers: &[Layer]) -> Figment {
    layers.iter().fold(Figment::new(), |merged, layer| merged.merge(layer.provider()))
}

fn collect_unknown(table: &dyn TableLike, above: &str, strangers: &mut Vec<(usize, String)>) {
    for (name, item) in table.iter() {
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
        let known_value = keys::find(&path).is_some();
        match item.as_table_like() {
            // An unknown table is reported by what stands in it, an empty one by itself.
            Some(below) if !known_value && (keys::is_table(&path) || !below.is_empty()) => {
                collect_unknown(below, &path, strangers);
            }
            None if known_value || keys::is_table(&path) => {}
            Some(_) if known_value => {}
            Some(_) | None => strangers.push((offset_of(table, name, item), path)),
        }
    }
}

fn offset_of(table: &dyn TableLike, name: &str, item: &Item) -> usize {
    let key = table.get_key_value(name).and_then(|(key, _)| key.span());
    key.or_else(|| item.span()).map_or(0, |span| span.start)
}

fn unknown(place: String, path: &str) -> SettingsError {
    let names: Vec<String> = keys::nearest(path).iter().map(|name| format!("`{name}`")).collect();
    let hint = match names.as_slice() {
        [] => "; `latchkeyd config init` writes a file with every key".to_owned(),
        names => format!("; did you mean {}?", names.join(" or ")),
    };
    SettingsError::Unknown { place, key: path.to_owned(), hint }
}

/// The value as TOML: what is quoted or not text already is taken as it stands, bare text becomes a string.
fn as_toml(kind: Kind, value: &str) -> String {
    let bare = || Value::from(value).to_string();
    let parsed = value.parse::<Value>().ok();
    match (kind, parsed) {
        (Kind::Text, Some(Value::String(text))) => text.to_string(),
        (Kind::List, Some(list @ Value::Array(_))) => list.to_string(),
        (Kind::List, Some(text @ Value::String(_))) => format!("[{text}]"),
        (Kind::List, _) => format!("[{}]", bare()),
        (Kind::Plain, Some(plain)) => plain.to_string(),
        (Kind::Text | Kind::Plain, _) => bare(),
    }
}

/// What the parser says, in one line; of some mistakes it says nothing.
pub(crate) fn syntax_reason(error: &toml_edit::TomlError) -> String {
    match error.message().trim() {
        "" => "this is not TOML".to_owned(),
        said => said.replace('\n', "; "),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
