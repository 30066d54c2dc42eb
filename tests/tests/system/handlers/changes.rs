//! What is on disk is what is in service: changes, removals, and what becomes of grants and of calls that run (R2).

use std::fs;

use latchkey_tests::guests::Mode;
use latchkey_tests::until;
use serde_json::json;

use super::{Kitchen, WORD, named, word};

/// Until the house knows that the grant of a changed handler is off.
fn withdrawn(kitchen: &Kitchen, name: &str, what: &str) {
    let waiting =
        until("withdrawn", || kitchen.keeper().status().waiting_handlers.into_iter().find(|line| line.contains(name)));
    assert!(waiting.contains(what) && waiting.contains(&format!("latchkeyd grant {name}")), "{waiting}");
}

#[test]
fn a_changed_file_or_manifest_loses_its_grant_and_the_call_that_ran_ends_as_it_would_have() {
    let name = named("nap");
    let kitchen = Kitchen::new(|handlers| handlers.fixture(&name, "long_nap", WORD));
    kitchen.granted(&name);
    kitchen.say(&name, "warm").value();

    // R2: the file changes under a call.
    let running = kitchen.calling(&name, json!({ "word": "old" }));
    until("it runs", || {
        kitchen.keeper().status().tree.is_some_and(|tree| format!("{tree:?}").contains(&name)).then_some(())
    });
    kitchen.handlers.fixture(&name, "echo", WORD);
    kitchen.ready(&name);
    assert_eq!(kitchen.say(&name, "new").word(), "denied");
    let ended = running.join().unwrap();
    assert_eq!(word(&ended.value(), "word"), "old", "by the old content");
    withdrawn(&kitchen, &name, "file");
    assert!(!kitchen.standing(&name).on);
    kitchen.keeper().grant(&name);
    assert_eq!(word(&kitchen.say(&name, "new").value(), "word"), "new");
    assert_eq!(kitchen.keeper().status().waiting_handlers, Vec::<String>::new());

    // The manifest alone.
    kitchen.handlers.manifest(&name, &Mode { top: "timeout = \"2s\"", ..WORD }.text());
    kitchen.ready(&name);
    assert_eq!(kitchen.say(&name, "").word(), "denied");
    withdrawn(&kitchen, &name, ".toml");
    kitchen.keeper().grant(&name);
    kitchen.say(&name, "").value();

    // The same content again, written anew, touched and renamed into place, is the same handler.
    let known = (kitchen.standing(&name), kitchen.records());
    kitchen.handlers.manifest(&name, &Mode { top: "timeout = \"2s\"", ..WORD }.text());
    kitchen.handlers.whole(&format!("{name}.wat"), &fs::read(kitchen.handlers.path(&format!("{name}.wat"))).unwrap());
    kitchen.takes(&named("later"), "echo", WORD);
    kitchen.say(&name, "still").value();
    let after = kitchen.records();
    let of_it: Vec<_> = after[known.1.len()..].iter().filter(|record| record.contains(&name)).collect();
    assert!(of_it.is_empty(), "{of_it:?}");

    // Away, it is unsupported; back with the same content, it is to be granted again.
    let kept = ["wat", "toml"].map(|ending| kitchen.handlers.path(&format!("{name}.{ending}")));
    let [text, manifest] = kept.each_ref().map(|path| fs::read(path).unwrap());
    kept.iter().for_each(|path| fs::remove_file(path).unwrap());
    until("gone", || (kitchen.say(&name, "").word() == "unsupported").then_some(()));
    kitchen.handlers.whole(&format!("{name}.toml"), &manifest);
    kitchen.handlers.whole(&format!("{name}.wat"), &text);
    kitchen.ready(&name);
    assert_eq!(kitchen.say(&name, "").word(), "denied");
    withdrawn(&kitchen, &name, "removed and put back");
    kitchen.goes_on("changes");
    let said = kitchen.records();
    for record in ["handler.installed", "handler.changed", "handler.removed"] {
        assert!(said.contains(&format!("{record} {name}")), "{record}: {said:#?}");
    }
    kitchen.keeper().verify();
}

