#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};
use rustix::process::geteuid;

use super::*;

mod whole;

const RULE: &str = "a handler is named custom.MAKER.ACTION.wasm or .wat, and what you say about it custom.MAKER.ACTION.toml; MAKER and \
                    ACTION begin with a-z and have at most 32 of a-z, 0-9, _ and -";
/// Later than every file here.
const LATER: (i64, i64) = (i64::MAX, 0);
/// Some user beside us and root.
const STRANGER: u32 = 4711;

/// A handlers folder with one good handler, `custom.a.good`, in it.
struct Scene {
    _around: tempfile::TempDir,
    path: PathBuf,
    folder: HandlersFolder,
}

impl Scene {
    fn new() -> Self {
        let around = tempfile::tempdir().unwrap();
        let path = around.path().join("handlers");
        fs::create_dir(&path).unwrap();
        mode(&path, 0o755);
        let scene = Self { folder: HandlersFolder::named(&path), path, _around: around };
        scene.put("custom.a.good.wasm", b"good");
        scene
    }

    fn put(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let file = self.path.join(name);
        fs::write(&file, bytes).unwrap();
        mode(&file, 0o644);
        file
    }

    fn look(&mut self) -> Look {
        self.folder.look_at(LATER).unwrap()
    }

    /// What is refused, as "FILE: why", with the folder's own path left out; the good handler is there all the same.
    fn refused(&mut self) -> Vec<String> {
        let look = self.look();
        assert!(look.files.iter().any(|file| file.name.as_str() == "custom.a.good"), "{look:?}");
        let folder = self.path.display().to_string();
        look.refused.iter().map(|one| format!("{}: {}", one.file, one.why.replace(&folder, "…"))).collect()
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(look: &Look) -> Vec<&str> {
    look.files.iter().map(|file| file.name.as_str()).collect()
}

#[test]
fn a_file_of_the_right_name_is_there_with_what_its_keeper_says() {
    let mut scene = Scene::new();
    let text = "timeout = '2s'";
    scene.put("custom.b.text.wat", b"(component)");
    scene.put("custom.b.text.toml", text.as_bytes());
    let look = scene.look();
    assert_eq!((names(&look), &look.refused), (vec!["custom.a.good", "custom.b.text"], &Vec::new()));
    let [good, wat] = look.files.try_into().unwrap();
    assert_eq!((good.text, good.bytes, good.digest), (false, 4, Digest::of(b"good")));
    assert_eq!((good.manifest_digest, good.manifest.clone()), (None, Manifest::default()));
    assert_eq!((wat.text, wat.manifest_digest), (true, Some(Digest::of(text.as_bytes()))));
    assert_eq!(wat.manifest.timeout.as_secs(), 2);
    assert_eq!(good.path, scene.path.join("custom.a.good.wasm"));
    assert_eq!(good.read().unwrap(), b"good");
    // What another opening of the same file finds is the same.
    assert_eq!(HandlerFile::open(&good.path).unwrap(), good);
    assert_eq!(HandlerFile::open(&wat.path).unwrap(), wat);
}

#[test]
fn every_name_of_another_form_is_listed_with_what_it_must_look_like() {
    let long = format!("custom.acme.{}.wasm", "a".repeat(33));
    let rows: &[(&[u8], &str, &str)] = &[
        (b"README", "README", ""),
        (b"lamp.wasm", "lamp.wasm", ""),
        (b"custom.acme.wasm", "custom.acme.wasm", ""),
        (b"custom.acme.lamp.blue.wasm", "custom.acme.lamp.blue.wasm", ""),
        (b"custom.ACME.lamp.wasm", "custom.ACME.lamp.wasm", ""),
        (b"custom.acme.Lamp.toml", "custom.acme.Lamp.toml", ""),
        (b"Custom.acme.lamp.wasm", "Custom.acme.lamp.wasm", ""),
        (b"custom.acme.1lamp.wat", "custom.acme.1lamp.wat", ""),
        (b"custom.acme..wasm", "custom.acme..wasm", ""),
        (b"custom.acme.la mp.wasm", "custom.acme.la mp.wasm", ""),
        (b"custom.acme.lamp.WASM", "custom.acme.lamp.WASM", ""),
        (b"custom.acme.lamp.cwasm", "custom.acme.lamp.cwasm", ""),
        (b"custom.acme.lamp", "custom.acme.lamp", ""),
        (b"custom.acme.lamp.wasm.bak", "custom.acme.lamp.wasm.bak", ""),
        (b"camera.snapshot.wasm", "camera.snapshot.wasm", ""),
        (b"custom.acme.lamp..wasm", "custom.acme.lamp..wasm", ""),
        (long.as_bytes(), &long, ""),
        ("custom.acme.l\u{e4}mp.wasm".as_bytes(), "custom.acme.l\u{e4}mp.wasm", ""),
        ("custom.acme.\u{202e}lamp.wasm".as_bytes(), "custom.acme.\\u{202e}lamp.wasm", ""),
        (b"custom.acme.caf\xE9.wasm", "custom.acme.caf\\xE9.wasm", "the name is not UTF-8 text; "),
        (b"\xFF\xFE.wasm", "\\xFF\\xFE.wasm", "the name is not UTF-8 text; "),
        (
            b"custom.acme.lamp\n.wasm",
            "custom.acme.lamp\\u{a}.wasm",
            "the name has a line end or another control character in it; ",
        ),
        (
            b"custom.acme.lamp.wasm\n",
            "custom.acme.lamp.wasm\\u{a}",
            "the name has a line end or another control character in it; ",
        ),
        (b"\x1b[2J.wasm", "\\u{1b}[2J.wasm", "the name has a line end or another control character in it; "),
    ];
    for (name, shown, reason) in rows {
        let mut scene = Scene::new();
        let file = scene.put(OsStr::from_bytes(name), b"x");
        assert_eq!(scene.refused(), [format!("{shown}: {reason}{RULE}")]);
        let refused = HandlerFile::open(&file).unwrap_err();
        assert_eq!((refused.file.as_str(), refused.name), (*shown, None));
        // The control: the same file under a right name.
        fs::rename(&file, scene.path.join("custom.acme.lamp-2_b.wasm")).unwrap();
        assert_eq!(names(&scene.look()), ["custom.a.good", "custom.acme.lamp-2_b"]);
    }
}

#[test]
fn what_is_plainly_unfinished_is_passed_over_until_it_has_its_name() {
    let rows = [
        ".custom.a.new.wasm",
        ".custom.a.new.wasm.x8Kd2",
        ".gitignore",
        "custom.a.new.wasm.tmp",
        "custom.a.new.wasm.part",
        "custom.a.new.toml~",
        "custom.a.new.toml.swp",
    ];
    for name in rows {
        let mut scene = Scene::new();
        let file = scene.put(name, b"half");
        let look = scene.look();
        assert_eq!((names(&look), &look.refused), (vec!["custom.a.good"], &Vec::new()), "{name}");
        fs::rename(file, scene.path.join("custom.a.new.wasm")).unwrap();
        assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.new"], "{name}");
    }
}

/// Puts something else in a file's place.
type Put = fn(&Path);

/// What may stand in a file's place, and how that is refused.
fn odd_things() -> Vec<(&'static str, Put, &'static str)> {
    let link = "this is a symbolic link; put the file itself there";
    let fifo: Put = |at| mkfifoat(CWD, at, Mode::from_raw_mode(0o644)).unwrap();
    let device: Put = |at| {
        mknodat(CWD, at, FileType::CharacterDevice, Mode::from_raw_mode(0o644), makedev(1, 5)).unwrap();
    };
    let mut things: Vec<(&str, Put, &str)> = vec![
        ("a link to a good file", |at| symlink("custom.a.good.wasm", at).unwrap(), link),
        ("a link to a file elsewhere", |at| symlink("/etc/hostname", at).unwrap(), link),
        ("a dangling link", |at| symlink("nothing", at).unwrap(), link),
        ("a link to itself", |at| symlink(at, at).unwrap(), link),
        (
            "a link to a pipe",
            |at| {
                let pipe = at.parent().unwrap().join(".pipe");
                mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o644)).unwrap();
                symlink(pipe, at).unwrap();
            },
            link,
        ),
        ("a link to a device", |at| symlink("/dev/zero", at).unwrap(), link),
        ("a pipe", fifo, "this is a pipe, not a file"),
        ("a folder", |at| fs::create_dir(at).unwrap(), "this is a folder, not a file"),
        ("a socket", |at| drop(UnixListener::bind(at).unwrap()), "this is a socket, not a file"),
    ];
    // Only root may make one.
    if geteuid().is_root() {
        things.push(("a device", device, "this is a device, not a file"));
    }
    things
}

