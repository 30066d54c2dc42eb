//! Each command but `run`, from its words to what is printed.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use actors::{Command, ReceiptLine, Reply};
use config::{Places, safe};
use serde_json::json;
use wire::record::verify_export;
use wire::text::{base64_decode, visible};
use wire::{PairingLink, PairingSecret, PublicKey, Signer};

use super::args::{Cli, Order, Output};
use super::print::{self, Style};
use super::problem::{Ended, Problem};
use super::settings;
use super::talk::{Answers, device_key};
use super::world::{World, program};
use super::{doctor, handler, handlers, hardware};
use crate::device::VERSION;
use crate::keeper::ask::{Ask, Talk, TalkError, Told};

/// Records asked for at once.
const PAGE: u32 = 500;

/// How long one question of `--follow` waits for a record.
const FOLLOW_MS: u64 = 20_000;

/// Performs every command but `run`.
///
/// # Errors
/// One sentence and an exit code.
pub fn perform(cli: &Cli, world: &mut World) -> Result<(), Problem> {
    if let Order::Config(order) = &cli.order {
        return settings::perform(cli, order, world);
    }
    if let Order::VerifyExport { file, key, output } = &cli.order {
        return check_export(file, key.as_deref(), *output, world);
    }
    if let Order::Handler(order) = &cli.order {
        return handler::perform(cli, order, world);
    }
    let places = world.places(cli)?;
    let style = Style { zone: world.zone.clone(), colour: world.colour, program: program(cli, world) };
    let mut desk = Desk { cli, places, style, world };
    match &cli.order {
        Order::Run { .. } | Order::Config(_) | Order::VerifyExport { .. } | Order::Handler(_) => Err(Problem::unfit()),
        Order::Reload(output) => desk.reload(*output),
        Order::Status(output) => desk.status(*output),
        Order::Pair(output) => desk.pair(*output),
        Order::Claims(output) => desk.claims(*output),
        Order::Approve { which, output } => desk.decide(Command::Approve { which: which.join(" ") }, *output),
        Order::Refuse { which, output } => desk.decide(Command::Refuse { which: which.join(" ") }, *output),
        Order::Grants(output) => desk.grants(*output),
        Order::Grant { name, output } => desk.grant(Command::Grant { name: name.clone() }, *output),
        Order::Revoke { name, output } => desk.grant(Command::Revoke { name: name.clone() }, *output),
        Order::Receipts { verify: true, output, .. } => desk.verify(*output),
        Order::Receipts { export: Some(file), output, .. } => desk.export(file, *output),
        Order::Receipts { follow, last, output, .. } => desk.receipts(*last, *follow, *output),
        Order::Release { yes, output } => desk.release(*yes, *output),
        Order::Deactivate(output) => desk.simple(Command::Deactivate, *output),
        Order::Restart { capability, output } => {
            desk.simple(Command::Restart { capability: capability.clone() }, *output)
        }
        Order::Handlers { order, output } => handlers::perform(&mut desk, order.as_ref(), *output),
        Order::Doctor { parts, output } => doctor::perform(&mut desk, parts, *output),
        Order::Hardware(output) => hardware::perform(&mut desk, *output),
        Order::Key(output) => desk.key(*output),
    }
}

pub(super) struct Desk<'a> {
    pub(super) cli: &'a Cli,
    pub(super) places: Places,
    pub(super) style: Style,
    pub(super) world: &'a mut World,
}

