//! The signed registration: what the device is, whose it is, and what it can do (PROTOCOL.md section 6).
//!
//! Made anew for each request that asks for it, from the snapshot and the tree; nothing is kept.

use wire::declaration::PROTOCOL;
use wire::{CapabilityState, Offered, Owner, Registration};

use crate::inner::Inner;
use crate::tree::NodeState;

pub(crate) fn registration(inner: &Inner) -> Registration {
    let snapshot = inner.snapshots.borrow();
    let active = snapshot.is_active(inner.clock.boot());
    let offer = inner.catalogue.now();
    let offered = offer.capabilities.values().map(|installation| {
        let declaration = &installation.declaration;
        Offered {
            declaration: wire::Declaration::clone(declaration),
            grant_on: declaration
                .grant
                .as_ref()
                .is_some_and(|grant| snapshot.durable.granted(grant, installation.seal())),
            state: capability_state(installation.post.state()),
        }
    });
    Registration {
        device: inner.signer.public().clone(),
        name: inner.name(),
        protocol: PROTOCOL.to_owned(),
        owner: snapshot.owner().map(|owner| Owner { agent: owner.agent.clone(), key: owner.key.clone() }),
        active,
        active_until: snapshot.active.filter(|_| active).map(|until| until.wall_ms),
        simulated: inner.simulated,
        capabilities: offered.collect(),
    }
}

/// As controllers see an actor's state.
pub(crate) fn capability_state(state: Option<NodeState>) -> CapabilityState {
    match state {
        Some(NodeState::Running) => CapabilityState::Ready,
        Some(NodeState::Restarting) | None => CapabilityState::Degraded,
        Some(NodeState::Unavailable | NodeState::Stopped) => CapabilityState::Unavailable,
    }
}
