//! How long a capability that panicked takes to answer again: the first restart comes before any back-off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use actors::{Group, House, HouseCensus, Installed, Limits, Link, MemoryVault, Parts, Service, Vault, Work};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use handlers::{Call, Fault, Handler, Sign, SystemClock};
use runtime::SystemChance;
use wire::{Declaration, Envelope, ErrorCode, Head, Id, Object, OwnerRequest, SecretKey, Signer};

use crate::load::Party;
use crate::server::owned_state;

/// A capability that panics when told to.
struct Fragile {
    declaration: Declaration,
    break_now: Arc<AtomicBool>,
}

impl Handler for Fragile {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    #[expect(clippy::panic, reason = "the fault that is measured")]
    fn run(&self, _call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let break_now = Arc::clone(&self.break_now);
        Box::pin(async move {
            if break_now.swap(false, Ordering::SeqCst) {
                panic!("told to");
            }
            Ok(Object::new())
        })
    }
}

/// Milliseconds from the answer of the call that broke it to the next good answer, one for each fresh house.
pub(crate) async fn times_ms(rounds: u32) -> anyhow::Result<Vec<f64>> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(once().await?.as_secs_f64() * 1e3);
    }
    drop(std::panic::take_hook());
    times.sort_by(f64::total_cmp);
    Ok(times)
}

async fn once() -> anyhow::Result<Duration> {
    let party = Party::new();
    let break_now = Arc::new(AtomicBool::new(false));
    let house = grow(&party, &break_now).await?;
    anyhow::ensure!(ask(&house, &party, 1).await?.is_ok(), "it does not answer");
    break_now.store(true, Ordering::SeqCst);
    anyhow::ensure!(ask(&house, &party, 2).await? == Err(ErrorCode::Failed), "it did not break");
    let broke = Instant::now();
    for id in 3..u64::MAX {
        if ask(&house, &party, id).await?.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let took = broke.elapsed();
    house.drain(Duration::ZERO).await;
    Ok(took)
}

async fn grow(party: &Party, break_now: &Arc<AtomicBool>) -> anyhow::Result<House> {
    let mut vault = MemoryVault::new();
    vault.put_durable(&owned_state(party)?)?;
    let declaration = Declaration::device_health();
    let (of_made, break_now) = (declaration.clone(), Arc::clone(break_now));
    let make = move || {
        let (declaration, break_now) = (of_made.clone(), Arc::clone(&break_now));
        Ok(Work::Plain(Arc::new(Fragile { declaration, break_now })))
    };
    let no_services: Vec<(Group, &'static str, Arc<dyn Service>)> = Vec::new();
    let clock = Arc::new(SystemClock);
    let parts = Parts {
        signer: Arc::new(SecretKey::from_seed(&party.device.seed())),
        name: "bench".to_owned(),
        version: "bench",
        simulated: true,
        sign: Sign::new(Vec::new(), clock.clone()),
        clock,
        chance: Arc::new(SystemChance),
        boot_id: "bench".to_owned(),
        census: HouseCensus::new(),
        vault: Box::new(vault),
        notices: Vec::new(),
        capabilities: vec![Installed { declaration, make: Arc::new(make), custom: None }],
        services: no_services,
        limits: Limits { rate_per_second: 1_000_000, rate_burst: 1_000_000 },
    };
    Ok(House::grow(parts).await?)
}

async fn ask(house: &House, party: &Party, number: u64) -> anyhow::Result<Result<(), ErrorCode>> {
    let mut id = [0; 24];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let head =
        Head { id: Id::from_bytes(id), challenge: house.challenge(Link::Direct), to: party.device.public().clone() };
    let request = OwnerRequest::Invoke { capability: "device.health".parse()?, arguments: Object::new() };
    let sealed = wire::envelope::seal(&party.owner, &request.to_body(&head));
    let answer = house.answer(Link::Direct, Bytes::from(sealed.into_bytes())).await?;
    let (_, _, answer) = Envelope::parse_result(answer.as_bytes())?.open_answer(party.device.public())?.into_parts();
    Ok(answer.outcome.map(|_| ()).map_err(|refusal| refusal.error))
}
