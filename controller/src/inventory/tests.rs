use wire::keys::{SecretKey, Signer as _};

use super::*;

fn device(name: &str, seed: u8) -> Device {
    Device {
        name: name.parse().unwrap(),
        named: true,
        key: SecretKey::from_seed(&[seed; 32]).public().clone(),
        address: Address { tls: true, host: "192.0.2.7".to_owned(), port: 7601 },
        standing: Standing::Owned,
        change: Some(Change {
            kind: ChangeKind::Transfer { to: "heir@home.example.org".parse().unwrap() },
            id: Id::from_bytes([seed; 24]),
            code: Some("482 913".parse().unwrap()),
            asked_at: 1,
            expires_at: 2,
            state: ChangeState::Pending,
        }),
        hold: None,
    }
}

#[test]
fn an_inventory_is_read_as_it_was_written_and_nothing_else_is() {
    let inventory = Inventory { devices: vec![device("kitchen", 1), device("hall", 2)] };
    let json = String::from_utf8(inventory.to_json().unwrap()).unwrap();
    assert_eq!(Inventory::from_json(json.as_bytes()).unwrap(), inventory);
    let twice = Inventory { devices: vec![device("kitchen", 1), device("kitchen", 2)] }.to_json().unwrap();
    for (bytes, named) in [
        (json.replace("\"version\": 1", "\"version\": 2"), "newer"),
        (json.replace("\"named\"", "\"named\": true, \"new\""), "damaged"),
        (json.replace("\"version\": 1,", "\"version\": 1, \"extra\": 1,"), "damaged"),
        (json.replace("\"owned\"", "\"sold\""), "damaged"),
        (json.get(..json.len() / 2).unwrap().to_owned(), "damaged"),
        (String::from_utf8(twice).unwrap(), "twice"),
    ] {
        let found = match Inventory::from_json(bytes.as_bytes()).unwrap_err() {
            InventoryError::Damaged(_) => "damaged",
            InventoryError::Newer(_) => "newer",
            InventoryError::Twice(_) => "twice",
        };
        assert_eq!(found, named, "{bytes}");
    }
}

#[test]
fn a_device_is_found_by_name_key_or_fingerprint() {
    let devices = [device("kitchen", 1), device("hall", 2)];
    let key = devices[0].key.to_string();
    let fingerprint = devices[0].key.fingerprint();
    let found = |wanted: &str| find(devices.iter(), wanted).map(|device| device.name.to_string());
    let unknown = |wanted: &str, meant: Option<&str>| {
        Err(NotFound::Unknown { wanted: wanted.to_owned(), meant: meant.map(|meant| meant.parse().unwrap()) })
    };
    for wanted in ["kitchen", &key, &key[..6], &fingerprint, &fingerprint[..14]] {
        assert_eq!(found(wanted), Ok("kitchen".to_owned()), "{wanted}");
    }
    assert_eq!(found("kitchn"), unknown("kitchn", Some("kitchen")));
    assert_eq!(found(&key[..5]), unknown(&key[..5], None));
    assert_eq!(found("ed25519:"), unknown("ed25519:", None));
    let same = [device("kitchen", 1), device("kitchen", 2)];
    assert!(matches!(find(same.iter(), "kitchen"), Err(NotFound::Ambiguous { .. })));
}

#[test]
fn a_name_survives_a_command_line() {
    for (own, expected) in [
        ("kitchen", "kitchen"),
        ("Küche 2", "Küche-2"),
        ("\u{1b}[31mred", "31mred"),
        ("../../etc", "etc"),
        ("--json", "json"),
        ("", "device"),
        ("\u{202e}", "device"),
    ] {
        assert_eq!(DeviceName::from_device(own).as_str(), expected, "{own:?}");
    }
    for bad in ["", "-x", "a b", "a/b", "a\u{1b}", &"x".repeat(65)] {
        assert!(bad.parse::<DeviceName>().is_err(), "{bad:?}");
    }
    let long: DeviceName = "x".repeat(64).parse().unwrap();
    assert_eq!(long.free_among(|name| *name == long).as_str(), format!("{}-2", "x".repeat(62)));
}
