//! `doctor`: tries every part, says what is wrong, and the command that mends it.
//!
//! What is only looked at is looked at here; what is tried is asked of the running device, or, where none runs, done here under a sign of
//! our own. Prints each part as it is known; the exit code says whether all that is configured works.

use std::path::Path;

use actors::{Command, Reply};
use config::Settings;
use serde_json::{Value, json};
use wire::text::visible;

use super::args::Output;
use super::commands::Desk;
use super::handler;
use super::print::{Shade, Style};
use super::problem::{Ended, Problem};
use super::settings;
use super::talk::Answers;
use crate::SystemChance;
use crate::doctor::look::{clock, groups, handlers, listen, state, versions};
use crate::doctor::trial::{Bench, Trial};
use crate::doctor::{Finding, Part, Verdict};
use crate::keeper::ask::{Address, Ask, Talk, TalkError, Told};
use crate::lock::StateLock;

/// Wide enough for the names of all parts.
const PART_COLUMN: usize = 10;

pub(super) fn perform(desk: &mut Desk<'_>, parts: &[Part], output: Output) -> Result<(), Problem> {
    let wanted = |part: &Part| parts.is_empty() || parts.contains(part);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(wanted).collect();
    let mut findings = Vec::new();
    let mut told = |desk: &mut Desk<'_>, finding: Finding| {
        let finding = with_program(finding, &desk.style.program);
        if !output.json {
            desk.world.print(line(&desk.style, &finding));
        }
        findings.push(finding);
    };
    match settings::load(desk.cli, &desk.places, desk.world) {
        // Everything else hangs on them.
        Err(problem) => told(desk, Finding::broken(Part::Settings, problem.sentence, "latchkeyd config check")),
        Ok(settings) => {
            let mut visit = Visit::begin(desk, settings)?;
            for part in &parts {
                for finding in visit.part(desk, *part, &parts)? {
                    told(desk, finding);
                }
            }
            visit.end();
        }
    }
    if output.json {
        let list: Vec<Value> = findings.iter().map(as_json).collect();
        desk.world.print_json(&list);
    }
    verdict(desk, &findings, output)
}

/// One visit at a device.
struct Visit {
    settings: Settings,
    /// The running device, if there is one, and where it listens.
    device: Option<(Answers, Address)>,
    /// What a trial told of parts that come later.
    kept: Vec<Finding>,
    done: Vec<Trial>,
    alone: Option<(tokio::runtime::Runtime, Bench, Option<StateLock>)>,
}

