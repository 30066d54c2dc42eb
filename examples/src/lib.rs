//! Examples: settings files in `settings/`, and a controller inside a server in `src/bin/controller_in_a_server.rs`.
//!
//! The tests of this crate load each settings file and run the server once against a simulated device.
