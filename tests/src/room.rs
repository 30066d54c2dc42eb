//! The folders of one test, and the check that nothing is left of it.

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use wire::SecretKey;
use wire::text::base64url_encode;

/// Every process that a test starts carries this, with the room's folder as its value.
pub const MARK: &str = "LATCHKEY_TEST_ROOM";

/// A folder for one device, its settings and one controller.
#[derive(Debug)]
pub struct Room {
    folder: Option<TempDir>,
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl Room {
    /// A room with an empty settings folder in it, and nothing else.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("latchkey-").tempdir().expect("a temporary folder");
        let room = Self { folder: Some(folder) };
        self::folder(&room.config());
        room
    }

    /// The whole folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.as_ref().expect("the room stands").path()
    }

    /// A place in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The device's state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.file("state")
    }

    /// The device's settings folder.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.file("config")
    }

    /// The controller's folder.
    #[must_use]
    pub fn controller(&self) -> PathBuf {
        self.file("controller")
    }

    /// Makes the state folder with the key of this seed in it, as the first start of `latchkeyd` would.
    pub fn place_key(&self, seed: &[u8; 32]) {
        folder(&self.state());
        private(&self.state().join("device.key"), format!("{}\n", base64url_encode(seed)).as_bytes());
    }

    /// The device's key as it lies in the state folder.
    #[must_use]
    pub fn key(&self) -> SecretKey {
        latchkey_key(&self.state())
    }

    /// Writes the settings file.
    pub fn settings(&self, text: &str) {
        folder(&self.config());
        private(&self.config().join("latchkey.toml"), text.as_bytes());
    }

    /// Ends what still runs here and says what it was.
    #[must_use]
    pub fn sweep(&self) -> Vec<String> {
        let found = of_room(self.path());
        for (pid, _) in &found {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        found.into_iter().map(|(pid, command)| format!("{pid} {command}")).collect()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let left = self.sweep();
        let folder = self.folder.take().expect("dropped once");
        let path = folder.path().to_owned();
        let removed = folder.close();
        if std::thread::panicking() {
            return;
        }
        assert!(left.is_empty(), "the test left processes behind: {left:#?}");
        assert!(removed.is_ok() && !path.exists(), "the test left files behind in {}: {removed:?}", path.display());
    }
}

/// The device key of a state folder.
#[must_use]
pub fn latchkey_key(state_dir: &Path) -> SecretKey {
    runtime::key::read(state_dir).expect("the device has a key")
}

/// Makes a private folder, and those above it.
pub fn folder(path: &Path) {
    DirBuilder::new().mode(0o700).recursive(true).create(path).expect("a folder");
}

/// Writes a private file, in place of one that is there.
pub fn private(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    let mut file = fs::File::options().mode(0o600).write(true).create_new(true).open(path).expect("a new file");
    file.write_all(bytes).expect("written");
}

/// Processes that carry the room's mark.
fn of_room(room: &Path) -> Vec<(i32, String)> {
    let mark = format!("{MARK}={}", room.display()).into_bytes();
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark);
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            (marked && !command.is_empty()).then(|| (pid, String::from_utf8_lossy(&command).replace('\0', " ")))
        })
        .collect()
}
