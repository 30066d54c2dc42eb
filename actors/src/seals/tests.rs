use std::sync::Arc;

use super::*;
use crate::folder::RefusedHandler;
use crate::store::GrantRow;

const LAMP: &str = "custom.acme.lamp";

fn name(text: &str) -> CapabilityName {
    text.parse().unwrap()
}

fn seal(file: &str, manifest: Option<&str>) -> Seal {
    Seal { file: Digest::of(file.as_bytes()), manifest: manifest.map(|text| Digest::of(text.as_bytes())) }
}

fn pending(handlers: &[(&str, Seal)]) -> Folder {
    let pending = handlers.iter().map(|(handler, seal)| (name(handler), *seal)).collect();
    Folder { pending, held: None, refused: Vec::new(), notice: None }
}

fn refusing(why: &str) -> Folder {
    let refused =
        RefusedHandler { file: format!("{LAMP}.wasm"), name: Some(name(LAMP)), why: why.to_owned(), seal: None };
    Folder { refused: vec![refused], ..pending(&[]) }
}

/// An offer of files that are on their way; what serves is tried with a whole house.
fn offer(folder: Option<Folder>) -> Offer {
    Offer { capabilities: BTreeMap::new(), grants: Vec::new(), folder: folder.map(Arc::new) }
}

fn granted(row: Option<Seal>) -> Durable {
    let mut durable = Durable::new("boot");
    durable.grants.insert("camera".parse().unwrap(), GrantRow { since_ms: 0, seal: None });
    durable.grants.insert(LAMP.parse().unwrap(), GrantRow { since_ms: 0, seal: row });
    durable.folder.known.extend(row.map(|seal| (name(LAMP), seal)));
    durable
}

#[track_caller]
fn check(row: Option<Seal>, folder: Option<Folder>, by: Option<WithdrawnBy>) -> Durable {
    let mut durable = granted(row);
    let followed = follow(&mut durable, &offer(folder), 7);
    let lamp = LAMP.parse().unwrap();
    assert_eq!(durable.withdrawn.get(&lamp).map(|withdrawn| withdrawn.by), by);
    assert_eq!(durable.grants.contains_key(&lamp), by.is_none());
    assert_eq!(followed.withdrawn.len(), usize::from(by.is_some()));
    assert_eq!(followed.records.contains(&format!("grant.withdrawn {LAMP}")), by.is_some());
    assert!(durable.grants.contains_key(&"camera".parse().unwrap()), "what is no handler's stays");
    durable
}

#[test]
fn a_grant_ends_with_its_content_and_it_is_known_what_changed() {
    let (old, with) = (seal("a", None), seal("a", Some("m")));
    let lamp = |seal| Some(pending(&[(LAMP, seal)]));
    check(Some(old), lamp(old), None);
    check(Some(old), None, None);
    check(Some(old), lamp(seal("b", None)), Some(WithdrawnBy::File));
    check(Some(with), lamp(seal("a", Some("n"))), Some(WithdrawnBy::Manifest));
    check(Some(with), lamp(old), Some(WithdrawnBy::Manifest));
    check(Some(with), lamp(seal("b", Some("n"))), Some(WithdrawnBy::Both));
    check(Some(old), Some(pending(&[("custom.acme.bell", old)])), Some(WithdrawnBy::Removed));
    check(Some(old), Some(refusing("odd")), Some(WithdrawnBy::Refused));
    let held_back = |seal| {
        let mut folder = refusing("its reach is not there yet");
        folder.refused[0].seal = Some(seal);
        Some(folder)
    };
    check(Some(old), held_back(old), None);
    check(Some(old), held_back(seal("b", None)), Some(WithdrawnBy::Refused));
    check(None, lamp(old), Some(WithdrawnBy::File));
}

#[test]
fn a_content_that_comes_back_does_not_bring_its_grant() {
    let (a, b) = (seal("a", None), seal("b", None));
    let mut durable = check(Some(a), Some(pending(&[(LAMP, b)])), Some(WithdrawnBy::File));
    let followed = follow(&mut durable, &offer(Some(pending(&[(LAMP, a)]))), 8);
    assert_eq!(followed.records, [format!("handler.changed {LAMP}")]);
    assert!(!durable.granted(&LAMP.parse().unwrap(), Some(&a)));
}