#[test]
fn what_is_no_file_is_refused_with_its_reason_and_holds_nobody_up() {
    for (thing, put, reason) in odd_things() {
        let mut scene = Scene::new();
        let at = scene.path.join("custom.a.odd.wasm");
        put(&at);
        assert_eq!(scene.refused(), [format!("custom.a.odd.wasm: {reason}")], "{thing}");
        let refused = scene.look().refused.remove(0);
        assert_eq!(refused.name.unwrap().as_str(), "custom.a.odd", "{thing}");
        assert_eq!(HandlerFile::open(&at).unwrap_err().why, reason, "{thing}");
        if at.is_dir() {
            fs::remove_dir(&at).unwrap()
        } else {
            fs::remove_file(&at).unwrap()
        };
        scene.put(&at, b"x");
        assert_eq!(scene.refused(), Vec::<String>::new(), "{thing}: the control");
    }
}

#[test]
fn a_toml_that_is_no_file_takes_its_handler_with_it() {
    for (thing, put, reason) in odd_things() {
        let mut scene = Scene::new();
        scene.put("custom.a.odd.wasm", b"x");
        let at = scene.path.join("custom.a.odd.toml");
        put(&at);
        assert_eq!(scene.refused(), [format!("custom.a.odd.toml: {reason}")], "{thing}");
        assert_eq!(names(&scene.look()), ["custom.a.good"], "{thing}");
        if at.is_dir() {
            fs::remove_dir(&at).unwrap()
        } else {
            fs::remove_file(&at).unwrap()
        };
        scene.put(&at, b"");
        assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.odd"], "{thing}: the control");
    }
}

