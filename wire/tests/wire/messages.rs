//! Requests and results: each is written and read back as itself, and nothing undefined passes.

use wire::answer::{MESSAGE_BYTES_MAX, Mismatch};
use wire::envelope::{Refused, Unopened, seal};
use wire::json::Value;
use wire::request::{LEASE_MS_MAX, LEASE_MS_MIN};
use wire::{Answer, ClaimantRequest, Envelope, ErrorCode, Id, Lease, Object, OwnerRequest, Refusal};

use crate::vectors::{head, public, secret};

/// One of each. The match makes a new request break this build.
pub(crate) fn owner_requests() -> Vec<OwnerRequest> {
    let target = Id::from_bytes([0x2b; 24]);
    let mut arguments = Object::new();
    arguments.insert("text", "Grüße \u{0}\"\\");
    let all = vec![
        OwnerRequest::ChangeStatus { target },
        OwnerRequest::Registration,
        OwnerRequest::Activate { lease: Lease::from_ms(90_000).unwrap() },
        OwnerRequest::Deactivate,
        OwnerRequest::Invoke { capability: "display.text".parse().unwrap(), arguments },
        OwnerRequest::Cancel { target },
        OwnerRequest::Inputs { after: 17 },
        OwnerRequest::Transfer { agent: "a@b.c.d".parse().unwrap(), key: public("other") },
        OwnerRequest::Release,
    ];
    for request in &all {
        match request {
            OwnerRequest::ChangeStatus { .. }
            | OwnerRequest::Registration
            | OwnerRequest::Activate { .. }
            | OwnerRequest::Deactivate
            | OwnerRequest::Invoke { .. }
            | OwnerRequest::Cancel { .. }
            | OwnerRequest::Inputs { .. }
            | OwnerRequest::Transfer { .. }
            | OwnerRequest::Release => {}
        }
    }
    all
}

pub(crate) fn answer(outcome: Result<Object, Refusal>) -> Answer {
    Answer { id: head().id, challenge: head().challenge, to: public("owner"), outcome }
}

fn open(body: &[u8]) -> Result<OwnerRequest, Refused> {
    match Envelope::parse(seal(&secret("owner"), body).as_bytes())?.open_owner(&public("owner")) {
        Ok(opened) => Ok(opened.into_parts().2),
        Err(Unopened::Refused(refused)) => Err(refused),
        Err(Unopened::NotOwner(_)) => Err(Refused::Signature),
    }
}

fn open_answer(body: &[u8]) -> Result<Answer, Refused> {
    let envelope = Envelope::parse_result(seal(&secret("device"), body).as_bytes())?;
    envelope.open_answer(&public("device")).map(|opened| opened.into_parts().2)
}

/// The same body with each member left out, each doubled in another type, and one added.
fn spoiled(body: &[u8]) -> Vec<Vec<u8>> {
    let whole = wire::json::parse(body).unwrap();
    let mut all = Vec::new();
    for (name, value) in &whole {
        if name != "arguments" {
            let mut without = whole.clone().into_map();
            without.shift_remove(name);
            all.push(Object::from(without).to_vec());
        }
        for other in
            [Value::Null, Value::from(-1), Value::from(1.5), Value::from(vec![value.clone()]), Value::from("\u{0}")]
        {
            let mut changed = whole.clone();
            changed.insert(name.as_str(), other);
            all.push(changed.to_vec());
        }
    }
    let mut more = whole;
    more.insert("approved", true);
    all.push(more.to_vec());
    all
}

#[test]
fn every_request_is_read_back_as_itself_and_refused_with_any_member_spoiled() {
    for request in owner_requests() {
        let body = request.to_body(&head());
        assert_eq!(open(&body).as_ref(), Ok(&request));
        for body in spoiled(&body) {
            let refused = open(&body).unwrap_err();
            assert!(matches!(refused, Refused::Member { .. } | Refused::UnknownType(_)), "{refused}");
        }
    }
}

