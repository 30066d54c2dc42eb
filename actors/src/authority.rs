//! Who may: the snapshot of ownership, grants and activation, and the [`Permit`] that only this module makes.
//!
//! Readers take snapshots and never wait for their one writer, the state actor. A permit names what it stands on, so that the
//! capability actor can see, right before the work starts and all the while it runs, whether that still holds. Called by the gate
//! (whose key counts) and for each invocation ([`authorise`]). Refuses what is not granted, and what needs an active device while it is
//! not; a permit ends with the one run it is for.

use std::sync::Arc;

use handlers::BootTime;
use wire::{Activation, CapabilityName, Declaration, ErrorCode, GrantName, PairingSecret, PublicKey, Refusal};

use crate::challenge::Issue;
use crate::state::Retired;
use crate::store::{Deadline, Durable, OwnerRow, Seal};

/// Ownership, grants and activation at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) durable: Arc<Durable>,
    /// Until when the device is its owner's active one.
    pub(crate) active: Option<Deadline>,
    /// An `activate` must stand on a challenge issued after this one.
    pub(crate) activate_after: Option<Issue>,
    pub(crate) pairing: Option<Arc<Pairing>>,
    /// A change of owner is being written: nobody may anything.
    pub(crate) changing: bool,
    /// Contents that left service with their grants a moment ago: calls that had begun on them end as they would have.
    pub(crate) retired: Arc<Vec<Retired>>,
}

/// Pairing, opened by the keeper.
#[derive(Debug)]
pub(crate) struct Pairing {
    pub(crate) secret: PairingSecret,
    pub(crate) until: Deadline,
}

impl Snapshot {
    /// Nobody may anything yet.
    pub(crate) fn nobody(durable: Durable) -> Self {
        Self {
            durable: Arc::new(durable),
            active: None,
            activate_after: None,
            pairing: None,
            changing: true,
            retired: Arc::default(),
        }
    }

    /// The owner, unless it is being changed.
    pub(crate) fn owner(&self) -> Option<&OwnerRow> {
        self.durable.owner.as_ref().filter(|_| !self.changing)
    }

    /// The owner, if it is the one of this ownership number.
    pub(crate) fn owner_under(&self, ownership: u64) -> Option<&OwnerRow> {
        self.owner().filter(|_| self.durable.ownership == ownership)
    }

    /// The key that the device obeys.
    pub(crate) fn owner_key(&self) -> Option<&PublicKey> {
        self.owner().map(|owner| &owner.key)
    }

    pub(crate) fn is_active(&self, now: BootTime) -> bool {
        self.active.is_some_and(|until| !until.reached(now))
    }

    /// Pairing, while it is open and the device is nobody's.
    pub(crate) fn open_pairing(&self, now: BootTime) -> Option<&Pairing> {
        self.pairing.as_deref().filter(|pairing| !pairing.until.reached(now) && !self.changing)
    }

    /// Whether a key that is not the owner's may have something to say.
    pub(crate) fn hears_strangers(&self, now: BootTime) -> bool {
        self.open_pairing(now).is_some()
            || self.durable.changes.iter().any(|change| Some(&change.asked_by) != self.owner_key())
    }
}

/// The right to run one capability once, as long as what it stands on holds.
///
/// Made by [`authorise`] alone, consumed by the capability actor; it can be neither copied nor made elsewhere.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    capability: CapabilityName,
    ownership: u64,
    grant: Option<GrantName>,
    /// The content that was granted, of a handler.
    seal: Option<Seal>,
    needs_active: bool,
}

/// What a permit stood on and stands on no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Owner,
    Grant,
    Activation,
}

impl Lost {
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Owner => "the device changed hands",
            Self::Grant => "its grant was turned off",
            Self::Activation => "the device is no longer active",
        }
    }
}

