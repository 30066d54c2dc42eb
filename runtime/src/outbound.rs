//! Requests that handlers send, on their way out of the device.
//!
//! Implements [`Outbound`] over hyper: one fresh connection a request, no redirects, no proxy settings, `Host` and framing made here.
//! Asked by the parent of a handler's process, which has held the origin against the handler's reach before. Refuses names that lead to
//! this machine or to its own link: a name is resolved once a request, every address is judged, and the judged address is the one
//! connected to, so that a name whose answer changes gains nothing. An IP literal stands in the manifest as the keeper wrote it and is
//! taken so. Dropping the future drops the connection; nothing is kept between requests.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use config::manifest::Origin;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::wasm::outbound::{
    Outbound, OutboundAnswer, OutboundRequest, OutboundTrouble, is_of_the_hop, is_the_senders,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

#[cfg(test)]
mod tests;

/// Head of an answer; ordinary ones take a few hundred bytes, and all of it has to fit a frame to the handler's process.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Lines in the head of an answer; hyper's own default, said here so that it stays.
const HEAD_LINES_MAX: usize = 100;

/// Names looked up at once. A lookup that nobody answers holds its thread for half a minute, and nothing can end it sooner.
const LOOKUPS_MAX: usize = 8;

/// Lookups of one name at once, so that a name whose server is dead leaves room for the names of other handlers.
const LOOKUPS_OF_A_NAME_MAX: usize = 2;

/// Addresses of one name that are tried, so that each has a fair part of the time.
const ADDRESSES_MAX: usize = 4;

/// Turns names into addresses, and says which addresses a name may lead to.
pub(crate) trait Names: Send + Sync {
    /// Looks a name up, once.
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

    /// Whether a name may lead there.
    fn may_lead_to(&self, address: IpAddr) -> bool;
}

/// Gives the certificates that https is held against.
type Roots = Arc<dyn Fn() -> Vec<CertificateDer<'static>> + Send + Sync>;

/// The way out.
#[derive(Clone)]
pub struct Ways {
    names: Arc<dyn Names>,
    roots: Roots,
    /// Made with the first https request; an update of the system's roots counts from the next start.
    tls: Arc<OnceCell<Arc<ClientConfig>>>,
}

impl Ways {
    /// With the system's resolver and the system's roots.
    #[must_use]
    pub fn of_the_system() -> Self {
        Self::new(Arc::new(Arc::new(SystemNames(Lookups::new()))), Arc::new(system_roots))
    }

    pub(crate) fn new(names: Arc<dyn Names>, roots: Roots) -> Self {
        Self { names, roots, tls: Arc::default() }
    }

    async fn answer(self, request: OutboundRequest) -> Result<OutboundAnswer, OutboundTrouble> {
        let deadline = Instant::now() + request.within;
        let OutboundRequest { origin, answer_bytes_max, .. } = &request;
        let (origin, answer_bytes_max) = (origin.clone(), *answer_bytes_max);
        let message = message(request)?;
        let whole = async {
            let stream = self.connect(&origin, deadline).await?;
            if origin.tls {
                let name = ServerName::try_from(origin.host.clone()).map_err(|_no_name| OutboundTrouble::Denied)?;
                let tls = self.tls.get_or_try_init(|| client_config(Arc::clone(&self.roots))).await?;
                let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(|error| {
                    tracing::warn!(host = %origin.host, %error, "a handler's https request: no trust in the other side");
                    OutboundTrouble::Broken
                })?;
                exchange(stream, message, answer_bytes_max).await
            } else {
                exchange(stream, message, answer_bytes_max).await
            }
        };
        timeout_at(deadline, whole).await.unwrap_or(Err(OutboundTrouble::TimedOut))
    }

    /// Connects to the first address that answers, each within its part of the time.
    async fn connect(&self, origin: &Origin, deadline: Instant) -> Result<TcpStream, OutboundTrouble> {
        let addresses = self.addresses(origin).await?;
        for (number, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let part = left / u32::try_from(addresses.len().saturating_sub(number)).unwrap_or(1).max(1);
            match timeout(part, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => tracing::debug!(%address, %error, "a handler's request: not connected"),
                Err(_elapsed) => tracing::debug!(%address, "a handler's request: no answer in time"),
            }
        }
        if Instant::now() >= deadline { Err(OutboundTrouble::TimedOut) } else { Err(OutboundTrouble::Refused) }
    }

