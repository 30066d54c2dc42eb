//! Calls while they run: what ends them, who waits, and what becomes of work that will not stop.

use std::sync::Arc;
use std::time::Duration;

use latchkey_actors::{Command, Event, NodeState};
use tokio::task::JoinHandle;
use wire::{ErrorCode, Id, OwnerRequest};

use crate::clients::{Told, activate, error, health, invoke, object, show, snapshot, value, word};
use crate::fakes::{Fake, Mood, PATIENCE, eventually, reaches};
use crate::rig::{Rig, Setup};
use crate::trap::{Op, Trouble};

/// A call in a task of its own.
fn begin(rig: &Arc<Rig>, id: Id, request: OwnerRequest) -> JoinHandle<Told> {
    let rig = Arc::clone(rig);
    tokio::spawn(async move { rig.ask_under(id, request).await })
}

async fn down(rig: Arc<Rig>) {
    Arc::into_inner(rig).expect("no call is left").down().await;
}

fn queued(rig: &Rig, path: &str) -> u32 {
    rig.house.tree().borrow().root.find(path).unwrap().queued
}

const CAUSES: [&str; 6] = ["cancel", "revoke", "sign", "deactivate", "keeper deactivates", "lease"];

async fn end_it(rig: &Rig, cause: &str, running: Id, grant: &str) {
    match cause {
        "cancel" => {
            assert_eq!(
                value(rig.ask(OwnerRequest::Cancel { target: rig.id() }).await),
                object(serde_json::json!({"cancelled": false}))
            );
            let told = value(rig.ask(OwnerRequest::Cancel { target: running }).await);
            assert_eq!(told, object(serde_json::json!({"cancelled": true})));
        }
        "revoke" => rig.revoke(grant).await,
        "sign" => rig.sign.breaks(true),
        "deactivate" => drop(value(rig.ask(OwnerRequest::Deactivate).await)),
        "keeper deactivates" => drop(rig.keeper(Command::Deactivate).await),
        "lease" => rig.clock.pass_boot(300_000),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_call_stands_on_ends_it_when_it_goes() {
    for cause in CAUSES {
        for (request, outcome) in [(snapshot(), "cancelled"), (show("x"), "unknown_outcome")] {
            let (change, sign) = (outcome == "unknown_outcome", cause == "sign");
            if change && sign {
                continue;
            }
            let rig = Arc::new(Rig::new().await.ready().await);
            let (fake, grant): (&Arc<Fake>, _) =
                if change { (&rig.text, "display.text") } else { (&rig.camera, "camera") };
            fake.set(Mood::Wait);
            let id = rig.id();
            let call = begin(&rig, id, request.clone());
            fake.begins(1).await;
            end_it(&rig, cause, id, grant).await;
            let told = call.await.unwrap();
            assert_eq!(word(&told), outcome, "{cause}");
            reaches(&fake.stopped, 1, "the handler is told").await;
            assert_eq!(fake.effects(), 0, "{cause}");
            assert_eq!(rig.story(id).await, ["started", outcome], "{cause}");
            down(rig).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_reason_to_end_it_a_call_goes_through() {
    let rig = Arc::new(Rig::new().await.ready().await);
    for fake in [&rig.text, &rig.camera] {
        fake.set(Mood::Wait);
        let call = begin(&rig, rig.id(), if fake.declaration.captures { snapshot() } else { show("x") });
        fake.begins(1).await;
        // Things of others go.
        rig.revoke("display.image").await;
        fake.go();
        assert_eq!(word(&call.await.unwrap()), "ok");
        assert_eq!((fake.effects(), *fake.stopped.borrow()), (1, 0));
    }
    down(rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_owner_ends_all_work_and_sends_nothing_of_it_to_anyone() {
    for way in ["release here", "transfer"] {
        let rig = Arc::new(Rig::new().await.ready().await);
        let target = rig.id();
        if way == "transfer" {
            let to = OwnerRequest::Transfer { agent: crate::clients::agent(2), key: crate::clients::public(2) };
            value(rig.ask_under(target, to).await);
        }
        for fake in [&rig.text, &rig.camera, &rig.health] {
            fake.set(Mood::Wait);
        }
        let (running, waiting) = (rig.id(), rig.id());
        let mut calls =
            vec![begin(&rig, running, show("x")), begin(&rig, rig.id(), snapshot()), begin(&rig, rig.id(), health())];
        for fake in [&rig.text, &rig.camera, &rig.health] {
            fake.begins(1).await;
        }
        calls.push(begin(&rig, waiting, show("y")));
        eventually("one waits", || queued(&rig, "capabilities/display.text") == 1).await;
        if way == "transfer" {
            rig.approve(&target.to_string()).await;
        } else {
            rig.keeper(Command::Release).await;
        }
        for call in calls {
            assert_eq!(word(&call.await.unwrap()), "not_allowed", "{way}: not even an error is signed");
        }
        for fake in [&rig.text, &rig.camera, &rig.health] {
            reaches(&fake.stopped, 1, "the handler is told").await;
            assert_eq!((fake.effects(), fake.begun()), (0, 1), "{way}");
        }
        let words = rig.story(running).await;
        assert_eq!(words, ["started", "unknown_outcome"], "{way}: what began is on record");
        // It may have come as far as its started record when the place before it became free; the handler never heard of it.
        assert_eq!(rig.story(waiting).await.last().map(String::as_str), Some("cancelled"));
        rig.verifies().await;
        down(rig).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_runs_four_wait_and_the_sixth_is_busy() {
    let rig = Arc::new(Rig::new().await.ready().await);
    rig.text.set(Mood::Wait);
    let mut calls = vec![begin(&rig, rig.id(), show("0"))];
    rig.text.begins(1).await;
    for waiting in 1..=4 {
        calls.push(begin(&rig, rig.id(), show("x")));
        eventually("one more waits", || queued(&rig, "capabilities/display.text") == waiting).await;
    }
    let sixth = rig.id();
    assert_eq!(word(&rig.ask_under(sixth, show("x")).await), "busy");
    assert_eq!(
        word(&rig.ask(invoke("custom.test.lamp", serde_json::json!({"text": "x"}))).await),
        "ok",
        "beside it all is well"
    );
    rig.text.set(Mood::Work);
    rig.text.go();
    for call in calls {
        assert_eq!(word(&call.await.unwrap()), "ok");
    }
    assert_eq!(rig.text.effects(), 5);
    assert_eq!(rig.text.most_at_once.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(word(&rig.ask_under(sixth, show("x")).await), "ok", "busy used up no id");
    down(rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_call_can_be_cancelled_and_never_begins() {
    let rig = Arc::new(Rig::new().await.ready().await);
    rig.text.set(Mood::Wait);
    let running = begin(&rig, rig.id(), show("0"));
    rig.text.begins(1).await;
    let waiting = rig.id();
    let second = begin(&rig, waiting, show("x"));
    eventually("it waits", || queued(&rig, "capabilities/display.text") == 1).await;
    value(rig.ask(OwnerRequest::Cancel { target: waiting }).await);
    assert_eq!(word(&second.await.unwrap()), "cancelled");
    rig.text.go();
    assert_eq!(word(&running.await.unwrap()), "ok");
    assert_eq!((rig.text.begun(), rig.text.effects()), (1, 1));
    down(rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_cancelled_while_its_start_is_written_never_begins_and_its_id_is_free() {
    let rig = Arc::new(Rig::new().await.ready().await);
    let id = rig.id();
    rig.plan.set_times(Op::Commit, Trouble::Block, 1);
    let call = begin(&rig, id, show("x"));
    reaches(&rig.plan.befell, 1, "the start is being written").await;
    value(rig.ask(OwnerRequest::Cancel { target: id }).await);
    rig.plan.clear();
    assert_eq!(word(&call.await.unwrap()), "cancelled");
    assert_eq!((rig.text.begun(), rig.story(id).await), (0, vec!["started".to_owned(), "cancelled".to_owned()]));
    assert_eq!(word(&rig.ask_under(id, show("x")).await), "ok");
    assert_eq!(rig.text.effects(), 1);
    down(rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_is_held_against_its_grant_again() {
    for (cause, expected) in [("revoke", "cancelled"), ("deactivate", "cancelled"), ("nothing", "ok")] {
        let rig = Arc::new(Rig::new().await.ready().await);
        // Two captures share one place, and so do calls of one display: the second stands on a grant of its own.
        rig.text.set(Mood::Block);
        let first = begin(&rig, rig.id(), show("0"));
        rig.text.begins(1).await;
        let second = begin(&rig, rig.id(), show("1"));
        eventually("it waits", || queued(&rig, "capabilities/display.text") == 1).await;
        rig.text.set(Mood::Work);
        if cause == "nothing" {
            rig.text.go();
            assert_eq!(word(&first.await.unwrap()), "ok");
        } else {
            end_it(&rig, cause, rig.id(), "display.text").await;
            assert_eq!(word(&first.await.unwrap()), "unknown_outcome");
            rig.text.go();
        }
        assert_eq!(word(&second.await.unwrap()), expected, "{cause}");
        assert_eq!(rig.text.effects(), u32::from(expected == "ok"));
        down(rig).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_take_turns_across_capabilities() {
    let rig = Arc::new(Rig::new().await.ready().await);
    rig.camera.set(Mood::Wait);
    let call = begin(&rig, rig.id(), snapshot());
    rig.camera.begins(1).await;
    let ears = invoke("custom.test.ears", serde_json::json!({}));
    assert_eq!(error(rig.ask(ears.clone()).await), ErrorCode::Busy);
    assert_eq!(error(rig.ask(snapshot()).await), ErrorCode::Busy);
    rig.camera.go();
    assert_eq!(word(&call.await.unwrap()), "ok");
    assert_eq!(word(&rig.ask(ears).await), "ok", "at once after the answer");
    assert_eq!((rig.camera.effects(), rig.ears.effects()), (1, 1));
    down(rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sign_no_capture() {
    let rig = Rig::new().await.ready().await;
    rig.sign.breaks(true);
    let id = rig.id();
    assert_eq!(error(rig.ask_under(id, snapshot()).await), ErrorCode::HardwareUnavailable);
    assert_eq!(rig.story(id).await, ["hardware_unavailable"]);
    // It says that it is ready, and does not confirm.
    rig.sign.breaks(false);
    rig.sign.silent.store(true, std::sync::atomic::Ordering::SeqCst);
    let id = rig.id();
    assert_eq!(error(rig.ask_under(id, snapshot()).await), ErrorCode::HardwareUnavailable);
    assert_eq!(rig.story(id).await, ["started", "hardware_unavailable"]);
    assert_eq!(rig.camera.begun(), 0);
    assert_eq!(word(&rig.ask(show("x")).await), "ok", "what does not capture needs no sign");
    rig.sign.silent.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(word(&rig.ask(snapshot()).await), "ok");
    assert_eq!(rig.camera.effects(), 1);
    rig.down().await;
}

/// The limit of the work in these tests, and what may come on top: the journal and a busy machine.
const LIMIT: Duration = Duration::from_millis(300);
const ON_TOP: Duration = Duration::from_millis(1_500);

async fn short() -> Arc<Rig> {
    Arc::new(Rig::with(Setup { text_timeout: LIMIT, ..Setup::default() }).await.ready().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_time_out_is_kept_outside_the_handler_whatever_it_does() {
    for mood in [Mood::Wait, Mood::Ignore, Mood::Block] {
        let rig = short().await;
        rig.text.set(mood.clone());
        let id = rig.id();
        let begun = tokio::time::Instant::now();
        assert_eq!(word(&rig.ask_under(id, show("x")).await), "unknown_outcome", "{mood:?}");
        let took = begun.elapsed();
        assert!(took >= LIMIT && took < LIMIT + ON_TOP, "{mood:?}: {took:?}");
        assert_eq!(rig.story(id).await, ["started", "unknown_outcome"]);
        assert_eq!(word(&rig.ask_under(id, show("x")).await), "unknown_outcome", "and it never runs again");
        assert_eq!((rig.text.begun(), rig.text.effects()), (1, 0));
        down(rig).await;
    }
    let control = short().await;
    assert_eq!(word(&control.ask(show("x")).await), "ok");
    down(control).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn work_that_will_not_stop_is_abandoned_counted_and_replaced() {
    for mood in [Mood::Ignore, Mood::Block] {
        let rig = short().await;
        let path = "capabilities/display.text";
        rig.text.set(mood.clone());
        assert_eq!(word(&rig.ask(show("x")).await), "unknown_outcome");
        rig.text.set(Mood::Work);
        let before = rig.node(path).await;
        eventually("it is replaced", || rig.text.made.load(std::sync::atomic::Ordering::SeqCst) == 2).await;
        rig.becomes(path, NodeState::Running).await;
        let blocks = matches!(mood, Mood::Block);
        let node = rig.node(path).await;
        assert_eq!((before.restarts, node.restarts), (0, 1));
        assert_eq!(node.last_error.as_deref(), Some("its work would not stop"));
        // The count of what was dropped a moment ago is published with the next tick.
        eventually("a dropped future is counted no more, a blocked thread is", || {
            let tree = rig.house.tree();
            tree.borrow().root.find(path).is_some_and(|node| node.abandoned == u32::from(blocks))
        })
        .await;
        assert_eq!(word(&rig.ask(show("y")).await), "ok", "{mood:?}: the next call works");
        assert_eq!(rig.text.effects(), 1);
        rig.text.go();
        reaches(&rig.text.ended, 2, "the abandoned work ends").await;
        eventually("it is counted no more", || {
            rig.house.tree().borrow().root.find(path).is_some_and(|node| node.abandoned == 0)
        })
        .await;
        down(rig).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_panics_when_told_to_stop_has_its_handler_replaced() {
    let rig = Arc::new(Rig::new().await.ready().await);
    rig.text.set(Mood::PanicAtStop);
    let id = rig.id();
    let call = begin(&rig, id, show("x"));
    rig.text.begins(1).await;
    value(rig.ask(OwnerRequest::Cancel { target: id }).await);
    assert_eq!(word(&call.await.unwrap()), "unknown_outcome");
    eventually("it is replaced", || rig.text.made.load(std::sync::atomic::Ordering::SeqCst) == 2).await;
    rig.becomes("capabilities/display.text", NodeState::Running).await;
    rig.text.set(Mood::Work);
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    down(rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_fault_is_told_in_the_protocols_words() {
    use handlers::Fault;
    let deep = (0..16).fold(serde_json::json!({}), |inside, _| serde_json::json!({ "in": inside }));
    let rows = [
        (Mood::Fail(Fault::Unavailable("gone".to_owned())), "hardware_unavailable", "gone"),
        (Mood::Fail(Fault::Busy("other".to_owned())), "busy", "other"),
        (
            Mood::Fail(Fault::Invalid { member: "text".to_owned(), reason: "odd".to_owned() }),
            "invalid_arguments",
            "text: odd",
        ),
        (Mood::Fail(Fault::Failed("broke".to_owned())), "failed", "broke"),
        (
            Mood::Give(object(serde_json::json!({ "data": "x".repeat(2 * 1024 * 1024) }))),
            "failed",
            "the result of display.text does not fit",
        ),
        (Mood::Give(object(deep)), "failed", "the result of display.text does not fit"),
    ];
    let rig = Rig::new().await.ready().await;
    for (mood, expected, message) in rows {
        rig.text.set(mood);
        let id = rig.id();
        let first = rig.ask_under(id, show("x")).await;
        assert_eq!(word(&first), expected);
        assert_eq!(first.as_ref().unwrap().as_ref().unwrap_err().message, message);
        let effects = rig.text.effects();
        assert_eq!(rig.ask_under(id, show("x")).await, first, "and told again under the same id");
        assert_eq!(rig.text.effects(), effects);
    }
    value(rig.ask(activate(60_000)).await);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_leaves_leaves_a_whole_record() {
    let rig = Arc::new(Rig::new().await.ready().await);
    rig.text.set(Mood::Wait);
    let id = rig.id();
    let call = begin(&rig, id, show("x"));
    rig.text.begins(1).await;
    let mut events = rig.house.events();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    rig.text.go();
    let acted = async { while !matches!(events.recv().await.unwrap(), Event::Acted { .. }) {} };
    tokio::time::timeout(PATIENCE, acted).await.expect("the call ends");
    assert_eq!(rig.story(id).await, ["started", "ok"]);
    assert_eq!(word(&rig.ask_under(id, show("x")).await), "ok", "the outcome is there for whoever asks again");
    assert_eq!(rig.text.effects(), 1);
    down(rig).await;
}
