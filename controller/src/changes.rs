//! Changes of owner (section 7), from the side that asks: claim, transfer, release, and what became of them.
//!
//! Each waits for the keeper, so each is written into the inventory before it is sent, under the id that `change.status`
//! takes: whoever loses the answer, or stops waiting, can ask later.

use serde_json::Value;
use wire::answer::{ErrorCode, Refusal};
use wire::json::Object;
use wire::keys::PublicKey;
use wire::pairing::{ClaimCode, PairingLink};
use wire::request::{ClaimantRequest, OwnerRequest};
use wire::text::{Agent, Id, Salt};

use crate::controller::Controller;
use crate::exchange::{Patience, Request};
use crate::failure::{AnswerError, Failure};
use crate::inventory::{Address, Change, ChangeKind, ChangeState, Device, DeviceName, Standing};

/// What a change has if the device does not say (it always does); also the life of one whose answer was lost.
const EXPIRES_MS: u64 = 600_000;

/// A change that waits for the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The device.
    pub key: PublicKey,
    /// Its local name, which approval may change to the device's own.
    pub name: DeviceName,
    /// The id of the request.
    pub id: Id,
    /// What the keeper must see at the device; a release has none.
    pub code: Option<ClaimCode>,
    /// When it expires, on the wall clock.
    pub expires_at: u64,
}

impl Controller {
    /// Asks for the device of a pairing link. Asking again for a claim that is pending gives the same code.
    ///
    /// `name` is the local name; without one the device's own is taken when the claim is approved. `taken` tells names
    /// that are in use elsewhere.
    ///
    /// # Errors
    ///
    /// Everything a request can fail with. After a refusal, or when nothing was sent, the inventory is as before.
    pub async fn claim(
        &self,
        link: &PairingLink,
        name: Option<DeviceName>,
        taken: impl Fn(&DeviceName) -> bool,
    ) -> Result<Pending, Failure> {
        let key = &link.device;
        let former = self.device(key).ok();
        let id = match former.as_ref().and_then(|device| self.pending_claim(device)) {
            Some(id) => id,
            None => self.draw_id()?,
        };
        let entry = self.claiming(link, name, former.as_ref(), id, &taken);
        self.put(entry.clone())?;
        let request = ClaimantRequest::Claim {
            agent: self.agent().clone(),
            key: self.public().clone(),
            proof: link.secret.proof(self.public(), &id),
        };
        match self.ask_change(key, &request, id, self.public()).await {
            Ok((code, expires_at)) => {
                Ok(Pending { key: key.clone(), name: entry.name, id, code: Some(code), expires_at })
            }
            Err(unknown @ Failure::OutcomeUnknown { .. }) => Err(unknown),
            Err(failure) => {
                self.restore(key, former)?;
                Err(failure)
            }
        }
    }

    fn pending_claim(&self, device: &Device) -> Option<Id> {
        let change = device.change.as_ref().filter(|change| change.kind == ChangeKind::Claim)?;
        let alive = change.state == ChangeState::Pending && self.clock().wall_ms() < change.expires_at;
        alive.then_some(change.id)
    }

    fn claiming(
        &self,
        link: &PairingLink,
        name: Option<DeviceName>,
        former: Option<&Device>,
        id: Id,
        taken: &impl Fn(&DeviceName) -> bool,
    ) -> Device {
        let now = self.clock().wall_ms();
        let named = name.is_some() || former.is_some_and(|device| device.named);
        let wish = name
            .or_else(|| former.map(|device| device.name.clone()))
            .unwrap_or_else(|| DeviceName::from_device("device"));
        Device {
            name: self.free_name(&wish, &link.device, taken),
            named,
            key: link.device.clone(),
            address: Address::from(link),
            standing: Standing::Claiming,
            change: Some(Change {
                kind: ChangeKind::Claim,
                id,
                code: None,
                asked_at: now,
                expires_at: now.saturating_add(EXPIRES_MS),
                state: ChangeState::Pending,
            }),
            hold: None,
        }
    }

    fn free_name(&self, wish: &DeviceName, key: &PublicKey, taken: &impl Fn(&DeviceName) -> bool) -> DeviceName {
        let devices = self.devices();
        wish.free_among(|name| taken(name) || devices.iter().any(|device| device.key != *key && device.name == *name))
    }

