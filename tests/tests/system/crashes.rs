//! `kill -9` at each named point of a read, a change, a capture and a release: what the device then finds on disk tells the truth,
//! compared with what the fake hardware really did (CASES G7 for the release).

use std::path::Path;
use std::thread::JoinHandle;

use latchkey_tests::agent::{fresh_id, invoke, text};
use latchkey_tests::keeper::short;
use latchkey_tests::points::{CALL, Point, RELEASE};
use latchkey_tests::programs::command;
use latchkey_tests::{Agent, Daemon, Keeper, Line, Room, Start};
use serde_json::{Value, json};
use wire::{Id, OwnerRequest};

/// What must be true after a crash at a point of a call.
struct Truth {
    /// The records under the call's id.
    records: &'static [&'static str],
    /// What the hardware did.
    effects: &'static [&'static str],
    /// What the same id and content gets while the device is not active.
    repeated: &'static str,
}

const NOTHING: &[&str] = &[];

/// A change: what began and has no proof of its end is unknown, whether or not the hardware did it, and never runs twice.
fn of_a_change(point: Point) -> Option<Truth> {
    const CUT: &[&str] = &["call display.text started", "call display.text unknown_outcome"];
    const DONE: &[&str] = &["call display.text started", "call display.text ok"];
    let truth = |records, effects, repeated| Some(Truth { records, effects, repeated });
    match point {
        Point::BeforeStarted => truth(NOTHING, NOTHING, "not_active"),
        Point::AfterStarted | Point::HandlerBegun => truth(CUT, NOTHING, "unknown_outcome"),
        Point::HandlerActed | Point::BeforeEnd => truth(CUT, &["shown"], "unknown_outcome"),
        Point::AfterEnd | Point::BeforeAnswer => truth(DONE, &["shown"], "ok"),
        Point::SignLit => None,
        Point::ReleaseRecorded
        | Point::ReleaseState
        | Point::ReleaseForgotten
        | Point::BeforeRelease
        | Point::AfterRelease => None,
    }
}

/// A capture: what it saw is gone, but that the sign was lit is never without a record; the same id runs anew.
fn of_a_capture(point: Point) -> Option<Truth> {
    const CUT: &[&str] = &["call camera.snapshot started", "call camera.snapshot unknown_outcome"];
    const DONE: &[&str] = &["call camera.snapshot started", "call camera.snapshot ok"];
    let truth = |records, effects| Some(Truth { records, effects, repeated: "not_active" });
    match point {
        Point::BeforeStarted => truth(NOTHING, NOTHING),
        Point::AfterStarted => truth(CUT, NOTHING),
        Point::SignLit | Point::HandlerBegun => truth(CUT, &["sign on"]),
        Point::HandlerActed | Point::BeforeEnd => truth(CUT, &["sign on", "camera opened"]),
        Point::AfterEnd | Point::BeforeAnswer => truth(DONE, &["sign on", "camera opened"]),
        Point::ReleaseRecorded
        | Point::ReleaseState
        | Point::ReleaseForgotten
        | Point::BeforeRelease
        | Point::AfterRelease => None,
    }
}

/// A plain read has no started record: it is on record once it is answered, or not at all.
fn of_a_read(point: Point) -> Option<Truth> {
    let truth = |records| Some(Truth { records, effects: NOTHING, repeated: "ok" });
    match point {
        Point::BeforeEnd => truth(NOTHING),
        Point::AfterEnd | Point::BeforeAnswer => truth(&["call device.health ok"]),
        Point::BeforeStarted | Point::AfterStarted | Point::SignLit | Point::HandlerBegun | Point::HandlerActed => None,
        Point::ReleaseRecorded
        | Point::ReleaseState
        | Point::ReleaseForgotten
        | Point::BeforeRelease
        | Point::AfterRelease => None,
    }
}

/// Starts a device that will stop at the point.
fn stopping(room: &Room, point: Point, capability: &str) -> Daemon {
    let mut program = command(room, Path::new(env!("CARGO_BIN_EXE_crash_device")));
    program.args([point.to_string().as_str(), capability]).arg(room.file("effects"));
    Start::with(room, program).up()
}

