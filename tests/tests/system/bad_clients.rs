//! Clients of the direct link that are slow, half gone, too large or no controllers at all: each is cut off or refused, beside one
//! that differs only in that and is served (W4, D1).

#![allow(clippy::disallowed_methods, reason = "how long a client was borne with is measured in real time")]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use latchkey_tests::agent::fresh_id;
use latchkey_tests::{Agent, Inside, Line, Reply, Room, SOON, Start, Wire, skip};
use runtime::DoorLimits;
use serde_json::json;
use wire::envelope::ENVELOPE_BYTES_MAX;
use wire::{Challenge, OwnerRequest};

/// Limits that a test can wait for.
const SHORT: DoorLimits = DoorLimits {
    connections_max: 64,
    address_max: 8,
    loopback_max: 256,
    header: Duration::from_millis(600),
    body: Duration::from_millis(900),
};
/// Between two bytes of a slow client; far below the limits, so that only their sum is too slow.
const BETWEEN_BYTES: Duration = Duration::from_millis(50);

struct Stage {
    device: Inside,
    owner: Agent,
    line: Line,
    // Dropped last.
    _room: Room,
}

impl Stage {
    fn new(door: DoorLimits) -> Self {
        let room = Room::new();
        let device = Inside::with(&room, door, &["link.direct.hosts=[\"kitchen.example.org\"]"]);
        let (owner, line) = (Agent::default(), device.line());
        owner.own(&line, &device.keeper());
        Self { device, owner, line, _room: room }
    }

    /// A request of the owner that changes nothing, for this challenge.
    fn sealed(&self, challenge: Challenge) -> Vec<u8> {
        self.owner.seal(&self.line.device, fresh_id(), challenge, &OwnerRequest::Registration)
    }

    fn is_served(&self) {
        self.owner.call(&self.line, "device.health", json!({})).value();
    }
}

/// Sends bytes one after the other until the device closes; gives how many it took.
fn trickle(wire: &mut Wire, bytes: &[u8]) -> (usize, bool) {
    wire.patience(BETWEEN_BYTES);
    for (sent, byte) in bytes.iter().enumerate() {
        if wire.send(&[*byte]).is_err() || wire.closed() {
            return (sent, true);
        }
    }
    (bytes.len(), false)
}

#[test]
fn a_header_byte_by_byte_is_cut_off_and_the_same_header_at_once_is_answered() {
    let stage = Stage::new(SHORT);
    let request =
        format!("GET /v1/challenge HTTP/1.1\r\nhost: {}\r\nx-padding: {}\r\n\r\n", stage.line.address, "x".repeat(100));
    let began = Instant::now();
    let (taken, closed) = trickle(&mut stage.line.connect(), request.as_bytes());
    assert!(closed && taken < request.len(), "{taken} of {} bytes were taken", request.len());
    assert!(began.elapsed() >= SHORT.header - BETWEEN_BYTES, "it had its time");
    let mut control = stage.line.connect();
    control.send(request.as_bytes()).unwrap();
    assert_eq!(control.read().unwrap().status, 200);
}

#[test]
fn a_body_byte_by_byte_is_cut_off_and_the_same_body_at_once_is_answered() {
    let stage = Stage::new(SHORT);
    let sealed = stage.sealed(stage.line.challenge());
    let mut wire = stage.line.connect();
    let request = wire.request(&sealed);
    let (head, body) = request.split_at(request.len() - sealed.len());
    wire.send(head).unwrap();
    wire.patience(BETWEEN_BYTES);
    let early = body.iter().position(|byte| wire.send(&[*byte]).is_err() || wire.closed_or_answered());
    assert!(early.is_some(), "all {} bytes were taken", body.len());
    wire.patience(SOON);
    if let Some(reply) = wire.read() {
        assert!(reply.is_forbidden() && reply.header("connection") == Some("close"), "{reply:?}");
    }
    assert!(wire.closed());
    let control = stage.line.post(&sealed);
    assert_eq!(control.status, 200, "{control:?}");
}

