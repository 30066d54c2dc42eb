//! Outgoing HTTP as the guest sees it. No socket is here: a request is handed to the parent as a frame, and the answer comes as one.
//!
//! Owns what a call may still send, and the two directions' translation. Refuses everything where the reach names no server, the request
//! beyond the last that a call may send, and a body that is too long; who may be asked is decided by the parent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::http::{HeaderName, HeaderValue, StatusCode};
use hyper::{HeaderMap, Request, Response};
use serde_bytes::ByteBuf;
use tokio::sync::{mpsc, oneshot};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::wasm::frame::{HttpAnswer, HttpRequest, HttpTrouble};

/// Requests of one call.
pub(super) const REQUESTS_MAX: u32 = 16;
/// The longest body, there and back.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The longest method; the known ones have up to 16 bytes (`UPDATEREDIRECTREF` has 17).
const METHOD_BYTES_MAX: usize = 32;
/// What a guest is told to write in one piece, below what it may hand over in one piece.
const CHUNK_BYTES: usize = 16 * 1024;

/// A request on its way to the parent.
#[derive(Debug)]
pub(super) struct Asked {
    /// Unique in this process.
    pub(super) number: u64,
    /// What is to be sent.
    pub(super) request: HttpRequest,
    /// Where the answer goes.
    pub(super) answer: oneshot::Sender<Result<HttpAnswer, HttpTrouble>>,
}

/// The way to the parent.
#[derive(Debug, Clone)]
pub(super) struct Door {
    asked: mpsc::Sender<Asked>,
    numbers: Arc<AtomicU64>,
}

impl Door {
    /// With the end at which requests come out.
    pub(super) fn new(asked: mpsc::Sender<Asked>) -> Self {
        Self { asked, numbers: Arc::default() }
    }
}

/// The requests of one call.
#[derive(Debug)]
pub(super) struct Outgoing {
    door: Option<Door>,
    left: u32,
}

impl Outgoing {
    /// Through this door; none where the reach names no server.
    pub(super) fn new(door: Option<Door>) -> Self {
        Self { door, left: REQUESTS_MAX }
    }
}

type Sent = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for Outgoing {
    fn set_host_header(&mut self) -> bool {
        // The parent makes it, of the authority.
        false
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK_BYTES
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        _options: Option<RequestOptions>,
        _received: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let left = self.left;
        self.left = left.saturating_sub(1);
        let door = self.door.clone();
        Box::new(async move {
            let door = door.ok_or_else(|| trouble(HttpTrouble::Denied))?;
            if left == 0 {
                return Err(trouble(HttpTrouble::TooMany));
            }
            let answer = ask(&door, outward(request).await?).await.map_err(trouble)?;
            let done: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((inward(answer)?, done))
        })
    }
}

async fn ask(door: &Door, request: HttpRequest) -> Result<HttpAnswer, HttpTrouble> {
    let (answer, answered) = oneshot::channel();
    let number = door.numbers.fetch_add(1, Ordering::Relaxed);
    door.asked.send(Asked { number, request, answer }).await.map_err(|_| HttpTrouble::Broken)?;
    answered.await.unwrap_or(Err(HttpTrouble::Broken))
}

async fn outward(request: Request<WasiBody>) -> Result<HttpRequest, Error> {
    let (head, body) = request.into_parts();
    if head.method.as_str().len() > METHOD_BYTES_MAX {
        return Err(Error::HttpRequestMethodInvalid);
    }
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Error::HttpRequestBodySize(None))?;
    Ok(HttpRequest {
        method: head.method.as_str().to_owned(),
        scheme: head.uri.scheme_str().unwrap_or_default().to_owned(),
        authority: head.uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default(),
        path_and_query: head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        headers: headers(&head.headers),
        body: body.to_bytes().to_vec(),
    })
}

fn headers(map: &HeaderMap) -> Vec<(String, ByteBuf)> {
    map.iter().map(|(name, value)| (name.as_str().to_owned(), ByteBuf::from(value.as_bytes()))).collect()
}

fn inward(answer: HttpAnswer) -> Result<Response<WasiBody>, Error> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(answer.status).map_err(|_| trouble(HttpTrouble::Broken))?;
    for (name, value) in answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| trouble(HttpTrouble::Broken))?;
        let value = HeaderValue::from_bytes(&value).map_err(|_| trouble(HttpTrouble::Broken))?;
        response.headers_mut().append(name, value);
    }
    let body = Full::new(Bytes::from(answer.body)).map_err(|never| match never {}).boxed_unsync();
    Ok(response.map(|()| body))
}

fn trouble(why: HttpTrouble) -> Error {
    match why {
        HttpTrouble::Denied => Error::HttpRequestDenied,
        HttpTrouble::TooMany => Error::ConnectionLimitReached,
        HttpTrouble::NoName => Error::DnsError { rcode: None, info_code: None },
        HttpTrouble::Refused => Error::ConnectionRefused,
        HttpTrouble::TooLarge => Error::HttpResponseBodySize(None),
        HttpTrouble::TimedOut => Error::ConnectionTimeout,
        HttpTrouble::Broken => Error::ConnectionTerminated,
    }
}
