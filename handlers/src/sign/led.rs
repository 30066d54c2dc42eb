//! The sign on an LED of the system.

use std::path::PathBuf;

use futures_util::future::BoxFuture;

use super::{SignBackend, SignFault};

/// Where the system shows its LEDs.
pub const LEDS: &str = "/sys/class/leds";

/// An LED under [`LEDS`].
#[derive(Debug, Clone)]
pub struct LedSign {
    folder: PathBuf,
    name: String,
}

impl LedSign {
    /// The LED `name` under `root` (in earnest, [`LEDS`]). It is required: the keeper named it.
    ///
    /// # Errors
    /// When `name` is not the name of one folder.
    pub fn new(root: impl Into<PathBuf>, name: &str) -> Result<Self, SignFault> {
        Ok(Self { folder: root.into().join(name), name: name.to_owned() })
    }
}

impl SignBackend for LedSign {
    fn name(&self) -> String {
        format!("LED {}", self.name)
    }

    fn simulated(&self) -> bool {
        false
    }

    fn required(&self) -> bool {
        true
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let _ = &self.folder;
        todo!()
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        todo!()
    }

    fn ready(&self) -> Result<(), SignFault> {
        todo!()
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        todo!()
    }
}