    /// Asks that `to`, with the key `new_owner`, shall have the device.
    ///
    /// # Errors
    ///
    /// Everything a request can fail with.
    pub async fn transfer(&self, key: &PublicKey, to: &Agent, new_owner: &PublicKey) -> Result<Pending, Failure> {
        let former = self.device(key)?;
        let id = self.draw_id()?;
        self.note_change(key, ChangeKind::Transfer { to: to.clone() }, id)?;
        let request = OwnerRequest::Transfer { agent: to.clone(), key: new_owner.clone() };
        match self.ask_change(key, &request, id, new_owner).await {
            Ok((code, expires_at)) => {
                Ok(Pending { key: key.clone(), name: former.name, id, code: Some(code), expires_at })
            }
            Err(unknown @ Failure::OutcomeUnknown { .. }) => Err(unknown),
            Err(failure) => {
                self.restore(key, Some(former))?;
                Err(failure)
            }
        }
    }

    /// Asks that nobody shall have the device any more.
    ///
    /// # Errors
    ///
    /// Everything a request can fail with.
    pub async fn release(&self, key: &PublicKey) -> Result<Pending, Failure> {
        let former = self.device(key)?;
        let id = self.draw_id()?;
        self.note_change(key, ChangeKind::Release, id)?;
        match self.ask(key, &OwnerRequest::Release, id, Patience::change()).await {
            Ok(value) => {
                let expires_at = self.expires_at(&value);
                self.change_device(key, |device| keep_answer(device, None, expires_at))?;
                Ok(Pending { key: key.clone(), name: former.name, id, code: None, expires_at })
            }
            Err(unknown @ Failure::OutcomeUnknown { .. }) => Err(unknown),
            Err(failure) => {
                self.restore(key, Some(former))?;
                Err(failure)
            }
        }
    }

    /// Asks the device how the change stands that the inventory has for it, and writes it down.
    ///
    /// # Errors
    ///
    /// [`Failure::NoChange`] if there is none, and everything a request can fail with.
    pub async fn change_status(
        &self,
        key: &PublicKey,
        taken: impl Fn(&DeviceName) -> bool,
    ) -> Result<ChangeState, Failure> {
        let device = self.device(key)?;
        let change = device.change.ok_or(Failure::NoChange(device.name))?;
        let request = ClaimantRequest::ChangeStatus { target: change.id };
        let state = match self.ask(key, &request, self.draw_id()?, Patience::default()).await {
            Ok(value) => told_state(&value)?,
            Err(Failure::Refused(refusal)) if refusal.error == ErrorCode::InvalidArguments => {
                self.forgotten(key, &change, refusal).await?
            }
            Err(failure) => return Err(failure),
        };
        self.change_device(key, |device| settle(device, state))?;
        if state == ChangeState::Approved {
            self.forget_described(key);
            if change.kind == ChangeKind::Claim && !device.named {
                // The claim stands whether or not the device tells its name now.
                if let Ok(registration) = self.registration(key).await {
                    let wish = DeviceName::from_device(&registration.name);
                    let name = self.free_name(&wish, key, &taken);
                    self.change_device(key, |device| device.name = name)?;
                }
            }
        }
        Ok(state)
    }

    /// What became of a change that the device has no more on record: it keeps one for 24 hours, and says so, signed, to its owner alone.
    async fn forgotten(&self, key: &PublicKey, change: &Change, refusal: Refusal) -> Result<ChangeState, Failure> {
        let settled = match change.kind {
            ChangeKind::Claim => {
                let registration = self.registration(key).await?;
                let ours = registration.owner.as_ref().is_some_and(|owner| owner.key == *self.public());
                ours.then_some(ChangeState::Approved)
            }
            // It asked its owner, so nobody approved it.
            ChangeKind::Transfer { .. } | ChangeKind::Release => {
                (self.clock().wall_ms() >= change.expires_at).then_some(ChangeState::Expired)
            }
        };
        settled.ok_or(Failure::Refused(refusal))
    }

