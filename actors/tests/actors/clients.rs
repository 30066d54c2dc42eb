//! The other side: owners, claimants and strangers, who sign, ask, and check what they are answered.

use latchkey_actors::{Command, Forbidden, Link, ReceiptLine, Reply, Waiting};
use serde_json::json;
use wire::{
    Agent, ClaimantRequest, Envelope, ErrorCode, Head, Id, Lease, Object, OwnerRequest, PairingSecret, PublicKey,
    Refusal, Refused, SecretKey, Signer,
};

use crate::rig::{Rig, device, secret};

/// What a request came to: a signed outcome, or a 403 with its reason.
pub(crate) type Told = Result<Result<Object, Refusal>, Refused>;

pub(crate) fn owner() -> SecretKey {
    secret(1)
}

pub(crate) fn public(byte: u8) -> PublicKey {
    secret(byte).public().clone()
}

pub(crate) fn agent(byte: u8) -> Agent {
    format!("agent-{byte}@home.example.org").parse().unwrap()
}

pub(crate) fn object(value: serde_json::Value) -> Object {
    match value {
        serde_json::Value::Object(map) => Object::from(map),
        other => panic!("{other}"),
    }
}

pub(crate) fn invoke(capability: &str, arguments: serde_json::Value) -> OwnerRequest {
    OwnerRequest::Invoke { capability: capability.parse().unwrap(), arguments: object(arguments) }
}

pub(crate) fn show(text: &str) -> OwnerRequest {
    invoke("display.text", json!({ "text": text }))
}

pub(crate) fn snapshot() -> OwnerRequest {
    invoke("camera.snapshot", json!({}))
}

pub(crate) fn health() -> OwnerRequest {
    invoke("device.health", json!({}))
}

pub(crate) fn activate(lease_ms: u64) -> OwnerRequest {
    OwnerRequest::Activate { lease: Lease::from_ms(lease_ms).unwrap() }
}

/// The error of a signed outcome.
#[track_caller]
pub(crate) fn error(told: Told) -> ErrorCode {
    told.expect("a signed answer").expect_err("an error").error
}

#[track_caller]
pub(crate) fn value(told: Told) -> Object {
    told.expect("a signed answer").expect("a value")
}

/// `ok`, the error code, or the label of a 403.
pub(crate) fn word(told: &Told) -> &'static str {
    match told {
        Ok(Ok(_)) => "ok",
        Ok(Err(refusal)) => refusal.error.as_str(),
        Err(refused) => refused.label(),
    }
}

impl Rig {
    pub(crate) fn id(&self) -> Id {
        let mut bytes = [7; 24];
        bytes[..8].copy_from_slice(&self.number().to_be_bytes());
        Id::from_bytes(bytes)
    }

    /// A fresh head on the direct link.
    pub(crate) fn head(&self) -> Head {
        self.head_of(self.id())
    }

    pub(crate) fn head_of(&self, id: Id) -> Head {
        Head { id, challenge: self.house.challenge(Link::Direct), to: device().public().clone() }
    }

    /// Signs a body, has it answered, and checks the answer as a controller does.
    pub(crate) async fn send(&self, key: &SecretKey, head: &Head, body: &[u8]) -> Told {
        let sealed = wire::envelope::seal(key, body);
        self.post(key, head, sealed.into_bytes()).await
    }

    /// Posts bytes that were signed before.
    pub(crate) async fn post(&self, key: &SecretKey, head: &Head, bytes: Vec<u8>) -> Told {
        let answered = self.house.answer(Link::Direct, bytes.into()).await;
        let sealed = answered.map_err(|Forbidden(refused)| refused)?;
        let opened = Envelope::parse_result(sealed.as_bytes()).unwrap().open_answer(device().public()).unwrap();
        let (_, _, answer) = opened.into_parts();
        answer.matches(head, key.public()).unwrap();
        Ok(answer.outcome)
    }

