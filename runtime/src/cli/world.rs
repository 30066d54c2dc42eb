//! The outside, as values: environment, clock, time zone, terminal. The main makes the real one; tests make their own.

use std::ffi::OsString;
use std::io::{BufRead, Write};

use config::{Flags, Places};
use jiff::tz::TimeZone;
use wire::text::visible;

use super::args::Cli;
use super::problem::Problem;

/// The outside of one call.
pub struct World {
    /// The environment, read once.
    pub env: Vec<(OsString, OsString)>,
    /// Whether root calls.
    pub root: bool,
    /// Milliseconds since the Unix epoch at the start of the call.
    pub now_ms: u64,
    /// Where people read clocks.
    pub zone: TimeZone,
    /// Answers of the person.
    pub input: Box<dyn BufRead + Send>,
    /// Whether a person sits at the input.
    pub asks: bool,
    /// Where answers go.
    pub out: Box<dyn Write + Send>,
    /// Where words beside an answer go, so that the answer alone can be piped on.
    pub aside: Box<dyn Write + Send>,
    /// Whether the output is a terminal.
    pub terminal: bool,
    /// Whether the output may be coloured.
    pub colour: bool,
}

impl World {
    /// One variable of the environment.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<OsString> {
        self.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// The variables that are text, for the settings.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let text = |text: &OsString| text.clone().into_string().ok();
        let variables: Vec<_> = self.env.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        variables.into_iter()
    }

    /// The two folders.
    ///
    /// # Errors
    /// When no folder is known.
    pub fn places(&self, cli: &Cli) -> Result<Places, Problem> {
        let flags = Flags { config_dir: cli.config_dir.clone(), state_dir: cli.state_dir.clone(), system: cli.system };
        Places::find(flags, &|name| self.variable(name), self.root).map_err(|error| Problem::of(&error))
    }

    /// Prints. A reader that has gone away is no failure of ours.
    pub fn print(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let _ = write!(self.out, "{text}{end}").and_then(|()| self.out.flush());
    }

    /// Prints beside the answer.
    pub fn print_aside(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let _ = write!(self.aside, "{text}{end}").and_then(|()| self.aside.flush());
    }

    /// Prints JSON in lines for people and programs alike.
    pub fn print_json(&mut self, value: &impl serde::Serialize) {
        if let Ok(text) = serde_json::to_string_pretty(value) {
            self.print(text);
        }
    }

    /// The same of a document that somebody else wrote: at a terminal, what could steer it is escaped.
    pub fn print_json_of_others(&mut self, value: &impl serde::Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) if self.terminal => self.print(text.lines().map(visible).collect::<Vec<_>>().join("\n")),
            Ok(text) => self.print(text),
            Err(_) => {}
        }
    }
}

/// `latchkeyd` as this person has to write it to reach the same device from another terminal.
#[must_use]
pub fn program(cli: &Cli, world: &World) -> String {
    let mut program = "latchkeyd".to_owned();
    if cli.system {
        program.push_str(" --system");
    }
    let named = cli
        .state_dir
        .clone()
        .map(OsString::from)
        .or_else(|| world.variable("LATCHKEY_STATE_DIR").filter(|dir| !dir.is_empty()));
    if let Some(dir) = named {
        program.push_str(" --state-dir ");
        program.push_str(&quoted(&dir.to_string_lossy()));
    }
    program
}

/// As a shell reads it back.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@:,".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
