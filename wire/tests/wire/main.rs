//! The wire against its vectors, against failures that others had, and against itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

// The name that every other room knows this crate by.
extern crate latchkey_wire as wire;

mod base64;
mod bounds;
mod ed25519;
mod envelope;
mod export;
mod forms;
mod json;
mod messages;
mod records;
mod vectors;

/// Steps that must not compile: proofs cannot be made outside, and a secret key is not copied.
#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
