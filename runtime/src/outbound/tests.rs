#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// Answers of the resolver, one a question; the last stays. `127.0.0.2` stands for an address elsewhere.
struct Script {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Script {
    fn new(answers: &[&[IpAddr]]) -> Arc<Self> {
        let mut answers: Vec<_> = answers.iter().map(|answer| answer.to_vec()).collect();
        answers.reverse();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

impl Names for Script {
    fn resolve(&self, _host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop() } else { answers.last().cloned() };
        let found = answer.unwrap_or_default().into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        std::future::ready(Ok(found)).boxed()
    }

    fn may_lead_to(&self, address: IpAddr) -> bool {
        address == ELSEWHERE || (is_elsewhere(address) && !is_own(address))
    }
}

/// A server that gives the same bytes to everybody and remembers what it was sent.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(ip: IpAddr, port: u16, answer: Vec<u8>, end: End) -> Self {
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let mut tasks = JoinSet::new();
        let heard = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut piece = vec![0; 64 * 1024];
                let read = stream.read(&mut piece).await.unwrap_or(0);
                heard.lock().unwrap().push(String::from_utf8_lossy(&piece[..read]).into_owned());
                let _ = stream.write_all(&answer).await;
                if matches!(end, End::Never) {
                    held.push(stream);
                }
            }
        });
        Self { address, seen, _tasks: tasks }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

#[derive(Clone, Copy)]
enum End {
    Close,
    Never,
}

fn request(host: &str, port: u16) -> OutboundRequest {
    OutboundRequest {
        origin: Origin { tls: false, host: host.to_owned(), port },
        method: "GET".to_owned(),
        path_and_query: "/state?room=kitchen".to_owned(),
        headers: vec![("x-kind".to_owned(), b"lamp".to_vec())],
        body: Vec::new(),
        within: Duration::from_secs(20),
        answer_bytes_max: 1000,
    }
}

fn ways(names: &Arc<Script>) -> Ways {
    Ways::new(Arc::<Script>::clone(names), Arc::new(Vec::new))
}

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nX-Lamp: on\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_request_and_its_answer_carry_what_is_theirs_and_nothing_of_the_hop() {
    let server = Server::start(HERE, 0, GOOD.to_vec(), End::Close).await;
    let port = server.address.port();
    let mut request = request("127.0.0.1", port);
    request.method = "POST".to_owned();
    request.body = b"on".to_vec();
    let answer = ways(&Script::new(&[])).send(request).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"{}".as_slice()));
    let names: Vec<_> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-lamp", "content-length"]);
    let sent = server.seen().remove(0).to_lowercase();
    let wanted = format!(
        "post /state?room=kitchen http/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\nx-kind: lamp\r\ncontent-length: 2\r\n\r\non"
    );
    assert_eq!(sent, wanted);
}

#[tokio::test]
async fn a_name_that_turns_to_loopback_is_refused_and_the_judged_address_is_the_one_connected_to() {
    let elsewhere = Server::start(ELSEWHERE, 0, GOOD.to_vec(), End::Close).await;
    let port = elsewhere.address.port();
    let here = Server::start(HERE, port, GOOD.to_vec(), End::Close).await;
    let names = Script::new(&[&[ELSEWHERE], &[HERE]]);
    let ways = ways(&names);
    assert_eq!(ways.send(request("lamp.example", port)).await.map(|answer| answer.status), Ok(200));
    assert_eq!(names.asked.load(Ordering::SeqCst), 1, "one question for one request: no second answer to connect to");
    assert_eq!(ways.send(request("lamp.example", port)).await, Err(OutboundTrouble::Denied));
    assert_eq!((elsewhere.seen().len(), here.seen().len()), (1, 0));
    assert_eq!(ways.send(request("127.0.0.1", port)).await.map(|answer| answer.status), Ok(200), "as written");
    assert_eq!(here.seen().len(), 1);
}

#[tokio::test]
async fn of_a_name_with_several_addresses_only_the_good_ones_are_tried() {
    let elsewhere = Server::start(ELSEWHERE, 0, GOOD.to_vec(), End::Close).await;
    let port = elsewhere.address.port();
    let here = Server::start(HERE, port, GOOD.to_vec(), End::Close).await;
    let names = Script::new(&[&[HERE, "::1".parse().unwrap(), "fe80::1".parse().unwrap(), ELSEWHERE]]);
    assert!(ways(&names).send(request("lamp.example", port)).await.is_ok());
    assert_eq!((elsewhere.seen().len(), here.seen().len()), (1, 0));
    assert_eq!(ways(&Script::new(&[])).send(request("lamp.example", port)).await, Err(OutboundTrouble::NoName));
}

