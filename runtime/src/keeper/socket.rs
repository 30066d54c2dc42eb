//! The keeper's command socket in the state folder.
//!
//! Owns the listener (0600, in a 0700 folder) and its connections. Called by `latchkeyd`'s own commands. Takes orders from the user
//! that the daemon runs as and from root, whom the kernel names; refuses everyone else, long lines, slow lines, and what is not an
//! [`Ask`]. It ends with its supervisor's token; the socket's file goes with [`Socket`].

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actors::{Caller, House, Service, Way};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::doctor::Finding;
use crate::doctor::trial::Trial;

use super::ask::{ASK_BYTES_MAX, Address, Ask, Reloaded, SOCKET_FILE, Told};

/// What the socket asks of the composition: things that the house does not know.
pub(crate) trait Concierge: Send + Sync {
    /// Reads the settings anew.
    fn reload(self: Arc<Self>, house: House) -> BoxFuture<'static, Result<Reloaded, String>>;
    /// Where the daemon listens.
    fn address(&self) -> Address;
    /// Tries parts of the device for real.
    fn try_out(self: Arc<Self>, house: House, trial: Trial) -> BoxFuture<'static, Vec<Finding>>;
}

/// How many may talk at once, and how slowly.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    /// Connections at once: a person has a few terminals open, a script perhaps one more.
    pub connections_max: usize,
    /// Time for a line to arrive, from the moment the last one was answered.
    pub line: Duration,
    /// Time for the caller to take an answer.
    pub answer: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self { connections_max: 16, line: Duration::from_secs(10), answer: Duration::from_secs(10) }
    }
}

/// The command socket as a service of the house.
#[derive(Clone)]
pub(crate) struct Socket {
    bound: Arc<Bound>,
    concierge: Arc<dyn Concierge>,
    limits: SocketLimits,
    uid: u32,
}

/// The listener and its file.
struct Bound {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Socket {
    /// Binds the socket in `state_dir`, in place of one that a killed daemon left behind. The caller holds the folder's lock, so no
    /// living daemon owns it.
    pub(crate) fn bind(
        state_dir: &Path,
        concierge: Arc<dyn Concierge>,
        limits: SocketLimits,
        uid: u32,
    ) -> io::Result<Self> {
        let path = state_dir.join(SOCKET_FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Self { bound: Arc::new(Bound { listener, path }), concierge, limits, uid })
    }

    async fn serve(self, house: House, stop: CancellationToken) {
        let mut talks = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(_ended) = talks.join_next() => {}
                accepted = self.bound.listener.accept() => match accepted {
                    Ok((stream, _unnamed)) if talks.len() < self.limits.connections_max => {
                        let (socket, house) = (self.clone(), house.clone());
                        talks.spawn(async move {
                            if let Err(error) = socket.talk(stream, &house).await {
                                tracing::debug!(%error, "a talk on the command socket ended");
                            }
                        });
                    }
                    Ok(_one_too_many) => tracing::warn!("command socket: too many connections"),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept on the command socket");
                        tokio::time::sleep(self.limits.line.min(Duration::from_millis(50))).await;
                    }
                },
            }
        }
    }

    async fn talk(&self, mut stream: UnixStream, house: &House) -> io::Result<()> {
        let uid = stream.peer_cred()?.uid();
        if uid != self.uid && uid != 0 {
            tracing::warn!(uid, "command socket: a stranger was refused");
            return Ok(());
        }
        let caller = Caller { uid, way: Way::Socket };
        let mut pending = Vec::new();
        loop {
            let line = match timeout(self.limits.line, line(&mut stream, &mut pending)).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => {
                    let message = format!("a command is one line of at most {ASK_BYTES_MAX} bytes");
                    self.tell(&mut stream, &Told::Failed { message }).await?;
                    return Err(error);
                }
                Err(_elapsed) => return Err(io::ErrorKind::TimedOut.into()),
            };
            let told = match serde_json::from_slice::<Ask>(&line) {
                Ok(ask) => self.answer(house, caller, ask).await,
                Err(error) => {
                    let message = format!("this is not a command that this version of latchkeyd knows: {error}");
                    return self.tell(&mut stream, &Told::Failed { message }).await;
                }
            };
            self.tell(&mut stream, &told).await?;
        }
    }

    async fn answer(&self, house: &House, caller: Caller, ask: Ask) -> Told {
        match ask {
            Ask::House { command } => Told::House { reply: house.command(caller, command).await },
            Ask::Reload => match Arc::clone(&self.concierge).reload(house.clone()).await {
                Ok(reload) => Told::Reloaded { reload },
                Err(message) => Told::Failed { message },
            },
            Ask::Address => Told::Address { address: self.concierge.address() },
            Ask::Try { trial } => {
                Told::Tried { findings: Arc::clone(&self.concierge).try_out(house.clone(), trial).await }
            }
        }
    }

    async fn tell(&self, stream: &mut UnixStream, told: &Told) -> io::Result<()> {
        let mut line = serde_json::to_vec(told)?;
        line.push(b'\n');
        timeout(self.limits.answer, stream.write_all(&line)).await?
    }
}

impl Service for Socket {
    fn start(&self, house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        self.clone().serve(house, stop).map(Ok).boxed()
    }
}

/// The next line without its end; `None` when the caller hung up between two lines. What came behind the line stays in `pending`.
async fn line(stream: &mut UnixStream, pending: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = pending.drain(..=end).collect();
            line.pop();
            return Ok(Some(line));
        }
        if pending.len() > ASK_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await? {
            0 if pending.is_empty() => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => pending.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
}
