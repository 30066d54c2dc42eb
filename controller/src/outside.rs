//! Time and chance as values: what a controller may know of the world beside the network.
//!
//! Owns nothing. The programs and tests implement both; the library never reads a clock or a random source itself.

/// The clocks a controller needs.
///
/// Life times count on the boot clock, which runs through suspend; wall time is a label.
pub trait Clock: Send + Sync {
    /// Milliseconds since the machine started, suspend included.
    fn boot_ms(&self) -> u64;
    /// A text that differs between two starts of the machine, so that a boot time on disk is not read under another start.
    fn boot_id(&self) -> &str;
    /// Milliseconds since the Unix epoch, for people to read.
    fn wall_ms(&self) -> u64;
}

/// A source of random bytes fit for keys and ids.
pub trait Chance: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    ///
    /// When the source cannot give them; nothing is sent then.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError>;
}

/// The random source gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct ChanceError;
