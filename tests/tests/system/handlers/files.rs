//! What lies in the handlers folder and is not taken: each is listed with its reason, and the handlers beside it serve.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use latchkey_tests::guests::{Dropbox, Mode, text};
use latchkey_tests::{skip, until};
use rustix::fs::{CWD, FileType, Mode as Bits, makedev, mknodat};

use super::{Kitchen, NEIGHBOUR, WORD, named};

fn binary(fixture: &str) -> Vec<u8> {
    wat::parse_str(text(fixture)).unwrap()
}

/// A name in the folder that may hold any bytes.
fn place(handlers: &Dropbox, name: &[u8]) -> std::path::PathBuf {
    handlers.folder().join(OsStr::from_bytes(name))
}

/// M9: nothing that is not a plain file is opened, whatever it is named or leads to.
#[test]
fn links_pipes_devices_and_folders_are_listed_with_their_kind_and_none_hangs_the_device() {
    let mut devices = true;
    let kitchen = Kitchen::with(
        |room, handlers| {
            let beyond = room.file("beyond.wasm");
            fs::write(&beyond, binary("echo")).unwrap();
            let at = |name: &str| handlers.path(&format!("{}.wasm", named(name)));
            symlink(&beyond, at("link")).unwrap();
            symlink(room.file("nowhere"), at("dangling")).unwrap();
            symlink(at("loop"), at("loop")).unwrap();
            fs::create_dir(at("folder")).unwrap();
            mknodat(CWD, at("fifo"), FileType::Fifo, Bits::RUSR | Bits::WUSR, 0).unwrap();
            symlink(at("fifo"), at("link-to-fifo")).unwrap();
            drop(UnixListener::bind(at("socket")).unwrap());
            let device = mknodat(CWD, at("device"), FileType::CharacterDevice, Bits::RUSR, makedev(1, 5));
            devices = device.is_ok();
            // A good handler whose manifest is a link, and one whose manifest is a pipe.
            for name in ["linked-manifest", "piped-manifest"] {
                handlers.whole(&format!("{}.wat", named(name)), text("echo").as_bytes());
            }
            symlink(
                handlers.path(&format!("{NEIGHBOUR}.toml")),
                handlers.path(&format!("{}.toml", named("linked-manifest"))),
            )
            .unwrap();
            let pipe = handlers.path(&format!("{}.toml", named("piped-manifest")));
            mknodat(CWD, pipe, FileType::Fifo, Bits::RUSR | Bits::WUSR, 0).unwrap();
        },
        |start| start,
    );
    if !devices {
        skip("sandbox", "a device node cannot be made here, so none lay in the handlers folder");
    }
    for (name, ending, words) in [
        ("link", "wasm", "symbolic link"),
        ("dangling", "wasm", "symbolic link"),
        ("loop", "wasm", "symbolic link"),
        ("link-to-fifo", "wasm", "symbolic link"),
        ("folder", "wasm", "folder"),
        ("fifo", "wasm", "pipe"),
        ("socket", "wasm", "socket"),
        ("device", "wasm", "device"),
        ("linked-manifest", "toml", "symbolic link"),
        ("piped-manifest", "toml", "pipe"),
    ] {
        if name == "device" && !devices {
            continue;
        }
        let why = kitchen.refused(&format!("{}.{ending}", named(name)));
        assert!(why.contains(words), "{name}: {why}");
        kitchen.goes_on(name);
    }
    assert_eq!(
        kitchen.registration().capabilities.iter().filter(|offered| offered.declaration.name.is_custom()).count(),
        1
    );
}

