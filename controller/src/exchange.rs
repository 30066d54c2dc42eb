//! One request and its answer: challenge, signature, sending, and the checks of section 11.
//!
//! Called by every operation of [`Controller`]. What leaves here as a value was signed by the pinned key, for this
//! controller, this id and this challenge; everything else is a [`Failure`], and for a request that may change something
//! the failure says that nobody knows.

use std::time::Duration;

use wire::answer::Answer;
use wire::envelope::{BODY_BYTES_MAX, Envelope, seal};
use wire::json::Object;
use wire::keys::PublicKey;
use wire::request::{ClaimantRequest, Head, OwnerRequest};
use wire::text::Id;

use crate::controller::Controller;
use crate::failure::{AnswerError, Failure};
use crate::link::{LinkError, Peer, Ready};

/// What both families of requests can do.
pub(crate) trait Request {
    fn body(&self, head: &Head) -> Vec<u8>;
    fn name(&self) -> &'static str;
}

impl Request for OwnerRequest {
    fn body(&self, head: &Head) -> Vec<u8> {
        self.to_body(head)
    }

    fn name(&self) -> &'static str {
        self.type_name()
    }
}

impl Request for ClaimantRequest {
    fn body(&self, head: &Head) -> Vec<u8> {
        self.to_body(head)
    }

    fn name(&self) -> &'static str {
        self.type_name()
    }
}

/// How long to wait for an answer, and what a missing one means.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    /// What the device may take for its work, on top of the time every answer has.
    pub(crate) work: Duration,
    /// Whether a missing answer leaves the outcome unknown.
    pub(crate) may_change: bool,
}

impl Patience {
    /// For a request that changes something at once.
    pub(crate) fn change() -> Self {
        Self { work: Duration::ZERO, may_change: true }
    }
}

impl Controller {
    /// A challenge of the device `key`, on an open connection. Nothing is sent yet.
    pub(crate) async fn ready(&self, key: &PublicKey) -> Result<Ready<'_>, Failure> {
        let peer = Peer { address: self.device(key)?.address, key: key.clone() };
        Ok(self.links().challenge(&peer, self.until()).await?)
    }

    /// Sends `request` for the challenge in `ready` and checks what comes back.
    pub(crate) async fn finish(
        &self,
        ready: Ready<'_>,
        request: &impl Request,
        id: Id,
        patience: Patience,
    ) -> Result<Object, Failure> {
        let device = ready.device().clone();
        let head = Head { id, challenge: ready.challenge, to: device.clone() };
        let body = request.body(&head);
        if body.len() > BODY_BYTES_MAX {
            return Err(Failure::TooLarge { bytes: body.len() });
        }
        let sealed = seal(self.signer(), &body);
        let answered = match ready.send(sealed, patience.work, self.until()).await {
            // Refused at the gate: whatever it was, nothing happened.
            Err(LinkError::Forbidden) => return Err(Failure::Link(LinkError::Forbidden)),
            Err(error) => Err(Failure::Link(error)),
            Ok(bytes) => open(&bytes, &device, &head, self.public()).map_err(Failure::Answer),
        };
        match answered {
            Ok(Answer { outcome: Ok(value), .. }) => Ok(value),
            Ok(Answer { outcome: Err(refusal), .. }) => {
                tracing::debug!(request = request.name(), %id, error = refusal.error.as_str(), "refused");
                Err(Failure::Refused(refusal))
            }
            Err(cause) => {
                tracing::debug!(request = request.name(), %id, error = %cause, "no answer that counts");
                if patience.may_change {
                    Err(Failure::OutcomeUnknown { id, cause: Box::new(cause) })
                } else {
                    Err(cause)
                }
            }
        }
    }

    /// Both steps.
    pub(crate) async fn ask(
        &self,
        key: &PublicKey,
        request: &impl Request,
        id: Id,
        patience: Patience,
    ) -> Result<Object, Failure> {
        let ready = self.ready(key).await?;
        self.finish(ready, request, id, patience).await
    }
}

fn open(bytes: &[u8], device: &PublicKey, head: &Head, to: &PublicKey) -> Result<Answer, AnswerError> {
    let envelope = Envelope::parse_result(bytes).map_err(AnswerError::Envelope)?;
    let (_, _, answer) = envelope.open_answer(device).map_err(AnswerError::Envelope)?.into_parts();
    answer.matches(head, to).map_err(AnswerError::Mismatch)?;
    Ok(answer)
}
