//! Guests that misbehave while they are called, each with what its caller is told and what the keeper sees; and limits that act.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use actors::HandlerState;
use latchkey_tests::guests::{Mode, saying, sized};
use latchkey_tests::{timed, until};
use serde_json::json;
use wire::ErrorCode::{self, Failed, HardwareUnavailable, Timeout};

use super::{Kitchen, WORD, is, named, word};

/// A short time for what would never end.
const BRIEF: &str = "timeout = \"400ms\"";

/// A guest, more lines of its manifest, the code and words for the caller, and the words for the keeper.
struct Row(&'static str, &'static str, ErrorCode, &'static str, &'static str);

/// What misbehaves, in the order of the cases.
const ROWS: &[Row] = &[
    // M1, and M6: the time covers calls of the host.
    Row("loop", BRIEF, Timeout, "", "cut off after 400 ms"),
    Row("sleep", BRIEF, Timeout, "", "cut off after 400 ms"),
    Row("log_for_ever", BRIEF, Timeout, "", "cut off after 400 ms"),
    // M2.
    Row("grow_memory_for_ever", BRIEF, Timeout, "", "cut off after 400 ms"),
    Row("grow_memory", "", Failed, "memory limit: 32 MiB", "memory limit: 32 MiB"),
    Row("grow_table", "", Failed, "table limit", "table limit"),
    // M3.
    Row("recursion", "", Failed, "call stack exhausted", "call stack exhausted"),
    Row("recursion_with_log", "", Failed, "call stack exhausted", "call stack exhausted"),
    Row("recursion_in_host", "", Failed, "trapped", "trapped"),
    // M4.
    Row("loop_in_start", BRIEF, Timeout, "", "cut off after 400 ms"),
    Row("trap_in_start", "", Failed, "unreachable", "unreachable"),
    Row("recursion_in_start", "", Failed, "call stack exhausted", "call stack exhausted"),
    Row("grow_in_start", "", Failed, "memory limit", "memory limit"),
    // M5.
    Row("result_beyond_memory", "", Failed, "out of bounds", "out of bounds"),
    Row("result_length_minus_1", "", Failed, "out of bounds", "out of bounds"),
    Row("result_2_gib", "", Failed, "out of bounds", "out of bounds"),
    Row("result_8_mib", "", Failed, "copy limit", "copy limit"),
    Row("result_address_odd", "", Failed, "aligned", "aligned"),
    Row("result_tag_7", "", Failed, "discriminant", "discriminant"),
    Row("realloc_beyond", "", Failed, "beyond", "beyond"),
    Row("error_8_mib", "", Failed, "copy limit", "copy limit"),
    Row("log_8_mib", "", Failed, "copy limit", "copy limit"),
    Row("log_length_minus_1", "", Failed, "out of bounds", "out of bounds"),
    // A handler that says in its own words that it failed; the device names it as such.
    Row("failing", "", Failed, "no_lamp: the lamp does not answer", "no_lamp: the lamp does not answer"),
];