impl Permit {
    fn assertion(declaration: &Declaration, seal: Option<&Seal>, ownership: u64) -> Self {
        Self {
            capability: declaration.name.clone(),
            ownership,
            grant: declaration.grant.clone(),
            seal: seal.copied(),
            needs_active: declaration.activation == Activation::Active,
        }
    }

    /// Whether it is for this capability.
    pub(crate) fn is_for(&self, capability: &CapabilityName) -> bool {
        self.capability == *capability
    }

    /// Whether what it stands on still holds. A content that left service takes its grant with it, but not from those who are at
    /// work on it already.
    pub(crate) fn holds(&self, snapshot: &Snapshot, now: BootTime) -> Result<(), Lost> {
        self.stands(snapshot, now, true)
    }

    fn stands(&self, snapshot: &Snapshot, now: BootTime, begun: bool) -> Result<(), Lost> {
        if snapshot.changing || snapshot.durable.owner.is_none() || snapshot.durable.ownership != self.ownership {
            return Err(Lost::Owner);
        }
        let retired = |grant: &GrantName| {
            let content = |retired: &Retired| retired.grant == *grant && Some(&retired.seal) == self.seal.as_ref();
            begun && snapshot.retired.iter().any(content)
        };
        let granted = |grant: &GrantName| snapshot.durable.granted(grant, self.seal.as_ref()) || retired(grant);
        if self.grant.as_ref().is_some_and(|grant| !granted(grant)) {
            return Err(Lost::Grant);
        }
        if self.needs_active && !snapshot.is_active(now) {
            return Err(Lost::Activation);
        }
        Ok(())
    }
}

/// Grant, then activation (PROTOCOL.md section 6), under the ownership that admitted the request; the permit is the proof that
/// all held.
pub(crate) fn authorise(
    snapshot: &Snapshot,
    declaration: &Declaration,
    seal: Option<&Seal>,
    ownership: u64,
    now: BootTime,
) -> Result<Permit, Refusal> {
    let permit = Permit::assertion(declaration, seal, ownership);
    permit.stands(snapshot, now, false).map_err(|lost| refusal(lost, declaration)).map(|()| permit)
}

