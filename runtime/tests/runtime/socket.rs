//! The command socket: what is answered, and what becomes of bad input.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use actors::{Command, Reply};
use latchkey_runtime::SocketLimits;
use latchkey_runtime::keeper::ask::{ASK_BYTES_MAX, Ask, SOCKET_FILE, Talk, TalkError, Told};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::device::{Bench, Wish, folder};

async fn read_all(stream: &mut UnixStream) -> String {
    let mut answer = Vec::new();
    let read =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("it is closed");
    // Input that was never read makes the close a reset; what was answered before stands.
    let _ = read;
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_get_one_sentence_and_the_end_and_good_ones_get_replies() {
    let limits = SocketLimits { line: Duration::from_millis(500), ..SocketLimits::default() };
    let bench = Bench::start(Wish { socket: limits, ..Wish::default() }).await;
    let path = bench.folder.path().join(SOCKET_FILE);
    let status = r#"{"ask":"house","command":{"command":"status"}}"#;
    let padding = |bytes: usize| format!("{}{status}\n", " ".repeat(bytes - status.len()));
    let rows: [(&str, String, &[&str]); 9] = [
        ("control", format!("{status}\n"), &[r#""told":"house","reply":{"reply":"status""#]),
        ("two in one piece", format!("{status}\n{status}\n"), &["\"told\":\"house\"", "\"told\":\"house\""]),
        ("as long as a line may be", padding(ASK_BYTES_MAX), &["\"told\":\"house\""]),
        ("longer", padding(ASK_BYTES_MAX + 4097), &["one line of at most"]),
        ("without an end", " ".repeat(ASK_BYTES_MAX + 4097), &["one line of at most"]),
        ("garbage", "\u{1}\u{2}{{{\n".to_owned(), &["not a command"]),
        (
            "an unknown command",
            "{\"ask\":\"house\",\"command\":{\"command\":\"open_door\"}}\n".to_owned(),
            &["not a command"],
        ),
        ("a member too many", format!("{}\n", status.replace("house\"", "house\",\"force\":true")), &["not a command"]),
        ("half a line, then silence", status.to_owned(), &[]),
    ];
    for (name, sent, wanted) in rows {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let _ = stream.write_all(sent.as_bytes()).await;
        let answer = read_all(&mut stream).await;
        let lines: Vec<_> = answer.lines().collect();
        assert_eq!(lines.len(), wanted.len(), "{name}: {answer}");
        for (line, wanted) in lines.iter().zip(wanted) {
            assert!(line.contains(wanted), "{name}: {line}");
        }
    }
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_for_one_user_and_goes_with_the_daemon() {
    let bench = Bench::start(Wish::default()).await;
    let path = bench.folder.path().join(SOCKET_FILE);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let state_dir = bench.folder.path().to_owned();
    let (told, address) = tokio::task::spawn_blocking(move || {
        let mut talk = Talk::connect(&state_dir).unwrap();
        (talk.ask(&Ask::House { command: Command::Grants }).unwrap(), talk.ask(&Ask::Address).unwrap())
    })
    .await
    .unwrap();
    assert!(matches!(told, Told::House { reply: Reply::Grants { grants } } if grants.iter().all(|grant| !grant.on)));
    assert!(matches!(address, Told::Address { address } if address.port == bench.direct().port() && address.simulated));
    bench.stop().await;
    assert!(!path.exists(), "nothing is left behind");
}

#[test]
fn a_folder_without_a_daemon_says_that_it_is_not_running() {
    let folder = folder();
    assert!(matches!(Talk::connect(folder.path()), Err(TalkError::NotRunning { .. })));
    // As a killed daemon leaves it.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET_FILE)).unwrap());
    assert!(matches!(Talk::connect(folder.path()), Err(TalkError::NotRunning { .. })));
}
