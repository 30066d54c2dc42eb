//! The whole life of a device, as the library sees it.

use latchkey_controller::inventory::{ChangeState, Standing};
use latchkey_controller::link::LinkError;
use latchkey_controller::{Failure, Invocation, Notice, Store as _, WhenIdle, values};
use serde_json::json;
use wire::answer::ErrorCode;
use wire::json::Object;
use wire::keys::Signer as _;
use wire::request::Lease;

use crate::bench::{Bench, bench};
use crate::fake::{Fake, Fault, JPEG, locked, new_key, object};

pub(crate) fn lease() -> Lease {
    Lease::from_ms(60_000).unwrap()
}

pub(crate) fn invocation(bench: &Bench, capability: &str, arguments: serde_json::Value) -> Invocation {
    Invocation {
        capability: capability.parse().unwrap(),
        arguments: object(arguments),
        id: bench.controller.draw_id().unwrap(),
    }
}

#[tokio::test]
async fn a_device_is_claimed_used_transferred_and_forgotten() {
    let fake = Fake::plain().await;
    let bench = bench();
    let controller = &bench.controller;

    let pending = controller.claim(&fake.link(), None, |_| false).await.unwrap();
    assert_eq!(bench.status(&pending.key).await.unwrap(), ChangeState::Pending);
    fake.keeper_says(ChangeState::Approved);
    assert_eq!(bench.status(&pending.key).await.unwrap(), ChangeState::Approved);
    let key = pending.key;
    let device = controller.find("kitchen").unwrap();
    assert_eq!((device.standing, device.change), (Standing::Owned, None), "it took the device's own name");

    let text = invocation(&bench, "display.text", json!({"text": "dinner"}));
    assert_eq!(controller.invoke(&key, &text, WhenIdle::Activate(lease())).await.unwrap(), Object::new());
    assert_eq!(fake.state().shown, ["dinner"]);
    let activating = Notice::Activating { device: device.name.clone(), lease: lease() };
    assert_eq!(*locked(&bench.notices), [activating]);

    let snapshot = invocation(&bench, "camera.snapshot", json!({}));
    let value = controller.invoke(&key, &snapshot, WhenIdle::Refuse).await.unwrap();
    assert_eq!(values::check(&snapshot.capability, &value).unwrap().unwrap().bytes, JPEG);

    let health = invocation(&bench, "device.health", json!({}));
    assert!(controller.invoke(&key, &health, WhenIdle::Refuse).await.unwrap().get("version").is_some());
    assert!(!controller.cancel(&key, snapshot.id).await.unwrap());
    assert!(matches!(controller.forget(&key), Err(Failure::StillActive { .. })));
    controller.deactivate(&key).await.unwrap();
    assert!(!fake.state().active);

    let heir = new_key();
    let transfer = controller.transfer(&key, &"heir@home.example.org".parse().unwrap(), heir.public()).await.unwrap();
    assert!(transfer.code.is_some());
    fake.keeper_says(ChangeState::Refused);
    assert_eq!(bench.status(&key).await.unwrap(), ChangeState::Refused);
    assert_eq!(controller.device(&key).unwrap().standing, Standing::Owned);

    controller.release(&key).await.unwrap();
    fake.keeper_says(ChangeState::Approved);
    assert_eq!(bench.status(&key).await.unwrap(), ChangeState::Approved, "a former owner may still ask");
    assert_eq!(controller.device(&key).unwrap().standing, Standing::Gone);
    controller.forget(&key).unwrap();
    assert_eq!(bench.store.load().unwrap().devices, []);
}

#[tokio::test]
async fn one_connection_carries_many_requests_and_a_closed_one_is_replaced() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    let before = fake.state().connections;
    for _ in 0..5 {
        bench.controller.registration(&key).await.unwrap();
    }
    assert_eq!((before, fake.state().connections), (1, 1));
    fake.state().fault = Fault::CloseAfter;
    for _ in 0..5 {
        bench.controller.registration(&key).await.unwrap();
    }
    assert!(fake.state().connections > 1);
}

