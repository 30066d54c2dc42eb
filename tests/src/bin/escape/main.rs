//! Tries to get out of the confinement of a handler's process: `escape` tries everything, each attempt in a process of its own.
//!
//! Every attempt runs twice: `outside`, where it must succeed (or this machine cannot show it, and says why), and `inside`, after
//! [`confine::alone`], [`confine::enter`] and [`confine::seal`], as a handler's process calls them. One line of JSON an attempt tells what came of it and which
//! mechanism stopped it; the test beside judges the lines. Runs as root where it can: root must be stopped too. Everything is bounded:
//! nothing forks more than [`attempts::FORKS_MAX`] times, fills more than a block of a disk, or lives longer than [`ATTEMPT_MAX_S`].
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this is a main that only tests run: it reads its arguments, speaks to its parent, and stops at what it did not expect"
)]

mod attempts;
mod kernel;

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use handlers::wasm::confine::{self, Plan, Purpose, Reachable};
use serde_json::{Value, json};

use attempts::{ATTEMPTS, Attempt, Folders, Stage};
use kernel::Stopped;

/// No attempt needs a second; the kernel ends one that hangs.
const ATTEMPT_MAX_S: u32 = 20;
/// Linear memory of the guest whose process this could be.
const MEMORY_BYTES: usize = 32 * 1024 * 1024;
/// Where the descriptor lies that is left open on purpose.
const LEFT_OPEN: i32 = 9;

/// What the memory of the parent holds, for those who try to read it.
static SECRET: [u8; 16] = *b"kitchen-key-0001";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => everything(),
        ["try", name, place, stage] => one(name, place == "inside", &serde_json::from_str(stage).unwrap()),
        // What an attempt to start another program starts.
        ["started"] => println!("{}", line(&Ok(()))),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

// ---- the parent: starts each attempt, and is what many of them are aimed at ------------------------------------------------------

fn everything() {
    kernel::ignore_signal(libc::SIGUSR1);
    for attempt in ATTEMPTS {
        let outside = run(attempt, "outside");
        let inside = run(attempt, "inside");
        println!("{}", json!({ "attempt": attempt.name, "outside": outside, "inside": inside }));
    }
}

/// Runs an attempt in a process and a folder of its own.
fn run(attempt: &Attempt, place: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let _unix = UnixListener::bind(folder.path().join("socket")).unwrap();
    let stage = stage(folder.path(), tcp.local_addr().unwrap().port());
    let left_open = File::open(&stage.secret).unwrap();
    kernel::leave_open(&left_open, LEFT_OPEN);
    let mut child = Command::new("/proc/self/exe");
    child.args(["try", attempt.name, place, &serde_json::to_string(&stage).unwrap()]);
    let output = child.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    kernel::close(LEFT_OPEN);
    said(&output)
}

/// What the attempt wrote, or the signal that it died of.
fn said(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    match (text.lines().next(), output.status.signal()) {
        (Some(line), None) => serde_json::from_str(line).unwrap(),
        (_, Some(libc::SIGSYS)) => json!({ "ok": false, "signal": "SIGSYS", "stopped_by": "seccomp" }),
        (_, Some(libc::SIGXFSZ)) => json!({ "ok": false, "signal": "SIGXFSZ", "stopped_by": "rlimit" }),
        (_, signal) => json!({ "ok": false, "died": signal, "status": output.status.code() }),
    }
}

/// The folders and files of one attempt: one within reach to read, one to write, the rest not.
fn stage(folder: &Path, port: u16) -> Stage {
    let text = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for name in ["read", "write", "beyond"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    for name in ["read/file", "write/file", "beyond/secret"] {
        let mut file = File::options().create_new(true).write(true).mode(0o600).open(folder.join(name)).unwrap();
        file.write_all(&SECRET).unwrap();
    }
    std::os::unix::fs::symlink(folder.join("beyond/secret"), folder.join("write/link")).unwrap();
    Stage {
        folder: text(""),
        read: text("read"),
        write: text("write"),
        secret: text("beyond/secret"),
        socket: text("socket"),
        port,
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned(),
        parent: i64::from(std::process::id()),
        address: SECRET.as_ptr() as usize as i64,
        left_open: i64::from(LEFT_OPEN),
    }
}

// ---- the child: one attempt ----------------------------------------------------------------------------------------------------------

fn one(name: &str, inside: bool, stage: &Stage) {
    kernel::end_after(ATTEMPT_MAX_S);
    let attempt = ATTEMPTS.iter().find(|attempt| attempt.name == name).expect("a known attempt");
    if inside {
        confine::alone().unwrap();
    }
    let (prepared, plan) = ((attempt.prepare)(stage), plan(attempt.folders, stage));
    if inside && let Err(error) = confine::enter(&plan).and_then(|_| confine::seal(&plan)) {
        println!("{}", json!({ "ok": false, "not_confined": error.to_string() }));
        return;
    }
    let came = prepared.and_then(|prepared| (attempt.act)(stage, prepared));
    println!("{}", line(&came));
}

fn plan(folders: Folders, stage: &Stage) -> Plan {
    let open = |path: &str, write| Reachable { folder: File::open(path).unwrap(), write };
    let folders = match folders {
        Folders::None => Vec::new(),
        Folders::Reach => vec![open(&stage.read, false), open(&stage.write, true)],
    };
    Plan { purpose: Purpose::Run, folders, memory_bytes: MEMORY_BYTES, accept_weak: false }
}

fn line(came: &Result<(), Stopped>) -> Value {
    match came {
        Ok(()) => json!({ "ok": true }),
        Err(stopped) => json!({ "ok": false, "errno": kernel::name(stopped.errno), "stopped_by": stopped.by() }),
    }
}
