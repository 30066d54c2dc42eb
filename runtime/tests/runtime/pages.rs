//! The display page's server: who is answered, and the page's own language over HTTP.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use handlers::SignBackend;

use crate::device::{Bench, Wish, body, exchange, status};

#[tokio::test(flavor = "multi_thread")]
async fn only_our_own_page_on_our_own_name_is_answered() {
    let bench = Bench::start(Wish::default()).await;
    let port = bench.pages().port();
    let get = |head: &str| format!("GET /display HTTP/1.1\r\n{head}Connection: close\r\n\r\n");
    let rows = [
        ("control", get(&format!("Host: 127.0.0.1:{port}\r\n")), 200),
        ("localhost", get(&format!("Host: localhost:{port}\r\n")), 200),
        ("IPv6 loopback", get(&format!("Host: [::1]:{port}\r\n")), 200),
        ("a foreign name on our port", get(&format!("Host: evil.example:{port}\r\n")), 403),
        ("localhost as a part of a name", get(&format!("Host: localhost.evil.example:{port}\r\n")), 403),
        ("another address", get(&format!("Host: 192.0.2.7:{port}\r\n")), 403),
        ("another port", get("Host: 127.0.0.1:1\r\n"), 403),
        ("no port", get("Host: 127.0.0.1\r\n"), 403),
        ("an empty host", get("Host: \r\n"), 403),
        ("two hosts", get(&format!("Host: 127.0.0.1:{port}\r\nHost: 127.0.0.1:{port}\r\n")), 403),
        ("our own origin", get(&format!("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n")), 200),
        (
            "another of our names as origin",
            get(&format!("Host: 127.0.0.1:{port}\r\nOrigin: http://localhost:{port}\r\n")),
            403,
        ),
        (
            "another local page as origin",
            get(&format!("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:3000\r\n")),
            403,
        ),
        (
            "our name over https as origin",
            get(&format!("Host: 127.0.0.1:{port}\r\nOrigin: https://127.0.0.1:{port}\r\n")),
            403,
        ),
        ("a foreign origin", get(&format!("Host: 127.0.0.1:{port}\r\nOrigin: https://evil.example\r\n")), 403),
        (
            "no origin at all, as sandboxed frames have it",
            get(&format!("Host: 127.0.0.1:{port}\r\nOrigin: null\r\n")),
            403,
        ),
        ("asked for by our own page", get(&format!("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n")), 200),
        ("typed by the person", get(&format!("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: none\r\n")), 200),
        (
            "asked for by another port on localhost",
            get(&format!("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: same-site\r\n")),
            403,
        ),
        ("asked for by a foreign site", get(&format!("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: cross-site\r\n")), 403),
    ];
    for (name, request, wanted) in rows {
        let answer = exchange(bench.pages(), request).await;
        assert_eq!(status(&answer), wanted, "{name}: {answer}");
        let head = answer.to_ascii_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{name}: {header}");
        }
        assert!(!head.contains("unsafe-inline") && !head.contains("access-control"), "{name}");
    }
    let answer =
        exchange(bench.pages(), format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n")).await;
    assert!(status(&answer) == 302 && answer.to_ascii_lowercase().contains("location: /display\r\n"));
    bench.stop().await;
}

struct Browser<'a> {
    bench: &'a Bench,
    page: String,
    count: u64,
}

impl<'a> Browser<'a> {
    async fn load(bench: &'a Bench) -> Self {
        let answer = exchange(bench.pages(), Self::head(bench, "GET /display", "")).await;
        let (_, after) = answer.split_once("data-page=\"").unwrap();
        Self { bench, page: after[..48].to_owned(), count: 0 }
    }

    fn head(bench: &Bench, line: &str, more: &str) -> String {
        format!("{line} HTTP/1.1\r\nHost: {}\r\n{more}Connection: close\r\n\r\n", bench.pages())
    }

    /// Opens the stream of states.
    async fn follow(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.bench.pages()).await.unwrap();
        let line = format!("GET /display/events/{}", self.page);
        stream.write_all(Self::head(self.bench, &line, "").as_bytes()).await.unwrap();
        stream
    }

    async fn say(&mut self, word: &str, nonce: &str) -> u16 {
        self.count += 1;
        let body = format!(r#"{{"page":"{}","count":{},"said":"{word}","nonce":"{nonce}"}}"#, self.page, self.count);
        let more = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        status(&exchange(self.bench.pages(), Self::head(self.bench, "POST /display/said", &more) + &body).await)
    }
}

