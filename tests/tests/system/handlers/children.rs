//! Processes of handlers: what they have, what happens when one is hurt, and that none is left.

use std::fs;
use std::time::Duration;

use actors::HandlerState;
use latchkey_tests::guests::Mode;
use latchkey_tests::process::Process;
use latchkey_tests::{timed, until};
use rustix::process::Signal;
use serde_json::json;
use wire::ErrorCode::{Busy, Failed, Timeout};

use super::{Kitchen, NEIGHBOUR, WORD, is, named};

/// The processes of handlers that this daemon has now.
fn children(kitchen: &Kitchen) -> Vec<Process> {
    kitchen.daemon.children()
}

/// The process of a handler that has just been called, where no other has one yet.
fn only_child(kitchen: &Kitchen) -> Process {
    until("one child", || {
        let children = children(kitchen);
        (children.len() == 1).then(|| children[0])
    })
}

/// A kitchen whose neighbour sleeps, and one handler that has been called.
fn with_child(fixture: &str, top: &str) -> (Kitchen, String, Process) {
    let name = named(fixture);
    let kitchen = Kitchen::new(|handlers| handlers.fixture(&name, fixture, Mode { top, ..WORD }));
    kitchen.granted(&name);
    until("no compiler", || children(&kitchen).is_empty().then_some(()));
    kitchen.say(&name, "first").value();
    let child = only_child(&kitchen);
    (kitchen, name, child)
}

#[test]
fn a_handlers_process_has_nothing_of_the_device_and_less_than_everybody() {
    let (kitchen, _name, child) = with_child("echo", "");
    let proc = |file: &str| fs::read(format!("/proc/{}/{file}", child.pid)).unwrap();
    assert_eq!(proc("environ"), b"MIMALLOC_ARENA_RESERVE=16MiB\0", "nothing of the environment of the device");
    let held: Vec<_> = fs::read_dir(format!("/proc/{}/fd", child.pid)).unwrap().flatten().collect();
    let mut targets: Vec<_> = held.iter().map(|entry| fs::read_link(entry.path()).unwrap()).collect();
    targets.sort();
    targets.dedup();
    let foreign: Vec<_> = targets
        .iter()
        .filter(|target| {
            let target = target.to_string_lossy();
            !(target.starts_with("pipe:")
                || target == "/dev/null"
                || target.starts_with("anon_inode:")
                || target.starts_with("/memfd:"))
        })
        .collect();
    assert!(foreign.is_empty(), "{targets:?}");
    assert_eq!(targets.iter().filter(|target| target.to_string_lossy().starts_with("pipe:")).count(), 2, "{targets:?}");
    let status = String::from_utf8(proc("status")).unwrap();
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        found.trim().to_owned()
    };
    assert_eq!((line("Seccomp:").as_str(), line("NoNewPrivs:").as_str()), ("2", "1"));
    for set in ["CapEff:", "CapPrm:", "CapInh:"] {
        assert_eq!(line(set).trim_start_matches('0'), "", "{set}");
    }
    let stat = String::from_utf8(proc("stat")).unwrap();
    let nice: i32 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap();
    assert!(nice > 0, "nice {nice}");
    let limits = String::from_utf8(proc("limits")).unwrap();
    for (limit, most) in [("Max data size", 320 << 20), ("Max open files", 256), ("Max core file size", 0)] {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
        let hard: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap_or(u64::MAX);
        assert!(hard <= most, "{limit}: {line}");
    }
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", child.pid)).unwrap(), std::path::Path::new("/"));
    kitchen.goes_on("a look at a child");
}

/// A stopped one counts as one that hangs, a killed one as one that crashed; both are replaced.
#[test]
fn a_child_that_is_killed_or_stopped_harms_its_own_calls_alone() {
    let (kitchen, name, child) = with_child("nap", "timeout = \"2s\"");
    // Killed in the middle of a call.
    kitchen.say(&name, "second").value();
    let running = kitchen.calling(&name, json!({ "word": "third" }));
    let again = kitchen.calling(&name, json!({ "word": "fourth" }));
    child.signal(Signal::KILL);
    let outcome = running.join().unwrap();
    // The fourth may have come first, and have taken the process with it.
    if let Err(refusal) = &outcome.0 {
        assert!(matches!(refusal.error, Failed | Busy), "{refusal}");
    }
    drop(again.join().unwrap());
    kitchen.goes_on("a killed child");
    until("it serves again", || (kitchen.say(&name, "fifth").word() == "ok").then_some(()));
    assert!(child.is_gone());

    // Killed while it rests: nobody's call is hurt for good.
    let rested = children(&kitchen);
    for child in &rested {
        child.signal(Signal::KILL);
    }
    until("both serve again", || {
        let words = (kitchen.say(&name, "sixth").word(), kitchen.say(NEIGHBOUR, "sixth").word());
        (words == ("ok", "ok")).then_some(())
    });

    // Stopped: cut at its own time, ended, replaced.
    for child in children(&kitchen) {
        child.signal(Signal::STOP);
    }
    let stopped = children(&kitchen);
    let (outcome, took) = timed(|| kitchen.say(&name, "seventh"));
    assert!(took < Duration::from_secs(5), "{took:?}");
    is(&outcome, Timeout, "");
    assert!(kitchen.standing(&name).last_error.is_some());
    until("both serve again", || {
        let words = (kitchen.say(&name, "eighth").word(), kitchen.say(NEIGHBOUR, "eighth").word());
        (words == ("ok", "ok")).then_some(())
    });
    until("the stopped ones are gone", || stopped.iter().all(Process::is_gone).then_some(()));
    assert_eq!(kitchen.standing(&name).state, HandlerState::Ready);
    kitchen.goes_on("a stopped child");
}

