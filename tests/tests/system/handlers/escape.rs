//! The ways out of a handler's process, tried by a program that enters the same confinement.

use std::path::Path;

use latchkey_tests::programs::{command, run};
use latchkey_tests::{Room, skip};
use serde_json::Value;

/// What these may not be stopped by: they must go on working.
const CONTROL: &str = "control: ";

/// What stops each attempt, in the order of the program.
const STOPPED_BY: &[(&str, &str)] = &[
    ("opens /etc/passwd, no reach", "seccomp"),
    ("opens /etc/passwd", "landlock"),
    ("opens a file beside its reach", "landlock"),
    ("opens a file beside its reach through ..", "landlock"),
    ("opens a file beside its reach through a link", "landlock"),
    ("lists a folder beside its reach", "landlock"),
    ("makes a file in /tmp, no reach", "seccomp"),
    ("makes a file in /tmp", "landlock"),
    ("makes a file where it may only read", "landlock"),
    ("removes a file where it may only read", "landlock"),
    ("opens a device", "landlock"),
    ("opens by handle", "seccomp"),
    ("reads a descriptor that was left open", "closed descriptor"),
    ("makes a device node", "seccomp"),
    ("makes a FIFO", "seccomp"),
    ("hard-links a file into its reach", "seccomp"),
    ("renames a file out of its reach", "landlock"),
    ("renames a file into its reach", "landlock"),
    ("changes the mode of a file in its reach", "seccomp"),
    ("changes the owner of a file in its reach", "seccomp"),
    ("sets an extended attribute", "seccomp"),
    ("types into a terminal", "seccomp"),
    ("connects by TCP", "seccomp"),
    ("sends by UDP", "seccomp"),
    ("connects by a unix socket", "seccomp"),
    ("opens a netlink socket", "seccomp"),
    ("opens a packet socket", "seccomp"),
    ("makes a pair of sockets", "seccomp"),
    ("starts another program", "seccomp"),
    ("starts another program, with reach", "seccomp"),
    ("makes an anonymous file to run", "seccomp"),
    ("forks", "seccomp"),
    ("forks without end", "seccomp"),
    ("forks by clone3", "seccomp"),
    ("traces the parent", "seccomp"),
    ("reads the parent's memory", "seccomp"),
    ("writes the parent's memory", "seccomp"),
    ("reads the parent's memory through /proc", "landlock"),
    ("reads the parent's environment through /proc", "landlock"),
    ("signals the parent", "seccomp"),
    ("signals the parent's thread", "seccomp"),
    ("opens a handle of the parent", "seccomp"),
    ("signals the parent by its handle", "seccomp"),
    ("takes a descriptor of the parent by its handle", "seccomp"),
    ("takes a better priority", "seccomp"),
    ("opens the session's keys", "seccomp"),
    ("adds a key", "seccomp"),
    ("sets up io_uring", "seccomp"),
    ("makes a BPF map", "seccomp"),
    ("handles page faults", "seccomp"),
    ("opens a performance counter", "seccomp"),
    #[cfg(target_arch = "x86_64")]
    ("calls through the door for 32-bit programs", "seccomp"),
    ("takes namespaces of its own", "seccomp"),
    ("enters the parent's namespaces", "seccomp"),
    ("mounts", "seccomp"),
    ("changes its root", "seccomp"),
    ("gives the machine the name that it has", "seccomp"),
    ("becomes another user", "seccomp"),
    ("asks for more memory than its limit", "rlimit"),
    ("maps shared memory, which its limit does not count", "seccomp"),
    ("maps a growing stack, which its limit does not count", "seccomp"),
    ("makes memory executable", "seccomp"),
    ("makes its memory executable", "seccomp"),
    ("raises its memory limit", "no capabilities"),
    ("fills the disk", "rlimit"),
    ("opens files without end", "rlimit"),
];

#[test]
fn every_way_out_of_a_handlers_process_that_works_outside_is_closed_inside() {
    let room = Room::new();
    let said = run(command(&room, Path::new(env!("CARGO_BIN_EXE_escape")))).well();
    let rows: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = rows.iter().map(|row| row["attempt"].as_str().unwrap()).collect();
    println!("{:<52} {:<10} stopped by", "attempt", "answer");
    for row in &rows {
        let inside = &row["inside"];
        let answer = inside["errno"].as_str().or(inside["signal"].as_str()).unwrap_or("works");
        println!(
            "{:<52} {answer:<10} {}",
            row["attempt"].as_str().unwrap(),
            inside["stopped_by"].as_str().unwrap_or("-")
        );
    }
    for row in &rows {
        let name = row["attempt"].as_str().unwrap();
        if row["outside"]["ok"] != true {
            skip("sandbox", &format!("{name}: not possible on this machine even outside: {}", row["outside"]));
            continue;
        }
        if name.starts_with(CONTROL) {
            assert_eq!(row["inside"]["ok"], true, "{row}");
            continue;
        }
        let expected = STOPPED_BY.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}: {row}")).1;
        assert_eq!((&row["inside"]["ok"], &row["inside"]["stopped_by"]), (&false.into(), &expected.into()), "{row}");
    }
    let tried: Vec<_> = names.into_iter().filter(|name| !name.starts_with(CONTROL)).collect();
    let known: Vec<_> = STOPPED_BY.iter().map(|(name, _)| *name).collect();
    assert_eq!(tried, known);
}
