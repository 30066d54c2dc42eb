//! A device composed inside the test, on the real clock, with a vault in memory and hardware that can be counted and told to
//! misbehave.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::{MemoryVault, Vault};
use config::{Flags, Places, Settings};
use handlers::SystemClock;
use runtime::{Device, DoorLimits, Options, Running, Simulation, SystemChance};
use tokio::runtime::Runtime;
use wire::{SecretKey, Signer};

use crate::agent::random;
use crate::{Keeper, Line, Room};

/// A running device; dropping it stops it.
pub struct Inside {
    runtime: Runtime,
    running: Option<Running>,
    /// Its hardware.
    pub simulation: Simulation,
    /// What it would have printed.
    pub said: Arc<Mutex<Vec<String>>>,
    key: [u8; 32],
}

/// The settings of a device on free ports, with these beside.
#[must_use]
pub fn settings(room: &Room, sets: &[&str]) -> Settings {
    let flags = Flags { state_dir: Some(room.state()), ..Flags::default() };
    let home = room.path().as_os_str().to_owned();
    let places = Places::find(flags, &|name| (name == "HOME").then(|| home.clone()), false).expect("places");
    let free = ["link.direct.listen=127.0.0.1:0", "keeper.listen=127.0.0.1:0", "device.name=kitchen"];
    let sets: Vec<String> = free.iter().chain(sets).map(|set| (*set).to_owned()).collect();
    Settings::load(&places, &sets, std::iter::empty()).expect("settings")
}

impl Inside {
    /// A device with the usual limits.
    #[must_use]
    pub fn new(room: &Room) -> Self {
        Self::with(room, DoorLimits::default(), &[])
    }

    /// A device with these limits and settings.
    #[must_use]
    pub fn with(room: &Room, door: DoorLimits, sets: &[&str]) -> Self {
        crate::room::folder(&room.state());
        let said = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&said);
        let simulation = Simulation::new(move |line| heard.lock().expect("whole").push(line.to_owned()));
        let key: [u8; 32] = random();
        let signer: Arc<dyn Signer> = Arc::new(SecretKey::from_seed(&key));
        let vault: Box<dyn Vault> = Box::new(MemoryVault::new());
        let options = Options {
            settings: settings(room, sets),
            state_dir: room.state(),
            signer,
            vault,
            notices: Vec::new(),
            clock: Arc::new(SystemClock),
            zone: runtime::TimeZone::UTC,
            chance: Arc::new(SystemChance),
            boot_id: "test".to_owned(),
            simulation: Some(simulation.clone()),
            door,
            socket: None,
            reread: None,
            handlers: None,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let running = runtime.block_on(Device::start(options)).expect("started");
        Self { runtime, running: Some(running), simulation, said, key }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    /// The keeper.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        Keeper::House(self.running().house.clone(), self.runtime.handle().clone())
    }

    /// The direct link.
    #[must_use]
    pub fn line(&self) -> Line {
        Line::new(self.running().direct_addr, SecretKey::from_seed(&self.key))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop(Duration::from_millis(100)));
        }
    }
}
