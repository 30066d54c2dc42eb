//! The door before each capability: so many calls at once, so many that wait, and a typed `busy` for the rest.
//!
//! ractor's mailboxes have no bound, so nothing is sent to a capability actor without a slot from here. A [`Slot`] is taken by an
//! invocation after its permit, goes with the work, and is free again when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use wire::Declaration;

use crate::tree::Post;

/// `device.health` at once (PROTOCOL.md section 6).
const HEALTH_AT_ONCE: usize = 64;
/// Calls that wait for a display or custom capability.
const QUEUE_MAX: u32 = 4;

/// Places at a capability, or at the captures together.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    places: Arc<Semaphore>,
    waiting: Arc<AtomicU32>,
    waiting_max: u32,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _place: OwnedSemaphorePermit,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// As many as may run or wait do so.
    Full,
    /// It waited as long as the call itself may take.
    WaitedTooLong,
    /// Cancelled while it waited.
    Cancelled,
}

impl Slots {
    fn new(at_once: usize, waiting_max: u32) -> Self {
        Self { places: Arc::new(Semaphore::new(at_once)), waiting: Arc::default(), waiting_max }
    }

    /// The one place that all captures share.
    pub(crate) fn captures() -> Self {
        Self::new(1, 0)
    }

    /// The places of a capability that does not capture. Nobody waits for the speaker: what was to be said would come too late.
    pub(crate) fn of(declaration: &Declaration) -> Self {
        match declaration.name.as_str() {
            "device.health" => Self::new(HEALTH_AT_ONCE, 0),
            "speaker.say" => Self::new(1, 0),
            _ => Self::new(1, QUEUE_MAX),
        }
    }

    /// Takes a place, waiting for one if there is room to wait.
    pub(crate) async fn take(&self, limit: Duration, stop: &CancellationToken, post: &Post) -> Result<Slot, NoPlace> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(Slot { _place: place });
        }
        let _waiting = Waiting::enter(self, post)?;
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(NoPlace::Cancelled),
            place = Arc::clone(&self.places).acquire_owned() => match place {
                Ok(place) => Ok(Slot { _place: place }),
                // The semaphore is never closed.
                Err(_) => Err(NoPlace::Full),
            },
            () = tokio::time::sleep(limit) => Err(NoPlace::WaitedTooLong),
        }
    }
}

struct Waiting<'a> {
    slots: &'a Slots,
    post: &'a Post,
}

impl<'a> Waiting<'a> {
    fn enter(slots: &'a Slots, post: &'a Post) -> Result<Self, NoPlace> {
        let room = |waiting: u32| (waiting < slots.waiting_max).then_some(waiting.wrapping_add(1));
        slots.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).map_err(|_| NoPlace::Full)?;
        post.queued(1);
        Ok(Self { slots, post })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.waiting.fetch_sub(1, Ordering::AcqRel);
        self.post.queued(-1);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests join what they spawn")]
    use super::*;
    use crate::tree::Board;

    fn post() -> Post {
        Post::new(&Board::new(), "x")
    }

    #[tokio::test(start_paused = true)]
    async fn one_runs_four_wait_in_turn_and_the_sixth_is_told_busy() {
        let (slots, post, stop) = (Slots::new(1, 4), post(), CancellationToken::new());
        let limit = Duration::from_secs(5);
        let first = slots.take(limit, &stop, &post).await.unwrap();
        let four: Vec<_> = (0..4)
            .map(|_| {
                let (slots, post, stop) = (slots.clone(), post.clone(), stop.clone());
                tokio::spawn(async move { slots.take(limit, &stop, &post).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(slots.take(limit, &stop, &post).await.unwrap_err(), NoPlace::Full);
        drop(first);
        for waiting in four {
            assert_eq!(waiting.await.unwrap(), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_by_cancel_or_after_its_time() {
        let (slots, post, stop) = (Slots::new(1, 1), post(), CancellationToken::new());
        let limit = Duration::from_secs(5);
        let _held = slots.take(limit, &stop, &post).await.unwrap();
        assert_eq!(slots.take(limit, &stop, &post).await.unwrap_err(), NoPlace::WaitedTooLong);
        stop.cancel();
        assert_eq!(slots.take(limit, &stop, &post).await.unwrap_err(), NoPlace::Cancelled);
    }
}
