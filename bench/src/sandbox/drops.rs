//! Figures of whole devices: rates of signed calls, the way from a dropped file to its first call, a thousand handlers, a neighbour that loops.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use wire::{CapabilityName, CapabilityState, ErrorCode, OwnerRequest, Registration};

use super::{ARGUMENTS, Drop, ECHO, LOOP};
use crate::load::{Ask, Connection, Party, Run, drive, health};
use crate::report::{Server, cpu_of_all, own, start_device, used};

/// A handler that is not in service by then is not going to be.
const SERVICE_MAX: Duration = Duration::from_secs(120);
/// How often the registration is looked at meanwhile.
const LOOK_EACH: Duration = Duration::from_millis(5);

/// A device with a folder for handlers, and its owner.
pub(super) struct Kitchen {
    pub(super) server: Server,
    pub(super) party: Arc<Party>,
    pub(super) handlers: PathBuf,
    pub(super) state: PathBuf,
}

impl Kitchen {
    /// Starts a device with these handlers in its folder, all granted.
    pub(super) async fn start(latchkeyd: &Path, folder: &Path, name: &str, there: &[Drop]) -> anyhow::Result<Self> {
        let party = Arc::new(Party::new());
        let (state, handlers) = (folder.join(name), folder.join(format!("{name}-handlers")));
        std::fs::create_dir(&handlers)?;
        for drop in there {
            drop.place(&handlers)?;
        }
        own(&state, &party, there.iter().map(|drop| (drop.name.grant(), drop.grant())))?;
        let server = start_device(latchkeyd, &state, Some(&handlers)).await?;
        Ok(Self { server, party, handlers, state })
    }

    /// Ends the device and starts it again over the same folders.
    pub(super) async fn again(self, latchkeyd: &Path) -> anyhow::Result<Self> {
        let Self { server, party, handlers, state } = self;
        drop(server);
        let server = start_device(latchkeyd, &state, Some(&handlers)).await?;
        Ok(Self { server, party, handlers, state })
    }

    pub(super) async fn connection(&self) -> anyhow::Result<Connection> {
        Connection::open(self.server.address).await
    }

    pub(super) async fn registration(&self) -> anyhow::Result<Registration> {
        let (outcome, _) = self.connection().await?.ask_signed(&self.party, &OwnerRequest::Registration).await?;
        let value = outcome.map_err(|refusal| anyhow::anyhow!("no registration: {refusal}"))?;
        Ok(Registration::parse(value)?)
    }

    /// Waits until so many handlers are ready.
    pub(super) async fn in_service(&self, count: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        loop {
            let registration = self.registration().await?;
            let ready = |offered: &&wire::Offered| {
                offered.declaration.name.is_custom() && offered.state == CapabilityState::Ready
            };
            if registration.capabilities.iter().filter(ready).count() >= count {
                return Ok(began.elapsed());
            }
            anyhow::ensure!(began.elapsed() < SERVICE_MAX, "{count} handlers were not in service in time");
            tokio::time::sleep(LOOK_EACH).await;
        }
    }

    /// From the moment a file is in the folder until its capability answers that it is not granted, and then, once it is,
    /// the time of its first call.
    pub(super) async fn first_call_after(&self, latchkeyd: &Path, drop: &Drop) -> anyhow::Result<(Duration, Duration)> {
        let (mut connection, call) = (self.connection().await?, call(&drop.name)?);
        let began = Instant::now();
        drop.place(&self.handlers)?;
        loop {
            match connection.ask_signed(&self.party, &call).await?.0 {
                Err(refusal) if refusal.error == ErrorCode::Denied => break,
                Err(_) => anyhow::ensure!(began.elapsed() < SERVICE_MAX, "the dropped handler was never in service"),
                Ok(_) => anyhow::bail!("a handler that nobody granted was run"),
            }
            tokio::time::sleep(LOOK_EACH).await;
        }
        let in_service = began.elapsed();
        self.keeper(latchkeyd, &["grant", drop.name.as_str()])?;
        let began = Instant::now();
        connection.call(&self.party, &call).await?;
        Ok((in_service, began.elapsed()))
    }

    /// How many handlers the keeper's command lists.
    pub(super) fn listed(&self, latchkeyd: &Path) -> anyhow::Result<usize> {
        let listed: serde_json::Value = serde_json::from_slice(&self.keeper(latchkeyd, &["handlers", "--json"])?)?;
        let listed = listed.get("handlers").and_then(|handlers| handlers.as_array());
        Ok(listed.context("no list of handlers")?.len())
    }

    fn keeper(&self, latchkeyd: &Path, words: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new(latchkeyd);
        command.arg("--state-dir").arg(&self.state).arg("--config-dir").arg(&self.state).args(words);
        let output = command.stdin(Stdio::null()).output()?;
        anyhow::ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    }

    /// A stretch of load, and the processor time that the device and its children took for each call, in microseconds.
    pub(super) async fn load(&self, ask: Ask, connections: usize, time: Duration) -> anyhow::Result<(Run, f64)> {
        let before = cpu_of_all(self.server.pid())?;
        let run = drive(self.server.address, &self.party, connections, time, ask).await?;
        let used = used(&before, &cpu_of_all(self.server.pid())?);
        let each_us = used.as_secs_f64() * 1e6 / run.calls.max(1) as f64;
        Ok((run, each_us))
    }
}

/// A call of a handler of the bench.
pub(super) fn call(name: &CapabilityName) -> anyhow::Result<OwnerRequest> {
    Ok(OwnerRequest::Invoke { capability: name.clone(), arguments: wire::json::parse(ARGUMENTS)? })
}

pub(super) fn ask_for(name: &CapabilityName, may_be_refused: bool) -> anyhow::Result<Ask> {
    Ok(Ask::Signed { request: Arc::new(call(name)?), may_be_refused })
}

pub(super) fn echo() -> anyhow::Result<Drop> {
    Drop::new("echo", ECHO, "1s")
}

/// The loop is cut off at the longest time a handler may have, so that one call of it loops through a whole measurement.
pub(super) fn looping() -> anyhow::Result<Drop> {
    Drop::new("loop", LOOP, "60s")
}

/// Files of their own hash each, so that each has its own native code and its own child.
pub(super) fn many(count: usize) -> anyhow::Result<Vec<Drop>> {
    (0..count).map(|number| Drop::new(&format!("n{number}"), &format!("{ECHO};; {number}\n"), "1s")).collect()
}

/// Keeps the looping handler busy until it is dropped.
pub(super) struct Busy(tokio::task::JoinHandle<anyhow::Result<()>>);

impl Busy {
    pub(super) async fn start(kitchen: &Kitchen, name: &CapabilityName) -> anyhow::Result<Self> {
        let (mut connection, party, call) = (kitchen.connection().await?, Arc::clone(&kitchen.party), call(name)?);
        let task = tokio::spawn(async move {
            loop {
                // Cut off at its limit, and called again.
                drop(connection.ask_signed(&party, &call).await?);
            }
        });
        // Long enough for its process to be there and its call to run.
        let health = health();
        let mut beside = kitchen.connection().await?;
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            beside.call(&kitchen.party, &health).await.context("health beside the loop")?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::ensure!(!task.is_finished(), "the loop does not run");
        Ok(Self(task))
    }
}

impl std::ops::Drop for Busy {
    fn drop(&mut self) {
        self.0.abort();
    }
}
