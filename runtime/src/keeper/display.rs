//! The display: what a kiosk screen shows, and the in-use sign that it draws and confirms.
//!
//! Owns what is on the screen, the pages that are open, and what each of them has confirmed. Implements the ports [`Screen`] and
//! [`SignBackend`]; `pages` carries it to the browser. A page is known by an id minted into the HTML of that page load, and answers
//! each state it was sent by that state's nonce: no other page on this machine knows either. A page that is closed, hidden or
//! silent for [`SILENT_MAX`] carries no sign. Everything here ends with the process; nothing is on disk.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use handlers::{BootTime, Chance, Clock, Content, Shown};
use tokio::sync::watch;
use tokio::time::timeout;

use super::board::{Board, ContentBoard, SignBoard};

mod ports;

/// How long a lit page may be silent before its sign counts as lost. It speaks once a second.
pub const SILENT_MAX: Duration = Duration::from_secs(2);

/// Pages loaded and not connected yet. A kiosk is one; more come from reloads.
const MINTED_MAX: usize = 32;

/// Pages connected at once.
const VIEWERS_MAX: usize = 8;

/// States sent to one page and not confirmed yet: with one each [`super::pages::PACE`], a page that is three seconds behind still counts.
const UNCONFIRMED_MAX: usize = 64;

/// What the names of grants to show something begin with.
pub(crate) const SHOWING: &str = "display.";

/// Picture paths handed out and not fetched yet.
const PICTURES_MAX: usize = 32;

/// A random name that nobody guesses: of a page, of one state sent to it, of one picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; 24]);

impl Token {
    fn draw(chance: &dyn Chance) -> Self {
        let mut bytes = [0; 24];
        chance.fill(&mut bytes);
        Self(bytes)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Of the same form as the ids of the wire.
        text.parse::<wire::Id>().ok().map(|id| Self(*id.as_bytes()))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The display; clones share everything.
#[derive(Clone)]
pub struct Display {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    simulated: bool,
    address: OnceLock<String>,
    stage: Mutex<Stage>,
    /// Counts what pages have to draw.
    changed: watch::Sender<u64>,
    /// Counts what pages have said.
    answered: watch::Sender<u64>,
    /// One thing is shown after the other, so that each is confirmed or refused by itself.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Stage {
    minted: VecDeque<Token>,
    viewers: HashMap<Token, Viewer>,
    pictures: VecDeque<Picture>,
    connections: u64,
    content: Option<OnStage>,
    contents: u64,
    leave: Option<Leave>,
    sign_lit: bool,
    lightings: u64,
    board: Board,
}

/// Under which ownership agents show things, and with which grants.
#[derive(PartialEq, Eq)]
struct Leave {
    ownership: u64,
    grants: Vec<String>,
}

struct OnStage {
    number: u64,
    shown: Shown,
    at_ms: u64,
}

struct Picture {
    token: Token,
    page: Token,
    number: u64,
}

/// One open page.
struct Viewer {
    connection: u64,
    visible: bool,
    heard: BootTime,
    count: u64,
    sent: VecDeque<Sent>,
    sent_content: u64,
    drawn_content: u64,
    failed_content: u64,
    drawn_lighting: u64,
}

/// What one state asked the page to draw. Lighting 0 is: no sign.
#[derive(Clone, Copy)]
struct Sent {
    nonce: Token,
    content: u64,
    lighting: u64,
}

/// What a page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It drew the state of this nonce, and is visible; repeated once a second while the sign is lit.
    Drawn(Token),
    /// It drew the state of this nonce but for the picture, which it could not read.
    Failed(Token),
    /// It went out of sight.
    Hidden,
}

impl Display {
    /// A display without pages. `simulated` is told by its sign, and shown.
    pub fn new(clock: Arc<dyn Clock>, chance: Arc<dyn Chance>, simulated: bool) -> Self {
        Self {
            inner: Arc::new(Inner {
                clock,
                chance,
                simulated,
                address: OnceLock::new(),
                stage: Mutex::default(),
                changed: watch::Sender::new(0),
                answered: watch::Sender::new(0),
                turn: tokio::sync::Mutex::new(()),
            }),
        }
    }

    /// The address people are told to open; set once the listener is bound.
    pub(crate) fn served_at(&self, address: String) {
        let _ = self.inner.address.set(address);
    }

