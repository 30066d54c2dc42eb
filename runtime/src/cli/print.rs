//! What people read: replies of the house as text. Pure functions; every string from outside passes [`visible`].

use std::fmt::Write;

use actors::{GrantLine, JournalLine, Node, ReceiptLine, Status, Waiting};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use wire::CapabilityName;
use wire::text::visible;

use super::tree;
use crate::keeper::ask::Address;

/// How text is set: the time zone, whether in colour, and how the program is called here.
#[derive(Debug, Clone)]
pub struct Style {
    /// Where people read clocks.
    pub zone: TimeZone,
    /// Whether in colour.
    pub colour: bool,
    /// `latchkeyd` with the flags that reach this device.
    pub program: String,
}

/// What a word wears in colour. The words themselves say everything without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shade {
    Bold,
    Good,
    Bad,
    Care,
    Faint,
}

impl Style {
    pub(crate) fn shade(&self, shade: Shade, text: &str) -> String {
        let code = match shade {
            Shade::Bold => "1",
            Shade::Good => "32",
            Shade::Bad => "31",
            Shade::Care => "33",
            Shade::Faint => "2",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// `2026-03-01 14:02:11`, in local time.
    pub(crate) fn moment(&self, ms: u64) -> String {
        self.zoned(ms, "%Y-%m-%d %H:%M:%S")
    }

    /// `14:02:11`, in local time.
    pub(crate) fn clock(&self, ms: u64) -> String {
        self.zoned(ms, "%H:%M:%S")
    }

    fn zoned(&self, ms: u64, format: &str) -> String {
        let moment = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        moment.map_or_else(
            || "?".to_owned(),
            |moment| moment.to_zoned_datetime(self.zone.clone()).strftime(format).to_string(),
        )
    }
}

/// `status`.
#[must_use]
pub fn status(style: &Style, status: &Status, address: Option<&Address>) -> String {
    let mut text = String::new();
    let running = match (status.running, status.pid) {
        (true, Some(pid)) => format!("running (pid {pid})"),
        (true, None) => "running".to_owned(),
        (false, _) => "not running".to_owned(),
    };
    let simulated = if status.simulated { ", simulated: camera, sign and screen only pretend" } else { "" };
    let name = style.shade(Shade::Bold, &visible(&status.name));
    let _ = writeln!(text, "{name}  latchkeyd {}, {running}{simulated}", visible(&status.version));
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "  {label:<9} {value}");
    };
    line("device", &visible(&status.fingerprint));
    if let Some(address) = address {
        line("link", &visible(&address.link()));
        if let Some(display) = &address.display {
            line("display", &visible(display));
        }
    }
    let program = &style.program;
    line("owner", &owner(style, status));
    if status.running {
        line(
            "active",
            &status.active_until.map_or_else(|| "no".to_owned(), |until| format!("until {}", style.clock(until))),
        );
        let pairing = status
            .pairing_until
            .map_or_else(|| "closed".to_owned(), |until| format!("open until {}", style.clock(until)));
        line("pairing", &pairing);
    }
    let waiting = match status.waiting {
        0 => "nothing".to_owned(),
        1 => style.shade(Shade::Care, &format!("1 request; see it with: {program} claims")),
        more => style.shade(Shade::Care, &format!("{more} requests; see them with: {program} claims")),
    };
    line("waiting", &waiting);
    let on: Vec<_> = status.grants_on.iter().map(|name| visible(name)).collect();
    line("grants", &if on.is_empty() { "none is on".to_owned() } else { on.join(", ") });
    if let Some(handlers) = handlers(status) {
        line("handlers", &handlers);
    }
    for changed in &status.waiting_handlers {
        line("", &style.shade(Shade::Care, &visible(changed)));
    }
    line("sign", &visible(&status.sign));
    line("records", &journal(style, &status.journal));
    for notice in &status.notices {
        line("notice", &style.shade(Shade::Care, &visible(notice)));
    }
    if let Some(tree) = &status.tree {
        text.push('\n');
        text.push_str(&tree::draw(style, tree));
    }
    text
}

