//! Who owns a device, what the owner may, and how that ends (G1, G2, G4, G6; two devices and two controllers).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use latchkey_tests::agent::{fresh_id, invoke, object, text};
use latchkey_tests::keeper::short;
use latchkey_tests::programs::{command, program, run};
use latchkey_tests::{Agent, Daemon, Ended, Inside, Room, Start, until};
use serde_json::{Value, json};
use wire::{ErrorCode, OwnerRequest, Registration};

/// What the device declares, and a call of each that fits its bounds.
fn calls() -> [(&'static str, Value); 6] {
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    [
        ("device.health", json!({})),
        ("camera.snapshot", json!({})),
        ("microphone.listen", json!({ "seconds": 1 })),
        ("display.text", text("hello")),
        ("display.image", json!({ "mime": "image/png", "data": pixel })),
        ("speaker.say", text("hello")),
    ]
}

#[test]
fn after_pairing_everything_but_health_is_denied_until_the_keeper_turns_it_on() {
    let room = Room::new();
    let device = Inside::new(&room);
    device.simulation.speaker.at_once(true);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.settle(&line, &keeper, &[]);
    let registered = owner.ask(&line, fresh_id(), &OwnerRequest::Registration).value();
    let registration = Registration::parse(registered).unwrap();
    let declared: Vec<_> =
        registration.capabilities.iter().map(|offered| offered.declaration.name.to_string()).collect();
    let mut called: Vec<_> = calls().iter().map(|(name, _)| (*name).to_owned()).collect();
    called.sort();
    assert_eq!(declared, called, "every declared capability is called here");
    for (capability, arguments) in calls() {
        let outcome = owner.call(&line, capability, arguments);
        let expected = if capability == "device.health" { "ok" } else { "denied" };
        assert_eq!(outcome.word(), expected, "{capability}: {outcome:?}");
    }
    assert_eq!((device.simulation.screen.count(), device.simulation.camera.counts().opens), (0, 0));
    assert!(!device.simulation.sign.is_lit());
    // The control: turned on one by one, each works, and only that.
    for (at, (capability, _)) in calls().iter().enumerate().skip(1) {
        keeper.grant(capability);
        for (later, (capability, arguments)) in calls().into_iter().enumerate().skip(1) {
            let word = owner.call(&line, capability, arguments).word();
            assert_eq!(word, if later <= at { "ok" } else { "denied" }, "{capability}");
        }
    }
}

#[test]
fn a_caller_that_says_it_is_approved_is_refused_and_on_record() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.settle(&line, &keeper, &[]);
    for member in ["approved", "approvalDecision", "grant", "force"] {
        // In the arguments: undeclared, and on record.
        let before = keeper.last();
        let outcome = owner.call(&line, "camera.snapshot", json!({ member: true }));
        assert_eq!(outcome.code(), ErrorCode::InvalidArguments, "{member}");
        let records: Vec<_> = keeper.records(before).iter().map(short).collect();
        assert_eq!(records, ["call camera.snapshot invalid_arguments"], "{member}");
        // In the message, and in the envelope: 403.
        let challenge = line.challenge();
        let mut message: Value = serde_json::from_slice(&invoke("camera.snapshot", json!({})).to_body(&wire::Head {
            id: fresh_id(),
            challenge,
            to: line.device.clone(),
        }))
        .unwrap();
        let clean = message.clone();
        message[member] = json!(true);
        let flawed = wire::envelope::seal(&owner.key, message.to_string().as_bytes());
        assert!(line.post(flawed.as_bytes()).is_forbidden(), "{member}");
        let sealed = wire::envelope::seal(&owner.key, clean.to_string().as_bytes());
        let mut envelope: Value = serde_json::from_slice(sealed.as_bytes()).unwrap();
        envelope[member] = json!(true);
        assert!(line.post(envelope.to_string().as_bytes()).is_forbidden(), "{member}");
        // The control, under the same challenge: looked at, and denied all the same.
        assert_eq!(line.post(sealed.as_bytes()).outcome(&line.device).code(), ErrorCode::Denied, "{member}");
    }
    assert_eq!(device.simulation.camera.counts().opens, 0);
}

