//! The handlers folder as the house follows it: what is on disk is what is in service, a grant is for one content, and what runs is
//! not cut off by a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::digest::Digest;
use handlers::Fault;
use handlers::wasm::log::{HandlerLog, Level, LogLine};
use latchkey_actors::{
    Command, Custom, FailCode, FolderNow, HandlerAbout, HandlerLine, HandlerState, Installed, NodeState,
    RefusedHandler, Reply, Seal,
};
use serde_json::json;
use wire::{CapabilityName, Declaration, ErrorCode, OwnerRequest, Registration};

use crate::clients::{Told, activate, error, invoke, value, word};
use crate::fakes::{Fake, Making, Mood, eventually};
use crate::rig::Rig;
use crate::trap::{Op, Trouble};

const BELL: &str = "custom.acme.bell";
const GONG: &str = "custom.acme.gong";
const BELL_PATH: &str = "capabilities/custom/custom.acme.bell";

fn seal(content: &str) -> Seal {
    Seal { file: Digest::of(content.as_bytes()), manifest: None }
}

/// A handler whose work the test sees and commands.
struct File {
    fake: Arc<Fake>,
    seal: Seal,
    log: Arc<HandlerLog>,
}

impl File {
    fn new(rig: &Rig, name: &str, content: &str) -> Self {
        let name: CapabilityName = name.parse().unwrap();
        let declaration = Declaration { grant: Some(name.grant()), name, ..Declaration::display_text() };
        Self { fake: Fake::new(declaration, &rig.trace), seal: seal(content), log: Arc::default() }
    }

    fn installed(&self) -> Installed {
        let about = HandlerAbout {
            file: format!("{}.wasm", self.fake.declaration.name),
            memory_bytes: 1 << 20,
            result_bytes_max: 1 << 10,
            reach: vec!["reads /sys/class/leds".to_owned()],
        };
        Installed {
            custom: Some(Custom { seal: self.seal, about, log: Arc::clone(&self.log) }),
            ..self.fake.installed()
        }
    }
}

fn with(files: &[&File]) -> FolderNow {
    FolderNow { installed: files.iter().map(|file| file.installed()).collect(), ..FolderNow::default() }
}

fn refusing(name: &str, why: &str) -> FolderNow {
    let refused = RefusedHandler {
        file: format!("{name}.wasm"),
        name: Some(name.parse().unwrap()),
        why: why.to_owned(),
        seal: None,
    };
    FolderNow { refused: vec![refused], ..FolderNow::default() }
}

fn ring(name: &str) -> OwnerRequest {
    invoke(name, json!({ "text": "x" }))
}

impl Rig {
    async fn holds(&self, files: &[&File]) {
        assert_eq!(self.house.folder(with(files)).await, []);
    }

    /// Owned, active, with this one granted.
    async fn with_granted(&self, file: &File) {
        self.own(1).await;
        value(self.ask(activate(300_000)).await);
        self.holds(&[file]).await;
        self.grant(file.fake.declaration.name.as_str()).await;
    }

    async fn lines(&self) -> Vec<HandlerLine> {
        match self.keeper(Command::Handlers).await {
            Reply::Handlers { handlers, .. } => handlers,
            other => panic!("{other:?}"),
        }
    }

    async fn line(&self, name: &str) -> HandlerLine {
        let lines = self.lines().await;
        lines.into_iter().find(|line| line.name.as_deref() == Some(name)).unwrap()
    }

    async fn records(&self, of: &str) -> Vec<String> {
        let lines = self.receipts().await;
        let told = lines.into_iter().filter(|line| line.kind == "keeper").filter_map(|line| line.what);
        told.filter(|what| what.ends_with(of)).collect()
    }

    async fn registered(&self, name: &str) -> Option<(bool, wire::CapabilityState)> {
        let registration = Registration::parse(value(self.ask(OwnerRequest::Registration).await)).unwrap();
        registration.capability(&name.parse().unwrap()).map(|offered| (offered.grant_on, offered.state))
    }

    fn calls(self: &Arc<Self>, name: &'static str) -> tokio::task::JoinHandle<Told> {
        let rig = Arc::clone(self);
        tokio::spawn(async move { rig.ask(ring(name)).await })
    }

    async fn is_down(self: Arc<Self>) {
        Arc::into_inner(self).unwrap().down().await;
    }
}

