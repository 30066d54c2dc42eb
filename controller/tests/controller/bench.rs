//! A controller in memory, with a clock that tests turn and chance that never repeats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchkey_controller::inventory::{ChangeState, InMemory};
use latchkey_controller::{Chance, ChanceError, Clock, Controller, Failure, Limits, Links, Notice, Parts, Store};
use wire::keys::PublicKey;

use crate::fake::{Fake, bytes24, locked, new_key};

/// A clock that tests turn.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    pub(crate) boot_ms: AtomicU64,
}

impl Hands {
    pub(crate) fn forward(&self, ms: u64) {
        self.boot_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn boot_ms(&self) -> u64 {
        self.boot_ms.load(Ordering::Relaxed)
    }

    fn boot_id(&self) -> &str {
        "boot-1"
    }

    fn wall_ms(&self) -> u64 {
        1_800_000_000_000 + self.boot_ms.load(Ordering::Relaxed)
    }
}

/// Bytes that never repeat.
#[derive(Debug)]
pub(crate) struct Dice;

impl Chance for Dice {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError> {
        for chunk in bytes.chunks_mut(24) {
            chunk.copy_from_slice(&bytes24()[..chunk.len()]);
        }
        Ok(())
    }
}

/// A controller with everything around it.
pub(crate) struct Bench {
    pub(crate) controller: Controller,
    pub(crate) clock: Arc<Hands>,
    pub(crate) store: Arc<InMemory>,
    pub(crate) notices: Arc<Mutex<Vec<Notice>>>,
}

pub(crate) fn short() -> Limits {
    let limit = Duration::from_millis(400);
    // Capabilities have their declared time-out on top of the head's limit, so slow heads are tried on other requests.
    Limits { connect: Duration::from_secs(5), head: limit, body: limit }
}

pub(crate) fn bench() -> Bench {
    bench_with(Limits::default())
}

pub(crate) fn bench_with(limits: Limits) -> Bench {
    let clock = Arc::new(Hands::default());
    clock.forward(1_000_000);
    let store = Arc::new(InMemory::default());
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&notices);
    let controller = Controller::open(Parts {
        agent: "bot@home.example.org".parse().unwrap(),
        signer: Arc::new(new_key()),
        store: Arc::clone(&store) as Arc<dyn Store>,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        chance: Arc::new(Dice),
        links: Arc::new(Links::new(limits)),
        until: None,
        notices: Arc::new(move |notice| locked(&heard).push(notice.clone())),
    })
    .unwrap();
    Bench { controller, clock, store, notices }
}

impl Bench {
    /// Claims the device and has the keeper approve.
    pub(crate) async fn own(&self, fake: &Fake, name: &str) -> PublicKey {
        let name = Some(name.parse().unwrap());
        let pending = self.controller.claim(&fake.link(), name, |_| false).await.unwrap();
        fake.keeper_says(ChangeState::Approved);
        assert_eq!(self.status(&pending.key).await.unwrap(), ChangeState::Approved);
        pending.key
    }

    pub(crate) async fn status(&self, key: &PublicKey) -> Result<ChangeState, Failure> {
        self.controller.change_status(key, |_| false).await
    }
}
