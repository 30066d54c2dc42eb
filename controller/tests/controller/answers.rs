//! Answers that do not count (section 11), each beside one that does.

use latchkey_controller::failure::AnswerError;
use latchkey_controller::values::ValueError;
use latchkey_controller::{Failure, Kind, WhenIdle};
use serde_json::{Value, json};
use wire::answer::{ErrorCode, Mismatch};
use wire::envelope::Refused;

use crate::bench::bench;
use crate::fake::{Fake, Fault, JPEG};
use crate::life::{invocation, lease};

fn label(failure: &Failure) -> String {
    match failure {
        Failure::Answer(AnswerError::Envelope(Refused::Signature)) => "signature".to_owned(),
        Failure::Answer(AnswerError::Envelope(_)) => "envelope".to_owned(),
        Failure::Answer(AnswerError::Mismatch(Mismatch::Id)) => "id".to_owned(),
        Failure::Answer(AnswerError::Mismatch(Mismatch::Challenge)) => "challenge".to_owned(),
        Failure::Answer(AnswerError::Mismatch(Mismatch::To)) => "to".to_owned(),
        Failure::Answer(AnswerError::OtherKey) => "other device".to_owned(),
        Failure::OutcomeUnknown { cause, .. } => format!("unknown: {}", label(cause)),
        other => format!("{other}"),
    }
}

const FAULTS: [(Fault, &str); 5] = [
    (Fault::WrongId, "id"),
    (Fault::WrongChallenge, "challenge"),
    (Fault::WrongTo, "to"),
    (Fault::WrongKey, "signature"),
    (Fault::NoEnvelope, "envelope"),
];

#[tokio::test]
async fn an_answer_counts_only_for_its_request_and_from_its_device() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    for (fault, named) in FAULTS.into_iter().chain([(Fault::OtherRegistration, "other device")]) {
        fake.state().fault = fault;
        let failure = bench.controller.registration(&key).await.unwrap_err();
        assert_eq!(label(&failure), named);
        assert_eq!(failure.kind(), Kind::Failed);
        fake.state().fault = Fault::None;
        bench.controller.registration(&key).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_without_an_answer_that_counts_has_an_unknown_outcome() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    bench.controller.activate(&key, lease()).await.unwrap();
    bench.controller.registration(&key).await.unwrap();
    for (number, (fault, named)) in FAULTS.into_iter().chain([(Fault::Break, "the connection broke")]).enumerate() {
        fake.state().fault = fault;
        let text = invocation(&bench, "display.text", json!({"text": fault_name(fault)}));
        let failure = bench.controller.invoke(&key, &text, WhenIdle::Refuse).await.unwrap_err();
        assert_eq!(label(&failure), format!("unknown: {named}"));
        assert_eq!(failure.kind(), Kind::Unknown);
        assert_eq!(fake.state().shown.len(), number + 1, "it was done, once");
        // The control: a read that is lost the same way changed nothing.
        let health = invocation(&bench, "device.health", json!({}));
        let failure = bench.controller.invoke(&key, &health, WhenIdle::Refuse).await.unwrap_err();
        assert_eq!(label(&failure), named);
        fake.state().fault = Fault::None;
        bench.controller.invoke(&key, &health, WhenIdle::Refuse).await.unwrap();
    }
    // Refused at the gate: certainly not done.
    fake.state().fault = Fault::Forbidden;
    let text = invocation(&bench, "display.text", json!({"text": "x"}));
    let failure = bench.controller.invoke(&key, &text, WhenIdle::Refuse).await.unwrap_err();
    assert_eq!(failure.kind(), Kind::Refused);
}

fn fault_name(fault: Fault) -> String {
    format!("{fault:?}")
}

#[tokio::test]
async fn a_picture_counts_only_if_it_is_what_it_says() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    let encode = wire::text::base64_encode;
    let too_large = [JPEG, vec![0; 1024 * 1024].as_slice()].concat();
    let largest = [JPEG, vec![0; 1024 * 1024 - JPEG.len()].as_slice()].concat();
    let picture = |mime: &str, data: String| json!({"mime": mime, "data": data, "future": 1});
    let rows: [(Value, Result<(), ValueError>); 7] = [
        (picture("image/jpeg", encode(JPEG)), Ok(())),
        (picture("image/jpeg", encode(&largest)), Ok(())),
        (picture("image/png", encode(JPEG)), Err(ValueError::Mime { got: "image/png".to_owned(), want: "image/jpeg" })),
        (picture("image/jpeg", encode(b"\x89PNG\r\n\x1a\n")), Err(ValueError::Magic("image/jpeg"))),
        (picture("image/jpeg", encode(JPEG).replace('=', "")), Err(ValueError::Base64)),
        (json!({"mime": "image/jpeg"}), Err(ValueError::Base64)),
        (picture("image/jpeg", encode(&too_large)), Err(ValueError::TooLarge(too_large.len()))),
    ];
    for (value, expected) in rows {
        fake.state().snapshot = Some(value);
        let snapshot = invocation(&bench, "camera.snapshot", json!({}));
        match (bench.controller.invoke(&key, &snapshot, WhenIdle::Activate(lease())).await, expected) {
            (Ok(_), Ok(())) => {}
            (Err(Failure::Value(found)), Err(expected)) => assert_eq!(found, expected),
            (found, expected) => panic!("{found:?} where {expected:?} is due"),
        }
    }
}

#[tokio::test]
async fn each_refusal_has_its_exit_code() {
    let fake = Fake::plain().await;
    let bench = bench();
    let key = bench.own(&fake, "kitchen").await;
    for code in ErrorCode::ALL {
        fake.state().refuse = Some(*code);
        let failure = bench.controller.registration(&key).await.unwrap_err();
        let expected = match code {
            ErrorCode::HardwareUnavailable | ErrorCode::Failed | ErrorCode::Cancelled => 1,
            ErrorCode::Timeout => 4,
            ErrorCode::UnknownOutcome => 5,
            ErrorCode::Denied
            | ErrorCode::NotActive
            | ErrorCode::Unsupported
            | ErrorCode::InvalidArguments
            | ErrorCode::Busy
            | ErrorCode::IdReused
            | ErrorCode::InProgress
            | ErrorCode::RateLimited
            | ErrorCode::Conflict
            | ErrorCode::StorageFull => 3,
        };
        assert_eq!(failure.kind().exit_code(), expected, "{code:?}");
    }
}
