//! The keeper's side of the device: the command socket and the display page, both on this machine alone.

pub mod ask;
pub mod board;
pub mod display;
pub(crate) mod pages;
pub(crate) mod socket;

pub use socket::SocketLimits;
