//! `handlers`, `handlers show`, `handlers log`: what lies in the handlers folder of a running device.
//!
//! What to print is made by pure functions; every string from outside passes [`visible`].

use std::fmt::Write;

use actors::{Command, HandlerLine, HandlerState, Reply};
use config::manifest::size_in_words;
use handlers::wasm::log::{Level, LogLine};
use serde_json::Value;
use wire::text::visible;
use wire::{Bounds, Object};

use super::args::{HandlersOrder, Output};
use super::commands::Desk;
use super::handler::words;
use super::print::{Shade, Style, table};
use super::problem::Problem;

pub(super) fn perform(desk: &mut Desk<'_>, order: Option<&HandlersOrder>, output: Output) -> Result<(), Problem> {
    match order {
        None => list(desk, output),
        Some(HandlersOrder::Show { name, output }) => show(desk, name, *output),
        Some(HandlersOrder::Log { name, output }) => log(desk, name, *output),
    }
}

fn ask(desk: &Desk<'_>) -> Result<(Vec<HandlerLine>, Option<String>), Problem> {
    match desk.daemon()?.house(Command::Handlers)? {
        Reply::Handlers { handlers, notice } => Ok((handlers, notice)),
        _ => Err(Problem::unfit()),
    }
}

fn list(desk: &mut Desk<'_>, output: Output) -> Result<(), Problem> {
    let (handlers, notice) = ask(desk)?;
    if output.json {
        desk.world.print_json(&serde_json::json!({ "handlers": handlers, "notice": notice }));
    } else {
        let folder = desk.handlers_dir();
        desk.world.print(listing(&desk.style, &handlers, notice.as_deref(), folder.as_deref()));
    }
    Ok(())
}

fn show(desk: &mut Desk<'_>, name: &str, output: Output) -> Result<(), Problem> {
    let (handlers, _) = ask(desk)?;
    let known = handlers.into_iter().find(|line| line.name.as_deref() == Some(name) || line.file == name);
    let line = known.ok_or_else(|| {
        Problem::failed(format!("there is no handler {name}; see what there is with: {} handlers", desk.style.program))
    })?;
    if output.json {
        desk.world.print_json(&line);
    } else {
        desk.world.print(details(&desk.style, &line));
    }
    Ok(())
}

fn log(desk: &mut Desk<'_>, name: &str, output: Output) -> Result<(), Problem> {
    let Reply::HandlerLog { lines, .. } = desk.daemon()?.house(Command::HandlerLog { name: name.to_owned() })? else {
        return Err(Problem::unfit());
    };
    if output.json {
        desk.world.print_json(&serde_json::json!({ "name": name, "lines": lines }));
    } else if lines.is_empty() {
        desk.world.print(format!("{} has logged nothing since it came into service.", visible(name)));
    } else {
        let text: String = lines.iter().map(|line| log_line(&desk.style, line)).collect();
        desk.world.print(text);
    }
    Ok(())
}

/// One line of a handler's log.
#[must_use]
pub fn log_line(style: &Style, line: &LogLine) -> String {
    let (word, shade) = match line.level {
        Level::Debug => ("debug", Shade::Faint),
        Level::Info => ("info", Shade::Good),
        Level::Warn => ("warn", Shade::Care),
        Level::Error => ("error", Shade::Bad),
    };
    format!("{}  {}  {}\n", style.moment(line.at_ms), style.shade(shade, &format!("{word:<5}")), visible(&line.text))
}

/// `handlers`.
#[must_use]
pub fn listing(style: &Style, handlers: &[HandlerLine], notice: Option<&str>, folder: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(notice) = notice {
        let _ = writeln!(text, "{}\n", style.shade(Shade::Care, &sentence(notice)));
    }
    let folder = folder.map_or_else(|| "the handlers folder".to_owned(), visible);
    if handlers.is_empty() {
        let _ = writeln!(text, "There are no handlers. To add one, drop a file custom.MAKER.ACTION.wasm into {folder}");
        let _ = writeln!(text, "To make one: latchkeyd handler new acme.lamp --lang wat");
        return text;
    }
    let (refused, taken): (Vec<_>, Vec<_>) =
        handlers.iter().partition(|line| matches!(line.state, HandlerState::Refused));
    if !taken.is_empty() {
        let mut rows = vec![["HANDLER", "ON", "STATE", "EFFECT", "CALLS", "LAST ERROR"].map(str::to_owned)];
        rows.extend(taken.iter().map(|line| row(line)));
        text.push_str(&table(style, &rows));
        let advice: Vec<_> = taken.iter().filter_map(|line| advice(style, line)).collect();
        for sentence in &advice {
            let _ = write!(text, "\n{}", style.shade(Shade::Care, sentence));
        }
        text.push_str(if advice.is_empty() { "" } else { "\n" });
    }
    if !refused.is_empty() {
        let _ = writeln!(text, "{}Not taken, and why:", if taken.is_empty() { "" } else { "\n" });
        for line in refused {
            let why = line.why.as_deref().map_or_else(|| "refused".to_owned(), visible);
            let _ = writeln!(text, "  {}: {}", visible(&line.file), style.shade(Shade::Bad, &why));
        }
    }
    text
}

