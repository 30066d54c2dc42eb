//! Runs the two programs as a person at the device, and one elsewhere, would. Every run has a limit and its output in a file,
//! so that nothing here can wait for ever.

#![allow(clippy::disallowed_methods, reason = "a test of real programs waits in real time, by polling them")]

use std::{
    fs::{self, DirBuilder, File},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::holds::{self, Holds};

/// Longer than the 90 s after which the agent's program gives up by itself.
const CALL: Duration = Duration::from_secs(120);
/// The device gives running work 10 s when it is told to stop.
const STOP: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// How much of the device's output is shown when something failed.
const WORDS_LINES: usize = 40;

/// Folders of a device and of an agent, and the two programs that use them.
pub(crate) struct Device {
    folder: PathBuf,
    outputs: AtomicUsize,
}

impl Device {
    /// Makes the folders, private as both programs demand, and the settings file.
    pub(crate) fn furnish(folder: &Path, settings: &str) -> Result<Self> {
        for part in ["", "config", "config/handlers", "state", "agent", "outputs"] {
            DirBuilder::new().mode(0o700).recursive(true).create(folder.join(part))?;
        }
        let device = Self { folder: folder.to_owned(), outputs: AtomicUsize::new(0) };
        device.settle(settings)?;
        Ok(device)
    }

    /// Writes the settings file anew.
    pub(crate) fn settle(&self, settings: &str) -> Result<()> {
        let file = self.file("config/latchkey.toml");
        let mut file = File::options().mode(0o600).write(true).create(true).truncate(true).open(file)?;
        Ok(file.write_all(settings.as_bytes())?)
    }

    /// Writes other settings over the ones it has, and has the running device read them.
    pub(crate) fn change_settings(&self, settings: &str) -> Result<()> {
        self.settle(settings)?;
        self.latchkeyd(&["reload"])?.done("the device reads its settings anew")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The device's program, as its keeper runs it beside the daemon.
    pub(crate) fn latchkeyd(&self, arguments: &[&str]) -> Result<Ended> {
        self.begin(self.keeper(arguments))?.end()
    }

    /// The agent's program.
    pub(crate) fn latchkey(&self, arguments: &[&str]) -> Result<Ended> {
        self.begin_latchkey(arguments)?.end()
    }

    pub(crate) fn begin_latchkey(&self, arguments: &[&str]) -> Result<Running> {
        let mut command = Command::new("latchkey");
        command.arg("--state-dir").arg(self.folder.join("agent")).args(arguments);
        self.begin(command)
    }

    pub(crate) fn snapshot(&self, name: &str) -> Result<Ended> {
        let file = self.file(name);
        self.latchkey(&["snapshot", crate::DEVICE, "-o", &file.to_string_lossy()])
    }

    pub(crate) fn start(&self) -> Result<Daemon> {
        Ok(Daemon { running: self.begin(self.keeper(&["run"]))? })
    }

    /// The claim that waits for the keeper, as soon as there is one.
    pub(crate) fn wait_for_claim(&self, limit: Duration) -> Result<Value> {
        let began = Instant::now();
        loop {
            let claims = self.latchkeyd(&["claims", "--json"])?.json()?;
            let pending = claims.as_array().and_then(|claims| claims.iter().find(|claim| claim["state"] == "pending"));
            if let Some(claim) = pending {
                return Ok(claim.clone());
            }
            ensure!(began.elapsed() < limit, "no claim arrived within {limit:?}: {claims}");
            thread::sleep(POLL);
        }
    }

    /// The records that the device keeps, the first first.
    pub(crate) fn records(&self) -> Result<Vec<Value>> {
        let records = self.latchkeyd(&["receipts", "--json"])?.json()?;
        records.as_array().or_else(|| records["records"].as_array()).cloned().context("receipts --json is no list")
    }

    /// A program that uses the agent's folder.
    pub(crate) fn begin_beside(&self, program: &str, arguments: &[&str]) -> Result<Running> {
        let mut command = Command::new(program);
        command.arg(self.folder.join("agent")).args(arguments);
        self.begin(command)
    }

    fn keeper(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("latchkeyd");
        command.arg("--config-dir").arg(self.folder.join("config"));
        command.arg("--state-dir").arg(self.folder.join("state")).args(arguments);
        command
    }

    fn begin(&self, mut command: Command) -> Result<Running> {
        let number = self.outputs.fetch_add(1, Ordering::Relaxed);
        let [out, errors] = ["out", "errors"].map(|kind| self.folder.join(format!("outputs/{number}.{kind}")));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        let line = format!("{command:?}");
        let child = command.spawn().with_context(|| format!("starting {line}"))?;
        Ok(Running { child, line, out, errors })
    }
}

/// A program that has been started; it does not outlive this.
pub(crate) struct Running {
    child: Child,
    line: String,
    out: PathBuf,
    errors: PathBuf,
}

impl Running {
    pub(crate) fn end(mut self) -> Result<Ended> {
        let code = self.wait(CALL)?;
        Ok(Ended { line: self.line.clone(), code, out: read(&self.out), errors: read(&self.errors) })
    }

    /// What it has printed so far.
    pub(crate) fn out(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    fn wait(&mut self, limit: Duration) -> Result<Option<i32>> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            if began.elapsed() > limit {
                bail!("{} did not end within {limit:?}\n{}{}", self.line, read(&self.out), read(&self.errors));
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a program ended, and what it printed.
pub(crate) struct Ended {
    line: String,
    code: Option<i32>,
    out: String,
    errors: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.code
    }

    /// Both outputs.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.out, self.errors)
    }

    /// Says the step, if it ended well.
    pub(crate) fn done(&self, step: &str) -> Result<()> {
        ensure!(self.code == Some(0), "{} ended with {:?}\n{}", self.line, self.code, self.text());
        crate::said(step);
        Ok(())
    }

    pub(crate) fn json(&self) -> Result<Value> {
        ensure!(self.code == Some(0), "{} ended with {:?}\n{}", self.line, self.code, self.text());
        serde_json::from_str(&self.out).with_context(|| format!("{} printed no JSON:\n{}", self.line, self.text()))
    }
}

/// `latchkeyd run`.
pub(crate) struct Daemon {
    running: Running,
}

impl Daemon {
    /// Until the keeper's tool reaches it.
    pub(crate) fn wait_until_ready(&mut self, device: &Device, limit: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.running.child.try_wait()? {
                bail!("the device ended at once: {status}");
            }
            let status = device.latchkeyd(&["status", "--json"])?;
            if status.code() == Some(0) && status.json()?["running"] == true {
                return Ok(());
            }
            ensure!(began.elapsed() < limit, "the device is not ready after {limit:?}: {}", status.text());
            thread::sleep(POLL);
        }
    }

    /// What it holds of the system.
    pub(crate) fn holds(&self) -> Result<Holds> {
        ensure!(Path::new("/proc").join(self.running.child.id().to_string()).exists(), "the device has ended");
        holds::of(self.running.child.id())
    }

    /// As a service manager would stop it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let pid =
            i32::try_from(self.running.child.id()).ok().and_then(Pid::from_raw).context("the device has no pid")?;
        kill_process(pid, Signal::TERM)?;
        let code = self.running.wait(STOP)?;
        ensure!(code == Some(0), "the device ended with {code:?} when told to stop");
        Ok(())
    }

    /// How many lines it printed so far.
    pub(crate) fn lines(&self) -> usize {
        (read(&self.running.out) + &read(&self.running.errors)).lines().count()
    }

    /// The last lines it printed.
    pub(crate) fn words(&self) -> String {
        let all = read(&self.running.out) + &read(&self.running.errors);
        let lines = all.lines().collect::<Vec<_>>();
        lines.iter().skip(lines.len().saturating_sub(WORDS_LINES)).map(|line| format!("{line}\n")).collect()
    }
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