#[test]
fn each_fact_is_told_once() {
    let (a, b) = (seal("a", None), seal("b", None));
    let mut durable = granted(Some(a));
    let mut told = |folder: Folder| follow(&mut durable, &offer(Some(folder)), 7).records;
    let lamp = |seal| pending(&[(LAMP, seal)]);
    assert_eq!(told(lamp(a)), [""; 0], "known, and on its way back after a restart");
    assert_eq!(told(lamp(b)), [format!("handler.changed {LAMP}"), format!("grant.withdrawn {LAMP}")]);
    assert_eq!(told(lamp(b)), [""; 0]);
    assert_eq!(told(refusing("odd")), [format!("handler.refused {LAMP}.wasm")]);
    assert_eq!(told(refusing("odd")), [""; 0]);
    assert_eq!(told(refusing("even")), [format!("handler.refused {LAMP}.wasm")], "for another reason");
    assert_eq!(told(pending(&[])), [""; 0], "it was out of service already");
    assert_eq!(told(refusing("even")), [format!("handler.refused {LAMP}.wasm")], "it had gone in between");
}

#[test]
fn what_goes_is_told_once() {
    let mut durable = granted(Some(seal("a", None)));
    let told = follow(&mut durable, &offer(Some(pending(&[]))), 7).records;
    assert_eq!(told, [format!("handler.removed {LAMP}"), format!("grant.withdrawn {LAMP}")]);
    assert_eq!(follow(&mut durable, &offer(Some(pending(&[]))), 8), Followed::default());
}

#[test]
fn rubbish_fills_neither_the_journal_nor_the_state() {
    let mut durable = Durable::new("boot");
    let file = |number: usize| RefusedHandler {
        file: format!("{}{number}", "é".repeat(300)),
        name: None,
        why: "odd".to_owned(),
        seal: None,
    };
    let folder = || Folder { refused: (0..REFUSED_MAX * 2).map(file).collect(), ..pending(&[]) };
    let told = follow(&mut durable, &offer(Some(folder())), 7).records;
    assert_eq!((told.len(), durable.folder.refused.len()), (REFUSED_MAX, REFUSED_MAX));
    assert!(told.iter().all(|what| what.len() <= "handler.refused ".len() + FILE_BYTES_MAX));
    assert_eq!(follow(&mut durable, &offer(Some(folder())), 8), Followed::default());
    for number in 0..WITHDRAWN_MAX * 2 {
        let row = GrantRow { since_ms: 0, seal: Some(seal("a", None)) };
        durable.grants.insert(format!("custom.acme.n{number}").parse().unwrap(), row);
    }
    follow(&mut durable, &offer(Some(folder())), 9);
    assert_eq!((durable.grants.len(), durable.withdrawn.len()), (0, WITHDRAWN_MAX));
}

#[test]
fn the_keeper_is_told_what_changed_and_what_to_do() {
    let (a, b) = (seal("a", None), seal("b", None));
    let mut durable = granted(Some(a));
    let coming = offer(Some(pending(&[(LAMP, b)])));
    follow(&mut durable, &coming, 7);
    let said = "custom.acme.lamp: its file was changed since you granted it, so it is off; ";
    assert_eq!(waiting(&coming, &durable), [format!("{said}once it is ready: latchkeyd grant {LAMP}")]);
    assert_eq!(waiting_unseen(&durable), [format!("{said}to grant it again: latchkeyd grant {LAMP}")]);
    assert_eq!(waiting(&offer(Some(pending(&[]))), &durable), [""; 0], "what is gone waits for nobody");
    let refused = waiting(&offer(Some(refusing("odd"))), &durable);
    assert!(refused[0].ends_with("its file is refused now, so it is off; see why: latchkeyd handlers"), "{refused:?}");
}
