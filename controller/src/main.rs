//! `latchkey`: devices for agents, from the command line.
//!
//! Parses the command line, reads the environment once, and turns what comes of it into an exit code. Everything else is
//! in the library or, where it is about people, in `cli`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
