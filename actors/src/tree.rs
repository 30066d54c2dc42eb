//! What every actor says about itself, in one place: status, metrics, pages and tests read this and nothing else.
//!
//! Each node is written by its own actor (calls, queue, timings) or by its supervisor (state, restarts, last error). Nothing
//! here decides anything.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// When it was planted, among its siblings.
    place: u64,
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

/// After a publication the next one waits this long and then tells of all changes since: a thousand handlers that start in a moment
/// must not put a thousand trees together, and no eye sees the difference.
const BURST: Duration = Duration::from_millis(20);

/// The board on which actors publish; cheap to clone.
///
/// A path such as `capabilities/custom/custom.acme.lamp` names a node. Writers only touch their own figures; the tree is put
/// together when somebody looks, and published when states change and with the journal's tick.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    plots: Arc<Mutex<Plots>>,
    publishing: Arc<Publishing>,
    sender: watch::Sender<Tree>,
}

#[derive(Debug, Default)]
struct Plots {
    planted: u64,
    figures: BTreeMap<String, Figures>,
}

#[derive(Debug, Default)]
struct Publishing {
    /// One went out a moment ago, and somebody waits to see whether another must.
    lately: AtomicBool,
    /// Something changed since the last one.
    due: AtomicBool,
    /// Told of every change at once, for those who wait for one thing.
    changes: watch::Sender<()>,
}

impl Board {
    pub(crate) fn new() -> Self {
        let (sender, _) = watch::channel(Tree { root: Node::named("latchkeyd") });
        Self { plots: Arc::default(), publishing: Arc::default(), sender }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Tree> {
        self.sender.subscribe()
    }

    /// Waits until it is so, and publishes that. Looks after each change, whether or not it is published yet.
    pub(crate) async fn until(&self, so: impl Fn(&Self) -> bool) {
        let mut changes = self.publishing.changes.subscribe();
        // The sender lives as long as this board.
        drop(changes.wait_for(|()| so(self)).await);
        self.publish();
    }

    /// Puts a node into the tree, after those that are there.
    pub(crate) fn plant(&self, path: &str) {
        let mut plots = self.plots();
        plots.planted += 1;
        let place = plots.planted;
        let figures = plots.figures.entry(path.to_owned()).or_insert_with(|| Figures { place, ..Figures::default() });
        figures.state = Some(NodeState::Restarting);
        drop(plots);
        self.publish_soon();
    }

    /// Takes a node out of the tree.
    pub(crate) fn uproot(&self, path: &str) {
        self.plots().figures.remove(path);
        self.publish_soon();
    }

    pub(crate) fn state(&self, path: &str, state: NodeState, error: Option<String>) {
        self.change(path, |figures| {
            figures.state = Some(state);
            if error.is_some() {
                figures.last_error = error;
            }
        });
        self.publish_soon();
    }

    pub(crate) fn restarted(&self, path: &str) {
        self.change(path, |figures| figures.restarts = figures.restarts.saturating_add(1));
        self.state(path, NodeState::Running, None);
    }

    pub(crate) fn state_of(&self, path: &str) -> Option<NodeState> {
        self.plots().figures.get(path).and_then(|figures| figures.state)
    }

    pub(crate) fn error_of(&self, path: &str) -> Option<String> {
        self.plots().figures.get(path).and_then(|figures| figures.last_error.clone())
    }

    /// A node as it is now, without its children.
    pub(crate) fn node(&self, path: &str) -> Option<Node> {
        let mut node = Node::named(path.rsplit('/').next().unwrap_or(path));
        node.fill(self.plots().figures.get(path)?);
        Some(node)
    }

    /// Puts the tree together and tells the watchers.
    pub(crate) fn publish(&self) {
        self.sender.send_replace(self.tree());
    }

    /// Publishes at once after a rest, and otherwise once for everything that changes within [`BURST`].
    fn publish_soon(&self) {
        self.publishing.changes.send_replace(());
        self.publishing.due.store(true, Ordering::SeqCst);
        if self.publishing.lately.swap(true, Ordering::SeqCst) {
            return;
        }
        self.publishing.due.store(false, Ordering::SeqCst);
        self.publish();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.publishing.lately.store(false, Ordering::SeqCst);
            return;
        };
        let board = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(BURST).await;
            board.publishing.lately.store(false, Ordering::SeqCst);
            if board.publishing.due.load(Ordering::SeqCst) {
                board.publish_soon();
            }
        });
    }

    /// Parents stand before their children in the order of planting; what is missing on the way is made. Linear in the nodes.
    pub(crate) fn tree(&self) -> Tree {
        let mut planted: Vec<_> = {
            let plots = self.plots();
            plots.figures.iter().map(|(path, figures)| (path.clone(), figures.clone())).collect()
        };
        planted.sort_unstable_by_key(|(_, figures)| figures.place);
        let mut growing = Growing::default();
        for (path, figures) in &planted {
            growing.at(path).fill(figures);
        }
        Tree { root: growing.whole() }
    }

    fn plots(&self) -> MutexGuard<'_, Plots> {
        self.plots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Figures)) {
        if let Some(figures) = self.plots().figures.get_mut(path) {
            change(figures);
        }
    }
}

/// Where the work of one capability writes its figures.
///
/// Once it has left, what late work still writes goes nowhere, although another may stand in the tree under its name by then.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    board: Board,
    path: Arc<str>,
    left: Arc<AtomicBool>,
}

impl Post {
    pub(crate) fn new(board: &Board, path: &str) -> Self {
        Self { board: board.clone(), path: path.into(), left: Arc::default() }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn state(&self) -> Option<NodeState> {
        self.board.state_of(&self.path)
    }

    /// From now on nothing is written here.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    pub(crate) fn error(&self, error: String) {
        self.change(|figures| figures.last_error = Some(error));
    }

