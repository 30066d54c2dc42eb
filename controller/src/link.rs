//! The direct link (section 3) from the controller's side: a small HTTP/1.1 client for two requests.
//!
//! [`Links`] owns the idle connections; a challenge and the request that spends it travel on one connection, which is
//! then kept a few seconds for the next. Nothing here signs or trusts: it moves bytes within limits of size and time, and
//! says apart what can go wrong on the way. No redirect is followed, no proxy setting is read, no scheme is changed.
//! A connection ends when it breaks, when it idles too long, or with its `Links`; no task outlives a call.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use wire::envelope::{RESULT_ENVELOPE_BYTES_MAX, Sealed};
use wire::keys::PublicKey;
use wire::text::Challenge;

use crate::inventory::Address;
use crate::tls;

/// A challenge answer has 66 bytes; what is longer is not one.
const CHALLENGE_ANSWER_BYTES_MAX: usize = 1024;

/// Heads of our devices have about 200 bytes; this leaves room for a proxy's additions and bounds what a stranger can send.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A device closes a connection that is silent for 10 s; one older than this is not trusted to be open still.
const IDLE_MS_MAX: u64 = 5_000;

/// Idle connections kept at once: enough for a server that talks to some devices in turn.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// How long each step on the way may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For name lookup, connection and TLS together.
    pub connect: Duration,
    /// For a challenge, and for the head of an answer to a request that does no work.
    pub head: Duration,
    /// For the body of an answer after its head: 2 MiB over a slow radio link.
    pub body: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(6), head: Duration::from_secs(10), body: Duration::from_secs(15) }
    }
}

/// A device as the link sees it: where, and which key it must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where it listens.
    pub address: Address,
    /// The pinned key.
    pub key: PublicKey,
}

/// The step at which time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Lookup, connection, TLS.
    Connect,
    /// Waiting for the head of an answer.
    Head,
    /// Reading the body of an answer.
    Body,
    /// The whole command's time.
    Total,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection in time",
            Self::Head => "no answer in time",
            Self::Body => "the answer did not end in time",
            Self::Total => "the time given for the whole command is over",
        })
    }
}

