//! Custom handlers on a running `latchkeyd`: what the caller sees, what the keeper sees, and that the device and the other handlers
//! go on. The numbers M1 to M12 and R2 in comments are those of the cases that were collected from other projects.
//!
//! A daemon serves many rows, since its start and the first call of each handler are what costs time.

mod calls;
mod changes;
mod children;
mod escape;
mod files;
mod reach;
mod rule;
mod slow;

use std::fs;
use std::time::Duration;

use actors::command::{HandlerLine, HandlerState};
use actors::{Command, Reply};
use handlers::wasm::log::LogLine;
use latchkey_tests::guests::{Dropbox, Mode, text};
use latchkey_tests::link::Outcome;
use latchkey_tests::{Agent, Daemon, Keeper, Line, Room, Start, timed, until};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wire::{ErrorCode, Object, OwnerRequest, Registration};

/// The handler beside every other: it must go on.
const NEIGHBOUR: &str = "custom.test.neighbour";
/// Asks for one string, in `word`.
const WORD: Mode<'_> = Mode { top: "", member: "word", reach: "" };

/// A running device with an owner and a handlers folder.
struct Kitchen {
    daemon: Daemon,
    agent: Agent,
    handlers: Dropbox,
    room: Room,
}

impl Kitchen {
    /// A device whose handlers folder was filled by `fill` before it started. The neighbour is there, and granted.
    fn new(fill: impl FnOnce(&Dropbox)) -> Self {
        Self::with(|_, handlers| fill(handlers), |start| start)
    }

