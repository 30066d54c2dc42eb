//! A whole house on fakes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handlers::Sign;
use latchkey_actors::{
    Caller, Command, Group, House, HouseCensus, Limits, MemoryVault, Node, NodeState, Parts, Reply, Service,
    SqliteVault, Status, Vault, Way,
};
use tempfile::TempDir;
use wire::{Declaration, SecretKey, Signer};

use crate::fakes::{Carrier, Counting, Fake, FakeSign, HandClock, PATIENCE, Trace};
use crate::trap::{Plan, Trap};

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(&[byte; 32])
}

/// The device's own key.
pub(crate) fn device() -> SecretKey {
    secret(0xd0)
}

/// How a house is to be; the default is a new one in memory.
pub(crate) struct Setup {
    /// Where the state lies; in memory without one.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) boot_id: &'static str,
    pub(crate) text_timeout: Duration,
    pub(crate) services: Vec<(Group, &'static str, Arc<dyn Service>)>,
    /// Changes the fakes before the house grows.
    pub(crate) before: fn(&Fakes),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            folder: None,
            limits: Limits { rate_per_second: 1_000_000, rate_burst: 1_000_000 },
            boot_id: "boot-1",
            text_timeout: Duration::from_secs(20),
            services: Vec::new(),
            before: |_| {},
        }
    }
}

/// The outside of a house; it can outlive one.
pub(crate) struct Fakes {
    pub(crate) clock: Arc<HandClock>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) sign: Arc<FakeSign>,
    pub(crate) health: Arc<Fake>,
    pub(crate) camera: Arc<Fake>,
    /// Another capture, of effect read.
    pub(crate) ears: Arc<Fake>,
    pub(crate) text: Arc<Fake>,
    pub(crate) image: Arc<Fake>,
    /// A custom capability of effect change.
    pub(crate) lamp: Arc<Fake>,
}

impl Fakes {
    pub(crate) fn new(text_timeout: Duration) -> Self {
        let trace = Arc::<Trace>::default();
        let fake = |declaration| Fake::new(declaration, &trace);
        let custom = |name: &str, base: Declaration| {
            let name: wire::CapabilityName = name.parse().unwrap();
            Declaration { grant: Some(name.grant()), name, ..base }
        };
        Self {
            clock: HandClock::new(),
            sign: FakeSign::new(&trace),
            health: fake(Declaration::device_health()),
            camera: fake(Declaration::camera_snapshot()),
            ears: fake(custom("custom.test.ears", Declaration::camera_snapshot())),
            text: fake(Declaration { timeout: text_timeout, ..Declaration::display_text() }),
            image: fake(Declaration::display_image()),
            lamp: fake(custom("custom.test.lamp", Declaration::display_text())),
            trace,
        }
    }

    fn all(&self) -> [&Arc<Fake>; 6] {
        [&self.health, &self.camera, &self.ears, &self.text, &self.image, &self.lamp]
    }
}

/// A house, its outside, and what the tests hold of its vault.
pub(crate) struct Rig {
    pub(crate) house: House,
    pub(crate) plan: Arc<Plan>,
    pub(crate) census: Arc<HouseCensus>,
    pub(crate) fakes: Arc<Fakes>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) notices: Vec<String>,
    ids: AtomicU64,
    start: u64,
    _kept: Option<Arc<TempDir>>,
}

impl std::ops::Deref for Rig {
    type Target = Fakes;