    /// Where the origin is: as written, or as looked up and judged.
    async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, OutboundTrouble> {
        if let Ok(ip) = origin.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, origin.port)]);
        }
        let found = self.names.resolve(&origin.host, origin.port).await.unwrap_or_default();
        if found.is_empty() {
            return Err(OutboundTrouble::NoName);
        }
        let good = found.into_iter().filter(|address| self.names.may_lead_to(address.ip()));
        let good: Vec<_> = good.take(ADDRESSES_MAX).collect();
        if good.is_empty() { Err(OutboundTrouble::Denied) } else { Ok(good) }
    }
}

impl Outbound for Ways {
    fn send(&self, request: OutboundRequest) -> BoxFuture<'static, Result<OutboundAnswer, OutboundTrouble>> {
        self.clone().answer(request).boxed()
    }
}

/// The request as it goes out. What has no right form is refused, never mended.
fn message(request: OutboundRequest) -> Result<Request<Full<Bytes>>, OutboundTrouble> {
    let denied = OutboundTrouble::Denied;
    let method = Method::from_bytes(request.method.as_bytes()).map_err(|_malformed| denied)?;
    if method == Method::CONNECT {
        return Err(denied);
    }
    let path: PathAndQuery = request.path_and_query.parse().map_err(|_malformed| denied)?;
    if !path.as_str().starts_with('/') {
        return Err(denied);
    }
    let mut message = Request::new(Full::new(Bytes::from(request.body)));
    *message.method_mut() = method;
    *message.uri_mut() = Uri::from(path);
    let headers = message.headers_mut();
    headers.insert(HOST, host(&request.origin).parse().map_err(|_malformed| denied)?);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    for (name, value) in request.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_malformed| denied)?;
        if is_the_senders(name.as_str()) {
            return Err(denied);
        }
        headers.append(name, HeaderValue::from_bytes(&value).map_err(|_malformed| denied)?);
    }
    Ok(message)
}

/// `Host`: the port only where the scheme does not imply it.
fn host(origin: &Origin) -> String {
    let Origin { tls, host, port } = origin;
    let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
    let implied = if *tls { 443 } else { 80 };
    if *port == implied { format!("{open}{host}{close}") } else { format!("{open}{host}{close}:{port}") }
}

/// Sends the request over a fresh connection and collects the answer. The connection is driven here and ends with this future.
async fn exchange<S>(
    stream: S,
    message: Request<Full<Bytes>>,
    answer_bytes_max: usize,
) -> Result<OutboundAnswer, OutboundTrouble>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error: hyper::Error| {
        tracing::debug!(%error, "a handler's request broke");
        OutboundTrouble::Broken
    };
    let handshake = http1::Builder::new()
        .max_headers(HEAD_LINES_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, driver) = handshake.map_err(broken)?;
    let mut collected = std::pin::pin!(async {
        let answer = sender.send_request(message).await.map_err(broken)?;
        collect(answer, answer_bytes_max).await
    });
    tokio::select! {
        collected = &mut collected => collected,
        // What the line had brought before it ended is still to be read.
        _ended = driver => collected.await,
    }
}

/// The whole answer, or none: the body is counted while it comes.
async fn collect(answer: Response<Incoming>, bytes_max: usize) -> Result<OutboundAnswer, OutboundTrouble> {
    let (head, body) = answer.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(OutboundTrouble::Broken);
    }
    if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        return Err(OutboundTrouble::TooLarge);
    }
    let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { OutboundTrouble::TooLarge } else { OutboundTrouble::Broken }
    })?;
    let headers = end_to_end(&head.headers);
    Ok(OutboundAnswer { status: head.status.as_u16(), headers, body: body.to_bytes().to_vec() })
}

