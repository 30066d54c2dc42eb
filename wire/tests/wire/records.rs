//! Records, deterministic CBOR, and digests.

use ciborium::Value;
use serde_json::json;
use wire::cbor::{self, CborError, ITEM_BYTES_MAX};
use wire::record::{RecordError, RecordKind, content_digest, salted_digest};
use wire::{Id, Object, Record, RecordHash};

use crate::vectors::{hex, public};

pub(crate) fn record(sequence: u64, before: RecordHash) -> Record {
    Record {
        kind: RecordKind::Call,
        sequence,
        ownership: 1,
        id: Some(Id::from_bytes([7; 24])),
        what: Some("camera.snapshot".to_owned()),
        arguments_digest: Some([1; 32]),
        received_at: Some(1_790_000_000_000),
        ended_at: Some(1_790_000_000_100),
        outcome: Some("ok".to_owned()),
        value_digest: Some([2; 32]),
        sign_on_at: Some(1_790_000_000_010),
        sign_off_at: None,
        before,
    }
}

#[test]
fn a_record_is_read_back_as_itself() {
    let full = record(u64::MAX, RecordHash::genesis(&public("device")));
    let started = Record { ended_at: None, outcome: None, value_digest: None, ..full.clone() };
    let sign =
        Record { kind: RecordKind::Sign, what: None, arguments_digest: None, received_at: None, ..started.clone() };
    let keeper =
        Record { kind: RecordKind::Keeper, id: None, what: Some("grant camera on".to_owned()), ..sign.clone() };
    let change = Record { kind: RecordKind::Change, ..keeper.clone() };
    for record in [full, started, sign, keeper, change] {
        assert_eq!(Record::from_cbor(&record.to_cbor()).as_ref(), Ok(&record));
        assert_eq!(record.hash(), RecordHash::of(&record.to_cbor()));
    }
}

#[test]
fn a_record_with_a_key_or_value_out_of_form_is_refused() {
    let good = cbor::from_slice(&record(1, RecordHash::from_bytes([0; 32])).to_cbor()).unwrap().into_map().unwrap();
    let read = |members: Vec<(Value, Value)>| Record::from_cbor(&cbor::to_vec(&Value::Map(members))).map(drop);
    assert_eq!(read(good.clone()), Ok(()));
    assert_eq!(read(good[..12].to_vec()), Err(RecordError::Keys));
    assert_eq!(read([&good[..], &[(Value::from(13), Value::Null)]].concat()), Err(RecordError::Keys));
    for key in 0..13_u8 {
        for wrong in [Value::from(-1), Value::Bool(true), Value::Bytes(vec![0; 31]), Value::Array(vec![])] {
            let mut members = good.clone();
            members[usize::from(key)].1 = wrong.clone();
            assert_eq!(read(members), Err(RecordError::Value(key)), "{wrong:?}");
        }
    }
    let mut nameless = good;
    nameless[0].1 = Value::from("sing");
    assert_eq!(read(nameless), Err(RecordError::Value(0)));
}

#[test]
fn deterministic_cbor_has_the_golden_bytes_of_the_standard() {
    // Values and encodings of RFC 8949, appendix A.
    let rows = [
        (json!(0), "00"),
        (json!(23), "17"),
        (json!(24), "1818"),
        (json!(1_000_000), "1a000f4240"),
        (json!(1_000_000_000_000_i64), "1b000000e8d4a51000"),
        (json!(-1), "20"),
        (json!(-1000), "3903e7"),
        (json!(1.0), "f93c00"),
        (json!(1.1), "fb3ff199999999999a"),
        (json!(65504.0), "f97bff"),
        (json!(100_000.0), "fa47c35000"),
        (json!(-4.1), "fbc010666666666666"),
        (json!(null), "f6"),
        (json!([true, false]), "82f5f4"),
        (json!("ü水"), "65c3bce6b0b4"),
        (json!([1, [2, 3]]), "8201820203"),
        (json!({"b": [2, 3], "a": 1}), "a26161016162820203"),
        // Bytewise order of encodings: a shorter name comes first.
        (json!({"aa": 1, "b": 2, "": 3}), "a36003616202626161 01"),
    ];
    for (value, golden) in rows {
        let bytes = cbor::to_vec(&cbor::from_json(&value));
        assert_eq!(bytes, hex(&golden.replace(' ', "")), "{value}");
        assert_eq!(cbor::to_vec(&cbor::from_slice(&bytes).unwrap()), bytes);
    }
    let mixed = Value::Map(vec![
        (Value::from("a"), Value::Null),
        (Value::from(-1), Value::Null),
        (Value::from(100), Value::Null),
        (Value::from(10), Value::Null),
    ]);
    assert_eq!(cbor::to_vec(&mixed), hex("a40af61864f620f66161f6"), "by encoding, not by length first");
    assert_eq!(cbor::to_vec(&Value::Tag(300, Box::new(Value::Bytes(vec![1])))), hex("d9012c4101"));
}

