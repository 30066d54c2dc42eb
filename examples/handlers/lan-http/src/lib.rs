//! custom.example.plug: switches a plug in the local network on or off, and says how much it draws.

use serde::{Deserialize, Serialize};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, IncomingResponse, OutgoingRequest, Scheme};
use wasip2::io::streams::StreamError;

use crate::device::handler::host::{Level, log};

wit_bindgen::generate!({ path: "wit", world: "handler" });

/// The plug, named when this is built; the manifest's reach must name the same address.
const PLUG: &str = match option_env!("PLUG") {
    Some(address) => address,
    None => "192.168.1.20:80",
};
/// What a plug says is a few hundred bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;

#[derive(Deserialize)]
struct Arguments {
    on: bool,
}

/// What the plug says.
#[derive(Deserialize)]
struct Relay {
    ison: bool,
    power: Option<f64>,
}

#[derive(Serialize)]
struct Answer {
    on: bool,
    milliwatts: u64,
}

struct Handler;

impl Guest for Handler {
    fn invoke(args: Vec<u8>) -> Result<Vec<u8>, HandlerError> {
        let Arguments { on } = serde_json::from_slice(&args).map_err(|error| failed("arguments", error))?;
        let body = get(&format!("/relay/0?turn={}", if on { "on" } else { "off" }))?;
        let relay: Relay = serde_json::from_slice(&body).map_err(|error| failed("no_plug", error))?;
        log(Level::Info, if relay.ison { "the plug is on" } else { "the plug is off" });
        let milliwatts = (relay.power.unwrap_or_default() * 1000.0) as u64;
        serde_json::to_vec(&Answer { on: relay.ison, milliwatts }).map_err(|error| failed("answer", error))
    }
}

/// The body of the plug's answer.
fn get(path: &str) -> Result<Vec<u8>, HandlerError> {
    let refused = |()| failed("request", "a part of the request was refused");
    let request = OutgoingRequest::new(Fields::new());
    request.set_scheme(Some(&Scheme::Http)).map_err(refused)?;
    request.set_authority(Some(PLUG)).map_err(refused)?;
    request.set_path_with_query(Some(path)).map_err(refused)?;
    let coming = outgoing_handler::handle(request, None).map_err(no_plug)?;
    coming.subscribe().block();
    let once = coming.get().and_then(Result::ok).ok_or_else(|| failed("no_plug", "no answer came"))?;
    let response = once.map_err(no_plug)?;
    match response.status() {
        200 => body(&response),
        status => Err(failed("plug_refused", format!("the plug answered {status}"))),
    }
}

fn body(response: &IncomingResponse) -> Result<Vec<u8>, HandlerError> {
    let broken = |()| failed("no_plug", "the answer has no body");
    let incoming = response.consume().map_err(broken)?;
    let stream = incoming.stream().map_err(broken)?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(4096) {
            Ok(more) => bytes.extend(more),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(error) => return Err(failed("no_plug", error)),
        }
        if bytes.len() > BODY_BYTES_MAX {
            return Err(failed("no_plug", "the answer is far too long for a plug"));
        }
    }
}

fn no_plug(error: outgoing_handler::ErrorCode) -> HandlerError {
    failed("no_plug", format!("the plug did not answer: {error}"))
}

fn failed(code: &str, message: impl ToString) -> HandlerError {
    HandlerError { code: code.to_owned(), message: message.to_string() }
}

export!(Handler);
