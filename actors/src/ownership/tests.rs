use super::*;
use crate::testing::{agent, key, owner_row};

fn now(boot_ms: u64) -> Now {
    Now { boot: BootTime::from_ms(boot_ms), wall_ms: 1_000_000 + boot_ms }
}

fn id(byte: u8) -> Id {
    Id::from_bytes([byte; 24])
}

fn salt() -> Salt {
    Salt::from_bytes([9; 24])
}

fn free() -> Durable {
    Durable::new("boot")
}

fn owned() -> Durable {
    let mut durable = free();
    durable.owner = Some(owner_row(1));
    grant(&mut durable, "camera".parse().unwrap(), None, &now(0));
    durable
}

fn claim_by(durable: &mut Durable, who: u8, request: u8, at: u64) -> Result<Asked, Refusal> {
    claim(durable, &key(99), id(request), (agent(), key(who)), salt(), &now(at))
}

fn states(durable: &Durable) -> Vec<&'static str> {
    durable.changes.iter().map(|change| change.state.as_str()).collect()
}

#[test]
fn one_claim_waits_for_a_key_and_four_in_all() {
    let mut durable = free();
    for who in 1..=4 {
        assert!(claim_by(&mut durable, who, who, 0).unwrap().new);
    }
    let again = claim_by(&mut durable, 2, 2, 5).unwrap();
    assert!(!again.new && again.change == durable.changes[1], "the same id gets the same answer");
    assert_eq!(claim_by(&mut durable, 2, 7, 5).unwrap_err().message, "a claim of this key waits already");
    assert!(claim_by(&mut durable, 5, 5, 5).unwrap_err().message.starts_with("too many claims"));
    assert!(claim_by(&mut owned(), 5, 5, 5).unwrap_err().message.contains("owned already"));
}

#[test]
fn approving_a_claim_refuses_the_others_and_turns_everything_off() {
    let mut durable = free();
    grant(&mut durable, "camera".parse().unwrap(), None, &now(0));
    claim_by(&mut durable, 1, 1, 0).unwrap();
    claim_by(&mut durable, 2, 2, 0).unwrap();
    let decided = approve(&mut durable, &id(2), &now(1)).unwrap();
    assert!(decided.new_owner);
    assert_eq!(decided.fallen.len(), 1);
    assert_eq!(durable.owner.as_ref().unwrap().key, key(2));
    assert_eq!((durable.ownership, durable.grants.len()), (2, 0));
    assert_eq!(states(&durable), ["refused", "approved"]);
    assert!(approve(&mut durable, &id(1), &now(1)).is_none(), "what was refused cannot be approved");
}

#[test]
fn a_change_expires_and_is_forgotten_a_day_later() {
    let mut durable = free();
    claim_by(&mut durable, 1, 1, 0).unwrap();
    assert!(expire(&mut durable, &now(PENDING_MS - 1)).is_empty());
    assert_eq!(expire(&mut durable, &now(PENDING_MS)).len(), 1);
    assert_eq!(states(&durable), ["expired"]);
    expire(&mut durable, &now(PENDING_MS + DECISION_KEPT_MS - 1));
    assert_eq!(states(&durable), ["expired"]);
    expire(&mut durable, &now(PENDING_MS + DECISION_KEPT_MS));
    assert!(durable.changes.is_empty());
}

#[test]
fn a_refused_transfer_bars_the_next_for_a_pause_that_doubles() {
    let mut durable = owned();
    let ask = |durable: &mut Durable, request, at| {
        transfer(durable, &key(99), id(request), (agent(), key(2)), salt(), &now(at))
    };
    let mut at = 0;
    for (round, pause) in [(1, REFUSED_PAUSE_MS), (2, 2 * REFUSED_PAUSE_MS), (3, 4 * REFUSED_PAUSE_MS)] {
        ask(&mut durable, round, at).unwrap();
        refuse(&mut durable, &id(round), &now(at)).unwrap();
        let early = ask(&mut durable, 100 + round, at + pause - 1).unwrap_err();
        assert!(early.message.contains("ask again in 1 min"), "{}", early.message);
        at += pause;
    }
    assert!(release(&mut durable, id(9), &now(at)).unwrap().new);
    assert!(ask(&mut durable, 10, at).unwrap_err().message.contains("another change waits"));
}

#[test]
fn a_transfer_to_the_present_key_is_a_conflict() {
    let mut durable = owned();
    let to_self = transfer(&mut durable, &key(99), id(1), (agent(), key(1)), salt(), &now(0));
    assert_eq!(to_self.unwrap_err().error, ErrorCode::Conflict);
    assert!(transfer(&mut durable, &key(99), id(1), (agent(), key(2)), salt(), &now(0)).unwrap().new);
}

#[test]
fn a_release_at_the_device_frees_it_in_one_step() {
    let mut durable = owned();
    transfer(&mut durable, &key(99), id(1), (agent(), key(2)), salt(), &now(0)).unwrap();
    let (was, fallen) = release_here(&mut durable, &now(1)).unwrap();
    assert_eq!((was.key, fallen.len()), (key(1), 1));
    assert_eq!((durable.owner.is_none(), durable.grants.is_empty(), durable.ownership), (true, true, 2));
    assert!(release_here(&mut durable, &now(1)).is_none());
}

