//! What every actor says about itself, in one place: status, metrics, pages and tests read this and nothing else.
//!
//! Each node is written by its own actor (calls, queue, timings) or by its supervisor (state, restarts, last error). Nothing
//! here decides anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The supervision tree as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// `latchkeyd` itself.
    pub root: Node,
}

/// One actor, or a supervisor with its children.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name among its siblings.
    pub name: String,
    /// How it stands.
    pub state: NodeState,
    /// Restarts since the start of the daemon.
    pub restarts: u32,
    /// The last error, in words.
    pub last_error: Option<String>,
    /// Calls that wait.
    pub queued: u32,
    /// Calls that run.
    pub running: u32,
    /// Work that would not stop and was left behind, and has not ended since.
    pub abandoned: u32,
    /// Calls that ended.
    pub calls: u64,
    /// How long the last call took, in milliseconds.
    pub last_ms: Option<f64>,
    /// How long the longest call took, in milliseconds.
    pub longest_ms: Option<f64>,
    /// Its children.
    pub children: Vec<Self>,
}

/// How an actor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// At work.
    Running,
    /// It died and starts again.
    Restarting,
    /// It died too often and was given up.
    Unavailable,
    /// It ended because the house does.
    Stopped,
}

/// The figures of one actor; a node of the tree is made from it.
#[derive(Debug, Clone, Default)]
struct Figures {
    state: Option<NodeState>,
    restarts: u32,
    last_error: Option<String>,
    queued: u32,
    running: u32,
    abandoned: u32,
    calls: u64,
    last: Option<Duration>,
    longest: Option<Duration>,
}

/// The board on which actors publish; cheap to clone.
///
/// A path such as `capabilities/custom/custom.acme.lamp` names a node. Writers only touch their own figures; the tree is put
/// together when somebody looks, and published at each change of a state and with the journal's tick.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    figures: Arc<Mutex<BTreeMap<String, Figures>>>,
    order: Arc<Mutex<Vec<String>>>,
    sender: watch::Sender<Tree>,
}

impl Board {
    pub(crate) fn new() -> Self {
        let (sender, _) = watch::channel(Tree { root: Node::named("latchkeyd") });
        Self { figures: Arc::default(), order: Arc::default(), sender }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Tree> {
        self.sender.subscribe()
    }

    /// Puts a node into the tree, in the order of these calls.
    pub(crate) fn plant(&self, path: &str) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if !order.iter().any(|known| known == path) {
            order.push(path.to_owned());
        }
        drop(order);
        self.state(path, NodeState::Restarting, None);
    }

    pub(crate) fn state(&self, path: &str, state: NodeState, error: Option<String>) {
        self.change(path, |figures| {
            figures.state = Some(state);
            if error.is_some() {
                figures.last_error = error;
            }
        });
        self.publish();
    }

    pub(crate) fn restarted(&self, path: &str) {
        self.change(path, |figures| figures.restarts = figures.restarts.saturating_add(1));
        self.state(path, NodeState::Running, None);
    }

    pub(crate) fn error(&self, path: &str, error: String) {
        self.change(path, |figures| figures.last_error = Some(error));
    }

    pub(crate) fn began(&self, path: &str) {
        self.change(path, |figures| figures.running = figures.running.saturating_add(1));
    }

    pub(crate) fn ended(&self, path: &str, took: Duration) {
        self.change(path, |figures| {
            figures.running = figures.running.saturating_sub(1);
            figures.calls = figures.calls.saturating_add(1);
            figures.last = Some(took);
            figures.longest = figures.longest.max(Some(took));
        });
    }

    pub(crate) fn queued(&self, path: &str, change: i32) {
        self.change(path, |figures| figures.queued = figures.queued.saturating_add_signed(change));
    }

    pub(crate) fn abandoned(&self, path: &str, change: i32) {
        self.change(path, |figures| figures.abandoned = figures.abandoned.saturating_add_signed(change));
    }

    pub(crate) fn state_of(&self, path: &str) -> Option<NodeState> {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.get(path).and_then(|figures| figures.state)
    }

    pub(crate) fn error_of(&self, path: &str) -> Option<String> {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.get(path).and_then(|figures| figures.last_error.clone())
    }

    /// Puts the tree together and tells the watchers.
    pub(crate) fn publish(&self) {
        self.sender.send_replace(self.tree());
    }

    pub(crate) fn tree(&self) -> Tree {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut root = Node::named("latchkeyd");
        for path in &order {
            let node = root.descend(path);
            if let Some(figures) = figures.get(path) {
                node.fill(figures);
            }
        }
        Tree { root }
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Figures)) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        match figures.get_mut(path) {
            Some(figures) => change(figures),
            None => change(figures.entry(path.to_owned()).or_default()),
        }
    }
}

impl Node {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: NodeState::Running,
            restarts: 0,
            last_error: None,
            queued: 0,
            running: 0,
            abandoned: 0,
            calls: 0,
            last_ms: None,
            longest_ms: None,
            children: Vec::new(),
        }
    }

    /// The node at a path below this one; what is missing on the way is made.
    fn descend(&mut self, path: &str) -> &mut Self {
        path.split('/').fold(self, |node, part| {
            let found = node.children.iter().position(|child| child.name == part);
            let index = found.unwrap_or(node.children.len());
            if found.is_none() {
                node.children.push(Self::named(part));
            }
            #[expect(clippy::indexing_slicing, reason = "found there, or pushed there")]
            &mut node.children[index]
        })
    }

    fn fill(&mut self, figures: &Figures) {
        let ms = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
        self.state = figures.state.unwrap_or(NodeState::Running);
        self.restarts = figures.restarts;
        self.last_error.clone_from(&figures.last_error);
        self.queued = figures.queued;
        self.running = figures.running;
        self.abandoned = figures.abandoned;
        self.calls = figures.calls;
        self.last_ms = figures.last.map(ms);
        self.longest_ms = figures.longest.map(ms);
    }

    /// The node at a path below this one, as in `capabilities/camera.snapshot`.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Self> {
        path.split('/').try_fold(self, |node, part| node.children.iter().find(|child| child.name == part))
    }
}