    fn with(fill: impl FnOnce(&Room, &Dropbox), how: impl for<'a> FnOnce(Start<'a>) -> Start<'a>) -> Self {
        let room = Room::new();
        let handlers = Dropbox::at(&room.config().join("handlers"));
        handlers.fixture(NEIGHBOUR, "echo", WORD);
        fill(&room, &handlers);
        let daemon = how(Start::simulated(&room)).up();
        let agent = agent();
        agent.own(&daemon.line(), &daemon.keeper());
        let kitchen = Self { daemon, agent, handlers, room };
        kitchen.granted(NEIGHBOUR);
        kitchen
    }

    /// The same folders under a new daemon.
    fn again(self) -> Self {
        let Self { mut daemon, agent, handlers, room } = self;
        assert_eq!(daemon.stop(), 0);
        let daemon = Start::simulated(&room).up();
        Self { daemon, agent, handlers, room }
    }

    fn keeper(&self) -> Keeper {
        self.daemon.keeper()
    }

    fn line(&self) -> Line {
        self.daemon.line()
    }

    fn listed(&self) -> Vec<HandlerLine> {
        match self.keeper().ask(Command::Handlers) {
            Reply::Handlers { handlers, .. } => handlers,
            other => panic!("{other:?}"),
        }
    }

    /// How a handler stands, by the name of its capability.
    #[track_caller]
    fn standing(&self, name: &str) -> HandlerLine {
        let listed = self.listed();
        let found = listed.iter().find(|line| line.name.as_deref() == Some(name));
        found.cloned().unwrap_or_else(|| panic!("{name} is not listed: {listed:#?}"))
    }

    /// Waits until what lies in the folder under this name is in service.
    fn ready(&self, name: &str) -> HandlerLine {
        let binary = self.handlers.path(&format!("{name}.wasm"));
        let file = if binary.exists() { binary } else { self.handlers.path(&format!("{name}.wat")) };
        let manifest = self.handlers.path(&format!("{name}.toml"));
        let wanted = (Some(sha256(&file)), manifest.exists().then(|| sha256(&manifest)));
        let is = |line: &HandlerLine| {
            let content = (line.file_sha256.clone(), line.manifest_sha256.clone());
            assert!(line.state != HandlerState::Refused || content != wanted, "{line:#?}");
            line.name.as_deref() == Some(name) && line.state == HandlerState::Ready && content == wanted
        };
        until(&format!("{name} in service: {:#?}", self.listed()), || self.listed().into_iter().find(is))
    }

    /// Waits until a file is refused, and gives the reason.
    fn refused(&self, file: &str) -> String {
        let is = |line: &HandlerLine| line.file == file && line.state == HandlerState::Refused;
        let line = until(&format!("{file} refused: {:#?}", self.listed()), || self.listed().into_iter().find(is));
        line.why.unwrap_or_else(|| panic!("{file} is refused without a reason"))
    }

    /// Waits until it is in service, and grants it.
    fn granted(&self, name: &str) {
        self.ready(name);
        self.keeper().grant(name);
    }

    /// Drops a fixture, waits, and grants it.
    fn takes(&self, name: &str, fixture: &str, mode: Mode<'_>) {
        self.handlers.fixture(name, fixture, mode);
        self.granted(name);
    }

    fn call(&self, name: &str, arguments: Value) -> Outcome {
        self.agent.call(&self.line(), name, arguments)
    }

    /// Calls with arguments that a handler with one `word` takes.
    fn say(&self, name: &str, word: &str) -> Outcome {
        self.call(name, json!({ "word": word }))
    }

    /// Calls in a thread of its own.
    fn calling(&self, name: &str, arguments: Value) -> std::thread::JoinHandle<Outcome> {
        let (line, name) = (self.line(), name.to_owned());
        let agent = agent();
        std::thread::spawn(move || agent.call(&line, &name, arguments))
    }

    /// The device and the other handlers go on.
    #[track_caller]
    fn goes_on(&self, after: &str) {
        let (health, took) = timed(|| self.call("device.health", json!({})));
        health.value();
        assert!(took < Duration::from_secs(1), "{after}: health took {took:?}");
        let answer = self.say(NEIGHBOUR, after).value();
        assert_eq!(answer.get("word").and_then(|word| word.as_str()), Some(after));
    }

    fn registration(&self) -> Registration {
        let request = OwnerRequest::Registration;
        let value = self.agent.ask(&self.line(), latchkey_tests::agent::fresh_id(), &request).value();
        Registration::parse(value).unwrap()
    }

    fn log(&self, name: &str) -> Vec<LogLine> {
        match self.keeper().ask(Command::HandlerLog { name: name.to_owned() }) {
            Reply::HandlerLog { lines, .. } => lines,
            other => panic!("{other:?}"),
        }
    }

    /// What the records say that the keeper did, in order: `handler.installed custom.test.lamp`.
    fn records(&self) -> Vec<String> {
        let records = self.keeper().records(0);
        records.into_iter().filter(|record| record.kind == "keeper").filter_map(|record| record.what).collect()
    }

    fn count(&self, record: &str) -> usize {
        self.records().iter().filter(|known| *known == record).count()
    }
}

/// The owner. It has one key in all of these tests, so that a thread can have an agent of its own.
fn agent() -> Agent {
    Agent::from_seed("helper@home.example.org", &[7; 32])
}

/// Name of the capability that a fixture becomes.
fn named(fixture: &str) -> String {
    format!("custom.test.{fixture}")
}

fn sha256(path: &std::path::Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn is(outcome: &Outcome, code: ErrorCode, words: &str) {
    match &outcome.0 {
        Err(refusal) => assert!(refusal.error == code && refusal.message.contains(words), "{words}: {refusal:?}"),
        Ok(value) => panic!("not refused with {words}: {value:?}"),
    }
}

fn word(value: &Object, member: &str) -> Value {
    value.get(member).unwrap_or_else(|| panic!("no {member} in {value:?}")).clone()
}

#[test]
fn every_guest_of_these_tests_is_well_formed_and_those_of_the_handlers_world_are_small() {
    for (name, _) in latchkey_tests::guests::FIXTURES {
        let bytes = wat::parse_str(text(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(bytes.len() < 8 * 1024, "{name}: {}", bytes.len());
    }
}
