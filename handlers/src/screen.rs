//! The port to whatever shows text and pictures to the keeper. Implemented by the display page; called by the display handlers.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wire::Agent;

use crate::handler::Fault;
pub use crate::picture::ImageType;

/// Something that shows.
pub trait Screen: Send + Sync {
    /// Shows it in place of what was there; resolves when the screen says that it is drawn.
    fn show(&self, shown: Shown, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>>;
    /// Whether anything would show now.
    fn present(&self) -> bool;
    /// One line for people: what the screen is and how it is.
    fn describe(&self) -> String;
}

/// What is shown, and who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The thing itself.
    pub content: Content,
    /// Who asked for it.
    pub agent: Agent,
}

/// Text, or a picture that has been decoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Plain text; a screen never reads markup in it.
    Text(String),
    /// A picture whose bytes are what `mime` says, upright, and nothing beside the picture.
    Image {
        /// The type, held against the bytes.
        mime: ImageType,
        /// The file.
        bytes: Arc<[u8]>,
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
}
