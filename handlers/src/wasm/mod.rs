//! Handlers of the keeper: a WebAssembly component runs in a child process that has nothing of the device.
//!
//! Owns, on the parent's side, compiling, the cache, the children and the [`WasmHandler`] that a capability actor calls; on the child's
//! side the confinement and the engine. The parent never maps, compiles or runs what the keeper dropped: it hashes files, holds MACs,
//! and speaks [`frame`]s. What a handler may touch is its manifest's reach and nothing else.
//!
//! One way: `runtime` finds a file (`config::folder`), has it inspected here ([`Workshop::inspect`]), and makes a handler of it
//! ([`Workshop::handler`]), which lives and dies like every other capability.

pub mod author;
mod cache;
mod child;
mod children;
pub mod confine;
mod conversation;
#[cfg(test)]
mod fake;
mod frame;
mod handler;
#[cfg(test)]
mod house;
mod line;
pub mod log;
pub mod outbound;
pub mod reach;
mod requests;
mod spawn;
mod workshop;

pub(crate) use child::WASMTIME;
pub use child::{CHILD_ARGUMENT, asked as child_asked, main as child_main};
pub use handler::{Spent, WasmHandler};
pub use reach::Protected;
pub use spawn::Program;
pub use workshop::{Inspection, Refused, Source, Spec, Workshop, WorkshopError, WorkshopParts};
