//! Envelopes: sizes, who signed, and in which order things are looked at.

use wire::envelope::{BODY_BYTES_MAX, ENVELOPE_BYTES_MAX, RESULT_BODY_BYTES_MAX, Refused, Unopened, seal};
use wire::{ClaimantRequest, Envelope, Id, OwnerRequest};

use crate::vectors::{head, public, secret};

fn sealed(signer: &str, body: &[u8]) -> Vec<u8> {
    seal(&secret(signer), body).into_bytes()
}

#[test]
fn a_body_or_an_envelope_over_its_size_is_refused_before_anything_else() {
    let request = |bytes: usize| Envelope::parse(&sealed("owner", &vec![b' '; bytes])).map(drop);
    assert_eq!(request(BODY_BYTES_MAX), Ok(()));
    assert_eq!(request(BODY_BYTES_MAX + 1), Err(Refused::TooLarge));
    let result = |bytes: usize| Envelope::parse_result(&sealed("device", &vec![b' '; bytes])).map(drop);
    assert_eq!(result(RESULT_BODY_BYTES_MAX), Ok(()));
    assert_eq!(result(RESULT_BODY_BYTES_MAX + 1), Err(Refused::TooLarge));
    let padded = |bytes: usize| {
        let mut envelope = sealed("owner", b"{}");
        envelope.resize(bytes, b' ');
        Envelope::parse(&envelope).map(drop)
    };
    assert_eq!(padded(ENVELOPE_BYTES_MAX), Ok(()));
    assert_eq!(padded(ENVELOPE_BYTES_MAX + 1), Err(Refused::TooLarge));
}

#[test]
fn the_signature_is_looked_at_before_the_body_is_parsed() {
    let open = |signer: &str, body: &[u8]| match Envelope::parse(&sealed(signer, body))
        .unwrap()
        .open_owner(&public("owner"))
    {
        Ok(_) => "opened",
        Err(Unopened::Refused(refused)) => refused.label(),
        Err(Unopened::NotOwner(_)) => "not owner",
    };
    let good = OwnerRequest::Registration.to_body(&head());
    assert_eq!(open("owner", &good), "opened");
    for (body, reason) in [(&b"{not JSON}"[..], "json_syntax"), (b"{}", "member"), (br#"{"type":7}"#, "member")] {
        assert_eq!(open("owner", body), reason);
        assert_eq!(open("other", body), "not owner");
    }
    assert_eq!(open("other", &good), "not owner");
}

fn claim(key: &str) -> Vec<u8> {
    let proof = wire::PairingSecret::from_bytes([1; 16]).proof(&public(key), &head().id);
    let claim = ClaimantRequest::Claim { agent: "a@b.c.d".parse().unwrap(), key: public(key), proof };
    claim.to_body(&head())
}

#[test]
fn a_claim_counts_only_when_the_key_inside_it_signed_it_even_for_the_owner() {
    let open = |signer: &str, body: &[u8]| {
        let unopened =
            Envelope::parse(&sealed(signer, body)).unwrap().open_owner(&public("owner")).map(drop).unwrap_err();
        let Unopened::NotOwner(envelope) = unopened else { panic!("{unopened:?}") };
        let opened = envelope.open_claimant(|_| panic!("a claim asks for no key on record"));
        opened.map(|opened| opened.signer().clone())
    };
    assert_eq!(open("other", &claim("other")), Ok(public("other")));
    assert_eq!(open("owner", &claim("owner")), Ok(public("owner")));
    assert_eq!(open("owner", &claim("other")), Err(Refused::Signature));
    assert_eq!(open("other", &claim("owner")), Err(Refused::Signature));
}

#[test]
fn a_change_is_told_only_to_the_key_on_record_for_it() {
    let target = Id::from_bytes([0x2b; 24]);
    let body = ClaimantRequest::ChangeStatus { target }.to_body(&head());
    let open = |signer: &str, asked_by: Option<&str>| {
        let envelope = Envelope::parse(&sealed(signer, &body)).unwrap();
        let opened = envelope.open_claimant(|asked| {
            assert_eq!(*asked, target);
            asked_by.map(public)
        });
        opened.map(|opened| opened.into_parts().2)
    };
    assert_eq!(open("other", Some("other")), Ok(ClaimantRequest::ChangeStatus { target }));
    assert_eq!(open("other", Some("owner")), Err(Refused::Signature));
    assert_eq!(open("other", None), Err(Refused::NotAllowed));
}

#[test]
fn what_only_an_owner_signs_has_no_claimants_way() {
    for request in crate::messages::owner_requests() {
        let envelope = Envelope::parse(&sealed("other", &request.to_body(&head()))).unwrap();
        let opened = envelope.open_claimant(|_| None).map(drop);
        let expected = if request.type_name() == "change.status" { Refused::NotAllowed } else { Refused::Signature };
        assert_eq!(opened, Err(expected), "{}", request.type_name());
    }
    let ticket = Envelope::parse(&sealed("other", br#"{"type":"ticket"}"#)).unwrap();
    assert_eq!(ticket.open_claimant(|_| None).map(drop), Err(Refused::UnknownType("ticket".to_owned())));
}

#[test]
fn a_result_counts_only_from_the_pinned_device_and_is_no_request() {
    let answer = crate::messages::answer(Ok(wire::Object::new()));
    let open = |signer: &str| {
        Envelope::parse_result(&sealed(signer, &answer.to_body())).unwrap().open_answer(&public("device"))
    };
    assert_eq!(open("device").map(|opened| opened.message().clone()), Ok(answer.clone()));
    assert_eq!(open("other").map(drop), Err(Refused::Signature));
    let request = sealed("device", &OwnerRequest::Release.to_body(&head()));
    let opened = Envelope::parse_result(&request).unwrap().open_answer(&public("device"));
    assert_eq!(opened.map(drop), Err(Refused::UnknownType("release".to_owned())));
    let unopened = Envelope::parse(&sealed("owner", &answer.to_body())).unwrap().open_owner(&public("owner"));
    assert!(matches!(unopened, Err(Unopened::Refused(Refused::UnknownType(kind))) if kind == "result"));
}

#[test]
fn white_space_and_escapes_in_an_envelope_change_nothing() {
    let plain = String::from_utf8(sealed("owner", &OwnerRequest::Release.to_body(&head()))).unwrap();
    let spelled = format!(" {}\r\n", plain.replace("\"body\":\"e", "\"\\u0062ody\" :\t\"\\u0065"));
    assert_ne!(plain, spelled);
    assert_eq!(crate::vectors::receive(spelled.as_bytes()), crate::vectors::receive(plain.as_bytes()));
    let twice = plain.replace("\"signature\"", "\"\\u0062ody\":\"\",\"signature\"");
    assert_eq!(crate::vectors::receive(twice.as_bytes()).unwrap_err().label(), "envelope");
}

#[test]
fn every_reason_has_a_label_of_its_own() {
    let all = [
        Refused::TooLarge,
        Refused::Envelope(String::new()),
        Refused::Base64 { member: "body", flaw: wire::text::TextError::Base64Url },
        Refused::Signature,
        Refused::Member { member: String::new(), reason: String::new() },
        Refused::UnknownType(String::new()),
        Refused::WrongTo,
        Refused::NotAllowed,
        Refused::Proof,
        Refused::Challenge,
        Refused::Expired,
        Refused::Spent,
        Refused::Superseded,
        Refused::Full,
    ];
    insta::assert_snapshot!(all.each_ref().map(Refused::label).join(" "), @"too_large envelope base64 signature member unknown_type wrong_to not_allowed proof challenge challenge_expired challenge_spent superseded full");
}
