//! What every other test rests on: its room notices what it left behind, and the programs are found where they are said to be.

use std::os::unix::process::CommandExt as _;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Stdio;

use latchkey_tests::programs::command;
use latchkey_tests::{Room, Start};

#[test]
fn a_room_is_gone_with_all_its_files_and_processes_at_the_end_of_its_test() {
    let room = Room::new();
    let path = room.path().to_owned();
    let daemon = Start::simulated(&room).up();
    let pid = daemon.pid();
    drop(daemon);
    drop(room);
    assert!(!path.exists());
    assert!(!Path::new("/proc").join(pid.to_string()).exists());
}

#[test]
fn a_room_whose_test_leaves_a_process_behind_says_so_and_ends_it() {
    let room = Room::new();
    let path = room.path().to_owned();
    let mut sleep = command(&room, Path::new("sleep"));
    // In a group of its own, as a process that slipped away would be.
    sleep.arg("1000").process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut slipped = sleep.spawn().unwrap();
    let dropped = catch_unwind(std::panic::AssertUnwindSafe(|| drop(room)));
    let said = dropped.expect_err("it is noticed");
    let said = said.downcast_ref::<String>().unwrap();
    assert!(said.contains("left processes behind") && said.contains("sleep 1000"), "{said}");
    assert!(!slipped.wait().unwrap().success(), "it was ended");
    assert!(!path.exists());
}
