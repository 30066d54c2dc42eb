//! The accept loop under every TCP listener of the device: the direct link and the keeper's pages.
//!
//! Owns the listener, the count of connections, and each connection's task. Refuses connections beyond its places by closing
//! them at once, and cuts off whoever sends or reads too slowly. Called by the services, which hand in what answers a request.
//! The listener outlives a restart of its service; the connections end with the token that `serve` was given.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Read buffer of a connection. A request of the common size fits many times; a large body passes through it in pieces.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// All header fields of one request. Ours are five; browsers send some twenty.
const HEADERS_MAX: usize = 64;

/// After `accept` failed for want of descriptors or memory: long enough for connections to end, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection may finish the response it is in when the service stops.
const LAST_RESPONSE: Duration = Duration::from_secs(1);

/// How many may be connected, and how slow they may be.
#[derive(Debug, Clone, Copy)]
pub struct DoorLimits {
    /// Connections from other machines, all together: a device has one owner and few peers.
    pub connections_max: usize,
    /// Connections from one address of another machine, so that one peer never holds all places.
    pub address_max: usize,
    /// Connections from this machine. They have places of their own, so that a flood from outside never locks the keeper out.
    pub loopback_max: usize,
    /// Time for a TLS handshake, for a whole header, and between two requests.
    pub header: Duration,
    /// Time for a whole body, and for the peer to take what was sent to it.
    pub body: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            address_max: 8,
            loopback_max: 256,
            header: Duration::from_secs(10),
            body: Duration::from_secs(20),
        }
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) loopback: bool,
}

/// A bound listener with its limits.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    limits: DoorLimits,
    seats: Arc<Seats>,
}

impl Door {
    /// Binds at once, so that a port in use is known before anything else starts.
    pub(crate) async fn bind(address: SocketAddr, limits: DoorLimits) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let seats = Arc::new(Seats { limits, taken: Mutex::default() });
        Ok(Self { listener, address, limits, seats })
    }

    /// The address it is bound to; the port is a real one even if 0 was asked for.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) const fn limits(&self) -> DoorLimits {
        self.limits
    }

    /// Serves until `stop`. `make` gives each connection what answers its requests.
    pub(crate) async fn serve<S>(&self, tls: Option<TlsAcceptor>, make: impl Fn(Peer) -> S, stop: CancellationToken)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
    {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_ended) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        let ip = address.ip().to_canonical();
                        let Some(seat) = self.seats.take(ip) else {
                            tracing::debug!(peer = %address, "connection refused: no place left");
                            continue;
                        };
                        let service = make(Peer { address, loopback: ip.is_loopback() });
                        let (limits, tls, stop) = (self.limits, tls.clone(), stop.clone());
                        connections.spawn(async move {
                            connection(stream, tls, service, limits, stop).await;
                            drop(seat);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        while connections.join_next().await.is_some() {}
    }
}

async fn connection<S>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: S,
    limits: DoorLimits,
    stop: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    if stream.set_nodelay(true).is_err() {
        return;
    }
    // A peer that does not read leaves our bytes unacknowledged; the kernel then ends the connection.
    let unread_ms = u32::try_from(limits.body.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(&stream, unread_ms) {
        tracing::debug!(%error, "no limit on unread responses");
    }
    match tls {
        None => http(stream, service, limits, stop).await,
        Some(acceptor) => {
            let shaken = tokio::select! {
                () = stop.cancelled() => return,
                shaken = timeout(limits.header, acceptor.accept(stream)) => shaken,
            };
            match shaken {
                Ok(Ok(stream)) => http(stream, service, limits, stop).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_elapsed) => tracing::debug!("TLS handshake took too long"),
            }
        }
    }
}

async fn http<T, S>(stream: T, service: S, limits: DoorLimits, stop: CancellationToken)
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match timeout(LAST_RESPONSE, connection.as_mut()).await {
                Ok(ended) => ended,
                Err(_elapsed) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// The places of a door.
#[derive(Debug)]
struct Seats {
    limits: DoorLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    outside: usize,
    loopback: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One taken place; dropping it frees the place.
#[derive(Debug)]
struct Seat {
    seats: Arc<Seats>,
    ip: IpAddr,
}

impl Seats {
    fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if ip.is_loopback() {
            if taken.loopback >= self.limits.loopback_max {
                return None;
            }
            taken.loopback = taken.loopback.saturating_add(1);
        } else {
            let of_address = taken.by_address.get(&ip).copied().unwrap_or(0);
            if taken.outside >= self.limits.connections_max || of_address >= self.limits.address_max {
                return None;
            }
            taken.outside = taken.outside.saturating_add(1);
            taken.by_address.insert(ip, of_address.saturating_add(1));
        }
        drop(taken);
        Some(Seat { seats: Arc::clone(self), ip })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ip.is_loopback() {
            taken.loopback = taken.loopback.saturating_sub(1);
            return;
        }
        taken.outside = taken.outside.saturating_sub(1);
        if let Some(of_address) = taken.by_address.get_mut(&self.ip) {
            *of_address = of_address.saturating_sub(1);
            if *of_address == 0 {
                taken.by_address.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats() -> Arc<Seats> {
        let limits = DoorLimits { connections_max: 4, address_max: 2, loopback_max: 3, ..DoorLimits::default() };
        Arc::new(Seats { limits, taken: Mutex::default() })
    }

    fn take(seats: &Arc<Seats>, ip: &str, count: usize) -> Vec<Seat> {
        (0..count).filter_map(|_| seats.take(ip.parse::<IpAddr>().unwrap().to_canonical())).collect()
    }

    #[test]
    fn one_address_never_holds_all_places_and_loopback_has_its_own() {
        let seats = seats();
        let first = take(&seats, "192.0.2.1", 5);
        assert_eq!(first.len(), 2, "one address");
        let mapped = take(&seats, "::ffff:192.0.2.1", 1);
        assert!(mapped.is_empty(), "the same address written as IPv6 is the same address");
        let second = take(&seats, "192.0.2.2", 2);
        let third = take(&seats, "192.0.2.3", 2);
        assert_eq!((second.len(), third.len()), (2, 0), "all places from outside are taken");
        assert_eq!(take(&seats, "127.0.0.1", 5).len(), 3, "loopback");
        drop(first);
        assert_eq!(take(&seats, "192.0.2.3", 2).len(), 2);
        drop(second);
        assert!(seats.taken.lock().unwrap().by_address.is_empty(), "nothing is remembered of who left");
    }
}
