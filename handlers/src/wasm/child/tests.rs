//! Good and bad guests in the real engine, without the confinement: what the other side of the pipe is told about each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests; a conversation has a thread at its other end, and the clock is looked at from outside"
)]

mod bad;
mod reach;

use std::io::{PipeReader, PipeWriter};
use std::path::PathBuf;
use std::thread::JoinHandle;

use super::guest::Folders;
use super::{Setting, serve};
use crate::wasm::confine::Confinement;
use crate::wasm::frame::{
    CallFrame, Compiled, Done, Ended, FROM_CHILD_BYTES_MAX, FROM_COMPILER_BYTES_MAX, FrameError, FromChild, Role,
    Start, TO_CHILD_BYTES_MAX, ToChild, VERSION, read, write,
};
use guests::text;

#[path = "../../../../tests/src/guests/mod.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "one set of guests for all tests; the whole device is tested with the rest of it"
)]
mod guests;

/// Time for a call that ends by itself: not reached.
const AMPLE_MS: u64 = 10_000;
/// Time for a call that does not.
const BRIEF_MS: u64 = 50;
const MIB: usize = 1024 * 1024;

/// The other end of a conversation.
struct Talk {
    to: Option<PipeWriter>,
    from: PipeReader,
    engine: String,
    child: Option<JoinHandle<Result<(), FrameError>>>,
    calls: u64,
}

/// What differs from the usual.
#[derive(Clone, Default)]
struct Terms {
    memory_bytes: Option<usize>,
    result_bytes_max: Option<usize>,
    folders: Vec<(PathBuf, String, bool)>,
    http: bool,
}

impl Talk {
    fn begin(role: Role, terms: &Terms) -> Self {
        let (theirs, to) = std::io::pipe().unwrap();
        let (mut from, mut output) = std::io::pipe().unwrap();
        let start = Start {
            version: VERSION,
            role,
            folders: Vec::new(),
            http: terms.http,
            memory_bytes: terms.memory_bytes.unwrap_or(32 * MIB),
            result_bytes_max: terms.result_bytes_max.unwrap_or(64 * 1024),
            accept_weak: false,
        };
        let folders = Folders::open(&terms.folders).unwrap();
        let confinement = Confinement { landlock_abi: None, seccomp: false };
        let setting = Setting { start, confinement, folders, seal: || Ok(()) };
        let child = std::thread::spawn(move || serve(theirs, &mut output, setting));
        let FromChild::Ready { engine, .. } = read(&mut from, FROM_CHILD_BYTES_MAX).unwrap() else {
            panic!("not ready")
        };
        Self { to: Some(to), from, engine, child: Some(child), calls: 0 }
    }

    /// A handler that waits for calls.
    fn load(text: &str, terms: &Terms) -> Self {
        let native = compile(text.as_bytes(), true).unwrap().native;
        let mut talk = Self::begin(Role::Run, terms);
        talk.say(&ToChild::Load { native });
        assert!(matches!(talk.hear(), FromChild::Loaded));
        talk
    }

    fn say(&mut self, message: &ToChild) {
        write(self.to.as_mut().unwrap(), message, TO_CHILD_BYTES_MAX).unwrap();
    }

    fn hear(&mut self) -> FromChild {
        read(&mut self.from, FROM_COMPILER_BYTES_MAX).unwrap()
    }

    /// Begins a call; its number.
    fn ask(&mut self, arguments: &str, within_ms: u64) -> u64 {
        self.calls += 1;
        let number = self.calls;
        self.say(&ToChild::Call(CallFrame { number, arguments: arguments.as_bytes().to_vec(), within_ms }));
        number
    }

    fn done(&mut self) -> Done {
        match self.hear() {
            FromChild::Done(done) => done,
            other => panic!("not the end of a call: {other:?}"),
        }
    }

    fn call(&mut self, arguments: &str, within_ms: u64) -> Done {
        let number = self.ask(arguments, within_ms);
        let done = self.done();
        assert_eq!(done.number, number);
        done
    }

    /// Input ends, and with it the conversation.
    fn end(mut self) -> Result<(), FrameError> {
        drop(self.to.take());
        self.child.take().unwrap().join().unwrap()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        drop(self.to.take());
        if let Some(child) = self.child.take() {
            let _ = child.join();
        }
    }
}

fn compile(source: &[u8], text: bool) -> Result<Compiled, String> {
    let mut talk = Talk::begin(Role::Compile, &Terms::default());
    talk.say(&ToChild::Compile { source: source.to_vec(), text });
    let answer = talk.hear();
    talk.end().unwrap();
    match answer {
        FromChild::Compiled(compiled) => Ok(compiled),
        FromChild::Refused { why } => Err(why),
        other => panic!("not a compiler's answer: {other:?}"),
    }
}

fn said(ended: &Ended) -> &str {
    match ended {
        Ended::Value(bytes) => std::str::from_utf8(bytes).unwrap(),
        other => panic!("not a result: {other:?}"),
    }
}

#[test]
fn a_handler_answers_call_after_call_and_the_process_ends_with_its_input() {
    let mut talk = Talk::load(&text("echo"), &Terms::default());
    for arguments in [r#"{"level":40}"#, "{}", r#"{"level":41}"#] {
        let done = talk.call(arguments, AMPLE_MS);
        assert_eq!(said(&done.ended), arguments);
        assert_eq!(done.memory_bytes, 128 * 1024, "two pages");
        assert_eq!((done.log.len(), done.log_dropped), (0, 0));
    }
    talk.end().unwrap();
}