#[test]
fn every_claimants_request_is_read_back_as_itself_and_refused_with_any_member_spoiled() {
    let proof = wire::PairingSecret::from_bytes([1; 16]).proof(&public("other"), &head().id);
    let claim = ClaimantRequest::Claim { agent: "a@b.c.d".parse().unwrap(), key: public("other"), proof };
    for request in [claim, ClaimantRequest::ChangeStatus { target: head().id }] {
        let open = |body: &[u8]| {
            let envelope = Envelope::parse(seal(&secret("other"), body).as_bytes())?;
            envelope.open_claimant(|_| Some(public("other"))).map(|opened| opened.into_parts().2)
        };
        let body = request.to_body(&head());
        assert_eq!(open(&body).as_ref(), Ok(&request));
        for body in spoiled(&body) {
            let refused = open(&body).unwrap_err();
            assert!(matches!(refused, Refused::Member { .. } | Refused::UnknownType(_)), "{refused}");
        }
    }
}

#[test]
fn empty_arguments_are_left_out_and_read_as_empty() {
    let health = OwnerRequest::Invoke { capability: "device.health".parse().unwrap(), arguments: Object::new() };
    let body = health.to_body(&head());
    assert!(!String::from_utf8(body.clone()).unwrap().contains("arguments"));
    assert_eq!(open(&body), Ok(health.clone()));
    let mut spelled = wire::json::parse(&body).unwrap();
    spelled.insert("arguments", Object::new());
    assert_eq!(open(&spelled.to_vec()), Ok(health));
}

#[test]
fn a_lease_stays_within_its_limits() {
    for (lease_ms, good) in
        [(LEASE_MS_MIN - 1, false), (LEASE_MS_MIN, true), (LEASE_MS_MAX, true), (LEASE_MS_MAX + 1, false)]
    {
        assert_eq!(Lease::from_ms(lease_ms).map(Lease::as_ms), good.then_some(lease_ms));
    }
}

#[test]
fn a_refusal_repeats_nothing_of_what_was_sent() {
    let mut body = wire::json::parse(&OwnerRequest::Inputs { after: 1 }.to_body(&head())).unwrap();
    body.insert("after", "my secret");
    let refused = open(&body.to_vec()).unwrap_err();
    insta::assert_snapshot!(refused.to_string(), @"member after: must be an integer from 0 on");
}

#[test]
fn every_result_is_read_back_as_itself_and_refused_with_any_member_spoiled() {
    let mut value = Object::new();
    value.insert("lease_ms", 90_000);
    let outcomes = ErrorCode::ALL.iter().map(|error| Err(Refusal::new(*error, "not now"))).chain([Ok(value)]);
    for outcome in outcomes {
        let answer = answer(outcome);
        assert_eq!(open_answer(&answer.to_body()).as_ref(), Ok(&answer));
        for body in spoiled(&answer.to_body()) {
            let text = String::from_utf8_lossy(&body).into_owned();
            if !text.contains(r#""message":"\u0000""#) {
                assert!(open_answer(&body).is_err(), "{text}");
            }
        }
    }
    assert_eq!(ErrorCode::ALL.len(), 15);
    for code in ErrorCode::ALL {
        assert_eq!(code.as_str().parse(), Ok(*code));
    }
}

#[test]
fn a_message_for_people_is_one_line_of_at_most_500_bytes() {
    let message = |text: &str| {
        let body = answer(Err(Refusal::new(ErrorCode::Failed, text))).to_body();
        open_answer(&body).unwrap().outcome.unwrap_err().message
    };
    assert_eq!(message("two\r\nlines\u{2028}\u{1b}[2J"), "two  lines  [2J");
    assert_eq!(message(&"ö".repeat(300)), "ö".repeat(MESSAGE_BYTES_MAX / 2));
    assert_eq!(message(&format!("a{}", "ö".repeat(300))).len(), MESSAGE_BYTES_MAX - 1);
}

#[test]
fn a_result_belongs_to_its_request_only_with_the_same_id_challenge_and_key() {
    let answer = answer(Ok(Object::new()));
    let other_id = wire::Head { id: Id::from_bytes([1; 24]), ..head() };
    let other_challenge = wire::Head { challenge: wire::Challenge::from_bytes([1; 24]), ..head() };
    let rows = [
        (head(), "owner", Ok(())),
        (other_id, "owner", Err(Mismatch::Id)),
        (other_challenge, "owner", Err(Mismatch::Challenge)),
        (head(), "other", Err(Mismatch::To)),
    ];
    for (head, to, expected) in rows {
        assert_eq!(answer.matches(&head, &public(to)), expected);
    }
}