/// What can go wrong between here and a device.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The host's name does not resolve.
    #[error("the name {0} leads nowhere")]
    NoSuchHost(String),
    /// The machine is there and nothing listens on the port.
    #[error("nothing listens there")]
    NothingListens(#[source] io::Error),
    /// No way to the machine.
    #[error("no way there")]
    NoWay(#[source] io::Error),
    /// The server answers, but not in TLS.
    #[error("the server there does not speak TLS")]
    NotTls,
    /// The server took the beginning of a TLS handshake and ended the connection: a device that speaks plain HTTP does that, and one
    /// that has no place for another connection.
    #[error("the server there ended the TLS handshake")]
    NoHandshake(#[source] io::Error),
    /// The TLS handshake failed for another reason than the key.
    #[error("TLS was refused")]
    TlsRefused(#[source] rustls::Error),
    /// The certificate holds another key than the pinned one.
    #[error("the server there has another key than the device")]
    WrongKey,
    /// The certificate is right and the handshake is not signed with its key.
    #[error("the server there shows the device's certificate and does not hold its key")]
    KeyNotHeld,
    /// Time ran out.
    #[error("{0}")]
    TimedOut(Step),
    /// The connection ended in the middle.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
    /// More bytes than an answer can have.
    #[error("the answer is larger than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// HTTP, but not a device's.
    #[error("what answers there is no device (HTTP {0})")]
    NotADevice(u16),
    /// Bytes that are not HTTP, or no challenge.
    #[error("what answers there does not speak the device link")]
    NotTheLink,
    /// 403 for a challenge: the device does not serve this host name.
    #[error("the device does not serve under this host name")]
    HostRefused,
    /// 403 for a request.
    #[error("the device answered 403")]
    Forbidden,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Driver = http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>;

/// One HTTP connection, driven only while somebody waits on it.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Option<Pin<Box<Driver>>>,
}

impl Connection {
    /// Runs `work` and the connection side by side until `work` is done.
    async fn drive<T>(driver: &mut Option<Pin<Box<Driver>>>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Some(running) = driver.as_mut() {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ended = running => {}
            }
            *driver = None;
        }
        // The connection has ended; what it delivered before is still with `work`.
        work.await
    }

    /// The head of the answer to `request`.
    async fn head(&mut self, request: Request<Full<Bytes>>, limit: Duration) -> Result<Response<Incoming>, LinkError> {
        let Self { sender, driver } = self;
        let answer = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        match timeout(limit, Self::drive(driver, answer)).await {
            Err(_elapsed) => Err(LinkError::TimedOut(Step::Head)),
            Ok(Err(error)) if error.is_parse() || error.is_parse_too_large() => Err(LinkError::NotTheLink),
            Ok(Err(error)) => Err(LinkError::Broken(Box::new(error))),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// The whole body of an answer, at most `max` bytes.
    async fn body(&mut self, body: Incoming, max: usize, limit: Duration) -> Result<Bytes, LinkError> {
        match timeout(limit, Self::drive(&mut self.driver, Limited::new(body, max).collect())).await {
            Err(_elapsed) => Err(LinkError::TimedOut(Step::Body)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(LinkError::TooLarge { max }),
            Ok(Err(error)) => Err(LinkError::Broken(error)),
            Ok(Ok(body)) => Ok(body.to_bytes()),
        }
    }
}

struct Idle {
    peer: Peer,
    since: Instant,
    connection: Connection,
}

/// The connections to devices, shared by any number of controllers.
#[derive(Default)]
pub struct Links {
    limits: Limits,
    idle: Mutex<Vec<Idle>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A fresh challenge, and the connection on which the one request for it goes.
pub(crate) struct Ready<'a> {
    links: &'a Links,
    peer: Peer,
    connection: Connection,
    /// What the request must carry.
    pub(crate) challenge: Challenge,
}

impl Links {
    /// Connections under these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, idle: Mutex::default() }
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Fetches a challenge. Nothing has reached the device's gate when this fails.
    pub(crate) async fn challenge(&self, peer: &Peer, until: Option<Instant>) -> Result<Ready<'_>, LinkError> {
        within(until, async {
            if let Some(connection) = self.take(peer) {
                match self.challenge_on(connection, peer).await {
                    // The device closed an idle connection, which is its right; a fresh one tells the truth.
                    Err(LinkError::Broken(_)) => {}
                    settled => return settled,
                }
            }
            let connection = self.connect(peer).await?;
            self.challenge_on(connection, peer).await
        })
        .await
    }

    async fn challenge_on(&self, mut connection: Connection, peer: &Peer) -> Result<Ready<'_>, LinkError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Issued {
            challenge: Challenge,
        }
        let request = request(Method::GET, "/v1/challenge", &peer.address, Bytes::new())?;
        let response = connection.head(request, self.limits.head).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::FORBIDDEN => return Err(LinkError::HostRefused),
            other => return Err(LinkError::NotADevice(other.as_u16())),
        }
        let body = connection.body(response.into_body(), CHALLENGE_ANSWER_BYTES_MAX, self.limits.body).await?;
        let issued: Issued = wire::json::read(&body).map_err(|_| LinkError::NotTheLink)?;
        Ok(Ready { links: self, peer: peer.clone(), connection, challenge: issued.challenge })
    }

    async fn connect(&self, peer: &Peer) -> Result<Connection, LinkError> {
        match timeout(self.limits.connect, self.connect_in_time(peer)).await {
            Err(_elapsed) => Err(LinkError::TimedOut(Step::Connect)),
            Ok(settled) => settled,
        }
    }

    async fn connect_in_time(&self, peer: &Peer) -> Result<Connection, LinkError> {
        let Address { tls, host, port } = &peer.address;
        let no_such_host = || LinkError::NoSuchHost(host.clone());
        let addresses: Vec<SocketAddr> =
            tokio::net::lookup_host((host.as_str(), *port)).await.map_err(|_| no_such_host())?.collect();
        let tcp = first_open(&addresses, self.limits.connect).await.unwrap_or_else(|| Err(no_such_host()))?;
        tcp.set_nodelay(true).map_err(LinkError::NoWay)?;
        let stream: Box<dyn Stream> = if *tls {
            let name = ServerName::try_from(host.clone()).map_err(|_| no_such_host())?;
            let connector = tokio_rustls::TlsConnector::from(tls::settings(&peer.key)?);
            Box::new(connector.connect(name, tcp).await.map_err(tls::refusal)?)
        } else {
            Box::new(tcp)
        };
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| LinkError::Broken(Box::new(error)))?;
        Ok(Connection { sender, driver: Some(Box::pin(driver)) })
    }

    fn take(&self, peer: &Peer) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| one.since.elapsed() < Duration::from_millis(IDLE_MS_MAX));
        let at = idle.iter().position(|one| one.peer == *peer)?;
        Some(idle.swap_remove(at).connection)
    }

    fn keep(&self, peer: Peer, connection: Connection) {
        if connection.driver.is_none() || connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(Idle { peer, since: Instant::now(), connection });
        }
    }
}

