//! The two programs, run as people run them: `latchkeyd run` for as long as a test needs it, every other command to its end.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use runtime::keeper::ask::{Address, Ask, Talk, Told};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::process::Process;
use crate::room::MARK;
use crate::{Keeper, Line, Room, SOON};

/// Longer than the programs' own limits.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Where the programs are.
///
/// # Panics
/// When LATCHKEY_BIN_DIR does not name a folder with both of them.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let dir = std::env::var_os("LATCHKEY_BIN_DIR").expect(
        "LATCHKEY_BIN_DIR is not set: it names the folder with latchkeyd and latchkey, such as target/debug; make test sets it",
    );
    let path = PathBuf::from(dir).join(name);
    assert!(path.exists(), "{} is not there: build it first, or run make test", path.display());
    path
}

/// A command in a room: an environment with nothing of ours but the room's folders.
#[must_use]
pub fn command(room: &Room, path: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LATCHKEY_") || name == "NOTIFY_SOCKET" || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
        .env(MARK, room.path())
        .env("LATCHKEY_STATE_DIR", room.state())
        .env("LATCHKEY_CONFIG_DIR", room.config())
        .env("LATCHKEY_CONTROLLER_DIR", room.controller())
        .env("TZ", "UTC")
        .current_dir(room.path())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it printed.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

impl Ended {
    /// The exit code; a program that was killed has none.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed by signal {:?}: {self:?}", self.status.signal()))
    }

    /// What it printed as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Itself, if it ended well.
    #[track_caller]
    pub fn well(self) -> Self {
        assert_eq!(self.code(), 0, "{self:?}");
        self
    }

    /// Itself, if it ended with this code and one line that holds all of these words.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        let said = self.err.trim_end();
        for word in words {
            assert!(said.contains(word), "no \"{word}\" in: {said}");
        }
        self
    }
}

/// Runs a command to its end, with this on its standard input.
#[must_use]
pub fn run_with(mut command: Command, input: &[u8]) -> Ended {
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    // A program that does not read its input has closed it.
    let _ = stdin.write_all(input);
    drop(stdin);
    finish(child)
}

/// Runs a command to its end.
#[must_use]
pub fn run(mut command: Command) -> Ended {
    finish(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

fn finish(mut child: Child) -> Ended {
    let (done, ended) = sync_channel(2);
    let out = collect(child.stdout.take().expect("piped"), done.clone());
    let err = collect(child.stderr.take().expect("piped"), done);
    let end = Instant::now() + RUN_MAX;
    for _ in 0..2 {
        if ended.recv_timeout(end.saturating_duration_since(Instant::now())).is_err() {
            kill_group(&child);
            let _ = child.wait();
            panic!("a program did not end: {:?} {:?}", out.join(), err.join());
        }
    }
    let status = child.wait().expect("waited for");
    Ended { status, out: out.join().expect("read"), err: err.join().expect("read") }
}

fn collect(mut from: impl Read + Send + 'static, done: std::sync::mpsc::SyncSender<()>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("readable");
        let _ = done.send(());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn kill_group(child: &Child) {
    let _ = kill_process_group(pid(child), Signal::KILL);
}

impl Room {
    /// Runs `latchkeyd` beside the daemon, as the keeper does.
    #[must_use]
    pub fn latchkeyd(&self, arguments: &[&str]) -> Ended {
        let mut latchkeyd = command(self, &program("latchkeyd"));
        latchkeyd.args(arguments);
        run(latchkeyd)
    }

    /// Runs `latchkey` with the room's controller folder.
    #[must_use]
    pub fn latchkey(&self, arguments: &[&str]) -> Ended {
        let mut latchkey = command(self, &program("latchkey"));
        latchkey.args(arguments);
        run(latchkey)
    }
}

/// Lines that a running program has printed so far.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<(Mutex<Heard>, Condvar)>);

#[derive(Debug, Default)]
struct Heard {
    lines: Vec<String>,
    closed: bool,
}

impl Lines {
    fn follow(&self, from: impl Read + Send + 'static) {
        let lines = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n') {
                let Ok(line) = line else { break };
                let (heard, news) = &*lines.0;
                heard.lock().expect("whole").lines.push(String::from_utf8_lossy(&line).into_owned());
                news.notify_all();
            }
            let (heard, news) = &*lines.0;
            heard.lock().expect("whole").closed = true;
            news.notify_all();
        });
    }

    /// The first line for which `is` holds, among those printed and those to come; none when the program ended without one.
    #[must_use]
    pub fn find(&self, is: impl Fn(&str) -> bool) -> Option<String> {
        self.find_after(0, is)
    }

    /// The same, after the first so many lines.
    #[must_use]
    pub fn find_after(&self, known: usize, is: impl Fn(&str) -> bool) -> Option<String> {
        let (heard, news) = &*self.0;
        let wanted = |heard: &Heard| heard.lines.iter().skip(known).find(|line| is(line)).cloned();
        let waiting = |heard: &mut Heard| wanted(heard).is_none() && !heard.closed;
        let (heard, waited) = news.wait_timeout_while(heard.lock().expect("whole"), SOON, waiting).expect("whole");
        assert!(!waited.timed_out(), "the line did not come: {:#?}", heard.lines);
        wanted(&heard)
    }

    /// The first line with these words.
    #[track_caller]
    pub fn await_line(&self, words: &str) -> String {
        self.find(|line| line.contains(words)).unwrap_or_else(|| panic!("no line with {words}: {:#?}", self.all()))
    }

    /// All lines so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.0.lock().expect("whole").lines.clone()
    }

    /// How many lines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.0.lock().expect("whole").lines.len()
    }

    fn until_closed(&self) {
        let (heard, news) = &*self.0;
        drop(news.wait_timeout_while(heard.lock().expect("whole"), SOON, |heard| !heard.closed));
    }
}

