//! The other side of the link: what an agent, or a server with many agents, needs to use devices.
//!
//! A [`Controller`] acts for one agent. It signs with that agent's key, keeps that agent's [`inventory`], sends requests
//! straight to devices ([`link`]), checks every answer against the pinned key, and holds the rule that an agent never has
//! two active devices ([`activation`]). A server makes one for each agent; they may share [`Links`], clock and chance.
//!
//! It refuses to send what a device has not declared, to follow a redirect, to fall back to plain HTTP, to trust a
//! certificate for anything but its key, and to count an answer that is not the one it asked for. The section numbers in
//! the documentation are those of `PROTOCOL.md`.
//!
//! Time and chance come in as values ([`outside`]). Files are touched by [`folder`] alone, and only where a program asks
//! for a state folder; a server may bring its own [`Store`].

pub mod activation;
pub mod arguments;
mod changes;
mod controller;
mod exchange;
pub mod explain;
pub mod failure;
pub mod folder;
pub mod inventory;
pub mod link;
pub mod outside;
mod tls;
pub mod values;

pub use changes::Pending;
pub use controller::{Controller, Invocation, Notice, Parts, WhenIdle};
pub use failure::{Failure, Kind};
pub use folder::Folder;
pub use inventory::{Address, Device, DeviceName, Inventory, Store};
pub use link::{Limits, LinkError, Links};
pub use outside::{Chance, ChanceError, Clock};