#[test]
fn a_grant_outlives_a_restart_for_the_same_content_and_not_for_what_changed_meanwhile() {
    let (same, changed, gone) = (named("same"), named("changed"), named("gone"));
    let kitchen = Kitchen::new(|handlers| {
        for name in [&same, &changed, &gone] {
            handlers.fixture(name, "echo", WORD);
        }
    });
    for name in [&same, &changed, &gone] {
        kitchen.granted(name);
        kitchen.say(name, "before").value();
    }
    let Kitchen { mut daemon, agent, handlers, room } = kitchen;
    assert_eq!(daemon.stop(), 0);
    handlers.fixture(&changed, "echo_anew", WORD);
    handlers.remove(&format!("{gone}.wat"));
    let daemon = latchkey_tests::Start::simulated(&room).up();
    let kitchen = Kitchen { daemon, agent, handlers, room };
    kitchen.ready(&same);
    kitchen.say(&same, "after").value();
    kitchen.ready(&changed);
    assert_eq!(kitchen.say(&changed, "after").word(), "denied");
    assert_eq!(kitchen.say(&gone, "after").word(), "unsupported");
    withdrawn(&kitchen, &changed, "file");
    kitchen.goes_on("a restart");
}

#[test]
fn a_folder_that_is_moved_away_takes_its_handlers_out_and_brings_them_back() {
    let kitchen = Kitchen::new(|_| ());
    kitchen.goes_on("before");
    let (here, away) = (kitchen.handlers.folder().to_owned(), kitchen.room.file("away"));
    fs::rename(&here, &away).unwrap();
    until("out of service", || (kitchen.say(super::NEIGHBOUR, "").word() == "unsupported").then_some(()));
    fs::rename(&away, &here).unwrap();
    kitchen.granted(super::NEIGHBOUR);
    kitchen.goes_on("back");
}

#[test]
fn the_agent_sees_a_handler_come_and_go_with_its_bounds_and_the_keepers_list_names_all_of_it() {
    let kitchen = Kitchen::new(|_| ());
    let name = named("lamp");
    let of = |kitchen: &Kitchen| {
        kitchen.registration().capabilities.into_iter().find(|offered| offered.declaration.name.as_str() == name)
    };
    assert!(of(&kitchen).is_none());
    kitchen.handlers.fixture(&name, "echo", Mode { top: "timeout = \"2s\"", ..WORD });
    kitchen.ready(&name);
    let offered = of(&kitchen).expect("declared");
    assert!(!offered.grant_on);
    let bounds = serde_json::to_value(&offered.declaration.bounds).unwrap();
    assert_eq!(bounds["properties"]["word"]["maxLength"], 3000, "{bounds}");
    assert_eq!(kitchen.call(&name, json!({ "word": 7 })).word(), "invalid_arguments");
    assert_eq!(kitchen.call(&name, json!({ "other": "x" })).word(), "invalid_arguments");
    assert_eq!(kitchen.say(&name, "x").word(), "denied");

    let listed = kitchen.room.latchkeyd(&["handlers", "--json"]).well().json();
    let lines = listed.as_array().or(listed["handlers"].as_array()).expect("a list");
    let line = lines.iter().find(|line| line["name"] == *name).expect("listed");
    assert_eq!((&line["state"], &line["on"], &line["timeout_ms"]), (&json!("ready"), &json!(false), &json!(2000)));
    assert_eq!(line["file_sha256"].as_str().map(str::len), Some(64));
    let shown = kitchen.room.latchkeyd(&["handlers"]).well();
    assert!(shown.out.contains(&name), "{shown:?}");

    kitchen.handlers.remove(&format!("{name}.wat"));
    until("gone", || of(&kitchen).is_none().then_some(()));
}
