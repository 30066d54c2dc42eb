//! What `device.health` tells of the house: the states of its parts, read from what the actors publish.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use handlers::{BootTime, Census};
use wire::Object;

use crate::inner::Inner;
use crate::registration::capability_state;
use crate::tree::Node;

/// A report is used again for this long: health may be asked thousands of times a second.
const FRESH_MS: u64 = 250;

/// Made before the house, for the health handler; [`crate::House::grow`] lets it see.
#[derive(Default)]
pub struct HouseCensus {
    house: OnceLock<Weak<Inner>>,
    last: Mutex<Option<(BootTime, Object)>>,
}

impl std::fmt::Debug for HouseCensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HouseCensus").finish_non_exhaustive()
    }
}

impl HouseCensus {
    /// A census that sees nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn see(&self, house: &Arc<Inner>) {
        // A census belongs to one house; a second one stays unseen.
        drop(self.house.set(Arc::downgrade(house)));
    }
}

impl Census for HouseCensus {
    fn report(&self) -> Object {
        let Some(house) = self.house.get().and_then(Weak::upgrade) else { return Object::new() };
        let now = house.clock.boot();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_ref() {
            Some((at, report)) if now.as_ms().saturating_sub(at.as_ms()) < FRESH_MS => report.clone(),
            Some(_) | None => {
                let report = report(&house);
                *last = Some((now, report.clone()));
                report
            }
        }
    }
}

fn report(house: &Inner) -> Object {
    let tree = house.board.tree();
    let mut capabilities = Object::new();
    for (name, installation) in &house.catalogue.now().capabilities {
        capabilities.insert(name.as_str(), capability_state(installation.post.state()).as_str());
    }
    let states = |path: &str| {
        let children = tree.root.find(path).map(|node| node.children.as_slice()).unwrap_or_default();
        let mut states = Object::new();
        for node in children.iter().flat_map(leaves) {
            states.insert(node.name.as_str(), capability_state(Some(node.state)).as_str());
        }
        states
    };
    let head = *house.store.head().borrow();
    let mut journal = Object::new();
    journal.insert("writable", house.store.writable());
    journal.insert("last", head.last);
    let mut report = Object::new();
    report.insert("capabilities", capabilities);
    report.insert("links", states("links"));
    report.insert("sign", house.sign.describe());
    report.insert("journal", journal);
    report.insert("refused_requests", house.refused.load(Ordering::Relaxed));
    report
}

/// The node itself, or the actors below a supervisor.
fn leaves(node: &Node) -> Vec<&Node> {
    if node.children.is_empty() { vec![node] } else { node.children.iter().flat_map(leaves).collect() }
}
