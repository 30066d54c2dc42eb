//! The HTTP requests of one call, which the parent sends for its process.
//!
//! Owns how many there were and what they weighed. Made anew for each call, asked by `conversation`. The process is not trusted: origin,
//! form and number are judged here again, whatever it judged itself. What frames a message, names its hop or its host is made by
//! whoever sends it and never taken from a guest.

use std::sync::Arc;

use config::manifest::Origin;
use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_bytes::ByteBuf;
use tokio::time::Instant;

use super::frame::{HttpAnswer, HttpRequest, HttpTrouble};
use super::outbound::{Outbound, OutboundAnswer, OutboundRequest, OutboundTrouble, is_the_senders};

/// Requests of one call: enough for a conversation with a lamp, not for a flood.
pub(crate) const REQUESTS_MAX: usize = 16;
/// Bytes of one body, there and back: what one result can carry.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Requests beyond [`REQUESTS_MAX`] that are still answered, with a refusal. Behind them a process is given up: its own count is broken.
const REFUSALS_MAX: usize = 64;
/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// All names and values of them: what servers commonly take.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// A path and its query: what servers commonly take.
const PATH_BYTES_MAX: usize = 8 * 1024;
/// Longest method known to any registry is `UPDATEREDIRECTREF`.
const METHOD_BYTES_MAX: usize = 20;

/// What became of a request, and its number.
pub(crate) type Answered = (u64, Result<HttpAnswer, HttpTrouble>);

/// The requests of one call.
pub(crate) struct Requests {
    origins: Arc<[Origin]>,
    outbound: Arc<dyn Outbound>,
    deadline: Instant,
    asked: usize,
    running: FuturesUnordered<BoxFuture<'static, Answered>>,
}

impl Requests {
    pub(crate) fn new(origins: Arc<[Origin]>, outbound: Arc<dyn Outbound>, deadline: Instant) -> Self {
        Self { origins, outbound, deadline, asked: 0, running: FuturesUnordered::new() }
    }

    /// Takes a request on. Its answer comes out of [`Requests::answered`]. `false` when the process asks beyond all measure.
    pub(crate) fn ask(&mut self, number: u64, request: HttpRequest) -> bool {
        self.asked = self.asked.saturating_add(1);
        let judged = if self.asked > REQUESTS_MAX { Err(HttpTrouble::TooMany) } else { self.judge(request) };
        let answer = match judged {
            Ok(request) => self.outbound.send(request).map(move |sent| (number, answer(sent))).boxed(),
            Err(trouble) => std::future::ready((number, Err(trouble))).boxed(),
        };
        self.running.push(answer);
        self.asked <= REQUESTS_MAX.saturating_add(REFUSALS_MAX)
    }

    /// The next answer; waits for ever while none is under way.
    pub(crate) async fn answered(&mut self) -> Answered {
        match self.running.next().await {
            Some(answered) => answered,
            None => std::future::pending().await,
        }
    }

    /// Drops the connections of all that are under way.
    pub(crate) fn abandon(&mut self) {
        self.running.clear();
    }

    fn judge(&self, request: HttpRequest) -> Result<OutboundRequest, HttpTrouble> {
        let HttpRequest { method, scheme, authority, path_and_query, headers, body } = request;
        let origin = origin(&scheme, &authority).filter(|origin| self.origins.contains(origin));
        let origin = origin.ok_or(HttpTrouble::Denied)?;
        if !is_method(&method) || !is_path(&path_and_query) {
            return Err(HttpTrouble::Denied);
        }
        let headers = through(headers.into_iter().map(|(name, value)| (name, value.into_vec())));
        if !fit(&headers) {
            return Err(HttpTrouble::Denied);
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(HttpTrouble::TooLarge);
        }
        let within = self.deadline.saturating_duration_since(Instant::now());
        if within.is_zero() {
            return Err(HttpTrouble::TimedOut);
        }
        Ok(OutboundRequest { origin, method, path_and_query, headers, body, within, answer_bytes_max: BODY_BYTES_MAX })
    }
}

fn answer(sent: Result<OutboundAnswer, OutboundTrouble>) -> Result<HttpAnswer, HttpTrouble> {
    let OutboundAnswer { status, headers, body } = sent.map_err(|trouble| match trouble {
        OutboundTrouble::Denied => HttpTrouble::Denied,
        OutboundTrouble::NoName => HttpTrouble::NoName,
        OutboundTrouble::Refused => HttpTrouble::Refused,
        OutboundTrouble::TooLarge => HttpTrouble::TooLarge,
        OutboundTrouble::TimedOut => HttpTrouble::TimedOut,
        OutboundTrouble::Broken => HttpTrouble::Broken,
    })?;
    if body.len() > BODY_BYTES_MAX {
        return Err(HttpTrouble::TooLarge);
    }
    let headers = through(headers.into_iter());
    if !fit(&headers) {
        return Err(HttpTrouble::Broken);
    }
    let headers = headers.into_iter().map(|(name, value)| (name, ByteBuf::from(value))).collect();
    Ok(HttpAnswer { status, headers, body })
}

/// The origin that a request names, if it names one and nothing more.
fn origin(scheme: &str, authority: &str) -> Option<Origin> {
    let plain = authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    if !plain || !matches!(scheme, "http" | "https") {
        return None;
    }
    format!("{scheme}://{}", authority.to_ascii_lowercase()).parse().ok()
}

fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// A method that asks a server for something; `CONNECT` would ask it to be a proxy.
fn is_method(method: &str) -> bool {
    is_token(method) && method.len() <= METHOD_BYTES_MAX && !method.eq_ignore_ascii_case("connect")
}

fn is_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    path.starts_with('/') && path.len() <= PATH_BYTES_MAX && path.bytes().all(plain)
}

/// Headers that go through, their names in lower case.
fn through(headers: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let named = headers.map(|(name, value)| (name.to_ascii_lowercase(), value));
    named.filter(|(name, _)| !is_the_senders(name)).collect()
}

/// Whether headers have a right form and size: no value can begin a line of its own.
fn fit(headers: &[(String, Vec<u8>)]) -> bool {
    let value = |bytes: &[u8]| bytes.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
    let bytes = headers.iter().map(|(name, value)| name.len().saturating_add(value.len()));
    headers.len() <= HEADERS_MAX
        && bytes.sum::<usize>() <= HEADER_BYTES_MAX
        && headers.iter().all(|(name, bytes)| is_token(name) && value(bytes))
}

#[cfg(test)]
mod tests;
