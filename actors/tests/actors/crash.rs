//! A power cut between any two operations of the store (CASES P2, G7): what the next start finds is the old state or the new one,
//! and the records tell the truth about what the handlers did.
//!
//! The state folder is copied before each operation of one run; each copy is then a device after its power cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use latchkey_actors::Command;

use crate::clients::{activate, health, owner, show, snapshot, value, word};
use crate::fakes::Fake;
use crate::rig::{Rig, secret};
use crate::trap::Op;

/// What a run was like, cut off before each operation.
struct Cuts {
    /// The folder, the operation, and how often the handler had had its effect.
    cuts: Vec<(std::path::PathBuf, Op, u32)>,
    _kept: tempfile::TempDir,
}

async fn cut(rig: Rig, fake: Option<Arc<Fake>>, act: impl AsyncFnOnce(&Rig)) -> Cuts {
    let kept = tempfile::TempDir::new().unwrap();
    let folder = rig.folder.clone().unwrap();
    rig.plan.copy(&folder, kept.path(), move || fake.as_ref().map_or(0, |fake| fake.effects()));
    act(&rig).await;
    let cuts = rig.plan.copies();
    rig.down().await;
    assert!(cuts.len() >= 4, "{} operations", cuts.len());
    Cuts { cuts, _kept: kept }
}

