//! What is written down: in the right order, with digests that fit, and so that every change to it is noticed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latchkey_actors::{Command, ReceiptLine, Reply};
use rusqlite::{Connection, params};
use serde_json::json;
use wire::record::{Verified, salted_digest, verify_export};
use wire::{Record, Signer};

use crate::clients::{object, show, snapshot, value, word};
use crate::fakes::{WALL_MS, eventually};
use crate::rig::{Rig, device};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_is_on_disk_before_the_handler_moves_and_ends_before_its_answer() {
    let rig = Rig::disk().await.ready().await;
    rig.trace.take();
    value(rig.ask(show("x")).await);
    assert_eq!(rig.trace.take(), ["commit", "begin display.text", "effect display.text", "commit"]);
    value(rig.ask(snapshot()).await);
    let order = rig.trace.take();
    assert_eq!(order, ["commit", "sign on", "begin camera.snapshot", "effect camera.snapshot", "commit"]);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capture_leaves_a_record_of_the_sign_with_both_times() {
    let rig = Rig::new().await.ready().await;
    rig.clock.pass(10);
    let id = rig.id();
    value(rig.ask_under(id, snapshot()).await);
    assert!(rig.sign.lit.load(std::sync::atomic::Ordering::SeqCst), "the answer does not wait for the sign");
    let of_id = async || -> Vec<ReceiptLine> {
        rig.receipts().await.into_iter().filter(|line| line.id == Some(id.to_string())).collect()
    };
    let call = of_id().await;
    assert_eq!(call.len(), 2);
    let on = call[1].sign_on_at.unwrap();
    assert!(on >= WALL_MS + 10 && call[0].received_at.unwrap() <= on && on <= call[1].ended_at.unwrap());
    rig.clock.pass(2_999);
    assert_eq!(of_id().await.len(), 2);
    rig.clock.pass(1);
    eventually("the sign goes off", || !rig.sign.lit.load(std::sync::atomic::Ordering::SeqCst)).await;
    let last = rig.status().await.journal.last;
    if of_id().await.len() == 2 {
        drop(rig.keeper(Command::Receipts { after: last, limit: 1, wait_ms: 5_000 }).await);
    }
    let sign = of_id().await.pop().unwrap();
    assert_eq!((sign.kind.as_str(), sign.what.as_deref(), sign.outcome), ("sign", Some("camera.snapshot"), None));
    assert_eq!((sign.sign_on_at, sign.sign_off_at), (Some(on), Some(on + 3_000)));
    let order: Vec<_> = rig.trace.take().into_iter().filter(|what| what != "commit").collect();
    assert_eq!(order, ["sign on", "begin camera.snapshot", "effect camera.snapshot", "sign off"]);
    rig.down().await;
}

/// The records as they lie on disk: sequence, CBOR, salt.
fn rows(rig: &Rig) -> Vec<(u64, Record, [u8; 16])> {
    let connection = Connection::open(rig.folder.as_ref().unwrap().join("state.db")).unwrap();
    let mut statement = connection.prepare("SELECT sequence, cbor, salt FROM records ORDER BY sequence").unwrap();
    let found =
        statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get(2)?))).unwrap();
    found
        .map(|row| {
            let (sequence, cbor, salt) = row.unwrap();
            (u64::try_from(sequence).unwrap(), Record::from_cbor(&cbor).unwrap(), salt)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn digests_fit_their_salts_and_no_two_records_share_one() {
    let rig = Rig::disk().await.ready().await;
    let id = rig.id();
    let shown = value(rig.ask_under(id, show("secret word")).await);
    let rows = rows(&rig);
    let of_id: Vec<_> = rows.iter().filter(|(_, record, _)| record.id == Some(id)).collect();
    let (_, started, salt_started) = of_id[0];
    let (_, ended, salt_ended) = of_id[1];
    let arguments = object(json!({ "text": "secret word" }));
    assert_eq!(started.arguments_digest, Some(salted_digest(salt_started, &arguments)));
    assert_eq!(ended.arguments_digest, Some(salted_digest(salt_ended, &arguments)));
    assert_eq!(ended.value_digest, Some(salted_digest(salt_ended, &shown)));
    assert_ne!(started.arguments_digest, ended.arguments_digest, "the same arguments cannot be matched");
    assert_eq!((started.outcome.as_deref(), started.ended_at, started.value_digest), (None, None, None));
    let mut salts: Vec<_> = rows.iter().map(|(_, _, salt)| *salt).collect();
    salts.sort_unstable();
    salts.dedup();
    assert_eq!(salts.len(), rows.len());
    let disk = std::fs::read(rig.folder.as_ref().unwrap().join("state.db-wal")).unwrap();
    assert!(!disk.windows(11).any(|bytes| bytes == b"secret word"), "arguments are on disk as digests only");
    rig.down().await;
}

async fn exported(rig: &Rig) -> Vec<u8> {
    let Reply::ExportHead { first, until, tail } = rig.keeper(Command::ExportHead).await else { panic!() };
    // More comes in meanwhile; it belongs to the next export.
    let _ = rig.ask(crate::clients::health()).await;
    let (mut bytes, mut after) = (Vec::new(), first - 1);
    while after < until {
        let Reply::ExportPage { last, records } = rig.keeper(Command::ExportPage { after, until }).await else {
            panic!()
        };
        assert!(last > after);
        bytes.extend(STANDARD.decode(records).unwrap());
        after = last;
    }
    bytes.extend(STANDARD.decode(tail).unwrap());
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_made_page_by_page_verifies() {
    let rig = Rig::disk().await.ready().await;
    for _ in 0..600 {
        value(rig.ask(show("x")).await);
    }
    let last = rig.status().await.journal.last;
    assert!(last > 1_000, "more than two pages");
    let verified = verify_export(&*exported(&rig).await, Some(device().public())).unwrap();
    let Verified { count, first, last: to, .. } = verified;
    assert_eq!((count, first, to), (last, 1, last));
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_dropped_or_moved_record_is_noticed() {
    type Forgery = (&'static str, fn(&Connection), &'static str);
    let rows: [Forgery; 5] = [
        ("flipped", |db| flip(db, 5), "record 6 does not follow"),
        ("the last flipped", |db| flip(db, last(db)), "the end of the chain"),
        ("dropped", |db| edit(db, "DELETE FROM records WHERE sequence = 5"), "record 5 is missing"),
        (
            "moved",
            |db| {
                for (from, to) in [(5, -1), (6, 5), (-1, 6)] {
                    db.execute("UPDATE records SET sequence = ?2 WHERE sequence = ?1", [from, to]).unwrap();
                }
            },
            "record 5 says that it is 6",
        ),
        ("cut at the front", |db| edit(db, "DELETE FROM records WHERE sequence < 5"), "no checkpoint"),
    ];
    for (name, forge, expected) in rows {
        let rig = Rig::disk().await.ready().await;
        rig.verifies().await;
        let db = Connection::open(rig.folder.as_ref().unwrap().join("state.db")).unwrap();
        forge(&db);
        drop(db);
        let Reply::Verified { ok, problem, .. } = rig.keeper(Command::Verify).await else { panic!() };
        assert!(!ok && problem.as_ref().unwrap().contains(expected), "{name}: {problem:?}");
        rig.down().await;
    }
}

fn edit(db: &Connection, sql: &str) {
    assert!(db.execute(sql, []).unwrap() > 0);
}

fn last(db: &Connection) -> i64 {
    db.query_row("SELECT max(sequence) FROM records", [], |row| row.get(0)).unwrap()
}

/// Another time in a record, as somebody would put it who knows the format.
fn flip(db: &Connection, sequence: i64) {
    let cbor: Vec<u8> =
        db.query_row("SELECT cbor FROM records WHERE sequence = ?1", [sequence], |row| row.get(0)).unwrap();
    let mut record = Record::from_cbor(&cbor).unwrap();
    record.received_at = record.received_at.map(|at| at + 1);
    record.ownership += 1;
    db.execute("UPDATE records SET cbor = ?2 WHERE sequence = ?1", params![sequence, record.to_cbor()]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receipts_are_read_in_pages_and_by_waiting() {
    let rig = std::sync::Arc::new(Rig::new().await.ready().await);
    let Reply::Receipts { records, last } = rig.keeper(Command::Receipts { after: 2, limit: 3, wait_ms: 0 }).await
    else {
        panic!()
    };
    assert_eq!(records.iter().map(|line| line.sequence).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(last > 5);
    let waiting = tokio::spawn({
        let rig = std::sync::Arc::clone(&rig);
        async move { rig.keeper(Command::Receipts { after: last, limit: 3, wait_ms: 20_000 }).await }
    });
    value(rig.ask(show("x")).await);
    let Reply::Receipts { records, .. } = waiting.await.unwrap() else { panic!() };
    assert_eq!(records[0].sequence, last + 1);
    assert_eq!(word(&rig.ask(show("x")).await), "ok");
    std::sync::Arc::into_inner(rig).unwrap().down().await;
}