#[tokio::test]
async fn a_claim_that_is_refused_leaves_no_trace_and_says_why() {
    for (fault, refuse, named) in [
        (Fault::Forbidden, None, "forbidden"),
        (Fault::None, Some(ErrorCode::Conflict), "conflict"),
        (Fault::WrongCode, None, "code"),
    ] {
        let fake = Fake::plain().await;
        let bench = bench();
        fake.state().fault = fault;
        fake.state().refuse = refuse;
        let failure = bench.controller.claim(&fake.link(), None, |_| false).await.unwrap_err();
        let found = match &failure {
            Failure::Link(LinkError::Forbidden) => "forbidden",
            Failure::Refused(refusal) => refusal.error.as_str(),
            Failure::Answer(latchkey_controller::failure::AnswerError::Code) => "code",
            other => panic!("{other}"),
        };
        assert_eq!(found, named);
        assert_eq!(bench.store.load().unwrap().devices, []);
        // The control: the same device without the flaw.
        fake.state().fault = Fault::None;
        fake.state().refuse = None;
        bench.controller.claim(&fake.link(), None, |_| false).await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_can_be_asked_about() {
    let fake = Fake::plain().await;
    let bench = bench();
    fake.state().fault = Fault::Break;
    let failure = bench.controller.claim(&fake.link(), None, |_| false).await.unwrap_err();
    assert!(matches!(failure, Failure::OutcomeUnknown { .. }), "{failure}");
    fake.state().fault = Fault::None;
    fake.keeper_says(ChangeState::Approved);
    let key = fake.key.public();
    assert_eq!(bench.status(key).await.unwrap(), ChangeState::Approved);
    assert_eq!(bench.controller.device(key).unwrap().name.as_str(), "kitchen");
}

#[tokio::test]
async fn a_change_that_the_device_has_forgotten_is_settled_by_what_it_says_of_its_owner() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.controller.claim(&fake.link(), None, |_| false).await.unwrap().key;
    fake.keeper_says(ChangeState::Approved);
    // A day later the device does not know any more how it came to its owner.
    fake.state().changes.clear();
    assert_eq!(bench.status(&key).await.unwrap(), ChangeState::Approved);
    let device = bench.controller.find("kitchen").unwrap();
    assert_eq!((device.standing, device.change), (Standing::Owned, None));

    bench.controller.release(&key).await.unwrap();
    fake.state().changes.clear();
    let early = bench.status(&key).await.unwrap_err();
    assert!(matches!(early, Failure::Refused(_)), "it may still be on its way: {early:?}");
    bench.clock.forward(600_001);
    assert_eq!(bench.status(&key).await.unwrap(), ChangeState::Expired);
    assert_eq!(bench.controller.device(&key).unwrap().standing, Standing::Owned);
}

#[tokio::test]
async fn a_device_that_changed_hands_keeps_no_other_from_becoming_active() {
    let (one, two) = (Fake::plain().await, Fake::plain().await);
    let bench = bench();
    let (kitchen, pantry) = (bench.own(&one, "kitchen").await, bench.own(&two, "pantry").await);
    bench.controller.activate(&kitchen, lease()).await.unwrap();
    bench.controller.release(&kitchen).await.unwrap();
    one.keeper_says(ChangeState::Refused);
    bench.status(&kitchen).await.unwrap();
    assert!(bench.controller.device(&kitchen).unwrap().hold.is_some(), "control: refused, so it is still active");
    bench.controller.release(&kitchen).await.unwrap();
    one.keeper_says(ChangeState::Approved);
    assert_eq!(bench.status(&kitchen).await.unwrap(), ChangeState::Approved);
    bench.controller.activate(&pantry, lease()).await.unwrap();
}

#[tokio::test]
async fn a_refused_release_leaves_standing_what_another_task_activated_meanwhile() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    fake.state().refuse = Some(ErrorCode::Conflict);
    fake.state().refuse_only = Some("release");
    fake.state().late = Some("release");
    let (activate, release) = (bench.controller.activate(&key, lease()), bench.controller.release(&key));
    let (activated, released) = tokio::join!(biased; activate, release);
    activated.unwrap();
    assert!(matches!(released, Err(Failure::Refused(_))), "{released:?}");
    let device = bench.controller.device(&key).unwrap();
    assert_eq!((device.hold.is_some(), device.change), (true, None), "it is active, and nothing waits");
}

#[tokio::test]
async fn a_second_device_of_the_same_name_gets_a_suffix() {
    let (one, two) = (Fake::plain().await, Fake::plain().await);
    let bench = bench();
    bench.own(&one, "kitchen").await;
    let key = bench.own(&two, "kitchen").await;
    assert_eq!(bench.controller.device(&key).unwrap().name.as_str(), "kitchen-2");
}

#[tokio::test]
async fn what_is_not_declared_is_not_sent() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    bench.controller.activate(&key, lease()).await.unwrap();
    bench.controller.registration(&key).await.unwrap();
    let posts = fake.state().posts;
    for (capability, arguments, named) in [
        ("custom.acme.lamp", json!({}), "undeclared"),
        ("camera.snapshot", json!({"facing": "front"}), "facing"),
        ("display.text", json!({}), "text"),
        ("display.text", json!({"text": 17}), "text"),
        ("display.text", json!({"text": "x".repeat(4097)}), "text"),
    ] {
        let asked = invocation(&bench, capability, arguments);
        let failure = bench.controller.invoke(&key, &asked, WhenIdle::Refuse).await.unwrap_err();
        let found = match failure {
            Failure::Undeclared { .. } => "undeclared".to_owned(),
            Failure::Arguments(error) => error.member,
            other => panic!("{other}"),
        };
        assert_eq!(found, named);
        assert_eq!(fake.state().posts, posts);
    }
    let control = invocation(&bench, "display.text", json!({"text": "x".repeat(4096)}));
    bench.controller.invoke(&key, &control, WhenIdle::Refuse).await.unwrap();
    assert_eq!(fake.state().posts, posts + 1);
}

#[tokio::test]
async fn a_server_runs_the_calls_of_its_agents_as_tasks() {
    let fake = Fake::plain().await;
    let bench = std::sync::Arc::new(bench());
    let key = bench.own(&fake, "kitchen").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (bench, key) = (std::sync::Arc::clone(&bench), key.clone());
        tasks.spawn(async move {
            let text = invocation(&bench, "display.text", json!({ "text": number.to_string() }));
            bench.controller.invoke(&key, &text, WhenIdle::Activate(lease())).await
        });
    }
    for done in tasks.join_all().await {
        done.unwrap();
    }
    assert_eq!(fake.state().shown.len(), 8);
}