/// M10.
#[test]
fn names_of_any_other_form_are_listed_escaped_and_the_device_goes_on() {
    let kitchen = Kitchen::new(|handlers| {
        for name in [
            b"caf\xe9.wasm".as_slice(),
            b"\xff\xfe.wasm",
            b"custom.test.new\nline.wasm",
            b"custom.test.\x1b[31mred.wasm",
            b"custom..action.wasm",
            b"custom.test...wasm",
            b"custom.test.Upper.wasm",
            b"Custom.test.upper.wasm",
            b"custom.test.action.more.wasm",
            b"custom.test.wasm",
            b"camera.snapshot.wasm",
            b"device.health.wat",
            b"lamp.wasm",
            b"custom.test.lamp.cwasm",
            "custom.test.l\u{0430}mp.wasm".as_bytes(),
        ] {
            fs::write(place(handlers, name), binary("echo")).unwrap();
        }
        // What is not meant to be seen yet is passed over without a word.
        for name in ["custom.test.unfinished.wasm.tmp", ".hidden", "custom.test.unfinished.wasm~"] {
            fs::write(handlers.path(name), b"half").unwrap();
        }
    });
    for shown in [
        "caf\\xE9.wasm",
        "\\xFF\\xFE.wasm",
        "custom..action.wasm",
        "custom.test...wasm",
        "custom.test.Upper.wasm",
        "Custom.test.upper.wasm",
        "custom.test.action.more.wasm",
        "custom.test.wasm",
        "camera.snapshot.wasm",
        "device.health.wat",
        "lamp.wasm",
        "custom.test.lamp.cwasm",
    ] {
        let why = kitchen.refused(shown);
        assert!(why.contains("custom.MAKER.ACTION"), "{shown}: {why}");
    }
    let files: Vec<_> = kitchen.listed().into_iter().map(|line| line.file).collect();
    assert_eq!(files.len(), 16, "{files:#?}");
    assert!(!files.iter().any(|file| file.chars().any(|c| c.is_control()) || file.contains("unfinished")), "{files:?}");
    let shown = kitchen.room.latchkeyd(&["handlers"]).well();
    assert!(!shown.out.contains('\u{1b}') && shown.out.contains("caf\\xE9.wasm"), "{shown:?}");
    kitchen.goes_on("odd names");
    assert_eq!(
        kitchen.registration().capabilities.iter().filter(|offered| offered.declaration.name.is_custom()).count(),
        1
    );
}

/// A file that is no handler, and words of its refusal.
struct Row(&'static str, Vec<u8>, &'static str);

fn no_handlers() -> Vec<Row> {
    let mut truncated = binary("echo");
    truncated.truncate(300);
    let cut_text = text("echo").as_bytes()[..200].to_vec();
    vec![
        Row("export_of_other_type.wasm", binary("export_of_other_type"), "type"),
        Row("export_missing.wasm", binary("export_missing"), "invoke"),
        Row("import_unknown.wasm", binary("import_unknown"), "evil:host/exec"),
        Row("core_module.wasm", binary("core_module"), "core module"),
        Row("core_text.wat", text("core_module").into_bytes(), "core module"),
        Row("memory_512_mib.wat", text("memory_512_mib").into_bytes(), "memory"),
        // M2.
        Row("memory_4_gib.wat", text("memory_4_gib").into_bytes(), "memory"),
        Row("table_10_million.wat", text("table_10_million").into_bytes(), "table"),
        Row("truncated.wasm", truncated, "damaged"),
        Row("cut_text.wat", cut_text, "text"),
        Row("garbage.wasm", b"lamp".repeat(100), "no WebAssembly"),
        Row("empty.wasm", Vec::new(), "no WebAssembly"),
        Row("text_as_binary.wasm", text("echo_anew").into_bytes(), "no WebAssembly"),
        Row("binary_as_text.wat", binary("echo_anew"), "text"),
        Row("native.wasm", [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 400]].concat(), "native code"),
    ]
}

