//! The port through which a handler's requests leave the device: implemented by `runtime`, asked by the parent of a handler's process.
//!
//! Owns the form of a request and of what becomes of it. Whether a handler may ask is decided before, by its reach; what an address may
//! be is decided behind, where names are resolved.

use std::time::Duration;

use config::manifest::Origin;
use futures_util::future::BoxFuture;

/// Headers that frame a message or name its hop (RFC 9110, 7.6.1): never a handler's, and never handed to one. Neither is anything
/// that begins with `proxy-`.
const OF_THE_HOP: [&str; 8] =
    ["connection", "expect", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Whether a header, its name in lower case, is of the hop.
#[must_use]
pub fn is_of_the_hop(name: &str) -> bool {
    OF_THE_HOP.contains(&name) || name.starts_with("proxy-")
}

/// Whether a header of a request, its name in lower case, is made by whoever sends it.
#[must_use]
pub fn is_the_senders(name: &str) -> bool {
    is_of_the_hop(name) || matches!(name, "host" | "content-length")
}

/// Sends requests of handlers.
pub trait Outbound: Send + Sync {
    /// Sends one request to exactly this origin and collects the answer. A name must not lead to a loopback, link-local, multicast or
    /// own address, and the checked address is the one connected to; an IP literal is taken as written. No redirect is followed, no
    /// proxy used. `Host` and framing are made here. Dropping the future drops the connection.
    fn send(&self, request: OutboundRequest) -> BoxFuture<'static, Result<OutboundAnswer, OutboundTrouble>>;
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// Where to; it stands in the handler's reach.
    pub origin: Origin,
    /// Such as `GET`.
    pub method: String,
    /// Begins with `/`.
    pub path_and_query: String,
    /// Without those that frame a message or name its hop.
    pub headers: Vec<(String, Vec<u8>)>,
    /// At most 1 MiB.
    pub body: Vec<u8>,
    /// Time for all of it.
    pub within: Duration,
    /// The longest body of the answer.
    pub answer_bytes_max: usize,
}

/// One answer, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundAnswer {
    /// Such as 200.
    pub status: u16,
    /// Without those of the hop.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutboundTrouble {
    /// The address is one that no name may lead to, or the request has no right form.
    #[error("refused here: the address is one that no name may lead to")]
    Denied,
    /// The name is not known.
    #[error("the name is not known")]
    NoName,
    /// Nobody answers there.
    #[error("nobody answers there")]
    Refused,
    /// The answer is too long.
    #[error("the answer is too long")]
    TooLarge,
    /// No time was left.
    #[error("no time was left")]
    TimedOut,
    /// What came back is no HTTP, or the line broke.
    #[error("what came back is no HTTP, or the line broke")]
    Broken,
}