    /// Changes what the page tells beside the content: device, owner, who acts, the sign as others carry it.
    pub(crate) fn post(&self, change: impl FnOnce(&mut Board)) {
        let mut stage = self.inner.stage();
        let mut board = stage.board.clone();
        change(&mut board);
        if board != stage.board {
            stage.board = board;
            drop(stage);
            bump(&self.inner.changed);
        }
    }

    /// Takes away what an agent showed: it is its owner no more, or may show no more.
    pub(crate) fn clear(&self) {
        let mut stage = self.inner.stage();
        stage.content = None;
        stage.pictures.clear();
        drop(stage);
        bump(&self.inner.changed);
    }

    /// Holds what is shown against the present ownership and grants: what an agent showed before the one changed, or before one of the
    /// others was revoked, goes, also when the event that told of it was missed.
    pub(crate) fn hold_against(&self, ownership: u64, grants: &[String]) {
        let mut stage = self.inner.stage();
        let grants: Vec<String> = grants.iter().filter(|grant| grant.starts_with(SHOWING)).cloned().collect();
        let lost = stage.leave.as_ref().is_some_and(|leave| {
            leave.ownership != ownership || leave.grants.iter().any(|grant| !grants.contains(grant))
        });
        stage.leave = Some(Leave { ownership, grants });
        drop(stage);
        if lost {
            self.clear();
        }
    }

    /// Follows what is to be drawn.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// A new page load.
    pub(crate) fn mint(&self) -> Token {
        let page = Token::draw(self.inner.chance.as_ref());
        let mut stage = self.inner.stage();
        if stage.minted.len() >= MINTED_MAX {
            stage.minted.pop_front();
        }
        stage.minted.push_back(page);
        page
    }

    /// A page opens its stream of states; a second stream of the same page takes the place of the first. `None` for a page that
    /// this process did not mint, or one too many.
    pub(crate) fn connect(&self, page: Token) -> Option<Connected> {
        let mut stage = self.inner.stage();
        let known = stage.viewers.contains_key(&page);
        if !known {
            let minted = stage.minted.iter().position(|minted| *minted == page)?;
            if stage.viewers.len() >= VIEWERS_MAX {
                return None;
            }
            stage.minted.remove(minted);
        }
        stage.connections = stage.connections.saturating_add(1);
        let connection = stage.connections;
        let viewer = Viewer {
            connection,
            // Until it says something, a page is not known to be seen.
            visible: false,
            heard: self.inner.clock.boot(),
            count: 0,
            sent: VecDeque::new(),
            sent_content: 0,
            drawn_content: 0,
            failed_content: 0,
            drawn_lighting: 0,
        };
        stage.viewers.insert(page, viewer);
        drop(stage);
        Some(Connected { display: self.clone(), page, connection })
    }

    /// What a page says counts only for an open page, in the order in which the page said it, and a nonce only if that page was
    /// sent it. `false` if it did not count.
    pub(crate) fn hear(&self, page: Token, count: u64, said: Said) -> bool {
        let now = self.inner.clock.boot();
        let mut stage = self.inner.stage();
        let Some(viewer) = stage.viewers.get_mut(&page).filter(|viewer| viewer.count < count) else { return false };
        viewer.count = count;
        let counted = match said {
            Said::Hidden => {
                viewer.visible = false;
                true
            }
            Said::Drawn(nonce) | Said::Failed(nonce) => viewer.confirm(nonce).is_some_and(|sent| {
                viewer.visible = true;
                viewer.heard = now;
                viewer.drawn_lighting = sent.lighting;
                if matches!(said, Said::Failed(_)) {
                    viewer.failed_content = sent.content;
                } else if viewer.failed_content != sent.content {
                    viewer.drawn_content = sent.content;
                }
                true
            }),
        };
        drop(stage);
        bump(&self.inner.answered);
        counted
    }

    /// The picture of a one-use path.
    pub(crate) fn picture(&self, token: Token) -> Option<(&'static str, Arc<[u8]>)> {
        let mut stage = self.inner.stage();
        let at = stage.pictures.iter().position(|picture| picture.token == token)?;
        let picture = stage.pictures.remove(at)?;
        if !stage.viewers.contains_key(&picture.page) {
            return None;
        }
        match &stage.content.as_ref().filter(|content| content.number == picture.number)?.shown.content {
            Content::Image { mime, bytes, .. } => Some((mime.as_mime(), Arc::clone(bytes))),
            Content::Text(_) => None,
        }
    }

    fn where_to_open(&self) -> &str {
        self.inner.address.get().map_or("the display page", String::as_str)
    }

