//! Holds the walls of the workspace: which crate may use which, where each large dependency lives, and what keeps the
//! rest of the promises possible (one version of a library, panics that unwind, reasons beside dependencies, one table of lints).
//!
//! [`read`] asks cargo and the manifests once; [`flaws`] judges what was read and touches nothing else, so that the same
//! function judges our workspace here and the small made-up ones in [`fixture`].

mod fixture;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package};
use toml_edit::{DocumentMut, Item, TableLike};

/// Our crates are packages whose names begin so; what follows is the room.
const OURS: &str = "latchkey-";

/// The rooms a room may use. A room that is not listed has no place in the house yet: give it one in the architecture first.
fn may_use(room: &str) -> Option<&'static [&'static str]> {
    match room {
        "wire" => Some(&[]),
        "config" => Some(&["wire"]),
        "handlers" => Some(&["wire", "config"]),
        "actors" => Some(&["wire", "config", "handlers"]),
        "runtime" => Some(&["wire", "config", "handlers", "actors", "discovery"]),
        "discovery" => Some(&["wire"]),
        "controller" => Some(&["wire", "config", "discovery"]),
        "hub" => Some(&["wire", "config", "discovery", "controller"]),
        "tests" | "bench" | "examples" => {
            Some(&["wire", "config", "handlers", "actors", "runtime", "discovery", "controller", "hub"])
        }
        _ => None,
    }
}

/// Large dependencies and the one room that ships with each. Tests of other rooms may use them.
const HOMES: &[(&str, &str)] = &[
    ("ed25519-dalek", "wire"),
    ("figment", "config"),
    ("wasmtime", "handlers"),
    ("wasmtime-wasi", "handlers"),
    ("wasmtime-wasi-http", "handlers"),
    ("wit-component", "handlers"),
    ("wat", "handlers"),
    ("landlock", "handlers"),
    ("seccompiler", "handlers"),
    ("v4l", "handlers"),
    ("cpal", "handlers"),
    ("ractor", "actors"),
    ("rusqlite", "actors"),
];

/// What the benchmark holds our figures against, bare. Nothing of it is shipped.
const MEASURED: &[(&str, &str)] = &[("wasmtime", "bench"), ("wat", "bench")];

/// With this feature the signature library takes signatures that the strict rules refuse.
const LENIENT: (&str, &str) = ("ed25519-dalek", "legacy_compatibility");

/// What is wrong with a workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Flaw {
    RoomWithoutPlace { room: String },
    Arrow { from: String, to: String },
    AwayFromHome { package: String, room: String },
    TwoVersions { package: String, versions: Vec<String> },
    LenientSignatures,
    PanicAborts { file: String, profile: String },
    NoReason { dependency: String },
    OwnLints { room: String },
}

/// What the check needs to know of a workspace.
struct Workspace {
    rooms: Vec<Room>,
    /// Package and feature, for every feature that is on in the whole graph with all of our features on.
    features: BTreeSet<(String, String)>,
    /// The files that can hold profiles, by name: the root manifest first.
    settings: Vec<(String, DocumentMut)>,
}

struct Room {
    name: String,
    manifest: DocumentMut,
    /// The packages it asks for, and whether what it ships contains them (a test's need is not shipped).
    needs: Vec<(String, bool)>,
    /// The packages cargo chose for it, with their versions.
    chosen: Vec<(String, String)>,
}

fn read(root: &Path) -> Workspace {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        // Only what this machine builds: other systems' libraries were never fetched.
        .other_options(["--offline", "--filter-platform", "host-tuple"].map(String::from))
        .exec()
        .unwrap();
    let settings = ["Cargo.toml", ".cargo/config.toml"]
        .into_iter()
        .filter(|name| root.join(name).exists())
        .map(|name| (name.to_owned(), document(&root.join(name))))
        .collect();
    let resolve = metadata.resolve.as_ref().unwrap();
    let features = resolve
        .nodes
        .iter()
        .flat_map(|node| node.features.iter().map(|feature| (metadata[&node.id].name.to_string(), feature.to_string())))
        .collect();
    Workspace {
        rooms: metadata.workspace_packages().iter().map(|package| room(&metadata, package)).collect(),
        features,
        settings,
    }
}