#[track_caller]
fn refused(reply: Reply, expected: FailCode, words: &str) {
    match reply {
        Reply::Failed { code, message } => {
            assert_eq!(code, expected, "{message}");
            assert!(message.contains(words), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_becomes_a_capability_off_until_granted_and_goes_with_its_file() {
    let rig = Rig::new().await.ready().await;
    assert_eq!(error(rig.ask(ring(BELL)).await), ErrorCode::Unsupported);
    let bell = File::new(&rig, BELL, "a");
    rig.holds(&[&bell]).await;
    assert_eq!(rig.registered(BELL).await, Some((false, wire::CapabilityState::Ready)));
    assert_eq!(error(rig.ask(ring(BELL)).await), ErrorCode::Denied);
    assert_eq!(rig.node(BELL_PATH).await.state, NodeState::Running);
    rig.grant(BELL).await;
    assert_eq!(word(&rig.ask(ring(BELL)).await), "ok");
    assert_eq!(rig.registered(BELL).await, Some((true, wire::CapabilityState::Ready)));
    let line = rig.line(BELL).await;
    assert_eq!((line.state, line.on, line.calls, line.restarts), (HandlerState::Ready, true, 1, 0));
    assert_eq!(line.file_sha256, Some(bell.seal.file.to_string()));
    assert_eq!(
        (line.timeout_ms, line.effect.as_deref()),
        (Some(bell.fake.declaration.timeout.as_millis() as u64), Some("change"))
    );
    rig.holds(&[]).await;
    assert_eq!(error(rig.ask(ring(BELL)).await), ErrorCode::Unsupported);
    assert_eq!(rig.registered(BELL).await, None);
    assert!(rig.status().await.tree.unwrap().root.find(BELL_PATH).is_none());
    assert_eq!(
        rig.registered("custom.test.lamp").await,
        Some((true, wire::CapabilityState::Ready)),
        "beside it all stays"
    );
    eventually("the handler is let go", || Arc::strong_count(&bell.fake) == 1).await;
    assert_eq!(bell.fake.effects(), 1);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_runs_ends_on_the_old_content_and_the_next_is_denied() {
    let rig = Arc::new(Rig::new().await);
    let (old, new) = (File::new(&rig, BELL, "a"), File::new(&rig, BELL, "b"));
    rig.with_granted(&old).await;
    old.fake.set(Mood::Wait);
    let call = rig.calls(BELL);
    old.fake.begins(1).await;
    rig.holds(&[&new]).await;
    assert_eq!(error(rig.ask(ring(BELL)).await), ErrorCode::Denied);
    assert_eq!(*old.fake.stopped.borrow(), 0);
    old.fake.go();
    assert_eq!(word(&call.await.unwrap()), "ok");
    assert_eq!((old.fake.effects(), new.fake.begun()), (1, 0));
    let node = rig.node(BELL_PATH).await;
    assert_eq!((node.calls, node.running), (0, 0), "the figures of the new one are its own");
    rig.grant(BELL).await;
    assert_eq!(word(&rig.ask(ring(BELL)).await), "ok");
    assert_eq!((old.fake.effects(), new.fake.effects()), (1, 1));
    rig.is_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keepers_revoke_cancels_also_what_runs_on_a_content_that_is_gone() {
    for next in ["changed", "removed"] {
        let rig = Arc::new(Rig::new().await);
        let (old, new) = (File::new(&rig, BELL, "a"), File::new(&rig, BELL, "b"));
        rig.with_granted(&old).await;
        old.fake.set(Mood::Wait);
        let call = rig.calls(BELL);
        old.fake.begins(1).await;
        let now = if next == "changed" { vec![&new] } else { Vec::new() };
        rig.holds(&now).await;
        rig.revoke(BELL).await;
        assert_eq!(word(&call.await.unwrap()), "unknown_outcome", "{next}");
        assert_eq!((*old.fake.stopped.borrow(), old.fake.effects()), (1, 0), "{next}");
        assert_eq!(rig.status().await.waiting_handlers, [""; 0], "it is decided");
        rig.is_down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_owner_cancels_what_runs_on_a_content_that_is_gone() {
    let rig = Arc::new(Rig::new().await);
    let old = File::new(&rig, BELL, "a");
    rig.with_granted(&old).await;
    old.fake.set(Mood::Wait);
    let call = rig.calls(BELL);
    old.fake.begins(1).await;
    rig.holds(&[]).await;
    assert!(matches!(rig.keeper(Command::Release).await, Reply::Released { was: Some(_) }));
    assert_eq!(word(&call.await.unwrap()), "not_allowed");
    assert_eq!((*old.fake.stopped.borrow(), old.fake.effects()), (1, 0));
    rig.is_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_content_that_comes_back_is_off_until_it_is_granted_again() {
    let rig = Rig::new().await;
    let (a, b) = (File::new(&rig, BELL, "a"), File::new(&rig, BELL, "b"));
    rig.with_granted(&a).await;
    for between in [with(&[&b]), with(&[]), refusing(BELL, "odd")] {
        assert_eq!(word(&rig.ask(ring(BELL)).await), "ok");
        rig.house.folder(between).await;
        rig.holds(&[&a]).await;
        assert_eq!(error(rig.ask(ring(BELL)).await), ErrorCode::Denied);
        let told = rig.status().await.waiting_handlers;
        assert!(told.len() == 1 && told[0].contains(&format!("latchkeyd grant {BELL}")), "{told:?}");
        assert_eq!(rig.line(BELL).await.changed.map(|changed| format!("{BELL}: {changed}")), told.first().cloned());
        rig.grant(BELL).await;
        assert_eq!(rig.status().await.waiting_handlers, [""; 0]);
    }
    assert_eq!(rig.line(BELL).await.changed, None);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_restart_a_grant_holds_for_the_same_content_and_ends_with_another() {
    for (next, expected) in [("a", "ok"), ("b", "denied")] {
        let rig = Rig::disk().await;
        let old = File::new(&rig, BELL, "a");
        rig.with_granted(&old).await;
        assert_eq!(word(&rig.ask(ring(BELL)).await), "ok");
        let rig = rig.restart().await;
        value(rig.ask(activate(300_000)).await);
        assert_eq!(rig.status().await.grants_on, [BELL], "nothing is off before anybody looked into the folder");
        let pending = vec![(BELL.parse().unwrap(), seal(next))];
        rig.house.folder(FolderNow { pending, ..FolderNow::default() }).await;
        let new = File::new(&rig, BELL, next);
        rig.holds(&[&new]).await;
        assert_eq!(word(&rig.ask(ring(BELL)).await), expected);
        assert_eq!(rig.status().await.waiting_handlers.len(), usize::from(next == "b"));
        let mut records = vec![format!("handler.installed {BELL}"), format!("grant {BELL}")];
        if next == "b" {
            records.extend([format!("handler.changed {BELL}"), format!("grant.withdrawn {BELL}")]);
        }
        assert_eq!(rig.records(BELL).await, records, "each fact is told once");
        rig.verifies().await;
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_yet_or_not_at_all_cannot_be_granted() {
    let rig = Rig::new().await.ready().await;
    let bell = File::new(&rig, BELL, "a");
    let grant = async |name: &str| rig.keeper(Command::Grant { name: name.to_owned() }).await;
    refused(grant(BELL).await, FailCode::NotFound, "there is no grant custom.acme.bell here");
    let pending = vec![(BELL.parse().unwrap(), bell.seal)];
    assert_eq!(rig.house.folder(FolderNow { pending: pending.clone(), ..FolderNow::default() }).await, []);
    refused(grant(BELL).await, FailCode::NotNow, "is still being compiled");
    assert_eq!(rig.line(BELL).await.state, HandlerState::Compiling);
    let held = Some("this kernel has no Landlock".to_owned());
    rig.house.folder(FolderNow { pending, held: held.clone(), ..FolderNow::default() }).await;
    refused(grant(BELL).await, FailCode::NotNow, "cannot be compiled now: this kernel has no Landlock");
    assert_eq!((rig.line(BELL).await.state, rig.line(BELL).await.why), (HandlerState::Waiting, held));
    rig.house.folder(refusing(BELL, "it is odd")).await;
    refused(grant(BELL).await, FailCode::NotNow, "custom.acme.bell.wasm is refused: it is odd");
    let line = rig.line(BELL).await;
    assert_eq!((line.state, line.why.as_deref(), line.effect), (HandlerState::Refused, Some("it is odd"), None));
    assert!(!rig.status().await.grants_on.contains(&BELL.to_owned()));
    rig.holds(&[&bell]).await;
    refused(grant("custom.acme.bel").await, FailCode::NotFound, "did you mean custom.acme.bell?");
    let restart = Command::Restart { capability: "custom.acme.bel".to_owned() };
    refused(rig.keeper(restart).await, FailCode::NotFound, "did you mean custom.acme.bell?");
    assert!(matches!(grant(BELL).await, Reply::Granted { changed: true, .. }));
    assert_eq!(word(&rig.ask(ring(BELL)).await), "ok");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_handler_is_its_own() {
    let rig = Rig::new().await;
    let (bell, gong) = (File::new(&rig, BELL, "a"), File::new(&rig, GONG, "a"));
    rig.holds(&[&bell, &gong]).await;
    bell.log.push(LogLine { at_ms: 5, level: Level::Warn, text: "rings".to_owned() });
    let log = async |name: &str| rig.keeper(Command::HandlerLog { name: name.to_owned() }).await;
    assert!(matches!(log(BELL).await, Reply::HandlerLog { lines, .. } if lines.len() == 1 && lines[0].text == "rings"));
    assert!(matches!(log(GONG).await, Reply::HandlerLog { lines, .. } if lines.is_empty()));
    refused(log("custom.acme.bel").await, FailCode::NotFound, "did you mean custom.acme.bell?");
    refused(log("display.text").await, FailCode::NotFound, "is no handler of yours");
    refused(log("xyz").await, FailCode::NotFound, "there are: custom.acme.bell, custom.acme.gong");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_ends_a_call_and_leaves_the_handler() {
    let rig = Rig::new().await;
    let bell = File::new(&rig, BELL, "a");
    rig.with_granted(&bell).await;
    bell.fake.set(Mood::Fail(Fault::Crashed("it ran out of memory".to_owned())));
    for _ in 0..20 {
        let told = rig.ask(ring(BELL)).await.unwrap().unwrap_err();
        assert_eq!((told.error, told.message.as_str()), (ErrorCode::UnknownOutcome, "it ran out of memory"));
    }
    let line = rig.line(BELL).await;
    assert_eq!((line.restarts, line.last_error.as_deref()), (0, Some("it ran out of memory")));
    rig.ears.set(Mood::Fail(Fault::Crashed("it ran out of memory".to_owned())));
    rig.grant("custom.test.ears").await;
    assert_eq!(
        error(rig.ask(invoke("custom.test.ears", json!({}))).await),
        ErrorCode::Failed,
        "what reads did nothing"
    );
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_handler_is_made_anew_given_up_and_tried_again_beside_others() {
    let rig = Rig::new().await;
    let (bell, gong) = (File::new(&rig, BELL, "a"), File::new(&rig, GONG, "a"));
    rig.with_granted(&bell).await;
    rig.holds(&[&bell, &gong]).await;
    rig.grant(GONG).await;
    bell.fake.set(Mood::Fail(Fault::Broken("three faults in a row".to_owned())));
    let told = rig.ask(ring(BELL)).await.unwrap().unwrap_err();
    assert_eq!((told.error, told.message.as_str()), (ErrorCode::UnknownOutcome, "three faults in a row"));
    eventually("it is made anew", || bell.fake.made.load(Ordering::SeqCst) == 2).await;
    bell.fake.make(Making::Panics);
    rig.becomes(BELL_PATH, NodeState::Running).await;
    while word(&rig.ask(ring(BELL)).await) == "busy" {
        tokio::task::yield_now().await;
    }
    rig.becomes(BELL_PATH, NodeState::Unavailable).await;
    assert_eq!(error(rig.ask(ring(BELL)).await), ErrorCode::HardwareUnavailable);
    assert_eq!(rig.line(BELL).await.state, HandlerState::Unavailable);
    assert_eq!(word(&rig.ask(ring(GONG)).await), "ok", "its neighbour does not notice");
    assert_eq!(gong.fake.made.load(Ordering::SeqCst), 1);
    bell.fake.make(Making::Well);
    bell.fake.set(Mood::Work);
    let reply = rig.keeper(Command::Restart { capability: BELL.to_owned() }).await;
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    assert_eq!(word(&rig.ask(ring(BELL)).await), "ok");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_breaks_after_its_call_was_cancelled_is_made_anew() {
    for (fault, made) in [("broken", 2), ("crashed", 1)] {
        let rig = Arc::new(Rig::new().await);
        let bell = File::new(&rig, BELL, "a");
        rig.with_granted(&bell).await;
        let why = fault.to_owned();
        bell.fake.set(Mood::FailAtStop(if made == 2 { Fault::Broken(why) } else { Fault::Crashed(why) }));
        let call = rig.calls(BELL);
        bell.fake.begins(1).await;
        rig.revoke(BELL).await;
        assert_eq!(word(&call.await.unwrap()), "unknown_outcome");
        eventually("the end of the work is seen", || *bell.fake.ended.borrow() == 1).await;
        rig.grant(BELL).await;
        bell.fake.set(Mood::Work);
        while word(&rig.ask(ring(BELL)).await) != "ok" {
            tokio::task::yield_now().await;
        }
        if made == 2 {
            eventually("it is made anew", || bell.fake.made.load(Ordering::SeqCst) == 2).await;
        }
        assert_eq!(bell.fake.made.load(Ordering::SeqCst), made, "{fault}");
        rig.is_down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_goes_off_all_the_same_and_is_told_later() {
    let rig = Rig::disk().await;
    let (a, b) = (File::new(&rig, BELL, "a"), File::new(&rig, BELL, "b"));
    rig.with_granted(&a).await;
    rig.plan.set(Op::Append, Trouble::Full);
    rig.holds(&[&b]).await;
    rig.holds(&[&a]).await;
    assert_eq!(rig.registered(BELL).await, Some((false, wire::CapabilityState::Ready)));
    assert!(!rig.status().await.grants_on.contains(&BELL.to_owned()));
    rig.plan.clear();
    let told = async || rig.records(BELL).await;
    let expected = [
        format!("handler.installed {BELL}"),
        format!("grant {BELL}"),
        format!("handler.changed {BELL}"),
        format!("grant.withdrawn {BELL}"),
        format!("handler.changed {BELL}"),
    ];
    let deadline = tokio::time::Instant::now() + crate::fakes::PATIENCE * 3;
    while told().await.len() < expected.len() && tokio::time::Instant::now() < deadline {
        rig.keeper(Command::Receipts { after: rig.status().await.journal.last, limit: 1, wait_ms: 200 }).await;
    }
    assert_eq!(told().await, expected);
    let rig = rig.restart().await;
    assert_eq!(rig.status().await.grants_on, [""; 0], "it is on disk");
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_handlers_come_stay_and_go_in_no_time() {
    let rig = Rig::new().await;
    rig.own(1).await;
    let files: Vec<_> = (0..1_000).map(|number| File::new(&rig, &format!("custom.acme.n{number}"), "a")).collect();
    let files: Vec<_> = files.iter().collect();
    let begun = tokio::time::Instant::now();
    rig.holds(&files).await;
    let came = begun.elapsed();
    eventually("all are made", || files.iter().all(|file| file.fake.made.load(Ordering::SeqCst) == 1)).await;
    rig.becomes("capabilities/custom/custom.acme.n999", NodeState::Running).await;
    let begun = tokio::time::Instant::now();
    for _ in 0..20 {
        rig.holds(&files).await;
    }
    let stayed = begun.elapsed();
    assert_eq!(rig.lines().await.len(), 1_000);
    assert!(rig.registered("custom.acme.n500").await.is_some());
    assert_eq!(
        files.iter().map(|file| file.fake.made.load(Ordering::SeqCst)).sum::<u32>(),
        1_000,
        "nothing was made anew"
    );
    let begun = tokio::time::Instant::now();
    rig.holds(&[]).await;
    let went = begun.elapsed();
    assert!(rig.lines().await.is_empty());
    // Generous: a debug build on a busy machine. A tree for each change would take minutes.
    let limit = std::time::Duration::from_secs(10);
    assert!(came < limit && stayed < limit && went < limit, "{came:?} {stayed:?} {went:?}");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_on_record_once_also_over_a_restart() {
    let rig = Rig::disk().await;
    rig.own(1).await;
    let refusal = || FolderNow { notice: Some("weak kernel".to_owned()), ..refusing(BELL, "odd") };
    rig.house.folder(refusal()).await;
    rig.house.folder(refusal()).await;
    let rig = rig.restart().await;
    rig.house.folder(refusal()).await;
    assert_eq!(rig.records("custom.acme.bell.wasm").await, ["handler.refused custom.acme.bell.wasm"]);
    let notice = match rig.keeper(Command::Handlers).await {
        Reply::Handlers { notice, .. } => notice,
        other => panic!("{other:?}"),
    };
    assert_eq!(notice.as_deref(), Some("weak kernel"));
    rig.down().await;
}
