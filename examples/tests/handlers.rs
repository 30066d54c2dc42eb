//! The examples of handlers, and the projects that `latchkeyd handler new` begins, do what their READMEs say: each is copied into a
//! folder of its own, built by the README's own commands, and run in the real sandbox by `latchkeyd handler run`.
//!
//! A folder stands in for `/sys`, a server on loopback for a thing in the network. What this machine has no tools for is left out with
//! a line in the file that LATCHKEY_SKIPS names.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that meets what it did not expect should stop there; it reads the environment and runs real programs"
)]

use std::fs::{self, DirBuilder};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tempfile::TempDir;

/// What a README is built with.
#[derive(Debug, Clone, Copy)]
enum Tools {
    None,
    Clang,
    ClangWithLibc,
    JavaScript,
    Rust,
}

impl Tools {
    /// Why nothing can be built with them here.
    fn missing(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Clang if !(says("clang", &["--print-targets"], "wasm32") && found("wasm-ld")) => {
                Some("there is no clang with wasm32, or no wasm-ld")
            }
            Self::Clang => None,
            Self::ClangWithLibc if !Path::new("/usr/lib/wasm32-wasi/libc.a").exists() => Some("there is no wasi-libc"),
            Self::ClangWithLibc => Self::Clang.missing(),
            Self::JavaScript if !(found("npm") && found("componentize-qjs")) => {
                Some("there is no npm, or no componentize-qjs (npm install -g componentize-qjs)")
            }
            Self::JavaScript => None,
            Self::Rust => {
                let libraries = said("rustc", &["--print", "target-libdir", "--target", "wasm32-wasip2"]);
                let there = libraries.is_some_and(|libraries| Path::new(libraries.trim()).exists());
                (!there).then_some("Rust has no wasm32-wasip2 (rustup target add wasm32-wasip2)")
            }
        }
    }

    /// Whether `what` can be built; if not, that is noted.
    fn there_for(self, what: &str) -> bool {
        let Some(why) = self.missing() else { return true };
        let line = format!("tools: {why}, so {what} was not built and run\n");
        match std::env::var_os("LATCHKEY_SKIPS") {
            Some(file) => {
                let mut file = fs::File::options().append(true).create(true).open(file).unwrap();
                file.write_all(line.as_bytes()).unwrap();
            }
            None => std::io::stderr().write_all(line.as_bytes()).unwrap(),
        }
        false
    }
}

/// What a program prints, if it is there and ends well.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn says(program: &str, arguments: &[&str], word: &str) -> bool {
    said(program, arguments).is_some_and(|said| said.contains(word))
}

fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Where one handler is built and run, apart from whatever device this machine has.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["state", "config"] {
            DirBuilder::new().mode(0o700).create(desk.folder.path().join(name)).unwrap();
        }
        fs::create_dir(desk.work()).unwrap();
        desk
    }

    /// With the files of an example in it.
    fn with(example: &str) -> Self {
        let desk = Self::new();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("handlers").join(example), &desk.work());
        desk
    }

    /// Where the project lies.
    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// A folder beside it, with these files.
    fn folder(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.folder.path().join(name);
        for (file, text) in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    /// Writes another text into a file of the project, where the old one stood once.
    fn change(&self, file: &str, old: &str, new: &str) {
        let file = self.work().join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches(old).count(), 1, "{}: {old}", file.display());
        fs::write(&file, text.replace(old, new)).unwrap();
    }

    /// A line of a shell, typed in the project's folder.
    fn shell(&self, line: &str) -> Output {
        let programs = std::env::var_os("LATCHKEY_BIN_DIR").expect(
            "LATCHKEY_BIN_DIR is not set: it names the folder with latchkeyd, such as target/debug; make test sets it",
        );
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(PathBuf::from(programs)).chain(std::env::split_paths(&path))).unwrap();
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LATCHKEY_")) {
            shell.env_remove(name);
        }
        shell
            .args(["-c", line])
            .current_dir(self.work())
            .env("PATH", path)
            .env("LATCHKEY_STATE_DIR", self.folder.path().join("state"))
            .env("LATCHKEY_CONFIG_DIR", self.folder.path().join("config"))
            // The project's own, not that of the test.
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap()
    }

    /// A line that ends well; what it printed.
    #[track_caller]
    fn typed(&self, line: &str) -> String {
        let output = self.shell(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A line that fails, and says this.
    #[track_caller]
    fn refused(&self, line: &str, words: &[&str]) {
        let output = self.shell(line);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && words.iter().all(|word| why.contains(word)),
            "{line}, {words:?}: {output:?}"
        );
    }

    /// Types what the README shows, up to installing, but for what fetches tools. What its `handler run` printed.
    #[track_caller]
    fn readme(&self, with: &[(&str, &str)]) -> Value {
        let text = fs::read_to_string(self.work().join("README.md")).unwrap();
        let mut result = None;
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let fetches = ["npm install", "rustup target add"].iter().any(|fetch| line.starts_with(fetch));
            if fetches || line.starts_with("latchkeyd grant") || line.starts_with("latchkey ") {
                continue;
            }
            let line = with.iter().fold(line.to_owned(), |line, (old, new)| line.replace(old, new));
            let printed = self.typed(&line);
            if line.starts_with("latchkeyd handler run") {
                result = Some(serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}")));
            }
        }
        result.expect("the README runs the handler")
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        // What an author's own build left there.
        if ["node_modules", "target"].iter().any(|made| entry.file_name() == *made) {
            continue;
        }
        if source.is_dir() { copy(&source, &target) } else { fs::write(target, fs::read(source).unwrap()).unwrap() }
    }
}

#[test]
fn the_echo_answers_with_what_it_was_given_and_takes_no_more_than_it_declares() {
    let desk = Desk::with("echo");
    assert_eq!(desk.readme(&[]), json!({"text": "hello"}));
    let run = |bytes: usize| format!("latchkeyd handler run custom.example.echo.wat text={}", "x".repeat(bytes));
    let printed: Value = serde_json::from_str(&desk.typed(&run(200))).unwrap();
    assert_eq!(printed["text"].as_str().unwrap().len(), 200);
    desk.refused(&run(201), &["text", "200"]);
}

#[test]
fn the_lamp_dims_the_led_of_its_reach_and_nothing_without_one() {
    if !Tools::ClangWithLibc.there_for("the lamp") {
        return;
    }
    let desk = Desk::with("lamp");
    let led = desk.folder("sys/class/leds/kitchen-lamp", &[("max_brightness", "255\n"), ("brightness", "0\n")]);
    let shines = || fs::read_to_string(led.join("brightness")).unwrap();
    desk.change("custom.example.lamp.toml", "/sys/class/leds/kitchen-lamp", led.to_str().unwrap());
    assert_eq!(desk.readme(&[]), json!({"level": 40, "brightness": 102}));
    assert_eq!(shines(), "102\n");

    let run = "latchkeyd handler run custom.example.lamp.wasm";
    desk.typed(&format!("{run} level=100"));
    assert_eq!(shines(), "255\n");
    desk.refused(&format!("{run} level=101"), &["level", "100"]);
    desk.change("custom.example.lamp.toml", "write = ", "read = ");
    desk.refused(&format!("{run} level=0"), &["brightness may not be written"]);
    desk.change("custom.example.lamp.toml", &format!("read = [\"{}\"]", led.display()), "");
    desk.refused(&format!("{run} level=0"), &["no max_brightness"]);
    assert_eq!(shines(), "255\n", "what was refused changed nothing");
}

