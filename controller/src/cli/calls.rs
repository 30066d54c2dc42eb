//! `capabilities`, `activate`, `deactivate`, `call`, `cancel`, `health`: a device at work.

use std::io::Read as _;
use std::path::Path;
use std::pin::pin;

use latchkey_controller::arguments::{WordError, from_words};
use latchkey_controller::explain::chain;
use latchkey_controller::folder::AgentFolder;
use latchkey_controller::{Device, Failure, Invocation, Kind, WhenIdle, values};
use serde_json::{Value, json};
use wire::declaration::{Declaration, Registration};
use wire::envelope::BODY_BYTES_MAX;
use wire::json::Object;
use wire::request::Lease;
use wire::text::{CapabilityName, Id, visible};

use super::args;
use super::problem::Problem;
use super::session::{Desk, Session};
use super::tables;

/// The lease taken when a capability needs one and nothing was said.
const LEASE_MS: u64 = 60_000;

/// What an automatic lease has beyond the time-out of its capability.
const LEASE_MARGIN_MS: u64 = 5_000;

pub(crate) async fn capabilities(session: &Session, wanted: &str, one: Option<&str>) -> Result<(), Problem> {
    let one = one.map(parse_capability).transpose()?;
    let (_, device, desk) = session.device(wanted).await?;
    let registration = desk.controller.registration(&device.key).await.map_err(Problem::with(&device, None))?;
    let (document, lines) = match one {
        None => (Value::from(registration.to_object()), tables::registration(&device, &registration)),
        Some(name) => {
            let unknown = || {
                let see = format!("see: latchkey capabilities {}", device.name);
                Problem::usage(format!("{} offers no {name}; {see}", device.name))
            };
            let offered = registration.capability(&name).ok_or_else(unknown)?;
            (document_of(&registration, &name), tables::offered(&device, offered))
        }
    };
    if session.screen.json {
        session.screen.json(&document)?;
    } else {
        for line in lines {
            session.screen.line(&line)?;
        }
    }
    Ok(())
}

/// What the registration says of one capability, as the device wrote it.
fn document_of(registration: &Registration, name: &CapabilityName) -> Value {
    let all = registration.to_object();
    let members = all.get("capabilities").and_then(Value::as_array).into_iter().flatten();
    members
        .into_iter()
        .find(|member| member.get("name").is_some_and(|it| it == name.as_str()))
        .cloned()
        .unwrap_or_default()
}

pub(crate) async fn activate(session: &Session, wanted: &str, seconds: u64) -> Result<(), Problem> {
    let (_, device, desk) = session.device(wanted).await?;
    let lease = lease(seconds.saturating_mul(1000))?;
    let activated = session.past_other(|| desk.controller.activate(&device.key, lease)).await;
    activated.map_err(Problem::with(&device, None))?;
    if session.screen.json {
        session.screen.json(&json!({"device": device.name, "active": true, "lease_ms": lease.as_ms()}))?;
    } else {
        session.screen.line(&format!("{} is active for {seconds} s", device.name))?;
    }
    Ok(())
}

fn lease(lease_ms: u64) -> Result<Lease, Problem> {
    Lease::from_ms(lease_ms).ok_or_else(|| Problem::usage(args::lease_range()))
}

pub(crate) async fn deactivate(session: &Session, wanted: &str) -> Result<(), Problem> {
    let (_, device, desk) = session.device(wanted).await?;
    desk.controller.deactivate(&device.key).await.map_err(Problem::with(&device, None))?;
    if session.screen.json {
        session.screen.json(&json!({"device": device.name, "active": false}))?;
    } else {
        session.screen.line(&format!("{} is not active", device.name))?;
    }
    Ok(())
}

/// One call in the making: where it goes, and under which id.
pub(super) struct Line {
    pub(super) desk: Desk,
    pub(super) device: Device,
    pub(super) id: Id,
    capability: CapabilityName,
    declaration: Declaration,
    idle: WhenIdle,
}

impl Line {
    /// Finds the device and what it declares of the capability.
    pub(super) async fn open(
        session: &Session,
        wanted: &str,
        capability: CapabilityName,
        sending: &args::Sending,
    ) -> Result<Self, Problem> {
        let id = sending.id.as_deref().map(parse_id).transpose()?;
        let (_, device, desk) = session.device(wanted).await?;
        let id = id.map_or_else(|| desk.controller.draw_id(), Ok)?;
        let declared = desk.controller.declaration(&device.key, &capability).await;
        let declaration = declared.map_err(Problem::with(&device, Some(&capability)))?;
        let timeout_ms = u64::try_from(declaration.timeout.as_millis()).unwrap_or(u64::MAX);
        let idle = if sending.no_activate {
            WhenIdle::Refuse
        } else {
            let enough_ms = LEASE_MS.max(timeout_ms.saturating_add(LEASE_MARGIN_MS));
            WhenIdle::Activate(lease(sending.lease.map_or(enough_ms, |seconds| seconds.saturating_mul(1000)))?)
        };
        Ok(Self { desk, device, id, capability, declaration, idle })
    }

