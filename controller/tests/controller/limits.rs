//! Devices that never end, send too much, or are not there.

use std::time::{Duration, Instant};

use latchkey_controller::link::{LinkError, Step};
use latchkey_controller::{Failure, Kind};
use wire::envelope::RESULT_ENVELOPE_BYTES_MAX;

use crate::bench::{bench_with, short};
use crate::fake::{Fake, Fault};

fn label(failure: &Failure) -> &'static str {
    match failure {
        Failure::Link(LinkError::TimedOut(Step::Head)) => "head",
        Failure::Link(LinkError::TimedOut(Step::Body)) => "body",
        Failure::Link(LinkError::TooLarge { max: RESULT_ENVELOPE_BYTES_MAX }) => "too large",
        Failure::Link(LinkError::NotADevice(307)) => "redirect",
        Failure::Link(LinkError::NotTheLink) => "not http",
        Failure::Link(LinkError::NothingListens(_)) => "nothing listens",
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_never_ends_or_sends_too_much_is_cut_off() {
    let fake = Fake::plain().await;
    let bench = bench_with(short());
    let key = bench.own(&fake, "kitchen").await;
    for (fault, named) in [
        (Fault::TrickleHead, "head"),
        (Fault::TrickleBody, "body"),
        (Fault::Oversize, "too large"),
        (Fault::Redirect, "redirect"),
        (Fault::NotHttp, "not http"),
    ] {
        fake.state().fault = fault;
        let started = Instant::now();
        let failure = bench.controller.registration(&key).await.unwrap_err();
        assert_eq!(label(&failure), named);
        assert_eq!(failure.kind(), Kind::Unreachable);
        assert!(started.elapsed() < Duration::from_secs(20), "{named}");
        fake.state().fault = Fault::None;
        bench.controller.registration(&key).await.unwrap();
    }
}

#[tokio::test]
async fn a_device_that_is_gone_is_unreachable() {
    let mut fake = Fake::plain().await;
    let bench = bench_with(short());
    let key = bench.own(&fake, "kitchen").await;
    fake.stop().await;
    let failure = bench.controller.registration(&key).await.unwrap_err();
    assert_eq!(label(&failure), "nothing listens");
}
