//! Every invalid request of the published vectors, made anew around a fresh challenge and sent to `latchkeyd` over HTTP: 403 for
//! all of them alike, nothing changed, the reason in the log, and the very same challenge then serves the request that differs
//! only in the flaw.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use hmac::{Hmac, KeyInit as _, Mac as _};
use latchkey_tests::{Agent, Daemon, Keeper, Line, Room, Start};
use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};
use serde_json::{Value, json};
use sha2::Sha256;
use wire::text::{base64url_decode, base64url_encode};
use wire::{Challenge, Domain, Id, PairingSecret, SecretKey, Signature, Signer as _};

static VECTORS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../wire/tests/vectors/device-link-v1.json")).unwrap());

/// The challenge that stands in all vectors.
const VECTORS_CHALLENGE: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";

/// The order of the group, little-endian: added to S, it gives the second spelling of a signature.
const GROUP_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// How a case is made anew.
#[derive(Clone, Copy)]
enum Flaw {
    /// In the body; the owner signs it well.
    Body,
    /// In the body of a claim; the claimant signs it well, and the proof fits the secret on the screen.
    Claim(Proof),
    /// The owner's signature has S + L.
    BigS,
    /// Another key signed.
    OtherKey,
    /// The body was signed without the domain.
    NoDomain,
    /// The body was signed for another domain.
    OtherDomain,
    /// The envelope's text was changed after it was well made.
    Envelope(fn(&mut Value)),
    /// The signature in the standard alphabet; only a signature with a letter of its own shows it.
    StandardAlphabet,
}

/// What stands in a claim as its proof.
#[derive(Clone, Copy)]
enum Proof {
    /// The right one for the key in the claim.
    Right,
    /// The right one for another key.
    OfOther,
    None,
}

/// Each case, the reason in the log, how it is made, and the request of the vectors that differs only in the flaw.
const CASES: &[(&str, &str, Flaw, &str)] = &[
    ("signature has non-canonical S (S + L)", "signature", Flaw::BigS, "registration"),
    ("signature by another key", "signature", Flaw::OtherKey, "registration"),
    ("signature without the domain", "signature", Flaw::NoDomain, "registration"),
    ("signature under another domain", "signature", Flaw::OtherDomain, "registration"),
    (
        "signature 63 bytes",
        "base64",
        Flaw::Envelope(|envelope| edit(envelope, "signature", |text| text.truncate(84))),
        "registration",
    ),
    (
        "body padded with =",
        "base64",
        Flaw::Envelope(|envelope| edit(envelope, "body", |text| text.push_str("=="))),
        "registration",
    ),
    ("body in the standard alphabet", "base64", Flaw::StandardAlphabet, "inputs"),
    (
        "signature with set trailing bits",
        "base64",
        Flaw::Envelope(|envelope| edit(envelope, "signature", set_trailing_bits)),
        "registration",
    ),
    (
        "signature with a trailing newline",
        "base64",
        Flaw::Envelope(|envelope| edit(envelope, "signature", |text| text.push('\n'))),
        "registration",
    ),
    (
        "envelope has a third member",
        "envelope",
        Flaw::Envelope(|envelope| envelope["key"] = VECTORS["keys"]["owner"].clone()),
        "registration",
    ),
    (
        "envelope lacks signature",
        "envelope",
        Flaw::Envelope(|envelope| drop(envelope.as_object_mut().unwrap().remove("signature"))),
        "registration",
    ),
    ("envelope body is a number", "envelope", Flaw::Envelope(|envelope| envelope["body"] = json!(7)), "registration"),
    ("body has a BOM", "json_bom", Flaw::Body, "registration"),
    ("body has a duplicate member", "json_duplicate", Flaw::Body, "registration"),
    ("body has a duplicate member by escape", "json_duplicate", Flaw::Body, "registration"),
    ("arguments have a duplicate member", "json_duplicate", Flaw::Body, "invoke display.text"),
    ("body has an unknown member", "member", Flaw::Body, "registration"),
    ("body is followed by more", "json_trailing", Flaw::Body, "registration"),
    ("body is an array", "json_not_object", Flaw::Body, "registration"),
    ("body is not UTF-8", "json_utf8", Flaw::Body, "registration"),
    ("body holds a lone surrogate", "json_surrogate", Flaw::Body, "invoke display.text"),
    ("body nests deeper than 16", "json_depth", Flaw::Body, "invoke with 16 containers"),
    ("17 containers", "json_depth", Flaw::Body, "invoke with 16 containers"),
    ("integer beyond 53 bits", "json_number", Flaw::Body, "inputs"),
    ("integer written as a float", "member", Flaw::Body, "inputs"),
    ("integer with an exponent", "member", Flaw::Body, "inputs"),
    ("negative zero", "json_number", Flaw::Body, "inputs"),
    ("number is NaN", "json_number", Flaw::Body, "inputs"),
    ("negative after", "member", Flaw::Body, "inputs"),
    ("id in upper case", "member", Flaw::Body, "registration"),
    ("id too short", "member", Flaw::Body, "registration"),
    ("id missing", "member", Flaw::Body, "registration"),
    ("to is another device", "wrong_to", Flaw::Body, "registration"),
    ("to carries padding", "member", Flaw::Body, "registration"),
    ("unknown type", "unknown_type", Flaw::Body, "registration"),
    ("type with a different case", "unknown_type", Flaw::Body, "registration"),
    ("capability name with a slash", "member", Flaw::Body, "invoke custom"),
    ("capability name with an empty part", "member", Flaw::Body, "invoke custom"),
    ("arguments is a string", "member", Flaw::Body, "invoke display.text"),
    ("arguments is null", "member", Flaw::Body, "invoke without arguments"),
    ("lease_ms under the minimum", "member", Flaw::Body, "activate"),
    ("lease_ms over the maximum", "member", Flaw::Body, "activate"),
    ("claim of a small-order key", "member", Flaw::Claim(Proof::Right), "claim"),
    ("claim without proof", "member", Flaw::Claim(Proof::None), "claim"),
    ("claim with another's proof", "proof", Flaw::Claim(Proof::OfOther), "claim"),
    ("empty body", "json_syntax", Flaw::Body, "registration"),
];