fn room(metadata: &Metadata, package: &Package) -> Room {
    let node = metadata.resolve.as_ref().unwrap().nodes.iter().find(|node| node.id == package.id).unwrap();
    Room {
        name: room_of(&package.name).unwrap_or(&package.name).to_owned(),
        manifest: document(package.manifest_path.as_std_path()),
        needs: package
            .dependencies
            .iter()
            .map(|needed| (needed.name.clone(), needed.kind != DependencyKind::Development))
            .collect(),
        chosen: node
            .deps
            .iter()
            .map(|needed| (metadata[&needed.pkg].name.to_string(), metadata[&needed.pkg].version.to_string()))
            .collect(),
    }
}

fn document(path: &Path) -> DocumentMut {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

fn room_of(package: &str) -> Option<&str> {
    package.strip_prefix(OURS)
}

/// Every flaw, sorted, each once.
fn flaws(workspace: &Workspace) -> Vec<Flaw> {
    let mut found = BTreeSet::new();
    for room in &workspace.rooms {
        found.extend(arrows(room));
        found.extend(strangers(room));
        if !inherits_lints(room) {
            found.insert(Flaw::OwnLints { room: room.name.clone() });
        }
    }
    found.extend(versions(&workspace.rooms));
    if workspace.features.contains(&(LENIENT.0.to_owned(), LENIENT.1.to_owned())) {
        found.insert(Flaw::LenientSignatures);
    }
    found.extend(workspace.settings.iter().flat_map(|(file, settings)| aborts(file, settings)));
    found.extend(workspace.settings.iter().flat_map(|(_, settings)| without_reason(settings)));
    found.into_iter().collect()
}

/// Arrows count for tests too: a test that reaches into a later room ties the two together as firmly.
fn arrows(room: &Room) -> Vec<Flaw> {
    let Some(allowed) = may_use(&room.name) else {
        return vec![Flaw::RoomWithoutPlace { room: room.name.clone() }];
    };
    room.needs
        .iter()
        .filter_map(|(package, _)| room_of(package))
        .filter(|to| !allowed.contains(to))
        .map(|to| Flaw::Arrow { from: room.name.clone(), to: to.to_owned() })
        .collect()
}

fn strangers(room: &Room) -> Vec<Flaw> {
    let away = |package: &str| {
        HOMES.iter().any(|(name, home)| *name == package && *home != room.name)
            && !MEASURED.contains(&(package, room.name.as_str()))
    };
    room.needs
        .iter()
        .filter(|(package, shipped)| *shipped && away(package))
        .map(|(package, _)| Flaw::AwayFromHome { package: package.clone(), room: room.name.clone() })
        .collect()
}

fn inherits_lints(room: &Room) -> bool {
    room.manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Item::as_bool) == Some(true)
}

fn versions(rooms: &[Room]) -> Vec<Flaw> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (package, version) in rooms.iter().flat_map(|room| &room.chosen) {
        versions.entry(package).or_default().insert(version);
    }
    versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(package, versions)| Flaw::TwoVersions {
            package: package.to_owned(),
            versions: versions.into_iter().map(str::to_owned).collect(),
        })
        .collect()
}

fn aborts(file: &str, settings: &DocumentMut) -> Vec<Flaw> {
    table(settings.get("profile"))
        .filter(|(_, profile)| profile.get("panic").and_then(Item::as_str) == Some("abort"))
        .map(|(profile, _)| Flaw::PanicAborts { file: file.to_owned(), profile: profile.to_owned() })
        .collect()
}

/// Our own crates need no reason: the architecture gives it.
fn without_reason(settings: &DocumentMut) -> Vec<Flaw> {
    table(settings.get("workspace").and_then(|workspace| workspace.get("dependencies")))
        .filter(|(_, dependency)| dependency.get("path").is_none() || dependency.get("version").is_some())
        .filter(|(_, dependency)| !has_comment(dependency))
        .map(|(dependency, _)| Flaw::NoReason { dependency: dependency.to_owned() })
        .collect()
}

/// Whether a comment that says something follows on the same line.
fn has_comment(dependency: &Item) -> bool {
    let suffix = dependency.as_value().and_then(|value| value.decor().suffix()).and_then(|suffix| suffix.as_str());
    suffix.and_then(|suffix| suffix.trim().strip_prefix('#')).is_some_and(|reason| !reason.trim().is_empty())
}

fn table(item: Option<&Item>) -> impl Iterator<Item = (&str, &Item)> {
    item.and_then(Item::as_table_like).into_iter().flat_map(TableLike::iter)
}

#[test]
fn every_arrow_home_version_and_profile_of_this_workspace_is_as_the_architecture_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let workspace = read(root);
    assert!(workspace.rooms.len() >= 9, "cargo shows only {} of the rooms", workspace.rooms.len());
    assert_eq!(flaws(&workspace), []);
}
