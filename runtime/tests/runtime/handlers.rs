//! The handlers folder of a whole device: what is on disk is what is in service.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use actors::{Command, HandlerLine, HandlerState, Reply};
use handlers::wasm::author::{self, Lang};
use serde_json::{Value, json};
use wire::envelope::seal;
use wire::{
    ClaimantRequest, Envelope, ErrorCode, Head, Id, Object, OwnerRequest, PairingSecret, PublicKey, SecretKey, Signer,
};

use crate::device::{Bench, Wish, body, challenge, exchange, post};

const LAMP: &str = "custom.acme.lamp";

/// What a keeper writes about it: callable at any time, so that a test needs no activation.
const MANIFEST: &str = r#"
description = "Answers the level that it was given"
effect = "read"
activation = "any"
timeout = "20s"
[arguments]
type = "object"
properties.level = { type = "integer", minimum = 0, maximum = 100 }
"#;

/// The text of a handler that answers its arguments.
pub(crate) fn echo() -> String {
    let files = author::project("acme.lamp", Lang::Wat).unwrap();
    files.into_iter().find(|file| file.path.extension().is_some_and(|it| it == "wat")).unwrap().contents
}

/// A device with an owner, and its handlers folder.
struct Kitchen {
    bench: Bench,
    owner: SecretKey,
    folder: PathBuf,
    calls: u8,
}

impl Kitchen {
    async fn start() -> Self {
        let bench = Bench::start(Wish { handlers: true, ..Wish::default() }).await;
        let folder = bench.folder.path().join("handlers");
        let mut kitchen = Self { bench, owner: SecretKey::from_seed(&[5; 32]), folder, calls: 0 };
        kitchen.claim().await;
        kitchen
    }

    fn make_folder(&self) {
        fs::create_dir(&self.folder).unwrap();
        fs::set_permissions(&self.folder, Permissions::from_mode(0o755)).unwrap();
    }

    /// A file that appears whole, as `mv` and `cp` of a small one leave it.
    fn drop_file(&self, name: &str, content: &str) {
        let path = self.folder.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }

    fn id(&mut self) -> Id {
        self.calls += 1;
        Id::from_bytes([self.calls; 24])
    }

    async fn send(&self, sealed: String) -> Result<Object, (ErrorCode, String)> {
        let answer = exchange(self.bench.direct(), post("/v1/request", &sealed)).await;
        let opened =
            Envelope::parse_result(body(&answer).as_bytes()).unwrap().open_answer(&self.bench.public()).unwrap();
        let (_, _, answer) = opened.into_parts();
        answer.outcome.map_err(|refusal| (refusal.error, refusal.message))
    }

    async fn claim(&mut self) {
        let Reply::Pairing { secret, .. } = self.bench.command(Command::Pair).await else { panic!("pairing opens") };
        let secret: PairingSecret = secret.parse().unwrap();
        let id = self.id();
        let head = Head { id, challenge: challenge(self.bench.direct()).await, to: self.bench.public() };
        let key: PublicKey = self.owner.public().clone();
        let proof = secret.proof(&key, &id);
        let claim = ClaimantRequest::Claim { agent: "alice@team.example.org".parse().unwrap(), key, proof };
        self.send(String::from_utf8(seal(&self.owner, &claim.to_body(&head)).into_bytes()).unwrap()).await.unwrap();
        let decided = self.bench.command(Command::Approve { which: id.to_string() }).await;
        assert!(matches!(decided, Reply::Decided { .. }), "{decided:?}");
    }

