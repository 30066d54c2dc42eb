//! What a handler may touch beyond its own memory: what its manifest says, and nothing behind it, beside it or under it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use latchkey_tests::guests::Mode;
use latchkey_tests::until;
use rustix::fs::{CWD, FileType, Mode as Bits, mknodat};
use serde_json::json;
use wire::ErrorCode::{Failed, Timeout};

use super::{Kitchen, WORD, is, named, word};

/// WASI's own numbers of errors: of a file, and of a request.
const NO_ENTRY: &str = "020";
const NOT_PERMITTED: &str = "031";
const REQUEST_DENIED: &str = "015";

/// Reads or writes the file in `path`.
const PATH: Mode<'_> = Mode { top: "", member: "path", reach: "" };

/// Waits for a handler that is refused, or fails at its first call, for its reach; gives the reason.
fn unreachable(kitchen: &Kitchen, name: &str) -> String {
    until(&format!("{name} refused"), || {
        let line = kitchen.listed().into_iter().find(|line| line.name.as_deref() == Some(name))?;
        line.why
    })
}

#[test]
fn a_reach_that_is_holds_or_lies_under_what_the_device_keeps_for_itself_is_refused_with_a_sentence() {
    let reach = |lines: String| Mode { reach: Box::leak(lines.into_boxed_str()), ..PATH };
    let mut rows: Vec<(String, String, &str)> = Vec::new();
    let kitchen = Kitchen::with(
        |room, handlers| {
            fs::create_dir(room.file("plain")).unwrap();
            latchkey_tests::room::folder(&room.state());
            symlink(room.state(), room.file("link-to-state")).unwrap();
            symlink(room.state().join("cache"), room.file("link-to-cache")).unwrap();
            let place = |path: &Path| path.to_str().unwrap().to_owned();
            let (state, config) = (room.state(), room.config());
            let folders = [
                ("/".to_owned(), "everything"),
                ("/dev".to_owned(), "/dev"),
                ("/dev/shm".to_owned(), "/dev"),
                ("/proc".to_owned(), "/proc"),
                ("/proc/self".to_owned(), "/proc"),
                ("/run".to_owned(), "/run"),
                ("/etc".to_owned(), "/etc"),
                ("/boot".to_owned(), "/boot"),
                (place(&state), "state"),
                (place(&state.join("cache")), "state"),
                (place(&room.file("link-to-state")), "state"),
                (place(&room.file("link-to-cache")), ""),
                (place(&config), "settings"),
                (place(handlers.folder()), ""),
                (place(room.path()), "holds"),
                (format!("{}/../state", place(&room.file("plain"))), ".."),
                (place(&room.file("nowhere")), "no such folder"),
                (place(&room.config().join("latchkey.toml")), ""),
            ];
            room.settings("");
            for (at, (path, words)) in folders.into_iter().enumerate() {
                for kind in ["read", "write"] {
                    let name = named(&format!("{kind}{at}"));
                    handlers.fixture(&name, "read_file", reach(format!("{kind} = [\"{path}\"]")));
                    rows.push((name, path.clone(), words));
                }
            }
            // The control differs in nothing but the folder.
            handlers.fixture(
                &named("plain"),
                "read_file",
                reach(format!("read = [\"{}\"]", place(&room.file("plain")))),
            );
        },
        |start| start,
    );
    for (name, path, words) in &rows {
        let why = unreachable(&kitchen, name);
        assert!(why.contains(words), "{path}: no \"{words}\" in: {why}");
    }
    kitchen.granted(&named("plain"));
    assert_eq!(word(&kitchen.call(&named("plain"), json!({ "path": "nothing" })).value(), "error"), NO_ENTRY);
    kitchen.goes_on("reach");
}

