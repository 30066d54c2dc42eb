//! What people read, as snapshots.

use actors::{GrantLine, JournalLine, Node, NodeState, OwnerLine, ReceiptLine, Status, Tree, Waiting};
use jiff::tz::TimeZone;
use latchkey_runtime::cli::print::{self, Style};
use latchkey_runtime::keeper::ask::Address;

fn style() -> Style {
    Style { zone: TimeZone::UTC, colour: false, program: "latchkeyd".to_owned() }
}

fn node(name: &str, children: Vec<Node>) -> Node {
    Node {
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
        children,
    }
}

fn status() -> Status {
    let camera = Node {
        state: NodeState::Restarting,
        restarts: 2,
        last_error: Some("the camera is busy".to_owned()),
        running: 1,
        queued: 1,
        calls: 12,
        last_ms: Some(812.4),
        longest_ms: Some(2304.0),
        ..node("camera.snapshot", vec![])
    };
    let tree = node(
        "latchkeyd",
        vec![
            node("store", vec![]),
            node("capabilities", vec![camera, node("display.text", vec![])]),
            node("custom", vec![node("custom.acme.lamp", vec![])]),
            node("links", vec![node("direct", vec![])]),
        ],
    );
    Status {
        device: "AAAA".to_owned(),
        fingerprint: "ed25519:abc".to_owned(),
        // A name that would move the cursor and ring the bell.
        name: "kit\u{1b}]0;evil\u{7}chen".to_owned(),
        version: "0.1.0".to_owned(),
        simulated: true,
        running: true,
        pid: Some(4711),
        owner: Some(OwnerLine {
            agent: "alice@team.example.org".to_owned(),
            key: "BBBB".to_owned(),
            fingerprint: "ed25519:def".to_owned(),
            since: Some(1_700_000_000_000),
        }),
        ownership: 1,
        active_until: Some(1_700_000_060_000),
        pairing_until: None,
        waiting: 1,
        grants_on: vec!["camera".to_owned(), "display.text".to_owned()],
        journal: JournalLine { records: 41, first: 1, last: 41, head: "00".to_owned(), writable: true },
        sign: "simulated, dark".to_owned(),
        waiting_handlers: vec![
            "custom.acme.lamp: its file changed since you granted it, so it is off; to grant it again: latchkeyd grant custom.acme.lamp"
                .to_owned(),
        ],
        notices: vec!["the journal was set aside".to_owned()],
        tree: Some(Tree { root: tree }),
    }
}

fn claim(kind: &str, state: &str, code: &str) -> Waiting {
    Waiting {
        id: "0f".repeat(24),
        kind: kind.to_owned(),
        agent: "alice@team.example.org".to_owned(),
        key: "BBBB".to_owned(),
        code: code.to_owned(),
        state: state.to_owned(),
        expires_at: 1_700_000_600_000,
    }
}

#[test]
fn the_status_reads_well_and_escape_bytes_are_made_visible() {
    let address = Address {
        tls: true,
        host: "2001:db8::1".to_owned(),
        port: 7601,
        direct: "[2001:db8::1]:7601".to_owned(),
        display: Some("http://127.0.0.1:7602/display".to_owned()),
        pid: 4711,
        simulated: true,
    };
    let text = print::status(&style(), &status(), Some(&address));
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'));
    insta::assert_snapshot!(text);
}

#[test]
fn claims_come_with_the_commands_that_decide_them() {
    let claims = [claim("claim", "pending", "482 913"), claim("release", "refused", "")];
    insta::assert_snapshot!(print::claims(&style(), &claims));
}

#[test]
fn decisions_grants_and_records_read_well() {
    let on = GrantLine {
        name: "camera".to_owned(),
        on: true,
        capabilities: vec!["camera.snapshot".to_owned()],
        since: Some(1_700_000_000_000),
    };
    let off = GrantLine {
        name: "display.text".to_owned(),
        on: false,
        capabilities: vec!["display.text".to_owned()],
        since: None,
    };
    let call = ReceiptLine {
        sequence: 41,
        kind: "call".to_owned(),
        ownership: 1,
        id: Some("0f".repeat(24)),
        what: Some("camera.snapshot".to_owned()),
        received_at: Some(1_700_000_000_000),
        ended_at: Some(1_700_000_000_812),
        outcome: Some("ok".to_owned()),
        sign_on_at: Some(1_700_000_000_100),
        sign_off_at: None,
        hash: "00".to_owned(),
    };
    let started = ReceiptLine { sequence: 40, ended_at: None, outcome: None, sign_on_at: None, ..call.clone() };
    let text = [
        print::decided(&style(), &claim("claim", "approved", "482 913")),
        print::grants(&style(), &[on.clone(), off.clone()]),
        print::granted(&on, true),
        print::granted(&off, true),
        print::receipt_head(&style()) + "\n",
        print::receipt(&style(), &started) + "\n",
        print::receipt(&style(), &call) + "\n",
    ];
    insta::assert_snapshot!(text.join(""));
}
