//! A signed request has one effect: however often it is sent at once, under however many challenges, and whatever others do
//! with the challenge meanwhile (C1, C3, C6). Effects are counted in the simulated screen.

use std::sync::{Arc, Barrier};

use latchkey_tests::agent::{fresh_id, invoke, text};
use latchkey_tests::keeper::short;
use latchkey_tests::{Agent, Daemon, Inside, Keeper, Line, Reply, Room, Start, Wire};
use serde_json::json;
use wire::{ErrorCode, Lease, OwnerRequest};

/// As many as the cases name; all of them are connected before the first byte is sent.
const COPIES: usize = 200;

/// Sends all of these at the same moment, each on a connection of its own.
fn at_once(line: &Line, envelopes: Vec<Vec<u8>>) -> Vec<Reply> {
    let start = Arc::new(Barrier::new(envelopes.len()));
    let senders: Vec<_> = envelopes
        .into_iter()
        .map(|envelope| {
            let (mut wire, start) = (line.connect(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                wire.post(&envelope)
            })
        })
        .collect();
    senders.into_iter().map(|sender| sender.join().unwrap()).collect()
}

/// The call records of a capability, in short.
fn calls(keeper: &Keeper, after: u64, capability: &str) -> Vec<String> {
    let records = keeper.records(after);
    records
        .iter()
        .filter(|record| record.kind == "call" && record.what.as_deref() == Some(capability))
        .map(short)
        .collect()
}

#[test]
fn two_hundred_copies_of_one_signed_request_at_once_have_one_effect_and_one_answer() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.settle(&line, &keeper, &["display.text"]);
    let sealed = owner.seal(&line.device, fresh_id(), line.challenge(), &invoke("display.text", text("once")));
    let before = keeper.last();
    let replies = at_once(&line, vec![sealed; COPIES]);
    let (answered, refused): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 200);
    assert_eq!((answered.len(), refused.len()), (1, COPIES - 1));
    assert!(refused.iter().all(Reply::is_forbidden));
    answered[0].outcome(&line.device).value();
    assert_eq!(device.simulation.screen.count(), 1, "effects on the screen");
    assert_eq!(calls(&keeper, before, "display.text"), ["call display.text started", "call display.text ok"]);
    // The control: two requests that differ in nothing but id and challenge are two effects.
    for _ in 0..2 {
        owner.call(&line, "display.text", text("once")).value();
    }
    assert_eq!(device.simulation.screen.count(), 3);
}

#[test]
fn two_hundred_fresh_requests_with_one_id_have_one_effect() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.settle(&line, &keeper, &["display.text"]);
    let (id, before) = (fresh_id(), keeper.last());
    let mut asking = line.connect();
    let request = invoke("display.text", text("once"));
    let envelopes = (0..COPIES).map(|_| owner.seal(&line.device, id, asking.challenge(), &request)).collect();
    let words: Vec<_> = at_once(&line, envelopes).iter().map(|reply| reply.outcome(&line.device).word()).collect();
    assert!(words.iter().all(|word| ["ok", "in_progress"].contains(word)), "{words:?}");
    assert!(words.contains(&"ok"), "{words:?}");
    assert_eq!(device.simulation.screen.count(), 1, "effects on the screen");
    let records = calls(&keeper, before, "display.text");
    assert_eq!(records.iter().filter(|record| record.ends_with("started")).count(), 1);
    assert_eq!(records.len(), COPIES + 1, "each accepted request leaves its record");
    // Later, the same id has the stored outcome, other content under it is refused, and neither has an effect.
    assert_eq!(owner.call_as(&line, id, "display.text", text("once")).word(), "ok");
    assert_eq!(owner.call_as(&line, id, "display.text", text("twice")).code(), ErrorCode::IdReused);
    assert_eq!(device.simulation.screen.count(), 1);
    keeper.verify();
}

#[test]
fn ten_thousand_challenges_wrong_signatures_and_claims_do_not_spoil_the_challenge_of_the_owner() {
    const STRANGERS: usize = 4;
    const CHALLENGES: usize = 10_000;
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.settle(&line, &keeper, &["display.text"]);
    let challenge = line.challenge();
    let strangers: Vec<_> = (0..STRANGERS)
        .map(|_| {
            let mut wire = line.connect();
            std::thread::spawn(move || (0..CHALLENGES / STRANGERS).map(|_| wire.challenge()).collect::<Vec<_>>())
        })
        .collect();
    let mut taken: Vec<_> = strangers.into_iter().flat_map(|stranger| stranger.join().unwrap()).collect();
    taken.push(challenge);
    let unique: std::collections::HashSet<_> = taken.iter().map(ToString::to_string).collect();
    assert_eq!(unique.len(), CHALLENGES + 1, "no challenge twice");

    let stranger = Agent::new("stranger@elsewhere.example.org");
    let secret = wire::PairingSecret::from_bytes([7; 16]);
    let mut wire = line.connect();
    for _ in 0..100 {
        let request = invoke("display.text", text("mine"));
        for sealed in [
            stranger.seal(&line.device, fresh_id(), challenge, &request),
            stranger.seal(&line.device, fresh_id(), challenge, &OwnerRequest::Release),
            stranger.claim(&line.device, fresh_id(), challenge, &secret),
            owner.claim(&line.device, fresh_id(), challenge, &secret),
            owner.seal(stranger.public(), fresh_id(), challenge, &request),
        ] {
            let reply = wire.post(&sealed);
            assert!(reply.is_forbidden(), "{reply:?}");
        }
    }
    assert_eq!(device.simulation.screen.count(), 0);
    let sealed = owner.seal(&line.device, fresh_id(), challenge, &invoke("display.text", text("still good")));
    line.post(&sealed).outcome(&line.device).value();
    assert_eq!(device.simulation.screen.count(), 1);
    assert!(line.post(&sealed).is_forbidden(), "and now it is spent");
}