fn has(story: &[String], word: &str) -> bool {
    story.iter().any(|outcome| outcome == word)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_change_cut_off_anywhere_is_told_as_it_was_and_never_done_twice() {
    let rig = Rig::disk().await.ready().await;
    let (id, fake) = (rig.id(), Arc::clone(&rig.text));
    let cuts = cut(rig, Some(fake), async |rig| {
        value(rig.ask_under(id, show("x")).await);
        // One operation more, so that the end is among the copies.
        rig.receipts().await;
    })
    .await;
    let (mut seen, mut undone) = (Vec::new(), 0);
    for (folder, op, before) in &cuts.cuts {
        let rig = Rig::at(folder).await;
        assert!(rig.notices.is_empty(), "{op:?}: {:?}", rig.notices);
        let story = rig.story(id).await;
        assert!(*before == 0 || has(&story, "started"), "{op:?}: it was done and nothing says that it began");
        assert!(!has(&story, "ok") || *before == 1, "{op:?}: it says ok and was not done");
        assert!(!has(&story, "started") || has(&story, "ok") || has(&story, "unknown_outcome"), "{op:?}: {story:?}");
        value(rig.ask(activate(60_000)).await);
        let again = word(&rig.ask_under(id, show("x")).await);
        let expected = if has(&story, "ok") || story.is_empty() { "ok" } else { "unknown_outcome" };
        assert_eq!(again, expected, "{op:?}: {story:?}");
        assert_eq!(rig.text.effects(), u32::from(story.is_empty()), "{op:?}: {story:?}");
        undone += rig.text.effects();
        rig.verifies().await;
        rig.down().await;
        seen.push(again);
    }
    assert!(undone > 0 && seen.contains(&"unknown_outcome") && seen.last() == Some(&"ok"), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_capture_cut_off_anywhere_began_on_record_before_the_sign_went_on() {
    let rig = Rig::disk().await.ready().await;
    let (id, fake) = (rig.id(), Arc::clone(&rig.camera));
    let cuts = cut(rig, Some(fake), async |rig| {
        value(rig.ask_under(id, snapshot()).await);
        rig.clock.pass(3_001);
        crate::fakes::eventually("the sign goes off", || !rig.sign.lit.load(Ordering::SeqCst)).await;
        while !rig.receipts().await.iter().any(|line| line.kind == "sign") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut broken = 0;
    for (folder, op, before) in &cuts.cuts {
        let rig = Rig::at(folder).await;
        let story = rig.story(id).await;
        assert!(*before == 0 || has(&story, "started"), "{op:?}: {story:?}");
        assert!(!has(&story, "ok") || *before == 1, "{op:?}: {story:?}");
        broken += u32::from(has(&story, "unknown_outcome"));
        assert!(!has(&story, "started") || story.len() == 2, "{op:?}: {story:?}");
        rig.verifies().await;
        rig.down().await;
    }
    assert!(broken > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_read_cut_off_anywhere_leaves_a_chain_that_verifies() {
    let rig = Rig::disk().await.ready().await;
    let id = rig.id();
    let cuts = cut(rig, None, async |rig| {
        for _ in 0..3 {
            value(rig.ask_under(id, health()).await);
        }
    })
    .await;
    let mut least = 0;
    for (folder, op, _) in &cuts.cuts {
        let rig = Rig::at(folder).await;
        let answered = rig.story(id).await.len();
        assert!(answered >= least, "{op:?}: what was answered is on record");
        least = answered;
        rig.verifies().await;
        rig.down().await;
    }
    assert!(least >= 2);
}

/// Whose the device is, how much is granted, under which number.
async fn whose(rig: &Rig) -> (Option<String>, usize, u64) {
    let status = rig.status().await;
    (status.owner.map(|owner| owner.key), status.grants_on.len(), status.ownership)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_a_change_of_owner_cut_off_anywhere_is_done_or_not_done() {
    let key = |byte: u8| Some(crate::clients::public(byte).to_string());
    for way in ["release here", "release", "transfer", "claim"] {
        let rig = if way == "claim" { Rig::disk().await } else { Rig::disk().await.ready().await };
        let id = rig.id();
        match way {
            "release" => drop(value(rig.ask_under(id, wire::OwnerRequest::Release).await)),
            "transfer" => {
                let to =
                    wire::OwnerRequest::Transfer { agent: crate::clients::agent(2), key: crate::clients::public(2) };
                value(rig.ask_under(id, to).await);
            }
            "claim" => {
                let pairing = rig.pair().await;
                value(rig.claim(2, id, &pairing).await);
            }
            _ => {}
        }
        let old = whose(&rig).await;
        let cuts = cut(rig, None, async |rig| {
            if way == "release here" {
                rig.keeper(Command::Release).await;
            } else {
                rig.approve(&id.to_string()).await;
            }
            // One operation more, so that the end is among the copies.
            rig.receipts().await;
        })
        .await;
        let new = match way {
            "release here" | "release" => (None, 0, old.2 + 1),
            _ => (key(2), 0, old.2 + 1),
        };
        let mut found = Vec::new();
        for (folder, op, _) in &cuts.cuts {
            let rig = Rig::at(folder).await;
            let now = whose(&rig).await;
            assert!(now == old || now == new, "{way} {op:?}: {now:?}");
            let recorded = rig.receipts().await.iter().any(|line| {
                line.what.as_deref().is_some_and(|what| what == "release.here" || what.ends_with(".approved"))
                    && line.ownership == new.2
            });
            assert_eq!(recorded, now == new, "{way} {op:?}: the record tells the same");
            for (byte, is_owner) in [(1, now.0 == key(1)), (2, now.0 == key(2))] {
                assert_eq!(word(&rig.ask_as(&secret(byte), health()).await) == "ok", is_owner, "{way} {op:?}");
            }
            // Pairing never comes back by itself.
            assert_eq!(rig.status().await.pairing_until, None);
            rig.verifies().await;
            rig.down().await;
            found.push(now == new);
        }
        assert!(
            found.is_sorted() && !found[0] && found[found.len() - 1],
            "{way}: first old, then new, and once: {found:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_revoke_cut_off_after_its_answer_stays() {
    let rig = Rig::disk().await.ready().await;
    let answered = Arc::new(AtomicBool::new(false));
    let kept = tempfile::TempDir::new().unwrap();
    let note = Arc::clone(&answered);
    rig.plan.copy(&rig.folder.clone().unwrap(), kept.path(), move || u32::from(note.load(Ordering::SeqCst)));
    rig.revoke("display.text").await;
    answered.store(true, Ordering::SeqCst);
    assert_eq!(word(&rig.ask(show("x")).await), "denied");
    let cuts = rig.plan.copies();
    rig.down().await;
    let mut after = 0;
    for (folder, op, answered) in cuts {
        let rig = Rig::at(&folder).await;
        value(rig.ask_as(&owner(), activate(60_000)).await);
        let told = word(&rig.ask(show("y")).await);
        assert!(answered == 0 || told == "denied", "{op:?}");
        after += answered;
        rig.down().await;
    }
    assert!(after > 0);
}