impl Ready<'_> {
    /// The device that gave the challenge.
    pub(crate) fn device(&self) -> &PublicKey {
        &self.peer.key
    }

    /// Sends the request and gives the answer's bytes. Whatever this returns, the request may have arrived, but for
    /// [`LinkError::Forbidden`].
    ///
    /// `work` is how long the device may take before it answers, on top of the limit for heads.
    pub(crate) async fn send(
        mut self,
        sealed: Sealed,
        work: Duration,
        until: Option<Instant>,
    ) -> Result<Bytes, LinkError> {
        within(until, async {
            let limits = self.links.limits;
            let request = request(Method::POST, "/v1/request", &self.peer.address, Bytes::from(sealed.into_bytes()))?;
            let response = self.connection.head(request, limits.head.saturating_add(work)).await?;
            match response.status() {
                StatusCode::OK => {}
                StatusCode::FORBIDDEN => return Err(LinkError::Forbidden),
                other => return Err(LinkError::NotADevice(other.as_u16())),
            }
            let body = self.connection.body(response.into_body(), RESULT_ENVELOPE_BYTES_MAX, limits.body).await?;
            self.links.keep(self.peer, self.connection);
            Ok(body)
        })
        .await
    }
}

async fn within<T>(until: Option<Instant>, work: impl Future<Output = Result<T, LinkError>>) -> Result<T, LinkError> {
    match until {
        None => work.await,
        Some(until) => match timeout_at(until, work).await {
            Err(_elapsed) => Err(LinkError::TimedOut(Step::Total)),
            Ok(settled) => settled,
        },
    }
}

/// The first address that takes a connection; each gets its share of the time, so that one dead address family does not
/// use up that of the other. `None` without addresses.
async fn first_open(addresses: &[SocketAddr], limit: Duration) -> Option<Result<TcpStream, LinkError>> {
    let share = limit / u32::try_from(addresses.len()).ok()?.max(1);
    let mut last = None;
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(open)) => return Some(Ok(open)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = Some(LinkError::NothingListens(error));
            }
            Ok(Err(error)) => last = Some(LinkError::NoWay(error)),
            Err(_elapsed) => last = Some(LinkError::TimedOut(Step::Connect)),
        }
    }
    last.map(Err)
}

fn request(method: Method, path: &str, address: &Address, body: Bytes) -> Result<Request<Full<Bytes>>, LinkError> {
    let mut request = Request::builder()
        .method(&method)
        .uri(path)
        .header(HOST, address.authority())
        .header(ACCEPT, "application/json");
    if method == Method::POST {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request.body(Full::new(body)).map_err(|_| LinkError::NoSuchHost(address.host.clone()))
}