/// The log names at most twenty refusals a second in full, so each start of a daemon is asked fewer.
const CASES_A_DAEMON: usize = 16;

#[test]
fn the_table_names_exactly_the_cases_of_the_vectors() {
    let known: BTreeSet<_> = CASES.iter().map(|(name, ..)| *name).collect();
    let cases = VECTORS["invalid_requests"]["cases"].as_object().unwrap();
    assert_eq!(known, cases.keys().map(String::as_str).collect());
    assert_eq!(known.len(), CASES.len(), "no case twice");
}

#[test]
fn every_invalid_request_of_an_owner_is_403_changes_nothing_and_spends_nothing() {
    let owners: Vec<_> = CASES.iter().filter(|(_, _, flaw, _)| !matches!(flaw, Flaw::Claim(_))).collect();
    for cases in owners.chunks(CASES_A_DAEMON) {
        let (_room, daemon) = device();
        owner().own(&daemon.line(), &daemon.keeper());
        for (name, reason, flaw, control) in cases {
            let challenge = challenge_for(&daemon.line(), *flaw);
            let flawed = remade(name, *flaw, &challenge, None);
            check(name, reason, &daemon, &flawed, &remade_control(control, &challenge, None));
        }
        daemon.keeper().verify();
    }
}

#[test]
fn every_invalid_claim_is_403_changes_nothing_and_spends_nothing() {
    let (_room, daemon) = device();
    let secret = daemon.keeper().pair();
    for (name, reason, flaw, control) in CASES.iter().filter(|(_, _, flaw, _)| matches!(flaw, Flaw::Claim(_))) {
        let challenge = daemon.line().challenge();
        let flawed = remade(name, *flaw, &challenge, Some(&secret));
        check(name, reason, &daemon, &flawed, &remade_control(control, &challenge, Some(&secret)));
    }
    let asked = daemon.keeper().claims();
    assert_eq!(
        (asked.len(), asked[0].agent.as_str()),
        (1, "kitchen-helper@home.example.org"),
        "one claim, that of the controls"
    );
}

