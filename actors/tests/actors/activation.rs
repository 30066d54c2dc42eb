//! Activation: a delayed `activate` cannot revive it, and it ends by time, by either side, and by a restart (PROTOCOL.md section 8).

use latchkey_actors::{Command, Event};
use wire::{ErrorCode, Head, OwnerRequest, Registration};

use crate::clients::{Told, activate, error, health, owner, show, snapshot, value, word};
use crate::rig::Rig;

async fn active_until(rig: &Rig) -> Option<u64> {
    rig.status().await.active_until
}

/// An `activate` signed now, to be sent later.
fn signed(rig: &Rig) -> (Head, Vec<u8>) {
    let head = rig.head();
    let bytes = wire::envelope::seal(&owner(), &activate(60_000).to_body(&head)).into_bytes();
    (head, bytes)
}

async fn sent(rig: &Rig, (head, bytes): (Head, Vec<u8>)) -> Told {
    rig.post(&owner(), &head, bytes).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activate_that_was_delayed_past_a_deactivate_cannot_revive() {
    for by_keeper in [false, true] {
        let rig = Rig::new().await.ready().await;
        let (delayed, harmless) = (signed(&rig), rig.head());
        if by_keeper {
            rig.keeper(Command::Deactivate).await;
        } else {
            value(rig.ask(OwnerRequest::Deactivate).await);
        }
        assert_eq!(active_until(&rig).await, None);
        assert_eq!(word(&sent(&rig, delayed).await), "superseded");
        assert_eq!(active_until(&rig).await, None);
        assert_eq!(error(rig.ask(show("x")).await), ErrorCode::NotActive);
        // The same age, another request: only activation is barred.
        assert_eq!(word(&rig.send(&owner(), &harmless, &health().to_body(&harmless)).await), "ok");
        let control = signed(&rig);
        assert_eq!(word(&sent(&rig, control).await), "ok");
        assert_eq!(word(&rig.ask(show("x")).await), "ok");
        assert_eq!(rig.text.effects(), 1);
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_signed_before_an_ownership_is_heard_in_it() {
    let rig = Rig::new().await.ready().await;
    let (delayed, head) = (signed(&rig), rig.head());
    rig.keeper(Command::Release).await;
    rig.own(1).await;
    assert_eq!(word(&sent(&rig, delayed).await), "challenge_expired");
    assert_eq!(word(&rig.send(&owner(), &head, &health().to_body(&head)).await), "challenge_expired");
    assert_eq!(active_until(&rig).await, None);
    let control = signed(&rig);
    assert_eq!(word(&sent(&rig, control).await), "ok");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_on_the_boot_clock_and_a_later_one_replaces_its_end() {
    let rig = Rig::new().await.ready().await;
    let lease = async |ms: u64| value(rig.ask(activate(ms)).await).get("lease_ms").unwrap().as_u64().unwrap();
    assert_eq!(lease(60_000).await, 60_000);
    rig.clock.pass_boot(59_999);
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    rig.clock.pass_boot(1);
    assert_eq!(word(&rig.ask(show("x")).await), "not_active");
    assert_eq!(lease(300_000).await, 300_000);
    assert_eq!(lease(5_000).await, 5_000, "also by an earlier end");
    rig.clock.set_wall(0);
    rig.clock.pass_boot(4_999);
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    rig.clock.pass_boot(1);
    assert_eq!(word(&rig.ask(show("x")).await), "not_active");
    assert_eq!(rig.text.effects(), 2);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activation_does_not_outlive_a_restart_or_a_night() {
    let rig = Rig::disk().await.ready().await;
    let rig = rig.restart().await;
    assert_eq!(word(&rig.ask(show("x")).await), "not_active");
    value(rig.ask(activate(300_000)).await);
    assert_eq!(word(&rig.ask(show("x")).await), "ok", "the grant does");
    let mut events = rig.house.events();
    rig.clock.pass_boot(9 * 60 * 60 * 1_000);
    assert_eq!(word(&rig.ask(snapshot()).await), "not_active", "C5");
    let ended = async { while !matches!(events.recv().await.unwrap(), Event::Deactivated) {} };
    tokio::time::timeout(crate::fakes::PATIENCE, ended).await.expect("terminals are told");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registration_says_how_things_stand_in_a_form_that_controllers_read() {
    let rig = Rig::new().await;
    rig.own(1).await;
    let read = async || Registration::parse(value(rig.ask(OwnerRequest::Registration).await)).unwrap();
    let first = read().await;
    assert_eq!((first.device, first.name.as_str(), first.simulated), (crate::clients::public(0xd0), "kitchen", true));
    assert_eq!(first.owner.unwrap().key, crate::clients::public(1));
    assert_eq!((first.active, first.active_until, first.capabilities.len()), (false, None, 6));
    assert!(first.capabilities.iter().all(|one| one.grant_on == one.declaration.grant.is_none()));
    rig.grant("camera").await;
    value(rig.ask(activate(60_000)).await);
    let second = read().await;
    let on = |name: &str| second.capability(&name.parse().unwrap()).unwrap().grant_on;
    assert!(on("camera.snapshot") && !on("display.text"));
    assert_eq!((second.active, second.active_until), (true, Some(crate::fakes::WALL_MS + 60_000)));
    let camera = second.capability(&"camera.snapshot".parse().unwrap()).unwrap();
    assert_eq!(camera.declaration, rig.camera.declaration);
    assert_eq!(camera.state, wire::CapabilityState::Ready);
    rig.clock.pass(60_000);
    let third = read().await;
    assert_eq!((third.active, third.active_until), (false, None));
    rig.down().await;
}
