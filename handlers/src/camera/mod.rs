//! `camera.snapshot`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use wire::{Declaration, Object};

use crate::handler::{Call, CaptureHandler, Fault};
use crate::sign::Lit;

mod simulated;

pub use simulated::{CameraCounts, CameraTrouble, SimulatedCamera};

/// Which camera the keeper chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameraChoice {
    /// The first device that captures video.
    First,
    /// This one and no other: a name under /dev/v4l/by-id or by-path, or a path.
    Named(String),
}

/// Where pictures come from.
pub trait Source: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> String;
    /// Whether it only pretends.
    fn simulated(&self) -> bool;
}

/// `camera.snapshot` over a source of pictures.
pub struct Camera {
    declaration: Declaration,
    source: Arc<dyn Source>,
}

impl Camera {
    /// A camera of the system.
    pub fn v4l(choice: CameraChoice) -> Self {
        let _ = choice;
        todo!()
    }

    /// A camera that only pretends.
    pub fn simulated(camera: SimulatedCamera) -> Self {
        let _ = camera;
        todo!()
    }
}

impl CaptureHandler for Camera {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call, lit: Lit) -> BoxFuture<'static, Result<Object, Fault>> {
        let _ = (call, lit, &self.source);
        todo!()
    }
}
