//! A small made-up workspace, written into a folder of its own and read through cargo like ours. Each row puts one flaw
//! into it, and beside it a sound line in the same place, which must pass.

use std::{collections::BTreeMap, fs};

use super::{Flaw, HOMES, flaws, read};

/// Room, what it uses of the others, what it uses of the vendored libraries.
const ROOMS: &[(&str, &[&str], &[&str])] = &[
    ("wire", &[], &["ed25519-dalek", "base64"]),
    ("config", &["wire"], &["figment"]),
    (
        "handlers",
        &["wire", "config"],
        &[
            "wasmtime",
            "wasmtime-wasi",
            "wasmtime-wasi-http",
            "wit-component",
            "wat",
            "landlock",
            "seccompiler",
            "v4l",
            "cpal",
            "base64",
        ],
    ),
    ("actors", &["wire", "config", "handlers"], &["ractor", "rusqlite"]),
    ("runtime", &["wire", "config", "handlers", "actors"], &[]),
    ("discovery", &["wire"], &[]),
    ("controller", &["wire", "config", "discovery"], &["base64"]),
    ("hub", &["wire", "config", "discovery", "controller"], &[]),
    ("tests", &["wire", "runtime", "controller", "hub"], &[]),
    ("bench", &["wire", "actors", "runtime"], &["wasmtime", "wat"]),
    ("examples", &["wire", "controller", "hub"], &[]),
];

/// Folder under `vendor/`, name, version. Two versions of one library, of which the clean workspace uses one.
const LIBRARIES: &[(&str, &str, &str)] = &[
    ("ed25519-dalek", "ed25519-dalek", "3.0.0"),
    ("base64", "base64", "0.23.0"),
    ("base64-old", "base64", "0.22.1"),
    ("figment", "figment", "0.10.0"),
    ("wasmtime", "wasmtime", "30.0.0"),
    ("wasmtime-wasi", "wasmtime-wasi", "30.0.0"),
    ("wasmtime-wasi-http", "wasmtime-wasi-http", "30.0.0"),
    ("wit-component", "wit-component", "0.220.0"),
    ("wat", "wat", "1.220.0"),
    ("landlock", "landlock", "0.4.0"),
    ("seccompiler", "seccompiler", "0.5.0"),
    ("v4l", "v4l", "0.14.0"),
    ("cpal", "cpal", "0.18.0"),
    ("ractor", "ractor", "0.16.0"),
    ("rusqlite", "rusqlite", "0.43.0"),
];

struct Row {
    name: &'static str,
    file: String,
    /// The text in that file whose place is taken.
    place: &'static str,
    sound: &'static str,
    flawed: &'static str,
    flaw: Flaw,
}

/// Where in every room's manifest further lines may stand.
const NEEDS: &str = "# further needs";
const TEST_NEEDS: &str = "# also in tests";
const PROFILES: &str = "# profiles";

/// A need of this kind for that library, as lines that can stand anywhere between other needs.
macro_rules! need {
    ($kind:literal, $library:literal) => {
        concat!("[target.'cfg(unix)'.", $kind, "]\n", $library, ".workspace = true")
    };
}

