//! What the display page is told: one whole picture of the device, sent anew at each change, so that a page that missed one is
//! right again with the next. Plain data; every string in it is shown as text and never read as markup.

use actors::{Event, HandlerLine, Status, Waiting};
use serde::Serialize;

/// Everything the page draws.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Board {
    /// The name of this state; the page repeats it when it has drawn it.
    pub nonce: String,
    /// The device's name.
    pub name: String,
    /// Whether camera and sign only pretend.
    pub simulated: bool,
    /// The owner.
    pub owner: Option<String>,
    /// Whether the owner has made the device its active one.
    pub active: bool,
    /// Until when pairing is open.
    pub pairing_until: Option<u64>,
    /// Grants that are on.
    pub grants: Vec<String>,
    /// Changes that wait for the keeper.
    pub waiting: Vec<WaitingBoard>,
    /// Handlers that changed since they were granted: what changed, and the command that grants them again.
    pub changed: Vec<String>,
    /// Who acts now, and with what.
    pub acting: Vec<ActingBoard>,
    /// What captures or captured under the present sign: readable for as long as the sign is on, also when the call has ended.
    pub capturing: Vec<ActingBoard>,
    /// The in-use sign, when it is lit.
    pub sign: Option<SignBoard>,
    /// What an agent shows.
    pub content: Option<ContentBoard>,
    /// The handlers that the sign is for, beside [`CAPTURES`].
    #[serde(skip)]
    capturers: Vec<String>,
}

/// A change that waits for the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingBoard {
    /// Of the request.
    pub id: String,
    /// `claim`, `transfer` or `release`.
    pub kind: String,
    /// Who asks.
    pub agent: String,
    /// The code that both sides show.
    pub code: String,
}

/// A call that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActingBoard {
    /// Of the request.
    pub id: String,
    /// Who acts.
    pub agent: String,
    /// With what.
    pub capability: String,
}

/// The lit sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SignBoard {
    /// Whether it only pretends.
    pub simulated: bool,
}

/// What an agent shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentBoard {
    /// Grows with each content; the page keeps what it has for the same number.
    pub number: u64,
    /// Who shows it.
    pub agent: String,
    /// Since when.
    pub at_ms: u64,
    /// The text, if it is one.
    pub text: Option<String>,
    /// The path of the picture, if it is one that this page has not been given yet. It works once.
    pub picture: Option<String>,
}

/// The capabilities of the program itself that the sign is for.
const CAPTURES: [&str; 2] = ["camera.snapshot", "microphone.listen"];

/// Calls shown as acting at once; beyond that the screen could not be read.
const ACTING_MAX: usize = 4;

/// Changed handlers shown at once; `latchkeyd status` lists all.
const CHANGED_MAX: usize = 4;

/// Changes shown as waiting at once: what may pend at once.
const WAITING_MAX: usize = 6;

impl Board {
    /// Takes over what `status` and `claims` say.
    pub(crate) fn refresh(&mut self, status: Status, claims: Vec<Waiting>) {
        self.name = status.name;
        self.simulated = status.simulated;
        self.owner = status.owner.map(|owner| owner.agent);
        self.active = status.active_until.is_some();
        self.pairing_until = status.pairing_until;
        self.grants = status.grants_on;
        self.changed = status.waiting_handlers.into_iter().take(CHANGED_MAX).collect();
        let pending = claims.into_iter().filter(|change| change.state == "pending").take(WAITING_MAX);
        self.waiting = pending
            .map(|change| WaitingBoard { id: change.id, kind: change.kind, agent: change.agent, code: change.code })
            .collect();
    }

    /// Takes over which handlers capture.
    pub(crate) fn know_capturing(&mut self, handlers: &[HandlerLine]) {
        let capturing = handlers.iter().filter(|line| line.captures == Some(true));
        self.capturers = capturing.filter_map(|line| line.name.clone()).collect();
    }

    fn captures(&self, capability: &str) -> bool {
        CAPTURES.contains(&capability) || self.capturers.iter().any(|capturer| capturer == capability)
    }

    /// Events were missed: better no name than a wrong one.
    pub(crate) fn forget_who_acts(&mut self) {
        self.acting.clear();
        self.capturing.clear();
    }

    /// The sign as whoever carries it says.
    pub(crate) fn carry(&mut self, sign: Option<SignBoard>) {
        self.sign = sign;
        if sign.is_none() {
            let acting = &self.acting;
            self.capturing.retain(|capturing| acting.iter().any(|acting| acting.id == capturing.id));
        }
    }

    /// Follows who acts. `true` if the event is about more than that, and the rest must be read anew.
    pub(crate) fn follow(&mut self, event: &Event) -> bool {
        match event {
            Event::Acting { id, agent, capability } => {
                if self.acting.len() < ACTING_MAX {
                    let acting = ActingBoard { id: id.clone(), agent: agent.clone(), capability: capability.clone() };
                    if self.captures(capability) && self.capturing.len() < ACTING_MAX {
                        self.capturing.push(acting.clone());
                    }
                    self.acting.push(acting);
                }
                false
            }
            Event::Acted { id, .. } => {
                self.acting.retain(|acting| acting.id != *id);
                if self.sign.is_none() {
                    self.capturing.retain(|acting| acting.id != *id);
                }
                false
            }
            Event::Waiting { .. }
            | Event::Decided { .. }
            | Event::PairingOpened { .. }
            | Event::PairingClosed
            | Event::Owner { .. }
            | Event::Grant { .. }
            | Event::Activated { .. }
            | Event::Deactivated
            | Event::Handlers
            | Event::Notice { .. } => true,
        }
    }
}
