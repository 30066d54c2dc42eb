//! Parts that are only looked at.

pub(crate) mod clock;
pub(crate) mod groups;
pub(crate) mod handlers;
pub(crate) mod listen;
pub(crate) mod state;
pub(crate) mod versions;