    /// Sends it and waits; Ctrl-C cancels it at the device.
    pub(super) async fn invoke(&self, session: &Session, arguments: Object) -> Result<Object, Problem> {
        let controller = &self.desk.controller;
        let invocation = Invocation { capability: self.capability.clone(), arguments, id: self.id };
        let mut work = pin!(session.past_other(|| controller.invoke(&self.device.key, &invocation, self.idle)));
        let done = tokio::select! {
            done = &mut work => done,
            Ok(()) = tokio::signal::ctrl_c() => {
                session.screen.note(&format!("cancelling {} on {}", self.capability, self.device.name));
                tokio::select! {
                    (_, done) = async { tokio::join!(controller.cancel(&self.device.key, self.id), &mut work) } => done,
                    Ok(()) = tokio::signal::ctrl_c() => return Err(self.abandoned()),
                }
            }
        };
        done.map_err(|failure| self.problem(&failure))
    }

    fn problem(&self, failure: &Failure) -> Problem {
        use latchkey_controller::explain::Attempt;
        let attempt = Attempt {
            device: self.device.name.as_str(),
            address: Some(&self.device.address),
            capability: Some(&self.capability),
            claim: false,
        };
        Problem::of(failure, &attempt)
    }

    fn abandoned(&self) -> Problem {
        let Self { device: Device { name, .. }, id, capability, .. } = self;
        let next = format!("see how it ended with: latchkey call {name} {capability} … --id {id}");
        Problem::new(Kind::Unknown, format!("stopped waiting; {next}"))
    }
}

fn parse_id(text: &str) -> Result<Id, Problem> {
    text.parse().map_err(|error| Problem::usage(format!("{} is no id: {}", visible(text), chain(&error))))
}

pub(super) fn parse_capability(text: &str) -> Result<CapabilityName, Problem> {
    let hint = "see: latchkey capabilities DEVICE";
    text.parse().map_err(|error| Problem::usage(format!("{} is {}; {hint}", visible(text), chain(&error))))
}

pub(crate) async fn call(session: &Session, call: &args::Call) -> Result<(), Problem> {
    let capability = parse_capability(&call.capability)?;
    let words = match call.arguments.as_slice() {
        [only] if only == "-" => vec![json_from_stdin()?],
        words => words.to_vec(),
    };
    let line = Line::open(session, &call.device, capability.clone(), &call.sending).await?;
    let arguments =
        from_words(&line.declaration.bounds, &words, &read_file).map_err(|error| words_problem(&error, &line))?;
    let value = line.invoke(session, arguments).await?;
    if session.screen.json {
        let document = json!({"device": line.device.name, "id": line.id, "value": Value::from(value)});
        return Ok(session.screen.json(&document)?);
    }
    if let Ok(Some(media)) = values::check(&capability, &value) {
        session.screen.line(&format!(
            "{}, {} bytes; see it with --json, or have a file of it with: latchkey {} {} -o FILE",
            media.mime,
            media.bytes.len(),
            if capability.as_str() == values::LISTEN { "listen" } else { "snapshot" },
            line.device.name
        ))?;
    } else if value.is_empty() {
        session.screen.line("done")?;
    } else {
        for line in tables::value(&value) {
            session.screen.line(&line)?;
        }
    }
    Ok(())
}

fn words_problem(error: &WordError, line: &Line) -> Problem {
    let look = format!("nothing was sent, see: latchkey capabilities {} {}", line.device.name, line.capability);
    Problem::usage(format!("{}; {look}", chain(error)))
}

fn json_from_stdin() -> Result<String, Problem> {
    let mut text = String::new();
    let max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
    let read = std::io::stdin().lock().take(max.saturating_add(1)).read_to_string(&mut text);
    read.map_err(|error| Problem::usage(format!("stdin cannot be read as text: {error}")))?;
    if text.len() > BODY_BYTES_MAX {
        return Err(Problem::usage(format!("stdin has more than the {BODY_BYTES_MAX} bytes that a request may have")));
    }
    if text.trim_start().starts_with('{') { Ok(text) } else { Err(Problem::usage("stdin must hold one JSON object")) }
}

/// Reads at most `bytes_max` and one more, so that too much is noticed.
pub(super) fn read_file(path: &Path, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let max = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) async fn cancel(session: &Session, wanted: &str, id: &str) -> Result<(), Problem> {
    let id = parse_id(id)?;
    let (agent, device): (AgentFolder, Device) = session.locate(wanted)?;
    let desk = session.desk_beside(&agent)?;
    let cancelled = desk.controller.cancel(&device.key, id).await.map_err(Problem::with(&device, None))?;
    if session.screen.json {
        session.screen.json(&json!({"device": device.name, "id": id, "cancelled": cancelled}))?;
    } else if cancelled {
        session.screen.line(&format!("cancelled on {}", device.name))?;
    } else {
        session.screen.line(&format!("nothing runs under that id on {}", device.name))?;
    }
    Ok(())
}

pub(crate) async fn health(session: &Session, wanted: &str) -> Result<(), Problem> {
    let capability = parse_capability("device.health")?;
    let sending = args::Sending { no_activate: true, lease: None, id: None };
    let line = Line::open(session, wanted, capability, &sending).await?;
    let value = line.invoke(session, Object::new()).await?;
    if session.screen.json {
        session.screen.json(&Value::from(value))?;
    } else {
        for line in tables::value(&value) {
            session.screen.line(&line)?;
        }
    }
    Ok(())
}