impl Desk<'_> {
    fn anyone(&self) -> Result<Answers, Problem> {
        Answers::anyone(&self.places, &self.style.program, self.world.now_ms)
    }

    /// For what only a running daemon can do; says how this device's one is started.
    pub(super) fn daemon(&self) -> Result<Answers, Problem> {
        Talk::connect(&self.places.state_dir).map(Answers::Daemon).map_err(|error| match &error {
            TalkError::NotRunning { .. } => {
                Problem::new(Ended::Unreachable, format!("{error}; start it with: {} run", self.style.program))
            }
            TalkError::NotAllowed { .. } | TalkError::Broken(_) | TalkError::NotUnderstood(_) => error.into(),
        })
    }

    /// Where handlers are dropped, as the settings say now.
    pub(super) fn handlers_dir(&self) -> Option<String> {
        let settings = settings::load(self.cli, &self.places, self.world).ok()?;
        Some(self.places.handlers_dir(&settings).display().to_string())
    }

    fn reload(&mut self, output: Output) -> Result<(), Problem> {
        let Told::Reloaded { reload } = self.daemon()?.daemon_itself(&Ask::Reload)? else {
            return Err(Problem::unfit());
        };
        if output.json {
            self.world.print_json(&reload);
            return Ok(());
        }
        let changed = if reload.changed.is_empty() {
            "Nothing changed.".to_owned()
        } else {
            format!("Changed: {}.", reload.changed.join(", "))
        };
        self.world.print(changed);
        if !reload.restart.is_empty() {
            self.world.print(format!("These need a restart of latchkeyd: {}.", reload.restart.join(", ")));
        }
        Ok(())
    }

    fn status(&mut self, output: Output) -> Result<(), Problem> {
        let mut answers = self.anyone()?;
        let Reply::Status(mut status) = answers.house(Command::Status)? else { return Err(Problem::unfit()) };
        let address = answers.address()?;
        if !status.running {
            // The state does not hold what the settings say.
            status.name = settings::load(self.cli, &self.places, self.world)?.device.name;
            VERSION.clone_into(&mut status.version);
        }
        if output.json {
            let mut value = serde_json::to_value(&status).map_err(|error| Problem::of(&error))?;
            if let Some(members) = value.as_object_mut() {
                members.insert("address".to_owned(), json!(address));
            }
            self.world.print_json(&value);
        } else {
            self.world.print(print::status(&self.style, &status, address.as_ref()));
        }
        Ok(())
    }

    fn pair(&mut self, output: Output) -> Result<(), Problem> {
        let mut answers = self.daemon()?;
        let Some(address) = answers.address()? else { return Err(Problem::unfit()) };
        let Reply::Status(status) = answers.house(Command::Status)? else { return Err(Problem::unfit()) };
        let Reply::Pairing { secret, expires_ms } = answers.house(Command::Pair)? else { return Err(Problem::unfit()) };
        let device: PublicKey = status.device.parse().map_err(|_damaged| Problem::unfit())?;
        let secret: PairingSecret = secret.parse().map_err(|_damaged| Problem::unfit())?;
        let link = PairingLink { tls: address.tls, host: address.host, port: address.port, device, secret }.expose();
        if output.json {
            self.world.print_json(&json!({
                "link": link, "key": status.device, "fingerprint": status.fingerprint, "expires_ms": expires_ms,
            }));
        } else {
            let text = print::pairing(&self.style, &link, &status.fingerprint, expires_ms, self.world.terminal);
            self.world.print(text);
        }
        Ok(())
    }

    fn claims(&mut self, output: Output) -> Result<(), Problem> {
        let Reply::Claims { claims } = self.anyone()?.house(Command::Claims)? else { return Err(Problem::unfit()) };
        if output.json {
            self.world.print_json(&claims);
        } else {
            self.world.print(print::claims(&self.style, &claims));
        }
        Ok(())
    }

    fn decide(&mut self, command: Command, output: Output) -> Result<(), Problem> {
        let Reply::Decided { change } = self.daemon()?.house(command)? else { return Err(Problem::unfit()) };
        if output.json {
            self.world.print_json(&change);
        } else {
            self.world.print(print::decided(&self.style, &change));
        }
        Ok(())
    }

    fn grants(&mut self, output: Output) -> Result<(), Problem> {
        let Reply::Grants { grants } = self.anyone()?.house(Command::Grants)? else { return Err(Problem::unfit()) };
        if output.json {
            self.world.print_json(&grants);
        } else {
            self.world.print(print::grants(&self.style, &grants));
        }
        Ok(())
    }

    fn grant(&mut self, command: Command, output: Output) -> Result<(), Problem> {
        let Reply::Granted { grant, changed } = self.daemon()?.house(command)? else { return Err(Problem::unfit()) };
        if output.json {
            self.world.print_json(&json!({ "grant": grant, "changed": changed }));
        } else {
            self.world.print(print::granted(&grant, changed));
        }
        Ok(())
    }

    fn simple(&mut self, command: Command, output: Output) -> Result<(), Problem> {
        let Reply::Done { message } = self.daemon()?.house(command)? else { return Err(Problem::unfit()) };
        if output.json {
            self.world.print_json(&json!({ "message": message }));
        } else {
            self.world.print(visible(&message));
        }
        Ok(())
    }

    fn release(&mut self, yes: bool, output: Output) -> Result<(), Problem> {
        let mut answers = self.daemon()?;
        if !yes && !self.sure(&mut answers)? {
            return Err(Problem::new(Ended::Refused, "nothing was changed"));
        }
        let Reply::Released { was } = answers.house(Command::Release)? else { return Err(Problem::unfit()) };
        if output.json {
            self.world.print_json(&json!({ "was": was }));
            return Ok(());
        }
        let was =
            was.map_or_else(|| "It had no owner.".to_owned(), |agent| format!("{} owns it no more.", visible(&agent)));
        let text =
            format!("This device is free. {was} Every grant is off.\nTo pair it again: {} pair", self.style.program);
        self.world.print(text);
        Ok(())
    }

    fn sure(&mut self, answers: &mut Answers) -> Result<bool, Problem> {
        if !self.world.asks {
            return Err(Problem::new(
                Ended::Usage,
                "release takes the device from its owner; say --yes where nobody can be asked",
            ));
        }
        let Reply::Status(status) = answers.house(Command::Status)? else { return Err(Problem::unfit()) };
        let owner = status.owner.map_or_else(|| "nobody".to_owned(), |owner| visible(&owner.agent));
        self.world.print(format!(
            "{} is owned by {owner}. Its running work stops, and every grant is turned off.",
            visible(&status.name)
        ));
        self.world.print("Take the device from its owner? Type y and Enter for yes, anything else for no:");
        let mut answer = String::new();
        self.world.input.read_line(&mut answer).map_err(|error| Problem::of(&error))?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn receipts(&mut self, last: u32, follow: bool, output: Output) -> Result<(), Problem> {
        let mut answers = if follow { self.daemon()? } else { self.anyone()? };
        let Reply::Status(status) = answers.house(Command::Status)? else { return Err(Problem::unfit()) };
        let mut after = status.journal.last.saturating_sub(u64::from(last));
        if !follow && output.json {
            let records = self.read(&mut answers, &mut after, 0)?;
            self.world.print_json(&records);
            return Ok(());
        }
        if !output.json {
            self.world.print(print::receipt_head(&self.style));
        }
        let mut wait_ms = 0;
        loop {
            for record in self.read(&mut answers, &mut after, wait_ms)? {
                let line = if output.json {
                    serde_json::to_string(&record).map_err(|error| Problem::of(&error))?
                } else {
                    print::receipt(&self.style, &record)
                };
                self.world.print(line);
            }
            if !follow {
                return Ok(());
            }
            wait_ms = FOLLOW_MS;
        }
    }

    /// All records after `after`, which moves along.
    fn read(&self, answers: &mut Answers, after: &mut u64, wait_ms: u64) -> Result<Vec<ReceiptLine>, Problem> {
        let mut all = Vec::new();
        let mut wait_ms = wait_ms;
        loop {
            let asked = Command::Receipts { after: *after, limit: PAGE, wait_ms };
            let Reply::Receipts { records, last } = answers.house(asked)? else { return Err(Problem::unfit()) };
            let Some(newest) = records.last().map(|record| record.sequence) else { return Ok(all) };
            *after = newest;
            wait_ms = 0;
            all.extend(records);
            if newest >= last {
                return Ok(all);
            }
        }
    }

    fn verify(&mut self, output: Output) -> Result<(), Problem> {
        let Reply::Verified { count, first, last, ok, problem } = self.anyone()?.house(Command::Verify)? else {
            return Err(Problem::unfit());
        };
        if output.json {
            self.world
                .print_json(&json!({ "ok": ok, "count": count, "first": first, "last": last, "problem": problem }));
        }
        if !ok {
            let problem = problem.unwrap_or_else(|| "the chain does not hold".to_owned());
            return Err(Problem::failed(format!("the records were tampered with or damaged: {problem}")));
        }
        if !output.json {
            self.world.print(match count {
                0 => "There are no records yet.".to_owned(),
                _ => format!(
                    "All {count} records hold together, from {first} to {last}: none was changed, dropped or moved."
                ),
            });
        }
        Ok(())
    }

    fn export(&mut self, file: &Path, output: Output) -> Result<(), Problem> {
        let mut answers = self.anyone()?;
        let Reply::ExportHead { first, until, tail } = answers.house(Command::ExportHead)? else {
            return Err(Problem::unfit());
        };
        let mut bytes = Vec::new();
        let mut after = first.saturating_sub(1);
        while after < until {
            let Reply::ExportPage { last, records } = answers.house(Command::ExportPage { after, until })? else {
                return Err(Problem::unfit());
            };
            if last <= after {
                return Err(Problem::unfit());
            }
            bytes.extend(base64_decode(&records).map_err(|error| Problem::of(&error))?);
            after = last;
        }
        bytes.extend(base64_decode(&tail).map_err(|error| Problem::of(&error))?);
        let verified = verify_export(bytes.as_slice(), None).map_err(|error| Problem::of(&error))?;
        safe::write_private(file, &bytes).map_err(|error| Problem::of(&error))?;
        if output.json {
            self.world.print_json(
                &json!({ "file": file, "count": verified.count, "first": verified.first, "last": verified.last }),
            );
        } else {
            let name = visible(&file.to_string_lossy());
            self.world.print(format!("Wrote {} records to {name}, signed by this device.", verified.count));
            self.world
                .print(format!("Check it anywhere with: latchkeyd verify-export {name} --key {}", verified.device));
        }
        Ok(())
    }

    fn key(&mut self, output: Output) -> Result<(), Problem> {
        let key = device_key(&self.places.state_dir, &self.style.program)?;
        let (key, fingerprint) = (key.public().to_string(), key.public().fingerprint());
        if output.json {
            self.world.print_json(&json!({ "key": key, "fingerprint": fingerprint }));
        } else {
            self.world.print(format!("key          {key}\nfingerprint  {fingerprint}"));
        }
        Ok(())
    }
}