#[test]
fn files_that_are_no_handlers_are_refused_in_words_and_the_right_one_in_their_place_is_taken() {
    let rows = no_handlers();
    let kitchen = Kitchen::new(|handlers| {
        for Row(file, bytes, _) in &rows {
            let (name, _) = file.split_once('.').unwrap();
            handlers.manifest(&named(name), &WORD.text());
            handlers.whole(&named(file), bytes);
        }
    });
    for Row(file, _, words) in &rows {
        let why = kitchen.refused(&named(file));
        assert!(why.contains(words), "{file}: no \"{words}\" in: {why}");
        let name = named(file.split_once('.').unwrap().0);
        assert_eq!(kitchen.say(&name, "").word(), "unsupported", "{file}");
    }
    kitchen.goes_on("refused files");
    // Its own precompiled code is refused as much as anybody's: only the cache may hold such.
    let cached = fs::read_dir(kitchen.room.state().join("cache")).unwrap().flatten();
    let native =
        cached.map(|entry| fs::read(entry.path()).unwrap()).find(|bytes| bytes.len() > 4096).expect("native code");
    let elf = native.windows(4).position(|four| four == b"\x7fELF").expect("as ELF");
    kitchen.handlers.whole(&named("garbage.wasm"), &native[elf..]);
    until("refused as native code", || kitchen.refused(&named("garbage.wasm")).contains("native").then_some(()));
    // The control: the same names serve once the right content lies there.
    for name in ["garbage", "truncated", "empty"] {
        kitchen.handlers.whole(&named(&format!("{name}.wasm")), &binary("echo"));
        kitchen.granted(&named(name));
        kitchen.say(&named(name), "mended").value();
    }
}

/// M11, and manifests that break their rules. The reason names the line where there is one.
#[test]
fn two_files_for_one_name_loose_modes_and_manifests_with_flaws_are_refused_in_words() {
    let manifest = |lines: &str| format!("description = \"x\"\neffect = \"read\"\n{lines}\n");
    let flawed: Vec<(&str, String, &[&str])> = vec![
        ("unknown-key", manifest("timeuot = \"1s\""), &["timeuot", "timeout", "line 3"]),
        ("misplaced-key", manifest("[arguments]\ntype = \"object\"\ntimeout = \"1s\""), &["timeout"]),
        ("granted", manifest("grant = true"), &["grant"]),
        ("unbounded", manifest("[arguments]\ntype = \"object\"\nproperties.a = { type = \"string\" }"), &["maxLength"]),
        ("endless", manifest("timeout = \"61s\""), &["timeout"]),
        ("huge", manifest("memory = \"257MiB\""), &["memory"]),
        ("wordy", manifest("result_bytes_max = 1048577"), &["result_bytes_max"]),
        ("no-toml", "lamp".to_owned(), &["line 1"]),
        ("silent", "effect = \"read\"\n".to_owned(), &["description"]),
        ("relative", manifest("[reach]\nread = [\"tmp\"]"), &["tmp"]),
        ("remote", manifest("[reach]\nhttp = [\"http://example.org/path\"]"), &["http"]),
    ];
    let kitchen = Kitchen::new(|handlers| {
        for (name, text, _) in &flawed {
            handlers.whole(&named(&format!("{name}.wat")), latchkey_tests::guests::text("echo").as_bytes());
            handlers.manifest(&named(name), text);
        }
        handlers.fixture(&named("both"), "echo", WORD);
        handlers.whole(&named("both.wasm"), &binary("echo"));
        handlers.manifest(&named("alone"), &WORD.text());
        handlers.fixture(&named("loose"), "echo", WORD);
        loosen(&handlers.path(&named("loose.wat")), 0o666);
        handlers.fixture(&named("loose-manifest"), "echo", WORD);
        loosen(&handlers.path(&named("loose-manifest.toml")), 0o664);
        handlers.fixture(&named("large"), "echo", WORD);
        let large = fs::File::create(handlers.path(&named("large.wat"))).unwrap();
        large.set_len((32 << 20) + 1).unwrap();
    });
    for (name, _, words) in &flawed {
        let why = until(&format!("{name} refused"), || {
            let listed = kitchen.listed();
            let line = listed.iter().find(|line| line.name.as_deref() == Some(&*named(name)));
            line.and_then(|line| line.why.clone())
        });
        for word in *words {
            assert!(why.contains(word), "{name}: no \"{word}\" in: {why}");
        }
    }
    for (file, words) in [
        ("both.wasm", "both.wat"),
        ("both.wat", "both.wasm"),
        ("alone.toml", "alone.wasm"),
        ("loose.wat", "chmod go-w"),
        ("loose-manifest.toml", "chmod go-w"),
        ("large.wat", "33554432"),
    ] {
        let why = kitchen.refused(&named(file));
        assert!(why.contains(words), "{file}: {why}");
    }
    kitchen.goes_on("flawed manifests");
    // M11: of two files neither is taken; one of them removed, the other is.
    assert_eq!(kitchen.say(&named("both"), "").word(), "unsupported");
    kitchen.handlers.remove(&named("both.wat"));
    kitchen.granted(&named("both"));
    kitchen.say(&named("both"), "one").value();
    // A second file that claims the name of one in service takes it out, with its grant.
    kitchen.handlers.whole(&named("both.wat"), text("echo").as_bytes());
    let why = kitchen.refused(&named("both.wat"));
    assert!(why.contains("both.wasm"), "{why}");
    assert_eq!(kitchen.say(&named("both"), "").word(), "unsupported");
    kitchen.handlers.remove(&named("both.wat"));
    kitchen.ready(&named("both"));
    assert_eq!(kitchen.say(&named("both"), "").word(), "denied");
    // The right mode is enough for the other.
    loosen(&kitchen.handlers.path(&named("loose.wat")), 0o644);
    kitchen.granted(&named("loose"));
}