#[test]
fn a_second_spelling_in_cbor_is_refused() {
    let rows = [
        ("01", "1801", CborError::NotDeterministic),
        ("f93c00", "fa3f800000", CborError::NotDeterministic),
        ("8101", "9f01ff", CborError::NotDeterministic),
        ("4101", "5f4101ff", CborError::NotDeterministic),
        ("a10102", "bf0102ff", CborError::NotDeterministic),
        ("a201020304", "a203040102", CborError::NotDeterministic),
        ("a201020304", "a201020102", CborError::NotDeterministic),
        ("01", "c24101", CborError::NotDeterministic),
        ("01", "0101", CborError::NotDeterministic),
        ("4101", "4201", CborError::Malformed),
        ("01", "", CborError::Malformed),
        ("01", "1c", CborError::Malformed),
    ];
    for (accepted, refused, reason) in rows {
        assert!(cbor::from_slice(&hex(accepted)).is_ok(), "{accepted}");
        assert_eq!(cbor::from_slice(&hex(refused)), Err(reason), "{refused}");
    }
    let nested = |depth: usize| cbor::from_slice(&[vec![0x81; depth], vec![1]].concat()).map(drop);
    assert_eq!(nested(cbor::DEPTH_MAX - 1), Ok(()));
    assert_eq!(nested(cbor::DEPTH_MAX + 1), Err(CborError::Malformed));
    assert_eq!(nested(50_000), Err(CborError::Malformed));
    assert_eq!(cbor::from_slice(&vec![0; ITEM_BYTES_MAX + 1]), Err(CborError::TooLarge));
}

#[test]
fn digests_see_content_and_not_its_order() {
    let object = |text: &str| wire::json::parse(text.as_bytes()).unwrap();
    let (one, turned, other) =
        (object(r#"{"a":1,"bb":"x"}"#), object(r#"{"bb":"x","a":1}"#), object(r#"{"a":1.0,"bb":"x"}"#));
    let name = "custom.acme.lamp".parse().unwrap();
    assert_eq!(content_digest(&name, &one), content_digest(&name, &turned));
    assert_ne!(content_digest(&name, &one), content_digest(&name, &other));
    assert_ne!(content_digest(&name, &one), content_digest(&"custom.acme.lamp2".parse().unwrap(), &one));
    assert_eq!(salted_digest(&[1; 16], &one), salted_digest(&[1; 16], &turned));
    assert_ne!(salted_digest(&[1; 16], &one), salted_digest(&[2; 16], &one));
    // HMAC-SHA-256 of the single byte a0, made with another implementation.
    let golden = "51a7a7d1665926f7bf7a2962b106f46ca56ba2fb7cad801536f5a58255dffd8a";
    assert_eq!(salted_digest(&[1; 16], &Object::new()).to_vec(), hex(golden));
}

#[test]
fn json_turns_to_the_same_cbor_with_and_without_a_tree_between() {
    let rows = [
        "{}",
        r#"{"b":1,"a":null,"aa":true,"":"","é":[0,23,24,255,256,65535,65536,4294967296,9007199254740991]}"#,
        r#"{"n":[-1,-24,-25,-9007199254740991,0.5,-1.5,1e300],"deep":{"z":{"y":[{"x":"👋"}],"a":[]},"b":{}}}"#,
    ];
    for row in rows {
        let value: serde_json::Value = serde_json::from_str(row).unwrap();
        let map = value.as_object().unwrap();
        assert_eq!(cbor::json_to_vec(map), cbor::to_vec(&cbor::from_json(&value)), "{row}");
    }
}