#[test]
fn who_connects_and_says_nothing_or_half_of_something_is_closed() {
    let stage = Stage::new(SHORT);
    let rows: &[(&str, &[u8], bool)] = &[
        ("nothing", b"", false),
        ("nothing, and will say no more", b"", true),
        ("half a header", b"GET /v1/challenge HT", false),
        ("half a header, and will say no more", b"GET /v1/challenge HT", true),
        ("a header and half a body, and will say no more", b"POST /v1/request HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{", true),
    ];
    for (name, bytes, ends) in rows {
        let mut wire = stage.line.connect();
        wire.send(bytes).unwrap();
        if *ends {
            wire.half_close();
        }
        let mut answer = Vec::new();
        wire.rest(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{name}: {answer}");
    }
    stage.is_served();
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_serves_many_requests_before() {
    let stage = Stage::new(SHORT);
    let mut wire = stage.line.connect();
    for _ in 0..50 {
        let _challenge = wire.challenge();
    }
    let began = Instant::now();
    assert!(wire.closed());
    assert!(began.elapsed() >= SHORT.header - BETWEEN_BYTES);
}

#[test]
fn an_oversize_body_is_403_without_reading_on_and_one_byte_less_is_accepted() {
    let stage = Stage::new(DoorLimits::default());
    // White space around an envelope is allowed, so an envelope can have any size.
    let padded = |bytes: usize| {
        let mut sealed = stage.sealed(stage.line.challenge());
        sealed.resize(bytes, b' ');
        sealed
    };
    let control = stage.line.post(&padded(ENVELOPE_BYTES_MAX));
    assert_eq!(control.status, 200, "{ENVELOPE_BYTES_MAX}: {control:?}");

    // Announced: refused before a byte of it is sent.
    let mut announced = stage.line.connect();
    let request = announced.request(&padded(ENVELOPE_BYTES_MAX + 1));
    announced.send(&request[..request.len() - ENVELOPE_BYTES_MAX - 1]).unwrap();
    let reply = announced.read().expect("an answer before the body");
    assert!(reply.is_forbidden() && reply.header("connection") == Some("close"), "{reply:?}");
    assert!(announced.closed());

    // In chunks, whose sum nobody announced: refused once it is too large, and an endless body is not read on.
    let mut endless = stage.line.connect();
    let head = format!(
        "POST /v1/request HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        stage.line.address
    );
    endless.send(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let taken = (0..1_000).take_while(|_| endless.send(&chunk).is_ok()).count();
    assert!(taken < 200, "{taken} chunks of 64 KiB were taken");
    stage.is_served();
}

#[test]
fn what_follows_a_request_on_its_connection_is_judged_by_itself() {
    let stage = Stage::new(DoorLimits::default());
    let get = format!("GET /v1/challenge HTTP/1.1\r\nhost: {}\r\n\r\n", stage.line.address);
    let mut pipelined = stage.line.connect();
    pipelined.send(get.repeat(3).as_bytes()).unwrap();
    for _ in 0..3 {
        assert_eq!(pipelined.read().unwrap().status, 200, "the control: three in a row");
    }
    for garbage in [
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "{\"body\":\"\"}\r\n\r\n",
        "GET /v1/challenge HTTP/1.1\r\nhost\r\n\r\n",
        "POST /v1/request HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    ] {
        let mut wire = stage.line.connect();
        wire.send([get.as_str(), garbage].concat().as_bytes()).unwrap();
        // What stood before it may be answered or lost with the connection; the garbage itself is refused or not answered.
        let mut answers = Vec::new();
        wire.rest(&mut answers);
        let answers = String::from_utf8_lossy(&answers).into_owned();
        let statuses: Vec<_> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 10]).collect();
        assert!([[].as_slice(), &["2"], &["2", "4"], &["4"]].contains(&statuses.as_slice()), "{garbage:?}: {answers}");
    }
    stage.is_served();
}

/// Header lines in place of the usual host and content type.
fn post(stage: &Stage, challenge: Challenge, headers: &str) -> Reply {
    let sealed = stage.sealed(challenge);
    let mut wire = stage.line.connect();
    let head = format!("POST /v1/request HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n", sealed.len());
    wire.send(&[head.as_bytes(), &sealed].concat()).unwrap();
    wire.read().expect("an answer")
}

#[test]
fn browsers_foreign_hosts_and_other_types_are_403_and_leave_the_challenge_alone() {
    const HOST: &str = "host: 127.0.0.1:7601\r\n";
    const JSON: &str = "content-type: application/json\r\n";
    let stage = Stage::new(DoorLimits::default());
    let served = [
        ["host: 127.0.0.1\r\n", JSON],
        ["host: localhost:7601\r\n", JSON],
        ["host: LOCALHOST\r\n", JSON],
        ["host: [::1]:7601\r\n", JSON],
        ["host: 192.0.2.7:80\r\n", JSON],
        ["host: kitchen.example.org:7601\r\n", JSON],
        ["host: Kitchen.Example.org\r\n", JSON],
        [HOST, "content-type: application/json; charset=utf-8\r\n"],
        [HOST, "Content-Type: Application/JSON\r\n"],
    ];
    for headers in served.map(|row| row.concat()) {
        assert_eq!(post(&stage, stage.line.challenge(), &headers).status, 200, "{headers:?}");
    }
    let refused = [
        [HOST, "content-type: application/json\r\norigin: http://127.0.0.1:7601\r\n"],
        [HOST, "content-type: application/json\r\norigin: null\r\n"],
        [HOST, "content-type: application/json\r\norigin: https://evil.example\r\n"],
        [HOST, "content-type: application/json\r\nsec-fetch-site: same-origin\r\n"],
        [HOST, "content-type: application/json\r\nsec-fetch-site: none\r\n"],
        ["host: evil.example:7601\r\n", JSON],
        ["host: localhost.evil.example\r\n", JSON],
        ["host: notkitchen.example.org\r\n", JSON],
        ["host: kitchen.example.org.\r\n", JSON],
        ["host: \r\n", JSON],
        ["host: 127.0.0.1\r\nhost: 127.0.0.1\r\n", JSON],
        ["host: 127.0.0.1:port\r\n", JSON],
        ["", JSON],
        [HOST, ""],
        [HOST, "content-type: text/plain\r\n"],
        [HOST, "content-type: application/x-www-form-urlencoded\r\n"],
        [HOST, "content-type: multipart/form-data; boundary=x\r\n"],
        [HOST, "content-type: application/jsonp\r\n"],
        [HOST, "content-type: application/json\r\ncontent-type: application/json\r\n"],
    ];
    for headers in refused.map(|row| row.concat()) {
        let challenge = stage.line.challenge();
        let reply = post(&stage, challenge, &headers);
        assert!(reply.is_forbidden(), "{headers:?}: {reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{headers:?}");
        assert!(!reply.head.contains("access-control-"), "{headers:?}: {reply:?}");
        let control = post(&stage, challenge, &[HOST, JSON].concat());
        assert_eq!(control.status, 200, "after {headers:?}: {control:?}");
    }
}

#[test]
fn other_paths_are_404_other_methods_405_and_no_answer_allows_another_site() {
    let stage = Stage::new(DoorLimits::default());
    let rows = [
        ("GET", "/v1/challenge", "", 200),
        ("GET", "/v1/challenge", "origin: http://127.0.0.1\r\n", 403),
        ("GET", "/v1/challenge", "sec-fetch-site: cross-site\r\n", 403),
        ("GET", "/", "", 404),
        ("GET", "/v1", "", 404),
        ("GET", "/v1/challenge/", "", 404),
        ("GET", "/v1/challenges", "", 404),
        ("GET", "/v2/challenge", "", 404),
        ("GET", "/v1/../v1/challenge", "", 404),
        ("GET", "//v1/challenge", "", 404),
        ("GET", "/display", "", 404),
        ("POST", "/v1/requests", "content-type: application/json\r\ncontent-length: 0\r\n", 404),
        ("POST", "/v1/challenge", "content-length: 0\r\n", 405),
        ("PUT", "/v1/request", "content-length: 0\r\n", 405),
        ("DELETE", "/v1/challenge", "", 405),
        ("GET", "/v1/request", "", 405),
        ("OPTIONS", "/v1/request", "", 405),
        ("OPTIONS", "/v1/request", "origin: https://evil.example\r\naccess-control-request-method: POST\r\n", 403),
        ("TRACE", "/v1/request", "", 405),
        ("GET", "http://evil.example/v1/challenge", "", 403),
    ];
    for (method, path, headers, status) in rows {
        let mut wire = stage.line.connect();
        wire.send(format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", stage.line.address).as_bytes())
            .unwrap();
        let reply = wire.read().expect("an answer");
        assert_eq!(reply.status, status, "{method} {path} {headers:?}: {reply:?}");
        assert!(!reply.head.contains("access-control-"), "{method} {path}: {reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{method} {path}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{method} {path}");
    }
    let mut head = stage.line.connect();
    let ask = format!("HEAD /v1/challenge HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", stage.line.address);
    head.send(ask.as_bytes()).unwrap();
    let mut answer = Vec::new();
    head.rest(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 405"), "{}", String::from_utf8_lossy(&answer));
    assert!(stage.device.keeper().status().owner.is_some(), "still owned");
}

#[test]
fn a_hundred_thousand_brackets_are_refused_signed_or_not_and_the_device_goes_on() {
    let stage = Stage::new(DoorLimits::default());
    let deep = "[".repeat(100_000);
    let unsigned = stage.line.post(deep.as_bytes());
    assert!(unsigned.is_forbidden(), "{unsigned:?}");
    let signed = wire::envelope::seal(&stage.owner.key, deep.as_bytes());
    assert!(stage.line.post(signed.as_bytes()).is_forbidden());
    stage.is_served();
}

/// An address of this machine that other machines reach it by; asked without sending anything.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_loopback())
}

/// The connections of an attack.
struct Flood {
    open: Vec<TcpStream>,
    /// Closed by the device so far.
    closed: usize,
}

impl Flood {
    fn connect(address: SocketAddr, many: usize) -> Self {
        let open = (0..many).map(|_| {
            let stream = TcpStream::connect_timeout(&address, SOON).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        });
        Self { open: open.collect(), closed: 0 }
    }

    /// One more byte of each, as far as they are open.
    fn drip(&mut self, byte: u8) {
        for stream in &mut self.open {
            let _ = stream.write(&[byte]);
        }
        self.look();
    }

    fn look(&mut self) {
        let before = self.open.len();
        self.open.retain_mut(|stream| match stream.read(&mut [0; 512]) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        self.closed += before - self.open.len();
    }
}

/// The owner from one side, 300 slow connections from the other; no side ever locks out the other (W4).
#[test]
fn three_hundred_slow_connections_are_closed_in_time_and_hold_up_nobody_else() {
    let Some(outside) = outward() else {
        return skip("network", "this machine has no address but loopback, so a flood from outside cannot be made");
    };
    let room = Room::new();
    let daemon = Start::simulated(&room).set("link.direct.listen=0.0.0.0:0").set("link.direct.scheme=http").up();
    let port = daemon.direct().port();
    let device = daemon.line().device;
    let at = |ip: IpAddr| Line { address: SocketAddr::new(ip, port), device: device.clone() };
    let (inner, outer) = (at(IpAddr::from([127, 0, 0, 1])), at(outside));
    let owner = Agent::default();
    owner.own(&inner, &daemon.keeper());

    for (attacked, honest) in [(&outer, &inner), (&inner, &outer)] {
        let began = Instant::now();
        let mut flood = Flood::connect(attacked.address, 300);
        let mut slowest = Duration::ZERO;
        let head = b"GET /v1/challenge HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ";
        let mut sent = 0;
        while !flood.open.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(15), "{} slow connections are still open", flood.open.len());
            if began.elapsed() >= Duration::from_secs(5) * sent {
                flood.drip(head[sent as usize]);
                sent += 1;
            }
            let asked = Instant::now();
            let sealed = owner.seal(&honest.device, fresh_id(), honest.challenge(), &OwnerRequest::Registration);
            honest.post(&sealed).outcome(&honest.device).value();
            slowest = slowest.max(asked.elapsed());
            flood.look();
        }
        assert!(slowest < Duration::from_secs(1), "the slowest honest request took {slowest:?}");
        assert_eq!(flood.closed, 300);
    }
}