#[test]
fn a_grant_revoked_under_a_thousand_running_calls_stays_revoked() {
    const ROUNDS: usize = 1_000;
    const CALLERS: usize = 4;
    let room = Room::new();
    // As many requests as there is time for, so that a refusal is never one of rate.
    let limits = ["limits.rate_per_second=100000", "limits.rate_burst=1000000"];
    let device = Inside::with(&room, runtime::DoorLimits::default(), &limits);
    let (owner, line, keeper) = (Arc::new(Agent::default()), device.line(), device.keeper());
    owner.settle(&line, &keeper, &[]);
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (owner, line, over) = (Arc::clone(&owner), line.clone(), Arc::clone(&over));
            std::thread::spawn(move || {
                let mut wire = line.connect();
                let mut done = 0_usize;
                while !over.load(Ordering::SeqCst) {
                    let challenge = wire.challenge();
                    let sealed = owner.seal(&line.device, fresh_id(), challenge, &invoke("display.text", text("x")));
                    done += usize::from(wire.post(&sealed).outcome(&line.device).word() == "ok");
                }
                done
            })
        })
        .collect();
    let mut wire = line.connect();
    for round in 0..ROUNDS {
        keeper.grant("display.text");
        keeper.revoke("display.text");
        // Whatever was open when it was revoked, nothing that comes after it gets through.
        let challenge = wire.challenge();
        let sealed = owner.seal(&line.device, fresh_id(), challenge, &invoke("display.text", text("x")));
        let after = wire.post(&sealed).outcome(&line.device);
        assert_eq!(after.word(), "denied", "round {round}");
    }
    over.store(true, Ordering::SeqCst);
    let done: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(done > 0, "the control: some calls came between a grant and its end");
    assert!(keeper.status().grants_on.is_empty());
    assert_eq!(owner.call(&line, "display.text", text("x")).word(), "denied");
    keeper.verify();
}

#[test]
fn a_grant_revoked_before_a_crash_is_off_after_it() {
    let room = Room::new();
    let owner = Agent::default();
    let mut daemon = Start::simulated(&room).up();
    owner.settle(&daemon.line(), &daemon.keeper(), &["display.text", "camera"]);
    for on in [false, true, false] {
        if on {
            daemon.keeper().grant("display.text");
        } else {
            daemon.keeper().revoke("display.text");
        }
        daemon.kill();
        daemon = Start::simulated(&room).up();
        owner.activate(&daemon.line(), 60_000);
        let word = owner.call(&daemon.line(), "display.text", text("x")).word();
        assert_eq!(word, if on { "ok" } else { "denied" });
        assert!(daemon.keeper().status().grants_on.contains(&"camera".to_owned()), "the other grant stands");
    }
}

#[test]
fn a_device_whose_owner_lost_every_key_is_freed_at_the_device_and_paired_again() {
    let room = Room::new();
    let _daemon = Start::simulated(&room).set("device.name=kitchen").up();
    let agent = |name: &str| {
        room.latchkey(&["agent", "new", name]).well();
        claim(&room, &room, "kitchen");
        room.latchkeyd(&["grant", "camera"]).well();
        room.latchkey(&["snapshot", "kitchen", "-o", "a.jpg"]).well();
    };
    agent("helper@home.example.org");
    let kept = room.file("kept");
    std::fs::rename(room.controller(), &kept).unwrap();
    let before = room.latchkeyd(&["receipts", "--json", "--last", "500"]).well().json();
    room.latchkeyd(&["pair"]).refused(3, &["is owned by helper@home.example.org", "latchkeyd release"]);
    room.latchkeyd(&["release", "--yes"]).well();
    let status = room.latchkeyd(&["status", "--json"]).well().json();
    assert_eq!((&status["owner"], &status["grants_on"], &status["ownership"]), (&json!(null), &json!([]), &json!(3)));
    // The old key is useless, should it turn up again.
    let kept = kept.to_str().unwrap();
    room.latchkey(&["--state-dir", kept, "health", "kitchen"]).refused(3, &["answered 403"]);
    // Records are kept, and it can be paired again.
    let after = room.latchkeyd(&["receipts", "--json", "--last", "500"]).well().json();
    let (before, after) = (before.as_array().unwrap(), after.as_array().unwrap());
    assert_eq!(after[..before.len()], before[..]);
    room.latchkeyd(&["receipts", "--verify"]).well();
    agent("helper@home.example.org");
    room.latchkey(&["--state-dir", kept, "health", "kitchen"]).refused(3, &["answered 403"]);
}

