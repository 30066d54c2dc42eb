//! What `latchkeyd run` tells the person at its terminal: where the device listens, who asks for it, what is done with it.
//!
//! Reads the house's events and prints lines; decides nothing. Logs go elsewhere, to the standard error.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use actors::{Caller, Command, Way};
use actors::{Event, House, Reply, Status};
use handlers::Clock;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use crate::cli::print::{self, Style};
use crate::keeper::ask::Address;

/// A terminal that several tasks print to, line by line.
#[derive(Clone)]
pub(crate) struct Terminal {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    clock: Arc<dyn Clock>,
    style: Style,
}

impl Terminal {
    /// Prints to `out`.
    pub(crate) fn new(out: Box<dyn Write + Send>, clock: Arc<dyn Clock>, style: Style) -> Self {
        Self { out: Arc::new(Mutex::new(out)), clock, style }
    }

    /// Prints as it is. A reader that has gone away is no failure of ours.
    pub(crate) fn print(&self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write!(out, "{text}{end}").and_then(|()| out.flush());
    }

    /// Prints with the time before it.
    pub(crate) fn say(&self, text: &str) {
        self.print(&format!("{}  {text}", self.style.clock(self.clock.wall_ms())));
    }

    /// The first lines of `run`.
    pub(crate) fn welcome(&self, status: &Status, address: &Address, first: bool) {
        let name = visible(&status.name);
        let mut lines = vec![format!("latchkeyd {}  {name}", status.version)];
        if status.simulated {
            lines.push("  SIMULATED  camera, sign and screen only pretend; no hardware is touched".to_owned());
        }
        if first {
            lines.push(format!("  new        this device now has a key: {}", status.fingerprint));
        } else {
            lines.push(format!("  device     {}", status.fingerprint));
        }
        lines.push(format!("  link       {}", address.link()));
        match &address.display {
            Some(display) => lines.push(format!("  display    {display}   open it on the device's screen")),
            None => lines.push("  display    turned off (keeper.display)".to_owned()),
        }
        let program = &self.style.program;
        match &status.owner {
            Some(owner) => lines.push(format!("  owner      {}", visible(&owner.agent))),
            None => lines.push(format!(
                "  owner      nobody yet; to pair it with an agent, run in another terminal: {program} pair"
            )),
        }
        if status.owner.is_some() && status.grants_on.is_empty() {
            lines.push(format!("  grants     none is on; see what there is with: {program} grants"));
        }
        lines.extend(status.notices.iter().map(|notice| format!("  notice     {}", visible(notice))));
        self.print(&lines.join("\n"));
    }

    /// Tells of events until `stop`.
    pub(crate) async fn follow(&self, house: &House, mut events: broadcast::Receiver<Event>, stop: CancellationToken) {
        let uid = rustix::process::geteuid().as_raw();
        let caller = Caller { uid, way: Way::Socket };
        // What waited before this start still waits.
        if let Reply::Claims { claims } = house.command(caller, Command::Claims).await {
            for change in claims.iter().filter(|change| change.state == "pending") {
                self.print(&print::waiting(&self.style, change));
            }
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.recv() => match event {
                    Ok(event) => self.happened(&event),
                    Err(broadcast::error::RecvError::Lagged(missed)) => tracing::debug!(missed, "events came faster than they could be printed"),
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            }
        }
    }

    fn happened(&self, event: &Event) {
        match event {
            Event::Waiting { change } => {
                self.say("somebody asks for this device");
                self.print(&print::waiting(&self.style, change));
            }
            Event::Decided { change } => {
                self.say(&format!(
                    "the {} of {} is {}",
                    visible(&change.kind),
                    visible(&change.agent),
                    visible(&change.state)
                ));
            }
            Event::PairingOpened { until } => self.say(&format!("pairing is open until {}", self.style.clock(*until))),
            Event::PairingClosed => self.say("pairing is closed"),
            Event::Owner { agent: Some(agent) } => {
                self.say(&format!("{} owns this device now; every grant is off", visible(agent)));
            }
            Event::Owner { agent: None } => self.say("this device has no owner now; every grant is off"),
            Event::Grant { name, on } => {
                self.say(&format!("grant {} is {}", visible(name), if *on { "on" } else { "off" }))
            }
            Event::Acting { agent, capability, .. } if capability != "device.health" => {
                self.say(&format!("{} uses {}", visible(agent), visible(capability)));
            }
            Event::Acted { capability, outcome, .. } if capability != "device.health" => {
                self.say(&format!("{}: {}", visible(capability), visible(outcome)));
            }
            Event::Acting { .. } | Event::Acted { .. } => {}
            Event::Activated { agent, until } => {
                self.say(&format!("{} has this device in use until {}", visible(agent), self.style.clock(*until)));
            }
            Event::Deactivated => self.say("this device is not in use any more"),
            Event::Notice { message } => self.say(&visible(message)),
        }
    }
}
