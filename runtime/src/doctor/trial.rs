//! Parts that are tried for real.
//!
//! Owns nothing: it gets the captures and the sign of a running device, or makes them from the settings. A capture goes through the
//! house, on record and at its place, or, where no device runs, under a sign that is lit and tended here. What was captured is judged and
//! let go; a sentence about it is all that leaves.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use actors::{House, Installed, SignTrial, Work, capture_once};
use config::{Settings, SignCarrier};
use handlers::sound::CardRecording;
use handlers::{CardChoice, Chance, Clock, Playback, Recording as _, Sign, Speech as _, SystemClock};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{CapabilityName, Declaration, Object};

use super::look::groups::User;
use super::{Finding, Part};
use crate::device::{self, StartError};
use crate::keeper::display::Display;

mod camera;
mod sign;
mod sound;

/// What the speech engine is given.
const SENTENCE: &str = "This device can speak.";

/// What is tried in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trial {
    /// The sign as a whole and each thing that carries it, on and off.
    Sign,
    /// One picture.
    Camera,
    /// One second of sound from the room.
    Microphone,
    /// One second of a tone.
    Speaker,
    /// A sentence that nobody hears.
    Speech,
}

impl Trial {
    /// The trial that tells of a part; none for what is only looked at.
    pub(crate) const fn of(part: Part) -> Option<Self> {
        match part {
            Part::Sign | Part::Led | Part::Gpio | Part::Display => Some(Self::Sign),
            Part::Camera => Some(Self::Camera),
            Part::Microphone => Some(Self::Microphone),
            Part::Speaker => Some(Self::Speaker),
            Part::Speech => Some(Self::Speech),
            Part::Settings
            | Part::State
            | Part::Disk
            | Part::Clock
            | Part::Groups
            | Part::Listen
            | Part::Handlers
            | Part::Versions => None,
        }
    }

    /// What happens, for the person who waits.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Sign => "the in-use sign, on and off",
            Self::Camera => "the camera: one picture, under the lit sign",
            Self::Microphone => "the microphone: one second, under the lit sign",
            Self::Speaker => "the speaker: a tone of one second",
            Self::Speech => "the speech engine: a sentence that is not played",
        }
    }
}

/// Where trials are made.
pub(crate) enum Stage {
    /// In a running device.
    House(House),
    /// By the command itself.
    Alone(Alone),
}

/// A sign of our own, tended until [`Alone::end`].
pub(crate) struct Alone {
    sign: Arc<Sign>,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What trials need.
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    pub(crate) simulated: bool,
    /// Where the display page is; none where it is not served.
    pub(crate) page: Option<String>,
    pub(crate) captures: Vec<Installed>,
    pub(crate) speaker: Arc<dyn Playback>,
    /// As whom the hardware is opened.
    pub(crate) user: String,
    pub(crate) stage: Stage,
}