#[test]
fn addresses_that_no_name_may_lead_to() {
    let rows = [
        ("127.0.0.1", false),
        ("127.8.9.1", false),
        ("0.0.0.0", false),
        ("0.1.2.3", false),
        ("169.254.1.1", false),
        ("224.0.0.251", false),
        ("255.255.255.255", false),
        ("::", false),
        ("::1", false),
        ("fe80::1", false),
        ("ff02::fb", false),
        ("::ffff:127.0.0.1", false),
        ("::ffff:169.254.169.254", false),
        ("64:ff9b::127.0.0.1", false),
        ("192.168.1.20", true),
        ("10.0.0.1", true),
        ("::ffff:192.168.1.20", true),
        ("64:ff9b::198.51.100.7", true),
        ("fd00::20", true),
        ("2001:db8::1", true),
    ];
    for (address, elsewhere) in rows {
        assert_eq!(is_elsewhere(address.parse().unwrap()), elsewhere, "{address}");
    }
}

#[test]
fn an_own_address_is_known_whatever_its_form() {
    for own in ["127.0.0.1", "127.77.0.3", "::ffff:127.0.0.1"] {
        assert!(is_own(own.parse().unwrap()), "{own}");
    }
    // Reserved for documentation: nobody's.
    for others in ["192.0.2.1", "203.0.113.9", "::ffff:192.0.2.1", "2001:db8::1"] {
        assert!(!is_own(others.parse().unwrap()), "{others}");
    }
    // The address by which this machine reaches others, if it does.
    let outward = UdpSocket::bind("0.0.0.0:0").unwrap();
    if outward.connect("192.0.2.1:9").is_ok() {
        assert!(is_own(outward.local_addr().unwrap().ip()));
    }
}

/// One server's answer, and what becomes of it.
async fn check(
    answer: &[u8],
    end: End,
    change: impl FnOnce(&mut OutboundRequest),
    wanted: Result<u16, OutboundTrouble>,
) {
    let server = Server::start(HERE, 0, answer.to_vec(), end).await;
    let mut request = request("127.0.0.1", server.address.port());
    change(&mut request);
    let shown = String::from_utf8_lossy(answer.get(..answer.len().min(60)).unwrap()).into_owned();
    let got = ways(&Script::new(&[])).send(request).await.map(|answer| answer.status);
    assert_eq!(got, wanted, "{shown}");
}

#[tokio::test]
async fn bad_answers_have_their_names() {
    use OutboundTrouble::{Broken, TimedOut, TooLarge};
    let body = |count: usize| {
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {count}\r\n\r\n").into_bytes(), vec![b'a'; count]].concat()
    };
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'a'; 1001]].concat();
    let chunked = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n".to_vec(),
        vec![b'a'; 1001],
        b"\r\n0\r\n\r\n".to_vec(),
    ];
    let long_head = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; HEAD_BYTES_MAX], b"\r\n\r\n".to_vec()].concat();
    let short = |request: &mut OutboundRequest| request.within = Duration::from_millis(200);
    check(GOOD, End::Never, |_| {}, Ok(200)).await;
    check(&body(1000), End::Close, |_| {}, Ok(200)).await;
    check(&body(1001), End::Never, |_| {}, Err(TooLarge)).await;
    check(&endless, End::Never, |_| {}, Err(TooLarge)).await;
    check(&chunked.concat(), End::Never, |_| {}, Err(TooLarge)).await;
    check(&long_head, End::Never, |_| {}, Err(Broken)).await;
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", End::Close, |_| {}, Err(Broken)).await;
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", End::Never, short, Err(TimedOut)).await;
    check(b"", End::Never, short, Err(TimedOut)).await;
    check(b"", End::Close, |_| {}, Err(Broken)).await;
    check(b"SSH-2.0-OpenSSH\r\n", End::Close, |_| {}, Err(Broken)).await;
    check(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        End::Never,
        short,
        Err(Broken),
    )
    .await;
    let elsewhere = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    check(elsewhere, End::Close, |_| {}, Ok(302)).await;
}

/// Puts one flaw into a good request.
type Change = fn(&mut OutboundRequest);