#[test]
fn a_file_that_others_may_write_is_refused_with_the_mend() {
    for (name, bits) in [
        ("custom.a.loose.wasm", 0o664),
        ("custom.a.loose.wasm", 0o646),
        ("custom.a.loose.wasm", 0o622),
        ("custom.a.loose.toml", 0o664),
        ("custom.a.loose.toml", 0o602),
    ] {
        let mut scene = Scene::new();
        scene.put("custom.a.loose.wasm", b"x");
        scene.put("custom.a.loose.toml", b"");
        let file = scene.path.join(name);
        mode(&file, bits);
        let wanted = format!("{name}: other users may write this (mode 0{bits:o}); run: chmod go-w …/{name}");
        assert_eq!(scene.refused(), [wanted]);
        for closed in [0o644, 0o600, 0o755] {
            mode(&file, closed);
            assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.loose"], "{closed:o}");
        }
    }
}

#[test]
fn a_file_belongs_to_root_or_to_the_folders_owner() {
    if !geteuid().is_root() {
        eprintln!("only root can give files away; the rule itself is tested beside it");
        return;
    }
    for name in ["custom.a.given.wasm", "custom.a.given.toml"] {
        let mut scene = Scene::new();
        scene.put("custom.a.given.wasm", b"x");
        scene.put("custom.a.given.toml", b"");
        let file = scene.path.join(name);
        chown(&file, Some(STRANGER), None).unwrap();
        let wanted = format!(
            "{name}: this belongs to user {STRANGER}, and a handler's file belongs to root; run: chown 0 …/{name}"
        );
        assert_eq!(scene.refused(), [wanted]);
        chown(&file, Some(0), None).unwrap();
        assert_eq!(names(&scene.look()), ["custom.a.given", "custom.a.good"]);
    }
}

