//! One run of the program: state folder, agents, the time given, and how a controller comes of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use latchkey_controller::folder::{AgentFolder, Folder, Lock};
use latchkey_controller::inventory::{ChangeKind, ChangeState, Inventory, Standing, find};
use latchkey_controller::{Controller, Device, DeviceName, Failure, Limits, Links, Notice, Parts, Store as _};
use tokio::time::Instant;
use wire::text::visible;

use super::args::Cli;
use super::outside::{self, SystemChance, SystemClock};
use super::ownership;
use super::problem::Problem;
use super::screen::Screen;

/// The total time of a command that waits for no keeper: the longest capability has 60 s.
const TOTAL: Duration = Duration::from_secs(90);

/// The time of one look at a change of owner: a device that takes longer is as good as away.
const LOOK: Duration = Duration::from_secs(15);

/// Added to a wait for another device's end, so that it is over when it is over.
const WAIT_MARGIN: Duration = Duration::from_millis(50);

/// What a run of the program has.
pub(crate) struct Session {
    pub(crate) folder: Folder,
    pub(crate) screen: Screen,
    pub(crate) clock: Arc<SystemClock>,
    agent: Option<String>,
    links: Arc<Links>,
    started: Instant,
    timeout: Option<Duration>,
}

/// A controller and the lock without which it may not sign.
pub(crate) struct Desk {
    pub(crate) controller: Controller,
    _lock: Option<Lock>,
}

impl Session {
    pub(crate) fn open(cli: &Cli, screen: Screen) -> Result<Self, Problem> {
        let path = cli.state_dir.clone().or_else(outside::state_dir);
        let nowhere = || Problem::usage("there is no home folder; say where to keep state with --state-dir");
        Ok(Self {
            folder: Folder::open(&path.ok_or_else(nowhere)?)?,
            screen,
            clock: Arc::new(SystemClock::new()),
            agent: cli.agent.clone(),
            links: Arc::new(Links::new(Limits::default())),
            started: Instant::now(),
            timeout: cli.timeout.map(Duration::from_secs),
        })
    }

    /// When everything must be over.
    pub(crate) fn until(&self) -> Instant {
        self.started + self.timeout.unwrap_or(TOTAL)
    }

    /// When waiting for a keeper must be over, if a time was given.
    pub(crate) fn waiting_until(&self) -> Option<Instant> {
        self.timeout.map(|timeout| self.started + timeout)
    }

    /// The agent that was named, or the only one.
    pub(crate) fn agent(&self) -> Result<AgentFolder, Problem> {
        Ok(self.folder.agent(self.agent.as_deref())?)
    }

    /// All agents, or the one that was named, with their inventories.
    pub(crate) fn inventories(&self) -> Result<Vec<(AgentFolder, Inventory)>, Problem> {
        let agents = match &self.agent {
            Some(wanted) => vec![self.folder.agent(Some(wanted))?],
            None => self.folder.agents()?,
        };
        let mut inventories = Vec::new();
        for agent in agents {
            let inventory = agent.store().load()?;
            inventories.push((agent, inventory));
        }
        Ok(inventories)
    }

    /// The device that `wanted` means, and whose it is.
    pub(crate) fn locate(&self, wanted: &str) -> Result<(AgentFolder, Device), Problem> {
        let inventories = self.inventories()?;
        if inventories.is_empty() {
            self.folder.agent(None)?;
        }
        let all = inventories.iter().flat_map(|(_, inventory)| &inventory.devices);
        if all.clone().next().is_none() {
            return Err(Problem::usage(
                "there is no device yet; at a device run: latchkeyd pair, then: latchkey claim LINK",
            ));
        }
        let device = find(all, wanted)
            .map_err(|error| Problem::usage(format!("{}; see: latchkey devices", visible(&error.to_string()))))?;
        let owns = |inventory: &Inventory| inventory.devices.iter().any(|other| std::ptr::eq(other, device));
        let owner = inventories.iter().find(|(_, inventory)| owns(inventory)).map(|(agent, _)| agent.clone());
        let agent = owner.ok_or_else(|| Problem::failed("the device has no agent"))?;
        Ok((agent, device.clone()))
    }

    /// The same, after a look at claims that were made without a name: an approved one gives its device the name that it has itself.
    pub(crate) async fn locate_anew(&self, wanted: &str) -> Result<(AgentFolder, Device), Problem> {
        match self.locate(wanted) {
            Err(_unknown) if self.look_at_claims().await? => self.locate(wanted),
            found => found,
        }
    }

