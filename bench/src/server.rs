//! The servers that are measured: the device with a journal in memory, and a bare axum that sends as many bytes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use actors::MemoryVault;
use actors::store::{Durable, OwnerRow, Vault};
use anyhow::Context;
use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use config::{Places, Settings};
use handlers::SystemClock;
use runtime::SystemChance;
use runtime::{Device, Options};
use wire::{SecretKey, Signer};

use crate::load::Party;

/// Records kept in memory: enough for the journal's own reads, little enough for any length of run.
const RECORDS_KEPT: usize = 10_000;

/// A state that the owner of [`Party`] owns.
pub(crate) fn owned_state(party: &Party) -> anyhow::Result<Durable> {
    let mut durable = Durable::new("bench");
    let agent = "bench@load.example.org".parse()?;
    durable.owner = Some(OwnerRow { agent, key: party.owner.public().clone(), since_ms: 0 });
    Ok(durable)
}

/// Settings that no rate limit stands in the way of.
pub(crate) fn settings(address: SocketAddr) -> [String; 4] {
    [
        format!("link.direct.listen={address}"),
        "keeper.listen=127.0.0.1:0".to_owned(),
        "limits.rate_per_second=100000".to_owned(),
        "limits.rate_burst=100000".to_owned(),
    ]
}

/// Options of a device around a vault.
pub(crate) fn options(address: SocketAddr, state: &Path, vault: Box<dyn Vault>) -> anyhow::Result<Options> {
    let party = Party::new();
    let places = Places { config_dir: state.to_owned(), state_dir: state.to_owned(), config_named: false };
    let settings = Settings::load(&places, &settings(address), std::iter::empty())?;
    let signer: Arc<dyn Signer> = Arc::new(SecretKey::from_seed(&party.device.seed()));
    Ok(Options {
        settings,
        state_dir: state.to_owned(),
        signer,
        vault,
        notices: Vec::new(),
        clock: Arc::new(SystemClock),
        zone: runtime::TimeZone::UTC,
        chance: Arc::new(SystemChance),
        boot_id: "bench".to_owned(),
        simulation: Some(runtime::simulate::Simulation::new(|_| {})),
        door: runtime::DoorLimits::default(),
        socket: None,
        reread: None,
        handlers: None,
    })
}

/// Runs the whole device with a journal in memory until it is killed.
pub(crate) fn memory(address: SocketAddr, state: &Path) -> anyhow::Result<()> {
    let mut vault = MemoryVault::bounded(RECORDS_KEPT);
    vault.begin()?;
    vault.put_durable(&owned_state(&Party::new())?)?;
    vault.commit()?;
    // As latchkeyd does it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let running = Device::start(options(address, state, Box::new(vault))?).await?;
        std::future::pending::<()>().await;
        drop(running);
        Ok(())
    })
}

/// Runs a bare axum until it is killed: the same paths, as many bytes, no keys.
pub(crate) fn axum(address: SocketAddr, answer_bytes: usize) -> anyhow::Result<()> {
    let challenge = format!("{{\"challenge\":\"{}\"}}", "0f".repeat(24));
    let answer = Bytes::from(vec![b'x'; answer_bytes]);
    let routes = Router::new()
        .route("/v1/challenge", get(move || std::future::ready(challenge.clone())))
        .route("/v1/request", post(move |_: Bytes| std::future::ready(answer.clone())));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.context("the bare server cannot listen")?;
        Ok(axum::serve(listener, routes).await?)
    })
}
