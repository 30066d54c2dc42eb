use std::collections::BTreeSet;
use std::io::Error;

use super::*;

/// What is said of `failure`, when the kitchen was asked for a picture.
fn said(failure: &Failure, claim: bool) -> String {
    let address = Address { tls: true, host: "192.0.2.7".to_owned(), port: 7601 };
    let capability = "camera.snapshot".parse().unwrap();
    explain(failure, &Attempt { device: "kitchen", address: Some(&address), capability: Some(&capability), claim })
}

#[test]
fn each_way_not_to_reach_a_device_has_a_sentence_of_its_own() {
    let io = || Error::from(std::io::ErrorKind::ConnectionReset);
    let all = [
        LinkError::NoSuchHost("kitchn".to_owned()),
        LinkError::NothingListens(io()),
        LinkError::NoWay(io()),
        LinkError::NotTls,
        LinkError::NoHandshake(io()),
        LinkError::TlsRefused(rustls::Error::HandshakeNotComplete),
        LinkError::WrongKey,
        LinkError::KeyNotHeld,
        LinkError::TimedOut(Step::Connect),
        LinkError::TimedOut(Step::Head),
        LinkError::TimedOut(Step::Body),
        LinkError::TimedOut(Step::Total),
        LinkError::Broken(Box::new(io())),
        LinkError::TooLarge { max: 7 },
        LinkError::NotADevice(404),
        LinkError::NotTheLink,
        LinkError::HostRefused,
        LinkError::Forbidden,
    ];
    let count = all.len();
    let sentences: BTreeSet<String> = all.into_iter().map(|error| said(&Failure::Link(error), false)).collect();
    assert_eq!(sentences.len(), count, "{sentences:#?}");
    let claim = said(&Failure::Link(LinkError::Forbidden), true);
    assert!(!sentences.contains(&claim) && claim.contains("latchkeyd pair"), "{claim}");
}

#[test]
fn each_refusal_has_a_sentence_of_its_own_and_cannot_steer_a_terminal() {
    let sentences: BTreeSet<String> = ErrorCode::ALL
        .iter()
        .map(|code| said(&Failure::Refused(Refusal::new(*code, "\u{1b}]0;x\u{7}\u{202e}said")), false))
        .collect();
    assert_eq!(sentences.len(), ErrorCode::ALL.len(), "{sentences:#?}");
    for sentence in &sentences {
        assert!(!sentence.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{sentence:?}");
        assert!(!sentence.ends_with('.') && sentence.contains("kitchen") || sentence.contains("this id"), "{sentence}");
    }
    let denied = said(&Failure::Refused(Refusal::new(ErrorCode::Denied, "off")), false);
    assert_eq!(denied, "camera is not granted on kitchen; at the device run: latchkeyd grant camera");
}
