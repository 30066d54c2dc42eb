//! The commands for authors, as a shell runs them: the program that was built, its output and its end.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use actors::{HandlerLine, HandlerState};
use handlers::wasm::log::{Level, LogLine};
use jiff::tz::TimeZone;
use latchkey_runtime::cli::handlers::{details, listing, log_line};
use latchkey_runtime::cli::print::Style;
use tempfile::TempDir;

use crate::device::folder;
use crate::handlers_folder::echo;

/// Runs `latchkeyd handler …` in `dir`, as somebody whose home is there.
fn latchkeyd(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchkeyd"));
    command.env_clear().env("HOME", dir).env("NO_COLOR", "1").current_dir(dir);
    command.args(["--config-dir", "device", "--state-dir", "device"]).arg("handler").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs what has to end well.
fn good(dir: &Path, words: &[&str]) -> (String, String) {
    let output = latchkeyd(dir, words);
    let (out, aside) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{words:?}: {out}{aside}");
    (out, aside)
}

/// Runs what has to end with 1 and one sentence.
fn refused(dir: &Path, words: &[&str]) -> String {
    let output = latchkeyd(dir, words);
    let aside = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {aside}");
    assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
    aside
}

fn desk() -> TempDir {
    let folder = folder();
    fs::create_dir(folder.path().join("device")).unwrap();
    folder
}

fn put(dir: &Path, name: &str, content: &str) {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn from_nothing_to_a_handler_that_runs() {
    let desk = desk();
    let dir = desk.path();
    let (out, _) = good(dir, &["new", "acme.lamp", "--lang", "wat"]);
    assert!(out.contains("custom.acme.lamp/custom.acme.lamp.wat") && out.contains("README.md"), "{out}");
    let file = "custom.acme.lamp/custom.acme.lamp.wat";
    fs::set_permissions(dir.join("custom.acme.lamp"), Permissions::from_mode(0o755)).unwrap();
    for name in ["custom.acme.lamp.wat", "custom.acme.lamp.toml"] {
        fs::set_permissions(dir.join("custom.acme.lamp").join(name), Permissions::from_mode(0o644)).unwrap();
    }
    let again = refused(dir, &["new", "acme.lamp", "--lang", "wat"]);
    assert!(again.contains("is there already; nothing was written"), "{again}");

    let (out, aside) = good(dir, &["run", file, "level=40"]);
    assert_eq!(out, "{\n  \"level\": 40\n}\n");
    assert!(aside.contains(" of a processor, ") && aside.lines().count() == 1, "{aside}");
    let (out, _) = good(dir, &["run", file, "--args", "{\"level\": 7}"]);
    assert_eq!(out, "{\n  \"level\": 7\n}\n");
    let (out, aside) = good(dir, &["run", file, "level=1", "--json"]);
    let ran: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&ran["result"]["level"], &ran["error"]), (&1.into(), &serde_json::Value::Null));
    assert!(ran["wall_us"].as_u64() > Some(0) && aside.is_empty(), "{ran} {aside}");

    let rows = [
        (vec!["run", file, "level=101"], "invalid_arguments: level"),
        (vec!["run", file], "invalid_arguments: level"),
        (vec!["run", file, "--args", "[1]"], "--args is not one JSON object"),
        (vec!["run", "nothing.wasm"], "a device would not take nothing.wasm"),
        (vec!["new", "Lamp", "--lang", "c"], "MAKER.ACTION"),
    ];
    for (words, sentence) in rows {
        let said = refused(dir, &words);
        assert!(said.contains(sentence) && said.lines().count() == 1, "{words:?}: {said}");
    }
    assert!(
        !dir.join("device/cache").exists() && !dir.join("device/handlers").exists(),
        "nothing of the device was touched"
    );
}

/// Without what differs from machine to machine and with every change of a template.
fn settled(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let (digits, rest) = word.split_at(word.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(word.len()));
        if digits.len() == 64 { format!("SHA-256{rest}") } else { word.to_owned() }
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let settled = text.lines().map(|line| match line.trim_start().split_once(' ') {
        Some(("sandbox", _)) => "  sandbox    …",
        Some(("file", _)) => "  file       …",
        _ => line,
    });
    settled.collect::<Vec<_>>().join("\n")
}

