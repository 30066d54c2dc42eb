//! The settings themselves.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::places::Places;

/// All settings, valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `device.*`
    pub device: DeviceSettings,
    /// `link.*`
    pub link: LinkSettings,
    /// `keeper.*`
    pub keeper: KeeperSettings,
    /// `camera.*`
    pub camera: CameraSettings,
    /// `sign.*`
    pub sign: SignSettings,
    /// `limits.*`
    pub limits: LimitSettings,
    /// `log.*`
    pub log: LogSettings,
    file: Option<PathBuf>,
}

/// `device.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSettings {
    /// What people and agents call the device; at most 64 bytes.
    pub name: String,
}

/// `link.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSettings {
    /// `link.direct.*`
    pub direct: DirectSettings,
}

/// Which scheme the direct link speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain HTTP on loopback, TLS elsewhere.
    Auto,
    /// TLS everywhere.
    Https,
    /// Plain HTTP everywhere: bodies can be read on the way.
    Http,
}

/// `link.direct.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectSettings {
    /// Where the direct link listens.
    pub listen: SocketAddr,
    /// The host that pairing links name; without it, the address of `listen`.
    pub advertise: Option<String>,
    /// Plain HTTP or TLS.
    pub scheme: Scheme,
    /// Further names that a `Host` header may carry.
    pub hosts: Vec<String>,
}

impl DirectSettings {
    /// Whether the link speaks TLS, as `scheme` and `listen` decide it.
    pub fn tls(&self) -> bool {
        match self.scheme {
            Scheme::Auto => !self.listen.ip().is_loopback(),
            Scheme::Https => true,
            Scheme::Http => false,
        }
    }
}

/// `keeper.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeeperSettings {
    /// Where the keeper's pages listen; always loopback.
    pub listen: SocketAddr,
    /// Whether the display page is served and carries the in-use sign.
    pub display: bool,
}

/// `camera.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CameraSettings {
    /// by-id, by-path or /dev path; without it, the first capture device.
    pub device: Option<String>,
}

/// `sign.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignSettings {
    /// An LED's name under /sys/class/leds.
    pub led: Option<String>,
}

/// `limits.*`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    /// Requests a second, on average.
    pub rate_per_second: u32,
    /// Requests at once after a pause.
    pub rate_burst: u32,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `log.*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter as `RUST_LOG` knows it.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

/// Why settings were refused: one sentence with file, line, key and the nearest known key.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Neither `HOME` nor the XDG variables are set.
    #[error("no home folder is known (HOME is not set); name the folders with --config-dir and --state-dir")]
    NoHome,
}

impl Settings {
    /// Reads `latchkey.toml`, then `LATCHKEY_SET_A__B` from the environment, then each `--set key=value`; later ones win.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn load(
        places: &Places,
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let _ = (places, sets, env.count());
        todo!()
    }

    /// Like [`Settings::load`], for a running program: a settings file that was there at the start and is gone now is an error.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn reload(
        &self,
        places: &Places,
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        Self::load(places, sets, env)
    }

    /// The file these settings came from, if there was one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What `config init` writes: every key, commented out, with its meaning, default and unit.
    pub fn default_file() -> &'static str {
        todo!()
    }

    /// The settings in force, as TOML.
    pub fn show(&self) -> String {
        todo!()
    }

    /// The settings in force, as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        todo!()
    }
}