#[test]
fn after_a_reboot_what_waited_expires_and_what_was_decided_still_answers() {
    let mut durable = free();
    claim_by(&mut durable, 1, 1, 0).unwrap();
    refuse(&mut durable, &id(1), &now(1)).unwrap();
    claim_by(&mut durable, 2, 2, 2).unwrap();
    let mut same_boot = durable.clone();
    assert!(after_reboot(&mut same_boot, "boot", &now(3)).is_empty(), "a restart alone changes nothing");
    assert_eq!(after_reboot(&mut durable, "another", &now(3)).len(), 1);
    assert_eq!(states(&durable), ["refused", "expired"]);
}

#[test]
fn the_keeper_names_a_change_by_id_or_code() {
    let mut durable = free();
    let code = match claim_by(&mut durable, 1, 1, 0).unwrap().change.kind {
        ChangeKind::Claim { code, .. } => code.to_string(),
        other => panic!("{other:?}"),
    };
    let means = |which: &str| find_pending(&durable, which);
    assert_eq!(means(&code), Ok(id(1)));
    assert_eq!(means(&code.replace(' ', "")), Ok(id(1)));
    assert_eq!(means(&id(1).to_string()), Ok(id(1)));
    let wrong = if code == "000 000" { "000 001" } else { "000 000" };
    assert!(means(wrong).unwrap_err().starts_with("nothing waits under"));
    refuse(&mut durable, &id(1), &now(0)).unwrap();
    assert!(find_pending(&durable, &code).unwrap_err().ends_with("is refused already"));
}

#[test]
fn grants_say_whether_they_changed() {
    let mut durable = free();
    let camera: GrantName = "camera.snapshot".parse().unwrap();
    assert_eq!(camera.as_str(), "camera");
    assert!(grant(&mut durable, camera.clone(), None, &now(0)) && !grant(&mut durable, camera.clone(), None, &now(5)));
    assert_eq!(durable.grants[&camera].since_ms, 1_000_000);
    assert!(revoke(&mut durable, &camera) && !revoke(&mut durable, &camera));
}

#[test]
fn an_id_belongs_to_the_key_that_used_it() {
    let mut durable = free();
    claim_by(&mut durable, 1, 1, 0).unwrap();
    assert_eq!(claim_by(&mut durable, 2, 1, 0).unwrap_err().message, "this id belongs to a change of another key");
    assert_eq!(durable.changes[0].asked_by, key(1));
    assert!(claim_by(&mut durable, 2, 2, 0).unwrap().new);
    approve(&mut durable, &id(2), &now(1)).unwrap();
    let of_another = release(&mut durable, id(1), &now(1)).unwrap_err();
    assert_eq!(of_another.message, "this id belongs to a change of another key");
    assert!(release(&mut durable, id(3), &now(1)).unwrap().new);
}

#[test]
fn what_has_run_out_is_not_approved_also_before_anybody_noticed() {
    let mut durable = free();
    claim_by(&mut durable, 1, 1, 0).unwrap();
    assert!(approve(&mut durable.clone(), &id(1), &now(PENDING_MS - 1)).is_some());
    assert!(approve(&mut durable, &id(1), &now(PENDING_MS)).is_none());
    assert_eq!(states(&durable), ["pending"]);
}

#[test]
fn a_reboot_does_not_shorten_a_pause_that_had_doubled() {
    let mut durable = owned();
    for (request, at) in [(1, 0), (2, REFUSED_PAUSE_MS)] {
        release(&mut durable, id(request), &now(at)).unwrap();
        refuse(&mut durable, &id(request), &now(at)).unwrap();
    }
    after_reboot(&mut durable, "another", &now(5));
    assert!(release(&mut durable, id(3), &now(5 + 2 * REFUSED_PAUSE_MS - 1)).is_err());
    assert!(release(&mut durable, id(3), &now(5 + 2 * REFUSED_PAUSE_MS)).unwrap().new);
}

#[test]
fn a_new_owner_does_not_pay_for_the_refusals_of_the_former_one() {
    let refused_once = || {
        let mut durable = owned();
        release(&mut durable, id(1), &now(0)).unwrap();
        refuse(&mut durable, &id(1), &now(0)).unwrap();
        durable
    };
    let mut released = refused_once();
    release_here(&mut released, &now(1)).unwrap();
    released.owner = Some(owner_row(2));
    let mut handed_on = refused_once();
    transfer(&mut handed_on, &key(99), id(2), (agent(), key(2)), salt(), &now(REFUSED_PAUSE_MS)).unwrap();
    approve(&mut handed_on, &id(2), &now(REFUSED_PAUSE_MS)).unwrap();
    for (durable, at) in [(&mut released, 2), (&mut handed_on, REFUSED_PAUSE_MS + 1)] {
        assert!(release(durable, id(3), &now(at)).unwrap().new);
        refuse(durable, &id(3), &now(at)).unwrap();
        assert!(release(durable, id(4), &now(at + REFUSED_PAUSE_MS - 1)).is_err());
        assert!(release(durable, id(4), &now(at + REFUSED_PAUSE_MS)).unwrap().new, "the pause begins at its shortest");
    }
}

#[test]
fn only_so_many_decided_changes_are_kept_and_a_decided_id_asks_anew() {
    let mut durable = free();
    for round in 0..=100 {
        claim_by(&mut durable, 1, round, 0).unwrap();
        refuse(&mut durable, &id(round), &now(0)).unwrap();
        expire(&mut durable, &now(0));
    }
    assert_eq!((durable.changes.len(), durable.changes[0].id), (DECIDED_MAX, id(101 - 64)));
    assert!(claim_by(&mut durable, 1, 100, 0).unwrap().new);
    assert_eq!(durable.changes.iter().filter(|change| change.id == id(100)).count(), 1);
}