impl Visit {
    fn begin(desk: &Desk<'_>, settings: Settings) -> Result<Self, Problem> {
        let device = match Talk::connect(&desk.places.state_dir) {
            Ok(talk) => {
                let mut answers = Answers::Daemon(talk);
                let address = answers.address()?.ok_or_else(Problem::unfit)?;
                Some((answers, address))
            }
            Err(TalkError::NotRunning { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { settings, device, kept: Vec::new(), done: Vec::new(), alone: None })
    }

    /// What is to be said of a part.
    fn part(&mut self, desk: &mut Desk<'_>, part: Part, asked: &[Part]) -> Result<Vec<Finding>, Problem> {
        if let Some(trial) = Trial::of(part) {
            if !self.done.contains(&trial) {
                self.done.push(trial);
                desk.world.print_aside(format!("trying {} …", trial.in_words()));
                let findings = self.try_out(desk, trial)?;
                self.kept.extend(findings.into_iter().filter(|finding| asked.contains(&finding.part)));
            }
            let (now, later) = std::mem::take(&mut self.kept).into_iter().partition(|finding| finding.part == part);
            self.kept = later;
            return Ok(now);
        }
        self.look(desk, part).map(|finding| vec![finding])
    }

    fn look(&mut self, desk: &Desk<'_>, part: Part) -> Result<Finding, Problem> {
        let folder = &desk.places.state_dir;
        Ok(match part {
            Part::Settings => {
                let what = match self.settings.file() {
                    Some(file) => format!("{} is good", file.display()),
                    None => format!("there is no {}, so the defaults hold", desk.places.settings_file().display()),
                };
                Finding::works(part, what)
            }
            Part::State => {
                let stuck = self.device.is_some() && !self.journal_writable()?;
                state::judge(folder, &state::look(folder, stuck))
            }
            Part::Disk => state::judge_room(state::room(folder).as_ref()),
            Part::Clock => {
                clock::judge(desk.world.now_ms, &desk.style.moment(desk.world.now_ms), clock::synchronised())
            }
            Part::Groups => {
                let gpio = self.settings.sign.gpio.is_some();
                groups::judge(&self.user(desk), &groups::nodes(Path::new("/dev"), gpio))
            }
            Part::Listen => match &self.device {
                Some((_, address)) => listen::judge(&listen::knock(address), true, address.tls),
                None => listen::judge(&listen::bind(&self.settings), false, self.settings.link.direct.tls()),
            },
            Part::Handlers => self.handlers(desk)?,
            Part::Versions => versions::judge(&versions::Installed::look()),
            Part::Sign
            | Part::Led
            | Part::Gpio
            | Part::Display
            | Part::Camera
            | Part::Microphone
            | Part::Speaker
            | Part::Speech => {
                return Err(Problem::unfit());
            }
        })
    }

    fn journal_writable(&mut self) -> Result<bool, Problem> {
        let Some((answers, _)) = &mut self.device else { return Ok(true) };
        match answers.house(Command::Status)? {
            Reply::Status(status) => Ok(status.journal.writable),
            _ => Err(Problem::unfit()),
        }
    }

    /// Whoever opens the hardware: the running device, else the user of the service that root looks after, else we.
    fn user(&self, desk: &Desk<'_>) -> groups::User {
        let of_service = || if desk.world.root { groups::User::of_service() } else { None };
        let pid = self.device.as_ref().map(|(_, address)| address.pid);
        let found = pid.and_then(groups::User::of_process).or_else(of_service);
        let found = found.or_else(|| groups::User::of_process(std::process::id()));
        found.unwrap_or_else(|| groups::User {
            uid: rustix::process::geteuid().as_raw(),
            name: "this user".to_owned(),
            groups: Vec::new(),
        })
    }

    fn handlers(&mut self, desk: &Desk<'_>) -> Result<Finding, Problem> {
        let accepted = self.settings.handlers.accept_weak_sandbox;
        if let Some((answers, _)) = &mut self.device {
            let Reply::Handlers { handlers, notice } = answers.house(Command::Handlers)? else {
                return Err(Problem::unfit());
            };
            return Ok(handlers::judge(&handlers, notice.as_deref(), accepted));
        }
        let folder = desk.places.handlers_dir(&self.settings);
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("custom.")).count();
        if files == 0 {
            return Ok(handlers::judge_machine(0, Err(String::new())));
        }
        let probed = handler::confinement(desk.cli, desk.world).map_err(|problem| problem.sentence);
        Ok(handlers::judge_machine(files, probed))
    }

    fn try_out(&mut self, desk: &Desk<'_>, trial: Trial) -> Result<Vec<Finding>, Problem> {
        if self.device.is_some() {
            // A connection of its own: one that says nothing for a while is closed.
            let mut talk = Talk::connect(&desk.places.state_dir)?;
            return match talk.ask(&Ask::Try { trial })? {
                Told::Tried { findings } => Ok(findings),
                Told::Failed { message } => Err(Problem::failed(message)),
                Told::House { .. } | Told::Reloaded { .. } | Told::Address { .. } => Err(Problem::unfit()),
            };
        }
        let (runtime, bench, _) = match &mut self.alone {
            Some(alone) => alone,
            none => none.insert(alone(&desk.places.state_dir, &self.settings)?),
        };
        Ok(runtime.block_on(bench.perform(trial)))
    }

    fn end(self) {
        if let Some((runtime, bench, _lock)) = self.alone {
            runtime.block_on(bench.end());
            // A thread that hangs in a driver holds up nobody.
            runtime.shutdown_background();
        }
    }
}

/// A bench of our own. While it stands no device starts in the folder, so that the two do not fight for the hardware.
fn alone(
    state_dir: &Path,
    settings: &Settings,
) -> Result<(tokio::runtime::Runtime, Bench, Option<StateLock>), Problem> {
    let lock = StateLock::take_if_there(state_dir).map_err(|error| Problem::of(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Problem::of(&error))?;
    let bench = {
        let _inside = runtime.enter();
        Bench::alone(settings.clone(), std::sync::Arc::new(SystemChance)).map_err(|error| Problem::of(&error))?
    };
    Ok((runtime, bench, lock))
}

/// Commands as they work here: with the flags that reach this device.
fn with_program(finding: Finding, program: &str) -> Finding {
    let mend = finding.mend.map(|mend| match mend.strip_prefix("latchkeyd ") {
        Some(rest) => format!("{program} {rest}"),
        None => mend,
    });
    Finding { mend, ..finding }
}

fn as_json(finding: &Finding) -> Value {
    let Finding { part, verdict, what, mend } = finding;
    json!({ "part": part, "ok": *verdict != Verdict::Broken, "what": what, "mend": mend })
}

/// One part, and below it what mends it.
fn line(style: &Style, finding: &Finding) -> String {
    let (word, shade) = match finding.verdict {
        Verdict::Works => ("ok", Shade::Good),
        Verdict::NotNeeded => ("-", Shade::Faint),
        Verdict::Broken => ("BROKEN", Shade::Bad),
    };
    let word = style.shade(shade, &format!("{word:<6}"));
    let mut text = format!("{word}  {:<PART_COLUMN$}  {}", finding.part.as_str(), visible(&finding.what));
    if let Some(mend) = &finding.mend {
        text.push_str(&format!("\n{:width$}to mend it: {}", "", visible(mend), width = PART_COLUMN + 10));
    }
    text
}

fn verdict(desk: &mut Desk<'_>, findings: &[Finding], output: Output) -> Result<(), Problem> {
    let broken: Vec<&str> =
        findings.iter().filter(|one| one.verdict == Verdict::Broken).map(|one| one.part.as_str()).collect();
    let sentence = match broken.as_slice() {
        [] => {
            if !output.json {
                desk.world.print("All that was looked at and is configured works.");
            }
            return Ok(());
        }
        [one] => format!("one part does not work: {one}; the command that mends it stands beside it"),
        several => {
            format!("{} parts do not work: {}; what mends each stands beside it", several.len(), several.join(", "))
        }
    };
    Err(Problem::new(Ended::Failed, sentence))
}
