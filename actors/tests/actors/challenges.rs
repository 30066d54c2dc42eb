//! A challenge serves one accepted request, on its link, in its life and in this start (CASES C1, C3, C4, C5, C6), and an id has
//! one effect.

use latchkey_actors::Link;
use tokio::task::JoinSet;
use wire::{ErrorCode, Head, Id, Refused, Signer};

use crate::clients::{Told, health, invoke, owner, show, snapshot, value, word};
use crate::fakes::{Mood, WALL_MS};
use crate::rig::{Rig, Setup, device, secret};

/// Many requests at once, each with its head; the words of their answers, sorted and counted.
async fn at_once(rig: Rig, requests: Vec<(Head, Vec<u8>)>) -> (Rig, Vec<(&'static str, usize)>) {
    let rig = std::sync::Arc::new(rig);
    let mut all = JoinSet::new();
    for (head, bytes) in requests {
        let rig = std::sync::Arc::clone(&rig);
        all.spawn(async move { word(&rig.post(&owner(), &head, bytes).await) });
    }
    let mut words = all.join_all().await;
    words.sort_unstable();
    let counted = words.chunk_by(PartialEq::eq).map(|same| (same[0], same.len())).collect();
    (std::sync::Arc::into_inner(rig).unwrap(), counted)
}

fn sealed(body: &[u8]) -> Vec<u8> {
    wire::envelope::seal(&owner(), body).into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_two_hundred_copies_of_one_signed_request_have_one_effect() {
    for request in [show("once"), snapshot()] {
        let rig = Rig::new().await.ready().await;
        let head = rig.head();
        let one = sealed(&request.to_body(&head));
        let (rig, words) = at_once(rig, vec![(head, one); 200]).await;
        assert_eq!(words, [("challenge_spent", 199), ("ok", 1)]);
        assert_eq!(rig.text.effects() + rig.camera.effects(), 1);
        assert_eq!(rig.text.begun() + rig.camera.begun(), 1);
        let head = rig.head();
        assert_eq!(word(&rig.send(&owner(), &head, &show("again").to_body(&head)).await), "ok", "a fresh one is heard");
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_two_hundred_fresh_requests_with_one_id_have_one_effect() {
    for slow in [false, true] {
        let rig = Rig::disk().await.ready().await;
        if slow {
            rig.text.set(Mood::Wait);
        }
        let id = rig.id();
        let requests = (0..200).map(|_| {
            let head = rig.head_of(id);
            let one = sealed(&show("once").to_body(&head));
            (head, one)
        });
        let requests: Vec<_> = requests.collect();
        let fakes = std::sync::Arc::clone(&rig.fakes);
        let released = tokio::spawn(async move {
            if slow {
                fakes.text.begins(1).await;
                fakes.text.go();
            }
        });
        let (rig, words) = at_once(rig, requests).await;
        released.await.unwrap();
        let total: usize = words.iter().map(|(_, count)| count).sum();
        assert!(words.iter().all(|(word, _)| ["ok", "in_progress"].contains(word)), "{words:?}");
        assert_eq!(total, 200);
        assert_eq!((rig.text.effects(), rig.text.begun()), (1, 1), "{words:?}");
        rig.text.set(Mood::Work);
        let control = rig.id();
        assert_eq!(word(&rig.ask_under(control, show("once")).await), "ok");
        assert_eq!(rig.text.effects(), 2, "another id has another effect");
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_id_gets_the_stored_outcome_and_other_content_is_refused() {
    let rig = Rig::new().await.ready().await;
    let id = rig.id();
    let first = value(rig.ask_under(id, show("a")).await);
    assert_eq!(value(rig.ask_under(id, show("a")).await), first);
    let rows = [
        (show("b"), "id_reused"),
        (invoke("custom.test.lamp", serde_json::json!({ "text": "a" })), "id_reused"),
        (show("a"), "ok"),
    ];
    for (request, expected) in rows {
        assert_eq!(word(&rig.ask_under(id, request).await), expected);
    }
    assert_eq!((rig.text.effects(), rig.lamp.effects()), (1, 0));
    // Effect read: it runs anew, whatever the id.
    assert_eq!(word(&rig.ask_under(id, snapshot()).await), "ok");
    assert_eq!(word(&rig.ask_under(id, snapshot()).await), "ok");
    assert_eq!(rig.camera.effects(), 2);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_does_not_use_up_an_id() {
    let rig = Rig::new().await.ready().await;
    let id = rig.id();
    rig.revoke("display.text").await;
    assert_eq!(word(&rig.ask_under(id, show("a")).await), "denied");
    rig.grant("display.text").await;
    assert_eq!(word(&rig.ask_under(id, show("a")).await), "ok");
    // Also when the call had begun on record: it waited in the queue when the grant went.
    let (running, waiting) = (rig.id(), rig.id());
    rig.text.set(Mood::Wait);
    let rig = std::sync::Arc::new(rig);
    let ask = |id: Id| {
        let rig = std::sync::Arc::clone(&rig);
        tokio::spawn(async move { word(&rig.ask_under(id, show("b")).await) })
    };
    let first = ask(running);
    rig.text.begins(2).await;
    let second = ask(waiting);
    crate::fakes::eventually("the second waits", || {
        rig.house.tree().borrow().root.find("capabilities/display.text").unwrap().queued == 1
    })
    .await;
    rig.revoke("display.text").await;
    assert_eq!((first.await.unwrap(), second.await.unwrap()), ("unknown_outcome", "cancelled"));
    rig.grant("display.text").await;
    rig.text.set(Mood::Work);
    assert_eq!(word(&rig.ask_under(running, show("b")).await), "unknown_outcome");
    assert_eq!(rig.text.effects(), 1);
    assert_eq!(word(&rig.ask_under(waiting, show("b")).await), "ok", "what never began may be asked again");
    assert_eq!(rig.text.effects(), 2);
    std::sync::Arc::into_inner(rig).unwrap().down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_strangers_cannot_spoil_the_owners_challenge() {
    let rig = Rig::new().await.ready().await;
    let head = rig.head();
    for _ in 0..10_000 {
        let _ = rig.house.challenge(Link::Direct);
    }
    let body = health().to_body(&head);
    for byte in [2, 9] {
        assert_eq!(word(&rig.send(&secret(byte), &head, &body).await), "signature");
    }
    let mut cut = sealed(&body);
    cut.truncate(cut.len() - 1);
    assert_eq!(word(&rig.post(&owner(), &head, cut).await), "envelope");
    let other = Head { to: secret(9).public().clone(), ..head.clone() };
    assert_eq!(word(&rig.send(&owner(), &other, &health().to_body(&other)).await), "wrong_to");
    assert_eq!(word(&rig.send(&owner(), &head, &body).await), "ok");
    assert_eq!(rig.health.begun(), 1);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_claims_neither_spoil_a_challenge_nor_get_in_uninvited() {
    let rig = Rig::new().await;
    let secret_of_nobody = wire::PairingSecret::from_bytes([3; 16]);
    let id = rig.id();
    assert_eq!(word(&rig.claim(1, id, &secret_of_nobody).await), "signature", "pairing is not open");
    let pairing = rig.pair().await;
    let head = rig.head_of(id);
    let claim =
        |proof| wire::ClaimantRequest::Claim { agent: crate::clients::agent(1), key: crate::clients::public(1), proof };
    let (wrong, right) =
        (secret_of_nobody.proof(&crate::clients::public(1), &id), pairing.proof(&crate::clients::public(1), &id));
    let of_other_id = pairing.proof(&crate::clients::public(1), &rig.id());
    let of_other_key = pairing.proof(&crate::clients::public(2), &id);
    for proof in [wrong, of_other_id, of_other_key] {
        assert_eq!(word(&rig.send(&owner(), &head, &claim(proof).to_body(&head)).await), "proof");
    }
    assert_eq!(word(&rig.send(&owner(), &head, &claim(right).to_body(&head)).await), "ok", "the same challenge");
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_challenge_serves_on_its_own_link_only() {
    let rig = Rig::new().await.ready().await;
    let rows = [(Link::Hub, "challenge"), (Link::Reverse(1), "challenge"), (Link::Direct, "ok")];
    for (link, expected) in rows {
        let head = Head { challenge: rig.house.challenge(link), ..rig.head() };
        assert_eq!(word(&rig.send(&owner(), &head, &health().to_body(&head)).await), expected, "{link:?}");
    }
    rig.down().await;
}

/// Asks with a challenge that was issued before `meanwhile`.
async fn after(rig: &Rig, meanwhile: impl FnOnce(&Rig)) -> Told {
    let head = rig.head();
    meanwhile(rig);
    rig.send(&owner(), &head, &health().to_body(&head)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_c5_only_the_boot_clock_ages_a_challenge() {
    let rig = Rig::new().await.ready().await;
    const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
    for wall in [WALL_MS + 40 * YEAR_MS, WALL_MS - 10 * YEAR_MS, 0, WALL_MS] {
        assert_eq!(word(&after(&rig, |rig| rig.clock.set_wall(wall)).await), "ok");
        assert_eq!(word(&after(&rig, |rig| rig.clock.pass_boot(30_000)).await), "ok", "it lives 30 s");
        assert_eq!(word(&after(&rig, |rig| rig.clock.pass_boot(30_001)).await), "challenge_expired", "and not longer");
    }
    let slept = after(&rig, |rig| rig.clock.pass_boot(8 * 60 * 60 * 1_000)).await;
    assert_eq!(slept.unwrap_err(), Refused::Expired, "C5: eight hours of sleep count");
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_clock_set_forty_years_ahead_empties_no_journal_and_repeats_no_call() {
    let rig = Rig::disk().await.ready().await;
    let id = rig.id();
    value(rig.ask_under(id, show("once")).await);
    let before = rig.receipts().await.len();
    rig.clock.set_wall(WALL_MS + 40 * 365 * 24 * 60 * 60 * 1_000);
    // Pruning looks at its first tick, and so right after each start.
    let rig = rig.restart().await;
    crate::fakes::reaches(&rig.plan.looked, 1, "old records are looked for").await;
    let now = rig.receipts().await;
    assert!(now.len() >= before && now[0].sequence == 1);
    value(rig.ask_under(id, show("once")).await);
    assert_eq!(rig.text.effects(), 1);
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_after_a_restart_no_old_challenge_serves_and_an_id_is_still_known() {
    let rig = Rig::disk().await.ready().await;
    let (id, head) = (rig.id(), rig.head());
    let replay = sealed(&show("once").to_body(&Head { id, ..head.clone() }));
    let head = Head { id, ..head };
    assert_eq!(word(&rig.post(&owner(), &head, replay.clone()).await), "ok");
    let unused = rig.head();
    let rig = rig.restart().await;
    assert_eq!(word(&rig.post(&owner(), &head, replay).await), "challenge", "the recorded request");
    assert_eq!(
        word(&rig.send(&owner(), &unused, &health().to_body(&unused)).await),
        "challenge",
        "and an unused challenge"
    );
    assert_eq!(word(&rig.ask(health()).await), "ok", "a fresh one");
    assert_eq!(word(&rig.ask_under(id, show("once")).await), "ok", "the stored outcome, without activation");
    assert_eq!(word(&rig.ask_under(id, show("other")).await), "id_reused");
    assert_eq!(rig.text.effects(), 1);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_a_former_ownership_are_forgotten() {
    let rig = Rig::disk().await.ready().await;
    let id = rig.id();
    value(rig.ask_under(id, show("once")).await);
    assert!(matches!(
        rig.keeper(latchkey_actors::Command::Release).await,
        latchkey_actors::Reply::Released { was: Some(_) }
    ));
    let database = rusqlite::Connection::open(rig.folder.as_ref().unwrap().join("state.db")).unwrap();
    let kept: i64 = database.query_row("SELECT count(*) FROM outcomes", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 0, "and the values of its calls are gone");
    let rig = rig.ready().await;
    assert_eq!(word(&rig.ask_under(id, show("other")).await), "ok", "it belongs to nobody now");
    assert_eq!(rig.text.effects(), 2);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_are_told_when_to_come_back() {
    let limits = latchkey_actors::Limits { rate_per_second: 2, rate_burst: 3 };
    let rig = Rig::with(Setup { limits, ..Setup::default() }).await;
    rig.own(1).await;
    for _ in 0..3 {
        assert_eq!(word(&rig.ask(health()).await), "ok");
    }
    let told = rig.ask(health()).await.unwrap().unwrap_err();
    assert_eq!(told.error, ErrorCode::RateLimited);
    assert!(told.message.contains("500 ms"), "{}", told.message);
    assert_eq!(rig.health.begun(), 3);
    rig.clock.pass(499);
    assert_eq!(word(&rig.ask(health()).await), "rate_limited");
    rig.clock.pass(1);
    assert_eq!(word(&rig.ask(health()).await), "ok");
    assert_eq!(word(&rig.ask(wire::OwnerRequest::Registration).await), "ok", "only invocations are counted");
    assert_eq!(device().public(), &crate::clients::public(0xd0));
    rig.down().await;
}