/// What must not change: everything that the keeper sees, but the clock.
fn standing(keeper: &Keeper) -> impl PartialEq + std::fmt::Debug + use<> {
    let status = keeper.status();
    let claims: Vec<_> = keeper.claims().into_iter().map(|claim| (claim.id, claim.state)).collect();
    (
        status.owner,
        status.ownership,
        status.active_until,
        status.pairing_until,
        status.grants_on,
        status.journal,
        claims,
    )
}

fn check(name: &str, reason: &str, daemon: &Daemon, flawed: &[u8], control: &[u8]) {
    let (line, keeper) = (daemon.line(), daemon.keeper());
    let (before, known) = (standing(&keeper), daemon.err.count());
    let reply = line.post(flawed);
    assert!(reply.is_forbidden(), "{name}: {reply:?}");
    let named = format!("reason=\"{reason}\"");
    let logged = daemon.err.find_after(known, |log| log.contains("request refused"));
    assert!(logged.as_deref().is_some_and(|log| log.contains(&named)), "{name}: {named} is not in {logged:?}");
    assert_eq!(standing(&keeper), before, "{name}");
    let accepted = line.post(control);
    assert_eq!(accepted.status, 200, "{name}: its control, under the same challenge: {accepted:?}");
    let _signed = accepted.outcome(&line.device);
}

/// A daemon with the key of the vectors.
fn device() -> (Room, Daemon) {
    let room = Room::new();
    room.place_key(&seed("device"));
    let daemon = Start::simulated(&room).up();
    assert_eq!(daemon.line().device.to_string(), VECTORS["keys"]["device"].as_str().unwrap());
    (room, daemon)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn seed(name: &str) -> [u8; 32] {
    hex(VECTORS["seeds_hex"][name].as_str().unwrap()).try_into().unwrap()
}

fn owner() -> Agent {
    Agent::from_seed("kitchen-helper@home.example.org", &seed("owner"))
}

fn challenge_for(line: &Line, flaw: Flaw) -> Challenge {
    let shows = |challenge: &Challenge| {
        let sealed = sealed(&owner().key, &renewed(&body_of(&VECTORS["requests"]["inputs"]["envelope"]), challenge));
        sealed["signature"].as_str().unwrap().contains(['-', '_'])
    };
    loop {
        let challenge = line.challenge();
        if !matches!(flaw, Flaw::StandardAlphabet) || shows(&challenge) {
            return challenge;
        }
    }
}

fn body_of(envelope: &Value) -> Vec<u8> {
    // The padded vector is read here without its padding; the flaw is put back when it is made anew.
    base64url_decode(envelope["body"].as_str().unwrap_or_default().trim_end_matches('=')).unwrap()
}

/// The body with another challenge in it.
fn renewed(body: &[u8], challenge: &Challenge) -> Vec<u8> {
    let old = VECTORS_CHALLENGE.as_bytes();
    match body.windows(old.len()).position(|window| window == old) {
        None => body.to_vec(),
        Some(at) => [&body[..at], challenge.to_string().as_bytes(), &body[at + old.len()..]].concat(),
    }
}

fn enveloped(body: &[u8], signature: &Signature) -> Value {
    json!({ "body": base64url_encode(body), "signature": signature.to_string() })
}

fn sealed(key: &SecretKey, body: &[u8]) -> Value {
    enveloped(body, &key.sign(Domain::Link, body))
}

/// Where the flaw is not in the body, the body is that of the control.
fn remade(name: &str, flaw: Flaw, challenge: &Challenge, secret: Option<&PairingSecret>) -> Vec<u8> {
    let vector = &VECTORS["invalid_requests"]["cases"][name];
    let good = || renewed(&body_of(&VECTORS["requests"][control_of(name)]["envelope"]), challenge);
    let key = owner().key;
    let envelope = match flaw {
        Flaw::Body => sealed(&key, &renewed(&body_of(vector), challenge)),
        Flaw::Claim(proof) => sealed(&key, &claim(&renewed(&body_of(vector), challenge), proof, secret.unwrap())),
        Flaw::BigS => {
            let body = good();
            let mut signature = key.sign(Domain::Link, &body).to_bytes();
            add_order(&mut signature);
            enveloped(&body, &Signature::from_bytes(&signature))
        }
        Flaw::OtherKey => sealed(&SecretKey::from_seed(&seed("other")), &good()),
        Flaw::NoDomain => {
            let body = good();
            enveloped(&body, &bare_signature(&seed("owner"), &body))
        }
        Flaw::OtherDomain => {
            let body = good();
            enveloped(&body, &key.sign(Domain::Receipts, &body))
        }
        Flaw::Envelope(change) => {
            let mut envelope = sealed(&key, &good());
            change(&mut envelope);
            envelope
        }
        Flaw::StandardAlphabet => {
            let mut envelope = sealed(&key, &good());
            edit(&mut envelope, "signature", |text| *text = text.replace('-', "+").replace('_', "/"));
            envelope
        }
    };
    envelope.to_string().into_bytes()
}

fn control_of(name: &str) -> &'static str {
    CASES.iter().find(|(case, ..)| *case == name).unwrap().3
}

