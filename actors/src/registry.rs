//! The calls that run or wait, so that they can be cancelled: one by its id, or all when the device changes hands.
//!
//! Owns a stop token for each call, from its admission until its outcome is on record: a [`Ticket`] leaves when it is dropped. Refuses a
//! second call of effect `change` under an id that is still under way, and every call while the device changes hands or ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use wire::Id;

/// The calls under way.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    calls: Mutex<Calls>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    /// No new call enters: the device changes hands.
    changing: bool,
    /// No new call enters any more: the house ends.
    draining: bool,
    running: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    id: Id,
    stop: CancellationToken,
    once: bool,
}

/// A place in the registry, given back when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    registry: Arc<Registry>,
    number: u64,
    stop: CancellationToken,
}

/// Why a call cannot enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shut {
    /// The same id is under way.
    InProgress,
    /// No new work is taken.
    Closed,
}

impl Registry {
    /// Enters a call. With `once`, a second one with the same id is refused while the first is under way.
    pub(crate) fn enter(self: &Arc<Self>, id: Id, once: bool) -> Result<Ticket, Shut> {
        let mut calls = self.lock();
        if calls.changing || calls.draining {
            return Err(Shut::Closed);
        }
        if once && calls.running.values().any(|entry| entry.once && entry.id == id) {
            return Err(Shut::InProgress);
        }
        let number = calls.next;
        calls.next = number.wrapping_add(1);
        let stop = CancellationToken::new();
        calls.running.insert(number, Entry { id, stop: stop.clone(), once });
        Ok(Ticket { registry: Arc::clone(self), number, stop })
    }

    /// Cancels every call under an id; false when there is none.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        let calls = self.lock();
        let mut found = false;
        for entry in calls.running.values().filter(|entry| entry.id == *id) {
            entry.stop.cancel();
            found = true;
        }
        found
    }

    /// The device changes hands: lets no call in until [`Registry::reopen`], cancels all, and waits until they have left, at
    /// most so long.
    pub(crate) async fn clear(&self, limit: Duration) {
        self.lock().changing = true;
        self.cancel_all();
        self.wait_empty(limit).await;
    }

    /// The house ends: lets none in any more and waits until all have left by themselves; past the limit they are cancelled.
    pub(crate) async fn drain(&self, limit: Duration, cancelled_limit: Duration) {
        self.lock().draining = true;
        self.wait_empty(limit).await;
        self.cancel_all();
        self.wait_empty(cancelled_limit).await;
    }

    /// Lets calls in again, once the device has changed hands.
    pub(crate) fn reopen(&self) {
        self.lock().changing = false;
    }

    fn cancel_all(&self) {
        self.lock().running.values().for_each(|entry| entry.stop.cancel());
    }

    async fn wait_empty(&self, limit: Duration) {
        let all_left = async {
            loop {
                let left = self.emptied.notified();
                if self.lock().running.is_empty() {
                    return;
                }
                left.await;
            }
        };
        // Past the limit the callers go on: what remains is abandoned by its actor and answered to nobody.
        drop(tokio::time::timeout(limit, all_left).await);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Fires when the call is cancelled from outside.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut calls = self.registry.lock();
        calls.running.remove(&self.number);
        if calls.running.is_empty() {
            self.registry.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests join what they spawn")]
    use super::*;

    fn id(byte: u8) -> Id {
        Id::from_bytes([byte; 24])
    }

    #[test]
    fn of_one_id_only_one_call_that_must_not_repeat_is_under_way() {
        let registry = Arc::new(Registry::default());
        let first = registry.enter(id(1), true).unwrap();
        assert_eq!(registry.enter(id(1), true).unwrap_err(), Shut::InProgress);
        assert!(registry.enter(id(2), true).is_ok());
        assert!(registry.enter(id(1), false).is_ok());
        drop(first);
        assert!(registry.enter(id(1), true).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn clearing_cancels_all_and_waits_for_them() {
        let registry = Arc::new(Registry::default());
        let ticket = registry.enter(id(1), true).unwrap();
        let work = tokio::spawn(async move { ticket.stop().cancelled().await });
        registry.clear(Duration::from_secs(60)).await;
        assert!(work.await.is_ok());
        assert_eq!(registry.enter(id(1), true).unwrap_err(), Shut::Closed);
        registry.reopen();
        assert!(registry.enter(id(1), true).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drained_registry_stays_closed_whatever_the_owner_does() {
        let registry = Arc::new(Registry::default());
        assert!(registry.enter(id(1), true).is_ok());
        registry.drain(Duration::ZERO, Duration::ZERO).await;
        registry.reopen();
        assert_eq!(registry.enter(id(1), true).unwrap_err(), Shut::Closed);
    }

    #[test]
    fn a_cancel_finds_its_call_and_no_other() {
        let registry = Arc::new(Registry::default());
        let (one, two) = (registry.enter(id(1), true).unwrap(), registry.enter(id(2), false).unwrap());
        assert!(registry.cancel(&id(2)) && !registry.cancel(&id(3)));
        assert!(!one.stop().is_cancelled() && two.stop().is_cancelled());
    }
}
