//! Words for what went wrong with a guest: short, ours where a limit of ours was met, without the guest's own names of its parts.
//!
//! Called where a file is refused and where a call ends badly. Nothing of a guest is repeated at length: a cause is one line of at most
//! [`LINE_BYTES_MAX`].

use config::manifest::size_in_words;
use wasmtime::{Error, Trap};
use wasmtime_wasi::I32Exit;

use super::engine::{Limit, TABLE_ELEMENTS};
use super::guest::cut;

/// The longest line about a cause.
const LINE_BYTES_MAX: usize = 200;
/// How the engine says that a guest handed over too much; it has no type for it that others can name.
const TOO_MUCH_AT_ONCE: &str = "fuel allocated for hostcalls has been exhausted";
/// The engine's own name for a trap, which ours replaces.
const TRAP: &str = "wasm trap: ";

/// Why a file is refused.
pub(super) fn refusal(error: &Error) -> String {
    first_line(&error.to_string()) + &cause(error).map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// Why a call ended, where the guest did not say so itself.
pub(super) fn crash(error: &Error, broken: Option<Limit>, memory_bytes_max: usize, copied_bytes_max: usize) -> String {
    let root = error.root_cause().to_string();
    let trap = error.downcast_ref::<Trap>();
    match (trap, broken) {
        _ if root.contains(TOO_MUCH_AT_ONCE) => {
            format!("copy limit: more than {} handed over at once", size_in_words(copied_bytes_max))
        }
        (Some(Trap::StackOverflow), _) => "trapped: call stack exhausted".to_owned(),
        // Whatever a guest does when it is refused more, it does because of that.
        (_, Some(Limit::Memory)) => format!("memory limit: {}", size_in_words(memory_bytes_max)),
        (_, Some(Limit::Table)) => format!("table limit: {TABLE_ELEMENTS} elements"),
        _ if error.downcast_ref::<I32Exit>().is_some() => "trapped: it called exit".to_owned(),
        _ => format!("trapped: {}", first_line(&root).trim_start_matches(TRAP)),
    }
}

/// A result that the guest was allowed to hand over but not to have.
pub(super) fn too_long(result_bytes_max: usize) -> String {
    format!("result limit: {}", size_in_words(result_bytes_max))
}

/// The first line of a text, cut.
pub(super) fn first_line(text: &str) -> String {
    cut(text.lines().next().unwrap_or_default(), LINE_BYTES_MAX).to_owned()
}

fn cause(error: &Error) -> Option<String> {
    let root = first_line(&error.root_cause().to_string());
    (root != first_line(&error.to_string())).then_some(root)
}
