//! The direct link spoken by hand: bytes of HTTP/1.1 over a blocking socket, so that a test can send what no client would.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use wire::{Challenge, Envelope, ErrorCode, Object, PublicKey, Refusal, SecretKey, Signer as _};

use crate::SOON;

/// The body of every refusal.
pub const FORBIDDEN: &str = r#"{"error":"forbidden"}"#;

/// A device as its controllers reach it.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where.
    pub address: SocketAddr,
    /// The key that its answers must hold with.
    pub device: PublicKey,
}

/// An answer of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

/// What a signed answer says.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome(pub Result<Object, Refusal>);

impl Outcome {
    /// The value of a call that went well.
    #[track_caller]
    pub fn value(self) -> Object {
        self.0.unwrap_or_else(|refusal| panic!("refused: {refusal:?}"))
    }

    /// The error code of one that did not.
    #[track_caller]
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match &self.0 {
            Err(refusal) => refusal.error,
            Ok(value) => panic!("not refused: {value:?}"),
        }
    }

    /// `ok` or the error code.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.0.as_ref().map_or_else(|refusal| refusal.error.as_str(), |_| "ok")
    }
}

impl Reply {
    /// Opens the signed answer.
    #[track_caller]
    #[must_use]
    pub fn outcome(&self, device: &PublicKey) -> Outcome {
        assert_eq!(self.status, 200, "{self:?}");
        let opened = Envelope::parse_result(self.body.as_bytes()).and_then(|envelope| envelope.open_answer(device));
        Outcome(opened.unwrap_or_else(|refused| panic!("{refused}: {self:?}")).into_parts().2.outcome)
    }

    /// The challenge in it.
    #[track_caller]
    #[must_use]
    pub fn challenge(&self) -> Challenge {
        assert_eq!(self.status, 200, "{self:?}");
        let value: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        value["challenge"].as_str().expect("a challenge").parse().expect("a challenge")
    }

    /// Whether it is the one refusal that everybody gets.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status == 403 && self.body == FORBIDDEN
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
    }
}

impl Line {
    /// A device at this address, with this key.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a secret key is not kept longer than needed")]
    pub fn new(address: SocketAddr, key: SecretKey) -> Self {
        Self { address, device: key.public().clone() }
    }

    /// A connection.
    #[must_use]
    pub fn connect(&self) -> Wire {
        Wire::connect(self.address)
    }

    /// A fresh challenge.
    #[must_use]
    pub fn challenge(&self) -> Challenge {
        self.connect().challenge()
    }

    /// Sends an envelope.
    #[must_use]
    pub fn post(&self, envelope: &[u8]) -> Reply {
        self.connect().post(envelope)
    }
}

/// One connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    ahead: Vec<u8>,
    host: String,
}

impl Wire {
    /// Connects.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, SOON).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("set");
        stream.set_write_timeout(Some(SOON)).expect("set");
        stream.set_nodelay(true).expect("set");
        Self { stream, ahead: Vec::new(), host: address.to_string() }
    }

    /// How long a read may wait.
    pub fn patience(&self, wait: Duration) {
        self.stream.set_read_timeout(Some(wait)).expect("set");
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the other end has closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Says that no more comes.
    pub fn half_close(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// One answer; none when the connection ended before a whole one came.
    #[must_use]
    pub fn read(&mut self) -> Option<Reply> {
        let head_end = loop {
            if let Some(at) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.ahead[..head_end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().expect("a length"));
        while self.ahead.len() < head_end + 4 + length {
            self.more()?;
        }
        let body = String::from_utf8_lossy(&self.ahead[head_end + 4..head_end + 4 + length]).into_owned();
        self.ahead.drain(..head_end + 4 + length);
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a status");
        Some(Reply { status, head, body })
    }

    fn more(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => None,
            Ok(read) => {
                self.ahead.extend_from_slice(&piece[..read]);
                Some(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => None,
            Err(error) => panic!("neither an answer nor an end: {error}"),
        }
    }

    /// Whether the other end has closed, waited for as long as a read may wait.
    #[must_use]
    pub fn closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe),
        }
    }

    /// The same, where an answer counts as an end too; it is kept for the next [`Wire::read`].
    #[must_use]
    pub fn closed_or_answered(&mut self) -> bool {
        let mut piece = [0; 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => true,
            Ok(read) => {
                self.ahead.extend_from_slice(&piece[..read]);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe),
        }
    }

    /// All that comes until the other end closes.
    pub fn rest(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.ahead);
        match self.stream.read_to_end(into) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("it does not end: {error}"),
            Ok(_) | Err(_) => {}
        }
    }

    /// Asks for a challenge.
    #[must_use]
    pub fn challenge(&mut self) -> Challenge {
        self.get("/v1/challenge").challenge()
    }

    /// A plain GET.
    #[must_use]
    pub fn get(&mut self, path: &str) -> Reply {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.send(request.as_bytes()).expect("sent");
        self.read().expect("an answer")
    }

    /// An envelope, as a controller sends it.
    #[must_use]
    pub fn post(&mut self, envelope: &[u8]) -> Reply {
        self.send(&self.request(envelope)).expect("sent");
        self.read().expect("an answer")
    }

    /// The bytes of a request with an envelope.
    #[must_use]
    pub fn request(&self, envelope: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST /v1/request HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.host,
            envelope.len()
        );
        [head.as_bytes(), envelope].concat()
    }
}
