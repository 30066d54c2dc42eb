//! The direct link: `GET /v1/challenge` and `POST /v1/request` (PROTOCOL.md, section 3).
//!
//! Owns its listener, the memory that bodies in flight may take, and the HTTP face of the one gate, [`House::answer`]. Called by
//! controllers. Refuses browsers, foreign hosts, and bodies that are too large or too slow, all with the same 403, and reads
//! nothing of a request itself. It ends with the token of its supervisor; the listener stays bound for the restart.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actors::{House, Link, Service};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::routing::{get, post};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use handlers::Fault;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::field::DisplayValue;
use wire::envelope::ENVELOPE_BYTES_MAX;

use crate::door::{Door, Peer};
use crate::rules::{self, HostNames};

/// Bodies in flight from other machines, and as many again from this one.
pub const BODIES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A body up to here never waits: each connection has so much of its own, set aside beforehand. Everything but a picture for the
/// display fits, so that no number of large bodies that stall keeps a claim, a cancel or a snapshot from being read.
const OWN_BYTES: usize = 8 * 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

const FORBIDDEN: &[u8] = br#"{"error":"forbidden"}"#;
const NOT_FOUND: &[u8] = br#"{"error":"not_found"}"#;
const METHOD_NOT_ALLOWED: &[u8] = br#"{"error":"method_not_allowed"}"#;

/// The direct link as a service of the house.
#[derive(Clone)]
pub(crate) struct Direct {
    door: Arc<Door>,
    tls: Option<TlsAcceptor>,
    names: HostNames,
}

impl Direct {
    pub(crate) fn new(door: Door, tls: Option<TlsAcceptor>, names: HostNames) -> Self {
        Self { door: Arc::new(door), tls, names }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.door.address()
    }

    pub(crate) const fn tls(&self) -> bool {
        self.tls.is_some()
    }
}

impl Service for Direct {
    fn start(&self, house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let direct = self.clone();
        async move {
            let limits = direct.door.limits();
            let outside = routes(house.clone(), limits.body, limits.connections_max);
            let loopback = routes(house, limits.body, limits.loopback_max);
            let make = |peer: Peer| Gate {
                routes: TowerToHyperService::new(if peer.loopback { loopback.clone() } else { outside.clone() }),
                names: direct.names.clone(),
                peer: peer.address,
            };
            direct.door.serve(direct.tls.clone(), make, stop).await;
            Ok(())
        }
        .boxed()
    }
}

fn routes(house: House, body: Duration, connections_max: usize) -> Router {
    let set_aside = connections_max.saturating_mul(OWN_BYTES);
    // One large body passes at any rate.
    let shared = BODIES_BYTES_MAX.saturating_sub(set_aside).max(ENVELOPE_BYTES_MAX);
    let desk = Arc::new(Desk { house, body, in_flight: Semaphore::new(shared) });
    Router::new()
        .route("/v1/challenge", get(challenge).head(method_not_allowed))
        .route("/v1/request", post(request))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(desk)
}

/// What stands before the routes of one connection.
#[derive(Clone)]
struct Gate {
    routes: TowerToHyperService<Router>,
    names: HostNames,
    peer: SocketAddr,
}

impl hyper::service::Service<Request<Incoming>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        Either<Ready<Result<Response<Body>, Infallible>>, TowerToHyperServiceFuture<Router, Request<Incoming>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Err(kept_out) = rules::direct(&request, &self.names) {
            tracing::info!(peer = %self.peer, reason = kept_out.label(), "forbidden");
            return Either::Left(ready(Ok(forbidden())));
        }
        request.extensions_mut().insert(PeerAddress(self.peer));
        Either::Right(self.routes.call(request))
    }
}

/// Where a request came from, for the log.
#[derive(Debug, Clone, Copy)]
struct PeerAddress(SocketAddr);

/// What the two routes share.
struct Desk {
    house: House,
    body: Duration,
    /// What bodies beyond [`OWN_BYTES`] may take together.
    in_flight: Semaphore,
}