    async fn call(&mut self, arguments: Value) -> Result<Object, (ErrorCode, String)> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let request = OwnerRequest::Invoke { capability: LAMP.parse().unwrap(), arguments: Object::from(arguments) };
        let id = self.id();
        let head = Head { id, challenge: challenge(self.bench.direct()).await, to: self.bench.public() };
        self.send(String::from_utf8(seal(&self.owner, &request.to_body(&head)).into_bytes()).unwrap()).await
    }

    async fn handlers(&self) -> (Vec<HandlerLine>, Option<String>) {
        let Reply::Handlers { handlers, notice } = self.bench.command(Command::Handlers).await else {
            panic!("handlers")
        };
        (handlers, notice)
    }

    /// Waits until the list of handlers is as wanted, told by the house's own events.
    async fn until(&self, what: &str, wanted: impl Fn(&[HandlerLine], Option<&str>) -> bool) -> Vec<HandlerLine> {
        let mut events = self.bench.running.house.events();
        let seen = tokio::time::timeout(Duration::from_secs(120), async {
            loop {
                let (handlers, notice) = self.handlers().await;
                if wanted(&handlers, notice.as_deref()) {
                    return handlers;
                }
                // Also without an event: what a capability's actor says of itself makes none.
                let _ = tokio::time::timeout(Duration::from_millis(500), events.recv()).await;
            }
        });
        match seen.await {
            Ok(handlers) => handlers,
            Err(_elapsed) => panic!("{what}: {:?}", self.handlers().await),
        }
    }

    async fn ready(&self) -> HandlerLine {
        let mut handlers = self.until("ready", |lines, _| lines.first().is_some_and(is_ready)).await;
        handlers.remove(0)
    }

    async fn grant(&self) {
        let granted = self.bench.command(Command::Grant { name: LAMP.to_owned() }).await;
        assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    }

    async fn keeper_records(&self) -> Vec<String> {
        let asked = Command::Receipts { after: 0, limit: 500, wait_ms: 0 };
        let Reply::Receipts { records, .. } = self.bench.command(asked).await else { panic!("receipts") };
        records.into_iter().filter_map(|record| record.what).filter(|what| what.starts_with("handler")).collect()
    }
}