    pub(crate) async fn ask_as(&self, key: &SecretKey, request: OwnerRequest) -> Told {
        let head = self.head();
        self.send(key, &head, &request.to_body(&head)).await
    }

    pub(crate) async fn ask(&self, request: OwnerRequest) -> Told {
        self.ask_as(&owner(), request).await
    }

    pub(crate) async fn ask_under(&self, id: Id, request: OwnerRequest) -> Told {
        let head = self.head_of(id);
        self.send(&owner(), &head, &request.to_body(&head)).await
    }

    /// Opens pairing at the device.
    pub(crate) async fn pair(&self) -> PairingSecret {
        match self.keeper(Command::Pair).await {
            Reply::Pairing { secret, .. } => secret.parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn claim(&self, byte: u8, id: Id, pairing: &PairingSecret) -> Told {
        let (key, head) = (secret(byte), self.head_of(id));
        let proof = pairing.proof(key.public(), &id);
        let claim = ClaimantRequest::Claim { agent: agent(byte), key: key.public().clone(), proof };
        self.send(&key, &head, &claim.to_body(&head)).await
    }

    pub(crate) async fn change_status(&self, byte: u8, target: Id) -> Told {
        let head = self.head();
        self.send(&secret(byte), &head, &ClaimantRequest::ChangeStatus { target }.to_body(&head)).await
    }

    /// Claims the device and approves the claim.
    pub(crate) async fn own(&self, byte: u8) -> Id {
        let (pairing, id) = (self.pair().await, self.id());
        value(self.claim(byte, id, &pairing).await);
        self.approve(&id.to_string()).await;
        id
    }

    pub(crate) async fn approve(&self, which: &str) -> Waiting {
        match self.keeper(Command::Approve { which: which.to_owned() }).await {
            Reply::Decided { change } => change,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn refuse(&self, which: &str) -> Waiting {
        match self.keeper(Command::Refuse { which: which.to_owned() }).await {
            Reply::Decided { change } => change,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn grant(&self, name: &str) {
        let reply = self.keeper(Command::Grant { name: name.to_owned() }).await;
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    }

    /// What cannot be written does not happen.
    pub(crate) async fn grant_is_refused(&self) {
        let reply = self.keeper(Command::Grant { name: "display.text".to_owned() }).await;
        assert!(matches!(reply, Reply::Failed { .. }), "{reply:?}");
    }

    pub(crate) async fn revoke(&self, name: &str) {
        let reply = self.keeper(Command::Revoke { name: name.to_owned() }).await;
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    }

    pub(crate) async fn grant_all(&self) {
        for name in ["camera", "display.text", "display.image", "custom.test.ears", "custom.test.lamp"] {
            self.grant(name).await;
        }
    }

    /// Owned, all granted, active.
    pub(crate) async fn ready(self) -> Self {
        self.own(1).await;
        self.grant_all().await;
        value(self.ask(activate(300_000)).await);
        self
    }

    /// The whole journal.
    pub(crate) async fn receipts(&self) -> Vec<ReceiptLine> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |line: &ReceiptLine| line.sequence);
            match self.keeper(Command::Receipts { after, limit: 500, wait_ms: 0 }).await {
                Reply::Receipts { records, .. } if records.is_empty() => return all,
                Reply::Receipts { records, .. } => all.extend(records),
                other => panic!("{other:?}"),
            }
        }
    }

    /// What the journal says about one request: the outcomes, `started` for a record without one.
    pub(crate) async fn story(&self, id: Id) -> Vec<String> {
        let id = id.to_string();
        let lines = self.receipts().await;
        let of_id = lines.into_iter().filter(|line| line.id.as_ref() == Some(&id) && line.kind == "call");
        of_id.map(|line| line.outcome.unwrap_or_else(|| "started".to_owned())).collect()
    }

    pub(crate) async fn verifies(&self) {
        match self.keeper(Command::Verify).await {
            Reply::Verified { ok: true, .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
