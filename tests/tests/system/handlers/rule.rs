//! The rule: nothing that a controller can send installs, changes, removes, renames or switches on a handler.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use actors::{Command, Reply};
use latchkey_tests::agent::{fresh_id, invoke, object, random};
use latchkey_tests::guests::text;
use latchkey_tests::link::Outcome;
use latchkey_tests::{Agent, until};
use serde_json::{Value, json};
use wire::envelope::seal;
use wire::{ClaimantRequest, Head, Lease, OwnerRequest, PairingSecret};

use super::{Kitchen, NEIGHBOUR, WORD, named, sha256};

/// Names and words that would mean something to whoever took them for a path, a command or a pattern.
const TRICKS: &[&str] = &[
    "../config/handlers/custom.test.neighbour.wat",
    "/etc/passwd",
    "custom.test.neighbour.wat",
    "custom.test.neighbour.toml",
    "custom.test.*",
    "custom.test.neighbour\u{0}.toml",
    "custom.test.neighbour/../granted",
    "custom.../.x",
    "handler.install",
    "handlers.grant",
    "keeper.grant",
];

/// Which message it is. A new message of the wire has no number here, and breaks the build until it is sent below.
const fn of_owner(request: &OwnerRequest) -> usize {
    match request {
        OwnerRequest::ChangeStatus { .. } => 0,
        OwnerRequest::Registration => 1,
        OwnerRequest::Activate { .. } => 2,
        OwnerRequest::Deactivate => 3,
        OwnerRequest::Invoke { .. } => 4,
        OwnerRequest::Cancel { .. } => 5,
        OwnerRequest::Inputs { .. } => 6,
        OwnerRequest::Transfer { .. } => 7,
        OwnerRequest::Release => 8,
    }
}
const OF_OWNER: usize = 9;

const fn of_claimant(request: &ClaimantRequest) -> usize {
    match request {
        ClaimantRequest::Claim { .. } => 0,
        ClaimantRequest::ChangeStatus { .. } => 1,
    }
}
const OF_CLAIMANT: usize = 2;

/// Every message of an owner, some in several forms.
fn owners_messages(stranger: &Agent) -> Vec<OwnerRequest> {
    let id = fresh_id();
    let mut messages = vec![
        OwnerRequest::ChangeStatus { target: id },
        OwnerRequest::Registration,
        OwnerRequest::Activate { lease: Lease::from_ms(60_000).unwrap() },
        OwnerRequest::Inputs { after: 0 },
        OwnerRequest::Cancel { target: id },
        OwnerRequest::Deactivate,
        OwnerRequest::Transfer { agent: stranger.address.clone(), key: stranger.public().clone() },
        OwnerRequest::Release,
    ];
    for name in
        [NEIGHBOUR, "custom.test.off", "custom.test.refused", "custom.test.absent", "device.health", "display.text"]
    {
        messages.push(invoke(name, json!({})));
        for trick in TRICKS {
            messages.push(invoke(name, json!({ "word": trick })));
            messages.push(OwnerRequest::Invoke {
                capability: name.parse().unwrap(),
                arguments: object(json!({ "path": trick, "grant": true, "on": true, "component": text("echo_anew") })),
            });
        }
    }
    messages
}

/// Bodies that no message can be made of: names that are paths, members and types that nobody declared.
fn bodies(head: &Head) -> Vec<Vec<u8>> {
    let body = |kind: &str, more: Value| {
        let mut body = serde_json::from_slice::<Value>(&invoke(NEIGHBOUR, json!({})).to_body(head)).unwrap();
        body.as_object_mut().unwrap().remove("capability");
        body["type"] = json!(kind);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string().into_bytes()
    };
    let component = text("echo_anew");
    let mut bodies: Vec<_> = TRICKS.iter().map(|trick| body("invoke", json!({ "capability": trick }))).collect();
    for kind in ["grant", "revoke", "handler.install", "handlers", "approve", "restart", "reload", "install", "upload"]
    {
        for name in [NEIGHBOUR, "custom.test.off"] {
            bodies.push(body(kind, json!({ "name": name })));
            bodies.push(body(kind, json!({ "capability": name, "component": component })));
        }
    }
    for member in ["grant", "approved", "component", "manifest", "reach"] {
        bodies.push(body("invoke", json!({ "capability": NEIGHBOUR, member: component })));
    }
    bodies
}

/// A file: inode, size, mode, when its content and when it changed, and its hash.
#[derive(Debug, PartialEq)]
struct About {
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
    sha256: String,
}

/// Everything that a handler is made of: content, inode and times of each file, and every grant.
#[derive(Debug, PartialEq)]
struct Standing {
    files: BTreeMap<PathBuf, About>,
    grants: Vec<(String, bool)>,
    handlers: Vec<String>,
}

