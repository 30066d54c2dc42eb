//! The published vectors, made by an independent implementation.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;
use wire::envelope::{Refused, Unopened};
use wire::json::Object;
use wire::record::{Export, content_digest, verify_export};
use wire::text::{base64_decode, base64_encode};
use wire::{
    Agent, CapabilityName, Challenge, ClaimCode, Domain, Envelope, Head, Id, KeyError, PairingSecret, Proof, PublicKey,
    Record, RecordHash, Salt, SecretKey, Signature, Signer, envelope,
};

static VECTORS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../vectors/device-link-v1.json")).unwrap());

fn section(name: &str) -> &'static serde_json::Map<String, Value> {
    VECTORS[name].as_object().unwrap()
}

fn text(value: &'static Value) -> &'static str {
    value.as_str().unwrap()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// One of the three published test keys: `device`, `owner`, `other`.
pub(crate) fn secret(name: &str) -> SecretKey {
    SecretKey::from_seed(&hex(text(&VECTORS["seeds_hex"][name])).try_into().unwrap())
}

pub(crate) fn public(name: &str) -> PublicKey {
    text(&VECTORS["keys"][name]).parse().unwrap()
}

pub(crate) fn head() -> Head {
    Head { id: Id::from_bytes([0x0f; 24]), challenge: Challenge::from_bytes([0xa1; 24]), to: public("device") }
}

fn pairing_secret() -> PairingSecret {
    text(&VECTORS["claim_code"]["secret"]).parse().unwrap()
}

/// The device of the vectors below its challenge check: owned by `owner`, pairing open. Gives the request's type and the
/// body that this implementation writes for the same message.
pub(crate) fn receive(bytes: &[u8]) -> Result<(&'static str, Vec<u8>), Refused> {
    let (head, kind, body) = match Envelope::parse(bytes)?.open_owner(&public("owner")) {
        Ok(opened) => {
            assert_eq!(*opened.signer(), public("owner"));
            let (head, _, request) = opened.into_parts();
            (head.clone(), request.type_name(), request.to_body(&head))
        }
        Err(Unopened::Refused(refused)) => return Err(refused),
        Err(Unopened::NotOwner(envelope)) => {
            let (head, signer, request) = envelope.open_claimant(|_| Some(public("owner")))?.into_parts();
            if let wire::ClaimantRequest::Claim { key, proof, .. } = &request {
                assert_eq!(*key, signer);
                if !pairing_secret().check(key, &head.id, proof) {
                    return Err(Refused::Proof);
                }
            }
            (head.clone(), request.type_name(), request.to_body(&head))
        }
    };
    if head.to == public("device") { Ok((kind, body)) } else { Err(Refused::WrongTo) }
}

#[test]
fn every_request_is_read_and_written_byte_for_byte() {
    for (name, vector) in section("requests") {
        let body = text(&vector["body_utf8"]).as_bytes();
        let (kind, written) =
            receive(vector["envelope"].to_string().as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(kind, vector["message"]["type"], "{name}");
        assert_eq!(String::from_utf8(written).unwrap(), text(&vector["body_utf8"]), "{name}");
        let sealed = envelope::seal(&secret("owner"), body);
        assert_eq!(serde_json::from_slice::<Value>(sealed.as_bytes()).unwrap(), vector["envelope"], "{name}");
    }
}

#[test]
fn every_result_is_read_and_written_byte_for_byte() {
    for (name, vector) in section("results") {
        let envelope = Envelope::parse_result(vector["envelope"].to_string().as_bytes()).unwrap();
        let opened = envelope.open_answer(&public("device")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let answer = opened.message();
        assert_eq!(String::from_utf8(answer.to_body()).unwrap(), text(&vector["body_utf8"]), "{name}");
        assert_eq!(answer.matches(&head(), &public("owner")), Ok(()), "{name}");
        let sealed = envelope::seal(&secret("device"), &answer.to_body());
        assert_eq!(serde_json::from_slice::<Value>(sealed.as_bytes()).unwrap(), vector["envelope"], "{name}");
    }
}

#[test]
fn other_signed_messages_hold_for_their_key_and_are_no_requests() {
    for (name, vector) in section("other_messages") {
        let body = text(&vector["body_utf8"]).as_bytes();
        let sealed = envelope::seal(&secret(text(&vector["signed_by"])), body);
        assert_eq!(serde_json::from_slice::<Value>(sealed.as_bytes()).unwrap(), vector["envelope"], "{name}");
        let signature: Signature = text(&vector["envelope"]["signature"]).parse().unwrap();
        public(text(&vector["signed_by"])).verify(Domain::Link, body, &signature).unwrap();
        let refused = receive(sealed.as_bytes()).unwrap_err();
        assert!(matches!(refused, Refused::UnknownType(_)), "{name}: {refused}");
    }
}

/// Each invalid case, the reason it is refused with, and the request that differs only in the flaw.
const INVALID: &[(&str, &str, &str)] = &[
    ("signature has non-canonical S (S + L)", "signature", "registration"),
    ("signature by another key", "signature", "registration"),
    ("signature without the domain", "signature", "registration"),
    ("signature under another domain", "signature", "registration"),
    ("signature 63 bytes", "base64", "registration"),
    ("body padded with =", "base64", "registration"),
    ("body in the standard alphabet", "base64", "inputs"),
    ("signature with set trailing bits", "base64", "registration"),
    ("signature with a trailing newline", "base64", "registration"),
    ("envelope has a third member", "envelope", "registration"),
    ("envelope lacks signature", "envelope", "registration"),
    ("envelope body is a number", "envelope", "registration"),
    ("body has a BOM", "json_bom", "registration"),
    ("body has a duplicate member", "json_duplicate", "registration"),
    ("body has a duplicate member by escape", "json_duplicate", "registration"),
    ("arguments have a duplicate member", "json_duplicate", "invoke display.text"),
    ("body has an unknown member", "member", "registration"),
    ("body is followed by more", "json_trailing", "registration"),
    ("body is an array", "json_not_object", "registration"),
    ("body is not UTF-8", "json_utf8", "registration"),
    ("body holds a lone surrogate", "json_surrogate", "invoke display.text"),
    ("body nests deeper than 16", "json_depth", "invoke with 16 containers"),
    ("17 containers", "json_depth", "invoke with 16 containers"),
    ("integer beyond 53 bits", "json_number", "inputs"),
    ("integer written as a float", "member", "inputs"),
    ("integer with an exponent", "member", "inputs"),
    ("negative zero", "json_number", "inputs"),
    ("number is NaN", "json_number", "inputs"),
    ("negative after", "member", "inputs"),
    ("id in upper case", "member", "registration"),
    ("id too short", "member", "registration"),
    ("id missing", "member", "registration"),
    ("to is another device", "wrong_to", "registration"),
    ("to carries padding", "member", "registration"),
    ("unknown type", "unknown_type", "registration"),
    ("type with a different case", "unknown_type", "registration"),
    ("capability name with a slash", "member", "invoke custom"),
    ("capability name with an empty part", "member", "invoke custom"),
    ("arguments is a string", "member", "invoke display.text"),
    ("arguments is null", "member", "invoke without arguments"),
    ("lease_ms under the minimum", "member", "activate"),
    ("lease_ms over the maximum", "member", "activate"),
    ("claim of a small-order key", "member", "claim"),
    ("claim without proof", "member", "claim"),
    ("claim with another's proof", "proof", "claim"),
    ("empty body", "json_syntax", "registration"),
];

#[test]
fn every_invalid_request_is_refused_with_its_reason_beside_an_accepted_control() {
    let cases = VECTORS["invalid_requests"]["cases"].as_object().unwrap();
    let known: BTreeSet<_> = INVALID.iter().map(|(name, ..)| *name).collect();
    assert_eq!(known, cases.keys().map(String::as_str).collect());
    for (name, reason, control) in INVALID {
        let refused = receive(cases[*name].to_string().as_bytes()).map(|(kind, _)| kind);
        assert_eq!(refused.as_ref().map_err(Refused::label), Err(*reason), "{name}: {refused:?}");
        let control = VECTORS["requests"][control]["envelope"].to_string();
        assert!(receive(control.as_bytes()).is_ok(), "{name}: its control");
    }
}

#[test]
fn keys_and_fingerprints_are_those_of_their_seeds() {
    for (name, key) in section("keys") {
        assert_eq!(secret(name).public().to_string(), text(key));
        assert_eq!(public(name).fingerprint(), text(&VECTORS["fingerprints"][name]));
        assert_eq!(SecretKey::from_seed(&secret(name).seed()).public(), &public(name));
    }
}

#[test]
fn keys_that_must_never_be_taken_are_refused_by_name() {
    let expected = |name: &str| match name {
        "non-canonical y = p" | "non-canonical y = p + 1" => KeyError::NonCanonical,
        "not on the curve" => KeyError::NotOnCurve,
        _ => KeyError::SmallOrder,
    };
    for (name, key) in section("never_keys") {
        assert_eq!(text(key).parse::<PublicKey>(), Err(expected(name)), "{name}");
    }
    // Their further spellings: a sign on x = 0, and y + p where that still fits.
    let mut signed_identity = [0; 32];
    (signed_identity[0], signed_identity[31]) = (1, 0x80);
    assert_eq!(PublicKey::from_bytes(&signed_identity), Err(KeyError::SmallOrder));
    let mut largest = [0xff; 32];
    assert_eq!(PublicKey::from_bytes(&largest), Err(KeyError::NonCanonical));
    largest[0] = 0xec;
    assert_eq!(PublicKey::from_bytes(&largest), Err(KeyError::SmallOrder));
}

#[test]
fn claim_code_and_proof_are_those_of_the_vector() {
    let claim = &VECTORS["claim_code"];
    let device: PublicKey = text(&claim["device"]).parse().unwrap();
    let claimant: PublicKey = text(&claim["claimant"]).parse().unwrap();
    let id: Id = text(&claim["id"]).parse().unwrap();
    let salt: Salt = text(&claim["salt"]).parse().unwrap();
    let code = ClaimCode::derive(&device, &claimant, &id, &salt);
    assert_eq!(code.to_string(), text(&claim["code"]));
    let proof: Proof = text(&claim["proof"]).parse().unwrap();
    assert_eq!(pairing_secret().proof(&claimant, &id), proof);
    assert!(pairing_secret().check(&claimant, &id, &proof));
    for (key, id) in [(device, id), (claimant, Id::from_bytes([0x0e; 24]))] {
        assert!(!pairing_secret().check(&key, &id, &proof), "another key or id");
    }
}

#[test]
fn receipts_have_the_golden_bytes_hashes_and_signature() {
    let receipts = &VECTORS["receipts"];
    let golden = |name: &str| text(&receipts[name]);
    let device = public("device");
    let genesis = RecordHash::genesis(&device);
    assert_eq!(genesis.to_string(), golden("genesis_hex"));

    let cbor = hex(golden("receipt_cbor_hex"));
    let record = Record::from_cbor(&cbor).unwrap();
    assert_eq!(record.to_cbor(), cbor);
    assert_eq!(record.hash().to_string(), golden("receipt_sha256_hex"));
    assert_eq!((record.sequence, record.what.as_deref(), record.before), (1, Some("custom.acme.lamp"), genesis));

    let content = wire::cbor::from_slice(&hex(golden("content_cbor_hex"))).unwrap();
    assert_eq!(wire::cbor::to_vec(&content), hex(golden("content_cbor_hex")));
    let lamp: CapabilityName = "custom.acme.lamp".parse().unwrap();
    let arguments: Object = wire::json::parse(br#"{"level":40,"colour":"warm"}"#).unwrap();
    assert_eq!(content_digest(&lamp, &arguments).to_vec(), hex(golden("content_sha256_hex")));

    let head = hex(golden("head_cbor_hex"));
    let signature: Signature = golden("head_signature_b64url").parse().unwrap();
    device.verify(Domain::Receipts, &head, &signature).unwrap();
    let mut export = Export::begin(Vec::new());
    export.push(&cbor).unwrap();
    let bytes = export.finish(&secret("device"), 0x0000_01a0_c450_6fe8).unwrap();
    let end: Vec<u8> = [&[0x82, 0x58, head.len() as u8], &*head, &[0x58, 64], &signature.to_bytes()].concat();
    assert_eq!(bytes, [cbor, end].concat());
    assert_eq!(verify_export(&*bytes, Some(&device)).unwrap().count, 1);
}

#[test]
fn agents_and_capability_names_follow_their_grammar() {
    fn check<T: std::str::FromStr + std::fmt::Display>(section: &'static str) {
        for valid in VECTORS[section]["valid"].as_array().unwrap() {
            let read = text(valid).parse::<T>().unwrap_or_else(|_| panic!("{section}: {valid}"));
            assert_eq!(read.to_string(), text(valid));
        }
        for invalid in VECTORS[section]["invalid"].as_array().unwrap() {
            assert!(text(invalid).parse::<T>().is_err(), "{section}: {invalid}");
        }
    }
    check::<Agent>("agents");
    check::<CapabilityName>("capability_names");
}

#[test]
fn standard_base64_has_one_spelling_for_each_value() {
    for (spelling, bytes) in VECTORS["standard_base64"]["valid"].as_object().unwrap() {
        assert_eq!(base64_decode(spelling).unwrap(), hex(text(bytes)));
        assert_eq!(base64_encode(&hex(text(bytes))), *spelling);
    }
    for spelling in VECTORS["standard_base64"]["invalid"].as_array().unwrap() {
        assert!(base64_decode(text(spelling)).is_err(), "{spelling}");
    }
}
