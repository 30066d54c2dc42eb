//! The page server of the keeper: `/display` for a kiosk screen, on loopback alone.
//!
//! Owns the listener and carries [`Display`] to browsers: states go down as server-sent events, answers come up as small JSON
//! posts. Called by one browser on this machine. Refuses foreign `Host` and `Origin`, bodies that are not JSON, and pages that this
//! process did not mint. All strings travel as JSON and are shown as text; the policy in [`POLICY`] forbids the rest. It ends with
//! its supervisor's token; the listener stays bound for the restart.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actors::{Caller, Command, Event, House, Reply, Service, Way};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use futures_util::stream::{self, Stream};
use handlers::{Fault, Sign, SignState};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use serde::Deserialize;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::board::{Board, SignBoard};
use super::display::{Connected, Display, SHOWING, Said, Token};
use crate::door::{Door, Peer};
use crate::rules;

/// How often an open stream says that it lives; the page tells people of a lost connection after three silent ones.
const TICK: Duration = Duration::from_secs(2);

/// Between two states of one page. A page draws one in 33 ms; under a flood of events it would be told of so many that none which it
/// confirms is known any more.
pub(super) const PACE: Duration = Duration::from_millis(50);

/// An answer of a page: two random names and a word.
const SAID_BYTES_MAX: usize = 1024;

/// How long the whole of an answer may take to arrive.
const SAID_MAX: Duration = Duration::from_secs(5);

/// No script and no style but ours, no frame, nothing from elsewhere, nothing inline.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

const PAGE: &str = include_str!("../../assets/display.html");
const STYLE: &str = include_str!("../../assets/display.css");
const SCRIPT: &str = include_str!("../../assets/display.js");
const ICON: &str = include_str!("../../assets/icon.svg");

/// Where the page's own id goes in [`PAGE`].
const PAGE_ID: &str = "{{page}}";

/// The keeper's pages as a service of the house.
#[derive(Clone)]
pub(crate) struct Pages {
    door: Arc<Door>,
    display: Display,
    sign: Arc<Sign>,
    caller: Caller,
}

impl Pages {
    pub(crate) fn new(door: Door, display: Display, sign: Arc<Sign>, uid: u32) -> Self {
        display.served_at(format!("http://{}/display", door.address()));
        Self { door: Arc::new(door), display, sign, caller: Caller { uid, way: Way::Page } }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Keeps the board in step with the house, until `stop`.
    async fn follow(&self, house: &House, stop: &CancellationToken) {
        let mut events = house.events();
        let mut sign = self.sign.watch();
        self.refresh(house).await;
        self.carry(&sign.borrow_and_update().clone());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = sign.changed() => {
                    if changed.is_err() {
                        stop.cancelled().await;
                        return;
                    }
                    let state = sign.borrow_and_update().clone();
                    self.carry(&state);
                }
                event = events.recv() => match event {
                    Ok(event) => self.happened(house, &event).await,
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        self.display.post(Board::forget_who_acts);
                        self.refresh(house).await;
                    }
                    Err(broadcast::error::RecvError::Closed) => {
                        stop.cancelled().await;
                        return;
                    }
                },
            }
        }
    }

    async fn happened(&self, house: &House, event: &Event) {
        // What an agent showed goes with its ownership, and with its leave to show.
        if matches!(event, Event::Owner { .. })
            || matches!(event, Event::Grant { name, on: false } if name.starts_with(SHOWING))
        {
            self.display.clear();
        }
        let mut more = false;
        self.display.post(|board| more = board.follow(event));
        if more {
            self.refresh(house).await;
        }
    }

    async fn refresh(&self, house: &House) {
        let status = house.command(self.caller, Command::Status).await;
        let claims = house.command(self.caller, Command::Claims).await;
        if let (Reply::Status(status), Reply::Claims { claims }) = (status, claims) {
            self.display.hold_against(status.ownership, &status.grants_on);
            self.display.post(|board| board.refresh(*status, claims));
        }
        if let Reply::Handlers { handlers, .. } = house.command(self.caller, Command::Handlers).await {
            self.display.post(|board| board.know_capturing(&handlers));
        }
    }

    /// The page draws the sign whoever carries it.
    fn carry(&self, state: &SignState) {
        let sign = match state {
            SignState::Lit { simulated, .. } => Some(SignBoard { simulated: *simulated }),
            SignState::Dark | SignState::Lost(_) => None,
        };
        self.display.post(|board| board.carry(sign));
    }
}

impl Service for Pages {
    fn start(&self, house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let pages = self.clone();
        async move {
            let desk = Desk { display: pages.display.clone(), stop: stop.clone() };
            let routes = routes(desk);
            let port = pages.address().port();
            let make = |_peer: Peer| Gate { routes: TowerToHyperService::new(routes.clone()), port };
            tokio::join!(pages.door.serve(None, make, stop.clone()), pages.follow(&house, &stop));
            Ok(())
        }
        .boxed()
    }
}

fn routes(desk: Desk) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/display", get(page))
        .route("/display/display.css", get(async || asset("text/css; charset=utf-8", STYLE)))
        .route("/display/display.js", get(async || asset("text/javascript; charset=utf-8", SCRIPT)))
        .route("/display/icon.svg", get(async || asset("image/svg+xml", ICON)))
        .route("/display/alive", get(async || plain(StatusCode::OK, "")))
        .route("/display/events/{page}", get(events))
        .route("/display/picture/{token}", get(picture))
        .route("/display/said", post(said))
        .fallback(async || plain(StatusCode::NOT_FOUND, "no such page; the display is at /display"))
        .with_state(desk)
}

