//! The house held to its promises: whole houses with fake handlers, a fake sign, a clock moved by hand, and vaults that fail.
//!
//! Effects are counted in the fakes, never read from answers. Every refused step has an accepted one beside it. Nothing sleeps:
//! tests wait for watches, and each ends by looking for actors, threads and vaults that were left behind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod activation;
mod calls;
mod challenges;
mod clients;
mod compile;
mod crash;
mod ending;
mod fakes;
mod folder;
mod grants;
mod owners;
mod records;
mod rig;
mod storage;
mod supervision;
mod trap;