#[test]
fn check_says_what_a_device_makes_of_a_file_or_why_it_is_refused() {
    let desk = desk();
    let dir = desk.path();
    put(dir, "custom.acme.lamp.wat", &echo());
    let manifest = "description = \"Dims the lamp\"\ntimeout = \"1500ms\"\n[arguments]\ntype = \"object\"\nrequired = [\"level\"]\n\
        properties.level = { type = \"integer\", minimum = 0, maximum = 100 }\n[reach]\nread = [\"/usr/share\"]\nhttp = [\"http://192.0.2.20\"]\n";
    put(dir, "custom.acme.lamp.toml", manifest);
    let (out, _) = good(dir, &["check", "custom.acme.lamp.wat"]);
    insta::assert_snapshot!(settled(&out));
    let (json, _) = good(dir, &["check", "custom.acme.lamp.wat", "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(checked["timeout_ms"], 1500);
    assert_eq!(checked["name"], "custom.acme.lamp");

    let rows = [
        ("[reach]\nread = [\"/etc\"]\n", "/etc"),
        (&format!("[reach]\nwrite = [\"{}\"]\n", dir.join("device").display()), "the state folder"),
        ("timeout = \"2h\"\n", "timeout"),
        ("grants = true\n", "grants"),
    ];
    for (flaw, words) in rows {
        put(dir, "custom.acme.lamp.toml", &format!("description = \"Dims\"\n{flaw}"));
        let said = refused(dir, &["check", "custom.acme.lamp.wat"]);
        assert!(said.contains("a device would not take custom.acme.lamp.") && said.contains(words), "{flaw}: {said}");
    }
    put(dir, "custom.acme.lamp.toml", "description = \"Dims\"\n");
    good(dir, &["check", "custom.acme.lamp.wat"]);
}

#[test]
fn a_core_module_is_wrapped_and_described() {
    let desk = desk();
    let dir = desk.path();
    let core = r#"(module
        (memory (export "memory") 2)
        (global $next (mut i32) (i32.const 16))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32) (local.set $at (global.get $next))
            (global.set $next (i32.add (local.get $at) (local.get 3))) (local.get $at))
        (func (export "invoke") (param i32 i32) (result i32)
            (i32.store (i32.const 4) (local.get 0)) (i32.store (i32.const 8) (local.get 1)) (i32.const 0)))"#;
    put(dir, "lamp.wat", core);
    good(dir, &["wrap", "lamp.wat", "-o", "custom.acme.lamp.wasm"]);
    let silent = refused(dir, &["check", "custom.acme.lamp.wasm"]);
    assert!(silent.contains("description"), "{silent}");
    put(
        dir,
        "lamp.json",
        r#"{"description": "Answers", "arguments": {"type": "object", "properties": {"on": {"type": "boolean"}}}}"#,
    );
    good(dir, &["pack", "custom.acme.lamp.wasm", "--descriptor", "lamp.json"]);
    let (out, _) = good(dir, &["run", "custom.acme.lamp.wasm", "on=true"]);
    assert_eq!(out, "{\n  \"on\": true\n}\n");
    put(dir, "more.json", r#"{"description": "Answers", "reach": {"read": ["/etc"]}}"#);
    let more = refused(dir, &["pack", "custom.acme.lamp.wasm", "--descriptor", "more.json"]);
    assert!(more.contains("reach"), "{more}");
    let over = refused(dir, &["wrap", "custom.acme.lamp.wasm"]);
    assert!(over.contains("-o"), "{over}");
}

fn line(name: &str) -> HandlerLine {
    HandlerLine {
        file: format!("{name}.wasm"),
        name: Some(name.to_owned()),
        state: HandlerState::Ready,
        on: true,
        file_sha256: Some("ab".repeat(32)),
        manifest_sha256: None,
        description: Some("Dims the lamp".to_owned()),
        effect: Some("change".to_owned()),
        activation: Some("active".to_owned()),
        captures: Some(false),
        timeout_ms: Some(1000),
        memory_bytes: Some(32 * 1024 * 1024),
        result_bytes_max: Some(65536),
        arguments: Some(serde_json::json!({
            "type": "object",
            "properties": {"level": {"type": "integer", "minimum": 0, "maximum": 100}},
            "required": ["level"],
        })),
        reach: vec!["read /sys/devices/w1".to_owned(), "requests to http://192.0.2.20:80".to_owned()],
        why: None,
        changed: None,
        last_error: None,
        calls: 3,
        restarts: 0,
    }
}

fn style() -> Style {
    Style { zone: TimeZone::UTC, colour: false, program: "latchkeyd".to_owned() }
}

#[test]
fn the_list_of_handlers_says_what_needs_you() {
    let lines = [
        line("custom.acme.lamp"),
        HandlerLine { on: false, calls: 0, ..line("custom.acme.new") },
        HandlerLine {
            state: HandlerState::Unavailable,
            last_error: Some("trapped: \u{1b}[2Junreachable".to_owned()),
            ..line("custom.acme.broken")
        },
        HandlerLine {
            on: false,
            changed: Some(
                "its file changed since you granted it, so it is off; to grant it again: latchkeyd grant custom.acme.old"
                    .to_owned(),
            ),
            ..line("custom.acme.old")
        },
        HandlerLine { state: HandlerState::Compiling, effect: None, ..line("custom.acme.coming") },
        HandlerLine { state: HandlerState::Refused, why: Some("it is a link".to_owned()), ..line("custom.acme.link") },
    ];
    let printed = [
        listing(&style(), &lines, None, Some("/etc/latchkey/handlers")),
        listing(&style(), &[], Some("the folder is loose"), Some("/etc/latchkey/handlers")),
        details(&style(), &lines[0]),
        details(&style(), &lines[5]),
        log_line(&style(), &LogLine { at_ms: 1_700_000_000_000, level: Level::Warn, text: "hot\u{7}".to_owned() }),
    ];
    insta::assert_snapshot!(printed.join("\n----\n"));
}
