//! The keeper tries the device: a capture, or the sign alone, on record and under the lit sign, but without grant and owner.
//!
//! Called by `doctor` through [`crate::House`]; whoever asks is at the device. What was captured goes to the caller of these functions,
//! who judges it and lets it go; nothing of it leaves the device. Refuses what a call would be refused: a capture beside another one,
//! without a sign, or while no record can be written.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use handlers::sign::Examined;
use handlers::{Call, CaptureHandler, Clock, Lit, SignFault, SignState};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use wire::{CapabilityName, Object};

use crate::inner::Inner;
use crate::journal::Draft;
use crate::slots::Slot;

/// How long the sign may take to be lit and confirmed.
const LIGHT_MAX: Duration = Duration::from_secs(3);
/// How long a capture may take to stop once told to.
const STOP_MAX: Duration = Duration::from_secs(2);
/// In whose name a handler works that asks for one; no agent can have this name, since nobody can own a domain under `invalid`.
const NOBODY: &str = "keeper@this.device.invalid";

/// What a trial of the sign came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignTrial {
    /// Each backend, in the order of the device.
    pub each: Vec<Examined>,
    /// Whether the sign as a whole was lit, or why not.
    pub lit: Result<(), String>,
    /// Whether it went off again and was read back as off.
    pub dark: Result<(), String>,
}

/// Lights the sign, looks at what carries it, and waits until it is off.
pub(crate) async fn sign(inner: &Arc<Inner>) -> Result<SignTrial, String> {
    begin(inner, "doctor sign").await?;
    let lighting = light(inner).await;
    let each = inner.sign.examine(lighting.as_ref()).await;
    let lit = match lighting {
        Ok(lit) => {
            record_sign_off(inner, "doctor sign".to_owned(), &lit);
            drop(lit);
            Ok(())
        }
        Err(fault) => Err(fault.to_string()),
    };
    Ok(SignTrial { each, lit, dark: inner.sign.until_dark().await })
}

/// Has a handler capture once; gives what it captured, or why it did not.
pub(crate) async fn capture(
    inner: &Arc<Inner>,
    name: &CapabilityName,
    handler: Arc<dyn CaptureHandler>,
    arguments: Object,
) -> Result<Object, String> {
    if handler.declaration().name != *name {
        return Err(format!("{} is not {name}", handler.declaration().name));
    }
    let slot = place(inner, name).await?;
    begin(inner, &format!("doctor {name}")).await?;
    let lit = light(inner).await.map_err(|fault| fault.to_string())?;
    record_sign_off(inner, format!("doctor {name}"), &lit);
    capture_once(&inner.tracker, slot, handler, arguments, lit, Arc::clone(&inner.clock)).await
}

/// One capture of a trial, under a sign that is lit; `kept` is dropped when the handler has ended, also when that takes longer than
/// its declaration allows. The task of the capture belongs to `tracker`.
///
/// # Errors
/// One sentence that says why there is nothing.
pub async fn capture_once(
    tracker: &TaskTracker,
    kept: impl Send + 'static,
    handler: Arc<dyn CaptureHandler>,
    arguments: Object,
    lit: Lit,
    clock: Arc<dyn Clock>,
) -> Result<Object, String> {
    let declaration = handler.declaration().clone();
    let arguments = declaration.bounds.check(arguments).map_err(|error| error.to_string())?;
    let limit = declaration.timeout_of(&arguments);
    let agent = NOBODY.parse().map_err(|_| "nobody can be named".to_owned())?;
    let (stop, lost) = (CancellationToken::new(), lit.lost());
    // Whoever waits may go away, and then nothing is wanted any more.
    let _guard = stop.clone().drop_guard();
    let call = Call { arguments, stop: stop.clone(), clock, agent };
    let mut task = tracker.spawn(async move {
        let done = AssertUnwindSafe(async { handler.run(call, lit).await }).catch_unwind().await;
        drop(kept);
        done
    });
    let ended = tokio::select! {
        biased;
        done = &mut task => Some(done),
        () = lost.cancelled() => None,
        () = tokio::time::sleep(limit) => None,
    };
    match ended {
        Some(Ok(Ok(outcome))) => outcome.map_err(|fault| fault.to_string()),
        Some(Ok(Err(_)) | Err(_)) => Err(format!("{} crashed", declaration.name)),
        None => {
            stop.cancel();
            drop(tokio::time::timeout(STOP_MAX, task).await);
            Err(if lost.is_cancelled() {
                "the in-use sign was lost".to_owned()
            } else {
                format!("it took longer than {} s", limit.as_secs())
            })
        }
    }
}

async fn place(inner: &Arc<Inner>, name: &CapabilityName) -> Result<Slot, String> {
    let installation = inner.catalogue.get(name).ok_or_else(|| format!("there is no {name} on this device"))?;
    if !installation.declaration.captures {
        return Err(format!("{name} does not capture"));
    }
    let stop = CancellationToken::new();
    let place = installation.slots.take(installation.declaration.timeout, &stop, &installation.post).await;
    place.map_err(|_full| "an agent captures at this moment; try again when it is done".to_owned())
}

/// On record before anything moves, like every capture.
async fn begin(inner: &Arc<Inner>, what: &str) -> Result<(), String> {
    let draft = Draft::keeper(what, inner.snapshot().durable.ownership, inner.clock.wall_ms());
    let written = inner.store.write(draft, Vec::new()).await;
    written.map(|_| ()).map_err(|error| format!("no record can be written, so nothing is tried: {error}"))
}

async fn light(inner: &Inner) -> Result<Lit, SignFault> {
    match tokio::time::timeout(LIGHT_MAX, inner.sign.light()).await {
        Ok(lit) => lit,
        Err(_) => Err(SignFault::Lost("it was not confirmed in time".to_owned())),
    }
}

/// When the sign goes off, a `sign` record says when.
fn record_sign_off(inner: &Arc<Inner>, what: String, lit: &Lit) {
    let (house, on_at) = (Arc::clone(inner), lit.on_at_ms());
    let mut watch = inner.sign.watch();
    inner.tracker.spawn(async move {
        drop(watch.wait_for(|state| matches!(state, SignState::Dark)).await);
        let ownership = house.snapshot().durable.ownership;
        let draft = Draft::sign(what, ownership, on_at, house.clock.wall_ms());
        if let Err(error) = house.store.write(draft, Vec::new()).await {
            warn!(%error, "the end of the in-use sign could not be recorded");
        }
    });
}
