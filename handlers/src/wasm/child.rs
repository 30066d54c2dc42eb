//! A handler's process, from its start to its end.

use std::ffi::OsString;
use std::process::ExitCode;

/// The hidden first argument that makes the program a handler's process. Not an option: no help names it, and it is looked at before
/// settings or keys are read.
pub const CHILD_ARGUMENT: &str = "--handler-process";

/// Whether the program was started to be a handler's process.
#[must_use]
pub fn asked(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|first| first == CHILD_ARGUMENT)
}

/// Is a handler's process, on standard input and output, until input ends.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::FAILURE
}
