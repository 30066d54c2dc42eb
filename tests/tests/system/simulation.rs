//! Hardware that misbehaves, seen from an agent: the words after `run --simulate`, a camera that is pulled out (V4), and one that is gone for good
//! (V9).
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs reads /proc, and waits in real time by polling them"
)]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use handlers::CameraTrouble;
use latchkey_tests::agent::text;
use latchkey_tests::{Agent, Inside, Room, Start, until};
use serde_json::json;
use wire::ErrorCode;

/// How long a camera that is gone is asked for pictures.
const GONE: Duration = Duration::from_secs(30);
/// The kernel counts processor time in hundredths of a second.
const TICKS_PER_SECOND: u64 = 100;

#[test]
fn the_words_after_simulate_are_what_an_agent_meets() {
    let room = Room::new();
    let daemon = Start::simulated(&room).arguments(&["camera=no-dht,busy-mode", "screen=missing"]).up();
    let (agent, line, keeper) = (Agent::default(), daemon.line(), daemon.keeper());
    agent.settle(&line, &keeper, &["camera", "display.text"]);
    let refusal = agent.call(&line, "camera.snapshot", json!({})).0.unwrap_err();
    let wanted = (ErrorCode::HardwareUnavailable, "the camera is busy: another program uses it");
    assert_eq!((refusal.error, refusal.message.as_str()), wanted);
    let refusal = agent.call(&line, "display.text", text("hello")).0.unwrap_err();
    assert_eq!(refusal.error, ErrorCode::HardwareUnavailable);
    assert!(refusal.message.contains("the simulated screen is told to be missing"), "{}", refusal.message);
}

#[test]
fn a_word_that_nobody_knows_stops_the_start_with_what_was_meant() {
    let room = Room::new();
    for (word, meant) in [("camera=unplugd", "did you mean unplug?"), ("scren=missing", "did you mean screen?")] {
        let ended = Start::simulated(&room).arguments(&[word]).run();
        ended.refused(2, &[word, meant]);
        assert!(!room.state().join("device.key").exists(), "nothing was begun");
    }
}

#[test]
fn v4_a_camera_that_is_pulled_out_in_a_capture_is_told_and_works_again_when_it_is_back() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (agent, line, keeper) = (Agent::default(), device.line(), device.keeper());
    agent.settle(&line, &keeper, &["camera"]);
    agent.call(&line, "camera.snapshot", json!({})).value();
    let (camera, before) = (&device.simulation.camera, threads());
    let opened = camera.counts().opens;
    // It stops to send, and only then says that it is gone.
    camera.trouble(Some(CameraTrouble::Silent));
    let began = Instant::now();
    let refusal = thread::scope(|scope| {
        let call = scope.spawn(|| agent.call(&line, "camera.snapshot", json!({})));
        until("the capture runs", || (camera.counts().opens > opened).then_some(()));
        camera.trouble(Some(CameraTrouble::Unplugged));
        call.join().unwrap().0.unwrap_err()
    });
    assert_eq!(refusal.error, ErrorCode::HardwareUnavailable);
    assert_eq!(refusal.message, "the camera was unplugged");
    assert!(began.elapsed() < Duration::from_secs(10), "within the capability's own time");
    until("the sign goes off", || (!device.simulation.sign.is_lit()).then_some(()));
    until("no thread is left", || (threads() <= before).then_some(()));
    assert_eq!(camera.counts().opens, camera.counts().closes);
    camera.trouble(None);
    agent.call(&line, "camera.snapshot", json!({})).value();
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            let name = fs::read_to_string(task.as_ref().unwrap().path().join("comm"));
            name.is_ok_and(|name| name.trim() == "camera")
        })
        .count()
}

#[test]
fn v9_a_camera_that_is_gone_at_every_call_fills_no_log_and_heats_no_core() {
    let room = Room::new();
    let daemon = Start::simulated(&room).arguments(&["camera=gone"]).up();
    let (agent, line, keeper) = (Agent::default(), daemon.line(), daemon.keeper());
    agent.settle(&line, &keeper, &["camera"]);
    let (began, before, mut calls) = (Instant::now(), processor_ticks(daemon.pid()), 0);
    while began.elapsed() < GONE {
        let refusal = agent.call(&line, "camera.snapshot", json!({})).0.unwrap_err();
        assert_eq!(refusal.message, "the camera was unplugged");
        calls += 1;
    }
    let ticks = processor_ticks(daemon.pid()) - before;
    let most = GONE.as_secs() * TICKS_PER_SECOND / 20;
    assert!(ticks < most, "under 5 % of a core: {ticks} of {most} hundredths of a second in {calls} calls");
    // Each call is a line of its own, whatever came of it; the rest is what the camera makes be said.
    let (of_calls, others): (Vec<String>, Vec<String>) = daemon
        .err
        .all()
        .into_iter()
        .filter(|line| line.contains("camera"))
        .partition(|line| line.contains(" call id="));
    assert!(of_calls.len() <= calls, "{} lines for {calls} calls", of_calls.len());
    assert!((1..20).contains(&others.len()), "for {calls} calls: {others:#?}");
}

/// The time on processors that a process has used.
fn processor_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name stands in parentheses and may hold anything; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
