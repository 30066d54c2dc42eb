//! A small device: challenges, one owner, a few capabilities, signed answers; and a list of ways to misbehave.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use latchkey_controller::inventory::ChangeState;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::answer::{Answer, ErrorCode, Refusal};
use wire::declaration::{CapabilityState, Declaration, Offered, Owner, Registration};
use wire::envelope::{Envelope, Unopened, seal};
use wire::json::Object;
use wire::keys::{PublicKey, SecretKey, Signer};
use wire::pairing::{ClaimCode, PairingLink, PairingSecret};
use wire::request::{ClaimantRequest, Head, OwnerRequest};
use wire::text::{Agent, Challenge, Id, Salt};

pub(crate) const JPEG: &[u8] = &[0xff, 0xd8, 0xff, 0xe0, 1, 2, 3];
const SECRET: [u8; 16] = [7; 16];

/// How the device misbehaves, from the next request on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    WrongId,
    WrongChallenge,
    WrongTo,
    WrongKey,
    NoEnvelope,
    /// The connection ends after the request was read and done.
    Break,
    TrickleHead,
    TrickleBody,
    Oversize,
    Forbidden,
    Redirect,
    NotHttp,
    /// The connection ends after each answer, unannounced.
    CloseAfter,
    WrongCode,
    /// An answer of the device, but about another device.
    OtherRegistration,
}

/// A change of owner that somebody asked for.
pub(crate) struct Wish {
    asked_by: PublicKey,
    state: ChangeState,
    new_owner: Option<(Agent, PublicKey)>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) fault: Fault,
    pub(crate) name: String,
    pub(crate) owner: Option<(Agent, PublicKey)>,
    pub(crate) changes: BTreeMap<Id, Wish>,
    pub(crate) granted: bool,
    pub(crate) active: bool,
    pub(crate) snapshot: Option<Value>,
    pub(crate) refuse: Option<ErrorCode>,
    /// Only requests of this type are refused.
    pub(crate) refuse_only: Option<&'static str>,
    /// Requests of this type are answered once the device is active.
    pub(crate) late: Option<&'static str>,
    /// Effects: what the fake screen showed.
    pub(crate) shown: Vec<String>,
    /// Types of accepted requests, in order.
    pub(crate) asked: Vec<&'static str>,
    /// Everything after the challenges.
    pub(crate) posts: usize,
    pub(crate) connections: usize,
    /// The connection ends after a request of this type was done.
    pub(crate) lose: Option<&'static str>,
    /// A request of this type is done and never answered.
    pub(crate) hang: Option<&'static str>,
    pub(crate) hanging: usize,
}

impl State {
    fn wish(&mut self, id: Id, asked_by: PublicKey, new_owner: Option<(Agent, PublicKey)>) {
        self.changes.insert(id, Wish { asked_by, state: ChangeState::Pending, new_owner });
    }
}

/// What a server signs TLS handshakes with, and which certificate it shows.
#[derive(Clone)]
pub(crate) struct TlsParts {
    pub(crate) config: Arc<rustls::ServerConfig>,
}

pub(crate) struct Fake {
    pub(crate) key: Arc<SecretKey>,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) port: u16,
    tls: bool,
    changed: watch::Sender<u64>,
    tasks: JoinSet<()>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn bytes24() -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes
}

pub(crate) fn new_key() -> SecretKey {
    let mut seed = [9; 32];
    seed[..24].copy_from_slice(&bytes24());
    SecretKey::from_seed(&seed)
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Fake {
    pub(crate) async fn plain() -> Self {
        Self::start(Arc::new(new_key()), None).await
    }

    pub(crate) async fn start(key: Arc<SecretKey>, tls: Option<TlsParts>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { name: "kitchen".to_owned(), granted: true, ..State::default() }));
        let mut tasks = JoinSet::new();
        let is_tls = tls.is_some();
        let changed = watch::Sender::new(0);
        tasks.spawn(accept(listener, Arc::clone(&key), Arc::clone(&state), tls, changed.clone()));
        Self { key, state, port, tls: is_tls, changed, tasks }
    }

    /// Waits until the device is in a state; looked at after each request.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        while !wanted(&self.state()) {
            changes.changed().await.unwrap();
        }
    }

    /// Stops listening and ends all connections.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(crate) fn link(&self) -> PairingLink {
        PairingLink {
            tls: self.tls,
            host: "127.0.0.1".to_owned(),
            port: self.port,
            device: self.key.public().clone(),
            secret: PairingSecret::from_bytes(SECRET),
        }
    }

    pub(crate) fn keeper_says(&self, state: ChangeState) {
        keeper_says(&mut self.state(), state);
    }
}