fn rows() -> Vec<Row> {
    let arrow = |from: &str, to: &str| Flaw::Arrow { from: from.to_owned(), to: to.to_owned() };
    let mut rows = vec![
        Row {
            name: "a device room uses a controller room",
            file: "runtime/Cargo.toml".to_owned(),
            place: NEEDS,
            sound: "discovery.workspace = true",
            flawed: "controller.workspace = true",
            flaw: arrow("runtime", "controller"),
        },
        Row {
            name: "a controller room uses a device room, under another name",
            file: "controller/Cargo.toml".to_owned(),
            place: "config.workspace = true",
            sound: r#"settings = { path = "../config", package = "latchkey-config" }"#,
            flawed: r#"settings = { path = "../actors", package = "latchkey-actors" }"#,
            flaw: arrow("controller", "actors"),
        },
        Row {
            name: "a room uses one to its right, only in tests",
            file: "config/Cargo.toml".to_owned(),
            place: TEST_NEEDS,
            sound: "wire.workspace = true",
            flawed: "handlers.workspace = true",
            flaw: arrow("config", "handlers"),
        },
        Row {
            name: "a room uses another only when a feature is on",
            file: "discovery/Cargo.toml".to_owned(),
            place: NEEDS,
            sound: r#"base64 = { workspace = true, optional = true }"#,
            flawed: r#"config = { workspace = true, optional = true }"#,
            flaw: arrow("discovery", "config"),
        },
        Row {
            name: "the benchmark uses the tests",
            file: "bench/Cargo.toml".to_owned(),
            place: NEEDS,
            sound: "hub.workspace = true",
            flawed: r#"tests = { path = "../tests", package = "latchkey-tests" }"#,
            flaw: arrow("bench", "tests"),
        },
        Row {
            name: "a room that the architecture does not know",
            file: "examples/Cargo.toml".to_owned(),
            place: r#"name = "latchkey-examples""#,
            sound: r#"name = "latchkey-examples""#,
            flawed: r#"name = "latchkey-utils""#,
            flaw: Flaw::RoomWithoutPlace { room: "utils".to_owned() },
        },
        Row {
            name: "a library in two versions",
            file: "actors/Cargo.toml".to_owned(),
            place: NEEDS,
            sound: r#"base64 = { path = "../vendor/base64" }"#,
            flawed: r#"base64 = { path = "../vendor/base64-old" }"#,
            flaw: Flaw::TwoVersions {
                package: "base64".to_owned(),
                versions: vec!["0.22.1".to_owned(), "0.23.0".to_owned()],
            },
        },
        Row {
            name: "the signature library is lenient because a test asks for it",
            file: "hub/Cargo.toml".to_owned(),
            place: TEST_NEEDS,
            sound: r#"ed25519-dalek = { workspace = true, features = ["zeroize"] }"#,
            flawed: r#"ed25519-dalek = { workspace = true, features = ["legacy_compatibility"] }"#,
            flaw: Flaw::LenientSignatures,
        },
        Row {
            name: "the signature library is lenient behind a feature of ours",
            file: "wire/Cargo.toml".to_owned(),
            place: "[dev-dependencies]",
            sound: "[features]\nold = [\"ed25519-dalek/zeroize\"]\n[dev-dependencies]",
            flawed: "[features]\nold = [\"ed25519-dalek/legacy_compatibility\"]\n[dev-dependencies]",
            flaw: Flaw::LenientSignatures,
        },
        Row {
            name: "a profile of the manifest aborts",
            file: "Cargo.toml".to_owned(),
            place: PROFILES,
            sound: "[profile.small]\ninherits = \"release\"\npanic = \"unwind\"",
            flawed: "[profile.small]\ninherits = \"release\"\npanic = \"abort\"",
            flaw: Flaw::PanicAborts { file: "Cargo.toml".to_owned(), profile: "small".to_owned() },
        },
        Row {
            name: "a profile of cargo's settings aborts",
            file: ".cargo/config.toml".to_owned(),
            place: PROFILES,
            sound: "profile.release.panic = \"unwind\"",
            flawed: "profile.release.panic = \"abort\"",
            flaw: Flaw::PanicAborts { file: ".cargo/config.toml".to_owned(), profile: "release".to_owned() },
        },
        Row {
            name: "a library without a reason",
            file: "Cargo.toml".to_owned(),
            place: r#"figment = { path = "vendor/figment", version = "0.10.0" } # why"#,
            sound: r#"figment = { path = "vendor/figment", version = "0.10.0" } # settings in layers"#,
            flawed: r#"figment = { path = "vendor/figment", version = "0.10.0" }"#,
            flaw: Flaw::NoReason { dependency: "figment".to_owned() },
        },
        Row {
            name: "a library with an empty reason",
            file: "Cargo.toml".to_owned(),
            place: r#"figment = { path = "vendor/figment", version = "0.10.0" } # why"#,
            sound: r#"figment = { path = "vendor/figment", version = "0.10.0" } # x"#,
            flawed: r#"figment = { path = "vendor/figment", version = "0.10.0" } #"#,
            flaw: Flaw::NoReason { dependency: "figment".to_owned() },
        },
        Row {
            name: "a room with lints of its own",
            file: "handlers/Cargo.toml".to_owned(),
            place: "[lints]\nworkspace = true",
            sound: "[lints]\nworkspace = true # ours",
            flawed: "[lints.rust]\nunsafe_code = \"allow\"",
            flaw: Flaw::OwnLints { room: "handlers".to_owned() },
        },
        Row {
            name: "a room with no lints",
            file: "hub/Cargo.toml".to_owned(),
            place: "[lints]\nworkspace = true",
            sound: "[lints]\nworkspace = true",
            flawed: "",
            flaw: Flaw::OwnLints { room: "hub".to_owned() },
        },
    ];
    for (library, room, sound, flawed) in [
        (
            "ed25519-dalek",
            "controller",
            need!("dev-dependencies", "ed25519-dalek"),
            need!("dependencies", "ed25519-dalek"),
        ),
        ("wit-component", "bench", need!("dev-dependencies", "wit-component"), need!("dependencies", "wit-component")),
        ("figment", "runtime", need!("dev-dependencies", "figment"), need!("dependencies", "figment")),
        ("wasmtime", "actors", need!("dev-dependencies", "wasmtime"), need!("build-dependencies", "wasmtime")),
        (
            "wasmtime-wasi",
            "runtime",
            need!("dev-dependencies", "wasmtime-wasi"),
            need!("dependencies", "wasmtime-wasi"),
        ),
        (
            "wasmtime-wasi-http",
            "runtime",
            need!("dev-dependencies", "wasmtime-wasi-http"),
            need!("dependencies", "wasmtime-wasi-http"),
        ),
        ("wit-component", "config", need!("dev-dependencies", "wit-component"), need!("dependencies", "wit-component")),
        ("wat", "tests", need!("dev-dependencies", "wat"), need!("dependencies", "wat")),
        ("landlock", "runtime", need!("dev-dependencies", "landlock"), need!("dependencies", "landlock")),
        ("seccompiler", "actors", need!("dev-dependencies", "seccompiler"), need!("dependencies", "seccompiler")),
        ("v4l", "tests", need!("dev-dependencies", "v4l"), need!("dependencies", "v4l")),
        ("cpal", "runtime", need!("dev-dependencies", "cpal"), need!("dependencies", "cpal")),
        ("ractor", "runtime", need!("dev-dependencies", "ractor"), need!("dependencies", "ractor")),
        ("rusqlite", "hub", need!("dev-dependencies", "rusqlite"), need!("dependencies", "rusqlite")),
    ] {
        let flaw = Flaw::AwayFromHome { package: library.to_owned(), room: room.to_owned() };
        let name = "a library ships away from its home";
        rows.push(Row { name, file: format!("{room}/Cargo.toml"), place: NEEDS, sound, flawed, flaw });
    }
    rows
}