/// What stands before the routes of one connection.
#[derive(Clone)]
struct Gate {
    routes: TowerToHyperService<Router>,
    port: u16,
}

impl hyper::service::Service<Request<Incoming>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        Either<Ready<Result<Response<Body>, Infallible>>, TowerToHyperServiceFuture<Router, Request<Incoming>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if let Err(kept_out) = rules::page(&request, self.port) {
            tracing::info!(reason = kept_out.label(), "a page was refused");
            return Either::Left(ready(Ok(plain(StatusCode::FORBIDDEN, "forbidden"))));
        }
        Either::Right(self.routes.call(request))
    }
}

/// What the routes share.
#[derive(Clone)]
struct Desk {
    display: Display,
    stop: CancellationToken,
}

async fn home() -> Response<Body> {
    let mut response = plain(StatusCode::FOUND, "");
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/display"));
    response
}

async fn page(State(desk): State<Desk>) -> Response<Body> {
    let page = PAGE.replace(PAGE_ID, &desk.display.mint().to_string());
    answer(StatusCode::OK, "text/html; charset=utf-8", Body::from(page))
}

async fn events(State(desk): State<Desk>, Path(page): Path<String>) -> Response<Body> {
    let changes = desk.display.changes();
    let Some(connected) = Token::parse(&page).and_then(|page| desk.display.connect(page)) else {
        return plain(StatusCode::FORBIDDEN, "this page is not known here; load it again");
    };
    answer(StatusCode::OK, "text/event-stream", Body::from_stream(states(connected, changes, desk.stop)))
}

/// The states of one page, each as it is when the page can take it, and a tick when nothing changes.
fn states(
    connected: Connected,
    changes: watch::Receiver<u64>,
    stop: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let begun = Instant::now();
    let ticks = interval_at(begun.checked_add(TICK).unwrap_or(begun), TICK);
    stream::unfold((connected, changes, ticks, None), move |(connected, mut changes, mut ticks, sent_at)| {
        let stop = stop.clone();
        async move {
            let changed = match sent_at {
                None => true,
                Some(sent_at) => tokio::select! {
                    () = stop.cancelled() => return None,
                    changed = next_change(&mut changes, sent_at) => { changed.ok()?; true }
                    _ = ticks.tick() => false,
                },
            };
            if !changed {
                return Some((Ok(Bytes::from("event: tick\ndata: \n\n")), (connected, changes, ticks, sent_at)));
            }
            // What changes from here on is told by the next state, also when this one has it already.
            changes.mark_unchanged();
            let text = format!("event: state\ndata: {}\n\n", connected.state()?);
            Some((Ok(Bytes::from(text)), (connected, changes, ticks, Some(Instant::now()))))
        }
    })
}

/// A change that no state has told of yet, at the earliest [`PACE`] after the last one. Nothing is lost when this is dropped halfway.
async fn next_change(changes: &mut watch::Receiver<u64>, sent_at: Instant) -> Result<(), watch::error::RecvError> {
    sleep_until(sent_at.checked_add(PACE).unwrap_or(sent_at)).await;
    changes.changed().await
}

async fn picture(State(desk): State<Desk>, Path(token): Path<String>) -> Response<Body> {
    match Token::parse(&token).and_then(|token| desk.display.picture(token)) {
        Some((mime, bytes)) => answer(StatusCode::OK, mime, Body::from(Bytes::from_owner(bytes))),
        None => plain(StatusCode::NOT_FOUND, "no such picture"),
    }
}

/// What a page posts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Post {
    page: String,
    count: u64,
    said: Word,
    #[serde(default)]
    nonce: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Drawn,
    Failed,
    Hidden,
}

async fn said(State(desk): State<Desk>, request: Request) -> Response<Body> {
    if rules::json_body(request.headers()).is_err() {
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json is wanted");
    }
    let body = timeout(SAID_MAX, Limited::new(request.into_body(), SAID_BYTES_MAX).collect()).await;
    let Ok(Ok(body)) = body else { return plain(StatusCode::BAD_REQUEST, "the body was too long or too slow") };
    let heard = wire::json::read::<Post>(&body.to_bytes()).ok().and_then(|post| {
        let page = Token::parse(&post.page)?;
        let said = match post.said {
            Word::Drawn => Said::Drawn(Token::parse(&post.nonce)?),
            Word::Failed => Said::Failed(Token::parse(&post.nonce)?),
            Word::Hidden => Said::Hidden,
        };
        Some(desk.display.hear(page, post.count, said))
    });
    match heard {
        Some(true) => plain(StatusCode::NO_CONTENT, ""),
        Some(false) => plain(StatusCode::CONFLICT, "this page was not sent that"),
        None => plain(StatusCode::BAD_REQUEST, "this is not an answer of a page"),
    }
}

fn asset(mime: &'static str, text: &'static str) -> Response<Body> {
    answer(StatusCode::OK, mime, Body::from(text))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", Body::from(text))
}

fn answer(status: StatusCode, mime: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests;
