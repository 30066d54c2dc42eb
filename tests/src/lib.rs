//! What whole-system tests stand on: a room of folders for one device and one controller, the two programs run in it, a device
//! composed inside the test, and both sides of the link spoken by hand.
//!
//! Used by the test binary `system` and by the programs in `src/bin`. Everything here has a limit, ends the processes that it
//! started by their own group, and leaves no file: [`Room`] checks that when it is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that meets what it did not expect should stop there; it reads the real clock, and polls other processes"
)]

pub mod agent;
pub mod guests;
pub mod inside;
pub mod keeper;
pub mod link;
pub mod points;
pub mod process;
pub mod programs;
pub mod room;

pub use agent::Agent;
pub use inside::Inside;
pub use keeper::Keeper;
pub use link::{Line, Reply, Wire};
pub use programs::{Daemon, Ended, Start};
pub use room::Room;

use std::time::Duration;

/// How long anything may take that should happen at once; a busy machine of CI is slow, so this is far from what is normal.
pub const SOON: Duration = Duration::from_secs(20);

/// Between two looks at something that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Looks until `look` gives something; panics with `what` when that does not come soon.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < end, "{what}: not within {SOON:?}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// How long some work took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = std::time::Instant::now();
    let done = work();
    (done, began.elapsed())
}

/// What `scripts/test.sh` hands to the tests.
#[must_use]
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Notes for the closing lines of `make test` that a test had to be left out; LATCHKEY_SKIPS names the file.
pub fn skip(kind: &str, why: &str) {
    use std::io::Write as _;
    let line = format!("{kind}: {why}\n");
    let file = std::env::var_os("LATCHKEY_SKIPS");
    let noted = file.and_then(|file| std::fs::File::options().append(true).create(true).open(file).ok());
    match noted {
        Some(mut file) => file.write_all(line.as_bytes()).unwrap(),
        None => std::io::stderr().write_all(line.as_bytes()).unwrap(),
    }
}
