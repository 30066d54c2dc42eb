//! A controller for one agent: its key at work, its inventory, and what it knows of its devices at the moment.
//!
//! Made by a program or a server, one for each agent; ends when it is dropped, without anything to stop. Only one process
//! may use an agent's key at a time; [`crate::folder`] holds a lock for that, a server sees to it in its own way.
//! The operations are spread over files: invocations here, activation in `activation`, ownership in `changes`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wire::answer::ErrorCode;
use wire::declaration::{Activation, Declaration, Effect, Offered, Registration};
use wire::json::Object;
use wire::keys::{PublicKey, Signer};
use wire::request::{Lease, OwnerRequest};
use wire::text::{Agent, CapabilityName, Id};

use crate::exchange::Patience;
use crate::failure::{AnswerError, Failure};
use crate::inventory::{Device, DeviceName, Inventory, NotFound, Store, StoreError, find};
use crate::link::Links;
use crate::outside::{Chance, ChanceError, Clock};
use crate::values;

/// How old a registration may be that an invocation relies on (section 11).
const REGISTRATION_MS_MAX: u64 = 60_000;

/// Given to a capability on top of its declared time-out, for queues and the way.
const WORK_MARGIN: Duration = Duration::from_secs(5);

/// What a controller tells while it works, before it does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The device is about to be made the active one.
    Activating {
        /// The device.
        device: DeviceName,
        /// For how long.
        lease: Lease,
    },
    /// The device is about to be deactivated, because another is wanted.
    Deactivating {
        /// The device.
        device: DeviceName,
    },
}

/// What a controller is made of.
pub struct Parts {
    /// The agent's address.
    pub agent: Agent,
    /// The agent's key.
    pub signer: Arc<dyn Signer>,
    /// Where its inventory is kept.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// Connections; controllers may share them.
    pub links: Arc<Links>,
    /// When everything must be over, if ever.
    pub until: Option<Instant>,
    /// Hears what is done beside what was asked for.
    pub notices: Arc<dyn Fn(&Notice) + Send + Sync>,
}

/// What to do if a capability wants an active device and it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenIdle {
    /// Activate it for this long.
    Activate(Lease),
    /// Give up.
    Refuse,
}

/// One use of a capability.
#[derive(Clone)]
pub struct Invocation {
    /// Which.
    pub capability: CapabilityName,
    /// With what.
    pub arguments: Object,
    /// Under which id. For an effect `change`, the same id with the same content never runs twice.
    pub id: Id,
}

struct Described {
    at_boot_ms: u64,
    registration: Arc<Registration>,
}

