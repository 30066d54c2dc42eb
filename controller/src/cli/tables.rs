//! What devices say, as lines for people. Every string of theirs is made visible here.

use latchkey_controller::Device;
use latchkey_controller::arguments::{bound, example};
use serde_json::Value;
use wire::bounds::Property;
use wire::declaration::{Activation, CapabilityState, Declaration, Effect, Offered, Registration};
use wire::json::Object;
use wire::text::visible;

use super::screen::table;

/// Names of a value stand in a column at least this wide.
const NAME_CHARS_MIN: usize = 14;

/// A longer text is cut on a terminal; `--json` has it whole.
const SHOWN_CHARS_MAX: usize = 400;

/// A device and its capabilities: its own first, then those of handlers.
pub(crate) fn registration(device: &Device, registration: &Registration) -> Vec<String> {
    let mut lines = vec![format!(
        "{} calls itself {}{}, speaks version {}, is {}",
        device.name,
        visible(&registration.name),
        if registration.simulated { ", is simulated" } else { "" },
        visible(&registration.protocol),
        if registration.active { "active" } else { "not active" },
    )];
    let (custom, own): (Vec<&Offered>, Vec<&Offered>) =
        registration.capabilities.iter().partition(|offered| offered.declaration.name.is_custom());
    let all: Vec<&Offered> = own.into_iter().chain(custom).collect();
    let mut rows = vec![["CAPABILITY", "GRANT", "STATE", "RUNS", "EFFECT", "WHAT IT DOES"].map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|offered| capability(offered)));
    lines.push(String::new());
    lines.extend(table(&rows));
    let mut arguments =
        vec![["ARGUMENTS OF", "NAME", "NEEDED", "WHAT IT TAKES", "WHAT IT IS"].map(str::to_owned).to_vec()];
    for offered in &all {
        arguments.extend(arguments_of(&offered.declaration));
    }
    if arguments.len() > 1 {
        lines.push(String::new());
        lines.extend(table(&arguments));
        lines.push(String::new());
        lines.push(format!("One of them, with a call to copy: latchkey capabilities {} NAME", device.name));
    }
    lines
}

/// One capability in full, with a call to copy.
pub(crate) fn offered(device: &Device, offered: &Offered) -> Vec<String> {
    let declaration = &offered.declaration;
    let name = &declaration.name;
    let mut lines = vec![format!("{name}  {}", visible(&declaration.description))];
    let mut put = |label: &str, value: String| lines.push(format!("  {label:<8} {value}"));
    put(
        "grant",
        match &declaration.grant {
            None => "not needed".to_owned(),
            Some(grant) if offered.grant_on => format!("{grant} is on"),
            Some(grant) => format!("{grant} is off; at the device run: latchkeyd grant {grant}"),
        },
    );
    put("state", state(offered.state).to_owned());
    let captures = if declaration.captures { ", with the in-use sign lit" } else { "" };
    put("runs", format!("{}{captures}, within {} ms", runs(declaration.activation), declaration.timeout.as_millis()));
    put("effect", effect(declaration.effect).to_owned());
    let mut arguments: Vec<Vec<String>> = declaration.bounds.properties().map(argument).collect();
    for needed in arguments.iter_mut().filter_map(|row| row.get_mut(1)) {
        *needed = if needed == "yes" { "needed" } else { "" }.to_owned();
    }
    if arguments.is_empty() {
        put("takes", "no arguments".to_owned());
    }
    for (at, line) in table(&arguments).into_iter().enumerate() {
        put(if at == 0 { "takes" } else { "" }, line);
    }
    let words: String = example(&declaration.bounds).iter().map(|word| format!(" {}", visible(word))).collect();
    lines.push(String::new());
    lines.push(format!("latchkey call {} {name}{words}", device.name));
    lines
}

fn capability(offered: &Offered) -> Vec<String> {
    let declaration = &offered.declaration;
    let grant = match &declaration.grant {
        None => "not needed".to_owned(),
        Some(grant) => format!("{grant} {}", if offered.grant_on { "on" } else { "off" }),
    };
    vec![
        declaration.name.to_string(),
        grant,
        state(offered.state).to_owned(),
        runs(declaration.activation).to_owned(),
        effect(declaration.effect).to_owned(),
        visible(&declaration.description),
    ]
}

fn state(state: CapabilityState) -> &'static str {
    match state {
        CapabilityState::Ready => "ready",
        CapabilityState::Degraded => "restarting",
        CapabilityState::Unavailable => "unavailable",
    }
}

fn runs(activation: Activation) -> &'static str {
    match activation {
        Activation::Any => "always",
        Activation::Active => "while active",
    }
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "reads",
        Effect::Change => "changes",
    }
}

fn arguments_of(declaration: &Declaration) -> Vec<Vec<String>> {
    let named = |row: Vec<String>| [vec![declaration.name.to_string()], row].concat();
    declaration.bounds.properties().map(argument).map(named).collect()
}

/// Name, whether it is needed, what it takes, what it is.
fn argument((name, property, required): (&str, &Property, bool)) -> Vec<String> {
    vec![
        visible(name),
        if required { "yes" } else { "no" }.to_owned(),
        visible(&bound(property)),
        visible(property.description().unwrap_or_default()),
    ]
}

/// A value as indented lines `name  value`.
pub(crate) fn value(value: &Object) -> Vec<String> {
    let mut lines = Vec::new();
    members(value.iter(), 0, &mut lines);
    lines
}

/// The members of one object, their values below one another.
fn members<'a>(all: impl Iterator<Item = (&'a String, &'a Value)> + Clone, depth: usize, lines: &mut Vec<String>) {
    let flat = all.clone().filter(|(_, value)| !value.is_object());
    let width = flat.map(|(name, _)| visible(name).chars().count()).max().unwrap_or_default().max(NAME_CHARS_MIN);
    for (name, value) in all {
        member(name, value, width, depth, lines);
    }
}

fn member(name: &str, value: &Value, width: usize, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let name = visible(name);
    match value {
        Value::Object(below) if !below.is_empty() => {
            lines.push(format!("{indent}{name}"));
            members(below.iter(), depth + 1, lines);
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for item in items {
                member(&format!("{name} -"), item, width, depth, lines);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            lines.push(format!("{indent}{name:<width$} {}", plain(value)));
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => shortened(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(_) => "nothing".to_owned(),
    }
}

fn shortened(text: &str) -> String {
    let total = text.chars().count();
    if total <= SHOWN_CHARS_MAX {
        return visible(text);
    }
    let cut: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{}… ({} bytes, whole with --json)", visible(&cut), text.len())
}
