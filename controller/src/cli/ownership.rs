//! `claim`, `devices`, `transfer`, `release`, `forget`: who owns what, and waiting for keepers.
//!
//! The lock on the agent's key is held for each request, not while a keeper thinks, so that other work goes on meanwhile.

use std::io::{BufRead as _, Read as _};
use std::time::Duration;

use latchkey_controller::explain::{Attempt, chain};
use latchkey_controller::folder::AgentFolder;
use latchkey_controller::inventory::{Change, ChangeKind, ChangeState, Standing};
use latchkey_controller::{Clock as _, Device, DeviceName, Pending};
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::keys::PublicKey;
use wire::pairing::PairingLink;

use super::args;
use super::problem::Problem;
use super::screen::table;
use super::session::Session;

/// The longest pairing link is a host of 253 bytes with key and secret.
const LINK_BYTES_MAX: u64 = 1024;

/// How often a keeper's answer is looked for.
const POLL: Duration = Duration::from_secs(2);

/// A device that does not answer while its keeper thinks may be away for a moment, and the key may be in use by another
/// process; more failures in a row end the wait.
const POLL_FAILURES_MAX: u32 = 10;

pub(crate) async fn claim(session: &Session, claim: &args::Claim) -> Result<(), Problem> {
    let agent = session.agent()?;
    let Some(link) = &claim.link else { return resume(session, &agent, claim.no_wait).await };
    let typed = if link == "-" { link_from_stdin()? } else { link.clone() };
    let link: PairingLink = typed.parse().map_err(|error| Problem::usage(chain(&error)))?;
    let name: Option<DeviceName> = match &claim.name {
        Some(name) => Some(name.parse().map_err(|error| Problem::usage(chain(&error)))?),
        None => None,
    };
    if !link.tls && !latchkey_controller::Address::from(&link).is_loopback() {
        session
            .screen
            .note("warning: the link says http, so what is sent and seen can be read on the way (never changed)");
    }
    let pending = {
        let desk = session.desk(&agent).await?;
        let address = latchkey_controller::Address::from(&link);
        let attempt = Attempt { device: "the device", address: Some(&address), capability: None, claim: true };
        let asked = desk.controller.claim(&link, name, session.name_taken(&agent)).await;
        asked.map_err(|failure| Problem::of(&failure, &attempt))?
    };
    announce(session, &agent, &pending, "claim", claim.no_wait)?;
    if claim.no_wait {
        return Ok(());
    }
    wait(session, &agent, &pending.key).await
}

/// A link that was not to appear in the list of processes.
fn link_from_stdin() -> Result<String, Problem> {
    let mut line = String::new();
    let read = std::io::stdin().lock().take(LINK_BYTES_MAX).read_line(&mut line);
    read.map_err(|error| Problem::usage(format!("stdin cannot be read as text: {error}")))?;
    Ok(line)
}

/// Says what the keeper has to do, and with `no_wait` ends with it.
fn announce(
    session: &Session,
    agent: &AgentFolder,
    pending: &Pending,
    what: &str,
    no_wait: bool,
) -> Result<(), Problem> {
    let screen = session.screen;
    if no_wait && screen.json {
        let document = document(agent, pending.name.as_str(), &pending.key, &pending_change(pending));
        return Ok(screen.json(&document)?);
    }
    let approve = match &pending.code {
        Some(code) => {
            let line = format!("code {}", screen.strong(&code.to_string()));
            // Stdout belongs to the one document.
            if screen.json {
                screen.note(&line)
            } else {
                screen.line(&line)?
            }
            format!("latchkeyd approve '{code}'")
        }
        None => format!("latchkeyd approve {}", pending.id),
    };
    let compare = if pending.code.is_some() { "compare the code there and " } else { "" };
    screen.note(&format!("the {what} waits for the keeper: at the device, {compare}run: {approve}"));
    if no_wait {
        screen.note(&format!("it expires at {}; look again with: {}", clock_time(pending.expires_at), look(what)));
    }
    Ok(())
}

