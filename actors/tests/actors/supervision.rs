//! One bad part is its own business (CASES S1 to S4): it is started again, given up, and tried again, and nothing beside it
//! notices.

use std::sync::atomic::Ordering;
use std::time::Duration;

use handlers::Fault;
use latchkey_actors::{Command, FailCode, NodeState, Reply};
use wire::{CapabilityState, ErrorCode, OwnerRequest, Registration};

use crate::clients::{error, health, show, snapshot, value, word};
use crate::fakes::{Making, Mood, eventually};
use crate::rig::{Rig, Setup};
use crate::trap::{Op, Trouble};

const TEXT: &str = "capabilities/display.text";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_told_as_what_it_is_and_the_capability_answers_again_at_once() {
    let rig = Rig::new().await.ready().await;
    rig.text.set(Mood::Panic);
    rig.camera.set(Mood::Panic);
    assert_eq!(word(&rig.ask(show("x")).await), "unknown_outcome", "of a change nothing proves how it ended");
    assert_eq!(word(&rig.ask(snapshot()).await), "failed");
    rig.text.set(Mood::Work);
    let begun = tokio::time::Instant::now();
    while word(&rig.ask(show("y")).await) != "ok" {
        tokio::task::yield_now().await;
    }
    assert!(begun.elapsed() < Duration::from_millis(250), "{:?}", begun.elapsed());
    let node = rig.node(TEXT).await;
    assert_eq!((node.restarts, node.state), (1, NodeState::Running));
    assert_eq!(node.last_error.as_deref(), Some("panicked: told to panic"));
    assert_eq!((rig.text.effects(), rig.text.made.load(Ordering::SeqCst)), (1, 2));
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_no_call_beside_it() {
    let rig = std::sync::Arc::new(Rig::new().await.ready().await);
    rig.health.set(Mood::Wait);
    let beside = tokio::spawn({
        let rig = std::sync::Arc::clone(&rig);
        async move { word(&rig.ask(health()).await) }
    });
    rig.health.begins(1).await;
    rig.health.set(Mood::Panic);
    assert_eq!(error(rig.ask(health()).await), ErrorCode::Failed);
    rig.health.set(Mood::Work);
    rig.becomes("capabilities/device.health", NodeState::Running).await;
    rig.health.go();
    assert_eq!(beside.await.unwrap(), "ok");
    std::sync::Arc::into_inner(rig).unwrap().down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_s4_what_fails_again_and_again_is_given_up_and_the_keeper_can_try_it_again() {
    let rig = Rig::new().await.ready().await;
    rig.text.set(Mood::Panic);
    rig.text.make(Making::Panics);
    assert_eq!(word(&rig.ask(show("x")).await), "unknown_outcome");
    rig.becomes(TEXT, NodeState::Unavailable).await;
    assert_eq!(rig.text.made.load(Ordering::SeqCst), 1 + 5, "one start, and five restarts within a minute");
    let told = rig.ask(show("x")).await.unwrap().unwrap_err();
    assert_eq!(told.error, ErrorCode::HardwareUnavailable);
    assert!(told.message.contains("latchkeyd restart display.text"), "{}", told.message);
    assert_eq!(word(&rig.ask(snapshot()).await), "ok", "beside it all is well");
    let registration = Registration::parse(value(rig.ask(OwnerRequest::Registration).await)).unwrap();
    let state = |name: &str| registration.capability(&name.parse().unwrap()).unwrap().state;
    assert_eq!(
        (state("display.text"), state("camera.snapshot")),
        (CapabilityState::Unavailable, CapabilityState::Ready)
    );
    let restart = Command::Restart { capability: "display.text".to_owned() };
    let failed = rig.keeper(restart.clone()).await;
    assert!(
        matches!(&failed, Reply::Failed { code: FailCode::NotNow, message } if message.contains("told to panic")),
        "{failed:?}"
    );
    rig.becomes(TEXT, NodeState::Unavailable).await;
    rig.text.make(Making::Well);
    rig.text.set(Mood::Work);
    assert!(matches!(rig.keeper(restart).await, Reply::Done { .. }));
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    let presses =
        rig.receipts().await.iter().filter(|line| line.what.as_deref() == Some("restart display.text")).count();
    assert_eq!(presses, 2, "each press is on record");
    let unknown = rig.keeper(Command::Restart { capability: "nope.nope".to_owned() }).await;
    assert!(matches!(unknown, Reply::Failed { code: FailCode::NotFound, .. }));
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_a_restart_that_fails_is_tried_again_and_no_sibling_is_touched() {
    let rig = Rig::new().await.ready().await;
    rig.text.make(Making::FailsTimes(2));
    rig.text.set(Mood::Panic);
    assert_eq!(word(&rig.ask(show("x")).await), "unknown_outcome");
    rig.text.set(Mood::Work);
    eventually("the third try", || rig.text.made.load(Ordering::SeqCst) == 4).await;
    rig.becomes(TEXT, NodeState::Running).await;
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    assert_eq!(rig.node(TEXT).await.last_error.as_deref(), Some("does not start: told not to start"));
    for sibling in [&rig.health, &rig.camera, &rig.ears, &rig.image, &rig.lamp] {
        assert_eq!(sibling.made.load(Ordering::SeqCst), 1, "{}", sibling.declaration.name);
    }
    assert_eq!(rig.node("capabilities").await.restarts, 0);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s3_parts_that_never_start_hold_up_nobody() {
    let begun = tokio::time::Instant::now();
    let before = |fakes: &crate::rig::Fakes| {
        fakes.text.make(Making::Hangs);
        fakes.camera.make(Making::Panics);
        fakes.image.make(Making::FailsTimes(100));
    };
    let rig = Rig::with(Setup { before, ..Setup::default() }).await;
    rig.own(1).await;
    assert_eq!(word(&rig.ask(health()).await), "ok");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for (path, started) in
        [(TEXT, false), ("capabilities/camera.snapshot", false), ("capabilities/custom/custom.test.lamp", true)]
    {
        assert_eq!(rig.node(path).await.state == NodeState::Running, started, "{path}");
    }
    rig.becomes("capabilities/camera.snapshot", NodeState::Unavailable).await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_capability_can_be_made_anew_without_a_charge() {
    let rig = Rig::new().await.ready().await;
    for times in 1..=8 {
        let reply = rig.keeper(Command::Restart { capability: "display.text".to_owned() }).await;
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        assert_eq!(rig.text.made.load(Ordering::SeqCst), 1 + times);
        assert_eq!(word(&rig.ask(show("x")).await), "ok");
    }
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_own_fault_is_no_death() {
    let rig = Rig::new().await.ready().await;
    rig.text.set(Mood::Fail(Fault::Failed("broke".to_owned())));
    for _ in 0..20 {
        assert_eq!(error(rig.ask(show("x")).await), ErrorCode::Failed);
    }
    let node = rig.node(TEXT).await;
    assert_eq!((node.restarts, node.state, node.calls), (0, NodeState::Running, 20));
    assert_eq!(node.last_error.as_deref(), Some("broke"));
    assert!(node.last_ms.is_some() && node.running == 0 && node.queued == 0);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_store_health_answers_and_nothing_else() {
    let rig = Rig::new().await.ready().await;
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    // From its next write on the vault panics, and so does each new life.
    rig.plan.set(Op::Recover, Trouble::Panic);
    rig.plan.set(Op::Begin, Trouble::Panic);
    assert_eq!(error(rig.ask(show("x")).await), ErrorCode::StorageFull);
    rig.becomes("store", NodeState::Unavailable).await;
    for request in [show("x"), snapshot()] {
        assert_eq!(error(rig.ask(request).await), ErrorCode::StorageFull);
    }
    assert_eq!(word(&rig.ask(health()).await), "ok");
    let asked = rig.keeper(Command::Revoke { name: "camera".to_owned() }).await;
    assert!(matches!(asked, Reply::Failed { .. }), "{asked:?}");
    assert_eq!((rig.text.effects(), rig.camera.effects()), (1, 0));
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_state_actor_health_answers_and_nothing_else() {
    let rig = Rig::new().await.ready().await;
    // It dies in doubt, and no successor can read what holds.
    rig.plan.set(Op::Durable, Trouble::Full);
    rig.plan.set_times(Op::Commit, Trouble::Panic, 1);
    let told = rig.keeper(Command::Revoke { name: "camera".to_owned() }).await;
    assert!(
        matches!(&told, Reply::Failed { code: FailCode::Storage, message } if message.contains("latchkeyd status")),
        "{told:?}"
    );
    assert!(rig.status().await.grants_on.is_empty(), "in doubt nothing is granted");
    rig.becomes("state", NodeState::Unavailable).await;
    for request in [show("x"), snapshot(), OwnerRequest::Release] {
        assert_ne!(word(&rig.ask(request).await), "ok");
    }
    assert_eq!(word(&rig.ask(health()).await), "ok");
    assert_eq!((rig.text.begun(), rig.camera.begun()), (0, 0));
    let told = rig.keeper(Command::Grants).await;
    assert!(matches!(told, Reply::Grants { .. }));
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_census_says_how_parts_stand_and_whether_records_can_be_written() {
    use handlers::Census as _;
    let before = |fakes: &crate::rig::Fakes| fakes.camera.make(Making::Panics);
    let rig = Rig::with(Setup { before, ..Setup::default() }).await;
    rig.own(1).await;
    rig.becomes("capabilities/camera.snapshot", NodeState::Unavailable).await;
    rig.clock.pass(1_000);
    let report = rig.census.report();
    let at = |path: &str| serde_json::to_value(&report).unwrap().pointer(path).unwrap().clone();
    assert_eq!(at("/capabilities/camera.snapshot"), "unavailable");
    assert_eq!(at("/capabilities/custom.test.lamp"), "ready");
    assert_eq!((at("/sign"), at("/journal/writable")), ("fake".into(), true.into()));
    rig.plan.set(Op::Append, Trouble::Full);
    rig.grant_is_refused().await;
    rig.clock.pass(1_000);
    assert_eq!(serde_json::to_value(rig.census.report()).unwrap().pointer("/journal/writable").unwrap(), false);
    rig.down().await;
}