/// How many custom capabilities stand in the tree, and how many wait for the keeper. Nothing where there are none.
fn handlers(status: &Status) -> Option<String> {
    let installed = status.tree.as_ref().map_or(0, |tree| custom(&tree.root));
    let waiting = status.waiting_handlers.len();
    if installed == 0 && waiting == 0 {
        return None;
    }
    let changed = if waiting == 0 { String::new() } else { format!(", {waiting} waiting for you") };
    Some(if status.running { format!("{installed} in service{changed}") } else { format!("{waiting} waiting for you") })
}

fn custom(node: &Node) -> usize {
    let own = usize::from(node.name.parse::<CapabilityName>().is_ok_and(|name| name.is_custom()));
    own + node.children.iter().map(custom).sum::<usize>()
}

fn owner(style: &Style, status: &Status) -> String {
    match &status.owner {
        Some(owner) => {
            let since = owner.since.map_or_else(String::new, |since| format!(" since {}", style.moment(since)));
            format!("{}{since}", visible(&owner.agent))
        }
        None => format!("nobody; pair with: {} pair", style.program),
    }
}

fn journal(style: &Style, journal: &JournalLine) -> String {
    let records = match journal.records {
        0 => "none yet".to_owned(),
        count => format!("{count} ({} to {})", journal.first, journal.last),
    };
    if journal.writable { records } else { format!("{records}, {}", style.shade(Shade::Bad, "cannot be written")) }
}

/// `pair`: the link, its QR code, and what comes next.
#[must_use]
pub fn pairing(style: &Style, link: &str, fingerprint: &str, until_ms: u64, code: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Pairing is open until {}. Give this link to your agent:\n", style.clock(until_ms));
    let _ = writeln!(text, "  {}\n", style.shade(Shade::Bold, link));
    if let Some(code) = code.then(|| qr(style, link)).flatten() {
        let _ = writeln!(text, "{code}\n");
    }
    let _ = writeln!(text, "On the agent's machine:  latchkey claim '{link}'");
    let _ = writeln!(text, "The device's fingerprint: {}\n", visible(fingerprint));
    let _ = writeln!(
        text,
        "The agent then shows a code of six digits. If this device shows the same one, approve it here:"
    );
    let _ = writeln!(text, "  {} approve CODE", style.program);
    text
}

