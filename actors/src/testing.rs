//! What the tests of this room share.

use std::sync::atomic::{AtomicU8, Ordering};

use handlers::Chance;

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