    fn deref(&self) -> &Fakes {
        &self.fakes
    }
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let fakes = Arc::new(Fakes::new(setup.text_timeout));
        (setup.before)(&fakes);
        Self::grow(setup, fakes, 1, None).await.unwrap()
    }

    /// A new house on disk.
    pub(crate) async fn disk() -> Self {
        let kept = Arc::new(TempDir::new().unwrap());
        let folder = kept.path().join("state");
        std::fs::create_dir(&folder).unwrap();
        let setup = Setup { folder: Some(folder), ..Setup::default() };
        let fakes = Arc::new(Fakes::new(setup.text_timeout));
        Self::grow(setup, fakes, 1, Some(kept)).await.unwrap()
    }

    /// A house on a folder that is there already.
    pub(crate) async fn at(folder: &Path) -> Self {
        Self::with(Setup { folder: Some(folder.to_owned()), ..Setup::default() }).await
    }

    /// A house on a folder whose disk is full.
    pub(crate) async fn full(folder: &Path) -> Self {
        let fakes = Arc::new(Fakes::new(Duration::from_secs(20)));
        let plan = Plan::new(&fakes.trace);
        plan.set(crate::trap::Op::Append, crate::trap::Trouble::Full);
        let (vault, notices) = open(Some(folder), fakes.clock.as_ref()).unwrap();
        let setup = Setup { folder: Some(folder.to_owned()), ..Setup::default() };
        Self::grow_on(vault, notices, setup, fakes, plan, 1, None).await.unwrap()
    }

    pub(crate) async fn grow(
        setup: Setup,
        fakes: Arc<Fakes>,
        start: u64,
        kept: Option<Arc<TempDir>>,
    ) -> Result<Self, String> {
        let plan = Plan::new(&fakes.trace);
        let (vault, notices) = open(setup.folder.as_deref(), fakes.clock.as_ref())?;
        Self::grow_on(vault, notices, setup, fakes, plan, start, kept).await
    }

    pub(crate) async fn grow_on(
        vault: Box<dyn Vault>,
        notices: Vec<String>,
        setup: Setup,
        fakes: Arc<Fakes>,
        plan: Arc<Plan>,
        start: u64,
        kept: Option<Arc<TempDir>>,
    ) -> Result<Self, String> {
        let census = HouseCensus::new();
        let parts = Parts {
            signer: Arc::new(device()),
            name: "kitchen".to_owned(),
            version: "0",
            simulated: true,
            clock: Arc::clone(&fakes.clock) as _,
            chance: Counting::new(start) as _,
            boot_id: setup.boot_id.to_owned(),
            census: Arc::clone(&census),
            vault: Box::new(Trap { inner: vault, plan: Arc::clone(&plan) }),
            notices: notices.clone(),
            sign: Sign::new(vec![Arc::new(Carrier(Arc::clone(&fakes.sign)))], Arc::clone(&fakes.clock) as _),
            capabilities: fakes.all().map(Fake::installed).to_vec(),
            services: setup.services,
            limits: setup.limits,
        };
        let house = House::grow(parts).await.map_err(|error| error.to_string())?;
        let ids = AtomicU64::new(start << 32);
        Ok(Self { house, plan, census, fakes, folder: setup.folder, notices, ids, start, _kept: kept })
    }

    /// Ends the house and grows another on the same folder and outside, as a restart of the program would.
    pub(crate) async fn restart(self) -> Self {
        self.restart_as(Setup::default()).await
    }

    pub(crate) async fn restart_as(self, setup: Setup) -> Self {
        let (fakes, start, kept) = (Arc::clone(&self.fakes), self.start + 1, self._kept.clone());
        let setup = Setup { folder: self.folder.clone(), ..setup };
        self.down().await;
        Self::grow(setup, fakes, start, kept).await.unwrap()
    }

    /// Ends the house and looks for what it left behind: the vault must be free, and nobody may hold a handler.
    pub(crate) async fn down(self) {
        self.plan.clear();
        for fake in self.fakes.all() {
            fake.go();
        }
        // A sign that is lit may go off.
        if self.sign.lit.load(Ordering::SeqCst) {
            self.clock.pass(3_001);
        }
        let (fakes, plan) = (Arc::clone(&self.fakes), Arc::clone(&self.plan));
        self.house.drain(Duration::from_secs(2)).await;
        drop(self);
        let mut dropped = plan.dropped.subscribe();
        let free = tokio::time::timeout(PATIENCE, dropped.wait_for(|dropped| *dropped)).await;
        assert!(free.is_ok(), "somebody still holds the house");
        for fake in fakes.all() {
            crate::fakes::eventually(&format!("{} is let go", fake.declaration.name), || Arc::strong_count(fake) == 1)
                .await;
        }
    }

    /// A number that no other call of this test has.
    pub(crate) fn number(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) async fn keeper(&self, command: Command) -> Reply {
        self.house.command(Caller { uid: 0, way: Way::Socket }, command).await
    }

    pub(crate) async fn status(&self) -> Status {
        match self.keeper(Command::Status).await {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// A part of the tree as it is now.
    pub(crate) async fn node(&self, path: &str) -> Node {
        self.status().await.tree.unwrap().root.find(path).unwrap().clone()
    }

    /// Waits until a part is in a state.
    pub(crate) async fn becomes(&self, path: &str, state: NodeState) {
        let mut tree = self.house.tree();
        let is = |tree: &latchkey_actors::Tree| tree.root.find(path).is_some_and(|node| node.state == state);
        let came = tokio::time::timeout(PATIENCE * 3, tree.wait_for(is)).await;
        assert!(came.is_ok(), "{path} never became {state:?}");
    }
}

/// Opens a vault as a start of the program would.
pub(crate) fn open(folder: Option<&Path>, clock: &HandClock) -> Result<(Box<dyn Vault>, Vec<String>), String> {
    use handlers::Clock as _;
    let Some(folder) = folder else { return Ok((Box::new(MemoryVault::new()), Vec::new())) };
    let opened = SqliteVault::open(folder, device().public(), clock.wall_ms()).map_err(|error| error.to_string())?;
    Ok((Box::new(opened.vault), opened.notices))
}
