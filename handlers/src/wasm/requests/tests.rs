#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Mutex;
use std::time::Duration;

use super::*;

/// Keeps what it was asked, and answers with what it was told.
struct Recorder {
    asked: Mutex<Vec<OutboundRequest>>,
    answer: Result<OutboundAnswer, OutboundTrouble>,
}

impl Outbound for Recorder {
    fn send(&self, request: OutboundRequest) -> BoxFuture<'static, Result<OutboundAnswer, OutboundTrouble>> {
        self.asked.lock().unwrap().push(request);
        std::future::ready(self.answer.clone()).boxed()
    }
}

fn recorder(answer: Result<OutboundAnswer, OutboundTrouble>) -> Arc<Recorder> {
    Arc::new(Recorder { asked: Mutex::default(), answer })
}

fn fine() -> OutboundAnswer {
    OutboundAnswer { status: 200, headers: Vec::new(), body: b"on".to_vec() }
}

fn requests(outbound: &Arc<Recorder>) -> Requests {
    let origins = ["http://192.168.1.20", "https://lamp.example:8443", "http://[2001:db8::1]:8080"];
    let origins: Vec<Origin> = origins.iter().map(|origin| origin.parse().unwrap()).collect();
    Requests::new(origins.into(), Arc::clone(outbound) as Arc<dyn Outbound>, Instant::now() + Duration::from_secs(1))
}

fn request() -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        scheme: "http".to_owned(),
        authority: "192.168.1.20".to_owned(),
        path_and_query: "/state?x=1".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    }
}