    /// Removes the device from the inventory. The device is not told: it obeys this agent's key until its keeper or a
    /// `release` ends that.
    ///
    /// # Errors
    ///
    /// [`Failure::StillActive`] while it may be active, because the entry is what keeps another from becoming active too.
    pub fn forget(&self, key: &PublicKey) -> Result<(), Failure> {
        let device = self.device(key)?;
        let remaining_ms = device.hold.as_ref().map_or(0, |hold| hold.remaining_ms(self.clock()));
        if remaining_ms > 0 {
            return Err(Failure::StillActive { device: device.name, remaining_ms });
        }
        self.restore(key, None)
    }

    /// Sends a claim or a transfer and checks the code that comes back; gives it with the time it expires.
    async fn ask_change(
        &self,
        key: &PublicKey,
        request: &impl Request,
        id: Id,
        new_owner: &PublicKey,
    ) -> Result<(ClaimCode, u64), Failure> {
        let value = self.ask(key, request, id, Patience::change()).await?;
        let salt: Salt = member(&value, "salt")?;
        let code: ClaimCode = member(&value, "code")?;
        if code != ClaimCode::derive(key, new_owner, &id, &salt) {
            return Err(AnswerError::Code.into());
        }
        let expires_at = self.expires_at(&value);
        self.change_device(key, |device| keep_answer(device, Some(code), expires_at))?;
        Ok((code, expires_at))
    }

    fn expires_at(&self, value: &Object) -> u64 {
        let expires_ms = value.get("expires_ms").and_then(Value::as_u64).unwrap_or(EXPIRES_MS);
        self.clock().wall_ms().saturating_add(expires_ms.min(EXPIRES_MS))
    }

    fn note_change(&self, key: &PublicKey, kind: ChangeKind, id: Id) -> Result<(), Failure> {
        let asked_at = self.clock().wall_ms();
        let expires_at = asked_at.saturating_add(EXPIRES_MS);
        let change = Change { kind, id, code: None, asked_at, expires_at, state: ChangeState::Pending };
        self.change_device(key, |device| device.change = Some(change))
    }

    /// Writes the entry down, in place of the one there is. How long the device may be active stays as it is there: another task may
    /// have activated it since `entry` was made.
    fn put(&self, entry: Device) -> Result<(), Failure> {
        Ok(self.change_inventory(|inventory| match inventory.device_mut(&entry.key) {
            Some(device) => {
                let hold = device.hold.take();
                *device = Device { hold, ..entry };
            }
            None => inventory.devices.push(entry),
        })?)
    }

    fn restore(&self, key: &PublicKey, former: Option<Device>) -> Result<(), Failure> {
        match former {
            Some(former) => self.put(former),
            None => Ok(self.change_inventory(|inventory| inventory.devices.retain(|device| device.key != *key))?),
        }
    }
}

fn told_state(value: &Object) -> Result<ChangeState, AnswerError> {
    match value.get("state").and_then(Value::as_str) {
        Some("pending") => Ok(ChangeState::Pending),
        Some("approved") => Ok(ChangeState::Approved),
        Some("refused") => Ok(ChangeState::Refused),
        Some("expired") => Ok(ChangeState::Expired),
        Some(_) | None => Err(AnswerError::Member("state")),
    }
}

fn member<T: std::str::FromStr>(value: &Object, name: &'static str) -> Result<T, AnswerError> {
    let text = value.get(name).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).ok_or(AnswerError::Member(name))
}

fn keep_answer(device: &mut Device, code: Option<ClaimCode>, expires_at: u64) {
    if let Some(change) = &mut device.change {
        change.code = code;
        change.expires_at = expires_at;
    }
}

fn settle(device: &mut Device, state: ChangeState) {
    let Some(change) = &mut device.change else { return };
    change.state = state;
    if state != ChangeState::Approved {
        return;
    }
    device.standing = match change.kind {
        ChangeKind::Claim => Standing::Owned,
        ChangeKind::Transfer { .. } | ChangeKind::Release => Standing::Gone,
    };
    if change.kind == ChangeKind::Claim {
        device.change = None;
    } else {
        // A change of owner ends activation (section 7), and nothing of ours revives it.
        device.hold = None;
    }
}
