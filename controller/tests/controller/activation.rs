//! An agent never has two active devices.

use latchkey_controller::link::LinkError;
use latchkey_controller::{Failure, Notice, WhenIdle};
use serde_json::json;
use wire::answer::ErrorCode;
use wire::keys::Signer as _;

use crate::bench::bench;
use crate::fake::{Fake, Fault, locked};
use crate::life::{invocation, lease};

#[tokio::test]
async fn a_reachable_device_is_deactivated_before_another_becomes_active() {
    let (kitchen, hall) = (Fake::plain().await, Fake::plain().await);
    let bench = bench();
    let (kitchen_key, hall_key) = (bench.own(&kitchen, "kitchen").await, bench.own(&hall, "hall").await);
    bench.controller.activate(&kitchen_key, lease()).await.unwrap();
    bench.controller.activate(&hall_key, lease()).await.unwrap();
    assert_eq!((kitchen.state().active, hall.state().active), (false, true));
    assert_eq!(*locked(&bench.notices), [Notice::Deactivating { device: "kitchen".parse().unwrap() }]);
}

/// Activates the kitchen with `fault`, takes it away, and tells how long the hall has to wait.
async fn wait_of_the_hall(fault: Fault, refuse: Option<ErrorCode>) -> Option<u64> {
    let (mut kitchen, hall) = (Fake::plain().await, Fake::plain().await);
    let bench = bench();
    let (kitchen_key, hall_key) = (bench.own(&kitchen, "kitchen").await, bench.own(&hall, "hall").await);
    kitchen.state().fault = fault;
    kitchen.state().refuse = refuse;
    let activated = bench.controller.activate(&kitchen_key, lease()).await;
    assert_eq!(activated.is_ok(), fault == Fault::None && refuse.is_none());
    kitchen.stop().await;
    let waited = match bench.controller.activate(&hall_key, lease()).await {
        Ok(()) => return None,
        Err(Failure::OtherActive { other, remaining_ms, cause }) => {
            assert_eq!(other.as_str(), "kitchen");
            assert!(matches!(*cause, Failure::Link(LinkError::NothingListens(_))), "{cause}");
            remaining_ms
        }
        Err(other) => panic!("{other}"),
    };
    assert!(!hall.state().active);
    bench.clock.forward(waited - 1);
    assert!(matches!(
        bench.controller.activate(&hall_key, lease()).await,
        Err(Failure::OtherActive { remaining_ms: 1, .. })
    ));
    bench.clock.forward(1);
    bench.controller.activate(&hall_key, lease()).await.unwrap();
    assert!(hall.state().active);
    Some(waited)
}

#[tokio::test]
async fn an_unreachable_device_is_waited_for_as_long_as_it_may_be_active() {
    for (fault, refuse, expected) in [
        // lease + 5 s from the answer
        (Fault::None, None, Some(65_000)),
        // 30 s + lease + 5 s from the challenge
        (Fault::Break, None, Some(95_000)),
        (Fault::WrongKey, None, Some(95_000)),
        // The control: it said no, signed.
        (Fault::None, Some(ErrorCode::RateLimited), None),
    ] {
        assert_eq!(wait_of_the_hall(fault, refuse).await, expected, "{fault:?} {refuse:?}");
    }
}

#[tokio::test]
async fn a_capability_activates_its_device_only_if_needed_and_wanted() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    let text = || invocation(&bench, "display.text", json!({"text": "x"}));
    let activations = || fake.state().asked.iter().filter(|asked| **asked == "activate").count();

    let refused = bench.controller.invoke(&key, &text(), WhenIdle::Refuse).await.unwrap_err();
    assert!(matches!(refused, Failure::NotActive), "{refused}");
    assert!(!fake.state().asked.contains(&"invoke"));

    fake.state().granted = false;
    bench.controller.registration(&key).await.unwrap();
    let denied = bench.controller.invoke(&key, &text(), WhenIdle::Activate(lease())).await.unwrap_err();
    assert!(matches!(&denied, Failure::Refused(refusal) if refusal.error == ErrorCode::Denied), "{denied}");
    assert_eq!(activations(), 0, "no lease for something that is not granted");

    fake.state().granted = true;
    bench.controller.registration(&key).await.unwrap();
    for _ in 0..3 {
        bench.controller.invoke(&key, &text(), WhenIdle::Activate(lease())).await.unwrap();
    }
    assert_eq!(activations(), 1);

    // The lease is nearly over: a new one is taken, so that the work is not cut off.
    bench.clock.forward(57_000);
    bench.controller.invoke(&key, &text(), WhenIdle::Activate(lease())).await.unwrap();
    assert_eq!(activations(), 2);

    // The device restarted: it says so, and is activated once more.
    fake.state().active = false;
    bench.controller.invoke(&key, &text(), WhenIdle::Activate(lease())).await.unwrap();
    assert_eq!(activations(), 3);
    assert_eq!(fake.state().shown.len(), 5);
    assert_eq!(fake.key.public(), &key);
}