/// Results that are no JSON object of at most 16 levels.
fn results() -> [(&'static str, String, &'static str); 8] {
    let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    [
        ("not_json", "lamp".to_owned(), "no JSON object"),
        ("array", "[1]".to_owned(), "no JSON object"),
        ("null", "null".to_owned(), "no JSON object"),
        ("nothing", String::new(), "no JSON object"),
        ("two", "{} {}".to_owned(), "no JSON object"),
        ("twice", r#"{"a":1,"a":2}"#.to_owned(), "no JSON object"),
        ("nested", nested(17), "no JSON object"),
        ("bom", "\u{feff}{}".to_owned(), "no JSON object"),
    ]
}

#[test]
fn a_guest_that_misbehaves_ends_its_own_call_and_nothing_else() {
    let kitchen = Kitchen::new(|handlers| {
        for Row(guest, top, ..) in ROWS {
            handlers.fixture(&named(guest), guest, Mode { top, ..WORD });
        }
        for (name, text, _) in &results() {
            handlers.handler(&named(name), &saying(text.as_bytes()), WORD);
        }
        handlers.handler(&named("not_utf8"), &saying(b"{\"a\":\"\xff\xfe\"}"), WORD);
        for bytes in [65_536, 65_537] {
            handlers.handler(&named(&format!("sized-{bytes}")), &sized(bytes), WORD);
        }
    });
    let pid = kitchen.daemon.pid();
    let rows = ROWS.iter().map(|Row(guest, _, code, caller, keeper)| (*guest, *code, *caller, *keeper));
    let results = results();
    let results = results.iter().map(|(name, _, words)| (*name, Failed, *words, *words));
    let more = [
        ("not_utf8", Failed, "no JSON object", "no JSON object"),
        ("sized-65537", Failed, "result limit: 64 KiB", "result limit: 64 KiB"),
    ];
    let before = memory_kib(pid);
    for (guest, code, caller, keeper) in rows.chain(results).chain(more) {
        let name = named(guest);
        kitchen.granted(&name);
        let (outcome, took) = timed(|| kitchen.say(&name, guest));
        assert!(took < Duration::from_secs(3), "{guest} took {took:?}");
        is(&outcome, code, caller);
        let standing = kitchen.standing(&name);
        let said = standing.last_error.clone().unwrap_or_default();
        assert!(said.contains(keeper), "{guest}: no \"{keeper}\" in {standing:?}");
        assert_eq!(standing.state, HandlerState::Ready, "{guest}: one fault is forgiven");
        kitchen.goes_on(guest);
    }
    // M5: a result of exactly the limit.
    let name = named("sized-65536");
    kitchen.granted(&name);
    assert_eq!(word(&kitchen.say(&name, "").value(), "a").as_str().map(str::len), Some(65_536 - 8));
    // M2, M5: what the guests asked for was never given by the host.
    let (resident, reserved) = memory_kib(pid);
    assert!(resident < before.0 + 48 * 1024, "resident memory grew from {} to {resident} KiB", before.0);
    assert!(reserved < before.1 + 1024 * 1024, "address space grew from {} to {reserved} KiB", before.1);
}

/// The most memory that a process had, resident and reserved.
fn memory_kib(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    (line("VmHWM:"), line("VmPeak:"))
}

/// M1.
#[test]
fn twice_as_many_loops_as_cores_are_all_cut_while_health_and_a_neighbour_answer() {
    let loops = 2 * thread::available_parallelism().unwrap().get();
    let name = |at: usize| named(&format!("loop{at}"));
    let top = "timeout = \"1s\"";
    let kitchen = Kitchen::new(|handlers| {
        for at in 0..loops {
            handlers.fixture(&name(at), "loop", Mode { top, ..WORD });
        }
    });
    for at in 0..loops {
        kitchen.granted(&name(at));
    }
    kitchen.goes_on("before");
    let running: Vec<_> = (0..loops)
        .map(|at| {
            let call = kitchen.calling(&name(at), json!({}));
            thread::spawn(move || timed(|| call.join().unwrap()))
        })
        .collect();
    let mut asked = 0;
    while !running.iter().all(thread::JoinHandle::is_finished) {
        kitchen.goes_on("while they loop");
        asked += 1;
    }
    assert!(asked > 3, "only {asked} times asked");
    for running in running {
        let (outcome, took) = running.join().unwrap();
        is(&outcome, Timeout, "");
        assert!(took < Duration::from_secs(2), "cut after {took:?}");
    }
}

/// M7: a broken instance is never used again; what goes on crashing is given up, alone, until the keeper presses.
#[test]
fn a_call_after_a_trap_has_a_new_instance_and_a_handler_that_keeps_trapping_is_given_up_alone() {
    let kitchen = Kitchen::new(|handlers| {
        handlers.fixture(&named("boom"), "boom", WORD);
        handlers.fixture(&named("counting"), "counting", WORD);
    });
    let (boom, counting) = (named("boom"), named("counting"));
    kitchen.granted(&boom);
    kitchen.granted(&counting);
    is(&kitchen.say(&boom, "boom"), Failed, "unreachable");
    assert_eq!(word(&kitchen.say(&boom, "calm").value(), "word"), "calm");
    for _ in 0..3 {
        assert_eq!(word(&kitchen.say(&counting, "").value(), "calls"), 1, "every call has an instance of its own");
    }
    // A good call between forgives; three traps in a row do not stand.
    until("given up", || {
        let outcome = kitchen.say(&boom, "boom");
        assert!(outcome.0.is_err(), "{outcome:?}");
        (kitchen.standing(&boom).state == HandlerState::Unavailable).then_some(())
    });
    let standing = kitchen.standing(&boom);
    assert!(standing.restarts >= 5 && standing.last_error.is_some(), "{standing:?}");
    is(&kitchen.say(&boom, "calm"), HardwareUnavailable, &format!("latchkeyd restart {boom}"));
    kitchen.goes_on("given up");
    // A daemon that starts with the culprit in its folder starts, and gives it a new chance.
    let kitchen = kitchen.again();
    kitchen.ready(&boom);
    assert_eq!(word(&kitchen.say(&boom, "calm").value(), "word"), "calm");
    kitchen.goes_on("after a restart");
    until("given up again", || {
        assert!(kitchen.say(&boom, "boom").0.is_err());
        (kitchen.standing(&boom).state == HandlerState::Unavailable).then_some(())
    });
    kitchen.room.latchkeyd(&["restart", &boom]).well();
    until("back", || (kitchen.say(&boom, "calm").word() == "ok").then_some(()));
}

/// M11: a manifest's own limits act, in both directions.
#[test]
fn the_limits_of_a_manifest_act_and_not_the_usual_ones() {
    let kitchen = Kitchen::new(|handlers| {
        handlers.fixture(&named("short"), "long_nap", Mode { top: "timeout = \"300ms\"", ..WORD });
        handlers.fixture(&named("usual"), "long_nap", WORD);
        handlers.fixture(&named("small"), "memory_48_mib", WORD);
        handlers.fixture(
            &named("large"),
            "memory_48_mib",
            Mode { top: "memory = \"64MiB\"\ntimeout = \"5s\"", ..WORD },
        );
        handlers.handler(&named("wordy"), &sized(65_537), Mode { top: "result_bytes_max = 65537", ..WORD });
        handlers.handler(&named("curt"), &sized(1_001), Mode { top: "result_bytes_max = 1000", ..WORD });
    });
    for name in ["short", "usual", "small", "large", "wordy", "curt"] {
        kitchen.granted(&named(name));
    }
    let (outcome, took) = timed(|| kitchen.say(&named("short"), ""));
    is(&outcome, Timeout, "");
    assert!(took < Duration::from_millis(650), "{took:?}");
    kitchen.say(&named("usual"), "").value();
    kitchen.say(&named("large"), "").value();
    assert_eq!(word(&kitchen.say(&named("wordy"), "").value(), "a").as_str().map(str::len), Some(65_537 - 8));
    is(&kitchen.say(&named("curt"), ""), Failed, "result limit: 1000 bytes");
    is(&kitchen.say(&named("small"), ""), Failed, "memory limit: 32 MiB");
    let standing = kitchen.standing(&named("large"));
    assert_eq!((standing.memory_bytes, standing.timeout_ms), (Some(64 << 20), Some(5_000)));
}

#[test]
fn lines_that_a_handler_logs_are_kept_for_the_keeper_alone_in_a_form_that_deceives_nobody() {
    let kitchen = Kitchen::new(|handlers| {
        handlers.fixture(&named("log_levels"), "log_levels", WORD);
        handlers.fixture(&named("log_100"), "log_100", WORD);
    });
    for name in ["log_levels", "log_100"] {
        kitchen.granted(&named(name));
        kitchen.say(&named(name), "").value();
    }
    let lines = kitchen.log(&named("log_levels"));
    let levels: Vec<_> = lines.iter().map(|line| serde_json::to_value(line.level).unwrap()).collect();
    assert_eq!(levels, [json!("debug"), json!("info"), json!("warn"), json!("error")]);
    let shown = kitchen.room.latchkeyd(&["handlers", "log", &named("log_levels")]).well();
    assert!(shown.out.contains("lamp") && !shown.out.contains('\u{1b}'), "{shown:?}");
    assert_eq!(shown.out.lines().count(), 4, "{shown:?}");
    let lines = kitchen.log(&named("log_100"));
    assert_eq!((lines.len(), lines[63].text.as_str()), (65, "lamp"));
    assert!(lines[64].text.contains("36 more"), "{:?}", lines[64]);
    // Beyond the last 256 lines nothing is kept, however often it is called.
    for _ in 0..4 {
        kitchen.say(&named("log_100"), "").value();
    }
    assert_eq!(kitchen.log(&named("log_100")).len(), 256);
}

/// One call at a time and a queue of four, for each handler.
#[test]
fn a_handler_that_is_busy_refuses_what_its_queue_cannot_hold_and_holds_up_nobody() {
    let kitchen = Kitchen::new(|handlers| {
        handlers.fixture(&named("long_nap"), "long_nap", Mode { top: "timeout = \"10s\"", ..WORD });
    });
    kitchen.granted(&named("long_nap"));
    kitchen.say(&named("long_nap"), "warm").value();
    let calls: Vec<_> = (0..9).map(|_| kitchen.calling(&named("long_nap"), json!({}))).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                kitchen.goes_on("beside a queue");
            }
        });
        let mut words: Vec<_> = calls.into_iter().map(|call| call.join().unwrap().word()).collect();
        over.store(true, Ordering::Relaxed);
        words.sort_unstable();
        assert_eq!(words, [["busy"; 4].as_slice(), &["ok"; 5]].concat());
    });
}

/// M12.
#[test]
fn health_names_the_engine_and_its_version() {
    let kitchen = Kitchen::new(|_| ());
    let health = kitchen.call("device.health", json!({})).value();
    let named = word(&health, "handlers").to_string();
    assert!(named.contains("wasmtime 48."), "{named}");
}
