use config::digest::Digest;
use handlers::Fault;
use handlers::wasm::log::HandlerLog;
use tokio::sync::watch;

use super::*;
use crate::folder::HandlerAbout;
use crate::testing::HandClock;

/// A capability whose bounds take nearly the 4 KiB that they may.
fn wordy(number: usize) -> Installed {
    let mut declaration = Declaration::device_health();
    declaration.name = format!("custom.acme.wordy{number:03}").parse().unwrap();
    let property = |index: usize| {
        let described = serde_json::json!({"type": "integer", "description": "x".repeat(150)});
        (format!("p{index}"), described)
    };
    let properties: serde_json::Map<_, _> = (0..19).map(property).collect();
    let bounds = serde_json::json!({"type": "object", "properties": properties, "additionalProperties": false});
    declaration.bounds = wire::Bounds::parse(wire::json::parse(bounds.to_string().as_bytes()).unwrap()).unwrap();
    Installed { declaration, make: Arc::new(|| Err(Fault::Failed("never made".to_owned()))), custom: None }
}

fn sealed(content: &str) -> Seal {
    Seal { file: Digest::of(content.as_bytes()), manifest: None }
}

fn handler(name: &str, content: &str) -> Installed {
    let name: CapabilityName = name.parse().unwrap();
    let about = HandlerAbout { file: format!("{name}.wasm"), memory_bytes: 1, result_bytes_max: 1, reach: Vec::new() };
    let custom = Custom { seal: sealed(content), about, log: Arc::new(HandlerLog::default()) };
    let declaration = Declaration { grant: Some(name.grant()), name, ..Declaration::device_health() };
    Installed { declaration, make: Arc::new(|| Err(Fault::Failed("never made".to_owned()))), custom: Some(custom) }
}

fn catalogue(installed: Vec<Installed>) -> Result<Catalogue, GrowError> {
    let (_, snapshots) = watch::channel(Snapshot::nobody(crate::store::Durable::new("boot")));
    Catalogue::new(installed, Soil { board: Board::new(), clock: HandClock::new(), snapshots })
}

fn looked(installed: Vec<Installed>) -> FolderNow {
    FolderNow { installed, ..FolderNow::default() }
}

fn names(refused: &[RefusedHandler]) -> Vec<String> {
    refused.iter().map(|refused| refused.name.as_ref().unwrap().to_string()).collect()
}

#[test]
fn a_device_declares_no_more_than_fits_a_registration() {
    let many: Vec<_> = (0..400).map(wordy).collect();
    assert!(catalogue(many[..200].to_vec()).is_ok());
    let refused = catalogue(many).map(|_| ()).err().unwrap().to_string();
    assert!(refused.contains("a device may declare 1048576"), "{refused}");
}

#[test]
fn what_finds_no_room_is_refused_by_name_and_what_served_before_keeps_its_own() {
    let builtin = Installed { declaration: Declaration::camera_snapshot(), ..wordy(0) };
    let catalogue = catalogue(vec![builtin]).unwrap();
    let wordy = |number: usize| {
        let sealed = handler(&format!("custom.acme.wordy{number:03}"), "a");
        let bounds = wordy(number).declaration.bounds;
        Installed { declaration: Declaration { bounds, ..sealed.declaration.clone() }, ..sealed }
    };
    let all: Vec<_> = (0..400).map(wordy).collect();
    let (offer, refused) = catalogue.draft(&catalogue.now(), looked(all.clone()), &BTreeMap::new());
    assert!((100..399).contains(&refused.len()), "{}", refused.len());
    assert_eq!(offer.capabilities.len() + refused.len(), 401);
    assert!(offer.capabilities.contains_key(&Declaration::camera_snapshot().name), "the program's own stay");
    assert!(refused[0].why.contains("no room"), "{}", refused[0].why);
    assert_eq!(
        refused.last().unwrap().name,
        Some("custom.acme.wordy399".parse().unwrap()),
        "the last by name go first"
    );
    let known = BTreeMap::from([("custom.acme.wordy399".parse().unwrap(), sealed("a"))]);
    let (_, again) = catalogue.draft(&catalogue.now(), looked(all), &known);
    assert!(!names(&again).contains(&"custom.acme.wordy399".to_owned()), "what served before a restart keeps its room");
    assert_eq!(again.len(), refused.len());
}

#[test]
fn a_handler_that_takes_anothers_place_or_grant_is_refused_beside_one_that_does_not() {
    let catalogue = catalogue(vec![Installed { declaration: Declaration::camera_snapshot(), ..wordy(0) }]).unwrap();
    let with = |change: fn(&mut Installed)| {
        let mut one = handler("custom.acme.lamp", "a");
        change(&mut one);
        let (_, refused) = catalogue.draft(&catalogue.now(), looked(vec![one]), &BTreeMap::new());
        refused.first().map(|refused| refused.why.clone())
    };
    assert_eq!(with(|_| {}), None);
    let own = Some("a handler has a custom name, a seal, and a grant of its own".to_owned());
    assert_eq!(with(|one| one.declaration.grant = Some("camera".parse().unwrap())), own);
    assert_eq!(with(|one| one.declaration.grant = None), own);
    assert_eq!(with(|one| one.custom = None), own);
    assert_eq!(with(|one| one.declaration.name = "display.text".parse().unwrap()), own);
    let taken = Some("another capability of this device has its name".to_owned());
    assert_eq!(with(|one| one.declaration.name = "camera.snapshot".parse().unwrap()), taken);
    assert!(with(|one| one.declaration.timeout = Duration::from_secs(61)).is_some(), "what breaks the limits");
}

#[test]
fn what_did_not_change_is_the_same_installation_and_what_did_is_another() {
    let catalogue = catalogue(Vec::new()).unwrap();
    let draft = |before: &Offer, lamp: &str| {
        let now = looked(vec![handler("custom.acme.lamp", lamp), handler("custom.acme.bell", "b")]);
        catalogue.draft(before, now, &BTreeMap::new()).0
    };
    let first = draft(&catalogue.now(), "a");
    assert!(draft(&first, "a").same_as(&first));
    let second = draft(&first, "A");
    assert!(!second.same_as(&first));
    let gone: Vec<_> = first.without(&second).map(|one| one.declaration.name.to_string()).collect();
    assert_eq!(gone, ["custom.acme.lamp"]);
    let grants: Vec<_> = second.grants.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(grants, ["custom.acme.bell", "custom.acme.lamp"]);
}
