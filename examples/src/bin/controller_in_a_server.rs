//! A controller inside a server: one agent, its devices, and a page that takes a picture.
//!
//! The agent is made and its devices are claimed with `latchkey`, once:
//!
//! ```text
//! latchkey --state-dir agent-folder agent new kitchen-bot@home.example.org
//! latchkey --state-dir agent-folder claim 'LINK'        the link from latchkeyd pair; the keeper approves and grants
//! controller_in_a_server agent-folder 127.0.0.1:8080
//! curl http://127.0.0.1:8080/                           the devices, as JSON
//! curl http://127.0.0.1:8080/kitchen/picture.jpg -o kitchen.jpg
//! ```
//!
//! Owns the agent's key while it runs: one process at a time may, so `latchkey` waits and then refuses. Answers this machine alone:
//! it listens on loopback, and refuses what a browser sends for another site, as whoever reaches it can take pictures. It ends by
//! Ctrl-C; the device is deactivated before.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::get;
use controller::explain::{Attempt, explain};
use controller::{
    Chance, ChanceError, Clock, Controller, Device, Failure, Folder, Invocation, Kind, Limits, Links, Parts, WhenIdle,
    values,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::net::TcpListener;
use wire::json::Object;
use wire::{CapabilityName, Lease};

/// A picture needs the device for a moment only; what is left of it is given back at the end.
const LEASE_MS: u64 = 30_000;

/// What the routes share.
#[derive(Clone)]
struct Desk {
    controller: Arc<Controller>,
    host: Arc<str>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody reads what could be said about a closed standard error.
            let _ = writeln!(std::io::stderr(), "controller_in_a_server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "arguments are read here, once")]
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, address] = words.as_slice() else { bail!("usage: controller_in_a_server AGENT-FOLDER ADDRESS:PORT") };
    let address: SocketAddr = address.parse().context("the address")?;
    ensure!(address.ip().is_loopback(), "{address} is not on loopback: whoever reached it could take pictures");

    // The key of the only agent in the folder, for as long as the lock lives.
    let agent = Folder::open(FilePath::new(folder))?.agent(None)?;
    let _lock = agent.lock().await?;
    let parts = Parts {
        agent: agent.agent().clone(),
        signer: agent.signer()?,
        store: Arc::new(agent.store()),
        clock: Arc::new(SystemClock::new()),
        chance: Arc::new(SystemChance),
        links: Arc::new(Links::new(Limits::default())),
        until: None,
        notices: Arc::new(|_notice| {}),
    };
    let controller = Arc::new(Controller::open(parts)?);

    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let bound = listener.local_addr()?;
    let desk = Desk { controller: Arc::clone(&controller), host: bound.to_string().into() };
    let routes = Router::new()
        .route("/", get(devices))
        .route("/{device}/picture.jpg", get(picture))
        .layer(from_fn_with_state(desk.clone(), local_only))
        .with_state(desk);
    writeln!(std::io::stdout(), "http://{bound}/")?;

    // axum::serve sets no time-out for headers; on loopback that harms nobody but this machine's own users.
    let interrupted = async {
        // Without a handler Ctrl-C ends the program in its usual way.
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, routes).with_graceful_shutdown(interrupted).await?;
    for device in controller.devices().into_iter().filter(|device| device.hold.is_some()) {
        if let Err(failure) = controller.deactivate(&device.key).await {
            writeln!(
                std::io::stderr(),
                "{}",
                explain(&failure, &Attempt { device: device.name.as_str(), ..Attempt::default() })
            )?;
        }
    }
    Ok(())
}

/// A web page elsewhere can make a browser call this address, under a name of its own or from its own origin.
async fn local_only(State(desk): State<Desk>, request: Request, next: Next) -> Response<Body> {
    let headers = request.headers();
    let ours = headers.get(HOST).is_some_and(|host| host.as_bytes() == desk.host.as_bytes());
    // Set by browsers alone. `none`: somebody typed the address.
    let from_here = headers.get("sec-fetch-site").is_none_or(|site| site == "none" || site == "same-origin");
    if !ours || !from_here || headers.contains_key(ORIGIN) {
        return answer(StatusCode::FORBIDDEN, "text/plain", "forbidden\n");
    }
    next.run(request).await
}

async fn devices(State(desk): State<Desk>) -> Response<Body> {
    let devices: Vec<_> = desk
        .controller
        .devices()
        .iter()
        .map(|device| json!({"name": device.name, "key": device.key.to_string()}))
        .collect();
    answer(StatusCode::OK, "application/json", json!(devices).to_string())
}

async fn picture(State(desk): State<Desk>, Path(name): Path<String>) -> Response<Body> {
    let device = match desk.controller.find(&name) {
        Ok(device) => device,
        Err(error) => return answer(StatusCode::NOT_FOUND, "text/plain", format!("{error}\n")),
    };
    match snapshot(&desk.controller, &device).await {
        Ok(jpeg) => answer(StatusCode::OK, "image/jpeg", jpeg),
        Err(failure) => refused(&failure, &device),
    }
}

/// The one call that matters. The device is activated if it is not; the answer was checked against the device's pinned key.
async fn snapshot(controller: &Controller, device: &Device) -> Result<Vec<u8>, Failure> {
    let capability = snapshot_name();
    let invocation = Invocation { capability: capability.clone(), arguments: Object::new(), id: controller.draw_id()? };
    let idle = Lease::from_ms(LEASE_MS).map_or(WhenIdle::Refuse, WhenIdle::Activate);
    let value = controller.invoke(&device.key, &invocation, idle).await?;
    Ok(values::check(&capability, &value)?.map(|media| media.bytes).unwrap_or_default())
}

#[expect(clippy::expect_used, reason = "the name stands in the protocol")]
fn snapshot_name() -> CapabilityName {
    "camera.snapshot".parse().expect("a capability's name")
}

/// The same sentence that `latchkey` prints, with the next step.
fn refused(failure: &Failure, device: &Device) -> Response<Body> {
    let capability = snapshot_name();
    let attempt = Attempt {
        device: device.name.as_str(),
        address: Some(&device.address),
        capability: Some(&capability),
        claim: false,
    };
    let status = match failure.kind() {
        Kind::Refused => StatusCode::FORBIDDEN,
        Kind::Unreachable => StatusCode::GATEWAY_TIMEOUT,
        Kind::Failed | Kind::Usage | Kind::Unknown => StatusCode::BAD_GATEWAY,
    };
    answer(status, "text/plain", format!("{}\n", explain(failure, &attempt)))
}

fn answer(status: StatusCode, mime: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    // A picture of somebody's home is for the one who asked.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The machine's clocks. Life times count on the one that runs through suspend.
struct SystemClock {
    boot_id: String,
}

impl SystemClock {
    fn new() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot_id: boot_id.trim().to_owned() }
    }
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let whole = u64::try_from(time.tv_sec).unwrap_or_default().saturating_mul(1000);
    whole.saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000)
}

impl Clock for SystemClock {
    fn boot_ms(&self) -> u64 {
        milliseconds(ClockId::Boottime)
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn wall_ms(&self) -> u64 {
        milliseconds(ClockId::Realtime)
    }
}

/// The operating system's randomness.
struct SystemChance;

impl Chance for SystemChance {
    #[expect(clippy::disallowed_methods, reason = "the one real source of this program")]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError> {
        getrandom::fill(bytes).map_err(|_no_bytes| ChanceError)
    }
}
