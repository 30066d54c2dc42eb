//! The room as a whole, over real sockets: in real time, with small limits handed in.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "a test that cannot go on says so by panicking, and its rows are tuples"
)]

#[path = "runtime/command_line.rs"]
mod command_line;
#[path = "runtime/device.rs"]
mod device;
#[path = "runtime/direct.rs"]
mod direct;
#[path = "runtime/handler_tools.rs"]
mod handler_tools;
#[path = "runtime/handlers.rs"]
mod handlers_folder;
#[path = "runtime/pages.rs"]
mod pages;
#[path = "runtime/printed.rs"]
mod printed;
#[path = "runtime/reload.rs"]
mod reload;
#[path = "runtime/socket.rs"]
mod socket;
#[path = "runtime/state.rs"]
mod state;
#[path = "runtime/tls.rs"]
mod tls;
