//! Whole-system tests: the walls between the crates, and the programs seen from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it did not expect should stop there"
)]

mod arrows;
mod bad_clients;
mod bad_requests;
mod browser;
mod crashes;
mod docs;
mod doctor;
mod handlers;
mod leftovers;
mod one_effect;
mod ownership;
mod service;
mod settings_files;
mod simulation;
mod sound;
mod speech;
mod state_folder;
mod surface;
mod tls;
