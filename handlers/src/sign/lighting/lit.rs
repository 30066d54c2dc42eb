//! A hold on the lit sign: what may be asked of it, and that its drop is counted.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Lit;

impl Lit {
    /// A second hold on the same lighting, for a thread that outlives its caller.
    pub fn hold(&self) -> Self {
        self.shared.lock().holds += 1;
        Self {
            shared: Arc::clone(&self.shared),
            on_at_ms: self.on_at_ms,
            simulated: self.simulated,
            lost: self.lost.clone(),
        }
    }

    /// Whether only simulated backends carry the sign.
    pub const fn simulated(&self) -> bool {
        self.simulated
    }

    /// When it went on, wall time in ms.
    pub const fn on_at_ms(&self) -> u64 {
        self.on_at_ms
    }

    /// Fires when the sign goes out under this hold.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }
}

impl Drop for Lit {
    fn drop(&mut self) {
        let last = {
            let mut inner = self.shared.lock();
            inner.holds = inner.holds.saturating_sub(1);
            inner.holds == 0
        };
        if last {
            self.shared.changed.notify_one();
        }
    }
}

impl std::fmt::Debug for Lit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lit")
            .field("on_at_ms", &self.on_at_ms)
            .field("simulated", &self.simulated)
            .field("lost", &self.lost.is_cancelled())
            .finish_non_exhaustive()
    }
}
