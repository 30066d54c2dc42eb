//! What `latchkeyd run` tells the person at its terminal: where the device listens, who asks for it, what is done with it.
//!
//! Reads the house's events and prints lines; decides nothing. Logs go elsewhere, to the standard error. A thread of its own writes, so
//! that a terminal that takes nothing (a paused pager, Ctrl-S) holds up neither the device nor its end; it ends with the last [`Terminal`].

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use actors::{Caller, Command, Way};
use actors::{Event, House, Reply, Status};
use handlers::Clock;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use crate::cli::print::{self, Style};
use crate::keeper::ask::Address;

/// Texts that wait for a terminal that takes none: more than a person reads afterwards.
const WAITING_MAX: usize = 1_024;

/// How long the end of the program waits for the terminal to take what it was told.
const LAST_TEXTS: Duration = Duration::from_secs(1);

/// A terminal that several tasks print to, text by text; clones share it.
#[derive(Clone)]
pub(crate) struct Terminal {
    texts: SyncSender<Told>,
    left_out: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    style: Style,
}

enum Told {
    Text(String),
    /// Answered when everything before it is written.
    Last(SyncSender<()>),
}

impl Terminal {
    /// Prints to `out`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new(out: Box<dyn Write + Send>, clock: Arc<dyn Clock>, style: Style) -> io::Result<Self> {
        let (texts, told) = sync_channel(WAITING_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&left_out);
        std::thread::Builder::new().name("terminal".to_owned()).spawn(move || write_all(out, &told, &missing))?;
        Ok(Self { texts, left_out, clock, style })
    }

    /// Prints as it is, soon. What a terminal that is stuck has no room for is left out, and counted there.
    pub(crate) fn print(&self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        if self.texts.try_send(Told::Text(format!("{text}{end}"))).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is printed, unless the terminal is stuck.
    pub(crate) fn finish(&self) {
        let (written, done) = sync_channel(1);
        if self.texts.try_send(Told::Last(written)).is_ok() {
            // It was not in time: nobody reads there.
            let _ = done.recv_timeout(LAST_TEXTS);
        }
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
            Event::Handlers => self.say(&format!("the handlers folder changed; see: {} handlers", self.style.program)),
            Event::Notice { message } => self.say(&visible(message)),
        }
    }
}

/// The thread behind a terminal. A reader that has gone away is no failure of ours.
fn write_all(mut out: Box<dyn Write + Send>, told: &Receiver<Told>, left_out: &AtomicU64) {
    while let Ok(told) = told.recv() {
        match told {
            Told::Text(text) => {
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
            Told::Last(written) => {
                let _ = written.try_send(());
            }
        }
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let _ = writeln!(out, "({missing} lines were left out, because nothing was taken here)");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::{Mutex, PoisonError};

    use handlers::SystemClock;
    use jiff::tz::TimeZone;

    use super::*;

    /// Takes texts once `go` says so, or nobody can say it any more.
    struct Paper {
        go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.go.recv();
            self.written.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn terminal() -> (Terminal, SyncSender<()>, Arc<Mutex<Vec<u8>>>) {
        let (go, goes) = sync_channel(1);
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let paper = Paper { go: goes, written: Arc::clone(&written) };
        let style = Style { zone: TimeZone::UTC, colour: false, program: "latchkeyd".to_owned() };
        (Terminal::new(Box::new(paper), Arc::new(SystemClock), style).unwrap(), go, written)
    }

    fn lines(written: &Mutex<Vec<u8>>) -> Vec<String> {
        String::from_utf8(written.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_terminal_that_takes_nothing_holds_nobody_up_and_says_later_what_it_missed() {
        let (terminal, go, written) = terminal();
        let (ended, end) = sync_channel(1);
        let told = terminal.clone();
        std::thread::spawn(move || {
            for number in 0..2 * WAITING_MAX {
                told.print(&number.to_string());
            }
            told.finish();
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(go);
        while terminal.texts.try_send(Told::Text("after\n".to_owned())).is_err() {
            std::thread::yield_now();
        }
        // As `finish`, which does not try again: the queue may be full to its last place.
        let (last, done) = sync_channel(1);
        while terminal.texts.try_send(Told::Last(last.clone())).is_err() {
            std::thread::yield_now();
        }
        done.recv_timeout(Duration::from_secs(10)).unwrap();
        let lines = lines(&written);
        assert!(lines.iter().any(|line| line.contains("lines were left out")), "{lines:?}");
        assert_eq!((lines.first().unwrap().as_str(), lines.last().unwrap().as_str()), ("0", "after"));
    }

    #[test]
    fn what_was_printed_is_there_at_the_end_and_in_order() {
        let (terminal, go, written) = terminal();
        drop(go);
        for number in 0..100 {
            terminal.print(&number.to_string());
        }
        terminal.finish();
        assert_eq!(lines(&written), (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}
