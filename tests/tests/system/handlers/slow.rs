//! M8: copies that take their time.

use std::time::Duration;

use latchkey_tests::guests::text;
use latchkey_tests::until;

use super::{Kitchen, WORD, named};

/// A handler of five megabytes: most of it is a section that nothing reads.
fn large() -> Vec<u8> {
    let mut bytes = wat::parse_str(text("echo")).unwrap();
    let filling = vec![b'x'; 5 << 20];
    let name = b"\x07filling";
    bytes.push(0);
    // The length as LEB128: seven bits a byte, the lowest first.
    let mut length = name.len() + filling.len();
    while length > 0x7f {
        bytes.push(0x80 | u8::try_from(length & 0x7f).unwrap());
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(&filling);
    bytes
}

#[test]
fn a_slow_copy_is_installed_once_after_its_last_byte_and_nothing_is_said_of_its_halves() {
    let kitchen = Kitchen::new(|handlers| handlers.manifest(&named("large"), &WORD.text()));
    let (name, file) = (named("large"), named("large.wasm"));
    kitchen.handlers.slowly(&file, &large(), 40, Duration::from_millis(50));
    kitchen.granted(&name);
    kitchen.say(&name, "whole").value();
    assert_eq!(kitchen.count(&format!("handler.installed {name}")), 1);
    assert_eq!(kitchen.count(&format!("handler.refused {file}")), 0, "{:#?}", kitchen.records());
    kitchen.goes_on("a slow copy");
}

#[test]
fn a_copy_that_stops_half_way_is_refused_and_taken_when_it_is_whole() {
    let kitchen = Kitchen::new(|handlers| handlers.manifest(&named("large"), &WORD.text()));
    let (name, file) = (named("large"), named("large.wasm"));
    let bytes = large();
    kitchen.handlers.in_place(&file, &bytes[..bytes.len() / 2]);
    let why = kitchen.refused(&file);
    assert!(why.contains("damaged"), "{why}");
    assert_eq!(kitchen.say(&name, "").word(), "unsupported");
    kitchen.handlers.in_place(&file, &bytes);
    kitchen.granted(&name);
    kitchen.say(&name, "whole").value();
    assert_eq!(kitchen.count(&format!("handler.refused {file}")), 1, "{:#?}", kitchen.records());
}

#[test]
fn a_file_under_another_name_that_is_renamed_is_installed_once_and_many_at_once_are_all_seen() {
    let kitchen = Kitchen::new(|_| ());
    let name = named("lamp");
    kitchen.handlers.fixture(&name, "echo", WORD);
    kitchen.granted(&name);
    assert_eq!(kitchen.count(&format!("handler.installed {name}")), 1, "{:#?}", kitchen.records());
    let many: Vec<_> = (0..30).map(|at| named(&format!("many{at}"))).collect();
    for name in &many {
        kitchen.handlers.fixture(name, "echo", WORD);
    }
    for name in &many {
        kitchen.ready(name);
        assert_eq!(kitchen.count(&format!("handler.installed {name}")), 1);
    }
    for name in &many {
        kitchen.handlers.remove(&format!("{name}.wat"));
        kitchen.handlers.remove(&format!("{name}.toml"));
    }
    until("all gone", || (kitchen.listed().len() == 2).then_some(()));
    kitchen.goes_on("a crowd");
}