fn is_ready(line: &HandlerLine) -> bool {
    line.state == HandlerState::Ready
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_file_is_listed_then_granted_then_called_and_refused_once_it_changed() {
    let mut kitchen = Kitchen::start().await;
    assert_eq!(kitchen.call(json!({})).await.unwrap_err().0, ErrorCode::Unsupported);
    kitchen.make_folder();
    kitchen.drop_file("custom.acme.lamp.toml", MANIFEST);
    kitchen.drop_file("custom.acme.lamp.wat", &echo());
    let line = kitchen.ready().await;
    assert_eq!((line.on, line.effect.as_deref(), line.calls), (false, Some("read"), 0));
    assert_eq!(kitchen.call(json!({"level": 40})).await.unwrap_err().0, ErrorCode::Denied);
    kitchen.grant().await;
    let answer = kitchen.call(json!({"level": 40})).await.unwrap();
    assert_eq!(answer.get("level"), Some(&json!(40)));
    let (error, message) = kitchen.call(json!({"level": 101})).await.unwrap_err();
    assert_eq!(error, ErrorCode::InvalidArguments);
    assert!(message.contains("level"), "{message}");

    kitchen.drop_file("custom.acme.lamp.wat", &format!(";; another\n{}", echo()));
    let changed = kitchen.until("changed", |lines, _| lines.first().is_some_and(|it| is_ready(it) && !it.on)).await;
    assert!(changed[0].changed.as_deref().is_some_and(|it| it.contains("latchkeyd grant custom.acme.lamp")));
    assert_ne!(changed[0].file_sha256, line.file_sha256);
    assert_eq!(kitchen.call(json!({"level": 40})).await.unwrap_err().0, ErrorCode::Denied);
    kitchen.grant().await;
    assert!(kitchen.call(json!({"level": 40})).await.is_ok(), "granted anew");

    fs::remove_file(kitchen.folder.join("custom.acme.lamp.wat")).unwrap();
    fs::remove_file(kitchen.folder.join("custom.acme.lamp.toml")).unwrap();
    kitchen.until("gone", |lines, _| lines.is_empty()).await;
    assert_eq!(kitchen.call(json!({"level": 40})).await.unwrap_err().0, ErrorCode::Unsupported);
    kitchen.bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_handler_is_listed_with_its_reason_and_harms_no_neighbour() {
    let kitchen = Kitchen::start().await;
    kitchen.make_folder();
    symlink("/etc/passwd", kitchen.folder.join("custom.acme.link.wasm")).unwrap();
    kitchen.drop_file("custom.acme.core.wat", "(module (func (export \"invoke\")))");
    kitchen.drop_file("custom.acme.garbage.wasm", "MZ");
    kitchen.drop_file("camera.snapshot.wasm", "MZ");
    kitchen.drop_file("custom.acme.toml.wat", &echo());
    kitchen.drop_file("custom.acme.toml.toml", "grant = true\n");
    kitchen.drop_file("custom.acme.reach.wat", &echo());
    kitchen.drop_file("custom.acme.reach.toml", "description = \"x\"\n[reach]\nread = [\"/etc\"]\n");
    kitchen.drop_file("custom.acme.silent.wat", &echo());
    kitchen.drop_file("custom.acme.lamp.wat", &echo());
    kitchen.drop_file("custom.acme.lamp.toml", MANIFEST);
    let rows = [
        ("custom.acme.link.wasm", "link"),
        ("custom.acme.core.wat", "module"),
        ("custom.acme.garbage.wasm", ""),
        ("camera.snapshot.wasm", ""),
        ("custom.acme.toml.toml", "grant"),
        ("custom.acme.reach.wat", "/etc"),
        ("custom.acme.silent.wat", "description"),
    ];
    let refused = |line: &HandlerLine| line.state == HandlerState::Refused;
    let all = |lines: &[HandlerLine], _: Option<&str>| {
        lines.iter().filter(|line| refused(line)).count() == rows.len() && lines.iter().any(is_ready)
    };
    let lines = kitchen.until("all seven refused, one ready", all).await;
    for (file, words) in rows {
        let line = lines.iter().find(|line| line.file == file).unwrap_or_else(|| panic!("{file}: {lines:?}"));
        let why = line.why.clone().unwrap_or_default();
        assert!(refused(line) && !why.is_empty() && why.contains(words), "{file}: {why}");
    }
    let ready: Vec<_> = lines.iter().filter(|line| is_ready(line)).filter_map(|line| line.name.as_deref()).collect();
    assert_eq!(ready, [LAMP]);
    kitchen.bench.stop().await;
}

/// Writes half, waits until the device has had time to take it for the whole, then writes the rest.
async fn slow_copy(path: &Path, content: &str) {
    let (first, rest) = content.split_at(content.len() / 2);
    let mut file = File::create(path).unwrap();
    file.set_permissions(Permissions::from_mode(0o644)).unwrap();
    file.write_all(first.as_bytes()).unwrap();
    file.sync_all().unwrap();
    // The pause is what is tested: many times the quiet after which the folder is looked at.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    file.write_all(rest.as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_copy_is_taken_once_and_whole() {
    let kitchen = Kitchen::start().await;
    kitchen.make_folder();
    kitchen.drop_file("custom.acme.lamp.toml", MANIFEST);
    let seen =
        |lines: &[HandlerLine], _: Option<&str>| lines.first().is_some_and(|it| it.state == HandlerState::Refused);
    kitchen.until("the lonely .toml is seen, so the folder is watched", seen).await;
    let before = kitchen.keeper_records().await.len();
    slow_copy(&kitchen.folder.join("custom.acme.lamp.wat"), &echo()).await;
    kitchen.ready().await;
    let records = kitchen.keeper_records().await.split_off(before);
    assert_eq!(records, ["handler.installed custom.acme.lamp"], "no refusal of the half, no change to the whole");
    kitchen.bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_others_may_write_is_told_and_nothing_of_it_serves() {
    let mut kitchen = Kitchen::start().await;
    kitchen.make_folder();
    kitchen.drop_file("custom.acme.lamp.wat", &echo());
    kitchen.drop_file("custom.acme.lamp.toml", MANIFEST);
    kitchen.ready().await;
    kitchen.grant().await;
    fs::set_permissions(&kitchen.folder, Permissions::from_mode(0o777)).unwrap();
    kitchen.until("a notice", |_, notice| notice.is_some_and(|notice| notice.contains("chmod"))).await;
    assert_eq!(kitchen.call(json!({"level": 1})).await.unwrap_err().0, ErrorCode::Unsupported);
    fs::set_permissions(&kitchen.folder, Permissions::from_mode(0o755)).unwrap();
    let back = kitchen.ready().await;
    assert!(back.on, "the same content is still granted");
    assert!(kitchen.call(json!({"level": 1})).await.is_ok());
    kitchen.bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_there_is_no_folder_for_native_code() {
    let kitchen = Kitchen::start().await;
    kitchen.make_folder();
    kitchen.drop_file("README", "nothing");
    kitchen.until("looked at", |lines, _| !lines.is_empty()).await;
    assert!(!kitchen.bench.folder.path().join("cache").exists());
    kitchen.drop_file("custom.acme.lamp.wat", &echo());
    kitchen.drop_file("custom.acme.lamp.toml", MANIFEST);
    kitchen.until("ready", |lines, _| lines.iter().any(is_ready)).await;
    assert!(kitchen.bench.folder.path().join("cache").exists(), "control");
    kitchen.bench.stop().await;
}
