//! Where settings and state lie. Called once by a program at its start.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::settings::SettingsError;

/// What the command line said about places.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--config-dir`.
    pub config_dir: Option<PathBuf>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `--system`: the folders of a system service, whoever asks.
    pub system: bool,
}

/// The two folders of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Holds `latchkey.toml`.
    pub config_dir: PathBuf,
    /// Holds the device's key and journal.
    pub state_dir: PathBuf,
    /// Whether somebody named the settings folder; a named folder that does not exist is an error, a default one is not.
    pub config_named: bool,
}

impl Places {
    /// Flags before environment before the defaults: XDG for a person, `/etc` and `/var/lib` for root or `--system`.
    ///
    /// # Errors
    /// When a person has neither `HOME` nor the XDG variables.
    pub fn find(flags: Flags, env: &dyn Fn(&str) -> Option<OsString>, root: bool) -> Result<Self, SettingsError> {
        let _ = (flags, env, root);
        todo!()
    }

    /// The settings file.
    pub fn settings_file(&self) -> PathBuf {
        self.config_dir.join("latchkey.toml")
    }
}
