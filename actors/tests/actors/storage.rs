//! The disk is full, hangs, breaks down or was damaged (CASES P1, P2, P3, G1): nothing is done off the record, and nothing is lost.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use latchkey_actors::{Command, FailCode, NodeState, Reader, Reply, SqliteVault, VaultError};
use rusqlite::Connection;
use wire::{ErrorCode, Signer};

use crate::clients::{activate, error, health, public, show, snapshot, value, word};
use crate::fakes::{WALL_MS, eventually, reaches};
use crate::rig::{Rig, device};
use crate::trap::{Op, Trouble};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_on_a_full_disk_nothing_is_done_and_it_recovers_by_itself() {
    let rig = Rig::disk().await.ready().await;
    let id = rig.id();
    rig.plan.set(Op::Append, Trouble::Full);
    for request in [show("x"), snapshot()] {
        for _ in 0..2 {
            assert_eq!(error(rig.ask_under(id, request.clone()).await), ErrorCode::StorageFull);
        }
    }
    assert_eq!((rig.text.begun(), rig.camera.begun(), *rig.sign.lighted.borrow()), (0, 0, 0), "before anything moves");
    assert_eq!(word(&rig.ask(health()).await), "ok");
    let told = rig.keeper(Command::Revoke { name: "camera".to_owned() }).await;
    assert!(
        matches!(&told, Reply::Failed { code: FailCode::Storage, message } if message.contains("the disk is full")),
        "{told:?}"
    );
    let asked = rig.ask(wire::OwnerRequest::Release).await;
    assert_eq!(error(asked), ErrorCode::StorageFull);
    let status = rig.status().await;
    assert!(!status.journal.writable && status.notices.iter().any(|notice| notice.contains("disk full")));
    assert!(status.grants_on.contains(&"camera".to_owned()), "what could not be written did not happen");
    rig.plan.clear();
    // Nobody asks anything: the journal tries again on its own.
    let mut head = rig.status().await.journal.last;
    let Reply::Receipts { last, .. } = rig.keeper(Command::Receipts { after: head, limit: 1, wait_ms: 5_000 }).await
    else {
        panic!()
    };
    assert!(last > head);
    head = last;
    assert!(rig.status().await.journal.writable);
    assert_eq!(word(&rig.ask_under(id, show("x")).await), "ok", "the refusals used up no id");
    assert_eq!(rig.text.effects(), 1);
    assert!(rig.status().await.journal.last > head);
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_and_cannot_be_written_is_an_unknown_outcome() {
    let rig = Rig::disk().await.ready().await;
    let id = rig.id();
    rig.text.set(crate::fakes::Mood::Wait);
    let rig = Arc::new(rig);
    let call = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { rig.ask_under(id, show("x")).await }
    });
    rig.text.begins(1).await;
    rig.plan.set(Op::Commit, Trouble::Full);
    rig.text.go();
    assert_eq!(error(call.await.unwrap()), ErrorCode::UnknownOutcome);
    assert_eq!(rig.text.effects(), 1);
    rig.plan.clear();
    let rig = Arc::into_inner(rig).unwrap().restart().await;
    assert_eq!(rig.story(id).await, ["started", "unknown_outcome"], "the next start says so on record");
    assert_eq!(word(&rig.ask_under(id, show("x")).await), "unknown_outcome");
    assert_eq!(rig.text.effects(), 1);
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_silences_neither_health_nor_the_clock() {
    let rig = Arc::new(Rig::new().await.ready().await);
    rig.camera.set(crate::fakes::Mood::Wait);
    let call = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { word(&rig.ask(snapshot()).await) }
    });
    rig.camera.begins(1).await;
    rig.plan.set(Op::Commit, Trouble::Block);
    let begun = tokio::time::Instant::now();
    assert_eq!(word(&rig.ask(health()).await), "ok");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // A keeper's command waits for the disk and holds up the state actor; the lease ends all the same.
    let revoke = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { rig.keeper(Command::Revoke { name: "display.text".to_owned() }).await }
    });
    reaches(&rig.plan.befell, 1, "the disk hangs").await;
    rig.clock.pass_boot(300_000);
    reaches(&rig.camera.stopped, 1, "the capture is told to stop").await;
    rig.plan.clear();
    assert_eq!(call.await.unwrap(), "cancelled");
    assert!(matches!(revoke.await.unwrap(), Reply::Granted { changed: true, .. }));
    Arc::into_inner(rig).unwrap().down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_panic_inside_the_vault_is_the_stores_own_business() {
    for op in [Op::Begin, Op::Append, Op::PutOutcome, Op::Commit, Op::Outcome] {
        let rig = Rig::disk().await.ready().await;
        let id = rig.id();
        rig.plan.set_times(op, Trouble::Panic, 1);
        assert_eq!(error(rig.ask_under(id, show("x")).await), ErrorCode::StorageFull, "{op:?}");
        assert_eq!(rig.text.begun(), 0, "{op:?}");
        rig.becomes("store", NodeState::Running).await;
        eventually("records can be written again", || {
            rig.house.tree().borrow().root.find("store").unwrap().restarts == 1
        })
        .await;
        let again = async {
            while word(&rig.ask_under(id, show("x")).await) == "storage_full" {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::fakes::PATIENCE, again).await.unwrap();
        assert_eq!(word(&rig.ask_under(id, show("x")).await), "ok", "{op:?}");
        assert_eq!(rig.text.effects(), 1, "{op:?}");
        rig.verifies().await;
        rig.down().await;
    }
}

/// The commit is done, and its thread dies before it can say so: what holds is what is on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_owner_whose_end_was_lost_is_read_from_the_disk() {
    for (trouble, owned) in [(Trouble::Panic, true), (Trouble::PanicAfter, false)] {
        let rig = Rig::disk().await.ready().await;
        rig.plan.set_times(Op::Commit, trouble, 1);
        let told = rig.keeper(Command::Release).await;
        assert!(matches!(&told, Reply::Failed { code: FailCode::Storage, .. }), "{told:?}");
        eventually("a new state actor", || rig.house.tree().borrow().root.find("state").unwrap().restarts >= 1).await;
        rig.becomes("state", NodeState::Running).await;
        let status = rig.status().await;
        assert_eq!((status.owner.is_some(), status.ownership), (owned, if owned { 2 } else { 3 }), "{trouble:?}");
        if owned {
            assert_eq!(word(&rig.ask(health()).await), "ok");
            assert_eq!(error(rig.ask(show("x")).await), ErrorCode::NotActive, "the doubt ended activation");
            value(rig.ask(activate(60_000)).await);
            let again = async {
                while word(&rig.ask(show("x")).await) == "storage_full" {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(crate::fakes::PATIENCE, again).await.unwrap();
            assert_eq!(word(&rig.ask(show("x")).await), "ok");
        } else {
            assert_eq!(word(&rig.ask(health()).await), "signature");
            rig.own(2).await;
        }
        rig.verifies().await;
        rig.down().await;
    }
}

/// A house that was owned, granted and used, at rest.
async fn used() -> (tempfile::TempDir, std::path::PathBuf) {
    let kept = tempfile::TempDir::new().unwrap();
    let folder = kept.path().join("state");
    std::fs::create_dir(&folder).unwrap();
    let rig = Rig::at(&folder).await.ready().await;
    for _ in 0..20 {
        value(rig.ask(show("x")).await);
    }
    rig.down().await;
    (kept, folder)
}

fn edit(folder: &Path, sql: &str) {
    let connection = Connection::open(folder.join("state.db")).unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
}

type Damage = (&'static str, fn(&Path));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_damaged_state_is_set_aside_by_name_and_everything_is_off() {
    let rows: [Damage; 8] = [
        ("random bytes", |folder| std::fs::write(folder.join("state.db"), [0x5a; 4_096]).unwrap()),
        ("cut in half", |folder| {
            let bytes = std::fs::read(folder.join("state.db")).unwrap();
            std::fs::write(folder.join("state.db"), &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("a page overwritten", |folder| {
            let mut bytes = std::fs::read(folder.join("state.db")).unwrap();
            let middle = (bytes.len() / 8_192) * 4_096;
            bytes[middle..middle + 4_096].fill(0xa5);
            std::fs::write(folder.join("state.db"), bytes).unwrap();
        }),
        ("a null grant", |folder| {
            edit(folder, r#"UPDATE state SET json = json_replace(json, '$.grants.camera', json('null'))"#);
        }),
        ("null grants", |folder| {
            edit(folder, r#"UPDATE state SET json = json_replace(json, '$.grants', json('null'))"#)
        }),
        ("an unknown member", |folder| edit(folder, r#"UPDATE state SET json = json_insert(json, '$.more', 1)"#)),
        ("a changed record", |folder| {
            edit(folder, "UPDATE records SET cbor = zeroblob(20) WHERE sequence = (SELECT max(sequence) FROM records)");
        }),
        ("another's database", |folder| {
            std::fs::remove_file(folder.join("state.db")).unwrap();
            let connection = Connection::open(folder.join("state.db")).unwrap();
            connection.execute_batch("CREATE TABLE cats (name TEXT)").unwrap();
        }),
    ];
    for (name, damage) in rows {
        let (_kept, folder) = used().await;
        damage(&folder);
        let damaged = std::fs::read(folder.join("state.db")).unwrap();
        let rig = Rig::at(&folder).await;
        assert!(rig.notices[0].contains("state.db was damaged"), "{name}: {:?}", rig.notices);
        let aside = folder.join(format!("state.db.damaged-{WALL_MS}"));
        assert_eq!(std::fs::read(&aside).unwrap(), damaged, "{name}: kept as it was");
        assert!(rig.notices[0].contains(aside.to_str().unwrap()));
        let status = rig.status().await;
        assert!(status.owner.is_none() && status.grants_on.is_empty(), "{name}");
        assert_eq!(word(&rig.ask(health()).await), "signature", "{name}");
        rig.own(1).await;
        assert_eq!(error(rig.ask(snapshot()).await), ErrorCode::Denied, "{name}");
        assert!(rig.receipts().await.iter().any(|line| line.what.as_deref() == Some("state.notice")), "{name}");
        rig.down().await;
    }
    let (_kept, folder) = used().await;
    let control = Rig::at(&folder).await;
    assert_eq!((control.notices.len(), word(&control.ask(health()).await)), (0, "ok"));
    control.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_null_owner_or_a_deleted_state_is_a_device_without_owner() {
    for sql in ["UPDATE state SET json = json_replace(json, '$.owner', json('null'))", "DELETE FROM state"] {
        let (_kept, folder) = used().await;
        edit(&folder, sql);
        let rig = Rig::at(&folder).await;
        assert_eq!(word(&rig.ask(health()).await), "signature");
        assert_eq!(rig.status().await.owner, None);
        rig.own(1).await;
        assert_eq!(error(rig.ask(snapshot()).await), ErrorCode::Denied, "{sql}");
        rig.verifies().await;
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_a_newer_version_is_refused_and_left_alone() {
    let (_kept, folder) = used().await;
    Connection::open(folder.join("state.db")).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    let before = std::fs::read(folder.join("state.db")).unwrap();
    let opened = SqliteVault::open(&folder, device().public(), WALL_MS);
    assert!(matches!(opened, Err(VaultError::Newer { found: 2, known: 1, .. })), "{opened:?}");
    assert!(matches!(Reader::open(&folder, device().public()), Err(VaultError::Newer { .. })));
    assert_eq!(std::fs::read(folder.join("state.db")).unwrap(), before);
    Connection::open(folder.join("state.db")).unwrap().execute_batch("PRAGMA user_version = 1").unwrap();
    let control = SqliteVault::open(&folder, device().public(), WALL_MS).unwrap();
    assert_eq!(control.notices.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_or_older_journal_is_noticed() {
    type Loss = (&'static str, fn(&Path, &Path), &'static str);
    let rows: [Loss; 3] = [
        ("gone", |folder, _| std::fs::remove_file(folder.join("state.db")).unwrap(), "state.db is gone"),
        ("older", |folder, old| assert!(std::fs::copy(old, folder.join("state.db")).unwrap() > 0), "an older state.db"),
        ("untouched", |_, _| {}, ""),
    ];
    for (name, lose, expected) in rows {
        let (kept, folder) = used().await;
        let old = kept.path().join("old.db");
        std::fs::copy(folder.join("state.db"), &old).unwrap();
        let rig = Rig::at(&folder).await;
        value(rig.ask(health()).await);
        rig.down().await;
        lose(&folder, &old);
        let rig = Rig::at(&folder).await;
        assert_eq!(rig.notices.len(), usize::from(!expected.is_empty()), "{name}: {:?}", rig.notices);
        assert!(rig.notices.iter().all(|notice| notice.contains(expected)));
        assert_eq!(rig.status().await.notices, rig.notices, "the keeper is told");
        rig.down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_reader_beside_a_writer_loses_nothing() {
    let rig = Arc::new(Rig::disk().await.ready().await);
    let folder = rig.folder.clone().unwrap();
    let first = rig.status().await.journal.last;
    let writer = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move {
            for _ in 0..1_000 {
                value(rig.ask(health()).await);
            }
        }
    });
    let reading = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        while seen.len() < 1_000 {
            let reader = Reader::open(&folder, device().public()).unwrap().unwrap();
            let after = seen.last().copied().unwrap_or(first);
            match reader.command(&device(), WALL_MS, &Command::Receipts { after, limit: 500, wait_ms: 0 }) {
                Reply::Receipts { records, .. } => seen.extend(records.iter().map(|line| line.sequence)),
                other => panic!("{other:?}"),
            }
            let verified = reader.command(&device(), WALL_MS, &Command::Verify);
            assert!(matches!(verified, Reply::Verified { ok: true, .. }), "{verified:?}");
        }
        seen
    });
    writer.await.unwrap();
    let seen = reading.await.unwrap();
    assert_eq!(seen, (first + 1..=first + 1_000).collect::<Vec<_>>());
    Arc::into_inner(rig).unwrap().down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_daemon_a_reader_answers_what_needs_none() {
    let (kept, folder) = used().await;
    assert!(Reader::open(kept.path(), device().public()).unwrap().is_none(), "there is no state here");
    let reader = Reader::open(&folder, device().public()).unwrap().unwrap();
    let ask = |command| reader.command(&device(), WALL_MS, &command);
    let Reply::Status(status) = ask(Command::Status) else { panic!() };
    assert_eq!((status.running, status.owner.unwrap().key), (false, public(1).to_string()));
    assert!(matches!(ask(Command::Grants), Reply::Grants { grants } if grants.len() == 5));
    assert!(matches!(ask(Command::Verify), Reply::Verified { ok: true, .. }));
    for command in [Command::Pair, Command::Release, Command::Grant { name: "camera".to_owned() }] {
        assert!(matches!(ask(command), Reply::Failed { code: FailCode::NotNow, .. }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_does_not_keep_the_house_from_starting() {
    let kept = tempfile::TempDir::new().unwrap();
    let folder = kept.path().join("state");
    std::fs::create_dir(&folder).unwrap();
    let rig = Rig::at(&folder).await.ready().await;
    let id = rig.id();
    rig.text.set(crate::fakes::Mood::Wait);
    let copy = kept.path().join("copies");
    std::fs::create_dir(&copy).unwrap();
    let rig = Arc::new(rig);
    let call = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { word(&rig.ask_under(id, show("x")).await) }
    });
    rig.text.begins(1).await;
    rig.plan.copy(&folder, &copy, || 0);
    rig.text.go();
    assert_eq!(call.await.unwrap(), "ok");
    let (broken_off, ..) = rig.plan.copies().into_iter().next().unwrap();
    Arc::into_inner(rig).unwrap().down().await;
    let rig = Rig::full(&broken_off).await;
    assert_eq!(word(&rig.ask(health()).await), "ok");
    assert_eq!(rig.story(id).await, ["started"]);
    rig.plan.clear();
    let mut story = rig.story(id).await;
    while story.len() < 2 {
        let last = rig.status().await.journal.last;
        drop(rig.keeper(Command::Receipts { after: last, limit: 1, wait_ms: 2_000 }).await);
        story = rig.story(id).await;
    }
    assert_eq!(story, ["started", "unknown_outcome"], "written once there is room");
    rig.down().await;
}
