//! Folders and servers of the reach, and that there is nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_bytes::ByteBuf;

use super::guests::text;
use super::{AMPLE_MS, Talk, Terms, said};
use crate::wasm::frame::{FromChild, HttpAnswer, HttpTrouble, ToChild};

/// Numbers of `wasi:filesystem`'s error codes.
const NO_ENTRY: &str = r#"{"error":"020"}"#;
const NOT_PERMITTED: &str = r#"{"error":"031"}"#;
const READ_ONLY: &str = r#"{"error":"033"}"#;
const NO_FOLDER: &str = r#"{"error":"999"}"#;
/// Numbers of `wasi:http`'s error codes.
const DENIED: &str = r#"{"error":"015"}"#;
const LIMIT_REACHED: &str = r#"{"error":"011"}"#;
/// Of `wasi:sockets`.
const ACCESS_DENIED: &str = r#"{"error":"001"}"#;

fn folder(place: &Path, write: bool) -> Terms {
    Terms { folders: vec![(place.to_owned(), "/lamp".to_owned(), write)], ..Terms::default() }
}

fn at(talk: &mut Talk, path: &str) -> String {
    said(&talk.call(&format!(r#"{{"path":"{path}"}}"#), AMPLE_MS).ended).to_owned()
}

#[test]
fn a_file_within_reach_is_read_and_nothing_beyond_it() {
    let outer = tempfile::tempdir().unwrap();
    let lamp = outer.path().join("lamp");
    fs::create_dir(&lamp).unwrap();
    fs::write(lamp.join("level"), r#"{"level":40}"#).unwrap();
    fs::write(outer.path().join("secret"), r#"{"secret":1}"#).unwrap();
    symlink("level", lamp.join("inner")).unwrap();
    symlink("../secret", lamp.join("relative")).unwrap();
    symlink(outer.path().join("secret"), lamp.join("absolute")).unwrap();
    symlink("..", lamp.join("up")).unwrap();

    let mut talk = Talk::load(&text("read_file"), &folder(&lamp, false));
    let level = r#"{"level":40}"#;
    for (path, found) in [
        ("level", level),
        ("inner", level),
        ("./level", level),
        ("absent", NO_ENTRY),
        ("../secret", NOT_PERMITTED),
        ("relative", NOT_PERMITTED),
        ("absolute", NOT_PERMITTED),
        ("up/secret", NOT_PERMITTED),
        ("/etc/passwd", NOT_PERMITTED),
    ] {
        assert_eq!(at(&mut talk, path), found, "{path}");
    }

    let mut without = Talk::load(&text("read_file"), &Terms::default());
    assert_eq!(at(&mut without, "level"), NO_FOLDER);
}

#[test]
fn a_folder_is_written_where_the_reach_says_so() {
    let lamp = tempfile::tempdir().unwrap();
    let level = lamp.path().join("level");
    fs::write(&level, "40").unwrap();
    let mut reads = Talk::load(&text("write_file"), &folder(lamp.path(), false));
    for path in ["level", "new"] {
        assert!([NOT_PERMITTED, READ_ONLY].contains(&at(&mut reads, path).as_str()), "{path}");
    }
    assert_eq!(fs::read_to_string(&level).unwrap(), "40");
    assert_eq!(fs::read_dir(lamp.path()).unwrap().count(), 1);

    let mut writes = Talk::load(&text("write_file"), &folder(lamp.path(), true));
    for path in ["level", "new"] {
        assert_eq!(at(&mut writes, path), "{}", "{path}");
        assert_eq!(fs::read_to_string(lamp.path().join(path)).unwrap(), "{}", "{path}");
    }
    assert_eq!(at(&mut writes, "../new"), NOT_PERMITTED);
}

#[test]
fn the_folder_stays_the_one_that_was_opened() {
    let outer = tempfile::tempdir().unwrap();
    let (lamp, other) = (outer.path().join("lamp"), outer.path().join("other"));
    for (place, level) in [(&lamp, r#"{"level":1}"#), (&other, r#"{"level":2}"#)] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("level"), level).unwrap();
    }
    let mut talk = Talk::load(&text("read_file"), &folder(&lamp, false));
    assert_eq!(at(&mut talk, "level"), r#"{"level":1}"#);
    fs::rename(&lamp, outer.path().join("before")).unwrap();
    symlink(&other, &lamp).unwrap();
    assert_eq!(at(&mut talk, "level"), r#"{"level":1}"#);
}

#[test]
fn there_are_no_sockets() {
    assert_eq!(said(&Talk::load(&text("socket"), &Terms::default()).call("{}", AMPLE_MS).ended), ACCESS_DENIED);
}

const GET: &str = r#"{"authority":"192.168.1.20:80"}"#;

#[test]
fn a_request_goes_to_the_parent_and_its_answer_to_the_guest() {
    let mut talk = Talk::load(&text("http_get"), &Terms { http: true, ..Terms::default() });
    let answer =
        HttpAnswer { status: 204, headers: vec![("x-lamp".to_owned(), ByteBuf::from("on"))], body: b"on".to_vec() };
    for (answer, seen) in [
        (Ok(answer), r#"{"status":204}"#),
        (Err(HttpTrouble::Denied), DENIED),
        (Err(HttpTrouble::TooMany), LIMIT_REACHED),
        (Err(HttpTrouble::NoName), r#"{"error":"001"}"#),
        (Err(HttpTrouble::Refused), r#"{"error":"006"}"#),
        (Err(HttpTrouble::TooLarge), r#"{"error":"028"}"#),
        (Err(HttpTrouble::TimedOut), r#"{"error":"008"}"#),
        (Err(HttpTrouble::Broken), r#"{"error":"007"}"#),
    ] {
        let call = talk.ask(GET, AMPLE_MS);
        let FromChild::Http { number, call: of, request } = talk.hear() else { panic!("no request") };
        assert_eq!(of, call);
        assert_eq!(
            (request.method.as_str(), request.scheme.as_str(), request.path_and_query.as_str()),
            ("GET", "http", "/")
        );
        assert_eq!((request.authority.as_str(), request.headers.len()), ("192.168.1.20:80", 0));
        // An answer to another request is nobody's.
        talk.say(&ToChild::Http { number: number + 1, answer: Err(HttpTrouble::Denied) });
        talk.say(&ToChild::Http { number, answer });
        assert_eq!(said(&talk.done().ended), seen);
    }
}

#[test]
fn without_a_server_in_reach_no_request_reaches_the_parent() {
    let mut talk = Talk::load(&text("http_get"), &Terms::default());
    assert_eq!(said(&talk.call(GET, AMPLE_MS).ended), DENIED);
}

/// Headers that a guest makes lie in our memory and not in its own.
#[test]
fn what_a_guest_makes_us_hold_has_an_end() {
    let begin = "(local.set $request (call $request (call $fields)))";
    let holding = |count: u32| {
        let hold = "(drop (call $fields)) (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1))))";
        text("http_get").replacen("(local $request i32)", "(local $left i32) (local $request i32)", 1).replacen(
            begin,
            &format!("(local.set $left (i32.const {count})) (loop $more {hold}) {begin}"),
            1,
        )
    };
    let held = |count| Talk::load(&holding(count), &Terms::default()).call(GET, AMPLE_MS).ended;
    assert_eq!(said(&held(500)), DENIED);
    let ended = held(2_000);
    assert!(matches!(ended, super::Ended::Trapped(_)), "{ended:?}");
}

#[test]
fn a_call_sends_at_most_16_requests() {
    // Sends as many as the first digit pair says, and answers as the last was answered.
    let many = |requests: u32| {
        let once = text("http_get");
        let begin = "(local.set $request (call $request (call $fields)))";
        let end = "(call $digits (i32.const 330)";
        once.replacen("(local $request i32)", "(local $left i32) (local $request i32)", 1)
            .replacen(begin, &format!("(local.set $left (i32.const {requests})) (loop $again {begin}"), 1)
            .replacen(
                end,
                &format!("(br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1))))) {end}"),
                1,
            )
    };
    for (requests, seen) in [(16, r#"{"status":200}"#), (17, LIMIT_REACHED)] {
        let mut talk = Talk::load(&many(requests), &Terms { http: true, ..Terms::default() });
        for _ in 0..2 {
            talk.ask(GET, AMPLE_MS);
            let mut sent = 0;
            let done = loop {
                match talk.hear() {
                    FromChild::Http { number, .. } => {
                        sent += 1;
                        let answer = HttpAnswer { status: 200, headers: Vec::new(), body: Vec::new() };
                        talk.say(&ToChild::Http { number, answer: Ok(answer) });
                    }
                    FromChild::Done(done) => break done,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!((sent, said(&done.ended)), (16, seen));
        }
    }
}

#[test]
fn a_request_that_nobody_answers_is_cut_off_with_its_call() {
    let mut talk = Talk::load(&text("http_get"), &Terms { http: true, ..Terms::default() });
    talk.ask(GET, super::BRIEF_MS);
    assert!(matches!(talk.hear(), FromChild::Http { .. }));
    assert_eq!(talk.done().ended, super::Ended::TimedOut);
}