fn row(line: &HandlerLine) -> [String; 6] {
    let or_dash = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), visible);
    [
        or_dash(line.name.as_deref().or(Some(&line.file))),
        if line.on { "on" } else { "off" }.to_owned(),
        state(line.state).to_owned(),
        or_dash(line.effect.as_deref()),
        line.calls.to_string(),
        or_dash(line.last_error.as_deref()),
    ]
}

fn state(state: HandlerState) -> &'static str {
    match state {
        HandlerState::Ready => "ready",
        HandlerState::Restarting => "restarting",
        HandlerState::Unavailable => "unavailable",
        HandlerState::Compiling => "compiling",
        HandlerState::Waiting => "waiting",
        HandlerState::Refused => "refused",
    }
}

/// What the keeper may want to do about a handler, with the command for it.
fn advice(style: &Style, line: &HandlerLine) -> Option<String> {
    let program = &style.program;
    let name = visible(line.name.as_deref()?);
    match line.state {
        HandlerState::Unavailable => {
            Some(format!("{name} failed too often and was given up; try it again with: {program} restart {name}"))
        }
        HandlerState::Ready | HandlerState::Restarting | HandlerState::Compiling => match (&line.changed, line.on) {
            (Some(changed), _) => Some(format!("{name}: {}", visible(changed))),
            (None, false) if matches!(line.state, HandlerState::Ready) => {
                Some(format!("{name} is off; to let the owner use it: {program} grant {name}"))
            }
            (None, _) => None,
        },
        // The reason stands at the line, or below the table.
        HandlerState::Waiting | HandlerState::Refused => None,
    }
}

/// `handlers show`.
#[must_use]
pub fn details(style: &Style, line: &HandlerLine) -> String {
    let title = line.name.as_deref().unwrap_or(&line.file);
    let mut text = style.shade(Shade::Bold, &visible(title));
    if let Some(description) = &line.description {
        let _ = write!(text, "  {}", visible(description));
    }
    text.push('\n');
    let mut put = |label: &str, value: String| {
        let _ = writeln!(text, "  {label:<10} {value}");
    };
    put("file", visible(&line.file));
    if let Some(digest) = &line.file_sha256 {
        put("sha256", visible(digest));
        put("its .toml", line.manifest_sha256.as_deref().map_or_else(|| "none".to_owned(), visible));
    }
    put("state", format!("{}, {}", state(line.state), if line.on { "granted" } else { "not granted" }));
    if let Some(why) = &line.why {
        put("why", style.shade(Shade::Bad, &visible(why)));
    }
    if let Some(changed) = &line.changed {
        put("changed", style.shade(Shade::Care, &visible(changed)));
    }
    if let Some(effect) = &line.effect {
        put("effect", use_words(effect, line.activation.as_deref(), line.captures == Some(true)));
    }
    if let (Some(timeout), Some(memory), Some(result)) = (line.timeout_ms, line.memory_bytes, line.result_bytes_max) {
        put("limits", limit_words(timeout, memory, result));
    }
    if let Some(arguments) = line.arguments.as_ref().and_then(declared) {
        put("arguments", lines(&words::bounds(&arguments), "none"));
    }
    put("reach", lines(&line.reach, "nothing"));
    put("calls", format!("{}, {} restarts", line.calls, line.restarts));
    if let Some(error) = &line.last_error {
        put("last error", style.shade(Shade::Care, &visible(error)));
    }
    if !matches!(line.state, HandlerState::Refused)
        && let Some(advice) = advice(style, line).filter(|_| line.changed.is_none())
    {
        let _ = writeln!(text, "\n{advice}");
    }
    text
}

/// Bounds as the device declared them.
fn declared(arguments: &Value) -> Option<Bounds> {
    Bounds::parse(Object::from(arguments.as_object()?.clone())).ok()
}

/// `change; runs while the device is active; lights the in-use sign`
pub(super) fn use_words(effect: &str, activation: Option<&str>, captures: bool) -> String {
    let what = if effect == "read" { "reads and changes nothing" } else { "changes something" };
    let when = if activation == Some("any") { "at any time" } else { "while the device is the agent's active one" };
    let sign = if captures { "; captures, so the in-use sign is lit" } else { "" };
    format!("{}: {what}, {when}{sign}", visible(effect))
}

/// `1 s for a call, 32 MiB of memory, 64 KiB of result`
pub(super) fn limit_words(timeout_ms: u64, memory_bytes: u64, result_bytes_max: u64) -> String {
    let time =
        if timeout_ms.is_multiple_of(1000) { format!("{} s", timeout_ms / 1000) } else { format!("{timeout_ms} ms") };
    format!("{time} a call, {} of memory, a result of {}", size(memory_bytes), size(result_bytes_max))
}

/// A size that came over the socket.
pub(super) fn size(bytes: u64) -> String {
    size_in_words(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// One below the other, behind a label of this width.
pub(super) fn lines(lines: &[String], none: &str) -> String {
    if lines.is_empty() {
        return none.to_owned();
    }
    let shown: Vec<_> = lines.iter().map(|line| visible(line)).collect();
    shown.join(&format!("\n{:13}", ""))
}

/// As a sentence of its own.
fn sentence(told: &str) -> String {
    let told = visible(told);
    let mut letters = told.chars();
    // Without a full stop: it may end with a command to be copied.
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}
