//! An agent that signs by hand, so that a test can also send what no controller would.

use serde_json::json;
use wire::envelope::seal;
use wire::{
    Challenge, ClaimantRequest, Head, Id, Lease, Object, OwnerRequest, PairingSecret, PublicKey, SecretKey, Signer as _,
};

use crate::Keeper;
use crate::link::{Line, Outcome};

/// An agent with its key.
pub struct Agent {
    /// Its address.
    pub address: wire::Agent,
    /// Its key.
    pub key: SecretKey,
}

/// An id that was never used.
#[must_use]
pub fn fresh_id() -> Id {
    Id::from_bytes(random())
}

/// Bytes that nobody has guessed.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("randomness");
    bytes
}

/// An object of JSON.
#[must_use]
pub fn object(value: serde_json::Value) -> Object {
    match value {
        serde_json::Value::Object(map) => Object::from(map),
        other => panic!("{other} is no object"),
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self::new("helper@home.example.org")
    }
}

impl Agent {
    /// An agent with a key of its own.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self::from_seed(address, &random())
    }

    /// An agent with this key.
    #[must_use]
    pub fn from_seed(address: &str, seed: &[u8; 32]) -> Self {
        Self { address: address.parse().expect("an address"), key: SecretKey::from_seed(seed) }
    }

    /// Its public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// The sealed bytes of a request.
    #[must_use]
    pub fn seal(&self, device: &PublicKey, id: Id, challenge: Challenge, request: &OwnerRequest) -> Vec<u8> {
        let head = Head { id, challenge, to: device.clone() };
        seal(&self.key, &request.to_body(&head)).into_bytes()
    }

    /// The sealed bytes of a claim.
    #[must_use]
    pub fn claim(&self, device: &PublicKey, id: Id, challenge: Challenge, secret: &PairingSecret) -> Vec<u8> {
        let head = Head { id, challenge, to: device.clone() };
        let (agent, key) = (self.address.clone(), self.public().clone());
        let proof = secret.proof(&key, &id);
        seal(&self.key, &ClaimantRequest::Claim { agent, key, proof }.to_body(&head)).into_bytes()
    }

    /// Asks once, with a challenge of its own.
    #[must_use]
    pub fn ask(&self, line: &Line, id: Id, request: &OwnerRequest) -> Outcome {
        let challenge = line.challenge();
        line.post(&self.seal(&line.device, id, challenge, request)).outcome(&line.device)
    }

    /// Uses a capability under a new id.
    #[must_use]
    pub fn call(&self, line: &Line, capability: &str, arguments: serde_json::Value) -> Outcome {
        self.call_as(line, fresh_id(), capability, arguments)
    }

    /// Uses a capability under this id.
    #[must_use]
    pub fn call_as(&self, line: &Line, id: Id, capability: &str, arguments: serde_json::Value) -> Outcome {
        self.ask(line, id, &invoke(capability, arguments))
    }

    /// Makes the device the active one.
    pub fn activate(&self, line: &Line, lease_ms: u64) {
        let lease = Lease::from_ms(lease_ms).expect("a lease");
        self.ask(line, fresh_id(), &OwnerRequest::Activate { lease }).value();
    }

    /// Becomes the owner: pairing, claim, approval.
    pub fn own(&self, line: &Line, keeper: &Keeper) {
        let secret = keeper.pair();
        let id = fresh_id();
        let sealed = self.claim(&line.device, id, line.challenge(), &secret);
        line.post(&sealed).outcome(&line.device).value();
        keeper.approve(&id);
    }

    /// Becomes the owner with these grants on, and makes the device active.
    pub fn settle(&self, line: &Line, keeper: &Keeper, grants: &[&str]) {
        self.own(line, keeper);
        for grant in grants {
            keeper.grant(grant);
        }
        self.activate(line, 300_000);
    }
}

/// An invoke.
#[must_use]
pub fn invoke(capability: &str, arguments: serde_json::Value) -> OwnerRequest {
    OwnerRequest::Invoke { capability: capability.parse().expect("a name"), arguments: object(arguments) }
}

/// A text for the display.
#[must_use]
pub fn text(text: &str) -> serde_json::Value {
    json!({ "text": text })
}
