//! What is kept and what goes: old records, old outcomes, and the ends of calls that a stop of the device broke off.
//!
//! Called by the house at its start and by the journal's own loop. It refuses to take the wall clock's word alone: a clock that
//! is set forty years ahead by mistake must not empty the journal or let a finished call run again.

use handlers::{BootTime, Clock};
use tokio::sync::Mutex;
use tracing::{debug, warn};
use wire::record::{CHECKPOINT, RecordKind};

use crate::inner::Inner;
use crate::journal::{Draft, Value};
use crate::store::{Effect, OUTCOME_KEPT_MS, OpenRow, Store, StoreError, Vault, VaultError};

/// Records are kept this long (PROTOCOL.md section 6).
pub(crate) const RECORDS_KEPT_MS: u64 = 400 * 24 * 60 * 60 * 1_000;
/// Or until they take this much room.
pub(crate) const RECORD_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// How old things are: the last record's time at the start of this house, and from there on the boot clock. It falls behind
/// the wall clock by the time that the device was off, and so keeps things longer, never shorter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calendar {
    base_ms: u64,
    since: BootTime,
}

impl Calendar {
    /// Begins with what the journal says.
    pub(crate) async fn begin(store: &Store, clock: &dyn Clock) -> Result<Self, StoreError> {
        let last_ms = store.query(last_written).await?;
        Ok(Self { base_ms: last_ms.unwrap_or_else(|| clock.wall_ms()), since: clock.boot() })
    }

    /// The earlier of the wall clock and what the boot clock has counted.
    pub(crate) fn now_ms(&self, clock: &dyn Clock) -> u64 {
        let lived_ms = clock.boot().as_ms().saturating_sub(self.since.as_ms());
        self.base_ms.saturating_add(lived_ms).min(clock.wall_ms())
    }
}

fn last_written(vault: &mut dyn Vault) -> Result<Option<u64>, VaultError> {
    let Some(head) = vault.head()? else { return Ok(None) };
    Ok(vault.rows(head.last.saturating_sub(1), 1)?.first().map(|row| row.at_ms))
}

/// Drops records that are too old or too many, and leaves a checkpoint from which the rest still verifies.
pub(crate) async fn prune(inner: &Inner, kept_ms: u64, bytes_max: u64) {
    let careful_ms = inner.calendar.now_ms(inner.clock.as_ref());
    let ownership = inner.snapshot().durable.ownership;
    let cut = inner.store.query(move |vault| {
        vault.forget_outcomes(ownership, careful_ms.saturating_sub(OUTCOME_KEPT_MS))?;
        let Some(head) = vault.head()? else { return Ok(None) };
        let mut keep_from = vault.first_since(careful_ms.saturating_sub(kept_ms))?.unwrap_or(head.last);
        if vault.record_bytes()? > bytes_max {
            // A quarter at a time, so that pruning stays rare.
            keep_from = keep_from.max(head.first + (head.last - head.first) / 4);
        }
        let first_kept = vault.rows(keep_from.saturating_sub(1), 1)?;
        Ok(first_kept.first().filter(|row| row.sequence > head.first).cloned())
    });
    let first_kept = match cut.await {
        Ok(Some(row)) => row,
        Ok(None) => return,
        Err(error) => return warn!(%error, "old records could not be looked for"),
    };
    let Ok(record) = wire::Record::from_cbor(&first_kept.cbor) else {
        return;
    };
    let now_ms = inner.clock.wall_ms();
    let draft = Draft { value: Value::Hash(record.before), ..Draft::keeper(CHECKPOINT, ownership, now_ms) };
    let keep_from = first_kept.sequence;
    let pruned = match inner.store.write(draft, Vec::new()).await {
        Ok(_) => inner.store.prune(keep_from).await,
        Err(error) => Err(error),
    };
    if let Err(error) = pruned {
        warn!(%error, "old records could not be dropped");
    }
}

/// What must still be written about the time before this house: calls that had begun, and notices to the keeper.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<Vec<Leftover>>);

#[derive(Debug, Clone)]
pub(crate) enum Leftover {
    /// It had begun when the device stopped, and nothing proves how it went.
    Call(OpenRow),
    /// Something about the state that the keeper should know.
    Notice,
}

impl Leftovers {
    /// The begun calls of the former house, before any of this one begins, and so many notices.
    pub(crate) async fn find(store: &Store, notices: usize) -> Result<Self, StoreError> {
        let open = store.query(|vault| vault.open_calls()).await?;
        let mut left: Vec<_> = std::iter::repeat_n(Leftover::Notice, notices).collect();
        left.extend(open.into_iter().map(Leftover::Call));
        Ok(Self(Mutex::new(left)))
    }
}

/// Writes what is left over. On a full disk it stays left over, and the journal's loop comes back to it.
pub(crate) async fn write_leftovers(inner: &Inner) {
    let mut left = inner.leftovers.0.lock().await;
    while let Some(leftover) = left.last().cloned() {
        let now_ms = inner.clock.wall_ms();
        let (draft, effects) = match leftover {
            Leftover::Notice => (Draft::keeper("state.notice", inner.snapshot().durable.ownership, now_ms), Vec::new()),
            Leftover::Call(call) => {
                let draft = Draft {
                    kind: RecordKind::Call,
                    id: Some(call.id),
                    received_at: None,
                    outcome: Some(wire::ErrorCode::UnknownOutcome.as_str()),
                    ..Draft::keeper(call.what, call.ownership, now_ms)
                };
                (draft, vec![Effect::Close { started: call.sequence }])
            }
        };
        if let Err(error) = inner.store.write(draft, effects).await {
            return debug!(%error, "what the last stop broke off is not yet on record");
        }
        left.pop();
    }
}

#[cfg(test)]
mod tests;