#[test]
fn the_thermometers_of_the_bus_are_read_as_new_and_old_kernels_show_them() {
    if !Tools::JavaScript.there_for("the thermometer") {
        return;
    }
    let desk = Desk::with("thermometer");
    let old = |check: &str, value: &str| {
        format!("6d 01 4b 46 7f ff 0c 10 3c : crc=3c {check}\n6d 01 4b 46 7f ff 0c 10 3c t={value}\n")
    };
    let bus = desk.folder(
        "sys/devices/w1_bus_master1",
        &[
            ("w1_master_name", "w1_bus_master1\n"),
            ("28-00000a/temperature", "21437\n"),
            ("28-00000b/w1_slave", &old("YES", "-1250")),
            ("28-00000c/w1_slave", &old("NO", "85000")),
        ],
    );
    let outside = desk.folder("outside", &[("temperature", "1\n")]);
    std::os::unix::fs::symlink(outside, bus.join("28-00000d")).unwrap();
    desk.change("custom.example.thermometer.toml", "/sys/devices/w1_bus_master1", bus.to_str().unwrap());
    let wanted = json!([{"id": "28-00000a", "millicelsius": 21437}, {"id": "28-00000b", "millicelsius": -1250}]);
    assert_eq!(desk.readme(&[])["thermometers"], wanted, "no broken reading, and none from outside");
    fs::remove_dir_all(bus.join("28-00000a")).unwrap();
    fs::remove_dir_all(bus.join("28-00000b")).unwrap();
    desk.refused("latchkeyd handler run custom.example.thermometer.wasm", &["nothing on the bus gives a temperature"]);
}

/// A plug that answers one request; the path it was asked for.
fn plug() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = std::thread::spawn(move || {
        let (mut line, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(line.try_clone().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        lines.find(String::is_empty).unwrap();
        let body = r#"{"ison": true, "power": 4.5}"#;
        write!(line, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        first
    });
    (address, asked)
}

#[test]
fn the_plug_is_asked_at_the_address_of_the_reach_and_at_no_other() {
    if !Tools::Rust.there_for("the plug") {
        return;
    }
    let desk = Desk::with("lan-http");
    let (address, asked) = plug();
    desk.change("custom.example.plug.toml", "192.168.1.20:80", &address);
    assert_eq!(desk.readme(&[("192.168.1.20:80", &address)]), json!({"on": true, "milliwatts": 4500}));
    assert_eq!(asked.join().unwrap(), "GET /relay/0?turn=on HTTP/1.1");

    let (other, _) = plug();
    desk.change("custom.example.plug.toml", &address, &other);
    desk.refused("latchkeyd handler run custom.example.plug.wasm on=true", &["did not answer"]);
}

#[test]
fn a_new_project_of_each_language_builds_and_answers_as_its_readme_says() {
    let rows = [("wat", Tools::None), ("c", Tools::Clang), ("js", Tools::JavaScript), ("rust", Tools::Rust)];
    for (lang, tools) in rows {
        if !tools.there_for(&format!("a new project in {lang}")) {
            continue;
        }
        let desk = Desk::new();
        desk.typed(&format!("latchkeyd handler new acme.lamp --lang {lang} --dir ."));
        assert_eq!(desk.readme(&[]), json!({"level": 40}), "{lang}");
        let file = if lang == "wat" { "custom.acme.lamp.wat" } else { "custom.acme.lamp.wasm" };
        for level in [0, 7, 100] {
            let printed = desk.typed(&format!("latchkeyd handler run {file} level={level}"));
            assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), json!({"level": level}), "{lang}");
        }
        desk.refused(&format!("latchkeyd handler run {file} level=101"), &["level", "100"]);
    }
}

#[test]
fn every_copy_of_the_world_is_the_one_that_devices_have() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("handlers");
    for copy in ["thermometer/wit/deps/handler.wit", "lan-http/wit/handler.wit"] {
        assert_eq!(fs::read_to_string(folder.join(copy)).unwrap(), handlers::wasm::author::WIT, "{copy}");
    }
}
