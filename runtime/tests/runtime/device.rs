//! A whole simulated device with a vault in memory, and plain HTTP to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actors::{Caller, Command, MemoryVault, Reply, Way};
use config::{Places, Settings};
use handlers::SystemClock;
use handlers::wasm::Program;
use latchkey_runtime::{
    Device, DoorLimits, HandlersPlace, Options, Reread, Running, Simulation, SocketLimits, SystemChance, Ways,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{ClaimantRequest, Head, Id, PairingSecret, SecretKey, Signer};

pub(crate) struct Bench {
    pub(crate) running: Running,
    pub(crate) folder: TempDir,
    pub(crate) key: SecretKey,
}

/// What differs from an ordinary device.
#[derive(Default)]
pub(crate) struct Wish {
    pub(crate) sets: Vec<&'static str>,
    pub(crate) door: DoorLimits,
    pub(crate) socket: SocketLimits,
    pub(crate) reread: Option<Reread>,
    /// Whether the folder `handlers` in the state folder is followed.
    pub(crate) handlers: bool,
}

pub(crate) fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

pub(crate) fn places(folder: &Path) -> Places {
    Places { config_dir: folder.to_owned(), state_dir: folder.to_owned(), config_named: false }
}

pub(crate) fn settings(folder: &Path, sets: &[&str]) -> Settings {
    let free = ["link.direct.listen=127.0.0.1:0", "keeper.listen=127.0.0.1:0", "device.name=\"kitchen\""];
    let sets: Vec<_> = free.iter().chain(sets).map(|set| (*set).to_owned()).collect();
    Settings::load(&places(folder), &sets, std::iter::empty()).unwrap()
}

/// The folders of a device whose handlers' processes are the program that was built beside this test.
fn handlers_place(folder: &Path) -> HandlersPlace {
    HandlersPlace {
        folder: folder.join("handlers"),
        cache_dir: folder.join("cache"),
        config_dir: folder.to_owned(),
        program: Program::At(env!("CARGO_BIN_EXE_latchkeyd").into()),
        outbound: Arc::new(Ways::of_the_system()),
    }
}

impl Bench {
    pub(crate) async fn start(wish: Wish) -> Self {
        let folder = folder();
        let seed = [7; 32];
        let options = Options {
            settings: settings(folder.path(), &wish.sets),
            state_dir: folder.path().to_owned(),
            signer: Arc::new(SecretKey::from_seed(&seed)),
            vault: Box::new(MemoryVault::new()),
            notices: Vec::new(),
            clock: Arc::new(SystemClock),
            zone: latchkey_runtime::TimeZone::UTC,
            chance: Arc::new(SystemChance),
            boot_id: "test".to_owned(),
            simulation: Some(Simulation::new(|_line| {})),
            door: wish.door,
            socket: Some(wish.socket),
            reread: wish.reread,
            handlers: wish.handlers.then(|| handlers_place(folder.path())),
        };
        let running = Device::start(options).await.unwrap();
        Self { running, folder, key: SecretKey::from_seed(&seed) }
    }

    pub(crate) async fn command(&self, command: Command) -> Reply {
        let uid = rustix::process::geteuid().as_raw();
        self.running.house.command(Caller { uid, way: Way::Socket }, command).await
    }

    pub(crate) fn direct(&self) -> SocketAddr {
        self.running.direct_addr
    }

    pub(crate) fn pages(&self) -> SocketAddr {
        self.running.keeper_addr.unwrap()
    }

    pub(crate) fn public(&self) -> wire::PublicKey {
        self.key.public().clone()
    }

    /// The envelope of a claim that the device accepts, of another owner each time.
    pub(crate) async fn claim(&self) -> String {
        let Reply::Pairing { secret, .. } = self.command(Command::Pair).await else { panic!("pairing opens") };
        let secret: PairingSecret = secret.parse().unwrap();
        let challenge = challenge(self.direct()).await;
        let owner = SecretKey::from_seed(&[challenge.as_bytes()[23]; 32]);
        let id = Id::from_bytes(*challenge.as_bytes());
        let proof = secret.proof(owner.public(), &id);
        let agent = "alice@team.example.org".parse().unwrap();
        let claim = ClaimantRequest::Claim { agent, key: owner.public().clone(), proof };
        let body = claim.to_body(&Head { id, challenge, to: self.public() });
        String::from_utf8(wire::envelope::seal(&owner, &body).into_bytes()).unwrap()
    }

    pub(crate) async fn stop(self) {
        self.running.stop(Duration::from_secs(1)).await;
    }
}

/// Sends `request` as it is, and reads until the other side closes.
pub(crate) async fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_ref()).await.unwrap();
    read_all(&mut stream).await
}

/// Until the other side closes; a reset is a close.
pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match tokio::time::timeout(Duration::from_secs(20), stream.read(&mut piece))
            .await
            .expect("the other side closes")
        {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&answer).into_owned(),
            Ok(read) => answer.extend_from_slice(&piece[..read]),
        }
    }
}

pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// `POST` of JSON with everything in order.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) const GET_CHALLENGE: &str = "GET /v1/challenge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A fresh challenge over the link.
pub(crate) async fn challenge(address: SocketAddr) -> wire::Challenge {
    let answer = exchange(address, GET_CHALLENGE).await;
    let object = wire::json::parse(body(&answer).as_bytes()).unwrap();
    object.get("challenge").unwrap().as_str().unwrap().parse().unwrap()
}