#[test]
fn challenges_cost_a_device_no_memory() {
    const MANY: usize = 20_000;
    const GROWTH_MAX_KIB: u64 = 8 * 1024;
    let room = Room::new();
    let daemon = Start::simulated(&room).up();
    let resident = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let mut wire = daemon.line().connect();
    for _ in 0..1_000 {
        let _warm = wire.challenge();
    }
    let before = resident();
    for _ in 0..MANY {
        let _taken = wire.challenge();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "{MANY} challenges took {grown} KiB");
}

#[test]
fn bad_claims_under_the_challenge_of_a_claimant_do_not_spoil_its_claim() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (line, keeper) = (device.line(), device.keeper());
    let secret = keeper.pair();
    let (claimant, stranger) = (Agent::default(), Agent::new("stranger@elsewhere.example.org"));
    let challenge = line.challenge();
    let guesses = wire::PairingSecret::from_bytes([7; 16]);
    let mut wire = line.connect();
    // More than the claims whose challenges are remembered.
    for round in 0..1_100 {
        let sealed = stranger.claim(
            &line.device,
            fresh_id(),
            if round % 2 == 0 { challenge } else { wire.challenge() },
            &guesses,
        );
        assert!(wire.post(&sealed).is_forbidden());
    }
    let id = fresh_id();
    line.post(&claimant.claim(&line.device, id, challenge, &secret)).outcome(&line.device).value();
    keeper.approve(&id);
    claimant.call(&line, "device.health", json!({})).value();
}

/// How many texts the simulated screen of a daemon has shown.
fn shown(daemon: &Daemon) -> usize {
    daemon.out.all().iter().filter(|line| line.contains("simulated screen:")).count()
}

#[test]
fn after_a_restart_and_after_kill_9_an_old_envelope_is_refused_and_a_new_one_is_not() {
    let room = Room::new();
    let owner = Agent::default();
    let mut daemon = Start::simulated(&room).up();
    owner.settle(&daemon.line(), &daemon.keeper(), &["display.text"]);
    for hard in [false, true] {
        let line = daemon.line();
        let request = invoke("display.text", text("once"));
        let used = owner.seal(&line.device, fresh_id(), line.challenge(), &request);
        let unused = owner.seal(&line.device, fresh_id(), line.challenge(), &request);
        owner.activate(&line, 300_000);
        line.post(&used).outcome(&line.device).value();
        daemon.out.await_line("simulated screen:");
        let before = daemon.keeper().last();
        if hard {
            daemon.kill();
        } else {
            assert_eq!(daemon.stop(), 0);
        }
        assert_eq!(shown(&daemon), 1);
        daemon = Start::simulated(&room).up();
        let line = daemon.line();
        for (name, old) in [("used", &used), ("unused", &unused)] {
            let reply = line.post(old);
            assert!(reply.is_forbidden(), "{name}, hard: {hard}: {reply:?}");
            daemon.err.await_line("reason=\"challenge\"");
        }
        assert_eq!(daemon.keeper().records(before).len(), 0, "a stranger to this start leaves no record");
        assert_eq!(shown(&daemon), 0, "hard: {hard}");
        // The control: the same request, asked for anew.
        owner.activate(&line, 300_000);
        owner.ask(&line, fresh_id(), &request).value();
        daemon.out.await_line("simulated screen:");
        daemon.keeper().verify();
        assert_eq!(daemon.stop(), 0);
        daemon = Start::simulated(&room).up();
    }
}

#[test]
fn a_delayed_activate_cannot_revive_what_was_deactivated_or_changed_hands() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line, keeper) = (Agent::default(), device.line(), device.keeper());
    owner.own(&line, &keeper);
    let active = || keeper.status().active_until.is_some();
    let activate = || {
        let lease = Lease::from_ms(60_000).unwrap();
        owner.seal(&line.device, fresh_id(), line.challenge(), &OwnerRequest::Activate { lease })
    };
    let (delayed, again) = (activate(), activate());
    owner.ask(&line, fresh_id(), &OwnerRequest::Deactivate).value();
    assert!(line.post(&delayed).is_forbidden(), "issued before the deactivate");
    assert!(!active());
    line.post(&activate()).outcome(&line.device).value();
    assert!(active(), "the control: asked for after it");
    assert!(line.post(&again).is_forbidden());
    let former = activate();
    keeper.release();
    owner.own(&line, &keeper);
    assert!(line.post(&former).is_forbidden(), "issued under a former ownership of the same key");
    assert!(!active());
    line.post(&activate()).outcome(&line.device).value();
    assert!(active());
}

#[test]
fn a_challenge_serves_once_also_on_its_own_connection() {
    let room = Room::new();
    let device = Inside::new(&room);
    let (owner, line) = (Agent::default(), device.line());
    owner.own(&line, &device.keeper());
    let mut wire: Wire = line.connect();
    let challenge = wire.challenge();
    let sealed = |id| owner.seal(&line.device, id, challenge, &OwnerRequest::Registration);
    assert_eq!(wire.post(&sealed(fresh_id())).status, 200);
    assert!(wire.post(&sealed(fresh_id())).is_forbidden());
}
