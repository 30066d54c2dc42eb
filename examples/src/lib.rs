//! Examples: settings files in `settings/`, handlers in `handlers/`, and a controller inside a server in
//! `src/bin/controller_in_a_server.rs`.
//!
//! The tests of this crate load each settings file, build and run the handlers, and run the server once against a simulated device.