fn refusal(lost: Lost, declaration: &Declaration) -> Refusal {
    let (error, message) = match lost {
        Lost::Owner => (ErrorCode::Cancelled, lost.in_words().to_owned()),
        Lost::Grant => {
            let name = declaration.grant.as_ref().map_or("it", GrantName::as_str);
            (ErrorCode::Denied, format!("{name} is not granted on this device"))
        }
        Lost::Activation => {
            (ErrorCode::NotActive, format!("{} runs only while the device is active", declaration.name))
        }
    };
    Refusal { error, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::GrantRow;
    use crate::testing::owner_row;

    fn snapshot(change: impl FnOnce(&mut Snapshot, &mut Durable)) -> Snapshot {
        let mut durable = Durable::new("boot");
        durable.owner = Some(owner_row(1));
        durable.grants.insert("camera".parse().unwrap(), GrantRow { since_ms: 0, seal: None });
        let mut snapshot = Snapshot {
            durable: Arc::new(durable.clone()),
            active: Some(Deadline { boot_ms: 100, wall_ms: 100 }),
            activate_after: None,
            pairing: None,
            changing: false,
            retired: Arc::default(),
        };
        change(&mut snapshot, &mut durable);
        snapshot.durable = Arc::new(durable);
        snapshot
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Snapshot, &mut Durable), expected: Result<(), ErrorCode>) {
        let camera = Declaration::camera_snapshot();
        let verdict = authorise(&snapshot(change), &camera, None, 1, BootTime::from_ms(50));
        assert_eq!(verdict.map(|_| ()).map_err(|refusal| refusal.error), expected);
    }

    #[test]
    fn a_permit_needs_owner_grant_and_activation_and_nothing_else_gives_one() {
        check(|_, _| {}, Ok(()));
        check(|_, durable| durable.grants.clear(), Err(ErrorCode::Denied));
        check(|snapshot, _| snapshot.active = None, Err(ErrorCode::NotActive));
        check(|snapshot, _| snapshot.active = Some(Deadline { boot_ms: 50, wall_ms: 900 }), Err(ErrorCode::NotActive));
        check(|snapshot, _| snapshot.changing = true, Err(ErrorCode::Cancelled));
        check(|_, durable| durable.owner = None, Err(ErrorCode::Cancelled));
        check(|_, durable| durable.ownership = 2, Err(ErrorCode::Cancelled));
    }

    #[test]
    fn a_permit_ends_with_what_it_stood_on() {
        let now = BootTime::from_ms(50);
        let given = || authorise(&snapshot(|_, _| {}), &Declaration::camera_snapshot(), None, 1, now).unwrap();
        let holds = |change: fn(&mut Snapshot, &mut Durable)| given().holds(&snapshot(change), now);
        assert_eq!(holds(|_, _| {}), Ok(()));
        assert_eq!(holds(|_, durable| durable.ownership += 1), Err(Lost::Owner));
        assert_eq!(holds(|_, durable| durable.grants.clear()), Err(Lost::Grant));
        assert_eq!(holds(|snapshot, _| snapshot.active = None), Err(Lost::Activation));
        assert_eq!(given().holds(&snapshot(|_, _| {}), BootTime::from_ms(100)), Err(Lost::Activation));
    }

    #[test]
    fn a_permit_for_a_handler_is_for_one_content_and_outlives_it_only_where_work_had_begun() {
        let now = BootTime::from_ms(50);
        let seal = |text: &str| Seal { file: config::digest::Digest::of(text.as_bytes()), manifest: None };
        let (old, new) = (seal("a"), seal("b"));
        let granted = |content: Seal| {
            snapshot(move |_, durable| {
                durable.grants.insert("camera".parse().unwrap(), GrantRow { since_ms: 0, seal: Some(content) });
            })
        };
        let camera = Declaration::camera_snapshot();
        let given = |snapshot: &Snapshot, seal: &Seal| authorise(snapshot, &camera, Some(seal), 1, now);
        let permit = given(&granted(old), &old).unwrap();
        assert_eq!(given(&granted(old), &new).unwrap_err().error, ErrorCode::Denied);
        assert_eq!(authorise(&granted(old), &camera, None, 1, now).unwrap_err().error, ErrorCode::Denied);
        assert_eq!(permit.holds(&granted(new), now), Err(Lost::Grant));
        let retired = Retired::new("camera".parse().unwrap(), old, Deadline { boot_ms: 100, wall_ms: 100 });
        let changed = Snapshot { retired: Arc::new(vec![retired]), ..granted(new) };
        assert_eq!(permit.holds(&changed, now), Ok(()));
        assert_eq!(given(&changed, &old).unwrap_err().error, ErrorCode::Denied, "nothing begins on it any more");
        let handed = Snapshot { changing: true, ..changed };
        assert_eq!(permit.holds(&handed, now), Err(Lost::Owner));
    }

    #[test]
    fn an_owner_is_one_under_its_own_number_and_nobody_is_while_it_changes() {
        let now = snapshot(|_, _| {});
        assert!(now.owner_under(1).is_some() && now.owner_key().is_some());
        assert!(now.owner_under(2).is_none(), "a request of another ownership has no owner here");
        let changing = snapshot(|snapshot, _| snapshot.changing = true);
        assert!(changing.owner_under(1).is_none() && changing.owner_key().is_none());
    }

    #[test]
    fn health_needs_an_owner_only() {
        let health = Declaration::device_health();
        let bare = snapshot(|snapshot, durable| {
            snapshot.active = None;
            durable.grants.clear();
        });
        assert!(authorise(&bare, &health, None, 1, BootTime::from_ms(50)).is_ok());
        assert!(
            authorise(&snapshot(|_, durable| durable.owner = None), &health, None, 1, BootTime::from_ms(50)).is_err()
        );
    }
}