async fn challenge(State(desk): State<Arc<Desk>>) -> Response<Body> {
    let mut text = String::with_capacity(72);
    // Writing to a String cannot fail.
    let _ = write!(text, r#"{{"challenge":"{}"}}"#, desk.house.challenge(Link::Direct));
    json(StatusCode::OK, Body::from(text))
}

async fn request(State(desk): State<Arc<Desk>>, request: Request) -> Response<Body> {
    let peer = request.extensions().get::<PeerAddress>().map(|peer| tracing::field::display(peer.0));
    desk.answer(request, peer).await
}

impl Desk {
    async fn answer(&self, request: Request, peer: Option<DisplayValue<SocketAddr>>) -> Response<Body> {
        if let Err(kept_out) = rules::json_body(request.headers()) {
            tracing::info!(peer, reason = kept_out.label(), "forbidden");
            return forbidden();
        }
        let (body, in_flight) = match self.read(request.into_body()).await {
            Ok(read) => read,
            Err(unread) => {
                tracing::info!(peer, reason = unread.label(), "forbidden");
                let mut response = forbidden();
                response.headers_mut().insert(CONNECTION, CLOSE);
                return response;
            }
        };
        let answered = self.house.answer(Link::Direct, body).await;
        drop(in_flight);
        match answered {
            Ok(sealed) => json(StatusCode::OK, Body::from(sealed.into_bytes())),
            Err(forbidden_by_house) => {
                // The house logs the reason; this line only adds who it was.
                tracing::debug!(peer, reason = %forbidden_by_house, "forbidden");
                forbidden()
            }
        }
    }

    /// The whole body, and its share of the memory for bodies in flight.
    async fn read(&self, body: Body) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Unread> {
        if usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX) > ENVELOPE_BYTES_MAX {
            return Err(Unread::TooLarge);
        }
        timeout(self.body, self.gather(body)).await.unwrap_or(Err(Unread::TooSlow))
    }

    /// An announced length alone takes nothing from others. Once a body has outgrown what is its connection's own, it takes its whole
    /// length at once: bodies that took it in pieces could all wait for one another.
    async fn gather(&self, mut body: Body) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Unread> {
        let announced = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
        let whole_bytes = announced.unwrap_or(ENVELOPE_BYTES_MAX).min(ENVELOPE_BYTES_MAX);
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        let mut held: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_broken| Unread::Broken)?.into_data() else { continue };
            let total = first.len().saturating_add(whole.len()).saturating_add(data.len());
            if total > ENVELOPE_BYTES_MAX {
                return Err(Unread::TooLarge);
            }
            if held.is_none() && total > OWN_BYTES {
                let bytes = u32::try_from(whole_bytes).map_err(|_too_many| Unread::TooLarge)?;
                held = Some(self.in_flight.acquire_many(bytes).await.map_err(|_closed| Unread::Broken)?);
            }
            if first.is_empty() && whole.is_empty() {
                first = data;
            } else {
                whole.extend_from_slice(&std::mem::take(&mut first));
                whole.extend_from_slice(&data);
            }
            if body.is_end_stream() {
                break;
            }
        }
        Ok((if whole.is_empty() { first } else { whole.freeze() }, held))
    }
}

/// Why a body was not read to its end.
#[derive(Debug, Clone, Copy)]
enum Unread {
    TooLarge,
    TooSlow,
    Broken,
}

impl Unread {
    const fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Broken => "broken_off",
        }
    }
}

async fn not_found() -> Response<Body> {
    json(StatusCode::NOT_FOUND, Body::from(NOT_FOUND))
}

async fn method_not_allowed() -> Response<Body> {
    json(StatusCode::METHOD_NOT_ALLOWED, Body::from(METHOD_NOT_ALLOWED))
}

fn forbidden() -> Response<Body> {
    json(StatusCode::FORBIDDEN, Body::from(FORBIDDEN))
}

fn json(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}