/// What comes of one request, and whether it was sent.
async fn check(request: HttpRequest) -> (Result<HttpAnswer, HttpTrouble>, Option<OutboundRequest>) {
    let outbound = recorder(Ok(fine()));
    let mut requests = requests(&outbound);
    assert!(requests.ask(5, request));
    let (number, answer) = requests.answered().await;
    assert_eq!(number, 5);
    let sent = outbound.asked.lock().unwrap().pop();
    (answer, sent)
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_to_exactly_the_origins_of_the_reach() {
    let rows = [
        ("http", "192.168.1.20", true),
        ("http", "192.168.1.20:80", true),
        ("https", "lamp.example:8443", true),
        ("https", "LAMP.Example:8443", true),
        ("http", "[2001:db8::1]:8080", true),
        ("http", "[2001:DB8:0::1]:8080", true),
        ("https", "192.168.1.20", false),
        ("http", "192.168.1.20:81", false),
        ("http", "192.168.1.21", false),
        ("http", "lamp.example:8443", false),
        ("https", "lamp.example", false),
        ("https", "lamp.example:8443@192.168.1.20", false),
        ("http", "user@192.168.1.20", false),
        ("http", "192.168.1.20/state", false),
        ("http", "192.168.1.20#", false),
        ("http", "192.168.1.20:080", false),
        ("http", "192.168.1.20:", false),
        ("http", "192.168.1.20 ", false),
        ("http", "", false),
        ("", "192.168.1.20", false),
        ("HTTP", "192.168.1.20", false),
        ("http://x", "192.168.1.20", false),
        ("file", "192.168.1.20", false),
    ];
    for (scheme, authority, allowed) in rows {
        let (scheme, authority) = (scheme.to_owned(), authority.to_owned());
        let (answer, sent) = check(HttpRequest { scheme, authority, ..request() }).await;
        let answer = answer.map(|answer| answer.body);
        let expected = if allowed { Ok(b"on".to_vec()) } else { Err(HttpTrouble::Denied) };
        assert_eq!((answer, sent.is_some()), (expected, allowed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_no_right_form_is_not_sent_and_its_neighbour_is() {
    let row = |harm: &dyn Fn(&mut HttpRequest)| {
        let mut request = request();
        harm(&mut request);
        request
    };
    let header = |name: &str, value: &[u8]| (name.to_owned(), ByteBuf::from(value));
    let refused = [
        row(&|request| request.method = "GET /other HTTP/1.1\r\n".to_owned()),
        row(&|request| request.method = String::new()),
        row(&|request| request.method = "CONNECT".to_owned()),
        row(&|request| request.method = "connect".to_owned()),
        row(&|request| request.method = "M".repeat(21)),
        row(&|request| request.path_and_query = "state".to_owned()),
        row(&|request| request.path_and_query = String::new()),
        row(&|request| request.path_and_query = "*".to_owned()),
        row(&|request| request.path_and_query = "/a b".to_owned()),
        row(&|request| request.path_and_query = "/a\r\nHost: x".to_owned()),
        row(&|request| request.path_and_query = "/a#b".to_owned()),
        row(&|request| request.path_and_query = "/é".to_owned()),
        row(&|request| request.path_and_query = format!("/{}", "a".repeat(8 * 1024))),
        row(&|request| request.headers = vec![header("x y", b"1")]),
        row(&|request| request.headers = vec![header("", b"1")]),
        row(&|request| request.headers = vec![header("x:", b"1")]),
        row(&|request| request.headers = vec![header("x", b"1\r\nhost: other")]),
        row(&|request| request.headers = vec![header("x", b"1\n")]),
        row(&|request| request.headers = vec![header("x", b"\0")]),
        row(&|request| request.headers = vec![header("x", &[b'a'; 16 * 1024])]),
        row(&|request| request.headers = vec![header("x", b"1"); 65]),
    ];
    for request in refused {
        let shown = format!("{request:?}");
        let (answer, sent) = check(request).await;
        assert_eq!((answer.unwrap_err(), sent), (HttpTrouble::Denied, None), "{shown}");
    }
    let accepted = [
        row(&|request| request.method = "PROPFIND".to_owned()),
        row(&|request| request.method = "M".repeat(20)),
        row(&|request| request.path_and_query = "/".to_owned()),
        row(&|request| request.path_and_query = "/a%20b?c=[d]&e=f;g".to_owned()),
        row(&|request| request.path_and_query = format!("/{}", "a".repeat(8 * 1024 - 1))),
        row(&|request| request.headers = vec![header("x-y", b"1\t2 \xe9")]),
        row(&|request| request.headers = vec![header("x", &[b'a'; 16 * 1024 - 1])]),
        row(&|request| request.headers = vec![header("x", b"1"); 64]),
    ];
    for request in accepted {
        let shown = format!("{request:?}");
        let (answer, sent) = check(request).await;
        assert!(answer.is_ok() && sent.is_some(), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn headers_that_frame_a_message_or_name_its_hop_are_made_elsewhere() {
    let names = [
        "Host",
        "connection",
        "Transfer-Encoding",
        "content-length",
        "upgrade",
        "te",
        "trailer",
        "keep-alive",
        "expect",
        "proxy-authorization",
        "Proxy-Connection",
    ];
    let mut headers: Vec<_> = names.iter().map(|name| ((*name).to_owned(), ByteBuf::from("1"))).collect();
    headers.push(("Accept".to_owned(), ByteBuf::from("text/plain")));
    let (_, sent) = check(HttpRequest { headers: headers.clone(), ..request() }).await;
    assert_eq!(sent.unwrap().headers, [("accept".to_owned(), b"text/plain".to_vec())]);
    let headers = headers.into_iter().map(|(name, value)| (name, value.into_vec())).collect();
    let answer = answer(Ok(OutboundAnswer { headers, ..fine() })).unwrap();
    assert_eq!(answer.headers, [("accept".to_owned(), ByteBuf::from("text/plain"))]);
}

#[tokio::test(start_paused = true)]
async fn bodies_are_bounded_both_ways() {
    let body = vec![b'x'; BODY_BYTES_MAX];
    let (answer_there, sent) = check(HttpRequest { body: body.clone(), ..request() }).await;
    assert_eq!(sent.unwrap().body.len(), BODY_BYTES_MAX);
    assert!(answer_there.is_ok());
    let longer = [body.as_slice(), b"x"].concat();
    let (answer_there, sent) = check(HttpRequest { body: longer.clone(), ..request() }).await;
    assert_eq!((answer_there.unwrap_err(), sent), (HttpTrouble::TooLarge, None));
    assert!(answer(Ok(OutboundAnswer { body, ..fine() })).is_ok());
    assert_eq!(answer(Ok(OutboundAnswer { body: longer, ..fine() })).unwrap_err(), HttpTrouble::TooLarge);
    let headers = vec![("x".to_owned(), b"1\r\n".to_vec())];
    assert_eq!(answer(Ok(OutboundAnswer { headers, ..fine() })).unwrap_err(), HttpTrouble::Broken);
}

#[tokio::test(start_paused = true)]
async fn a_call_sends_sixteen_requests_and_a_process_that_asks_without_end_is_given_up() {
    let outbound = recorder(Err(OutboundTrouble::Refused));
    let mut requests = requests(&outbound);
    for number in 0..20 {
        assert!(requests.ask(number, request()));
        let expected = if number < 16 { HttpTrouble::Refused } else { HttpTrouble::TooMany };
        assert_eq!(requests.answered().await, (number, Err(expected)));
    }
    assert_eq!(outbound.asked.lock().unwrap().len(), 16);
    let asks = (20..).take_while(|number| requests.ask(*number, request())).count();
    assert_eq!(asks + 20, REQUESTS_MAX + REFUSALS_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_request_gets_the_time_that_its_call_has_left() {
    let outbound = recorder(Ok(fine()));
    let mut requests = requests(&outbound);
    tokio::time::advance(Duration::from_millis(400)).await;
    assert!(requests.ask(1, request()));
    assert!(requests.answered().await.1.is_ok());
    assert_eq!(outbound.asked.lock().unwrap().pop().unwrap().within, Duration::from_millis(600));
    tokio::time::advance(Duration::from_millis(600)).await;
    assert!(requests.ask(2, request()));
    assert_eq!(requests.answered().await, (2, Err(HttpTrouble::TimedOut)));
    assert_eq!(outbound.asked.lock().unwrap().len(), 0);
}