    pub(crate) fn began(&self) {
        self.change(|figures| figures.running = figures.running.saturating_add(1));
    }

    pub(crate) fn ended(&self, took: Duration) {
        self.change(|figures| {
            figures.running = figures.running.saturating_sub(1);
            figures.calls = figures.calls.saturating_add(1);
            figures.last = Some(took);
            figures.longest = figures.longest.max(Some(took));
        });
    }

    pub(crate) fn queued(&self, change: i32) {
        self.change(|figures| figures.queued = figures.queued.saturating_add_signed(change));
    }

    pub(crate) fn abandoned(&self, change: i32) {
        self.change(|figures| figures.abandoned = figures.abandoned.saturating_add_signed(change));
    }

    fn change(&self, change: impl FnOnce(&mut Figures)) {
        self.board.change(&self.path, |figures| {
            // Looked at under the board's lock: a successor is planted after this one has left.
            if !self.has_left() {
                change(figures);
            }
        });
    }
}

/// A tree in the making: nodes by their paths, each with its parent's number, parents first.
struct Growing {
    nodes: Vec<(Node, usize)>,
    numbers: HashMap<String, usize>,
}

impl Default for Growing {
    fn default() -> Self {
        Self { nodes: vec![(Node::named("latchkeyd"), 0)], numbers: HashMap::new() }
    }
}

impl Growing {
    #[expect(clippy::indexing_slicing, reason = "a number is that of a node that was pushed")]
    fn at(&mut self, path: &str) -> &mut Node {
        let number = self.number(path);
        &mut self.nodes[number].0
    }

    fn number(&mut self, path: &str) -> usize {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let (parent, name) = match path.rsplit_once('/') {
            Some((parent, name)) => (self.number(parent), name),
            None => (0, path),
        };
        let number = self.nodes.len();
        self.nodes.push((Node::named(name), parent));
        self.numbers.insert(path.to_owned(), number);
        number
    }

    /// Hangs each node below its parent, the last one first, so that each is whole when it is hung.
    fn whole(mut self) -> Node {
        while self.nodes.len() > 1 {
            let Some((mut node, parent)) = self.nodes.pop() else { break };
            node.children.reverse();
            if let Some((parent, _)) = self.nodes.get_mut(parent) {
                parent.children.push(node);
            }
        }
        let mut root = self.nodes.pop().map_or_else(|| Node::named("latchkeyd"), |(root, _)| root);
        root.children.reverse();
        root
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(node: &Node) -> Vec<&str> {
        node.children.iter().map(|child| child.name.as_str()).collect()
    }

    #[test]
    fn nodes_stand_in_the_order_of_planting_below_parents_that_are_made_when_missing() {
        let board = Board::new();
        for path in
            ["store", "capabilities", "capabilities/b", "links/direct", "capabilities/custom/x", "capabilities/a"]
        {
            board.plant(path);
        }
        let root = board.tree().root;
        assert_eq!(names(&root), ["store", "capabilities", "links"]);
        assert_eq!(names(root.find("capabilities").unwrap()), ["b", "custom", "a"]);
        assert_eq!(names(root.find("capabilities/custom").unwrap()), ["x"]);
        board.uproot("capabilities/custom/x");
        assert_eq!(names(board.tree().root.find("capabilities").unwrap()), ["b", "a"]);
    }

    #[test]
    fn late_work_writes_nothing_into_its_successors_figures() {
        let board = Board::new();
        board.plant("x");
        let (old, took) = (Post::new(&board, "x"), Duration::from_millis(3));
        old.began();
        assert_eq!(board.node("x").unwrap().running, 1);
        old.leave();
        board.uproot("x");
        board.plant("x");
        let new = Post::new(&board, "x");
        new.began();
        old.ended(took);
        old.error("too late".to_owned());
        let node = board.node("x").unwrap();
        assert_eq!((node.running, node.calls, node.last_error), (1, 0, None));
        new.ended(took);
        assert_eq!((board.node("x").unwrap().running, board.node("x").unwrap().calls), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_is_published_twice_and_nothing_of_it_is_lost() {
        let board = Board::new();
        let mut tree = board.watch();
        let mut seen = 0;
        for number in 0..1_000 {
            board.plant(&format!("capabilities/custom/{number}"));
            if tree.has_changed().unwrap() {
                tree.mark_unchanged();
                seen += 1;
            }
        }
        assert_eq!(seen, 1, "the first is told at once");
        tree.changed().await.unwrap();
        assert_eq!(tree.borrow_and_update().root.find("capabilities/custom").unwrap().children.len(), 1_000);
        tokio::time::sleep(BURST * 3).await;
        assert!(!tree.has_changed().unwrap(), "and then there is rest");
        board.state("capabilities/custom/7", NodeState::Running, None);
        assert!(tree.has_changed().unwrap(), "after a rest a change is told at once");
    }

    /// A device starts faster for it: each of its steps waits for the one before.
    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_one_thing_need_not_wait_until_it_is_published() {
        let board = Board::new();
        board.plant("store");
        let began = tokio::time::Instant::now();
        let runs = |board: &Board| board.state_of("store") == Some(NodeState::Running);
        let start = async {
            tokio::task::yield_now().await;
            board.state("store", NodeState::Running, None);
        };
        tokio::join!(board.until(runs), start);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(board.watch().borrow().root.find("store").unwrap().state, NodeState::Running, "it is told too");
        board.until(|board| board.state_of("store").is_some()).await;
    }
}