#[test]
fn nothing_of_a_call_is_there_in_the_next() {
    let mut talk = Talk::load(&text("counting"), &Terms::default());
    for _ in 0..3 {
        assert_eq!(said(&talk.call("{}", AMPLE_MS).ended), r#"{"calls":1}"#);
    }
}

#[test]
fn a_probe_says_that_it_is_ready_and_ends() {
    let mut talk = Talk::begin(Role::Probe, &Terms::default());
    talk.child.take().unwrap().join().unwrap().unwrap();
}

#[test]
fn every_process_has_the_same_engine_and_names_its_version() {
    let names = [Role::Probe, Role::Compile, Role::Run].map(|role| Talk::begin(role, &Terms::default()).engine.clone());
    assert_eq!(names[0], names[1]);
    assert_eq!(names[0], names[2]);
    let locked = include_str!("../../../../Cargo.lock")
        .split("[[package]]")
        .find(|package| package.contains("\nname = \"wasmtime\"\n"));
    assert!(locked.unwrap().contains(&format!("version = \"{}\"", super::engine::WASMTIME)));
    assert!(names[0].starts_with(&format!("wasmtime {} ", super::engine::WASMTIME)), "{}", names[0]);
}

#[test]
fn the_log_is_kept_with_its_levels_up_to_64_lines_of_1_kib() {
    use crate::wasm::log::Level;
    let mut talk = Talk::load(&text("log_levels"), &Terms::default());
    let levels: Vec<Level> = talk.call("{}", AMPLE_MS).log.into_iter().map(|(level, _)| level).collect();
    assert_eq!(levels, [Level::Debug, Level::Info, Level::Warn, Level::Error]);

    let done = Talk::load(&text("log_100"), &Terms::default()).call("{}", AMPLE_MS);
    assert_eq!((done.log.len(), done.log_dropped), (64, 36));

    for (bytes, kept) in [(1024, 1024), (1025, 1024), (60_000, 1024)] {
        let long = text("log_8_mib").replace("(i32.const 8388608)", &format!("(i32.const {bytes})"));
        let done = Talk::load(&long, &Terms::default()).call("{}", AMPLE_MS);
        assert_eq!(done.log[0].1.len(), kept, "of {bytes}");
    }
}

#[test]
fn a_text_is_cut_between_characters() {
    for (text, most, left) in
        [("lamp", 4, "lamp"), ("lamp", 3, "lam"), ("aé", 2, "a"), ("aé", 3, "aé"), ("é", 1, ""), ("", 4, "")]
    {
        assert_eq!(super::guest::cut(text, most), left);
    }
}

#[test]
fn a_guest_that_failed_says_so_in_its_own_words() {
    let failed = Ended::Failed { code: "no_lamp".to_owned(), message: "the lamp does not answer".to_owned() };
    assert_eq!(Talk::load(&text("failing"), &Terms::default()).call("{}", AMPLE_MS).ended, failed);
}

#[test]
fn a_cancelled_call_ends_at_once_and_the_next_is_served() {
    let mut talk = Talk::load(&text("sleep"), &Terms::default());
    let number = talk.ask("{}", AMPLE_MS);
    talk.say(&ToChild::Cancel { number: number + 1 });
    talk.say(&ToChild::Cancel { number });
    assert_eq!(talk.done().ended, Ended::Cancelled);
    // A cancel that comes too late belongs to nobody.
    talk.say(&ToChild::Cancel { number });
    assert_eq!(talk.call("{}", BRIEF_MS).ended, Ended::TimedOut);
}

#[test]
fn the_end_of_input_ends_the_process_while_a_guest_loops_or_sleeps() {
    for guest in ["loop", "loop_in_start", "sleep", "log_for_ever"] {
        let mut talk = Talk::load(&text(guest), &Terms::default());
        talk.ask("{}", AMPLE_MS);
        let began = std::time::Instant::now();
        talk.end().unwrap();
        assert!(began.elapsed().as_millis() < u128::from(AMPLE_MS) / 2, "{guest} was waited for");
    }
}

#[test]
fn what_is_not_in_order_on_the_pipe_ends_the_process() {
    let call = || ToChild::Call(CallFrame { number: 9, arguments: b"{}".to_vec(), within_ms: AMPLE_MS });
    let compile = || ToChild::Compile { source: Vec::new(), text: false };
    for (role, message) in [(Role::Run, call()), (Role::Run, compile()), (Role::Compile, call())] {
        let mut talk = Talk::begin(role, &Terms::default());
        talk.say(&message);
        assert!(matches!(talk.end(), Err(FrameError::Form(_))), "{role:?}");
    }
    let mut talk = Talk::load(&text("sleep"), &Terms::default());
    talk.ask("{}", AMPLE_MS);
    talk.ask("{}", AMPLE_MS);
    assert!(matches!(talk.end(), Err(FrameError::Form(_))), "one call at a time");
}

#[test]
fn the_ticker_ticks_while_a_call_runs_and_sleeps_otherwise() {
    let engine = super::engine::engine().unwrap();
    let ticker = super::engine::Ticker::start(engine.weak()).unwrap();
    let ticks = || ticker.ticks();
    let wait = |for_more_than: u64| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while ticks() <= for_more_than {
            assert!(std::time::Instant::now() < deadline, "it does not tick");
            std::thread::yield_now();
        }
    };
    assert_eq!(ticks(), 0);
    let awake = ticker.awake();
    wait(3);
    drop(awake);
    let asleep = ticks();
    let again = ticker.awake();
    wait(asleep);
    drop(again);
}
