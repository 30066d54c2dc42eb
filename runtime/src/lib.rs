//! The composition root of a device: reads the settings, grows the house, opens the direct link, serves the display page, the keeper's
//! command socket and commands.
//!
//! `latchkeyd` is its main. The benchmark and whole-system tests use [`Device::start`] with vault, clock, chance and hardware of
//! their own. Nothing here decides who may do what: bytes and commands go to [`actors::House`], and what it says comes back.

mod announce;
pub mod boot;
mod carriers;
pub mod cli;
pub mod device;
mod direct;
pub mod doctor;
mod door;
mod folder;
pub mod keeper;
pub mod key;
pub mod lock;
mod outbound;
mod reload;
mod rules;
pub mod simulate;
mod speaking;
pub mod tls;
mod tone;

pub use boot::SystemChance;
pub use device::{Device, HandlersPlace, Options, Running, StartError};
pub use direct::BODIES_BYTES_MAX;
pub use door::DoorLimits;
pub use jiff::tz::TimeZone;
pub use keeper::SocketLimits;
pub use outbound::Ways;
pub use reload::Reread;
pub use simulate::{Rehearsal, SimulatedScreen, Simulation};
pub use speaking::speech_of;