fn remade_control(name: &str, challenge: &Challenge, secret: Option<&PairingSecret>) -> Vec<u8> {
    let mut body = renewed(&body_of(&VECTORS["requests"][name]["envelope"]), challenge);
    if let Some(secret) = secret {
        body = claim(&body, Proof::Right, secret);
    }
    sealed(&owner().key, &body).to_string().into_bytes()
}

/// A claim of the vectors with a proof for the secret that this device drew.
fn claim(body: &[u8], proof: Proof, secret: &PairingSecret) -> Vec<u8> {
    let mut message: Value = serde_json::from_slice(body).unwrap();
    let id: Id = message["id"].as_str().unwrap().parse().unwrap();
    let key = match proof {
        Proof::None => return body.to_vec(),
        Proof::Right => message["key"].as_str().unwrap().to_owned(),
        Proof::OfOther => VECTORS["keys"]["other"].as_str().unwrap().to_owned(),
    };
    message["proof"] = json!(base64url_encode(&proof_of(secret, &base64url_decode(&key).unwrap(), &id)));
    message.to_string().into_bytes()
}

/// The proof, also for bytes that are no key.
fn proof_of(secret: &PairingSecret, key: &[u8], id: &Id) -> Vec<u8> {
    let secret = base64url_decode(&secret.expose()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).unwrap();
    for part in [b"latchkey-pair/1\0".as_slice(), key, id.as_bytes()] {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn edit(envelope: &mut Value, member: &str, change: impl FnOnce(&mut String)) {
    let mut text = envelope[member].as_str().unwrap().to_owned();
    change(&mut text);
    envelope[member] = json!(text);
}

/// The last letter stands for two bits and four that must be zero; the next letter has one of those set.
fn set_trailing_bits(text: &mut String) {
    let last = text.pop().unwrap();
    text.push(char::from(last as u8 + 1));
    assert!("AQgw".contains(last), "64 bytes end in two bits");
}

fn add_order(signature: &mut [u8; 64]) {
    let mut carry = 0;
    for (digit, order) in signature[32..].iter_mut().zip(GROUP_ORDER) {
        carry += u16::from(*digit) + u16::from(order);
        *digit = u8::try_from(carry & 0xff).unwrap();
        carry >>= 8;
    }
    assert_eq!(carry, 0, "S + L fits");
}

/// A signature over the bytes alone, by a library that knows no domains.
fn bare_signature(seed: &[u8; 32], message: &[u8]) -> Signature {
    let pkcs8 = [&hex("302e020100300506032b657004220420"), seed.as_slice()].concat();
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.as_slice().into(), &PKCS_ED25519).unwrap();
    let bytes: [u8; 64] = key.sign(message).unwrap().try_into().unwrap();
    Signature::from_bytes(&bytes)
}

#[test]
fn the_signature_without_the_domain_lacks_nothing_else() {
    let (body, key) = (b"{}", owner().key);
    let prefixed = [VECTORS["domain_hex"].as_str().map(hex).unwrap(), body.to_vec()].concat();
    assert_eq!(bare_signature(&seed("owner"), &prefixed), key.sign(Domain::Link, body));
}
