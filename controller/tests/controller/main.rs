//! The controller against devices on loopback that are built from wire, and told to misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests own their tasks and processes")]

mod activation;
mod answers;
mod bench;
mod fake;
mod life;
mod limits;
mod program;
mod security;
