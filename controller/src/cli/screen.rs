//! Stdout and stderr: results, notes, colour where a person sees it.

use std::io::{IsTerminal as _, Write as _, stderr, stdout};

use serde_json::{Value, json};
use wire::ErrorCode;
use wire::text::visible;

use super::outside;

/// Where the program writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// Whether stdout carries JSON.
    pub(crate) json: bool,
    /// Whether a person sees stderr.
    pub(crate) person: bool,
    colour: bool,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Self {
        let person = stderr().is_terminal();
        Self { json, person, colour: person && stdout().is_terminal() && outside::colour_allowed() }
    }

    /// One line of a result. The caller has made strings from devices visible.
    pub(crate) fn line(self, line: &str) -> std::io::Result<()> {
        writeln!(stdout().lock(), "{line}")
    }

    /// The result as JSON.
    pub(crate) fn json(self, value: &Value) -> std::io::Result<()> {
        writeln!(stdout().lock(), "{}", json_text(value))
    }

    /// A line beside the result. Stderr may be closed; that is no reason to fail.
    pub(crate) fn note(self, line: &str) {
        let _closed = writeln!(stderr().lock(), "{line}");
    }

    /// A line that replaces the last one, for a person only.
    pub(crate) fn progress(self, line: &str) {
        if self.person {
            let _closed = write!(stderr().lock(), "\r\u{1b}[K{line}");
        }
    }

    /// Ends what [`Self::progress`] wrote.
    pub(crate) fn progress_done(self) {
        self.progress("");
    }

    pub(crate) fn error(self, sentence: &str) {
        let word = if self.colour { "\u{1b}[31merror:\u{1b}[0m" } else { "error:" };
        self.note(&format!("{word} {sentence}"));
    }

    /// The failure as a document, where documents are wanted.
    pub(crate) fn failure(self, kind: &str, code: Option<ErrorCode>, sentence: &str) {
        if self.json {
            let code = code.map(ErrorCode::as_str);
            // The exit code says it too, to whoever has closed stdout.
            drop(self.json(&json!({"failed": kind, "error": code, "message": sentence})));
        }
    }

    /// What a person must not overlook.
    pub(crate) fn strong(self, text: &str) -> String {
        if self.colour { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// JSON that cannot steer a terminal: what `visible` would change is escaped the way JSON does it. Such characters occur
/// inside strings only.
fn json_text(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        let mut plain = [0; 4];
        let plain: &str = c.encode_utf8(&mut plain);
        if c.is_ascii() && c != '\u{7f}' || visible(plain) == plain {
            text.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// A table with columns as wide as they need to be; cells have been made visible.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