/// The files of the clean workspace.
fn clean() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let members = ROOMS.iter().map(|(room, ..)| format!("\"{room}\"")).collect::<Vec<_>>().join(", ");
    let mut root = format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\nexclude = [\"vendor\"]\n\n");
    root += "[workspace.lints.rust]\nunsafe_code = \"deny\"\n\n[workspace.dependencies]\n";
    for (room, ..) in ROOMS {
        root += &format!("{room} = {{ path = \"{room}\", package = \"latchkey-{room}\" }}\n");
    }
    for (folder, name, version) in LIBRARIES.iter().filter(|(folder, ..)| *folder != "base64-old") {
        root += &format!("{name} = {{ path = \"vendor/{folder}\", version = \"{version}\" }} # why\n");
    }
    root += &format!("\n[profile.release]\npanic = \"unwind\"\n\n{PROFILES}\n");
    files.insert("Cargo.toml".to_owned(), root);
    files.insert(".cargo/config.toml".to_owned(), format!("{PROFILES}\n"));
    for (room, rooms, libraries) in ROOMS {
        let needs = rooms.iter().chain(*libraries).map(|name| format!("{name}.workspace = true\n")).collect::<String>();
        let manifest = package(&format!("latchkey-{room}"), "0.1.0")
            + &format!(
                "\n[lints]\nworkspace = true\n\n[dependencies]\n{needs}{NEEDS}\n\n[dev-dependencies]\n{TEST_NEEDS}\n"
            );
        files.insert(format!("{room}/Cargo.toml"), manifest);
        files.insert(format!("{room}/src/lib.rs"), String::new());
    }
    for (folder, name, version) in LIBRARIES {
        let features = "\n[features]\nlegacy_compatibility = []\nzeroize = []\n";
        files.insert(format!("vendor/{folder}/Cargo.toml"), package(name, version) + features);
        files.insert(format!("vendor/{folder}/src/lib.rs"), String::new());
    }
    files
}

fn package(name: &str, version: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"{version}\"\nedition = \"2024\"\n")
}

/// Writes the files into a folder that is gone afterwards, and has it judged.
fn judge(files: &BTreeMap<String, String>) -> Vec<Flaw> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    flaws(&read(folder.path()))
}

fn check(row: &Row) {
    let with = |line: &str| {
        let mut files = clean();
        let text = files.get_mut(&row.file).unwrap();
        assert!(text.contains(row.place), "{}: no such place", row.name);
        *text = text.replacen(row.place, line, 1);
        judge(&files)
    };
    assert_eq!(with(row.sound), [], "{}: the sound line", row.name);
    assert_eq!(with(row.flawed), std::slice::from_ref(&row.flaw), "{}: the flawed line", row.name);
}

#[test]
fn a_clean_workspace_has_no_flaw() {
    assert_eq!(judge(&clean()), []);
}

#[test]
fn each_flaw_is_found_and_named_and_the_sound_line_beside_it_passes() {
    for row in rows() {
        check(&row);
    }
}

#[test]
fn every_large_library_has_a_row_in_which_it_strays() {
    for (library, _) in HOMES {
        let strays = |row: &Row| matches!(&row.flaw, Flaw::AwayFromHome { package, .. } if package == library);
        assert!(rows().iter().any(strays), "{library} never strays");
    }
}