fn effects(room: &Room) -> Vec<String> {
    let text = std::fs::read_to_string(room.file("effects")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn records_of(keeper: &Keeper, id: &Id) -> Vec<String> {
    let id = id.to_string();
    keeper.records(0).iter().filter(|record| record.id.as_deref() == Some(&id)).map(short).collect()
}

/// Sends, and waits for an answer that must not come.
fn unanswered(line: &Line, sealed: Vec<u8>) -> JoinHandle<()> {
    let mut wire = line.connect();
    std::thread::spawn(move || {
        wire.send(&wire.request(&sealed)).unwrap();
        assert_eq!(wire.read(), None, "it was killed before it answered");
    })
}

fn check(point: Point, capability: &str, arguments: &Value, truth: &Truth) {
    let name = format!("{capability} at {point}");
    let (room, owner, id) = (Room::new(), Agent::default(), fresh_id());
    let mut device = stopping(&room, point, capability);
    let line = device.line();
    owner.settle(&line, &device.keeper(), &["camera", "display.text"]);
    let asking =
        unanswered(&line, owner.seal(&line.device, id, line.challenge(), &invoke(capability, arguments.clone())));
    device.out.await_line(&format!("at {point}"));
    device.kill();
    asking.join().unwrap();
    assert_eq!(effects(&room), truth.effects, "{name}: what the hardware did");

    let mut device = Start::simulated(&room).up();
    let (line, keeper) = (device.line(), device.keeper());
    assert_eq!(records_of(&keeper, &id), truth.records, "{name}: what the records say");
    keeper.verify();
    let again = owner.call_as(&line, id, capability, arguments.clone());
    assert_eq!(again.word(), truth.repeated, "{name}: the same id again: {again:?}");
    // Active again, what never began or was only read runs; what began never runs twice.
    owner.activate(&line, 60_000);
    let again = owner.call_as(&line, id, capability, arguments.clone());
    let runs = truth.repeated != "unknown_outcome";
    assert_eq!(again.word(), if runs { "ok" } else { "unknown_outcome" }, "{name}: {again:?}");
    let anew = owner.call(&line, capability, arguments.clone());
    assert_eq!(anew.word(), "ok", "{name}: another id: {anew:?}");
    if capability == "camera.snapshot" {
        // A gentle end would wait for the sign, which stays on for three seconds.
        device.kill();
    } else {
        assert_eq!(device.stop(), 0);
    }
    let shown = device.out.all().iter().filter(|line| line.contains("simulated screen:")).count();
    let expected = match (capability, point) {
        ("display.text", Point::BeforeStarted) => 2,
        ("display.text", _) => 1,
        _ => 0,
    };
    assert_eq!(shown, expected, "{name}: effects after the restart");
}

#[test]
fn kill_9_at_each_point_of_a_change_leaves_records_that_tell_the_truth() {
    for point in CALL {
        if let Some(truth) = of_a_change(*point) {
            check(*point, "display.text", &text("dinner"), &truth);
        }
    }
}

#[test]
fn kill_9_at_each_point_of_a_capture_leaves_records_that_tell_the_truth() {
    for point in CALL {
        if let Some(truth) = of_a_capture(*point) {
            check(*point, "camera.snapshot", &json!({}), &truth);
        }
    }
}

#[test]
fn kill_9_at_each_point_of_a_read_leaves_records_that_tell_the_truth() {
    for point in CALL {
        if let Some(truth) = of_a_read(*point) {
            check(*point, "device.health", &json!({}), &truth);
        }
    }
}

/// What a device is after a crash in a release: the old state whole, or the new one.
fn free_after(point: Point) -> bool {
    match point {
        Point::ReleaseRecorded | Point::ReleaseState | Point::ReleaseForgotten | Point::BeforeRelease => false,
        Point::AfterRelease => true,
        Point::BeforeStarted
        | Point::AfterStarted
        | Point::SignLit
        | Point::HandlerBegun
        | Point::HandlerActed
        | Point::BeforeEnd
        | Point::AfterEnd
        | Point::BeforeAnswer => panic!("{point} is no point of a release"),
    }
}

#[test]
fn kill_9_at_each_step_of_a_release_leaves_the_device_wholly_owned_or_wholly_free() {
    for point in RELEASE {
        let (room, owner) = (Room::new(), Agent::default());
        let mut device = stopping(&room, *point, "-");
        let (line, keeper) = (device.line(), device.keeper());
        owner.settle(&line, &keeper, &["camera", "display.text"]);
        let before = keeper.status();
        let used = fresh_id();
        owner.call_as(&line, used, "display.text", text("mine")).value();
        let ordered = std::thread::spawn({
            let state = room.state();
            move || {
                let mut talk = runtime::keeper::ask::Talk::connect(&state).unwrap();
                let command = actors::Command::Release;
                assert!(
                    talk.ask(&runtime::keeper::ask::Ask::House { command }).is_err(),
                    "it was killed before it answered"
                );
            }
        });
        device.out.await_line(&format!("at {point}"));
        // While the device changes hands nobody may anything: not the old owner, and nobody may become the new one.
        for request in [OwnerRequest::Registration, invoke("device.health", json!({}))] {
            let reply = line.post(&owner.seal(&line.device, fresh_id(), line.challenge(), &request));
            assert!(reply.is_forbidden(), "{point}: {reply:?}");
        }
        device.kill();
        ordered.join().unwrap();

        let device = Start::simulated(&room).up();
        let (line, keeper) = (device.line(), device.keeper());
        let after = keeper.status();
        let released = keeper.records(0).iter().any(|record| record.what.as_deref() == Some("release.here"));
        keeper.verify();
        let asked = line.post(&owner.seal(&line.device, fresh_id(), line.challenge(), &OwnerRequest::Registration));
        if free_after(*point) {
            assert_eq!(
                (after.owner, after.grants_on, after.ownership),
                (None, vec![], before.ownership + 1),
                "{point}"
            );
            assert!(released && asked.is_forbidden(), "{point}: {asked:?}");
            // It can be paired, and nothing of the former ownership is left to the same agent.
            owner.settle(&line, &keeper, &[]);
            assert_eq!(owner.call_as(&line, used, "display.text", text("mine")).word(), "denied");
        } else {
            assert_eq!(after.owner, before.owner, "{point}");
            assert_eq!((after.grants_on, after.ownership), (before.grants_on, before.ownership), "{point}");
            assert!(!released && asked.status == 200, "{point}: {asked:?}");
            assert_eq!(owner.call_as(&line, used, "display.text", text("mine")).word(), "ok", "its stored outcome");
            keeper.release();
        }
    }
}