/// The keeper answers everything that is pending.
fn keeper_says(device: &mut State, said: ChangeState) {
    let mut owner = device.owner.clone();
    for wish in device.changes.values_mut().filter(|wish| wish.state == ChangeState::Pending) {
        wish.state = said;
        if said == ChangeState::Approved {
            owner.clone_from(&wish.new_owner);
        }
    }
    device.owner = owner;
}

async fn accept(
    listener: TcpListener,
    key: Arc<SecretKey>,
    state: Arc<Mutex<State>>,
    tls: Option<TlsParts>,
    changed: watch::Sender<u64>,
) {
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        locked(&state).connections += 1;
        let (key, state, tls, changed) = (Arc::clone(&key), Arc::clone(&state), tls.clone(), changed.clone());
        connections.spawn(async move {
            match tls {
                None => serve(tcp, key, state, changed).await,
                Some(parts) => {
                    if let Ok(stream) = tokio_rustls::TlsAcceptor::from(parts.config).accept(tcp).await {
                        serve(stream, key, state, changed).await;
                    }
                }
            }
        });
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    key: Arc<SecretKey>,
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
) {
    while let Some((head, body)) = read_request(&mut stream).await {
        if head.starts_with("GET /v1/challenge ") {
            let challenge = Challenge::from_bytes(bytes24());
            let answer = json!({"challenge": challenge.to_string()}).to_string();
            if write(&mut stream, "200 OK", answer.as_bytes()).await.is_none() {
                return;
            }
            continue;
        }
        let fault = {
            let mut state = locked(&state);
            state.posts += 1;
            state.fault
        };
        let answer = answer(&body, &key, &state, fault);
        let is_late = |state: &State| state.late.is_some() && state.late == state.asked.last().copied();
        let late = is_late(&locked(&state));
        let mut turns = changed.subscribe();
        while late && !locked(&state).active && turns.changed().await.is_ok() {}
        let (lost, hangs) = {
            let mut state = locked(&state);
            let last = state.asked.last().copied();
            let hangs = last.is_some() && state.hang == last;
            state.hanging += usize::from(hangs);
            (last.is_some() && state.lose == last, hangs)
        };
        changed.send_modify(|turn| *turn += 1);
        if hangs {
            return std::future::pending().await;
        }
        if lost {
            return;
        }
        if misbehave(&mut stream, fault, answer).await.is_none() {
            return;
        }
    }
}

/// Writes the answer, or what the fault makes of it; `None` ends the connection.
async fn misbehave(stream: &mut (impl AsyncWrite + Unpin), fault: Fault, answer: Option<Vec<u8>>) -> Option<()> {
    let Some(answer) = answer else { return write(stream, "403 Forbidden", b"{\"error\":\"forbidden\"}").await };
    match fault {
        Fault::Break => None,
        Fault::Forbidden => write(stream, "403 Forbidden", b"{\"error\":\"forbidden\"}").await,
        Fault::Redirect => {
            let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()
        }
        Fault::NotHttp => {
            let _broken = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
            None
        }
        Fault::Oversize => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()?;
            let chunk = vec![b' '; 0x10000];
            loop {
                stream.write_all(b"10000\r\n").await.ok()?;
                stream.write_all(&chunk).await.ok()?;
                stream.write_all(b"\r\n").await.ok()?;
            }
        }
        Fault::TrickleHead => trickle(stream, b"HTTP/1.1 200 OK\r\nx: ").await,
        Fault::TrickleBody => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.write_all(head.as_bytes()).await.ok()?;
            trickle(stream, &answer).await
        }
        Fault::CloseAfter => {
            write(stream, "200 OK", &answer).await;
            None
        }
        Fault::NoEnvelope => write(stream, "200 OK", b"{\"ok\":true}").await,
        Fault::None
        | Fault::WrongId
        | Fault::WrongChallenge
        | Fault::WrongTo
        | Fault::WrongKey
        | Fault::WrongCode
        | Fault::OtherRegistration => write(stream, "200 OK", &answer).await,
    }
}