#[test]
fn outside_the_folder_a_file_may_also_belong_to_the_folders_owner() {
    if !geteuid().is_root() {
        eprintln!("only root can give files away; the rule itself is tested beside it");
        return;
    }
    let scene = Scene::new();
    let file = scene.path.join("custom.a.good.wasm");
    chown(&file, Some(STRANGER), None).unwrap();
    let refused = HandlerFile::open(&file).unwrap_err().why;
    assert!(
        refused.starts_with("this belongs to user 4711, and a handler's file belongs to root; run: chown 0 "),
        "{refused}"
    );
    chown(&scene.path, Some(STRANGER), None).unwrap();
    let opened = HandlerFile::open(&file).unwrap();
    assert_eq!(opened.read().unwrap(), b"good");
    // Ours in a stranger's folder: we made it.
    chown(&file, Some(0), None).unwrap();
    HandlerFile::open(&file).unwrap();
    chown(&file, Some(STRANGER + 1), None).unwrap();
    let refused = HandlerFile::open(&file).unwrap_err().why;
    assert!(refused.contains("belongs to root or user 4711; run: chown 4711 "), "{refused}");
}

#[test]
fn files_are_read_up_to_their_limits() {
    let rows = [("custom.a.large.wasm", HANDLER_BYTES_MAX), ("custom.a.large.toml", MANIFEST_BYTES_MAX)];
    for (name, bytes_max) in rows {
        let mut scene = Scene::new();
        scene.put("custom.a.large.wasm", b"x");
        let manifest = "#".repeat(usize::try_from(bytes_max.min(MANIFEST_BYTES_MAX)).unwrap());
        scene.put("custom.a.large.toml", manifest.as_bytes());
        let file = fs::File::options().write(true).open(scene.path.join(name)).unwrap();
        file.set_len(bytes_max + 1).unwrap();
        let wanted = format!("{name}: this has {} bytes, and at most {bytes_max} are read", bytes_max + 1);
        assert_eq!(scene.refused(), [wanted]);
        file.set_len(bytes_max).unwrap();
        assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.large"]);
    }
}

#[test]
fn a_toml_that_breaks_refuses_its_handler_with_line_and_reason() {
    let rows: &[(&[u8], &str)] = &[
        (b"\ntimout = '1s'", "line 2: unknown key `timout`; did you mean `timeout`?"),
        (b"timeout = '2m'", "line 1: `timeout`: \"2m\" is not a time, such as \"2s\" or \"500ms\""),
        (b"[arguments\n", "line 1: invalid table header; expected `.`, `]`"),
        (b"# a\n# \xff", "line 2: not UTF-8 text"),
        (
            b"[arguments]\ntype = 'object'\nproperties.a = { type = 'string' }",
            "line 3: arguments.a: maxLength is missing, everything needs a maximum",
        ),
    ];
    for (text, reason) in rows {
        let mut scene = Scene::new();
        let file = scene.put("custom.a.said.wasm", b"x");
        scene.put("custom.a.said.toml", text);
        assert_eq!(scene.refused(), [format!("custom.a.said.toml: {reason}")]);
        let refused = HandlerFile::open(&file).unwrap_err();
        assert_eq!((refused.file.as_str(), refused.why.as_str()), ("custom.a.said.toml", *reason));
        scene.put("custom.a.said.toml", b"timeout = '2s'");
        assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.said"]);
    }
}

#[test]
fn a_toml_without_its_handler_and_two_files_for_one_name_are_refused() {
    let mut scene = Scene::new();
    scene.put("custom.a.lone.toml", b"");
    assert_eq!(scene.refused(), ["custom.a.lone.toml: there is no custom.a.lone.wasm or custom.a.lone.wat beside it"]);
    let refused = HandlerFile::open(&scene.path.join("custom.a.lone.toml")).unwrap_err().why;
    assert_eq!(refused, "this is what a keeper says about a handler; name the .wasm or .wat itself");

    scene.put("custom.a.lone.wat", b"x");
    assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.lone"]);
    // Whatever the second is: it claims the name.
    for put in [|at: &Path| fs::write(at, "x").unwrap(), |at: &Path| symlink("nothing", at).unwrap()] {
        let second = scene.path.join("custom.a.lone.wasm");
        put(&second);
        let why = "custom.a.lone.wasm and custom.a.lone.wat claim the same name, so neither is taken; remove one";
        assert_eq!(scene.refused(), [format!("custom.a.lone.wasm: {why}"), format!("custom.a.lone.wat: {why}")]);
        assert_eq!(names(&scene.look()), ["custom.a.good"]);
        fs::remove_file(second).unwrap();
        assert_eq!(names(&scene.look()), ["custom.a.good", "custom.a.lone"]);
    }
    // Beside each other in an author's own folder they are a source and what was made of it.
    let made = scene.put("custom.a.lone.wasm", b"y");
    assert_eq!(HandlerFile::open(&made).unwrap().digest, Digest::of(b"y"));
}

