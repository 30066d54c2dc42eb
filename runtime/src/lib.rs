//! wip
mod census;
pub mod device;
mod direct;
mod door;
pub mod keeper;
mod reload;
mod rules;
pub mod simulate;
pub mod tls;
pub use door::DoorLimits;
