//! Whose the device is: claims, transfers and releases from the request to `change.status` a day later (PROTOCOL.md section 7,
//! CASES G6, K3).

use futures_util::future::poll_immediate;
use latchkey_actors::{Command, FailCode, Reply};
use wire::{ClaimCode, ErrorCode, Id, OwnerRequest, Salt};

use crate::clients::{Told, activate, agent, error, health, public, show, value, word};
use crate::fakes::reaches;
use crate::rig::{Rig, Setup, secret};
use crate::trap::{Op, Trouble};

const MINUTE_MS: u64 = 60 * 1_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

fn transfer(byte: u8) -> OwnerRequest {
    OwnerRequest::Transfer { agent: agent(byte), key: public(byte) }
}

async fn status_of(rig: &Rig, byte: u8, target: Id) -> String {
    let value = value(rig.change_status(byte, target).await);
    value.get("state").unwrap().as_str().unwrap().to_owned()
}

/// Lets time pass until the state actor has seen it.
async fn pass(rig: &Rig, ms: u64) {
    rig.clock.pass(ms);
    // The decision of nothing makes the state actor look at the clock.
    let reply =
        rig.keeper(Command::Refuse { which: "000000000000000000000000000000000000000000000000".to_owned() }).await;
    assert!(matches!(reply, Reply::Failed { code: FailCode::NotFound, .. }), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_answers_with_the_code_that_the_keeper_sees() {
    let rig = Rig::new().await;
    let (pairing, id) = (rig.pair().await, rig.id());
    let first = value(rig.claim(1, id, &pairing).await);
    let text = |name: &str| first.get(name).unwrap().as_str().unwrap().to_owned();
    let salt: Salt = text("salt").parse().unwrap();
    let code = ClaimCode::derive(&public(0xd0), &public(1), &id, &salt).to_string();
    assert_eq!((text("state").as_str(), text("code")), ("pending", code.clone()));
    assert_eq!(first.get("expires_ms").unwrap(), 600_000);
    assert_eq!(value(rig.claim(1, id, &pairing).await), first, "the same id again gets the same answer");
    assert_eq!(error(rig.claim(1, rig.id(), &pairing).await), ErrorCode::Conflict);
    let Reply::Claims { claims } = rig.keeper(Command::Claims).await else { panic!() };
    assert_eq!((claims.len(), claims[0].code.clone(), claims[0].state.as_str()), (1, code.clone(), "pending"));
    assert_eq!(status_of(&rig, 1, id).await, "pending");
    assert_eq!(rig.approve(&code.replace(' ', "")).await.state, "approved");
    assert_eq!(status_of(&rig, 1, id).await, "approved");
    assert_eq!(word(&rig.ask(health()).await), "ok");
    let second = rig.keeper(Command::Approve { which: code }).await;
    assert!(matches!(second, Reply::Failed { code: FailCode::NotFound, .. }), "{second:?}");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_claims_wait_and_approving_one_refuses_the_others_and_closes_pairing() {
    let rig = Rig::new().await;
    let pairing = rig.pair().await;
    let ids: Vec<_> = (1..=5).map(|_| rig.id()).collect();
    for (byte, id) in (1..=4).zip(&ids) {
        value(rig.claim(byte, *id, &pairing).await);
    }
    assert_eq!(error(rig.claim(5, ids[4], &pairing).await), ErrorCode::Conflict);
    assert_eq!(error(rig.claim(5, ids[0], &pairing).await), ErrorCode::Conflict, "an id of another key makes no way");
    assert_eq!(status_of(&rig, 1, ids[0]).await, "pending");
    rig.approve(&ids[2].to_string()).await;
    let expected = ["refused", "refused", "approved", "refused"];
    for ((byte, id), state) in (1..=4).zip(&ids).zip(expected) {
        assert_eq!(status_of(&rig, byte, *id).await, state);
    }
    assert_eq!(word(&rig.claim(5, ids[4], &pairing).await), "not_allowed");
    assert_eq!(word(&rig.change_status(5, ids[0]).await), "signature", "another's change");
    let asked = rig.keeper(Command::Pair).await;
    assert!(matches!(asked, Reply::Failed { code: FailCode::Conflict, .. }), "{asked:?}");
    let whats: Vec<_> =
        rig.receipts().await.into_iter().filter(|line| line.kind == "change").filter_map(|line| line.what).collect();
    assert_eq!(whats[4..], ["claim.approved", "claim.refused", "claim.refused", "claim.refused"]);
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairing_closes_by_the_clock_by_the_keeper_and_by_a_restart() {
    for way in ["clock", "keeper", "restart", "another secret", "nothing"] {
        let rig = Rig::disk().await;
        let pairing = rig.pair().await;
        let rig = match way {
            "clock" => {
                rig.clock.pass_boot(10 * MINUTE_MS);
                rig
            }
            "keeper" => {
                assert!(matches!(rig.keeper(Command::ClosePairing).await, Reply::Done { .. }));
                rig
            }
            "restart" => rig.restart().await,
            "another secret" => {
                rig.pair().await;
                rig
            }
            _ => {
                rig.clock.pass_boot(10 * MINUTE_MS - 1);
                rig
            }
        };
        let told = rig.claim(1, rig.id(), &pairing).await;
        let expected = match way {
            "nothing" => "ok",
            "another secret" => "proof",
            _ => "signature",
        };
        assert_eq!(word(&told), expected, "{way}");
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_from_the_request_to_the_old_keys_last_question() {
    let rig = Rig::disk().await.ready().await;
    assert_eq!(error(rig.ask(transfer(1)).await), ErrorCode::Conflict, "to itself");
    let id = rig.id();
    let asked = value(rig.ask_under(id, transfer(2)).await);
    assert_eq!(value(rig.ask_under(id, transfer(2)).await), asked);
    assert_eq!(error(rig.ask(OwnerRequest::Release).await), ErrorCode::Conflict, "one at a time");
    assert_eq!(word(&rig.ask(show("x")).await), "ok", "asking changes nothing");
    let code = asked.get("code").unwrap().as_str().unwrap().to_owned();
    let decided = rig.approve(&code).await;
    assert_eq!((decided.kind.as_str(), decided.agent), ("transfer", agent(2).to_string()));
    assert_eq!(word(&rig.ask(health()).await), "signature", "the old key is none any more");
    assert_eq!(word(&rig.ask_as(&secret(2), health()).await), "ok");
    assert_eq!(error(rig.ask_as(&secret(2), show("x")).await), ErrorCode::Denied, "every grant is off");
    let status = rig.status().await;
    assert_eq!((status.ownership, status.active_until, status.grants_on.len()), (3, None, 0));
    assert_eq!(status_of(&rig, 1, id).await, "approved");
    let rig = rig.restart().await;
    pass(&rig, DAY_MS - 1).await;
    assert_eq!(status_of(&rig, 1, id).await, "approved", "also a day later");
    assert_eq!(error(rig.change_status(2, id).await), ErrorCode::InvalidArguments, "the new owner did not ask");
    pass(&rig, 1).await;
    assert_eq!(word(&rig.change_status(1, id).await), "signature", "and not longer");
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_transfer_bars_the_next_for_ten_minutes_then_twenty() {
    let rig = Rig::disk().await.ready().await;
    let ask = async |rig: &Rig| -> (Id, Told) {
        let id = rig.id();
        (id, rig.ask_under(id, transfer(2)).await)
    };
    let (first, told) = ask(&rig).await;
    value(told);
    assert_eq!(rig.refuse(&first.to_string()).await.state, "refused");
    assert_eq!(status_of(&rig, 1, first).await, "refused");
    let told = ask(&rig).await.1.unwrap().unwrap_err();
    assert_eq!((told.error, told.message.contains("10 min")), (ErrorCode::Conflict, true), "{}", told.message);
    pass(&rig, 10 * MINUTE_MS - 1).await;
    assert_eq!(error(ask(&rig).await.1), ErrorCode::Conflict);
    pass(&rig, 1).await;
    let (second, told) = ask(&rig).await;
    value(told);
    rig.refuse(&second.to_string()).await;
    // After a reboot the boot clock says nothing about the past: the pause begins anew, as long as it was.
    let rig = rig.restart_as(Setup { boot_id: "boot-2", ..Setup::default() }).await;
    pass(&rig, 20 * MINUTE_MS - 1).await;
    assert_eq!(error(ask(&rig).await.1), ErrorCode::Conflict);
    pass(&rig, 1).await;
    value(ask(&rig).await.1);
    assert_eq!(word(&rig.ask(health()).await), "ok");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_waits_for_the_keeper_and_frees_the_device() {
    let rig = Rig::new().await.ready().await;
    let id = rig.id();
    let asked = value(rig.ask_under(id, OwnerRequest::Release).await);
    assert_eq!(asked, crate::clients::object(serde_json::json!({ "state": "pending", "expires_ms": 600_000 })));
    assert_eq!(rig.approve("release").await.state, "approved");
    assert_eq!(status_of(&rig, 1, id).await, "approved");
    assert_eq!(word(&rig.ask(health()).await), "signature");
    assert!(rig.status().await.owner.is_none());
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_the_keeper_frees_a_device_whose_owner_is_lost() {
    let rig = Rig::disk().await.ready().await;
    let before = rig.receipts().await.len();
    let asked = rig.keeper(Command::Release).await;
    assert_eq!(asked, Reply::Released { was: Some(agent(1).to_string()) });
    assert_eq!(rig.keeper(Command::Release).await, Reply::Released { was: None });
    let rig = rig.restart().await;
    let status = rig.status().await;
    assert!(status.owner.is_none() && status.grants_on.is_empty() && status.active_until.is_none());
    assert_eq!(word(&rig.ask(health()).await), "signature", "the old key is useless");
    assert!(rig.receipts().await.len() > before, "receipts are kept");
    rig.own(2).await;
    assert_eq!(word(&rig.ask_as(&secret(2), health()).await), "ok", "pairing is possible again");
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waits_survives_a_restart_and_expires_by_the_boot_clock() {
    for (setup, wait_ms, expected) in [
        (Setup::default(), 10 * MINUTE_MS - 1, "pending"),
        (Setup::default(), 10 * MINUTE_MS, "expired"),
        (Setup { boot_id: "boot-2", ..Setup::default() }, 0, "expired"),
    ] {
        let rig = Rig::disk().await;
        let (pairing, id) = (rig.pair().await, rig.id());
        value(rig.claim(1, id, &pairing).await);
        let rig = rig.restart_as(setup).await;
        rig.clock.set_wall(0);
        rig.clock.pass_boot(wait_ms);
        let reply = rig.keeper(Command::Approve { which: id.to_string() }).await;
        match expected {
            "pending" => assert!(matches!(reply, Reply::Decided { .. }), "{reply:?}"),
            _ => assert!(matches!(reply, Reply::Failed { code: FailCode::NotFound, .. }), "{reply:?}"),
        }
        let after = if expected == "pending" { "approved" } else { "expired" };
        assert_eq!(status_of(&rig, 1, id).await, after);
        let whats: Vec<_> = rig.receipts().await.into_iter().filter_map(|line| line.what).collect();
        assert_eq!(whats.iter().filter(|what| **what == format!("claim.{after}")).count(), 1, "{whats:?}");
        rig.down().await;
    }
}

/// The state actor is held up by the disk while three things wait for it: the approval of a transfer, and requests of the owner
/// who is about to be none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_former_owner_asked_just_before_is_not_asked_of_the_new_one() {
    let requests = [OwnerRequest::Release, transfer(3), activate(60_000), OwnerRequest::Deactivate];
    for request in requests {
        let rig = Rig::disk().await.ready().await;
        let id = rig.id();
        value(rig.ask_under(id, transfer(2)).await);
        rig.plan.set_times(Op::Commit, Trouble::Block, 1);
        let mut held = Box::pin(rig.keeper(Command::Revoke { name: "camera".to_owned() }));
        assert!(poll_immediate(held.as_mut()).await.is_none());
        reaches(&rig.plan.befell, 1, "the disk holds the state actor up").await;
        let mut approval = Box::pin(rig.keeper(Command::Approve { which: id.to_string() }));
        assert!(poll_immediate(approval.as_mut()).await.is_none());
        let mut late = Box::pin(rig.ask(request.clone()));
        assert!(poll_immediate(late.as_mut()).await.is_none(), "admitted, and waiting");
        rig.plan.clear();
        assert!(matches!(held.await, Reply::Granted { changed: true, .. }));
        assert!(matches!(approval.await, Reply::Decided { .. }));
        assert_eq!(word(&late.await), "not_allowed");
        let status = rig.status().await;
        assert_eq!((status.owner.unwrap().key, status.waiting, status.active_until), (public(2).to_string(), 0, None));
        assert_eq!(word(&rig.ask_as(&secret(2), request).await), "ok", "the new owner may ask the same");
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_device_changes_hands_it_obeys_nobody() {
    let rig = Rig::disk().await.ready().await;
    let before = rig.status().await.journal.last;
    rig.plan.set_times(Op::Commit, Trouble::Block, 1);
    let mut release = Box::pin(rig.keeper(Command::Release));
    assert!(poll_immediate(release.as_mut()).await.is_none());
    reaches(&rig.plan.befell, 1, "the change is being written").await;
    for request in [health(), show("x"), activate(60_000), OwnerRequest::Registration] {
        let told = tokio::time::timeout(crate::fakes::PATIENCE, rig.ask(request)).await.expect("at once");
        assert_eq!(word(&told), "signature");
    }
    rig.plan.clear();
    assert!(matches!(release.await, Reply::Released { was: Some(_) }));
    assert_eq!(rig.status().await.journal.last, before + 1, "and leaves no record of it");
    rig.down().await;
}
