//! Who may, when, how long, and what is written down.
//!
//! The house of a device: one gate for every link ([`House::answer`]), one place for the keeper's commands
//! ([`House::command`]), and below them the supervision tree. The one way of a request is a row of types, each made by the
//! check before it: bytes, [`wire::Envelope`], `Opened`, `Admitted`, `Authorised`, then an actor that takes a [`Permit`], then
//! the journal, then [`wire::Sealed`] bytes. An unverified request cannot reach an actor, because no code compiles that would
//! send it.
//!
//! This is the only home of ractor and of the database.

mod authority;
mod capability;
mod catalogue;
mod census;
mod challenge;
pub mod command;
mod folder;
mod gate;
mod grow;
mod house;
mod inner;
mod invoke;
mod journal;
mod keeper;
mod nearest;
mod ownership;
mod parts;
mod prune;
mod rate;
mod registration;
mod registry;
mod seals;
mod slots;
mod state;
pub mod store;
mod supervise;
#[cfg(test)]
mod testing;
pub mod tree;
mod trial;

pub use authority::Permit;
pub use census::HouseCensus;
pub use command::{
    Caller, Command, Event, FailCode, GrantLine, HandlerLine, HandlerState, JournalLine, OwnerLine, ReceiptLine, Reply,
    Status, Waiting, Way,
};
pub use folder::{Custom, FolderNow, HandlerAbout, RefusedHandler};
pub use house::{Forbidden, GrowError, House, Link};
pub use parts::{Group, Installed, Limits, Parts, Service, SettingsChange, Work};
pub use store::{MemoryVault, OpenedVault, Reader, STATE_FILE, Seal, SqliteVault, Vault, VaultError};
pub use tree::{Node, NodeState, Tree};
pub use trial::{SignTrial, capture_once};
