//! The keeper's commands: what the command line says, what is asked of the daemon, what is printed.
//!
//! Called by the main alone, which hands in the outside as a [`World`]. What needs no daemon works without one, read-only, from the
//! state folder. Every failure is one sentence that says what to do, and one of five exit codes.

pub mod args;
mod commands;
mod doctor;
mod handler;
pub mod handlers;
mod hardware;
pub mod print;
mod problem;
mod settings;
mod talk;
mod tree;
mod world;

pub use commands::perform;
pub(crate) use problem::chain;
pub use problem::{Ended, Problem};
pub use world::{World, program};
