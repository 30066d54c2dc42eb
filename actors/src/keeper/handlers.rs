//! The keeper's look at the handlers folder.

use std::sync::Arc;

use wire::CapabilityName;
use wire::text::visible;

use super::failed;
use crate::catalogue::{Installation, Offer};
use crate::command::{FailCode, HandlerLine, HandlerState, Reply};
use crate::folder::{Custom, RefusedHandler};
use crate::inner::Inner;
use crate::nearest::among;
use crate::seals;
use crate::store::{Durable, Seal};
use crate::tree::NodeState;

/// Every file, by name: what serves, what is being compiled, what is refused.
pub(super) fn list(inner: &Inner) -> Reply {
    let (offer, durable) = (inner.catalogue.now(), inner.snapshot().durable);
    let Some(folder) = &offer.folder else {
        let notice = "nobody has looked into the handlers folder yet; try again in a moment".to_owned();
        return Reply::Handlers { handlers: Vec::new(), notice: Some(notice) };
    };
    let serving = offer.handlers().map(|(name, one, custom)| serving(inner, &offer, &durable, (name, one, custom)));
    let coming =
        folder.pending.iter().map(|(name, seal)| coming(&offer, &durable, folder.held.as_deref(), (name, seal)));
    let refused = folder.refused.iter().map(|file| refused(&offer, &durable, file));
    let mut handlers: Vec<_> = serving.chain(coming).chain(refused).collect();
    handlers.sort_by(|a, b| a.file.cmp(&b.file));
    Reply::Handlers { handlers, notice: folder.notice.clone() }
}

fn serving(
    inner: &Inner,
    offer: &Offer,
    durable: &Durable,
    (name, one, custom): (&CapabilityName, &Arc<Installation>, &Custom),
) -> HandlerLine {
    let node = inner.board.node(one.post.path());
    let declaration = &one.declaration;
    let state = match node.as_ref().map(|node| node.state) {
        Some(NodeState::Running) => HandlerState::Ready,
        Some(NodeState::Restarting) | None => HandlerState::Restarting,
        Some(NodeState::Unavailable | NodeState::Stopped) => HandlerState::Unavailable,
    };
    HandlerLine {
        on: durable.granted(&name.grant(), Some(&custom.seal)),
        description: Some(declaration.description.clone()),
        effect: Some(declaration.effect.to_string()),
        activation: Some(declaration.activation.to_string()),
        captures: Some(declaration.captures),
        timeout_ms: u64::try_from(declaration.timeout.as_millis()).ok(),
        memory_bytes: Some(custom.about.memory_bytes),
        result_bytes_max: Some(custom.about.result_bytes_max),
        arguments: Some(declaration.bounds.to_object().into_map().into()),
        reach: custom.about.reach.clone(),
        calls: node.as_ref().map_or(0, |node| node.calls),
        restarts: node.as_ref().map_or(0, |node| node.restarts),
        last_error: node.and_then(|node| node.last_error),
        ..line(custom.about.file.clone(), state, Some(&custom.seal)).about(offer, durable, name)
    }
}

/// Its content is known, and what it is is not yet.
fn coming(offer: &Offer, durable: &Durable, held: Option<&str>, (name, seal): (&CapabilityName, &Seal)) -> HandlerLine {
    let state = if held.is_some() { HandlerState::Waiting } else { HandlerState::Compiling };
    let line = line(name.to_string(), state, Some(seal)).about(offer, durable, name);
    HandlerLine { on: durable.granted(&name.grant(), Some(seal)), why: held.map(str::to_owned), ..line }
}

fn refused(offer: &Offer, durable: &Durable, file: &RefusedHandler) -> HandlerLine {
    let line = HandlerLine { why: Some(file.why.clone()), ..line(file.file.clone(), HandlerState::Refused, None) };
    match &file.name {
        Some(name) => line.about(offer, durable, name),
        None => line,
    }
}

fn line(file: String, state: HandlerState, seal: Option<&Seal>) -> HandlerLine {
    HandlerLine {
        file,
        name: None,
        state,
        on: false,
        file_sha256: seal.map(|seal| seal.file.to_string()),
        manifest_sha256: seal.and_then(|seal| seal.manifest).map(|digest| digest.to_string()),
        description: None,
        effect: None,
        activation: None,
        captures: None,
        timeout_ms: None,
        memory_bytes: None,
        result_bytes_max: None,
        arguments: None,
        reach: Vec::new(),
        why: None,
        changed: None,
        last_error: None,
        calls: 0,
        restarts: 0,
    }
}

impl HandlerLine {
    fn about(self, offer: &Offer, durable: &Durable, name: &CapabilityName) -> Self {
        Self { name: Some(name.to_string()), changed: seals::changed(offer, name, durable), ..self }
    }
}

/// What a handler logged last.
pub(super) fn log(inner: &Inner, name: &str) -> Reply {
    let offer = inner.catalogue.now();
    let found = offer.find(name).map(|one| one.custom.as_ref());
    match found {
        Ok(Some(custom)) => Reply::HandlerLog { name: name.to_owned(), lines: custom.log.lines() },
        Err(failure) if failure.code != FailCode::NotFound => failure.into(),
        // Not there, or one of the device's own: only handlers are proposed.
        Ok(None) | Err(_) => {
            let known = offer.handlers().map(|(name, _, _)| name.as_str()).collect();
            let message = format!("{} is no handler of yours; {}", visible(name), among(name, known));
            failed(FailCode::NotFound, message)
        }
    }
}
