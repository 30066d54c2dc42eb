//! The load: keep-alive connections that fetch a challenge, sign a call, and verify every answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use wire::{Challenge, Envelope, Head, Id, Object, OwnerRequest, Refusal, SecretKey, Signer};

/// The two keys of a run.
pub(crate) struct Party {
    pub(crate) device: SecretKey,
    pub(crate) owner: SecretKey,
    next: AtomicU64,
}

/// What a stretch of load came to.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) calls: u64,
    pub(crate) wall: Duration,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
}

impl Party {
    pub(crate) fn new() -> Self {
        Self {
            device: SecretKey::from_seed(&[11; 32]),
            owner: SecretKey::from_seed(&[12; 32]),
            next: AtomicU64::new(1),
        }
    }

    pub(crate) fn head(&self, challenge: &Challenge) -> Head {
        let mut id = [0; 24];
        id[..8].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Head { id: Id::from_bytes(id), challenge: *challenge, to: self.device.public().clone() }
    }

    /// The body of a call of `device.health`.
    pub(crate) fn invoke_body(&self, challenge: &Challenge) -> Vec<u8> {
        health().to_body(&self.head(challenge))
    }
}

/// A call of `device.health`.
pub(crate) fn health() -> OwnerRequest {
    invoke("device.health", Object::new())
}

/// A call of a built-in capability.
#[expect(clippy::expect_used, reason = "called with literals that are capability names")]
pub(crate) fn invoke(capability: &'static str, arguments: Object) -> OwnerRequest {
    OwnerRequest::Invoke { capability: capability.parse().expect("a capability name"), arguments }
}

/// What is asked, over and over.
#[derive(Clone)]
pub(crate) enum Ask {
    /// Signed, and every answer verified; whether a refusal counts as an answer.
    Signed { request: Arc<OwnerRequest>, may_be_refused: bool },
    /// The same bytes as a call of `device.health`, to a server that knows no keys.
    Bare,
}

impl Ask {
    pub(crate) fn health() -> Self {
        Self::Signed { request: Arc::new(health()), may_be_refused: false }
    }
}

/// One keep-alive connection.
pub(crate) struct Connection {
    send: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { send, host: address.to_string() })
    }

    async fn ask(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        self.send.ready().await?;
        let request = Request::builder().method(method).uri(path).header("host", &self.host);
        let request = request.header("content-type", "application/json").body(Full::new(body))?;
        let answer = self.send.send_request(request).await?;
        ensure!(answer.status().is_success(), "the server answered {}", answer.status());
        Ok(answer.into_body().collect().await?.to_bytes())
    }

    /// A fresh challenge.
    pub(crate) async fn challenge(&mut self) -> anyhow::Result<Challenge> {
        let json = self.ask(Method::GET, "/v1/challenge", Bytes::new()).await?;
        let object = wire::json::parse(&json)?;
        let text = object.get("challenge").and_then(|value| value.as_str()).context("no challenge")?;
        Ok(text.parse()?)
    }

    /// One whole call; gives the length of the answer's body.
    pub(crate) async fn call(&mut self, party: &Party, request: &OwnerRequest) -> anyhow::Result<usize> {
        let (outcome, bytes) = self.ask_signed(party, request).await?;
        match outcome {
            Ok(_) => Ok(bytes),
            Err(refusal) => bail!("the device refused: {refusal}"),
        }
    }

    /// One whole request; gives what the device answered, and the length of the answer's body.
    pub(crate) async fn ask_signed(
        &mut self,
        party: &Party,
        request: &OwnerRequest,
    ) -> anyhow::Result<(Result<Object, Refusal>, usize)> {
        let challenge = self.challenge().await?;
        let head = party.head(&challenge);
        let sealed = wire::envelope::seal(&party.owner, &request.to_body(&head));
        let answer = self.ask(Method::POST, "/v1/request", Bytes::from(sealed.into_bytes())).await?;
        let opened = Envelope::parse_result(&answer).and_then(|envelope| envelope.open_answer(party.device.public()));
        let (_, _, answer) = opened.context("an answer does not verify")?.into_parts();
        answer.matches(&head, party.owner.public())?;
        let bytes = answer.to_body().len();
        Ok((answer.outcome, bytes))
    }

    /// The same exchange with a server that knows no keys: sent and read, nothing verified.
    async fn exchange(&mut self, party: &Party) -> anyhow::Result<()> {
        let challenge = self.challenge().await?;
        let sealed = wire::envelope::seal(&party.owner, &party.invoke_body(&challenge));
        self.ask(Method::POST, "/v1/request", Bytes::from(sealed.into_bytes())).await?;
        Ok(())
    }
}

/// Loads a server for a time.
pub(crate) async fn drive(
    address: SocketAddr,
    party: &Arc<Party>,
    connections: usize,
    time: Duration,
    ask: Ask,
) -> anyhow::Result<Run> {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (party, ask) = (Arc::clone(party), ask.clone());
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut took = Vec::new();
            while began.elapsed() < time {
                let start = Instant::now();
                match &ask {
                    Ask::Bare => connection.exchange(&party).await?,
                    Ask::Signed { request, may_be_refused } => {
                        let (outcome, _) = connection.ask_signed(&party, request).await?;
                        if let Err(refusal) = outcome
                            && !may_be_refused
                        {
                            bail!("the device refused: {refusal}");
                        }
                    }
                }
                took.push(start.elapsed());
            }
            anyhow::Ok(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    took.sort_unstable();
    let quantile = |part: usize| took.get(took.len() * part / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let longest_ms = took.last().map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let calls = u64::try_from(took.len())?;
    Ok(Run { calls, wall: began.elapsed(), p50_ms: quantile(50), p99_ms: quantile(99), longest_ms })
}
