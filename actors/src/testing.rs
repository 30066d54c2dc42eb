//! What the tests of this room share.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use handlers::{BootTime, Chance, Clock};

/// Randomness that counts: different at each call, the same in each run.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU8);

impl Chance for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) fn agent() -> wire::Agent {
    "kitchen-helper@home.example.org".parse().unwrap()
}

pub(crate) fn secret(byte: u8) -> wire::SecretKey {
    wire::SecretKey::from_seed(&[byte; 32])
}

pub(crate) fn key(byte: u8) -> wire::PublicKey {
    use wire::Signer;
    secret(byte).public().clone()
}

pub(crate) fn owner_row(byte: u8) -> crate::store::OwnerRow {
    crate::store::OwnerRow { agent: agent(), key: key(byte), since_ms: 0 }
}

/// Both clocks, moved by hand and apart.
#[derive(Debug)]
pub(crate) struct HandClock {
    boot: AtomicU64,
    wall: AtomicU64,
}

impl HandClock {
    pub(crate) fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { boot: AtomicU64::new(1_000_000), wall: AtomicU64::new(1_790_000_000_000) })
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.boot.fetch_add(ms, Ordering::SeqCst);
        self.wall.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn set_wall(&self, ms: u64) {
        self.wall.store(ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn boot(&self) -> BootTime {
        BootTime::from_ms(self.boot.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }
}