/// Dark modules on a light ground. Without colour the terminal is taken to be dark, as most are.
fn qr(style: &Style, link: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(link, EcLevel::L).ok()?;
    let mut renderer = code.render::<Dense1x2>();
    let drawn = if style.colour {
        renderer.dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build()
    } else {
        renderer.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build()
    };
    let lines = drawn.lines().map(|line| {
        if style.colour { format!("  \u{1b}[38;5;16;48;5;231m{line}\u{1b}[0m") } else { format!("  {line}") }
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// `claims`.
#[must_use]
pub fn claims(style: &Style, claims: &[Waiting]) -> String {
    if claims.is_empty() {
        return format!("Nobody asks for this device. To let an agent ask: {} pair\n", style.program);
    }
    let mut rows = vec![["CODE", "STATE", "WHAT", "AGENT", "UNTIL", "ID"].map(str::to_owned)];
    rows.extend(claims.iter().map(|claim| {
        let code = if claim.code.is_empty() { "-" } else { &claim.code };
        [code, &claim.state, &claim.kind, &claim.agent, &style.moment(claim.expires_at), &claim.id].map(visible)
    }));
    let mut text = table(style, &rows);
    for claim in claims.iter().filter(|claim| claim.state == "pending") {
        text.push('\n');
        text.push_str(&waiting(style, claim));
    }
    text
}

/// A change that waits, and the two commands that decide it.
#[must_use]
pub fn waiting(style: &Style, change: &Waiting) -> String {
    let agent = visible(&change.agent);
    let what = match change.kind.as_str() {
        "claim" => format!("{agent} wants to own this device."),
        "transfer" => format!("The owner wants to hand this device to {agent}."),
        "release" => format!("{agent} wants to give this device back."),
        other => format!("{agent} asks for a {} of this device.", visible(other)),
    };
    let which = if change.code.is_empty() { visible(&change.id) } else { visible(&change.code).replace(' ', "") };
    let mut text = format!("{}\n", style.shade(Shade::Bold, &what));
    if !change.code.is_empty() {
        let code = style.shade(Shade::Bold, &visible(&change.code));
        let _ = writeln!(text, "  code     {code}   the agent shows the same one; if not, refuse");
    }
    let _ = writeln!(text, "  approve  {} approve {which}", style.program);
    let _ = writeln!(text, "  refuse   {} refuse {which}", style.program);
    text
}

/// `approve` and `refuse`.
#[must_use]
pub fn decided(style: &Style, change: &Waiting) -> String {
    let agent = visible(&change.agent);
    let program = &style.program;
    match (change.kind.as_str(), change.state.as_str()) {
        ("release", "approved") => format!("Done. This device has no owner now; to pair it again: {program} pair\n"),
        (_, "approved") => {
            format!(
                "Done. {agent} owns this device now, and may use none of it yet.\nAllow something, for example: {program} grant camera\n"
            )
        }
        (kind, state) => format!("The {} of {agent} is {}.\n", visible(kind), visible(state)),
    }
}

/// `grants`.
#[must_use]
pub fn grants(style: &Style, grants: &[GrantLine]) -> String {
    let mut rows = vec![["GRANT", "STATE", "SINCE", "CAPABILITIES"].map(str::to_owned)];
    rows.extend(grants.iter().map(|grant| {
        let since = grant.since.map_or_else(|| "-".to_owned(), |since| style.moment(since));
        let covers =
            if grant.capabilities.is_empty() { "-".to_owned() } else { visible(&grant.capabilities.join(", ")) };
        [visible(&grant.name), if grant.on { "on" } else { "off" }.to_owned(), since, covers]
    }));
    let program = &style.program;
    format!("{}\nTurn one on with: {program} grant NAME; off with: {program} revoke NAME\n", table(style, &rows))
}

/// `grant` and `revoke`.
#[must_use]
pub fn granted(grant: &GrantLine, changed: bool) -> String {
    let name = visible(&grant.name);
    let covers = visible(&grant.capabilities.join(", "));
    match (grant.on, changed) {
        (true, true) => format!("{name} is on: the owner may use {covers}.\n"),
        (true, false) => format!("{name} was on already.\n"),
        (false, true) => format!("{name} is off: nobody may use {covers}.\n"),
        (false, false) => format!("{name} was off already.\n"),
    }
}

/// The head of a list of records.
#[must_use]
pub fn receipt_head(style: &Style) -> String {
    style.shade(Shade::Faint, "  NUMBER  WHEN                 KIND    OUTCOME               TOOK      WHAT")
}

/// One record, in one line.
#[must_use]
pub fn receipt(style: &Style, record: &ReceiptLine) -> String {
    let when = record.received_at.or(record.ended_at).or(record.sign_on_at).or(record.sign_off_at);
    let when = when.map_or_else(|| "-".to_owned(), |when| style.moment(when));
    let outcome = match (record.kind.as_str(), record.outcome.as_deref()) {
        (_, Some(outcome)) => visible(outcome),
        ("call", None) => "started".to_owned(),
        (_, None) => "-".to_owned(),
    };
    let took = match (record.received_at, record.ended_at) {
        (Some(from), Some(to)) => format!("{} ms", to.saturating_sub(from)),
        _ => "-".to_owned(),
    };
    let mut what = record.what.as_deref().map_or_else(|| "-".to_owned(), visible);
    if let Some(on) = record.sign_on_at {
        let off = record.sign_off_at.map_or_else(String::new, |off| format!(" to {}", style.clock(off)));
        let _ = write!(what, "  (sign on {}{off})", style.clock(on));
    } else if let Some(off) = record.sign_off_at {
        let _ = write!(what, "  (sign off {})", style.clock(off));
    }
    let shade = match outcome.as_str() {
        "ok" => Shade::Good,
        "started" | "-" => Shade::Faint,
        _ => Shade::Care,
    };
    let outcome = style.shade(shade, &format!("{outcome:<20}"));
    format!("{:>8}  {when:<19}  {:<6}  {outcome}  {took:<8}  {what}", record.sequence, visible(&record.kind))
}

/// Columns as wide as their widest cell; the first row is the head.
pub(super) fn table<const N: usize>(style: &Style, rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end();
        let line = if number == 0 { style.shade(Shade::Faint, line) } else { line.to_owned() };
        let _ = writeln!(text, "  {line}");
    }
    text
}