fn look(what: &str) -> &'static str {
    if what == "claim" { "latchkey claim --resume" } else { "latchkey devices" }
}

fn pending_change(pending: &Pending) -> Value {
    json!({"id": pending.id, "code": pending.code, "state": ChangeState::Pending, "expires_at": pending.expires_at})
}

fn document(agent: &AgentFolder, name: &str, key: &PublicKey, change: &Value) -> Value {
    let member = |name: &str| change.get(name).cloned().unwrap_or(Value::Null);
    json!({
        "device": name, "key": key, "fingerprint": key.fingerprint(), "agent": agent.agent(),
        "id": member("id"), "code": member("code"), "state": member("state"), "expires_at": member("expires_at"),
    })
}

/// A wall time as people read it.
fn clock_time(wall_ms: u64) -> String {
    let timestamp = i64::try_from(wall_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    match timestamp {
        Some(time) => time.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string(),
        None => wall_ms.to_string(),
    }
}

/// One look at a change.
pub(super) async fn look_once(
    session: &Session,
    agent: &AgentFolder,
    key: &PublicKey,
) -> Result<(ChangeState, Device), Problem> {
    let desk = session.desk_for_a_look(agent).await?;
    let device = desk.controller.device(key).map_err(|error| Problem::usage(error.to_string()))?;
    let status = desk.controller.change_status(key, session.name_taken(agent)).await;
    let state = status.map_err(Problem::with(&device, None))?;
    let device = desk.controller.device(key).map_err(|error| Problem::usage(error.to_string()))?;
    Ok((state, device))
}

/// Waits until the keeper has answered, the change has expired, or the time given is over.
async fn wait(session: &Session, agent: &AgentFolder, key: &PublicKey) -> Result<(), Problem> {
    let asked = device_of(agent, key)?;
    let change = asked.change.clone().ok_or_else(|| Problem::failed("the change is not on record"))?;
    let mut failures = 0;
    loop {
        match look_once(session, agent, key).await {
            Ok((ChangeState::Pending, _)) => failures = 0,
            Ok((state, device)) => {
                session.screen.progress_done();
                return settled(session, agent, &device, &change, state);
            }
            Err(problem) if !problem.passing => {
                session.screen.progress_done();
                return Err(problem);
            }
            Err(problem) => {
                failures += 1;
                if failures >= POLL_FAILURES_MAX {
                    session.screen.progress_done();
                    return Err(problem);
                }
            }
        }
        let left_ms = change.expires_at.saturating_sub(session.clock.wall_ms());
        session.screen.progress(&format!("waiting for the keeper, {} left", minutes(left_ms)));
        let next = Instant::now() + POLL;
        if session.waiting_until().is_some_and(|until| next >= until) {
            session.screen.progress_done();
            let what = word(&change.kind);
            return Err(Problem::refused(format!(
                "not approved in time; the {what} still waits, look again with: {}",
                look(what)
            )));
        }
        tokio::time::sleep_until(next).await;
    }
}

fn minutes(ms: u64) -> String {
    let seconds = ms / 1000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn word(kind: &ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Claim => "claim",
        ChangeKind::Transfer { .. } => "transfer",
        ChangeKind::Release => "release",
    }
}

fn device_of(agent: &AgentFolder, key: &PublicKey) -> Result<Device, Problem> {
    use latchkey_controller::Store as _;
    let inventory = agent.store().load()?;
    inventory.device(key).cloned().ok_or_else(|| Problem::failed("the device is not on record any more"))
}

/// Says how a change ended.
fn settled(
    session: &Session,
    agent: &AgentFolder,
    device: &Device,
    change: &Change,
    state: ChangeState,
) -> Result<(), Problem> {
    let name = &device.name;
    if session.screen.json {
        let ended = json!({"id": change.id, "code": change.code, "state": state, "expires_at": change.expires_at});
        session.screen.json(&document(agent, name.as_str(), &device.key, &ended))?;
    }
    match state {
        ChangeState::Approved => {
            if !session.screen.json {
                let line = match &change.kind {
                    ChangeKind::Claim => format!("{name} is yours; see what it offers: latchkey capabilities {name}"),
                    ChangeKind::Transfer { to } => format!("{name} belongs to {to} now"),
                    ChangeKind::Release => format!("{name} belongs to nobody now"),
                };
                session.screen.line(&line)?;
            }
            Ok(())
        }
        ChangeState::Refused | ChangeState::Expired | ChangeState::Pending => {
            Err(not_approved(name, &change.kind, state))
        }
    }
}

/// Why a change is not done.
pub(super) fn not_approved(name: &DeviceName, kind: &ChangeKind, state: ChangeState) -> Problem {
    let what = word(kind);
    Problem::refused(match state {
        ChangeState::Refused => format!("the keeper refused the {what} of {name}"),
        ChangeState::Expired => {
            format!("the {what} of {name} was not approved in time; ask again when the keeper is there")
        }
        ChangeState::Pending | ChangeState::Approved => {
            format!("the {what} of {name} is not approved yet; look again with: {}", look(what))
        }
    })
}

/// Claims made before: waits for each that is pending, or looks once.
async fn resume(session: &Session, agent: &AgentFolder, no_wait: bool) -> Result<(), Problem> {
    use latchkey_controller::Store as _;
    let open = |device: &Device| {
        let change = device.change.as_ref();
        device.standing == Standing::Claiming && change.is_some_and(|change| change.state == ChangeState::Pending)
    };
    let pending: Vec<Device> = agent.store().load()?.devices.into_iter().filter(open).collect();
    if pending.is_empty() {
        return Err(Problem::usage("no claim waits for a keeper; see: latchkey devices"));
    }
    let mut worst = Ok(());
    for device in pending {
        let done = if no_wait {
            let (state, now) = look_once(session, agent, &device.key).await?;
            match &device.change {
                Some(change) => settled(session, agent, &now, change, state),
                None => Ok(()),
            }
        } else {
            wait(session, agent, &device.key).await
        };
        if let Err(problem) = done
            && let Err(earlier) = std::mem::replace(&mut worst, Err(problem))
        {
            session.screen.error(&earlier.sentence);
        }
    }
    worst
}

pub(crate) async fn devices(session: &Session) -> Result<(), Problem> {
    let mut documents = Vec::new();
    let mut rows = vec![["NAME", "STATE", "AGENT", "ADDRESS", "FINGERPRINT"].map(str::to_owned).to_vec()];
    for (agent, inventory) in session.inventories()? {
        for known in inventory.devices {
            let waits = known.change.as_ref().is_some_and(|change| change.state == ChangeState::Pending);
            let (device, change, asked) = if waits {
                ask_again(session, &agent, &known).await
            } else {
                (known.clone(), known.change.clone(), true)
            };
            rows.push(vec![
                device.name.to_string(),
                state_words(session, &device, change.as_ref(), asked),
                agent.agent().to_string(),
                device.address.to_string(),
                device.key.fingerprint(),
            ]);
            documents.push(device_document(session, &agent, &device, change.as_ref(), asked));
        }
    }
    if session.screen.json {
        session.screen.json(&Value::Array(documents))?;
    } else if documents.is_empty() {
        session.screen.note("there is no device yet; at a device run: latchkeyd pair, then: latchkey claim 'LINK'");
    } else {
        for line in table(&rows) {
            session.screen.line(&line)?;
        }
    }
    Ok(())
}

/// A device after its change was asked about; as known before if it cannot be asked.
async fn ask_again(session: &Session, agent: &AgentFolder, known: &Device) -> (Device, Option<Change>, bool) {
    match look_once(session, agent, &known.key).await {
        Ok((state, device)) => {
            let change = known.change.clone().map(|change| Change { state, ..change });
            (device, change, true)
        }
        Err(problem) => {
            session.screen.note(&format!("note: {}", problem.sentence));
            (known.clone(), known.change.clone(), false)
        }
    }
}

fn maybe_active_ms(session: &Session, device: &Device) -> u64 {
    device.hold.as_ref().map_or(0, |hold| hold.remaining_ms(&*session.clock))
}

fn state_words(session: &Session, device: &Device, change: Option<&Change>, asked: bool) -> String {
    let mut words = match device.standing {
        Standing::Claiming => "claiming".to_owned(),
        Standing::Owned => "owned".to_owned(),
        Standing::Gone => "gone".to_owned(),
    };
    if let Some(change) = change.filter(|change| change.state != ChangeState::Approved) {
        let code = change.code.as_ref().map(|code| format!(", code {code}")).unwrap_or_default();
        let how = match change.state {
            ChangeState::Pending if asked => "waits for the keeper",
            ChangeState::Pending => "not reachable now",
            ChangeState::Refused => "refused",
            ChangeState::Expired => "expired",
            ChangeState::Approved => "approved",
        };
        words.push_str(&format!(" ({}: {how}{code})", word(&change.kind)));
    }
    let active_ms = maybe_active_ms(session, device);
    if active_ms > 0 {
        words.push_str(&format!(", active for at most {} s", active_ms.div_ceil(1000)));
    }
    words
}

fn device_document(
    session: &Session,
    agent: &AgentFolder,
    device: &Device,
    change: Option<&Change>,
    asked: bool,
) -> Value {
    let change = change.map(|change| {
        let to = match &change.kind {
            ChangeKind::Transfer { to } => Some(to),
            ChangeKind::Claim | ChangeKind::Release => None,
        };
        json!({
            "kind": word(&change.kind), "id": change.id, "state": change.state, "code": change.code, "to": to,
            "expires_at": change.expires_at, "asked": asked,
        })
    });
    json!({
        "name": device.name, "key": device.key, "fingerprint": device.key.fingerprint(), "agent": agent.agent(),
        "address": device.address.to_string(), "state": device.standing, "change": change,
        "maybe_active_ms": maybe_active_ms(session, device),
    })
}

pub(crate) async fn transfer(session: &Session, transfer: &args::Transfer) -> Result<(), Problem> {
    let to = transfer.to.parse().map_err(|error| Problem::usage(format!("--to: {}", chain_of(error))))?;
    let key: PublicKey = transfer.key.parse().map_err(|error| Problem::usage(format!("--key: {}", chain_of(error))))?;
    let (agent, device, desk) = session.device(&transfer.device).await?;
    let pending = desk.controller.transfer(&device.key, &to, &key).await.map_err(Problem::with(&device, None))?;
    drop(desk);
    announce(session, &agent, &pending, "transfer", transfer.no_wait)?;
    if transfer.no_wait { Ok(()) } else { wait(session, &agent, &device.key).await }
}

fn chain_of(error: impl std::error::Error) -> String {
    chain(&error)
}

pub(crate) async fn release(session: &Session, wanted: &str, no_wait: bool) -> Result<(), Problem> {
    let (agent, device, desk) = session.device(wanted).await?;
    let pending = desk.controller.release(&device.key).await.map_err(Problem::with(&device, None))?;
    drop(desk);
    announce(session, &agent, &pending, "release", no_wait)?;
    if no_wait { Ok(()) } else { wait(session, &agent, &device.key).await }
}

pub(crate) async fn forget(session: &Session, wanted: &str) -> Result<(), Problem> {
    let (agent, device) = session.locate_anew(wanted).await?;
    let desk = session.desk(&agent).await?;
    desk.controller.forget(&device.key).map_err(Problem::with(&device, None))?;
    let name = &device.name;
    if device.standing == Standing::Owned {
        session
            .screen
            .note(&format!("{name} still obeys {}; at the device, end that with: latchkeyd release", agent.agent()));
    }
    if session.screen.json {
        session.screen.json(&json!({"device": name, "forgotten": true}))?;
    } else {
        session.screen.line(&format!("{name} is forgotten here"))?;
    }
    Ok(())
}