fn loosen(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A description inside the file describes; whatever else it says is refused, and its words are shown so that they deceive nobody.
#[test]
fn a_descriptor_that_asks_for_more_than_to_describe_is_refused_whole() {
    let described = |json: &str| {
        let section =
            format!("(component\n  (@custom \"device:handler/descriptor\" \"{}\")", json.replace('"', "\\\""));
        text("echo").replacen("(component", &section, 1)
    };
    let describing = r#"{"description":"Says \u001b[31mwhat\u202e it is told","arguments":{"type":"object","properties":{"word":{"type":"string","maxLength":100}}}}"#;
    let describing = describing.replace('\\', "\\\\");
    let kitchen = Kitchen::new(|handlers| {
        let drop_alone =
            |name: &str, json: &str| handlers.whole(&named(&format!("{name}.wat")), described(json).as_bytes());
        drop_alone("describing", &describing);
        drop_alone("reaching", r#"{"description":"x","reach":{"write":["/tmp"]}}"#);
        drop_alone("reading", r#"{"description":"x","effect":"read"}"#);
        drop_alone("always", r#"{"description":"x","activation":"any"}"#);
        drop_alone("large", r#"{"description":"x","memory":"256MiB"}"#);
        drop_alone("granting", r#"{"description":"x","grant":true}"#);
        drop_alone(
            "unbounded",
            r#"{"description":"x","arguments":{"type":"object","properties":{"a":{"type":"string"}}}}"#,
        );
        drop_alone("no-json", "lamp");
        handlers.whole(&named("silent.wat"), text("echo").as_bytes());
    });
    for (name, words) in [
        ("reaching", "reach"),
        ("reading", "effect"),
        ("always", "activation"),
        ("large", "memory"),
        ("granting", "grant"),
        ("unbounded", "maxLength"),
        ("no-json", ""),
        ("silent", "description"),
    ] {
        let why = kitchen.refused(&named(&format!("{name}.wat")));
        assert!(why.contains(words), "{name}: {why}");
    }
    let name = named("describing");
    let standing = until("in service", || {
        kitchen
            .listed()
            .into_iter()
            .find(|line| line.name.as_deref() == Some(&*name) && line.why.is_none() && line.description.is_some())
    });
    assert_eq!((standing.effect.as_deref(), standing.activation.as_deref()), (Some("change"), Some("active")));
    let shown = kitchen.room.latchkeyd(&["handlers"]).well();
    assert!(shown.out.contains("what") && !shown.out.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    kitchen.keeper().grant(&name);
    assert_eq!(kitchen.say(&name, "").word(), "not_active", "the defaults are the stricter ones");
    kitchen.agent.activate(&kitchen.line(), 60_000);
    kitchen.say(&name, "lamp").value();
    assert_eq!(kitchen.say(&name, &"x".repeat(101)).word(), "invalid_arguments");
    // A manifest beside it may say more, and is the keeper's word.
    kitchen.handlers.manifest(&name, &Mode::default().text());
    kitchen.granted(&name);
    assert_eq!(kitchen.say(&name, "lamp").word(), "invalid_arguments", "the bounds of the .toml win");
}
