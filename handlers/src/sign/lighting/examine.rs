//! How each thing that carries the sign did in a lighting: for a person who tries it, never for a capture.

use std::time::Duration;

use config::SignCarrier;

use super::{Lit, ON_MIN, Sign, SignState, answered, reason};
use crate::sign::SignFault;

/// From the last hold's drop to the dark at most: the least time on, and a slow backend's answer.
const DARK_MAX: Duration = Duration::from_secs(ON_MIN.as_secs() + 4);

/// How one backend did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Which of the settings it is; none for a simulation.
    pub carrier: Option<SignCarrier>,
    /// What people call it.
    pub name: String,
    /// Whether it was lit and read back, or why not.
    pub lit: Result<(), String>,
}

impl Sign {
    /// Asks each backend by itself how it does in this lighting, or why there is none.
    pub async fn examine(&self, lighting: Result<&Lit, &SignFault>) -> Vec<Examined> {
        let mut seen = Vec::new();
        for backend in &self.shared.backends {
            let told = match (backend.ready(), lighting) {
                (Err(fault), _) => Err(fault),
                (Ok(()), Ok(_)) => answered(backend, backend.check()).await,
                // The fault of the lighting is the fault of the one that it names.
                (Ok(()), Err(fault)) if fault.names(&backend.name()) => Err(fault.clone()),
                (Ok(()), Err(_)) => Ok(()),
            };
            let lit = told.map_err(|fault| reason(&fault));
            seen.push(Examined { carrier: backend.carrier(), name: backend.name(), lit });
        }
        seen
    }

    /// Waits until the sign is off and read back as off, after the last hold was dropped; another capture may keep it on.
    ///
    /// # Errors
    /// Why it is not off.
    pub async fn until_dark(&self) -> Result<(), String> {
        let mut watch = self.watch();
        let dark = watch.wait_for(|state| matches!(state, SignState::Dark));
        if tokio::time::timeout(DARK_MAX, dark).await.is_ok() {
            return Ok(());
        }
        match &*self.shared.state.borrow() {
            SignState::Dark => Ok(()),
            SignState::Lit { .. } if self.shared.lock().holds > 0 => Ok(()),
            SignState::Lit { .. } => Err("it stays on".to_owned()),
            SignState::Lost(reason) => Err(reason.clone()),
        }
    }
}
