//! The handlers folder as people and programs fill it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The handlers folder of one device.
#[derive(Debug, Clone)]
pub struct Dropbox {
    folder: PathBuf,
}

/// What a manifest says beyond the usual: a handler that reads, in every state of the device, and takes one string.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mode<'a> {
    /// More lines at the top, such as `timeout = "300ms"`.
    pub top: &'a str,
    /// The name of its one argument; none unless said.
    pub member: &'a str,
    /// Lines of its reach.
    pub reach: &'a str,
}

impl Mode<'_> {
    /// The manifest's text.
    #[must_use]
    pub fn text(self) -> String {
        let Self { top, member, reach } = self;
        let mut text = format!("description = \"For tests\"\neffect = \"read\"\nactivation = \"any\"\n{top}\n");
        text += "[arguments]\ntype = \"object\"\n";
        if !member.is_empty() {
            text += &format!("properties.{member} = {{ type = \"string\", maxLength = 3000 }}\n");
        }
        if !reach.is_empty() {
            text += &format!("[reach]\n{reach}\n");
        }
        text
    }
}

impl Dropbox {
    /// The folder at this place, made if it is not there.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        fs::DirBuilder::new().mode(0o700).recursive(true).create(folder).expect("a folder");
        Self { folder: folder.to_owned() }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A place in it.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Drops a file whole: written under another name, then renamed.
    pub fn whole(&self, file: &str, bytes: &[u8]) {
        let hidden = self.path(&format!("{file}.tmp"));
        self.write(&hidden, bytes);
        fs::rename(&hidden, self.path(file)).expect("renamed");
    }

    /// Writes over a file where it lies, or makes it.
    pub fn in_place(&self, file: &str, bytes: &[u8]) {
        self.write(&self.path(file), bytes);
    }

    fn write(&self, path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("set");
    }

    /// Copies a file in so many pieces, with a pause behind each, as a slow network would.
    pub fn slowly(&self, file: &str, bytes: &[u8], pieces: usize, pause: Duration) {
        let mut to = fs::File::create(self.path(file)).expect("a new file");
        for piece in bytes.chunks(bytes.len().div_ceil(pieces)) {
            to.write_all(piece).expect("written");
            std::thread::sleep(pause);
        }
    }

    /// Drops a handler and its manifest, the manifest first so that there is never a handler without.
    pub fn handler(&self, name: &str, component: &str, mode: Mode<'_>) {
        self.manifest(name, &mode.text());
        self.whole(&format!("{name}.wat"), component.as_bytes());
    }

    /// Drops a fixture with its manifest.
    pub fn fixture(&self, name: &str, fixture: &str, mode: Mode<'_>) {
        self.handler(name, &super::text(fixture), mode);
    }

    /// Drops a manifest.
    pub fn manifest(&self, name: &str, text: &str) {
        self.whole(&format!("{name}.toml"), text.as_bytes());
    }

    /// Takes a file away.
    pub fn remove(&self, file: &str) {
        fs::remove_file(self.path(file)).expect("removed");
    }
}