#[test]
fn no_more_than_eight_children_live_at_once_and_none_is_left_when_the_daemon_ends_either_way() {
    let names: Vec<_> = (0..12).map(|at| named(&format!("echo{at}"))).collect();
    let mut kitchen = Kitchen::new(|handlers| {
        for name in &names {
            handlers.fixture(name, "echo", WORD);
        }
        handlers.fixture(&named("sleep"), "sleep", Mode { top: "timeout = \"20s\"", ..WORD });
    });
    for name in &names {
        kitchen.granted(name);
        kitchen.say(name, "").value();
        assert!(children(&kitchen).len() <= 8, "{:?}", children(&kitchen));
    }
    assert_eq!(children(&kitchen).len(), 8);
    assert_eq!(zombies(kitchen.daemon.pid()), 0);
    let before = children(&kitchen);
    assert_eq!(kitchen.daemon.stop(), 0);
    assert!(before.iter().all(Process::is_gone), "{before:?}");

    // The same folders again; now it is killed in the middle of a call.
    let Kitchen { daemon: _, agent, handlers, room } = kitchen;
    let daemon = latchkey_tests::Start::simulated(&room).up();
    let mut kitchen = Kitchen { daemon, agent, handlers, room };
    kitchen.granted(&named("sleep"));
    let asleep = {
        let (line, agent) = (kitchen.line(), &kitchen.agent);
        let mut wire = line.connect();
        let request = latchkey_tests::agent::invoke(&named("sleep"), json!({}));
        let sealed = agent.seal(&line.device, latchkey_tests::agent::fresh_id(), wire.challenge(), &request);
        let bytes = wire.request(&sealed);
        wire.send(&bytes).unwrap();
        wire
    };
    kitchen.goes_on("before it is killed");
    let running = until("its child", || {
        let children = children(&kitchen);
        (children.len() == 2).then_some(children)
    });
    kitchen.daemon.kill();
    until("its children die with it", || running.iter().all(Process::is_gone).then_some(()));
    drop(asleep);
}

/// Children of this process that ended and were not waited for.
fn zombies(parent: u32) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let is = |stat: &String| {
        let mut fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        fields.next() == Some("Z") && fields.next() == Some(&*parent.to_string())
    };
    stats.filter(is).count()
}

/// Whoever writes into the cache would run code as the device, so a byte that is not ours is noticed before anything is mapped.
#[test]
fn native_code_with_a_flipped_byte_or_another_handlers_name_is_noticed_and_made_anew() {
    let other = named("counting");
    let kitchen = Kitchen::new(|handlers| handlers.fixture(&other, "counting", WORD));
    kitchen.granted(&other);
    kitchen.goes_on("from the first compile");
    kitchen.say(&other, "").value();
    let Kitchen { mut daemon, agent, handlers, room } = kitchen;
    assert_eq!(daemon.stop(), 0);
    let cache = room.state().join("cache");
    let mut entries: Vec<_> = fs::read_dir(&cache).unwrap().flatten().map(|entry| entry.path()).collect();
    entries.retain(|path| fs::metadata(path).unwrap().len() > 4096);
    assert_eq!(entries.len(), 2, "{entries:?}");
    let good: Vec<_> = entries.iter().map(|path| fs::read(path).unwrap()).collect();

    // One byte in the middle of one, and the whole of it in place of the other.
    let mut flipped = good[0].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(&entries[0], &flipped).unwrap();
    fs::write(&entries[1], &good[0]).unwrap();
    let daemon = latchkey_tests::Start::simulated(&room).up();
    let kitchen = Kitchen { daemon, agent, handlers, room };
    kitchen.ready(NEIGHBOUR);
    kitchen.ready(&other);
    kitchen.goes_on("after a flipped byte");
    assert_eq!(super::word(&kitchen.say(&other, "").value(), "calls"), 1);
    for (path, bytes) in entries.iter().zip(&good) {
        let now = fs::read(path).unwrap();
        assert_ne!(now, flipped);
        assert_eq!(now.len(), bytes.len(), "made anew: {}", path.display());
    }
    let noticed =
        kitchen.daemon.err.all().iter().filter(|line| line.contains("WARN") && line.contains("native code")).count();
    assert_eq!(noticed, 2, "{:#?}", kitchen.daemon.err.all());
}