/// Reads the next state from a stream, and the nonce in it.
async fn next_state(stream: &mut TcpStream, seen: &mut String) -> String {
    loop {
        if let Some((before, after)) = seen.clone().split_once("\n\n") {
            *seen = after.to_owned();
            if let Some((_, nonce)) = before.split_once("\"nonce\":\"") {
                return nonce[..48].to_owned();
            }
            continue;
        }
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0, "the stream goes on");
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_confirms_the_sign_over_http_and_no_other_page_can() {
    let bench = Bench::start(Wish::default()).await;
    let mut page = Browser::load(&bench).await;
    let mut other = Browser::load(&bench).await;
    assert_ne!(page.page, other.page);
    let (mut stream, mut seen) = (page.follow().await, String::new());
    let first = next_state(&mut stream, &mut seen).await;
    assert_eq!(other.say("drawn", &first).await, 409, "a page that follows nothing");
    let _other_stream = other.follow().await;
    assert_eq!(other.say("drawn", &first).await, 409, "the nonce of another page");
    assert_eq!(page.say("drawn", &"0".repeat(48)).await, 409, "an invented nonce");
    assert_eq!(page.say("painted", &first).await, 400, "an unknown word");
    assert!(bench.running.display.ready().is_err(), "nothing of this counted");
    assert_eq!(page.say("drawn", &first).await, 204, "control");
    assert_eq!(bench.running.display.ready(), Ok(()));

    let answering = async {
        loop {
            let nonce = next_state(&mut stream, &mut seen).await;
            page.say("drawn", &nonce).await;
        }
    };
    tokio::select! {
        lit = SignBackend::light(&bench.running.display) => assert_eq!(lit, Ok(())),
        () = answering => {}
    }
    assert_eq!(bench.running.display.check().await, Ok(()));
    assert_eq!(page.say("hidden", "").await, 204);
    assert!(bench.running.display.check().await.is_err());
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_pages_are_small_json_and_nothing_else() {
    let bench = Bench::start(Wish::default()).await;
    let said = |mime: &str, body: &str| {
        let more = format!("{mime}Content-Length: {}\r\n", body.len());
        Browser::head(&bench, "POST /display/said", &more) + body
    };
    let json = "Content-Type: application/json\r\n";
    let answer = format!(r#"{{"page":"{}","count":1,"said":"hidden"}}"#, "0".repeat(48));
    let rows = [
        ("control: well formed, of a page that is not open", said(json, &answer), 409),
        ("as a form", said("Content-Type: text/plain\r\n", &answer), 415),
        ("without a type", said("", &answer), 415),
        ("a member too many", said(json, &answer.replace("\"count\":1", "\"count\":1,\"more\":1")), 400),
        ("the same member twice", said(json, &answer.replace("\"count\":1", "\"count\":1,\"count\":2")), 400),
        ("too long", said(json, &format!("{}{answer}", " ".repeat(2000))), 400),
        ("a page id in upper case", said(json, &answer.replace(&"0".repeat(48), &"A".repeat(48))), 400),
        (
            "events of a page nobody minted",
            Browser::head(&bench, &format!("GET /display/events/{}", "0".repeat(48)), ""),
            403,
        ),
        ("a picture nobody named", Browser::head(&bench, &format!("GET /display/picture/{}", "0".repeat(48)), ""), 404),
        ("an asset", Browser::head(&bench, "GET /display/display.js", ""), 200),
        ("another path", Browser::head(&bench, "GET /display/../../etc/passwd", ""), 404),
        ("another method", Browser::head(&bench, "DELETE /display", ""), 405),
    ];
    for (name, request, wanted) in rows {
        assert_eq!(status(&exchange(bench.pages(), request).await), wanted, "{name}");
    }
    bench.stop().await;
}

#[test]
fn no_string_reaches_the_page_as_markup() {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let script = std::fs::read_to_string(format!("{assets}/display.js")).unwrap();
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"] {
        assert!(!script.contains(word), "{word}");
    }
    let page = std::fs::read_to_string(format!("{assets}/display.html")).unwrap();
    assert!(!page.contains("style=") && !page.contains("onclick"), "nothing inline");
    assert_eq!(page.matches("<script").count(), page.matches("<script src=\"/display/").count());
    assert_eq!(page.matches("{{").count(), 1, "one placeholder: the page's id, which is hex");
    assert_eq!(body("HTTP/1.1 200 OK\r\n\r\nx"), "x");
}