fn standing(kitchen: &Kitchen) -> Standing {
    let mut files = BTreeMap::new();
    for folder in [kitchen.handlers.folder().to_owned(), kitchen.room.state().join("cache"), kitchen.room.config()] {
        note(&folder, &mut files);
    }
    let Reply::Grants { grants } = kitchen.keeper().ask(Command::Grants) else { panic!("no grants") };
    let grants = grants.into_iter().map(|grant| (grant.name, grant.on)).collect();
    let handlers = kitchen.listed().into_iter().map(|line| {
        format!("{} {:?} {} {:?} {:?}", line.file, line.state, line.on, line.file_sha256, line.manifest_sha256)
    });
    Standing { files, grants, handlers: handlers.collect() }
}

fn note(path: &Path, files: &mut BTreeMap<PathBuf, About>) {
    let found = fs::symlink_metadata(path).unwrap();
    let about = About {
        inode: found.ino(),
        bytes: found.size(),
        mode: found.mode(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
        sha256: if found.is_file() { sha256(path) } else { String::new() },
    };
    files.insert(path.to_owned(), about);
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap().flatten() {
            note(&entry.path(), files);
        }
    }
}

#[test]
fn no_message_of_any_kind_from_owner_or_stranger_changes_a_handler_a_manifest_a_grant_or_the_cache() {
    let kitchen = Kitchen::new(|handlers| {
        handlers.fixture("custom.test.off", "echo", WORD);
        handlers.whole("custom.test.refused.wat", b"lamp");
    });
    kitchen.ready("custom.test.off");
    kitchen.refused("custom.test.refused.wat");
    // What is compiled at the first call is in the cache before the picture is taken.
    kitchen.goes_on("before");
    let before = standing(&kitchen);
    assert!(before.files.len() >= 9 && before.handlers.len() == 3, "{before:#?}");
    assert_eq!(before.grants.iter().filter(|(_, on)| *on).count(), 1, "{:?}", before.grants);
    let (line, stranger) = (kitchen.line(), Agent::new("stranger@elsewhere.example.org"));

    let mut sent = [0; OF_OWNER];
    for request in owners_messages(&stranger) {
        sent[of_owner(&request)] += 1;
        // From the owner it is admitted, whatever then becomes of it.
        let challenge = line.challenge();
        let answer = line.post(&kitchen.agent.seal(&line.device, fresh_id(), challenge, &request));
        let _: Outcome = answer.outcome(&line.device);
        // From a stranger it is the one refusal that everybody gets.
        let sealed = stranger.seal(&line.device, fresh_id(), line.challenge(), &request);
        assert!(line.post(&sealed).is_forbidden(), "{request:?}");
    }
    assert!(sent.iter().all(|count| *count > 0), "every message of an owner was sent: {sent:?}");

    let mut sent = [0; OF_CLAIMANT];
    let id = fresh_id();
    let guessed = PairingSecret::from_bytes(random());
    let proof = guessed.proof(stranger.public(), &id);
    for request in [
        ClaimantRequest::Claim { agent: stranger.address.clone(), key: stranger.public().clone(), proof },
        ClaimantRequest::ChangeStatus { target: id },
    ] {
        sent[of_claimant(&request)] += 1;
        for key in [&stranger.key, &kitchen.agent.key] {
            let head = Head { id, challenge: line.challenge(), to: line.device.clone() };
            let _ = line.post(&seal(key, &request.to_body(&head)).into_bytes());
        }
    }
    assert!(sent.iter().all(|count| *count > 0), "every message of a claimant was sent: {sent:?}");

    let count = bodies(&Head { id, challenge: line.challenge(), to: line.device.clone() }).len();
    for at in 0..count {
        for key in [&kitchen.agent.key, &stranger.key] {
            let head = Head { id: fresh_id(), challenge: line.challenge(), to: line.device.clone() };
            let body = bodies(&head).swap_remove(at);
            let reply = line.post(&seal(key, &body).into_bytes());
            // Some have the form of a name, though of nothing that is here.
            let unknown = reply.status == 200 && reply.outcome(&line.device).word() == "unsupported";
            assert!(reply.is_forbidden() || unknown, "{}: {reply:?}", String::from_utf8_lossy(&body));
        }
    }
    // Paths of HTTP beside the two that there are.
    for path in
        ["/v1/handlers", "/handlers", "/v1/../config/handlers", "/custom.test.neighbour.wat", "/v1/request/../grant"]
    {
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH"] {
            let mut wire = line.connect();
            wire.send(
                format!("{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", line.address).as_bytes(),
            )
            .unwrap();
            let reply = wire.read().expect("an answer");
            assert!((400..500).contains(&reply.status), "{method} {path}: {reply:?}");
        }
    }

    assert_eq!(standing(&kitchen), before);
    kitchen.goes_on("after");
    // The control: the same picture sees a touched file, a grant, and a dropped handler.
    kitchen.keeper().grant("custom.test.off");
    assert_ne!(standing(&kitchen).grants, before.grants);
    kitchen.handlers.fixture(&named("new"), "echo", WORD);
    until("a new handler is seen", || (standing(&kitchen).handlers != before.handlers).then_some(()));
    let path = kitchen.handlers.path("custom.test.off.toml");
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_ne!(standing(&kitchen).files, before.files);
}
