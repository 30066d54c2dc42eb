//! The direct link: who is looked at, what is answered, who is cut off.

use std::time::Duration;

use handlers::{Clock, SystemClock};
use latchkey_runtime::DoorLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::envelope::ENVELOPE_BYTES_MAX;

use crate::device::{Bench, GET_CHALLENGE, Wish, body, exchange, post, read_all, status};

#[tokio::test(flavor = "multi_thread")]
async fn browsers_and_foreign_hosts_are_kept_out_and_others_are_answered() {
    let bench = Bench::start(Wish { sets: vec!["link.direct.hosts=[\"kitchen.lan\"]"], ..Wish::default() }).await;
    let get = |head: &str| format!("GET /v1/challenge HTTP/1.1\r\n{head}Connection: close\r\n\r\n");
    let ask = |head: &str, body: &str| {
        format!("POST /v1/request HTTP/1.1\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    };
    let json = "Content-Type: application/json\r\n";
    let rows = [
        ("control", get("Host: localhost\r\n"), 200),
        ("an IPv4 literal", get("Host: 192.0.2.7\r\n"), 200),
        ("with a port", get("Host: 192.0.2.7:7601\r\n"), 200),
        ("an IPv6 literal", get("Host: [2001:db8::1]:7601\r\n"), 200),
        ("a configured name", get("Host: Kitchen.lan:7601\r\n"), 200),
        ("a foreign name", get("Host: evil.example\r\n"), 403),
        ("localhost as a part of a name", get("Host: localhost.evil.example\r\n"), 403),
        ("an empty host", get("Host: \r\n"), 403),
        ("no host", get(""), 403),
        ("two hosts", get("Host: localhost\r\nHost: localhost\r\n"), 403),
        ("a port that is none", get("Host: localhost:x\r\n"), 403),
        ("IPv6 without brackets", get("Host: 2001:db8::1\r\n"), 403),
        (
            "a whole URL in the first line",
            "GET http://localhost/v1/challenge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
            403,
        ),
        ("an Origin", get("Host: localhost\r\nOrigin: http://localhost\r\n"), 403),
        ("an Origin of null", get("Host: localhost\r\nOrigin: null\r\n"), 403),
        ("Sec-Fetch-Site", get("Host: localhost\r\nSec-Fetch-Site: none\r\n"), 403),
        ("another path", "GET /v1/other HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 404),
        ("the root", "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 404),
        (
            "another method",
            "DELETE /v1/challenge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
            405,
        ),
        ("HEAD", "HEAD /v1/challenge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 405),
        (
            "GET of the request path",
            "GET /v1/request HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
            405,
        ),
        (
            "OPTIONS, as before a foreign post",
            "OPTIONS /v1/request HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
            405,
        ),
        ("a body that is a form", ask("Host: localhost\r\nContent-Type: text/plain\r\n", "{}"), 403),
        ("a body without a type", ask("Host: localhost\r\n", "{}"), 403),
        ("a body with two types", ask(&format!("Host: localhost\r\n{json}{json}"), "{}"), 403),
        ("a body that is no envelope", ask(&format!("Host: localhost\r\n{json}"), "{}"), 403),
        ("no body", ask(&format!("Host: localhost\r\n{json}"), ""), 403),
    ];
    for (name, request, wanted) in rows {
        let answer = exchange(bench.direct(), request).await;
        assert_eq!(status(&answer), wanted, "{name}: {answer}");
        assert!(answer.to_ascii_lowercase().contains("cache-control: no-store"), "{name}");
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{name}");
        if wanted == 403 {
            assert_eq!(body(&answer), r#"{"error":"forbidden"}"#, "{name}");
        }
    }
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_request_gets_a_signed_answer_also_with_a_charset_and_in_pieces() {
    let bench = Bench::start(Wish::default()).await;
    let envelope = bench.claim().await;
    let answer = exchange(bench.direct(), post("/v1/request", &envelope)).await;
    assert_eq!(status(&answer), 200, "{answer}");
    let opened = wire::Envelope::parse_result(body(&answer).as_bytes()).unwrap().open_answer(&bench.public()).unwrap();
    assert!(opened.message().outcome.is_ok());

    let envelope = bench.claim().await;
    let half = envelope.len() / 2;
    let chunked = format!(
        "POST /v1/request HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\
         Connection: close\r\n\r\n{half:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        &envelope[..half],
        envelope.len() - half,
        &envelope[half..],
    );
    assert_eq!(status(&exchange(bench.direct(), chunked).await), 200);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversize_body_is_refused_and_the_connection_closed_without_reading_on() {
    let bench = Bench::start(Wish::default()).await;
    let head = |length: usize| {
        format!(
            "POST /v1/request HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    // Only announced: nothing of the body is ever sent, and the answer is there all the same.
    let answer = exchange(bench.direct(), head(ENVELOPE_BYTES_MAX + 1)).await;
    assert_eq!((status(&answer), body(&answer)), (403, r#"{"error":"forbidden"}"#));

    // Without an announced length it is cut off where it grows too large.
    let mut stream = TcpStream::connect(bench.direct()).await.unwrap();
    let chunked = "POST /v1/request HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(chunked.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x1_0000));
    for _ in 0..12 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    assert_eq!(status(&read_all(&mut stream).await), 403);

    // Control: the largest that is allowed is read to its end, and the connection lives on.
    let mut stream = TcpStream::connect(bench.direct()).await.unwrap();
    stream.write_all(head(ENVELOPE_BYTES_MAX).as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; ENVELOPE_BYTES_MAX]).await.unwrap();
    stream.write_all(GET_CHALLENGE.as_bytes()).await.unwrap();
    let answers = read_all(&mut stream).await;
    assert_eq!((answers.matches("HTTP/1.1 403").count(), answers.matches("HTTP/1.1 200").count()), (1, 1), "{answers}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_cut_off_and_prompt_ones_are_served_meanwhile() {
    let door =
        DoorLimits { header: Duration::from_millis(400), body: Duration::from_millis(400), ..DoorLimits::default() };
    let bench = Bench::start(Wish { door, ..Wish::default() }).await;
    let body_head = "POST /v1/request HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    let rows = [
        ("nothing at all", "", "G", 0),
        ("half a header", "GET /v1/challenge HTTP/1.1\r\nHost: loc", "a", 0),
        ("half a body", body_head, " ", 403),
    ];
    for (name, sent, more, wanted) in rows {
        let began = SystemClock.boot();
        let mut slow = TcpStream::connect(bench.direct()).await.unwrap();
        slow.write_all(sent.as_bytes()).await.unwrap();
        assert_eq!(status(&exchange(bench.direct(), GET_CHALLENGE).await), 200, "{name}: a prompt client beside it");
        // One byte now and then does not help.
        let _ = slow.write_all(more.as_bytes()).await;
        assert_eq!(status(&read_all(&mut slow).await), wanted, "{name}");
        assert!(SystemClock.boot().since(began) >= Duration::from_millis(390), "{name}: its time was not cut short");
        assert!(SystemClock.boot().since(began) < Duration::from_secs(10), "{name}: it was cut off");
    }
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_that_stall_keep_nobody_elses_small_body_from_being_read() {
    let bench = Bench::start(Wish::default()).await;
    let head = |length: usize| {
        format!(
            "POST /v1/request HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let sixteen = " ".repeat(16 * 1024);
    let mut stalled = Vec::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(bench.direct()).await.unwrap();
        stream.write_all(head(ENVELOPE_BYTES_MAX).as_bytes()).await.unwrap();
        // All but the last 16 KiB, or as much as the device takes: it does not read what it has no memory for.
        let pour = async {
            for _ in 0..ENVELOPE_BYTES_MAX / sixteen.len() - 1 {
                stream.write_all(sixteen.as_bytes()).await.unwrap();
            }
        };
        let _taken = tokio::time::timeout(Duration::from_millis(250), pour).await;
        stalled.push(stream);
    }
    let began = SystemClock.boot();
    let answer = exchange(bench.direct(), post("/v1/request", &bench.claim().await)).await;
    assert_eq!(status(&answer), 200, "{answer}");
    let waited = SystemClock.boot().since(began);
    assert!(
        waited < Duration::from_secs(5),
        "a small body is read beside them, not when their time is over: {waited:?}"
    );
    drop(stalled);
    // Control: with them gone, a large body is read to its end again.
    let large = " ".repeat(ENVELOPE_BYTES_MAX - 1024);
    assert_eq!(status(&exchange(bench.direct(), post("/v1/request", &large)).await), 403);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_that_come_at_once_wait_for_their_turn_and_never_for_one_another() {
    let bench = Bench::start(Wish::default()).await;
    let large = post("/v1/request", &" ".repeat(ENVELOPE_BYTES_MAX));
    let began = SystemClock.boot();
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (address, large) = (bench.direct(), large.clone());
        senders.spawn(async move { status(&exchange(address, large).await) });
    }
    assert_eq!(senders.join_all().await, [403; 24]);
    let waited = SystemClock.boot().since(began);
    assert!(waited < Duration::from_secs(10), "none of them stood until its time was over: {waited:?}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_places_are_closed_at_once_and_a_place_is_free_again() {
    let bench =
        Bench::start(Wish { door: DoorLimits { loopback_max: 2, ..DoorLimits::default() }, ..Wish::default() }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(bench.direct()).await.unwrap();
        stream.write_all(b"GET /v1/challenge HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).await.unwrap();
        assert!(piece[..read].starts_with(b"HTTP/1.1 200"), "a place, kept alive");
        held.push(stream);
    }
    let mut third = TcpStream::connect(bench.direct()).await.unwrap();
    let _ = third.write_all(GET_CHALLENGE.as_bytes()).await;
    assert_eq!(read_all(&mut third).await, "", "closed without a word");
    drop(held.pop());
    // The device learns of the freed place when it reads the end of that connection.
    let served = async {
        while status(&exchange_or_nothing(&bench).await) != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served).await.expect("the place is free again");
    bench.stop().await;
}

async fn exchange_or_nothing(bench: &Bench) -> String {
    let mut stream = TcpStream::connect(bench.direct()).await.unwrap();
    let _ = stream.write_all(GET_CHALLENGE.as_bytes()).await;
    read_all(&mut stream).await
}
