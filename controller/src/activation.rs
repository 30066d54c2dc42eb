//! The one active device of an agent (section 8), and how long one that does not answer may still be it.
//!
//! Owns the rule: before another device is activated, each former one has answered `deactivate`, or its [`Hold`] is over.
//! A hold is written down before the `activate` that causes it is sent, so that neither a crash nor a lost answer opens a
//! gap. It counts on the boot clock; after a restart of the machine it counts from that start, which can only make the
//! wait longer.

use serde::{Deserialize, Serialize};
use wire::keys::PublicKey;
use wire::request::{Lease, OwnerRequest};

use crate::controller::{Controller, Notice};
use crate::exchange::Patience;
use crate::failure::Failure;
use crate::inventory::Device;
use crate::outside::Clock;

/// A challenge lives 30 s: an unanswered `activate` may be accepted until then.
const CHALLENGE_MS: u64 = 30_000;

/// Added to every wait, for clocks that do not run equally fast (section 8).
const MARGIN_MS: u64 = 5_000;

/// How long a device may be active, for all that is known here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The start of the machine in which `from_ms` was read.
    boot: String,
    /// The boot clock when the `activate` was answered, or when its challenge came.
    from_ms: u64,
    /// The lease that was asked for.
    lease_ms: u64,
    /// Whether the device said yes.
    answered: bool,
    /// What an unanswered `activate` may have left running: the wait of the former hold.
    former_ms: u64,
}

impl Hold {
    /// An `activate` that is about to be sent with a challenge that just came.
    #[must_use]
    pub fn unanswered(clock: &dyn Clock, lease: Lease, former: Option<&Self>) -> Self {
        let former_ms = former.map_or(0, |hold| hold.remaining_ms(clock));
        Self { answered: false, former_ms, ..Self::answered(clock, lease) }
    }

    /// An `activate` that was just answered with yes.
    #[must_use]
    pub fn answered(clock: &dyn Clock, lease: Lease) -> Self {
        Self {
            boot: clock.boot_id().to_owned(),
            from_ms: clock.boot_ms(),
            lease_ms: lease.as_ms(),
            answered: true,
            former_ms: 0,
        }
    }

    fn wait_ms(&self) -> u64 {
        let challenge_ms = if self.answered { 0 } else { CHALLENGE_MS };
        self.lease_ms.saturating_add(MARGIN_MS).saturating_add(challenge_ms).max(self.former_ms)
    }

    fn elapsed_ms(&self, clock: &dyn Clock) -> u64 {
        let from_ms = if self.boot == clock.boot_id() { self.from_ms } else { 0 };
        clock.boot_ms().saturating_sub(from_ms)
    }

    /// How long until the device certainly is no longer active.
    #[must_use]
    pub fn remaining_ms(&self, clock: &dyn Clock) -> u64 {
        self.wait_ms().saturating_sub(self.elapsed_ms(clock))
    }

    /// What is left of a lease that the device granted in this start of the machine; nothing otherwise.
    #[must_use]
    pub(crate) fn lease_left_ms(&self, clock: &dyn Clock) -> u64 {
        if self.answered && self.boot == clock.boot_id() {
            self.lease_ms.saturating_sub(self.elapsed_ms(clock))
        } else {
            0
        }
    }

    /// Whether the lease was granted at or after `boot_ms` of this start of the machine.
    pub(crate) fn granted_since(&self, clock: &dyn Clock, boot_ms: u64) -> bool {
        self.answered && self.boot == clock.boot_id() && self.from_ms >= boot_ms
    }
}

impl Controller {
    /// Makes `key` the agent's active device for `lease`.
    ///
    /// Any other device that may still be active is deactivated first; if it does not answer, nothing is activated.
    ///
    /// # Errors
    ///
    /// [`Failure::OtherActive`] while another device may be active, and everything a request can fail with.
    pub async fn activate(&self, key: &PublicKey, lease: Lease) -> Result<(), Failure> {
        let _turn = self.activation_turn().await;
        self.make_way(key).await?;
        let ready = self.ready(key).await?;
        let former = self.device(key)?.hold;
        let unanswered = Hold::unanswered(self.clock(), lease, former.as_ref());
        self.set_hold(key, Some(unanswered))?;
        let answer = self.finish(ready, &OwnerRequest::Activate { lease }, self.draw_id()?, Patience::default()).await;
        match answer {
            Ok(value) => {
                let answered = Hold::answered(self.clock(), lease);
                self.set_hold(key, Some(answered))?;
                if value.get("lease_ms").and_then(serde_json::Value::as_u64) == Some(lease.as_ms()) {
                    Ok(())
                } else {
                    Err(Failure::Value(crate::values::ValueError::Lease))
                }
            }
            // Signed: the device did not accept it, so what held before still holds.
            Err(refused @ Failure::Refused(_)) => {
                self.set_hold(key, former)?;
                Err(refused)
            }
            Err(other) => Err(other),
        }
    }

    /// Ends activation of `key`.
    ///
    /// # Errors
    ///
    /// Everything a request can fail with; the device then counts as active until its hold is over.
    pub async fn deactivate(&self, key: &PublicKey) -> Result<(), Failure> {
        let _turn = self.activation_turn().await;
        self.deactivate_in_turn(key).await
    }

    async fn deactivate_in_turn(&self, key: &PublicKey) -> Result<(), Failure> {
        self.ask(key, &OwnerRequest::Deactivate, self.draw_id()?, Patience::default()).await?;
        self.set_hold(key, None)
    }

    /// Ends activation of every device but `key`, or says why that is not certain.
    async fn make_way(&self, key: &PublicKey) -> Result<(), Failure> {
        let others: Vec<Device> = self.devices().into_iter().filter(|device| device.key != *key).collect();
        for other in others {
            let Some(hold) = &other.hold else { continue };
            if hold.remaining_ms(self.clock()) == 0 {
                self.set_hold(&other.key, None)?;
                continue;
            }
            self.notice(&Notice::Deactivating { device: other.name.clone() });
            if let Err(cause) = self.deactivate_in_turn(&other.key).await {
                let remaining_ms = hold.remaining_ms(self.clock());
                if remaining_ms > 0 {
                    return Err(Failure::OtherActive { other: other.name, remaining_ms, cause: Box::new(cause) });
                }
                self.set_hold(&other.key, None)?;
            }
        }
        Ok(())
    }

    fn set_hold(&self, key: &PublicKey, hold: Option<Hold>) -> Result<(), Failure> {
        self.change_device(key, |device| device.hold = hold)
    }
}

#[cfg(test)]
mod tests;
