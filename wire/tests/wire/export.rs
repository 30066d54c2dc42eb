//! Exports: what is flipped, dropped, put elsewhere or cut off is noticed, and the record is named.

use wire::record::{CHECKPOINT, Export, ExportError, RecordKind, Verified, verify_export};
use wire::{Record, RecordHash};

use crate::records::record;
use crate::vectors::{public, secret};

const TIME_MS: u64 = 1_790_000_000_000;

/// Records `first..=last`, chained from `before`.
fn chain(first: u64, last: u64, before: RecordHash) -> Vec<Record> {
    let mut before = before;
    let mut next = |sequence| {
        let record = record(sequence, before);
        before = record.hash();
        record
    };
    (first..=last).map(&mut next).collect()
}

fn export(records: &[Vec<u8>]) -> Vec<u8> {
    let mut export = Export::begin(Vec::new());
    records.iter().for_each(|record| export.push(record).unwrap());
    export.finish(&secret("device"), TIME_MS).unwrap()
}

/// Six records, and the signed head apart.
fn good() -> (Vec<Vec<u8>>, Vec<u8>) {
    let records: Vec<_> = chain(1, 6, RecordHash::genesis(&public("device"))).iter().map(Record::to_cbor).collect();
    let whole = export(&records);
    let head = whole[records.concat().len()..].to_vec();
    (records, head)
}

fn verify(bytes: &[u8]) -> Result<Verified, String> {
    verify_export(bytes, Some(&public("device"))).map_err(|error| error.to_string())
}

#[test]
fn a_good_export_verifies_with_and_without_a_known_device() {
    let (records, head) = good();
    let whole = [records.concat(), head].concat();
    let verified = Verified { count: 6, first: 1, last: 6, device: public("device"), head_time: TIME_MS };
    assert_eq!(verify(&whole), Ok(verified.clone()));
    assert_eq!(verify_export(&*whole, None).unwrap(), verified);
    let other = verify_export(&*whole, Some(&public("other"))).unwrap_err();
    assert!(matches!(other, ExportError::Device { found } if found == public("device")));
    assert_eq!(verify(&export(&[])), Ok(Verified { count: 0, first: 0, last: 0, ..verified }));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (records, head) = good();
    let whole = [records.concat(), head].concat();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            assert!(verify(&flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_flipped_record_is_named() {
    let (records, head) = good();
    for at in 0..records.len() {
        let mut changed = records.clone();
        let outcome = changed[at].windows(3).position(|bytes| bytes == b"\x62ok").unwrap();
        changed[at][outcome + 1] = b'k';
        let error = verify(&[changed.concat(), head.clone()].concat()).unwrap_err();
        assert!(error.contains(&format!("record {} ", at + 1)), "{error}");
    }
}

#[test]
fn a_dropped_or_doubled_record_is_named() {
    let (records, head) = good();
    for at in 0..records.len() {
        let mut dropped = records.clone();
        dropped.remove(at);
        let error = verify(&[dropped.concat(), head.clone()].concat()).unwrap_err();
        let expected = match at {
            0 => "the export begins with record 2, and no checkpoint vouches for what was before".to_owned(),
            5 => "the signed head does not refer to record 5 as it stands here".to_owned(),
            _ => format!("record {} stands where record {} belongs", at + 2, at + 1),
        };
        assert_eq!(error, expected);
        let mut doubled = records.clone();
        doubled.insert(at, records[at].clone());
        let error = verify(&[doubled.concat(), head.clone()].concat()).unwrap_err();
        assert_eq!(error, format!("record {} stands where record {} belongs", at + 1, at + 2));
    }
}

#[test]
fn records_put_elsewhere_are_named() {
    let (records, head) = good();
    for at in 0..records.len() - 1 {
        let mut turned = records.clone();
        turned.swap(at, at + 1);
        let error = verify(&[turned.concat(), head.clone()].concat()).unwrap_err();
        let (expected, found) = if at == 0 { (3, 1) } else { (at + 1, at + 2) };
        assert_eq!(error, format!("record {found} stands where record {expected} belongs"));
    }
}

#[test]
fn every_cut_is_noticed_and_names_the_last_record_left() {
    let (records, head) = good();
    let whole = [records.concat(), head].concat();
    let mut ends = records.iter().scan(0, |end, record| {
        *end += record.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.by_ref().collect();
    for length in 0..whole.len() {
        let left = ends.iter().filter(|end| **end <= length).count();
        let error = verify(&whole[..length]).unwrap_err();
        let expected = match left {
            0 => "no whole record and no signed head: the export is cut off, or this is none".to_owned(),
            left => format!("the export is cut off behind record {left}, its signed head is missing"),
        };
        assert_eq!(error, expected);
    }
    assert_eq!(verify(&[whole, vec![0]].concat()), Err("something stands behind the signed head".to_owned()));
}

#[test]
fn a_chain_that_another_key_signed_or_that_begins_elsewhere_is_refused() {
    let (records, _) = good();
    let mut foreign = Export::begin(Vec::new());
    records.iter().for_each(|record| foreign.push(record).unwrap());
    let foreign = foreign.finish(&secret("other"), TIME_MS).unwrap();
    let error = verify_export(&*foreign, None).unwrap_err();
    assert_eq!(error.to_string(), "the export begins with record 1, and no checkpoint vouches for what was before");
    let elsewhere: Vec<_> = chain(1, 2, RecordHash::from_bytes([9; 32])).iter().map(Record::to_cbor).collect();
    assert!(verify(&export(&elsewhere)).unwrap_err().starts_with("the export begins with record 1"));
}

#[test]
fn a_pruned_journal_verifies_from_a_later_checkpoint_and_from_nothing_else() {
    let before = RecordHash::from_bytes([5; 32]);
    let pruned = |kind: RecordKind, what: &str, vouches_for: RecordHash| {
        let mut records = chain(40, 42, before);
        let last = records.last().unwrap().hash();
        records.push(Record {
            kind,
            what: Some(what.to_owned()),
            value_digest: Some(*vouches_for.as_bytes()),
            ..record(43, last)
        });
        let bytes: Vec<_> = records.iter().map(Record::to_cbor).collect();
        verify(&export(&bytes)).map(|verified| (verified.first, verified.last))
    };
    assert_eq!(pruned(RecordKind::Keeper, CHECKPOINT, before), Ok((40, 43)));
    let refused = Err("the export begins with record 40, and no checkpoint vouches for what was before".to_owned());
    assert_eq!(pruned(RecordKind::Keeper, CHECKPOINT, RecordHash::from_bytes([6; 32])), refused);
    assert_eq!(pruned(RecordKind::Keeper, "grant camera on", before), refused);
    assert_eq!(pruned(RecordKind::Change, CHECKPOINT, before), refused);
}

#[test]
fn an_item_that_never_ends_is_refused_before_it_fills_memory() {
    let endless = [&[0x5b, 0, 0, 0, 1, 0, 0, 0, 0][..], &vec![0; 1 << 20]].concat();
    let error = verify(&endless).unwrap_err();
    assert!(error.starts_with("item 1 of the export is not a record"), "{error}");
}
