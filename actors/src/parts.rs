//! What the house is built from: everything of the outside comes in through [`Parts`], so that a whole device runs in a test.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use handlers::{CaptureHandler, Chance, Clock, Fault, Handler, Sign};
use tokio_util::sync::CancellationToken;
use wire::{CapabilityName, Declaration, Signer};

use crate::folder::Custom;
use crate::store::Vault;
use crate::{House, HouseCensus};

/// The parts of a house.
pub struct Parts {
    /// Signs with the device key.
    pub signer: Arc<dyn Signer>,
    /// The device's name, as people call it.
    pub name: String,
    /// The program's version.
    pub version: &'static str,
    /// Whether the hardware is simulated.
    pub simulated: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub chance: Arc<dyn Chance>,
    /// Names the boot on whose clock deadlines count (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// Shared with the health handler; it sees the house once that has grown.
    pub census: Arc<HouseCensus>,
    /// Where state and records live; it moves to the store's thread.
    pub vault: Box<dyn Vault>,
    /// What the keeper should know from the start: a damaged state set aside, a vanished journal.
    pub notices: Vec<String>,
    /// The in-use sign.
    pub sign: Arc<Sign>,
    /// The capabilities.
    pub capabilities: Vec<Installed>,
    /// Links and pages, supervised without knowing ractor.
    pub services: Vec<(Group, &'static str, Arc<dyn Service>)>,
    /// How much the owner may ask for.
    pub limits: Limits,
}

/// A capability, and how its work is made anew at each start of its actor.
#[derive(Clone)]
pub struct Installed {
    /// What it declares.
    pub declaration: Declaration,
    /// Makes the handler; called at start and at each restart of the capability's actor.
    pub make: Arc<dyn Fn() -> Result<Work, Fault> + Send + Sync>,
    /// What it has beyond that when it is the keeper's own file; none for what the program brings with it.
    pub custom: Option<Custom>,
}

/// A handler of either kind.
#[derive(Clone)]
pub enum Work {
    /// Runs on a permit.
    Plain(Arc<dyn Handler>),
    /// Runs on a permit and a lit sign.
    Capture(Arc<dyn CaptureHandler>),
}

/// How many requests an owner may make: a bucket of `rate_burst` that fills by `rate_per_second`.
///
/// It protects the disk: every accepted invocation leaves a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second.
    pub rate_per_second: u32,
    /// Requests at once after a rest.
    pub rate_burst: u32,
}

/// Where in the tree a service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Links to controllers and hubs.
    Links,
    /// The keeper's pages and socket.
    Keeper,
}

/// A link or a page.
///
/// `start` runs until `stop`; an error or an early end is a death that the supervisor answers with a restart. Listeners are
/// bound before the house grows, so that a restart never loses the port.
pub trait Service: Send + Sync {
    /// Runs the service.
    fn start(&self, house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>>;
}

/// What a reload of the settings changes in a living house.
#[derive(Debug, Clone)]
pub struct SettingsChange {
    /// The device's name.
    pub name: String,
    /// The owner's limits.
    pub limits: Limits,
    /// Capabilities whose handler is made anew, because what it stands on changed.
    pub renew: Vec<CapabilityName>,
}
