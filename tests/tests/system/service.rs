//! `latchkeyd` as a service: it drains when told to stop, tells the service manager how it is, and takes orders on its socket from
//! nobody who cannot say them properly.

#![allow(clippy::disallowed_methods, reason = "how soon a program ends is measured in real time")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use latchkey_tests::agent::{fresh_id, invoke};
use latchkey_tests::keeper::short;
use latchkey_tests::programs::{command, program, run};
use latchkey_tests::{Agent, Room, SOON, Start};
use runtime::keeper::ask::ASK_BYTES_MAX;
use rustix::process::Signal;
use serde_json::json;

/// A capture takes a tenth of a second; on a busy machine the signal may come after it, and then it is tried again.
const TRIES: usize = 20;

#[test]
fn sigterm_lets_running_work_end_closes_its_records_and_exits_0() {
    let room = Room::new();
    let owner = Agent::default();
    let drained = (0..TRIES).any(|_| {
        let mut daemon = Start::simulated(&room).up();
        let (line, keeper) = (daemon.line(), daemon.keeper());
        if keeper.status().owner.is_none() {
            owner.settle(&line, &keeper, &["camera"]);
        }
        owner.activate(&line, 60_000);
        let (id, before) = (fresh_id(), keeper.last());
        let sealed = owner.seal(&line.device, id, line.challenge(), &invoke("camera.snapshot", json!({})));
        let asking = std::thread::spawn({
            let line = line.clone();
            move || line.post(&sealed).outcome(&line.device)
        });
        daemon.out.await_line("uses camera.snapshot");
        assert_eq!(daemon.stop(), 0);
        let value = asking.join().unwrap().value();
        assert!(value.get("data").is_some(), "the picture came");
        let printed = daemon.out.all();
        let at = |words: &str| printed.iter().position(|line| line.contains(words));
        assert!(at("stopped").is_some(), "{printed:#?}");

        let receipts = room.latchkeyd(&["receipts", "--json"]).well().json();
        let records: Vec<_> =
            receipts.as_array().unwrap().iter().filter(|record| record["sequence"].as_u64() > Some(before)).collect();
        let outcomes: Vec<_> =
            records.iter().map(|record| (record["kind"].as_str().unwrap(), record["outcome"].as_str())).collect();
        assert_eq!(outcomes, [("call", None), ("call", Some("ok")), ("sign", None)], "{records:#?}");
        assert!(
            records[2]["sign_off_at"].as_u64() >= records[2]["sign_on_at"].as_u64().map(|on| on + 2_900),
            "{records:#?}"
        );
        assert_eq!(records[2]["id"], id.to_string());
        room.latchkeyd(&["receipts", "--verify"]).well();
        at("stopping; running work has ten seconds") < at("camera.snapshot: ok")
    });
    assert!(drained, "no capture ran long enough to be told to stop in {TRIES} tries");
}

#[test]
fn a_second_signal_ends_it_at_once_and_the_next_start_closes_the_records() {
    let room = Room::new();
    let owner = Agent::default();
    let mut daemon = Start::simulated(&room).up();
    let line = daemon.line();
    owner.settle(&line, &daemon.keeper(), &["camera"]);
    owner.call(&line, "camera.snapshot", json!({})).value();
    // The sign stays on for three seconds, and the end waits for it.
    daemon.signal(Signal::TERM);
    daemon.out.await_line("stopping");
    let began = Instant::now();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    daemon.out.await_line("stopped at once");
    let next = Start::simulated(&room).up();
    let records: Vec<_> = next.keeper().records(0).iter().map(short).collect();
    assert!(records.contains(&"call camera.snapshot ok".to_owned()), "{records:#?}");
    next.keeper().verify();
}

#[test]
fn sigint_ends_it_as_sigterm_does_and_the_socket_goes_with_it() {
    let room = Room::new();
    let mut daemon = Start::simulated(&room).up();
    let socket = room.state().join("latchkeyd.sock");
    assert!(socket.exists());
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!socket.exists());
    let status = room.latchkeyd(&["status", "--json"]).well().json();
    assert_eq!((&status["running"], &status["pid"], &status["address"]), (&json!(false), &json!(null), &json!(null)));
}