    /// Asks how claims without a name stand; `true` if one was approved.
    async fn look_at_claims(&self) -> Result<bool, Problem> {
        let mut approved = false;
        for (agent, inventory) in self.inventories()? {
            let waits = |device: &&Device| {
                let pending = device.change.as_ref().is_some_and(|change| change.state == ChangeState::Pending);
                device.standing == Standing::Claiming && pending && !device.named
            };
            for device in inventory.devices.iter().filter(waits) {
                match ownership::look_once(self, &agent, &device.key).await {
                    Ok((state, _)) => approved |= state == ChangeState::Approved,
                    Err(problem) => self.screen.note(&format!("note: {}", problem.sentence)),
                }
            }
        }
        Ok(approved)
    }

    /// Whether another agent here uses the name already.
    pub(crate) fn name_taken(&self, agent: &AgentFolder) -> impl Fn(&DeviceName) -> bool + use<> {
        // An unreadable inventory of another agent hides its names; two agents may then share one, and --agent tells them
        // apart.
        let others = self.folder.agents().unwrap_or_default();
        let names: Vec<DeviceName> = others
            .iter()
            .filter(|other| other.agent() != agent.agent())
            .filter_map(|other| other.store().load().ok())
            .flat_map(|inventory| inventory.devices)
            .map(|device| device.name)
            .collect();
        move |name| names.contains(name)
    }

    /// A controller for `agent` that holds its lock.
    pub(crate) async fn desk(&self, agent: &AgentFolder) -> Result<Desk, Problem> {
        let lock = agent.lock().await?;
        self.desk_with(agent, Some(lock), self.until())
    }

    /// The same for one look at what a keeper did, however long the program has waited already.
    pub(crate) async fn desk_for_a_look(&self, agent: &AgentFolder) -> Result<Desk, Problem> {
        let lock = agent.lock().await?;
        let until = Instant::now() + LOOK;
        self.desk_with(agent, Some(lock), self.waiting_until().map_or(until, |end| end.min(until)))
    }

    /// The device that `wanted` means, and a controller for it. A claim that the keeper approved since is noticed here.
    pub(crate) async fn device(&self, wanted: &str) -> Result<(AgentFolder, Device, Desk), Problem> {
        let (agent, mut device) = self.locate_anew(wanted).await?;
        let desk = self.desk(&agent).await?;
        if device.standing == Standing::Claiming {
            let controller = &desk.controller;
            let status = controller.change_status(&device.key, self.name_taken(&agent)).await;
            let state = status.map_err(Problem::with(&device, None))?;
            device = controller.device(&device.key).map_err(|error| Problem::with(&device, None)(error.into()))?;
            if state != ChangeState::Approved {
                return Err(ownership::not_approved(&device.name, &ChangeKind::Claim, state));
            }
        }
        Ok((agent, device, desk))
    }

    /// A controller for `agent` beside another process. For `cancel` alone, which must overtake a running call, signs
    /// nothing else and changes no inventory.
    pub(crate) fn desk_beside(&self, agent: &AgentFolder) -> Result<Desk, Problem> {
        self.desk_with(agent, None, self.until())
    }

    fn desk_with(&self, agent: &AgentFolder, lock: Option<Lock>, until: Instant) -> Result<Desk, Problem> {
        let screen = self.screen;
        let controller = Controller::open(Parts {
            agent: agent.agent().clone(),
            signer: agent.signer()?,
            store: Arc::new(agent.store()),
            clock: self.clock.clone(),
            chance: Arc::new(SystemChance),
            links: self.links.clone(),
            until: Some(until),
            notices: Arc::new(move |notice| match notice {
                Notice::Activating { device, lease } => {
                    screen.note(&format!("activating {device} for {} s", lease.as_ms().div_ceil(1000)));
                }
                Notice::Deactivating { device } => screen.note(&format!("deactivating {device} first")),
            }),
        })?;
        Ok(Desk { controller, _lock: lock })
    }

    /// Does `work`, and again when another device that cannot be reached is certainly inactive, if there is time for that.
    pub(crate) async fn past_other<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        work: impl Fn() -> F,
    ) -> Result<T, Failure> {
        loop {
            let failure = match work().await {
                Err(failure @ Failure::OtherActive { .. }) => failure,
                settled => return settled,
            };
            let wait = failure.retry_after().unwrap_or_default() + WAIT_MARGIN;
            if Instant::now() + wait >= self.until() {
                return Err(failure);
            }
            self.screen.note(&format!("{failure} and does not answer; waiting for that to end"));
            tokio::time::sleep(wait).await;
        }
    }
}