#[tokio::test]
async fn a_request_without_its_right_form_goes_nowhere() {
    let server = Server::start(HERE, 0, GOOD.to_vec(), End::Close).await;
    let port = server.address.port();
    let rows: [(&str, Change); 9] = [
        ("a method with a line break", |request| request.method = "GET\r\n".to_owned()),
        ("CONNECT", |request| request.method = "CONNECT".to_owned()),
        ("a path with a space", |request| request.path_and_query = "/a b".to_owned()),
        ("a path that is a URL", |request| request.path_and_query = "http://127.0.0.1/".to_owned()),
        ("no path", |request| request.path_and_query = "*".to_owned()),
        ("a value with a line break", |request| request.headers.push(("x".to_owned(), b"a\r\nb: c".to_vec()))),
        ("another host", |request| request.headers.push(("Host".to_owned(), b"example.org".to_vec()))),
        ("another length", |request| request.headers.push(("content-length".to_owned(), b"5".to_vec()))),
        ("another framing", |request| request.headers.push(("Transfer-Encoding".to_owned(), b"chunked".to_vec()))),
    ];
    for (flaw, change) in rows {
        let mut request = request("127.0.0.1", port);
        change(&mut request);
        let got = ways(&Script::new(&[])).send(request).await;
        assert_eq!(got, Err(OutboundTrouble::Denied), "{flaw}");
    }
    assert_eq!(server.seen(), Vec::<String>::new());
    assert!(ways(&Script::new(&[])).send(request("127.0.0.1", port)).await.is_ok(), "control");
}

#[tokio::test]
async fn nobody_at_the_address_is_told_as_such() {
    let port = TcpListener::bind((HERE, 0)).await.unwrap().local_addr().unwrap().port();
    assert_eq!(ways(&Script::new(&[])).send(request("127.0.0.1", port)).await, Err(OutboundTrouble::Refused));
}

#[test]
fn the_host_header_names_the_port_where_the_scheme_does_not_imply_it() {
    let rows = [
        (false, "lamp.example", 80, "lamp.example"),
        (false, "lamp.example", 443, "lamp.example:443"),
        (true, "lamp.example", 443, "lamp.example"),
        (true, "fd00::20", 8443, "[fd00::20]:8443"),
        (false, "192.168.1.20", 80, "192.168.1.20"),
    ];
    for (tls, name, port, wanted) in rows {
        assert_eq!(host(&Origin { tls, host: name.to_owned(), port }), wanted);
    }
}

/// A TLS server for `name`, and the certificate that makes it trusted.
async fn tls_server(name: &str) -> (SocketAddr, CertificateDer<'static>, JoinSet<()>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    let der = certificate.der().clone();
    let secret = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![der.clone()], secret).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(GOOD).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, der, tasks)
}

#[tokio::test]
async fn https_is_held_against_the_roots_and_the_name() {
    let (address, good, _good) = tls_server("127.0.0.1").await;
    let (misnamed, other, _other) = tls_server("lamp.example").await;
    let ask = |address: SocketAddr, roots: Vec<CertificateDer<'static>>| {
        let ways = Ways::new(Script::new(&[]), Arc::new(move || roots.clone()));
        let mut request = request("127.0.0.1", address.port());
        request.origin.tls = true;
        async move { ways.send(request).await.map(|answer| answer.status) }
    };
    assert_eq!(ask(address, vec![good.clone()]).await, Ok(200), "control");
    assert_eq!(ask(address, vec![other.clone()]).await, Err(OutboundTrouble::Broken), "signed by nobody known");
    assert_eq!(ask(misnamed, vec![other]).await, Err(OutboundTrouble::Broken), "another name");
    assert_eq!(ask(address, Vec::new()).await, Err(OutboundTrouble::Broken), "no roots at all");
}

#[tokio::test]
async fn lookups_of_a_name_that_nobody_answers_leave_room_for_other_names() {
    let lookups = Lookups::new();
    let mut hanging = Vec::new();
    for _ in 0..LOOKUPS_OF_A_NAME_MAX {
        hanging.push(lookups.room("dead.example").now_or_never().unwrap().unwrap());
    }
    let one_more = lookups.room("dead.example");
    let mut one_more = std::pin::pin!(one_more);
    assert!(one_more.as_mut().now_or_never().is_none(), "it waits behind its own name");
    let other = lookups.room("live.example").now_or_never().unwrap().unwrap();
    drop((hanging, other));
    let _one_more = one_more.now_or_never().unwrap().unwrap();
    let _room = lookups.room("third.example").now_or_never().unwrap().unwrap();
    let known = lookups.of_names.lock().unwrap();
    assert!(
        !known.contains_key("live.example") && known.contains_key("third.example"),
        "names that nobody looks up are forgotten"
    );
}