#[test]
fn the_service_manager_is_told_ready_alive_reloading_and_stopping() {
    let room = Room::new();
    let socket = UnixDatagram::bind(room.file("notify")).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let heard = || {
        let mut bytes = [0; 4096];
        let read = socket.recv(&mut bytes).expect("it says something");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    let hear = |word: &str| loop {
        let said = heard();
        if said.lines().any(|line| line == word) {
            return said;
        }
        assert!(said.contains("WATCHDOG=1"), "{said} in place of {word}");
    };
    let mut daemon =
        Start::simulated(&room).env("NOTIFY_SOCKET", room.file("notify")).env("WATCHDOG_USEC", "200000").up();
    hear("READY=1");
    for _ in 0..3 {
        hear("WATCHDOG=1");
    }
    let _answers = daemon.line().challenge();
    daemon.signal(Signal::HUP);
    assert!(hear("RELOADING=1").contains("MONOTONIC_USEC="));
    hear("READY=1");
    daemon.signal(Signal::TERM);
    hear("STOPPING=1");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_claim_is_announced_in_the_terminal_with_the_commands_that_work_as_they_stand() {
    let room = Room::new();
    let daemon = Start::simulated(&room).set("device.name=kitchen").up();
    // Every command that the terminal names is run as a person would: copied from there.
    let copied = |line: &str| {
        let ordered =
            line.find("latchkeyd").map(|at| line[at..].split("   ").next().unwrap().to_owned()).expect("a command");
        let programs = program("latchkeyd").parent().unwrap().to_owned();
        let mut shell = command(&room, Path::new("/bin/sh"));
        shell.args(["-c", &ordered]).env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        shell.env_remove("LATCHKEY_STATE_DIR").env_remove("LATCHKEY_CONFIG_DIR");
        run(shell).well()
    };
    let paired = copied(&daemon.out.await_line("nobody yet; to pair it"));
    let link = paired.out.split_whitespace().find(|word| word.starts_with("http://")).expect("a link").to_owned();
    room.latchkey(&["agent", "new", "helper@home.example.org"]).well();
    let asked = room.latchkey(&["claim", &link, "--name", "kitchen", "--no-wait", "--json"]).well().json();
    daemon.out.await_line("helper@home.example.org wants to own this device");
    assert!(daemon.out.await_line("code ").contains(asked["code"].as_str().unwrap()));
    copied(&daemon.out.await_line("approve "));
    daemon.out.await_line("helper@home.example.org owns this device now");
    room.latchkey(&["health", "kitchen"]).well();
    // The same at the other side: the refusal names the command that mends it.
    let refused = room
        .latchkey(&["snapshot", "kitchen", "-o", "a.jpg"])
        .refused(3, &["at the device run: latchkeyd grant camera"]);
    let mend = refused.err.trim_end().rsplit_once("latchkeyd ").unwrap().1.to_owned();
    room.latchkeyd(&mend.split(' ').collect::<Vec<_>>()).well();
    room.latchkey(&["snapshot", "kitchen", "-o", "a.jpg"]).well();
}

/// Sends bytes to the command socket and gives the answer line, empty when there was none.
fn said_to(room: &Room, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(room.state().join("latchkeyd.sock")).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // A line too long is not read to its end.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _ = BufReader::new(stream).read_line(&mut answer);
    answer
}

#[test]
fn the_command_socket_refuses_garbage_and_long_lines_and_goes_on() {
    let room = Room::new();
    let daemon = Start::simulated(&room).up();
    let before = daemon.keeper().last();
    let status = br#"{"ask":"house","command":{"command":"status"}}"#;
    let padded = |length: usize| [status.as_slice(), &vec![b' '; length - status.len()], b"\n"].concat();
    let rows: &[(&str, Vec<u8>, &str)] = &[
        ("garbage", b"\xff\xfe\0\n".to_vec(), "not a command"),
        ("no JSON", b"status\n".to_vec(), "not a command"),
        ("another command", br#"{"ask":"house","command":{"command":"grant_all"}}"#.iter().copied().chain(*b"\n").collect(), "not a command"),
        ("a member too many", br#"{"ask":"house","command":{"command":"grant","name":"camera","force":true}}"#.iter().copied().chain(*b"\n").collect(), "not a command"),
        ("a line too long", padded(ASK_BYTES_MAX + 8 * 1024), "one line of at most"),
        ("no end of line", status.to_vec(), ""),
        ("nothing", Vec::new(), ""),
    ];
    for (name, bytes, words) in rows {
        let answer = said_to(&room, bytes);
        assert!(answer.contains(words) && !answer.contains("\"status\""), "{name}: {answer}");
        let control = said_to(&room, &padded(ASK_BYTES_MAX - 8));
        assert!(control.contains(r#""told":"house""#), "after {name}: {control}");
    }
    assert_eq!(daemon.keeper().last(), before, "nothing was done");
}

#[test]
fn many_idle_talks_on_the_command_socket_are_cut_off_and_the_keeper_gets_through_after_them() {
    let room = Room::new();
    let daemon = Start::simulated(&room).up();
    let idle: Vec<_> = (0..40).map(|_| UnixStream::connect(room.state().join("latchkeyd.sock")).unwrap()).collect();
    // Those beyond the places are closed at once, so that a flood is noticed by who makes it.
    daemon.err.await_line("too many connections");
    let _answers = daemon.line().challenge();
    drop(idle);
    let status = latchkey_tests::until("a place on the socket", || {
        let ended = room.latchkeyd(&["status", "--json"]);
        (ended.code() == 0).then(|| ended.json())
    });
    assert_eq!(status["running"], json!(true));
}
