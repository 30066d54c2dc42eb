#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::task::TaskTracker;

use super::*;

/// Long enough for any machine; passes only when something hangs.
const SOON: Duration = Duration::from_secs(20);

/// A folder with a program of shell lines in it.
fn program(lines: &str) -> (tempfile::TempDir, Program) {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("child");
    // By another process: a file that we hold open for writing cannot be run by what we start meanwhile.
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 700 "$2""#;
    let written = Command::new("/bin/sh").args(["-c", write, "sh", lines]).arg(&path).status().unwrap();
    assert!(written.success());
    (room, Program::At(path))
}

async fn born(program: Program) -> (Spawner, TaskTracker, Born) {
    let spawner = Spawner::new(program).unwrap();
    let alive = TaskTracker::new();
    alive.close();
    let born = spawner.start(alive.token()).await.unwrap();
    (spawner, alive, born)
}

async fn said(born: &mut Born) -> String {
    let mut text = String::new();
    tokio::time::timeout(SOON, born.from.read_to_string(&mut text)).await.unwrap().unwrap();
    text
}

#[tokio::test]
async fn a_child_has_its_argument_its_pipes_and_nothing_else() {
    let marker = tempfile::NamedTempFile::new().unwrap();
    // Open across exec, as a library's descriptor may be at the wrong moment.
    let leaky = rustix::io::dup(marker.as_fd()).unwrap();
    let lines = r#"
        echo "arguments $*"
        echo "environment $(tr '\0' ' ' < /proc/$$/environ)"
        echo "folder $(readlink /proc/$$/cwd)"
        echo "group $(cut -d' ' -f5 /proc/$$/stat) of $$"
        for fd in /proc/$$/fd/*; do echo "fd $(readlink $fd)"; done
        read line; echo "read $line"
    "#;
    let (_room, program) = program(lines);
    let (_spawner, _alive, mut born) = born(program.clone()).await;
    born.to.write_all(b"hello\n").await.unwrap();
    let text = said(&mut born).await;
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| unreachable!("no {name} in {text}")).trim()
    };
    assert_eq!(value("arguments"), CHILD_ARGUMENT);
    assert_eq!(value("environment"), "MIMALLOC_ARENA_RESERVE=16MiB");
    assert_eq!(value("folder"), "/");
    assert_eq!(value("read"), "hello");
    let (group, pid) = value("group").split_once(" of ").unwrap();
    assert_eq!(group, pid);
    let marker_path = marker.path().to_str().unwrap();
    assert!(!text.contains(marker_path), "{text}");
    assert!(text.lines().any(|line| line == "fd /dev/null"), "{text}");

    let Program::At(path) = program else { unreachable!() };
    let plain = Command::new(path).stdin(Stdio::null()).output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains(marker_path), "without the one place, {} is inherited: {plain}", leaky.as_raw_fd());
}

#[tokio::test]
async fn a_child_that_is_dropped_is_killed_and_reaped() {
    let (_room, program) = program("echo $$; trap '' TERM INT; while :; do sleep 1000; done");
    let (_spawner, alive, mut born) = born(program).await;
    let mut text = Vec::new();
    while text.last() != Some(&b'\n') {
        text.push(born.from.read_u8().await.unwrap());
    }
    let pid = String::from_utf8(text).unwrap().trim().to_owned();
    let folder = PathBuf::from("/proc").join(pid);
    assert!(folder.exists());
    drop(born);
    tokio::time::timeout(SOON, alive.wait()).await.unwrap();
    assert!(!folder.exists(), "it stays as a zombie");
}

#[tokio::test]
async fn how_a_child_ended_is_told_in_words() {
    let rows = [
        ("exit 7", "its process ended with code 7"),
        ("exit 0", "its process ended with code 0"),
        ("kill -SYS $$", "its process made a system call that it may not make"),
        ("kill -KILL $$", "its process was killed (for its memory, or by someone)"),
        ("kill -XCPU $$", "its process used up its processor time"),
        ("kill -SEGV $$", "its process died of signal 11"),
    ];
    for (lines, words) in rows {
        let (_room, program) = program(lines);
        let (_spawner, alive, mut born) = born(program).await;
        assert_eq!(tokio::time::timeout(SOON, born.life.end()).await.unwrap(), words);
        tokio::time::timeout(SOON, alive.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_and_leaves_nothing() {
    let spawner = Spawner::new(Program::At("/nonexistent/child".into())).unwrap();
    let alive = TaskTracker::new();
    alive.close();
    let error = spawner.start(alive.token()).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    tokio::time::timeout(SOON, alive.wait()).await.unwrap();
}

#[test]
fn the_program_that_runs_is_started_by_its_inode() {
    let command = command(&Program::This);
    assert_eq!(command.get_program(), "/proc/self/exe");
    assert_eq!(command.get_args().collect::<Vec<_>>(), [CHILD_ARGUMENT]);
    let environment: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
    assert_eq!(environment, [ALLOCATOR_ROOM.0]);
}
