//! The examples do what they say: the settings files load, and the server takes a picture of a simulated device.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that meets what it did not expect should stop there; it reads the real clock and runs a real program"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use actors::{Caller, Command as Order, MemoryVault, Reply, Way};
use config::{Places, Settings};
use controller::{Controller, DeviceName, Folder, Limits, Links, Parts};
use handlers::{Clock as _, SystemClock};
use runtime::{Device, DoorLimits, Options, Simulation, SystemChance};
use wire::{SecretKey, Signer as _};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

fn private(path: &Path) -> PathBuf {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    path.to_owned()
}

#[test]
fn every_settings_file_loads() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("settings");
    let mut names = Vec::new();
    for file in fs::read_dir(files).unwrap() {
        let file = file.unwrap().path();
        let folder = tempfile::tempdir().unwrap();
        let config_dir = private(&folder.path().join("config"));
        fs::copy(&file, config_dir.join("latchkey.toml")).unwrap();
        let places = Places { config_dir, state_dir: folder.path().join("state"), config_named: true };
        let settings = Settings::load(&places, &[], std::iter::empty());
        let settings = settings.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        // Whatever listens beyond this machine speaks TLS.
        assert!(settings.link.direct.tls(), "{}", file.display());
        names.push(file.file_name().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["headless-camera.toml", "kitchen-kiosk.toml"]);
}

struct Real(SystemClock);

impl controller::Clock for Real {
    fn boot_ms(&self) -> u64 {
        self.0.boot().as_ms()
    }

    fn boot_id(&self) -> &str {
        "a boot"
    }

    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }
}

struct Dice;

impl controller::Chance for Dice {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), controller::ChanceError> {
        handlers::Chance::fill(&SystemChance, bytes);
        Ok(())
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(host: &str, path: &str, more: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{more}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer[head + 4..].to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_takes_a_picture_once_the_keeper_allows_it_and_only_for_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = private(&folder.path().join("device"));
    let agent_dir = private(&folder.path().join("agent"));
    let places = Places { config_dir: state_dir.clone(), state_dir: state_dir.clone(), config_named: false };
    let sets =
        ["device.name=kitchen", "link.direct.listen=127.0.0.1:0", "keeper.listen=127.0.0.1:0"].map(str::to_owned);
    let mut seed = [0; 32];
    handlers::Chance::fill(&SystemChance, &mut seed);
    let signer = Arc::new(SecretKey::from_seed(&seed));
    let device_key = signer.public().clone();
    let options = Options {
        settings: Settings::load(&places, &sets, std::iter::empty()).unwrap(),
        state_dir,
        signer,
        vault: Box::new(MemoryVault::new()),
        notices: Vec::new(),
        clock: Arc::new(SystemClock),
        zone: runtime::TimeZone::UTC,
        chance: Arc::new(SystemChance),
        boot_id: "a boot".to_owned(),
        simulation: Some(Simulation::new(|_line| {})),
        door: DoorLimits::default(),
        socket: None,
        reread: None,
        handlers: None,
    };
    let running = Device::start(options).await.unwrap();
    let keeper = async |order| running.house.command(Caller { uid: 0, way: Way::Page }, order).await;

    // The agent is made and claims, as `latchkey` would do it.
    let agent_folder = Folder::open(&agent_dir).unwrap();
    let (agent, _) = agent_folder.new_agent(&"kitchen-bot@home.example.org".parse().unwrap(), &Dice).unwrap();
    let Reply::Pairing { secret, .. } = keeper(Order::Pair).await else { panic!("pairing opens") };
    let link = format!("http://{}/#{device_key}.{secret}", running.direct_addr).parse().unwrap();
    {
        let parts = Parts {
            agent: agent.agent().clone(),
            signer: agent.signer().unwrap(),
            store: Arc::new(agent.store()),
            clock: Arc::new(Real(SystemClock)),
            chance: Arc::new(Dice),
            links: Arc::new(Links::new(Limits::default())),
            until: None,
            notices: Arc::new(|_notice| {}),
        };
        let controller = Controller::open(parts).unwrap();
        let taken = |_name: &DeviceName| false;
        let pending = controller.claim(&link, Some("kitchen".parse().unwrap()), taken).await.unwrap();
        keeper(Order::Approve { which: pending.id.to_string() }).await;
        controller.change_status(&device_key, taken).await.unwrap();
    }

    let mut command = Command::new(env!("CARGO_BIN_EXE_controller_in_a_server"));
    let mut server = command.arg(&agent_dir).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().map(Server).unwrap();
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let host = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).unwrap().to_owned();
    let own = format!("Host: {host}\r\n");

    let (status, list) = get(&host, "/", &own);
    assert_eq!((status, list.starts_with(b"[{\"name\":\"kitchen\"")), (200, true));
    let (status, sentence) = get(&host, "/kitchen/picture.jpg", &own);
    assert_eq!(status, 403);
    assert!(String::from_utf8_lossy(&sentence).contains("camera is not granted on kitchen"));

    keeper(Order::Grant { name: "camera".to_owned() }).await;
    let (status, picture) = get(&host, "/kitchen/picture.jpg", &own);
    assert_eq!(
        (status, picture.starts_with(&[0xff, 0xd8, 0xff])),
        (200, true),
        "{}",
        String::from_utf8_lossy(&picture)
    );
    for (name, headers) in [
        ("another name for this machine", "Host: evil.example\r\n".to_owned()),
        ("another site's script", format!("{own}Origin: http://evil.example\r\n")),
        ("a picture on another site's page", format!("{own}Sec-Fetch-Site: cross-site\r\n")),
    ] {
        assert_eq!(get(&host, "/kitchen/picture.jpg", &headers).0, 403, "{name}");
    }
    assert_eq!(get(&host, "/cellar/picture.jpg", &own).0, 404);
    drop(server);
    running.stop(Duration::from_secs(5)).await;
}