#[test]
fn what_did_not_change_is_not_read_again() {
    let mut scene = Scene::new();
    scene.put("custom.a.good.toml", b"# 1");
    let first = scene.look();
    assert_eq!(scene.folder.bytes_read(), 7);
    assert_eq!(scene.look(), first);
    assert_eq!(scene.folder.bytes_read(), 7);

    // Each change of either file is seen: content, also of the same size and with its time set back, and place.
    let set_back = |file: &Path, bytes: &[u8]| {
        let times = fs::metadata(file).unwrap();
        fs::write(file, bytes).unwrap();
        let times = fs::FileTimes::new().set_modified(times.modified().unwrap());
        fs::File::options().write(true).open(file).unwrap().set_times(times).unwrap();
    };
    let (handler, manifest) = (scene.path.join("custom.a.good.wasm"), scene.path.join("custom.a.good.toml"));
    // From here on by the real clock: nothing is remembered of files that may still change within its tick.
    scene.folder = HandlersFolder::named(&scene.path);
    let mut before = scene.folder.look().unwrap();
    assert_eq!(before, first);
    for step in ["content", "content of the toml", "another file in its place", "no toml"] {
        match step {
            "content" => set_back(&handler, b"evil"),
            "content of the toml" => set_back(&manifest, b"# 2"),
            "another file in its place" => fs::rename(scene.put(".new", b"bone"), &handler).unwrap(),
            _ => fs::remove_file(&manifest).unwrap(),
        }
        let known = scene.folder.bytes_read();
        let now = scene.folder.look().unwrap();
        assert_ne!(now, before, "{step}");
        assert!(scene.folder.bytes_read() > known, "{step}");
        before = now;
    }
    assert_eq!((before.files[0].digest, before.files[0].manifest_digest), (Digest::of(b"bone"), None));
}

#[test]
fn a_file_that_may_still_change_within_the_same_tick_is_read_again() {
    let mut scene = Scene::new();
    let changed = Room::around(&scene.path.join("x")).unwrap().stamp("custom.a.good.wasm", 9).unwrap().changed;
    for (now, bytes) in [(changed, 4), (changed, 8), ((changed.0, changed.1 + 1), 12), ((changed.0, changed.1 + 1), 12)]
    {
        scene.folder.look_at(now).unwrap();
        assert_eq!(scene.folder.bytes_read(), bytes);
    }
}

#[test]
fn reading_again_gives_the_bytes_that_were_looked_at_or_none() {
    let mut scene = Scene::new();
    let good = scene.look().files.remove(0);
    assert_eq!(good.read().unwrap(), b"good");
    let rows: &[(Put, &str)] = &[
        (|at| fs::write(at, "evil").unwrap(), "this is no longer the file that was looked at"),
        (|at| mode(at, 0o666), "other users may write this (mode 0666); run: chmod go-w "),
        (|at| fs::remove_file(at).unwrap(), "there is no such file"),
        (|at| symlink("/etc/hostname", at).unwrap(), "this is a symbolic link; put the file itself there"),
    ];
    for (change, reason) in rows {
        change(&good.path);
        let sentence = good.read().unwrap_err();
        assert!(sentence.starts_with(&format!("custom.a.good.wasm: {reason}")), "{sentence}");
    }
    fs::remove_file(&good.path).unwrap();
    scene.put("custom.a.good.wasm", b"good");
    assert_eq!(good.read().unwrap(), b"good");
}
