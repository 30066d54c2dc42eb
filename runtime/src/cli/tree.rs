//! The supervision tree, drawn as one.

use std::fmt::Write;

use actors::{Node, NodeState, Tree};
use wire::text::visible;

use super::print::{Shade, Style};

/// Where the states begin; deeper or longer names push theirs to the right.
const STATE_COLUMN: usize = 30;

/// The whole tree: name, state, then what is worth a word.
pub(crate) fn draw(style: &Style, tree: &Tree) -> String {
    let mut text = String::new();
    line(style, &mut text, "", &tree.root);
    children(style, &mut text, "", &tree.root);
    text
}

fn children(style: &Style, text: &mut String, indent: &str, node: &Node) {
    let last = node.children.len().saturating_sub(1);
    for (number, child) in node.children.iter().enumerate() {
        let (branch, below) = if number == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        line(style, text, &format!("{indent}{branch}"), child);
        if let Some(error) = &child.last_error {
            let bar = if child.children.is_empty() { "" } else { "│" };
            let _ = writeln!(
                text,
                "{indent}{below}{bar}   {}",
                style.shade(Shade::Care, &format!("last error: {}", visible(error)))
            );
        }
        children(style, text, &format!("{indent}{below}"), child);
    }
}

fn line(style: &Style, text: &mut String, lead: &str, node: &Node) {
    let name = format!("{lead}{}", visible(&node.name));
    let (word, shade) = match node.state {
        NodeState::Running => ("running", Shade::Good),
        NodeState::Restarting => ("restarting", Shade::Care),
        NodeState::Unavailable => ("unavailable", Shade::Bad),
        NodeState::Stopped => ("stopped", Shade::Faint),
    };
    let gap = STATE_COLUMN.saturating_sub(name.chars().count()).max(2);
    let figures = figures(node);
    let state = if figures.is_empty() { word.to_owned() } else { format!("{word:<11}") };
    let _ = writeln!(text, "{name}{:gap$}{}{figures}", "", style.shade(shade, &state));
}

fn figures(node: &Node) -> String {
    let mut text = String::new();
    let mut figure = |label: &str, value: String| {
        let _ = write!(text, "  {label} {value}");
    };
    if node.restarts > 0 {
        figure("restarts", node.restarts.to_string());
    }
    if node.calls > 0 || node.running > 0 || node.queued > 0 {
        figure("calls", node.calls.to_string());
        figure("running", node.running.to_string());
        figure("queue", node.queued.to_string());
    }
    if node.abandoned > 0 {
        figure("abandoned", node.abandoned.to_string());
    }
    if let Some(last) = node.last_ms {
        figure("last", milliseconds(last));
    }
    if let Some(longest) = node.longest_ms {
        figure("longest", milliseconds(longest));
    }
    text
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}
