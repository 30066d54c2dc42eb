//! What `device.health` tells of the house: read from the supervision tree that the actors publish, and from nothing else.

use std::sync::OnceLock;

use actors::{Node, NodeState, Tree};
use handlers::Census;
use tokio::sync::watch;
use wire::Object;
use wire::json::Value;

/// The tree of a house, once it has grown.
#[derive(Debug, Default)]
pub(crate) struct TreeCensus {
    tree: OnceLock<watch::Receiver<Tree>>,
}

impl TreeCensus {
    pub(crate) fn watch(&self, tree: watch::Receiver<Tree>) {
        let _ = self.tree.set(tree);
    }
}

impl Census for TreeCensus {
    fn report(&self) -> Object {
        let mut report = Object::new();
        if let Some(tree) = self.tree.get() {
            let tree = tree.borrow();
            for group in ["capabilities", "links"] {
                report.insert(group, states(&tree.root, group));
            }
        }
        report
    }
}

fn states(root: &Node, group: &str) -> Value {
    let children = root.children.iter().filter(|node| node.name == group).flat_map(|node| &node.children);
    Value::Object(children.map(|node| (node.name.clone(), Value::from(state(node.state)))).collect())
}

const fn state(state: NodeState) -> &'static str {
    match state {
        NodeState::Running => "ready",
        NodeState::Restarting => "degraded",
        NodeState::Unavailable | NodeState::Stopped => "unavailable",
    }
}