impl Bench {
    /// From the settings alone, where no device runs.
    pub(crate) fn alone(settings: Settings, chance: Arc<dyn Chance>) -> Result<Self, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let display = Display::new(Arc::clone(&clock), chance, false);
        let sign = Sign::new(crate::carriers::of(&settings, &display, None)?, Arc::clone(&clock));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(Arc::clone(&sign).tend(stop.clone()));
        let live = Arc::new(RwLock::new(settings.clone()));
        let captures = vec![device::camera(None, Arc::clone(&live)), device::microphone(None, live)];
        let speaker = device::playback(None, &settings);
        let stage = Stage::Alone(Alone { sign, clock, tasks, stop });
        Ok(Self { settings, simulated: false, page: None, captures, speaker, user: own_name(), stage })
    }

    /// Ends what [`Bench::alone`] began; the sign is dark after it.
    pub(crate) async fn end(self) {
        if let Stage::Alone(Alone { sign, tasks, stop, .. }) = self.stage {
            // A sign that does not go off was told of in its own trial.
            let _ = sign.until_dark().await;
            stop.cancel();
            tasks.close();
            tasks.wait().await;
        }
    }

    /// Makes a trial.
    pub(crate) async fn perform(&self, trial: Trial) -> Vec<Finding> {
        match trial {
            Trial::Sign => match self.try_sign().await {
                Ok(seen) => sign::judge(&self.settings, self.about(), &seen),
                Err(why) => vec![Finding::broken(Part::Sign, why, "latchkeyd status")],
            },
            Trial::Camera => vec![self.camera().await],
            Trial::Microphone => vec![self.microphone().await],
            Trial::Speaker => vec![self.speaker().await],
            Trial::Speech => vec![self.speech().await],
        }
    }

    fn about(&self) -> sign::About<'_> {
        let running = matches!(self.stage, Stage::House(_));
        sign::About { running, simulated: self.simulated, page: self.page.as_deref(), user: &self.user }
    }

    async fn camera(&self) -> Finding {
        if !self.simulated && self.settings.camera.device.is_none() && !camera::any() {
            return Finding::not_needed(Part::Camera, "this machine has no camera, and camera.device names none");
        }
        let clock = self.clock();
        let began = clock.boot();
        let told = self.capture(&Declaration::camera_snapshot().name, Object::new()).await;
        camera::judge(&self.settings.camera, (self.simulated, &self.user), told, clock.boot().since(began))
    }

    async fn microphone(&self) -> Finding {
        let card = CardChoice::of_setting(self.settings.audio.input.as_deref());
        if !self.simulated && self.settings.audio.input.is_none() && CardRecording::new(card).ready().is_err() {
            let why = "this machine has no sound card to hear with, and audio.input names none";
            return Finding::not_needed(Part::Microphone, why);
        }
        let mut arguments = Object::new();
        arguments.insert("seconds", 1_u64);
        let told = self.capture(&Declaration::microphone_listen().name, arguments).await;
        sound::judge_heard(self.settings.audio.input.as_deref(), (self.simulated, &self.user), told)
    }

    async fn speaker(&self) -> Finding {
        let output = self.settings.audio.output.as_deref();
        let speaker = Arc::clone(&self.speaker);
        if !self.simulated && output.is_none() && speaker.ready().is_err() {
            let why = "this machine has no sound card to play through, and audio.output names none";
            return Finding::not_needed(Part::Speaker, why);
        }
        let played = sound::play_tone(speaker).await;
        sound::judge_played(output, (self.simulated, &self.user), played)
    }

    async fn speech(&self) -> Finding {
        let engine = crate::speaking::speech_of(&self.settings);
        let named = self.settings.speech.command.is_some();
        let spoken = engine.speak(SENTENCE, CancellationToken::new()).await;
        if self.simulated && spoken.is_err() {
            return Finding::not_needed(Part::Speech, "a simulated device speaks without an engine");
        }
        sound::judge_spoken(&engine.describe(), named, spoken)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        match &self.stage {
            Stage::House(_) => Arc::new(SystemClock),
            Stage::Alone(alone) => Arc::clone(&alone.clock),
        }
    }

    async fn try_sign(&self) -> Result<SignTrial, String> {
        match &self.stage {
            Stage::House(house) => house.try_sign().await,
            Stage::Alone(Alone { sign, .. }) => {
                let lighting = lit(sign).await;
                let each = sign.examine(lighting.as_ref()).await;
                let lit = lighting.map(drop).map_err(|fault| fault.to_string());
                Ok(SignTrial { each, lit, dark: sign.until_dark().await })
            }
        }
    }

    async fn capture(&self, name: &CapabilityName, arguments: Object) -> Result<Object, String> {
        let installed = self.captures.iter().find(|one| one.declaration.name == *name);
        let installed = installed.ok_or_else(|| format!("there is no {name} on this device"))?;
        let Work::Capture(handler) = (installed.make)().map_err(|fault| fault.to_string())? else {
            return Err(format!("{name} does not capture"));
        };
        match &self.stage {
            Stage::House(house) => house.try_capture(name, handler, arguments).await,
            Stage::Alone(Alone { sign, clock, tasks, .. }) => {
                let lit = lit(sign).await.map_err(|fault| fault.to_string())?;
                capture_once(tasks, (), handler, arguments, lit, Arc::clone(clock)).await
            }
        }
    }
}

/// The name of the user that this process runs as.
pub(crate) fn own_name() -> String {
    User::of_process(std::process::id()).map_or_else(|| "latchkey".to_owned(), |user| user.name)
}

/// The sign, lit; its tending begins a moment after it was made.
async fn lit(sign: &Sign) -> Result<handlers::Lit, handlers::SignFault> {
    /// A task begins at once, unless the machine is very busy.
    const TENDED_MAX: Duration = Duration::from_secs(2);
    let tended = async {
        while sign.ready() == Err(handlers::SignFault::Unwatched) {
            tokio::task::yield_now().await;
        }
    };
    drop(tokio::time::timeout(TENDED_MAX, tended).await);
    sign.light().await
}

/// The words of `sign.require` for a part of the sign.
const fn part_of(carrier: SignCarrier) -> Part {
    match carrier {
        SignCarrier::Led => Part::Led,
        SignCarrier::Gpio => Part::Gpio,
        SignCarrier::Display => Part::Display,
    }
}
