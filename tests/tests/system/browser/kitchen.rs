//! A device inside the test, whole but for its hardware, and its owner, who signs as any agent would.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actors::{Caller, Command, Event, House, Link, MemoryVault, Reply, Way};
use bytes::Bytes;
use handlers::{Chance, Clock, SystemClock};
use runtime::{Device, DoorLimits, Options, Running, Simulation, SystemChance};
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;
use wire::envelope::seal;
use wire::{
    Answer, ClaimantRequest, Envelope, Head, Id, Lease, Object, OwnerRequest, PairingSecret, PublicKey, Refusal,
    SecretKey, Signer,
};

/// Longer than anything here takes.
const EVENT_MAX: Duration = Duration::from_secs(20);

/// The device, its owner, and the simulated hardware that can be told to misbehave.
pub(super) struct Kitchen {
    /// The hardware.
    pub(super) simulation: Simulation,
    running: Running,
    owner: Owner,
    _folder: TempDir,
}

/// Signs, and sends to the house.
#[derive(Clone)]
pub(super) struct Owner {
    house: House,
    device: PublicKey,
    key: Arc<SecretKey>,
    ids: Arc<AtomicU64>,
}

impl Kitchen {
    /// A device of this name, owned, active, and allowed what `grants` names.
    pub(super) async fn open(name: &str, grants: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let places =
            config::Places { config_dir: folder.path().into(), state_dir: folder.path().into(), config_named: false };
        let sets = [
            format!("device.name={name}"),
            "link.direct.listen=127.0.0.1:0".into(),
            "keeper.listen=127.0.0.1:0".into(),
        ];
        let settings = config::Settings::load(&places, &sets, std::iter::empty()).unwrap();
        let simulation = Simulation::new(|_line| {});
        let signer = Arc::new(secret_key());
        let device = signer.public().clone();
        let options = Options {
            settings,
            state_dir: folder.path().into(),
            signer,
            vault: Box::new(MemoryVault::new()),
            notices: Vec::new(),
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            zone: runtime::TimeZone::UTC,
            chance: Arc::new(SystemChance),
            boot_id: "a boot".to_owned(),
            simulation: Some(simulation.clone()),
            door: DoorLimits::default(),
            socket: None,
            reread: None,
            handlers: None,
        };
        let running = Device::start(options).await.unwrap();
        let key = Arc::new(secret_key());
        let owner = Owner { house: running.house.clone(), device, key, ids: Arc::default() };
        owner.claim().await;
        let lease = Lease::from_ms(300_000).unwrap();
        owner.send(&OwnerRequest::Activate { lease }).await.unwrap();
        let kitchen = Self { simulation, running, owner, _folder: folder };
        for grant in grants {
            kitchen.allow(grant).await;
        }
        kitchen
    }

    /// Turns a grant on.
    pub(super) async fn allow(&self, grant: &str) {
        let reply = keeper(&self.running.house, Command::Grant { name: grant.to_owned() }).await;
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    }

    /// Where its pages are.
    pub(super) fn pages(&self) -> SocketAddr {
        self.running.keeper_addr.unwrap()
    }

    /// Its display page.
    pub(super) fn display(&self) -> String {
        format!("http://{}/display", self.pages())
    }

    /// Its owner.
    pub(super) fn owner(&self) -> Owner {
        self.owner.clone()
    }

    /// What happens from now on.
    pub(super) fn events(&self) -> Receiver<Event> {
        self.running.house.events()
    }

    /// How it stands.
    pub(super) async fn status(&self) -> actors::Status {
        match keeper(&self.running.house, Command::Status).await {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Ends it.
    pub(super) async fn close(self) {
        self.simulation.camera.release();
        self.running.stop(Duration::from_secs(5)).await;
    }
}

/// Waits for an event.
pub(super) async fn until(events: &mut Receiver<Event>, wanted: impl Fn(&Event) -> bool) {
    let seen = async { while !wanted(&events.recv().await.unwrap()) {} };
    tokio::time::timeout(EVENT_MAX, seen).await.expect("the event comes");
}

impl Owner {
    /// Uses a capability.
    pub(super) async fn call(&self, capability: &str, arguments: Object) -> Result<Object, Refusal> {
        self.send(&OwnerRequest::Invoke { capability: capability.parse().unwrap(), arguments }).await
    }

    /// Shows a text.
    pub(super) async fn show(&self, text: &str) -> Result<Object, Refusal> {
        let mut arguments = Object::new();
        arguments.insert("text", text);
        self.call("display.text", arguments).await
    }

    /// Shows a picture.
    pub(super) async fn show_png(&self, data: &str) -> Result<Object, Refusal> {
        self.show_image("image/png", data).await
    }

    /// A picture of a type, in base64.
    pub(super) async fn show_image(&self, mime: &str, data: &str) -> Result<Object, Refusal> {
        let mut arguments = Object::new();
        arguments.insert("mime", mime);
        arguments.insert("data", data);
        self.call("display.image", arguments).await
    }

    async fn send(&self, request: &OwnerRequest) -> Result<Object, Refusal> {
        let head = self.head();
        self.exchange(&head, &request.to_body(&head)).await
    }

    async fn claim(&self) {
        let Reply::Pairing { secret, .. } = keeper(&self.house, Command::Pair).await else { panic!("pairing opens") };
        let secret: PairingSecret = secret.parse().unwrap();
        let head = self.head();
        let claim = ClaimantRequest::Claim {
            agent: "kitchen-bot@home.example.org".parse().unwrap(),
            key: self.key.public().clone(),
            proof: secret.proof(self.key.public(), &head.id),
        };
        self.exchange(&head, &claim.to_body(&head)).await.unwrap();
        let reply = keeper(&self.house, Command::Approve { which: head.id.to_string() }).await;
        assert!(matches!(reply, Reply::Decided { .. }), "{reply:?}");
    }

    fn head(&self) -> Head {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; 24];
        id[..8].copy_from_slice(&number.to_be_bytes());
        Head { id: Id::from_bytes(id), challenge: self.house.challenge(Link::Direct), to: self.device.clone() }
    }

    async fn exchange(&self, head: &Head, body: &[u8]) -> Result<Object, Refusal> {
        let sealed = seal(self.key.as_ref(), body).into_bytes();
        let sealed = self.house.answer(Link::Direct, Bytes::from(sealed)).await.expect("the request is accepted");
        let answer = Envelope::parse_result(sealed.as_bytes()).unwrap().open_answer(&self.device).unwrap();
        let (_, _, answer): (Head, PublicKey, Answer) = answer.into_parts();
        answer.matches(head, self.key.public()).unwrap();
        answer.outcome
    }
}

fn secret_key() -> SecretKey {
    let mut seed = [0; 32];
    SystemChance.fill(&mut seed);
    SecretKey::from_seed(&seed)
}

async fn keeper(house: &House, command: Command) -> Reply {
    house.command(Caller { uid: 0, way: Way::Page }, command).await
}