/// Pairs the device of one room with the controller of another.
fn claim(device: &Room, controller: &Room, name: &str) -> Value {
    let link = device.latchkeyd(&["pair", "--json"]).well().json()["link"].as_str().unwrap().to_owned();
    let asked = controller.latchkey(&["claim", &link, "--name", name, "--no-wait", "--json"]).well().json();
    device.latchkeyd(&["approve", asked["code"].as_str().unwrap()]).well();
    asked
}

#[test]
fn a_device_goes_from_one_controller_to_another_with_nothing_of_the_first_one_left() {
    let (room, second) = (Room::new(), Room::new());
    let daemon = Start::simulated(&room).set("device.name=kitchen").up();
    let key = daemon.line().device.to_string();
    room.latchkey(&["agent", "new", "first@home.example.org"]).well();
    let heir = second.latchkey(&["agent", "new", "second@home.example.org", "--json"]).well().json();
    let heir_key = heir["key"].as_str().unwrap().to_owned();
    let heir_flag = format!("--key={heir_key}");
    claim(&room, &room, "kitchen");
    room.latchkeyd(&["grant", "camera"]).well();
    room.latchkey(&["activate", "kitchen"]).well();

    let transfer = |wait: &[&str]| {
        let words = ["transfer", "kitchen", "--to", "second@home.example.org", &heir_flag, "--json"];
        room.latchkey(&[words.as_slice(), wait].concat())
    };
    // Refused once: everything stays, and the next one has to wait.
    let asked = transfer(&["--no-wait"]).well().json();
    assert_eq!(asked["state"], json!("pending"));
    let shown = room.latchkeyd(&["claims", "--json"]).well().json();
    let shown = shown.as_array().unwrap().iter().find(|change| change["kind"] == "transfer").unwrap().clone();
    assert_eq!((&shown["code"], &shown["agent"]), (&asked["code"], &json!("second@home.example.org")));
    room.latchkeyd(&["refuse", asked["code"].as_str().unwrap()]).well();
    room.latchkey(&["snapshot", "kitchen", "-o", "a.jpg"]).well();
    transfer(&["--no-wait"]).refused(3, &["ask again in"]);
    // A release at the device ends that pause; then it is claimed, handed on and approved.
    room.latchkey(&["deactivate", "kitchen"]).well();
    room.latchkeyd(&["release", "--yes"]).well();
    room.latchkey(&["forget", "kitchen"]).well();
    claim(&room, &room, "kitchen");
    room.latchkeyd(&["grant", "camera"]).well();
    let handing = std::thread::spawn({
        let mut latchkey = command(&room, &program("latchkey"));
        latchkey.args(["transfer", "kitchen", "--to", "second@home.example.org", &heir_flag, "--json"]);
        move || run(latchkey)
    });
    let code = until("the transfer", || {
        let claims = room.latchkeyd(&["claims", "--json"]).well().json();
        let pending = claims.as_array().unwrap().iter().find(|change| change["state"] == "pending")?;
        Some(pending["code"].as_str().unwrap().to_owned())
    });
    room.latchkeyd(&["approve", &code]).well();
    let handed = handing.join().unwrap().well();
    assert!(handed.out.contains("approved"), "{handed:?}");

    let status = room.latchkeyd(&["status", "--json"]).well().json();
    assert_eq!((&status["owner"]["agent"], &status["grants_on"]), (&json!("second@home.example.org"), &json!([])));
    assert_eq!(status["active_until"], json!(null));
    refused_to_the_first(&room);
    // The second one talks to the device with its own key; here as its controller would, once it knows the address.
    let seed = controller_seed(&second, "second@home.example.org");
    let heir = Agent::from_seed("second@home.example.org", &seed);
    assert_eq!(heir.public().to_string(), heir_key);
    let line = daemon.line();
    assert_eq!(line.device.to_string(), key);
    let registered = heir.ask(&line, fresh_id(), &OwnerRequest::Registration).value();
    assert_eq!(registered.get("owner").unwrap()["agent"], json!("second@home.example.org"));
    assert_eq!(
        heir.call(&line, "camera.snapshot", json!({})).code(),
        ErrorCode::Denied,
        "the grant was the first one's"
    );
}

