//! Hardware that only pretends: for `latchkeyd run --simulate`, the benchmark and whole-system tests.

use std::sync::Arc;

use handlers::SimulatedSign;
use handlers::camera::SimulatedCamera;

mod screen;
mod words;

pub(crate) use screen::BothScreens;
pub use screen::{ScreenTrouble, SimulatedScreen};
pub(crate) use words::help;
pub use words::{Rehearsal, RehearsalError};

/// What a simulated device has in place of hardware; clones share everything.
#[derive(Clone)]
pub struct Simulation {
    /// The camera.
    pub camera: SimulatedCamera,
    /// The sign.
    pub sign: SimulatedSign,
    /// The screen.
    pub screen: SimulatedScreen,
}

impl Simulation {
    /// Hardware that works. `say` gets a line for each thing that a person would see.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let say: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(say);
        let of_sign = Arc::clone(&say);
        let sign = SimulatedSign::new(move |lit| {
            of_sign(if lit { "simulated sign: ON, the camera is in use" } else { "simulated sign: off" });
        });
        Self { camera: SimulatedCamera::new(), sign, screen: SimulatedScreen::new(say) }
    }

    /// From now on each part has the troubles of `rehearsal`, each in its time.
    pub fn rehearse(&self, rehearsal: &Rehearsal) {
        self.camera.rehearse(rehearsal.camera.clone());
        self.sign.rehearse(rehearsal.sign.clone());
        self.screen.rehearse(rehearsal.screen.clone());
    }
}
