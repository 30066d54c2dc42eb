use std::sync::Arc;

use handlers::Sign;
use wire::Signer;
use wire::record::verify_export;
use wire::text::base64_decode;

use super::*;
use crate::command::{Caller, Command, Reply, Way};
use crate::testing::{Counting, HandClock, secret};
use crate::{House, HouseCensus, Limits, MemoryVault, Parts};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

async fn house(clock: &Arc<HandClock>) -> House {
    let parts = Parts {
        signer: Arc::new(secret(9)),
        name: "kitchen".to_owned(),
        version: "0",
        simulated: true,
        clock: Arc::clone(clock) as _,
        chance: Arc::new(Counting::default()),
        boot_id: "boot".to_owned(),
        census: HouseCensus::new(),
        vault: Box::new(MemoryVault::new()),
        notices: Vec::new(),
        sign: Sign::new(Vec::new(), Arc::clone(clock) as _),
        capabilities: Vec::new(),
        services: Vec::new(),
        limits: Limits { rate_per_second: 1, rate_burst: 1 },
    };
    House::grow(parts).await.unwrap()
}

async fn ask(house: &House, command: Command) -> Reply {
    house.command(Caller { uid: 0, way: Way::Socket }, command).await
}

async fn first_and_last(house: &House) -> (u64, u64) {
    match ask(house, Command::Verify).await {
        Reply::Verified { ok: true, first, last, .. } => (first, last),
        other => panic!("{other:?}"),
    }
}

async fn export(house: &House) -> Vec<u8> {
    let Reply::ExportHead { first, until, tail } = ask(house, Command::ExportHead).await else { panic!() };
    let Reply::ExportPage { last, records } = ask(house, Command::ExportPage { after: first - 1, until }).await else {
        panic!()
    };
    assert_eq!(last, until);
    [base64_decode(&records).unwrap(), base64_decode(&tail).unwrap()].concat()
}

/// Ten records a day for ten days, counted on the boot clock.
async fn ten_days(clock: &Arc<HandClock>) -> House {
    let house = house(clock).await;
    for _ in 0..10 {
        for _ in 0..10 {
            house.inner.note("something".to_owned()).await;
        }
        clock.pass(DAY_MS);
    }
    house
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_old_goes_and_the_rest_verifies_from_its_checkpoint() {
    let clock = HandClock::new();
    let house = ten_days(&clock).await;
    let (first, before) = first_and_last(&house).await;
    assert_eq!(first, 1);
    prune(&house.inner, 20 * DAY_MS, u64::MAX).await;
    assert_eq!(first_and_last(&house).await, (1, before), "nothing is that old");
    prune(&house.inner, 4 * DAY_MS, u64::MAX).await;
    let (first, last) = first_and_last(&house).await;
    assert!(first > 50 && first < 70 && last == before + 1, "{first} {last}");
    let verified = verify_export(&*export(&house).await, Some(secret(9).public())).unwrap();
    assert_eq!((verified.first, verified.last), (first, last));
    // Once more, from the first checkpoint to the next.
    prune(&house.inner, DAY_MS, u64::MAX).await;
    let (again, _) = first_and_last(&house).await;
    assert!(again > first);
    verify_export(&*export(&house).await, Some(secret(9).public())).unwrap();
    house.drain(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_goes_by_a_quarter() {
    let clock = HandClock::new();
    let house = ten_days(&clock).await;
    let (_, before) = first_and_last(&house).await;
    prune(&house.inner, u64::MAX, 1).await;
    let (first, _) = first_and_last(&house).await;
    assert_eq!(first, 1 + (before - 1) / 4);
    house.drain(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_set_ahead_makes_nothing_old() {
    let clock = HandClock::new();
    let house = ten_days(&clock).await;
    clock.set_wall(u64::MAX / 2);
    let (first, before) = first_and_last(&house).await;
    prune(&house.inner, 20 * DAY_MS, u64::MAX).await;
    assert_eq!(first_and_last(&house).await, (first, before));
    clock.pass(15 * DAY_MS);
    prune(&house.inner, 20 * DAY_MS, u64::MAX).await;
    assert!(first_and_last(&house).await.0 > first, "the boot clock does");
    house.drain(std::time::Duration::ZERO).await;
}