/// Acts for one agent.
pub struct Controller {
    parts: Parts,
    inventory: Mutex<Inventory>,
    described: Mutex<HashMap<PublicKey, Described>>,
    turn: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("agent", &self.parts.agent).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controller {
    /// Reads the inventory and stands ready.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the inventory cannot be read.
    pub fn open(parts: Parts) -> Result<Self, StoreError> {
        let inventory = parts.store.load()?;
        Ok(Self {
            parts,
            inventory: Mutex::new(inventory),
            described: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// The agent it acts for.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.parts.agent
    }

    /// The agent's public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        self.parts.signer.public()
    }

    /// All devices of the agent.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        locked(&self.inventory).devices.clone()
    }

    /// The device that a name, key or fingerprint means.
    ///
    /// # Errors
    ///
    /// [`NotFound`].
    pub fn find(&self, wanted: &str) -> Result<Device, NotFound> {
        find(locked(&self.inventory).devices.iter(), wanted).cloned()
    }

    /// The device with this key.
    ///
    /// # Errors
    ///
    /// [`NotFound`].
    pub fn device(&self, key: &PublicKey) -> Result<Device, NotFound> {
        let unknown = || NotFound::Unknown { wanted: key.to_string(), meant: None };
        locked(&self.inventory).device(key).cloned().ok_or_else(unknown)
    }

    /// A new id, to know it before the request is sent.
    ///
    /// # Errors
    ///
    /// [`ChanceError`].
    pub fn draw_id(&self) -> Result<Id, ChanceError> {
        let mut bytes = [0_u8; 24];
        self.parts.chance.fill(&mut bytes)?;
        Ok(Id::from_bytes(bytes))
    }

    /// What the device says of itself now.
    ///
    /// # Errors
    ///
    /// Everything a request can fail with.
    pub async fn registration(&self, key: &PublicKey) -> Result<Arc<Registration>, Failure> {
        let at_boot_ms = self.parts.clock.boot_ms();
        let value = self.ask(key, &OwnerRequest::Registration, self.draw_id()?, Patience::default()).await?;
        let registration = Registration::parse(value).map_err(AnswerError::Registration)?;
        if registration.device != *key {
            return Err(AnswerError::OtherKey.into());
        }
        let registration = Arc::new(registration);
        let described = Described { at_boot_ms, registration: Arc::clone(&registration) };
        locked(&self.described).insert(key.clone(), described);
        Ok(registration)
    }

    /// A registration fresh enough for section 11, and when it was asked for.
    async fn described(&self, key: &PublicKey) -> Result<(u64, Arc<Registration>), Failure> {
        let now = self.parts.clock.boot_ms();
        let known = locked(&self.described)
            .get(key)
            .filter(|known| now.saturating_sub(known.at_boot_ms) < REGISTRATION_MS_MAX)
            .map(|known| (known.at_boot_ms, Arc::clone(&known.registration)));
        match known {
            Some(known) => Ok(known),
            None => Ok((now, self.registration(key).await?)),
        }
    }

    /// What the device declares of `capability`.
    ///
    /// # Errors
    ///
    /// [`Failure::Undeclared`], and everything a request can fail with.
    pub async fn declaration(&self, key: &PublicKey, capability: &CapabilityName) -> Result<Declaration, Failure> {
        let (_, registration) = self.described(key).await?;
        Ok(offered(&registration, capability)?.declaration.clone())
    }

    /// Uses a capability: checks it against what the device declared, activates the device if that is needed and wanted,
    /// sends, and holds the value against section 6.
    ///
    /// # Errors
    ///
    /// Everything in [`Failure`] but what belongs to a change of owner.
    pub async fn invoke(&self, key: &PublicKey, invocation: &Invocation, idle: WhenIdle) -> Result<Object, Failure> {
        let (described_at, registration) = self.described(key).await?;
        let offered = offered(&registration, &invocation.capability)?;
        let declaration = &offered.declaration;
        declaration.bounds.check(invocation.arguments.clone()).map_err(Failure::Arguments)?;
        let wants_active = declaration.activation == Activation::Active;
        let allowed = offered.grant_on || declaration.grant.is_none();
        // A grant that is off is refused before activity is looked at, so a lease would be taken for nothing.
        let mut may_activate = wants_active;
        if wants_active && allowed && !self.is_active(key, described_at, &registration, declaration.timeout)? {
            self.activate_if(key, idle).await?;
            may_activate = false;
        }
        match self.invoke_once(key, invocation, declaration).await {
            Err(Failure::Refused(refusal)) if refusal.error == ErrorCode::NotActive && may_activate => {
                self.activate_if(key, idle).await?;
                self.invoke_once(key, invocation, declaration).await
            }
            settled => settled,
        }
    }

    async fn activate_if(&self, key: &PublicKey, idle: WhenIdle) -> Result<(), Failure> {
        match idle {
            WhenIdle::Refuse => Err(Failure::NotActive),
            WhenIdle::Activate(lease) => {
                self.notice(&Notice::Activating { device: self.device(key)?.name, lease });
                self.activate(key, lease).await
            }
        }
    }

    /// Whether the device is active for at least `needed`, as far as is known here.
    fn is_active(
        &self,
        key: &PublicKey,
        described_at: u64,
        registration: &Registration,
        needed: Duration,
    ) -> Result<bool, Failure> {
        let clock = &*self.parts.clock;
        let hold = self.device(key)?.hold;
        let Some(hold) = hold.filter(|hold| registration.active || hold.granted_since(clock, described_at)) else {
            // Without a lease of ours nothing tells when it ends; one is taken.
            return Ok(false);
        };
        Ok(Duration::from_millis(hold.lease_left_ms(clock)) >= needed)
    }

    async fn invoke_once(
        &self,
        key: &PublicKey,
        invocation: &Invocation,
        declaration: &Declaration,
    ) -> Result<Object, Failure> {
        let request =
            OwnerRequest::Invoke { capability: invocation.capability.clone(), arguments: invocation.arguments.clone() };
        let may_change = match declaration.effect {
            Effect::Read => false,
            Effect::Change => true,
        };
        let patience = Patience { work: declaration.timeout.saturating_add(WORK_MARGIN), may_change };
        let value = self.ask(key, &request, invocation.id, patience).await?;
        values::check(&invocation.capability, &value)?;
        Ok(value)
    }

    /// Stops the running invocation `target`; `false` if none runs under that id.
    ///
    /// # Errors
    ///
    /// Everything a request can fail with.
    pub async fn cancel(&self, key: &PublicKey, target: Id) -> Result<bool, Failure> {
        let value = self.ask(key, &OwnerRequest::Cancel { target }, self.draw_id()?, Patience::default()).await?;
        let cancelled = value.get("cancelled").and_then(serde_json::Value::as_bool);
        Ok(cancelled.ok_or(AnswerError::Member("cancelled"))?)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.parts.clock
    }

    pub(crate) fn signer(&self) -> &dyn Signer {
        &*self.parts.signer
    }

    pub(crate) fn links(&self) -> &Links {
        &self.parts.links
    }

    pub(crate) fn until(&self) -> Option<Instant> {
        self.parts.until
    }

    pub(crate) fn notice(&self, notice: &Notice) {
        (self.parts.notices)(notice);
    }

    /// Activations take turns, so that two calls cannot each find the other's device idle.
    pub(crate) async fn activation_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Changes the inventory and keeps it; on an error nothing has changed.
    pub(crate) fn change_inventory<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> Result<T, StoreError> {
        let mut inventory = locked(&self.inventory);
        let mut changed = inventory.clone();
        let result = change(&mut changed);
        if changed != *inventory {
            self.parts.store.save(&changed)?;
            *inventory = changed;
        }
        Ok(result)
    }

    pub(crate) fn change_device(&self, key: &PublicKey, change: impl FnOnce(&mut Device)) -> Result<(), Failure> {
        self.change_inventory(|inventory| inventory.device_mut(key).map(change))?;
        Ok(())
    }

    pub(crate) fn forget_described(&self, key: &PublicKey) {
        locked(&self.described).remove(key);
    }
}

fn offered<'a>(registration: &'a Registration, wanted: &CapabilityName) -> Result<&'a Offered, Failure> {
    let declared = || registration.capabilities.iter().map(|offered| offered.declaration.name.clone()).collect();
    registration
        .capabilities
        .iter()
        .find(|offered| offered.declaration.name == *wanted)
        .ok_or_else(|| Failure::Undeclared { wanted: wanted.clone(), declared: declared() })
}
