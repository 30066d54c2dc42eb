//! How a capability does its work: health, camera, sound, speech, display, the in-use sign.
//!
//! Owns the ports that others implement ([`Screen`], [`SignBackend`], [`Census`], [`Clock`], [`Chance`]) and the hardware behind the
//! built-in capabilities. Called by the capability actors alone. Knows nothing of owners, grants, receipts, or how to reach a network.

mod alone;
pub mod camera;
pub mod clock;
pub mod display;
pub mod handler;
pub mod health;
mod picture;
pub mod screen;
pub mod sign;
pub mod sound;
pub mod speech;
pub mod trouble;
pub mod wasm;

pub use camera::{Camera, CameraChoice, CameraSetup, CameraTrouble, CaptureLimits, SimulatedCamera};
pub use clock::{BootTime, Chance, Clock, SystemClock, TokioClock};
pub use display::{DisplayImage, DisplayText};
pub use futures_util::future::BoxFuture;
pub use handler::{Call, CaptureHandler, Fault, Handler};
pub use health::{Census, Fittings, Health, HealthParts};
pub use screen::{Content, ImageType, Screen, Shown};
pub use sign::{
    GpioSign, LedSign, Lit, Needed, ON_MIN, Sign, SignBackend, SignFault, SignState, SignTrouble, SimulatedSign,
};
pub use sound::{
    CardChoice, CardPlayback, Microphone, MicrophoneTrouble, Pcm, Playback, Recording, RecordingStream,
    SimulatedMicrophone, SimulatedSpeaker, SoundFault, SoundTrouble, SpeakerTrouble,
};
pub use speech::{
    EngineChoice, EngineLimits, LocalTime, SimulatedSpeech, SpeakLimits, Speaker, SpeakerBounds, Speech, SpeechEngine,
    SpeechFault, SpeechTrouble, Spoken, WallTime,
};
pub use trouble::{Planned, Span, Trouble, Troubles};