    /// Waits until `done` finds an answer in what pages have said.
    async fn until<T>(&self, limit: Duration, mut done: impl FnMut(&Stage, BootTime) -> Option<T>) -> Option<T> {
        let mut answered = self.inner.answered.subscribe();
        let wait = async {
            loop {
                if let Some(found) = done(&self.inner.stage(), self.inner.clock.boot()) {
                    return found;
                }
                if answered.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        timeout(limit, wait).await.ok()
    }
}

impl Inner {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bump(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count = count.wrapping_add(1));
}

impl Stage {
    /// Some page would show something now; else a sentence with the next step.
    fn present(&self, address: &str) -> Result<(), String> {
        if self.viewers.is_empty() {
            return Err(format!("no display page is open; open {address} on the device's screen"));
        }
        if self.viewers.values().any(|viewer| viewer.visible) {
            return Ok(());
        }
        Err("the display page is not in sight; bring it to the front on the device's screen".to_owned())
    }

    /// Some page has the present lighting on screen, and said so just now.
    fn carried(&self, now: BootTime) -> Result<(), &'static str> {
        if !self.sign_lit {
            return Err("it is off");
        }
        let mut reason = "the display page was closed";
        for viewer in self.viewers.values() {
            reason = if !viewer.visible {
                "the display page went out of sight"
            } else if viewer.drawn_lighting != self.lightings {
                "the display page has not drawn it"
            } else if now.since(viewer.heard) > SILENT_MAX {
                "the display page fell silent"
            } else {
                return Ok(());
            };
        }
        Err(reason)
    }
}

impl Viewer {
    /// The state of this nonce. Those sent before it are settled with it; it stays, for the next second's answer.
    fn confirm(&mut self, nonce: Token) -> Option<Sent> {
        let at = self.sent.iter().position(|sent| sent.nonce == nonce)?;
        self.sent.drain(..at);
        self.sent.front().copied()
    }
}

/// A page's open stream; dropping it closes the page.
pub(crate) struct Connected {
    display: Display,
    page: Token,
    connection: u64,
}

impl Connected {
    /// The state to draw, as JSON; `None` once another stream of the same page took over.
    pub(crate) fn state(&self) -> Option<String> {
        let inner = &self.display.inner;
        let nonce = Token::draw(inner.chance.as_ref());
        let mut stage = inner.stage();
        let stage = &mut *stage;
        let viewer = stage.viewers.get_mut(&self.page).filter(|viewer| viewer.connection == self.connection)?;
        let content = stage.content.as_ref();
        let number = content.map_or(0, |content| content.number);
        let fresh = viewer.sent_content != number;
        viewer.sent_content = number;
        let picture = content.is_some_and(|content| fresh && matches!(content.shown.content, Content::Image { .. }));
        let picture = picture.then(|| Token::draw(inner.chance.as_ref()));
        if let Some(token) = picture {
            if stage.pictures.len() >= PICTURES_MAX {
                stage.pictures.pop_front();
            }
            stage.pictures.push_back(Picture { token, page: self.page, number });
        }
        let lighting = if stage.sign_lit { stage.lightings } else { 0 };
        if viewer.sent.len() >= UNCONFIRMED_MAX {
            viewer.sent.pop_front();
        }
        viewer.sent.push_back(Sent { nonce, content: number, lighting });
        let mut board = stage.board.clone();
        board.nonce = nonce.to_string();
        board.simulated |= inner.simulated;
        if stage.sign_lit && board.sign.is_none() {
            board.sign = Some(SignBoard { simulated: inner.simulated });
        }
        board.content = content.map(|content| ContentBoard {
            number,
            agent: content.shown.agent.to_string(),
            at_ms: content.at_ms,
            text: match &content.shown.content {
                Content::Text(text) => Some(text.clone()),
                Content::Image { .. } => None,
            },
            picture: picture.map(|token| format!("/display/picture/{token}")),
        });
        serde_json::to_string(&board).ok()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let inner = &self.display.inner;
        let mut stage = inner.stage();
        if stage.viewers.get(&self.page).is_some_and(|viewer| viewer.connection == self.connection) {
            stage.viewers.remove(&self.page);
            // The browser opens the stream again by itself after a broken connection.
            if stage.minted.len() < MINTED_MAX {
                stage.minted.push_back(self.page);
            }
        }
        drop(stage);
        bump(&inner.answered);
    }
}

#[cfg(test)]
mod tests;