async fn trickle(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<()> {
    for byte in bytes.iter().chain(std::iter::repeat(&b'x')) {
        stream.write_all(&[*byte]).await.ok()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), status: &str, body: &[u8]) -> Option<()> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()?;
    stream.flush().await.ok()
}

async fn read_request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if !bytes[0].is_ascii_uppercase() {
            // What a server does with bytes that are not HTTP.
            write(stream, "400 Bad Request", b"").await;
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length: usize = length.unwrap_or(0);
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, bytes[end..end + length].to_vec()))
}

/// What the device answers, signed; `None` is 403.
fn answer(body: &[u8], key: &SecretKey, state: &Mutex<State>, fault: Fault) -> Option<Vec<u8>> {
    let mut state = locked(state);
    let envelope = Envelope::parse(body).unwrap();
    let owner = state.owner.as_ref().map_or_else(|| new_key().public().clone(), |(_, key)| key.clone());
    let (head, signer, outcome) = match envelope.open_owner(&owner) {
        Ok(opened) => {
            let (head, signer, request) = opened.into_parts();
            state.asked.push(request.type_name());
            let outcome = owner_request(&mut state, key, &head, request, fault);
            (head, signer, outcome)
        }
        Err(Unopened::NotOwner(envelope)) => {
            let asked_by = |id: &Id| state.changes.get(id).map(|wish| wish.asked_by.clone());
            let (head, signer, request) = envelope.open_claimant(asked_by).ok()?.into_parts();
            state.asked.push(request.type_name());
            let outcome = claimant_request(&mut state, key, &head, request, fault)?;
            (head, signer, outcome)
        }
        Err(Unopened::Refused(refused)) => panic!("the controller sent {refused}"),
    };
    assert_eq!(head.to, *key.public());
    let outcome = match state.refuse {
        Some(error) if state.refuse_only.is_none() || state.refuse_only == state.asked.last().copied() => {
            Err(Refusal::new(error, "told to refuse"))
        }
        Some(_) | None => outcome,
    };
    Some(sign(key, &head, signer, outcome, fault))
}

fn sign(key: &SecretKey, head: &Head, signer: PublicKey, outcome: Result<Object, Refusal>, fault: Fault) -> Vec<u8> {
    let answer = Answer {
        id: if fault == Fault::WrongId { Id::from_bytes(bytes24()) } else { head.id },
        challenge: if fault == Fault::WrongChallenge { Challenge::from_bytes(bytes24()) } else { head.challenge },
        to: if fault == Fault::WrongTo { new_key().public().clone() } else { signer },
        outcome,
    };
    let other = new_key();
    let by: &dyn Signer = if fault == Fault::WrongKey { &other } else { key };
    seal(by, &answer.to_body()).into_bytes()
}

pub(crate) fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => Object::from(map),
        other => panic!("{other} is no object"),
    }
}

fn pending(device: &PublicKey, new_owner: &PublicKey, id: &Id, fault: Fault) -> Object {
    let salt = Salt::from_bytes(bytes24());
    let other = Id::from_bytes(bytes24());
    let code = ClaimCode::derive(device, new_owner, if fault == Fault::WrongCode { &other } else { id }, &salt);
    object(json!({"state": "pending", "salt": salt.to_string(), "code": code.to_string(), "expires_ms": 600_000}))
}