/// The headers that are for the handler: not those of the hop, nor those that `Connection` names as such.
fn end_to_end(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let kept = headers
        .iter()
        .filter(|(name, _)| !is_of_the_hop(name.as_str()) && !named.iter().any(|hop| hop == name.as_str()));
    kept.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

/// Reading the system's roots takes some milliseconds of disk, so it happens beside the runtime.
async fn client_config(roots: Roots) -> Result<Arc<ClientConfig>, OutboundTrouble> {
    let read = tokio::task::spawn_blocking(move || roots()).await;
    let mut store = RootCertStore::empty();
    let (known, _unreadable) = store.add_parsable_certificates(read.unwrap_or_default());
    if known == 0 {
        tracing::error!("this system has no root certificates, so no handler can use https; install ca-certificates");
        return Err(OutboundTrouble::Broken);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_unfit| OutboundTrouble::Broken)?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn system_roots() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some root certificates of this system cannot be read");
    }
    found.certs
}

/// The system's resolver.
struct SystemNames(Lookups);

/// Room for lookups: so many in all, and fewer of one name.
struct Lookups {
    all: Arc<Semaphore>,
    of_names: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Lookups {
    fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(LOOKUPS_MAX)), of_names: Mutex::default() }
    }

    /// Room for one lookup of `host`, until both are dropped. Waits for it, first behind those of the same name.
    async fn room(&self, host: &str) -> io::Result<[OwnedSemaphorePermit; 2]> {
        let of_name = self.of_name(host);
        let of_name = of_name.acquire_owned().await.map_err(io::Error::other)?;
        Ok([of_name, Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?])
    }

    fn of_name(&self, host: &str) -> Arc<Semaphore> {
        let mut names = self.of_names.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody looks up, or waits for, are forgotten.
        names.retain(|_, of_name| Arc::strong_count(of_name) > 1);
        let fresh = || Arc::new(Semaphore::new(LOOKUPS_OF_A_NAME_MAX));
        Arc::clone(names.entry(host.to_owned()).or_insert_with(fresh))
    }
}

impl Names for Arc<SystemNames> {
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let (names, host) = (Self::clone(self), host.to_owned());
        async move {
            let room = names.0.room(&host).await?;
            // The room goes with the thread, which outlives a request that was given up. tokio's own lookup would let it go at once.
            let found = tokio::task::spawn_blocking(move || {
                let _room = room;
                (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
            });
            found.await.map_err(io::Error::other)?
        }
        .boxed()
    }

    fn may_lead_to(&self, address: IpAddr) -> bool {
        is_elsewhere(address) && !is_own(address)
    }
}

/// Neither this machine nor everybody on its link, by the form of the address. IPv4 inside IPv6 is judged as IPv4.
pub(crate) fn is_elsewhere(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let this_network = v4.octets().first() == Some(&0);
            !(this_network || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast())
        }
        IpAddr::V6(v6) => match inner_v4(v6) {
            Some(v4) => is_elsewhere(IpAddr::V4(v4)),
            None => !(v6.is_unspecified() || v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast()),
        },
    }
}

/// The IPv4 address in a mapped one (`::ffff:1.2.3.4`) or one behind a translator (`64:ff9b::1.2.3.4`, RFC 6052).
fn inner_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = v6.segments();
    let translated = [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0];
    let [one, two] = high.to_be_bytes();
    let [three, four] = low.to_be_bytes();
    v6.to_ipv4_mapped().or_else(|| translated.then(|| Ipv4Addr::new(one, two, three, four)))
}

/// Whether packets to this address stay on this machine.
///
/// Connecting a datagram socket sends nothing; it makes the kernel choose the address it would send from, and towards this machine
/// that is the address itself, or loopback. This asks the routing that a connection will use, so it knows every interface, and
/// addresses that came a moment ago; binding to the address would say yes to all of them where `ip_nonlocal_bind` is set, and a list
/// of interfaces does not know of routed ranges. Port 9 is not looked at.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    // Where there is no way to it, there is no connection to it either.
    from.is_ok_and(|from| from.ip() == address || from.ip().is_loopback())
}