fn refused_to_the_first(room: &Room) {
    let ended: Ended = room.latchkey(&["health", "kitchen"]);
    assert!([2, 3].contains(&ended.code()), "{ended:?}");
}

fn controller_seed(room: &Room, agent: &str) -> [u8; 32] {
    let text = std::fs::read_to_string(room.controller().join("agents").join(agent).join("key")).unwrap();
    wire::text::base64url_decode(text.trim_end()).unwrap().try_into().unwrap()
}

/// Until when the device is active, if it is.
fn active(daemon: &Daemon) -> Option<u64> {
    daemon.keeper().status().active_until
}

#[test]
fn an_agent_never_has_two_active_devices_and_waits_when_the_first_cannot_be_asked() {
    let (room, other) = (Room::new(), Room::new());
    let mut kitchen = Start::simulated(&room).set("device.name=kitchen").up();
    let cellar = Start::simulated(&other).set("device.name=cellar").up();
    room.latchkey(&["agent", "new", "helper@home.example.org"]).well();
    claim(&room, &room, "kitchen");
    claim(&other, &room, "cellar");
    for (name, on, off) in
        [("kitchen", &kitchen, &cellar), ("cellar", &cellar, &kitchen), ("kitchen", &kitchen, &cellar)]
    {
        room.latchkey(&["activate", name]).well();
        assert!(active(on).is_some() && active(off).is_none(), "{name}");
    }
    // The first device hangs: it may be active still, so the second is not activated before its lease is over.
    room.latchkey(&["activate", "kitchen", "--lease", "60"]).well();
    let address = kitchen.line().address;
    kitchen.kill();
    let refused = room.latchkey(&["--timeout", "3", "activate", "cellar"]);
    let refused = refused.refused(4, &["kitchen may still be active", "never has two active devices"]);
    assert_eq!(active(&cellar), None, "{refused:?}");
    // It is back, was restarted, and says so itself: now the second one may.
    let _kitchen = Start::simulated(&room).set(&format!("link.direct.listen={address}")).up();
    room.latchkey(&["activate", "cellar"]).well();
    assert!(active(&cellar).is_some());
}

#[test]
fn a_lease_ends_by_time_and_so_does_what_runs_under_it() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.own(&line, &keeper);
    keeper.grant("camera");
    keeper.grant("display.text");
    owner.activate(&line, wire::request::LEASE_MS_MIN);
    owner.call(&line, "display.text", text("in time")).value();
    // A camera that never sends a frame would be cut off after ten seconds; the lease is over before.
    device.simulation.camera.trouble(Some(handlers::CameraTrouble::Silent));
    let outcome = owner.call(&line, "camera.snapshot", json!({}));
    assert_eq!(outcome.code(), ErrorCode::Cancelled, "{outcome:?}");
    assert_eq!(keeper.status().active_until, None);
    assert_eq!(owner.call(&line, "display.text", text("too late")).code(), ErrorCode::NotActive);
    assert_eq!(device.simulation.screen.count(), 1);
    owner.activate(&line, 60_000);
    owner.call(&line, "display.text", text("anew")).value();
}

#[test]
fn only_one_of_two_claims_is_approved_and_the_other_falls_with_it() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (line, keeper) = (device.line(), device.keeper());
    let secret = keeper.pair();
    let (first, second) = (Agent::default(), Agent::new("other@home.example.org"));
    let ids = [fresh_id(), fresh_id()];
    for (agent, id) in [(&first, ids[0]), (&second, ids[1])] {
        line.post(&agent.claim(&line.device, id, line.challenge(), &secret)).outcome(&line.device).value();
    }
    keeper.approve(&ids[0]);
    let states: Vec<_> = keeper.claims().into_iter().map(|claim| claim.state).collect();
    assert_eq!(states, ["approved", "refused"]);
    first.call(&line, "device.health", json!({})).value();
    let asked = line.post(&second.seal(&line.device, fresh_id(), line.challenge(), &OwnerRequest::Registration));
    assert!(asked.is_forbidden(), "{asked:?}");
    // The other one may still ask how its claim stands, and learns it.
    let status = second.ask(&line, fresh_id(), &OwnerRequest::ChangeStatus { target: ids[1] }).value();
    assert_eq!(status, object(json!({ "state": "refused" })));
}