fn check_export(file: &Path, key: Option<&str>, output: Output, world: &mut World) -> Result<(), Problem> {
    let device: Option<PublicKey> = match key {
        Some(key) => Some(key.parse().map_err(|_damaged| {
            let sentence = "--key takes the key of a device, 43 characters, not its fingerprint; at the device, latchkeyd key prints it";
            Problem::new(Ended::Usage, sentence)
        })?),
        None => None,
    };
    let name = file.to_string_lossy();
    let opened = File::open(file).map_err(|error| Problem::failed(format!("cannot read {name}: {error}")))?;
    let verified = verify_export(BufReader::new(opened), device.as_ref())
        .map_err(|error| Problem::failed(format!("{name} does not hold: {}", super::problem::chain(&error))))?;
    if output.json {
        world.print_json(&json!({
            "ok": true, "count": verified.count, "first": verified.first, "last": verified.last,
            "device": verified.device.to_string(), "head_time": verified.head_time,
        }));
        return Ok(());
    }
    let style = Style { zone: world.zone.clone(), colour: world.colour, program: "latchkeyd".to_owned() };
    let who = if device.is_some() { "the device you named" } else { "one device" };
    world.print(format!(
        "{} holds {} records ({} to {}), none changed, dropped or moved, signed by {who} at {}.\ndevice  {}",
        visible(&name),
        verified.count,
        verified.first,
        verified.last,
        style.moment(verified.head_time),
        verified.device,
    ));
    if device.is_none() {
        world.print("To be sure which device that is, compare its key, or say --key.");
    }
    Ok(())
}