#[test]
fn a_handler_reads_and_writes_in_its_reach_and_finds_no_way_out_of_it() {
    let mut shared = String::new();
    let kitchen = Kitchen::with(
        |room, handlers| {
            for folder in ["shared", "shared/inner", "beyond"] {
                fs::create_dir(room.file(folder)).unwrap();
            }
            fs::write(room.file("shared/lamp"), r#"{"lamp":40}"#).unwrap();
            fs::write(room.file("shared/inner/lamp"), r#"{"lamp":41}"#).unwrap();
            fs::write(room.file("beyond/secret"), r#"{"secret":1}"#).unwrap();
            symlink("../beyond/secret", room.file("shared/relative")).unwrap();
            symlink(room.file("beyond/secret"), room.file("shared/absolute")).unwrap();
            symlink(room.file("beyond"), room.file("shared/folder")).unwrap();
            symlink("lamp", room.file("shared/within")).unwrap();
            shared = room.file("shared").to_str().unwrap().to_owned();
            let (read, write) = (format!("read = [\"{shared}\"]"), format!("write = [\"{shared}\"]"));
            handlers.fixture(&named("reads"), "read_file", Mode { reach: &read, ..PATH });
            handlers.fixture(&named("writes-not"), "write_file", Mode { reach: &read, ..PATH });
            handlers.fixture(&named("writes"), "write_file", Mode { reach: &write, ..PATH });
            handlers.fixture(&named("reads-nothing"), "read_file", PATH);
            handlers.fixture(&named("socket"), "socket", WORD);
        },
        |start| start,
    );
    for name in ["reads", "writes-not", "writes", "reads-nothing", "socket"] {
        kitchen.granted(&named(name));
    }
    let file = |name: &str, path: &str| kitchen.call(&named(name), json!({ "path": path })).value();
    for path in ["lamp", "within", "./lamp", "inner/../lamp"] {
        assert_eq!(word(&file("reads", path), "lamp"), 40, "{path}");
    }
    assert_eq!(word(&file("reads", "inner/lamp"), "lamp"), 41);
    let secret = kitchen.room.file("beyond/secret");
    let absolute = secret.to_str().unwrap();
    for path in [
        "../beyond/secret",
        "inner/../../beyond/secret",
        "relative",
        "absolute",
        "folder/secret",
        absolute,
        "/etc/passwd",
    ] {
        assert_eq!(word(&file("reads", path), "error"), NOT_PERMITTED, "{path}");
    }
    assert_eq!(word(&file("reads-nothing", "lamp"), "error"), "999", "no folder at all");
    // Writing where only reading was allowed changes nothing.
    let refused = word(&file("writes-not", "new"), "error");
    assert!(refused == NOT_PERMITTED || refused == "033", "{refused}");
    assert!(!kitchen.room.file("shared/new").exists());
    assert!(file("writes", "new").is_empty());
    assert_eq!(fs::read_to_string(kitchen.room.file("shared/new")).unwrap(), "{}");
    for path in ["../beyond/secret", "relative", "absolute"] {
        assert_eq!(word(&file("writes", path), "error"), NOT_PERMITTED, "{path}");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), r#"{"secret":1}"#);
    // A socket is nobody's.
    let socket = kitchen.say(&named("socket"), "");
    assert!(socket.0.as_ref().map_or(true, |value| value.get("made").is_none()), "{socket:?}");
    kitchen.goes_on("files");

    // The folder itself is replaced: the handler sees the one that lies there now, or none.
    let (here, away) = (kitchen.room.file("shared"), kitchen.room.file("away"));
    fs::rename(&here, &away).unwrap();
    symlink(kitchen.room.state(), &here).unwrap();
    let outcome = kitchen.call(&named("reads"), json!({ "path": "device.key" }));
    assert!(outcome.0.is_err(), "{outcome:?}");
    fs::remove_file(&here).unwrap();
    fs::create_dir(&here).unwrap();
    fs::write(here.join("lamp"), r#"{"lamp":42}"#).unwrap();
    until("the new folder", || {
        let value = kitchen.call(&named("reads"), json!({ "path": "lamp" })).0.ok()?;
        (value.get("lamp").and_then(serde_json::Value::as_u64) == Some(42)).then_some(())
    });
}

/// The engine cannot end a blocked file operation; the end of its process does.
#[test]
fn a_handler_that_waits_for_a_pipe_that_nobody_writes_is_cut_and_its_next_call_runs() {
    let kitchen = Kitchen::with(
        |room, handlers| {
            fs::create_dir(room.file("shared")).unwrap();
            fs::write(room.file("shared/lamp"), r#"{"lamp":40}"#).unwrap();
            mknodat(CWD, room.file("shared/pipe"), FileType::Fifo, Bits::RUSR | Bits::WUSR, 0).unwrap();
            let reach = format!("read = [\"{}\"]", room.file("shared").display());
            handlers.fixture(&named("reads"), "read_file", Mode { reach: &reach, top: "timeout = \"500ms\"", ..PATH });
        },
        |start| start,
    );
    let name = named("reads");
    kitchen.granted(&name);
    assert_eq!(word(&kitchen.call(&name, json!({ "path": "lamp" })).value(), "lamp"), 40);
    // More often than a process has threads for files: one that keeps a stuck thread would have none left.
    for _ in 0..5 {
        let outcome = kitchen.call(&name, json!({ "path": "pipe" }));
        is(&outcome, Timeout, "");
        kitchen.goes_on("a pipe");
    }
    until("it serves again", || (kitchen.call(&name, json!({ "path": "lamp" })).word() == "ok").then_some(()));
}

/// A server that counts who asks.
fn server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            let mut piece = [0; 4096];
            let _ = stream.read(&mut piece);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nlocation: http://127.0.0.1:1/\r\n\r\n");
        }
    });
    (port, asked)
}

#[test]
fn a_handler_asks_the_servers_of_its_reach_and_neither_the_device_nor_anybody_behind_a_name() {
    let (port, asked) = server();
    let (other, never) = server();
    let kitchen = Kitchen::new(|_| ());
    let origin = format!("http = [\"http://127.0.0.1:{port}\"]");
    let authority = Mode { member: "authority", reach: &origin, ..WORD };
    kitchen.takes(&named("asks"), "http_get", authority);
    let ask = |name: &str, authority: String| kitchen.call(&named(name), json!({ "authority": authority }));
    assert_eq!(word(&ask("asks", format!("127.0.0.1:{port}")).value(), "status"), 204);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    for elsewhere in [
        format!("127.0.0.1:{other}"),
        format!("localhost:{port}"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("x@127.0.0.1:{port}"),
        "127.0.0.1".to_owned(),
        kitchen.daemon.direct().to_string(),
    ] {
        let outcome = ask("asks", elsewhere.clone());
        let denied = outcome.0.as_ref().is_ok_and(|value| value.get("error").is_some_and(|error| error != "006"));
        assert!(denied || outcome.code() == Failed, "{elsewhere}: {outcome:?}");
    }
    assert_eq!(word(&ask("asks", format!("127.0.0.1:{other}")).value(), "error"), REQUEST_DENIED);
    assert_eq!((asked.load(Ordering::SeqCst), never.load(Ordering::SeqCst)), (1, 0));

    // A name that leads to this machine: the reach names it, and the address is refused when it is asked.
    let rebinding = format!("http = [\"http://localhost:{port}\"]");
    kitchen.takes(&named("rebinds"), "http_get", Mode { reach: &rebinding, ..authority });
    let outcome = ask("rebinds", format!("localhost:{port}"));
    assert!(outcome.0.as_ref().is_ok_and(|value| value.get("error").is_some()), "{outcome:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    // The device itself, however it is spelled.
    let own = kitchen.daemon.direct().port();
    let display = kitchen.daemon.address().display.clone().expect("a display page");
    let pages = display.trim_end_matches("/display").to_owned();
    for (at, origin) in [
        format!("http://127.0.0.1:{own}"),
        format!("http://localhost:{own}"),
        format!("http://127.0.0.2:{own}"),
        format!("http://[::1]:{own}"),
        format!("https://127.0.0.1:{own}"),
        pages,
    ]
    .iter()
    .enumerate()
    {
        let name = named(&format!("own{at}"));
        let reach = format!("http = [\"{origin}\"]");
        kitchen.handlers.fixture(&name, "http_get", Mode { reach: &reach, ..authority });
        let why = unreachable(&kitchen, &name);
        assert!(why.contains("this device itself"), "{origin}: {why}");
    }
    kitchen.goes_on("requests");
}