fn claimant_request(
    state: &mut State,
    device: &SecretKey,
    head: &Head,
    request: ClaimantRequest,
    fault: Fault,
) -> Option<Result<Object, Refusal>> {
    match request {
        ClaimantRequest::Claim { agent, key, proof } => {
            if !PairingSecret::from_bytes(SECRET).check(&key, &head.id, &proof) {
                return None;
            }
            if state.owner.is_some() {
                return Some(Err(Refusal::new(ErrorCode::Conflict, "owned already")));
            }
            let answer = pending(device.public(), &key, &head.id, fault);
            state.wish(head.id, key.clone(), Some((agent, key)));
            Some(Ok(answer))
        }
        ClaimantRequest::ChangeStatus { target } => Some(change_status(state, &target)),
    }
}

fn change_status(state: &State, target: &Id) -> Result<Object, Refusal> {
    let wish = state.changes.get(target).ok_or_else(|| Refusal::new(ErrorCode::InvalidArguments, "no such change"))?;
    Ok(object(json!({ "state": wish.state })))
}

fn owner_request(
    state: &mut State,
    device: &SecretKey,
    head: &Head,
    request: OwnerRequest,
    fault: Fault,
) -> Result<Object, Refusal> {
    let owner = state.owner.clone().unwrap().1;
    match request {
        OwnerRequest::ChangeStatus { target } => change_status(state, &target),
        OwnerRequest::Registration => Ok(registration(state, device, fault).to_object()),
        OwnerRequest::Activate { lease } => {
            state.active = state.refuse.is_none() || state.refuse_only.is_some();
            Ok(object(json!({"lease_ms": lease.as_ms()})))
        }
        OwnerRequest::Deactivate => {
            state.active = false;
            Ok(Object::new())
        }
        OwnerRequest::Invoke { capability, arguments } => invoke(state, capability.as_str(), &arguments),
        OwnerRequest::Cancel { .. } => Ok(object(json!({"cancelled": false}))),
        OwnerRequest::Inputs { .. } => Ok(object(json!({"inputs": [], "more": false}))),
        OwnerRequest::Transfer { agent, key } => {
            let answer = pending(device.public(), &key, &head.id, fault);
            state.wish(head.id, owner, Some((agent, key)));
            Ok(answer)
        }
        OwnerRequest::Release => {
            state.wish(head.id, owner, None);
            Ok(object(json!({"state": "pending", "expires_ms": 600_000})))
        }
    }
}

fn registration(state: &State, device: &SecretKey, fault: Fault) -> Registration {
    let offered = |declaration: Declaration| Offered {
        grant_on: state.granted || declaration.grant.is_none(),
        declaration,
        state: CapabilityState::Ready,
    };
    Registration {
        device: if fault == Fault::OtherRegistration { new_key().public().clone() } else { device.public().clone() },
        name: state.name.clone(),
        protocol: "1".to_owned(),
        owner: state.owner.clone().map(|(agent, key)| Owner { agent, key }),
        active: state.active,
        active_until: None,
        simulated: true,
        capabilities: vec![
            offered(Declaration::device_health()),
            offered(Declaration::camera_snapshot()),
            offered(Declaration::display_text()),
            offered(Declaration::display_image()),
        ],
    }
}

fn invoke(state: &mut State, capability: &str, arguments: &Object) -> Result<Object, Refusal> {
    if capability == "device.health" {
        return Ok(object(json!({"version": "0.1.0", "uptime_ms": 1000, "note": "\u{1b}]0;title\u{7}"})));
    }
    if !state.granted {
        return Err(Refusal::new(ErrorCode::Denied, "the grant is off"));
    }
    if !state.active {
        return Err(Refusal::new(ErrorCode::NotActive, "not active"));
    }
    if capability == "camera.snapshot" {
        let picture = json!({"mime": "image/jpeg", "data": wire::text::base64_encode(JPEG)});
        return Ok(object(state.snapshot.clone().unwrap_or(picture)));
    }
    let shown = arguments.get("text").or_else(|| arguments.get("mime")).and_then(Value::as_str).unwrap_or_default();
    state.shown.push(shown.to_owned());
    Ok(Object::new())
}
