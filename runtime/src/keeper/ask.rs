//! The language of the command socket, and the keeper's side of it.
//!
//! One JSON object a line: an [`Ask`] up, a [`Told`] down, as often as the connection lives. The client here is blocking and without
//! a runtime, because a command line that only asks and prints needs none.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actors::{Command, Reply};
use serde::{Deserialize, Serialize};

use crate::doctor::Finding;
use crate::doctor::trial::Trial;

/// The socket's name in the state folder.
pub const SOCKET_FILE: &str = "latchkeyd.sock";

/// The longest question: a command with one name in it.
pub const ASK_BYTES_MAX: usize = 16 * 1024;

/// The longest answer that the client takes: a page of an export is a few MiB.
const TOLD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How long the client waits for an answer; the longest commands wait 30 s for a record.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What the keeper's program asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// A command for the house.
    House {
        /// The command.
        command: Command,
    },
    /// Read the settings anew.
    Reload,
    /// Where the daemon listens.
    Address,
    /// Try parts of the device for real, under the lit sign.
    Try {
        /// Which.
        trial: Trial,
    },
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum Told {
    /// The house's reply.
    House {
        /// The reply.
        reply: Reply,
    },
    /// The settings were read anew.
    Reloaded {
        /// What changed.
        reload: Reloaded,
    },
    /// Where the daemon listens.
    Address {
        /// All of it.
        address: Address,
    },
    /// What trials came to.
    Tried {
        /// Each part of it.
        findings: Vec<Finding>,
    },
    /// Not done.
    Failed {
        /// One sentence with the next step.
        message: String,
    },
}

/// What a reload changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Keys whose new value is in force.
    pub changed: Vec<String>,
    /// Keys whose new value waits for a restart.
    pub restart: Vec<String>,
}

/// Where a running daemon listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Whether the direct link speaks TLS.
    pub tls: bool,
    /// The host that pairing links name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Where the direct link is bound.
    pub direct: String,
    /// The display page, if it is served.
    pub display: Option<String>,
    /// The daemon's process id.
    pub pid: u32,
    /// Whether its hardware is simulated.
    pub simulated: bool,
}

impl Address {
    /// `https://host:port`
    #[must_use]
    pub fn link(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

/// Why the daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// Nobody listens.
    #[error("latchkeyd is not running for {}", state_dir.display())]
    NotRunning {
        /// The state folder.
        state_dir: PathBuf,
    },
    /// The daemon belongs to somebody else.
    #[error("only the user that runs latchkeyd may talk to it in {}; run this as that user or with sudo, or name another folder with --state-dir", state_dir.display())]
    NotAllowed {
        /// The state folder.
        state_dir: PathBuf,
    },
    /// The connection failed.
    #[error("the connection to latchkeyd broke off")]
    Broken(#[source] io::Error),
    /// The answer was not one.
    #[error("latchkeyd gave an answer that this program does not understand; are both of the same version?")]
    NotUnderstood(#[source] serde_json::Error),
}

/// An open connection to the daemon.
#[derive(Debug)]
pub struct Talk {
    stream: BufReader<UnixStream>,
}

impl Talk {
    /// Connects to the daemon of a state folder.
    ///
    /// # Errors
    /// [`TalkError::NotRunning`] when nobody listens there.
    pub fn connect(state_dir: &Path) -> Result<Self, TalkError> {
        let stream = UnixStream::connect(state_dir.join(SOCKET_FILE)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                TalkError::NotRunning { state_dir: state_dir.to_owned() }
            }
            io::ErrorKind::PermissionDenied => TalkError::NotAllowed { state_dir: state_dir.to_owned() },
            _ => TalkError::Broken(error),
        })?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(TalkError::Broken)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(TalkError::Broken)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks once.
    ///
    /// # Errors
    /// See [`TalkError`].
    pub fn ask(&mut self, ask: &Ask) -> Result<Told, TalkError> {
        let mut line = serde_json::to_vec(ask).map_err(TalkError::NotUnderstood)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(TalkError::Broken)?;
        let mut answer = Vec::new();
        let read = (&mut self.stream).take(TOLD_BYTES_MAX).read_until(b'\n', &mut answer).map_err(TalkError::Broken)?;
        if read == 0 {
            return Err(TalkError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&answer).map_err(TalkError::NotUnderstood)
    }
}
