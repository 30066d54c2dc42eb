//! Hardware that only pretends: for `latchkeyd run --simulate`, the benchmark and whole-system tests.

use std::sync::Arc;

use handlers::camera::SimulatedCamera;
use handlers::{EngineLimits, SimulatedMicrophone, SimulatedSign, SimulatedSpeaker, SimulatedSpeech};

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
    /// The microphone.
    pub microphone: SimulatedMicrophone,
    /// The speaker.
    pub speaker: SimulatedSpeaker,
    /// What speaks.
    pub speech: SimulatedSpeech,
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
            of_sign(if lit { "simulated sign: ON, camera or microphone in use" } else { "simulated sign: off" });
        });
        let (of_speaker, of_speech) = (Arc::clone(&say), Arc::clone(&say));
        Self {
            camera: SimulatedCamera::new(),
            microphone: SimulatedMicrophone::new(),
            speaker: SimulatedSpeaker::new(move |line| of_speaker(line)),
            speech: SimulatedSpeech::new(EngineLimits::default().whole, move |line| of_speech(line)),
            sign,
            screen: SimulatedScreen::new(say),
        }
    }

    /// From now on each part has the troubles of `rehearsal`, each in its time.
    pub fn rehearse(&self, rehearsal: &Rehearsal) {
        self.camera.rehearse(rehearsal.camera.clone());
        self.microphone.rehearse(rehearsal.microphone.clone());
        self.speaker.rehearse(rehearsal.speaker.clone());
        self.speech.rehearse(rehearsal.speech.clone());
        self.sign.rehearse(rehearsal.sign.clone());
        self.screen.rehearse(rehearsal.screen.clone());
    }
}
