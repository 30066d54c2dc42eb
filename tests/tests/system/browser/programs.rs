//! The two programs as people run them, for tests that look at the display page.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A start takes milliseconds; the rest is for a loaded machine.
const READY_MAX: Duration = Duration::from_secs(30);

/// `latchkeyd run --simulate`, and folders for both sides.
pub(super) struct Programs {
    folder: TempDir,
    daemon: Option<Child>,
}

impl Programs {
    /// Starts the device and waits until it answers.
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for part in ["device", "settings", "agent"] {
            let path = folder.path().join(part);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        }
        let mut programs = Self { folder, daemon: None };
        let mut run = programs.latchkeyd();
        run.args([
            "--set",
            "link.direct.listen=127.0.0.1:0",
            "--set",
            "keeper.listen=127.0.0.1:0",
            "--set",
            "device.name=kitchen",
        ]);
        run.args(["run", "--simulate"]).stdin(Stdio::null());
        run.stdout(File::create(programs.folder.path().join("run.out")).unwrap());
        run.stderr(File::create(programs.folder.path().join("run.errors")).unwrap());
        programs.daemon = Some(run.spawn().expect("latchkeyd starts"));
        let began = Instant::now();
        loop {
            let ended = programs.latchkeyd().args(["status", "--json"]).output().expect("latchkeyd starts");
            let status: Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
            if status["running"] == Value::Bool(true) {
                break;
            }
            let said = fs::read_to_string(programs.folder.path().join("run.errors")).unwrap_or_default();
            assert!(began.elapsed() < READY_MAX, "the device is not ready: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
        programs
    }

    /// The path of a file of the agent.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// A command of the keeper; its JSON, or null if it printed none.
    pub(super) fn keeper(&self, words: &[&str]) -> Value {
        output(self.latchkeyd().args(words))
    }

    /// A command of the agent.
    pub(super) fn agent(&self, words: &[&str]) -> Value {
        let mut command = Command::new(program("latchkey"));
        output(command.arg("--state-dir").arg(self.folder.path().join("agent")).args(words))
    }

    /// Asks for the device; gives the code.
    pub(super) fn claim(&self) -> String {
        let pairing = self.keeper(&["pair", "--json"]);
        self.agent(&["agent", "new", "kitchen-bot@home.example.org"]);
        let claim = self.agent(&["claim", pairing["link"].as_str().unwrap(), "--no-wait", "--json"]);
        claim["code"].as_str().unwrap().to_owned()
    }

    fn latchkeyd(&self) -> Command {
        let mut command = Command::new(program("latchkeyd"));
        command.arg("--state-dir").arg(self.folder.path().join("device"));
        command.arg("--config-dir").arg(self.folder.path().join("settings"));
        command
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A program that was built: in the folder that `LATCHKEY_BIN_DIR` names, else beside this test.
pub(super) fn program(name: &str) -> PathBuf {
    let beside = || std::env::current_exe().unwrap().parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    let folder = std::env::var_os("LATCHKEY_BIN_DIR").map_or_else(beside, PathBuf::from);
    let file = folder.join(name);
    assert!(file.is_file(), "{} is not built; build it with: cargo build --workspace", file.display());
    file
}

/// The first text in a JSON document that fits.
pub(super) fn find_text(document: &Value, fits: fn(&str) -> bool) -> Option<String> {
    match document {
        Value::String(text) => Some(text.clone()).filter(|text| fits(text)),
        Value::Array(items) => items.iter().find_map(|item| find_text(item, fits)),
        Value::Object(members) => members.values().find_map(|member| find_text(member, fits)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn output(command: &mut Command) -> Value {
    let line = format!("{command:?}");
    let ended = command.stdin(Stdio::null()).output().expect("the program starts");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{line}\n{text}{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_str(&text).unwrap_or_default()
}
