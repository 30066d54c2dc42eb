//! A house inside this process, without hardware, disk or listeners, and calls through its gate.

use std::sync::Arc;

use actors::store::Durable;
use actors::{Group, House, HouseCensus, Installed, Limits, Link, MemoryVault, Parts, Service, Vault};
use bytes::Bytes;
use handlers::{Sign, SystemClock};
use runtime::SystemChance;
use wire::{Envelope, Object, OwnerRequest, Refusal, SecretKey, Signer};

use crate::load::Party;

/// Grows one that has this state and these capabilities.
pub(crate) async fn grow(party: &Party, durable: &Durable, capabilities: Vec<Installed>) -> anyhow::Result<House> {
    let mut vault = MemoryVault::new();
    vault.put_durable(durable)?;
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
        capabilities,
        services: no_services,
        limits: Limits { rate_per_second: 1_000_000, rate_burst: 1_000_000 },
    };
    Ok(House::grow(parts).await?)
}

/// Signs a request, sends it through the gate, and verifies the answer.
pub(crate) async fn ask(
    house: &House,
    party: &Party,
    request: &OwnerRequest,
) -> anyhow::Result<Result<Object, Refusal>> {
    let head = party.head(&house.challenge(Link::Direct));
    let sealed = wire::envelope::seal(&party.owner, &request.to_body(&head));
    let answer = house.answer(Link::Direct, Bytes::from(sealed.into_bytes())).await?;
    let (_, _, answer) = Envelope::parse_result(answer.as_bytes())?.open_answer(party.device.public())?.into_parts();
    Ok(answer.outcome)
}