/// How to start a daemon.
#[derive(Debug)]
pub struct Start<'a> {
    room: &'a Room,
    command: Command,
    /// Settings stand before the command, all in one place.
    sets: Vec<String>,
    arguments: Vec<String>,
}

impl<'a> Start<'a> {
    /// A simulated device on free ports.
    #[must_use]
    pub fn simulated(room: &'a Room) -> Self {
        Self::bare(room)
            .set("link.direct.listen=127.0.0.1:0")
            .set("keeper.listen=127.0.0.1:0")
            .arguments(&["run", "--simulate"])
    }

    /// The program without arguments.
    #[must_use]
    pub fn bare(room: &'a Room) -> Self {
        Self::with(room, command(room, &program("latchkeyd")))
    }

    /// Another program in place of it, with its first arguments.
    #[must_use]
    pub fn with(room: &'a Room, command: Command) -> Self {
        Self { room, command, sets: Vec::new(), arguments: Vec::new() }
    }

    /// One more setting; a later one for the same key wins.
    #[must_use]
    pub fn set(mut self, setting: &str) -> Self {
        self.sets.extend(["--set".to_owned(), setting.to_owned()]);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    fn complete(self) -> Command {
        let mut command = self.command;
        command.args(self.sets).args(self.arguments);
        command
    }

    /// One more variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it, and gives it back when it answers.
    #[must_use]
    pub fn up(self) -> Daemon {
        let state = self.room.state();
        let mut daemon = self.spawned();
        let up = daemon.out.find(|line| line.trim_start().starts_with("link "));
        assert!(up.is_some(), "latchkeyd did not start: {:#?} {:#?}", daemon.out.all(), daemon.err.all());
        let mut talk = Talk::connect(&state).expect("the command socket answers");
        let Told::Address { address } = talk.ask(&Ask::Address).expect("an answer") else { panic!("no address") };
        daemon.address = Some(address);
        daemon
    }

    /// Starts it, and waits for nothing.
    #[must_use]
    pub fn spawned(self) -> Daemon {
        let state = self.room.state();
        let mut command = self.complete();
        command.stdin(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (out, err) = (Lines::default(), Lines::default());
        out.follow(child.stdout.take().expect("piped"));
        err.follow(child.stderr.take().expect("piped"));
        let stdin = child.stdin.take();
        Daemon { child, stdin, out, err, state, address: None, ended: None }
    }

    /// Starts it; how it ended, if it did not come up. One that came up is stopped again.
    #[must_use]
    pub fn spawned_or_ended(self) -> Option<Ended> {
        let mut daemon = self.spawned();
        if daemon.out.find(|line| line.trim_start().starts_with("link ")).is_some() {
            daemon.stop();
            return None;
        }
        let status = daemon.wait();
        Some(Ended { status, out: daemon.out.all().join("\n"), err: daemon.err.all().join("\n") })
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Ended {
        run(self.complete())
    }
}

/// A running `latchkeyd`.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    stdin: Option<ChildStdin>,
    /// What it prints.
    pub out: Lines,
    /// What it logs.
    pub err: Lines,
    state: PathBuf,
    address: Option<Address>,
    ended: Option<ExitStatus>,
}

impl Daemon {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.address.as_ref().expect("it was waited for")
    }

    /// Where its direct link is bound.
    #[must_use]
    pub fn direct(&self) -> SocketAddr {
        self.address().direct.parse().expect("an address")
    }

    /// The command socket.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        Keeper::of(&self.state)
    }

    /// The direct link.
    #[must_use]
    pub fn line(&self) -> Line {
        Line::new(self.direct(), crate::room::latchkey_key(&self.state))
    }

    /// Sends a line to its standard input.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("open"), "{line}").expect("it listens");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(pid(&self.child), signal).expect("it lives");
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) {
        let children = self.children();
        self.signal(Signal::KILL);
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "it did not die of it");
        crate::process::leave_none(&children);
    }

    /// SIGTERM; gives the exit code.
    pub fn stop(&mut self) -> i32 {
        let children = self.children();
        self.signal(Signal::TERM);
        let code = self.wait().code().unwrap_or_else(|| panic!("killed: {:#?}", self.err.all()));
        crate::process::leave_none(&children);
        code
    }

    /// The processes of its handlers.
    #[must_use]
    pub fn children(&self) -> Vec<Process> {
        Process::of(self.pid())
    }

    /// Waits for the end; all it said is then there.
    pub fn wait(&mut self) -> ExitStatus {
        if let Some(ended) = self.ended {
            return ended;
        }
        let status = crate::until("the daemon's end", || self.child.try_wait().expect("waited for"));
        self.out.until_closed();
        self.err.until_closed();
        self.ended = Some(status);
        status
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.ended.is_none() && self.child.try_wait().expect("waited for").is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let children = self.children();
            kill_group(&self.child);
            let _ = self.child.wait();
            if !std::thread::panicking() {
                crate::process::leave_none(&children);
            }
        }
        if std::thread::panicking() {
            let mut err = std::io::stderr();
            let _ = writeln!(err, "--- latchkeyd said\n{}\n{}", self.out.all().join("\n"), self.err.all().join("\n"));
        }
    }
}

/// Waits on a channel as long as anything may take.
#[track_caller]
pub fn soon<T>(receiver: &Receiver<T>, what: &str) -> T {
    receiver.recv_timeout(SOON).unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}
