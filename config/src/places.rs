//! Where settings and state lie: flags first, then the environment, then what is usual for root and for others.
//!
//! Called once by a program at its start; the environment comes in as a function. Refuses to guess where no home is known.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::settings::{Settings, SettingsError};

/// The settings file's name inside the settings folder.
const SETTINGS_FILE: &str = "latchkey.toml";
/// The handlers folder's name inside the settings folder, unless the settings name another folder.
const HANDLERS_DIR: &str = "handlers";
/// Compiled handlers, inside the state folder.
const CACHE_DIR: &str = "cache";

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
    /// Whether somebody named the settings folder; if it does not exist, [`Places::advice`] says so.
    pub config_named: bool,
}

impl Places {
    /// Flags before environment before the defaults: XDG for a person, `/etc` and `/var/lib` for root or `--system`.
    ///
    /// # Errors
    /// [`SettingsError::NoHome`] when a person has neither `HOME` nor the XDG variables.
    pub fn find(flags: Flags, env: &dyn Fn(&str) -> Option<OsString>, root: bool) -> Result<Self, SettingsError> {
        let system = root || flags.system;
        let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let xdg = |name: &str, under_home: &str| {
            set(name)
                .filter(|path| path.is_absolute())
                .or_else(|| set("HOME").map(|home| home.join(under_home)))
                .map(|path| path.join("latchkey"))
                .ok_or(SettingsError::NoHome)
        };
        let config_named = flags.config_dir.or_else(|| set("LATCHKEY_CONFIG_DIR"));
        let state_named = flags.state_dir.or_else(|| set("LATCHKEY_STATE_DIR"));
        let named = config_named.is_some();
        let config_dir = match config_named {
            Some(path) => path,
            None if system => Path::new("/etc/latchkey").to_owned(),
            None => xdg("XDG_CONFIG_HOME", ".config")?,
        };
        let state_dir = match state_named {
            Some(path) => path,
            None if system => Path::new("/var/lib/latchkey").to_owned(),
            None => xdg("XDG_STATE_HOME", ".local/state")?,
        };
        Ok(Self { config_dir, state_dir, config_named: named })
    }

    /// What to tell somebody who named a settings folder that does not exist. The defaults turn nothing on, so a device starts
    /// with them all the same.
    pub fn advice(&self) -> Option<String> {
        let folder = self.config_dir.display();
        (self.config_named && !self.config_dir.exists()).then(|| {
            format!(
                "there is no settings folder {folder}, so the defaults hold; make it and a settings file with: latchkeyd --config-dir {folder} config init"
            )
        })
    }

    /// The settings file.
    pub fn settings_file(&self) -> PathBuf {
        self.config_dir.join(SETTINGS_FILE)
    }

    /// Where the keeper drops handlers: what `handlers.folder` names, else `handlers` beside the settings file.
    pub fn handlers_dir(&self, settings: &Settings) -> PathBuf {
        settings.handlers.folder.clone().unwrap_or_else(|| self.config_dir.join(HANDLERS_DIR))
    }

    /// Where compiled handlers are kept.
    pub fn cache_dir(&self) -> PathBuf {
        self.state_dir.join(CACHE_DIR)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn check(flags: (&str, &str, bool), env: &[(&str, &str)], root: bool, expected: Option<(&str, &str)>) {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let flags = Flags { config_dir: path(flags.0), state_dir: path(flags.1), system: flags.2 };
        let lookup = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        let found = Places::find(flags, &lookup, root).ok();
        let found =
            found.as_ref().map(|places| (places.config_dir.to_str().unwrap(), places.state_dir.to_str().unwrap()));
        assert_eq!(found, expected, "{env:?}");
    }

    #[test]
    fn flags_come_before_the_environment_and_that_before_the_defaults() {
        let home = ("HOME", "/home/a");
        check(("", "", false), &[home], false, Some(("/home/a/.config/latchkey", "/home/a/.local/state/latchkey")));
        check(
            ("", "", false),
            &[home, ("XDG_CONFIG_HOME", "/x")],
            false,
            Some(("/x/latchkey", "/home/a/.local/state/latchkey")),
        );
        check(
            ("", "", false),
            &[home, ("XDG_STATE_HOME", "relative")],
            false,
            Some(("/home/a/.config/latchkey", "/home/a/.local/state/latchkey")),
        );
        check(("", "", false), &[home], true, Some(("/etc/latchkey", "/var/lib/latchkey")));
        check(("", "", true), &[home], false, Some(("/etc/latchkey", "/var/lib/latchkey")));
        check(
            ("", "", false),
            &[("LATCHKEY_CONFIG_DIR", "/c"), ("LATCHKEY_STATE_DIR", "/s")],
            true,
            Some(("/c", "/s")),
        );
        check(
            ("/f", "/g", false),
            &[("LATCHKEY_CONFIG_DIR", "/c"), ("LATCHKEY_STATE_DIR", "/s")],
            true,
            Some(("/f", "/g")),
        );
        check(
            ("", "", false),
            &[("LATCHKEY_CONFIG_DIR", ""), home],
            false,
            Some(("/home/a/.config/latchkey", "/home/a/.local/state/latchkey")),
        );
        check(("", "", false), &[], false, None);
    }
}
