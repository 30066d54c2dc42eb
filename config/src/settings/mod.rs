//! The settings of a device: file, environment and command line in layers, read once into valid values.
//!
//! Called at start and at each reload; a value of [`Settings`] exists only when everything in it holds. Refuses unknown keys with file,
//! line and the nearest known key. A failed reload is an error and nothing else: the caller keeps what it had.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Serialize;

use crate::keys;
use crate::places::Places;
use crate::safe::{self, SafeError};

mod checks;
mod layers;
mod raw;
mod sign;
mod speech;
#[cfg(test)]
mod tests;

pub(crate) use checks::is_host_name;
use layers::Layer;
pub(crate) use layers::syntax_reason;
use raw::RawSettings;
pub use sign::{SignCarrier, SignSettings};
pub use speech::{NoQuietHours, QuietHours, QuietSettings, SpeechSettings};

/// A settings file larger than this is something else.
const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Where the direct link listens unless told otherwise.
const DIRECT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7601);
/// Where the keeper's page listens unless told otherwise.
const KEEPER_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7602);
/// Enough to read a label across a room, small enough for the raw modes of old cameras.
const CAMERA_SIZE: PictureSize = PictureSize { width: 1280, height: 720 };
/// As much as most screens show.
const CAMERA_LARGEST: PictureSize = PictureSize { width: 1920, height: 1080 };
/// As loud as the engine and the card make it.
const VOLUME_PERCENT: u8 = 100;
/// Four times what an agent that polls each device of a house needs, a tenth of what a small device can answer.
const RATE_PER_SECOND: u32 = 200;
/// Ten seconds' worth.
const RATE_BURST: u32 = 2000;

/// All settings, valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// `device.*`
    pub device: DeviceSettings,
    /// `link.*`
    pub link: LinkSettings,
    /// `keeper.*`
    pub keeper: KeeperSettings,
    /// `camera.*`
    pub camera: CameraSettings,
    /// `audio.*`
    pub audio: AudioSettings,
    /// `speech.*`
    pub speech: SpeechSettings,
    /// `quiet.*`
    pub quiet: QuietSettings,
    /// `sign.*`
    pub sign: SignSettings,
    /// `handlers.*`
    pub handlers: HandlerSettings,
    /// `limits.*`
    pub limits: LimitSettings,
    /// `log.*`
    pub log: LogSettings,
    #[serde(skip)]
    file: Option<PathBuf>,
}

/// `device.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceSettings {
    /// What people and agents call the device; 1 to 64 bytes.
    pub name: String,
}

/// `link.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkSettings {
    /// `link.direct.*`
    pub direct: DirectSettings,
}

/// Which scheme the direct link speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirectSettings {
    /// Where the direct link listens.
    pub listen: SocketAddr,
    /// The host that pairing links name, an IPv6 address without brackets; without it, the address of `listen`.
    pub advertise: Option<String>,
    /// Plain HTTP or TLS.
    pub scheme: Scheme,
    /// Further names that a `Host` header may carry, lower case.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeeperSettings {
    /// Where the keeper's page listens; always loopback.
    pub listen: SocketAddr,
    /// Whether the display page is served and carries the in-use sign.
    pub display: bool,
}

/// `camera.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CameraSettings {
    /// A name under by-id or by-path, or a path; without it, the first capture device.
    pub device: Option<String>,
    /// The size at which pictures are wanted.
    pub size: PictureSize,
    /// No picture leaves larger than this.
    pub largest: PictureSize,
}

/// Pixels across and down; written `1280x720`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureSize {
    /// Across.
    pub width: u32,
    /// Down.
    pub height: u32,
}

impl std::fmt::Display for PictureSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl Serialize for PictureSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `audio.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AudioSettings {
    /// The sound card to hear with, by its lasting name; without it, the default one.
    pub input: Option<String>,
    /// The sound card to play through, by its lasting name; without it, the default one.
    pub output: Option<String>,
    /// The loudest that may be played, in percent of the loudest there is: 1 to 100.
    pub volume: u8,
}

/// `handlers.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandlerSettings {
    /// Where custom handlers lie; without it, `handlers` beside the settings file.
    pub folder: Option<PathBuf>,
    /// Whether handlers run although the kernel cannot give their whole sandbox.
    pub accept_weak_sandbox: bool,
}

/// `limits.*`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LimitSettings {
    /// Requests of the owner a second, on average.
    pub rate_per_second: u32,
    /// Requests of the owner at once after a pause.
    pub rate_burst: u32,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `log.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogSettings {
    /// A filter as `RUST_LOG` knows it; not parsed here.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

/// Why settings were refused: one sentence, with place, key and the nearest known key.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Neither `HOME` nor the XDG variables are set.
    #[error("no home folder is known (HOME is not set); name the folders with --config-dir and --state-dir")]
    NoHome,
    /// The file that the running program started with is gone.
    #[error("{}: the settings file is gone; put it back, or restart to run without it", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The folder or file could not be read or may be written by others.
    #[error("{}", with_cause(.0))]
    Unsafe(SafeError),
    /// It is not TOML.
    #[error("{place}: {reason}")]
    Syntax {
        /// File and line, variable, or flag.
        place: String,
        /// What the parser said.
        reason: String,
    },
    /// `--set` without `=`.
    #[error("--set {text}: a setting is written key=value, such as --set device.name=kitchen")]
    NoValue {
        /// What was written.
        text: String,
    },
    /// Nobody knows this key.
    #[error("{place}: unknown key `{key}`{hint}")]
    Unknown {
        /// File and line, variable, or flag.
        place: String,
        /// The whole key.
        key: String,
        /// "; did you mean …?"
        hint: String,
    },
    /// The value does not do for this key.
    #[error("{place}: `{key}`: {reason}")]
    Invalid {
        /// File and line, variable, or flag.
        place: String,
        /// The whole key.
        key: String,
        /// What is wrong with the value.
        reason: String,
    },
}

/// A settings error is one sentence, so the system's word is part of it.
fn with_cause(error: &SafeError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl Settings {
    /// Reads `latchkey.toml`, then `LATCHKEY_SET_A__B` from the environment, then each `--set key=value`; later ones win. Without a
    /// file the defaults hold.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn load(
        places: &Places,
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut layers = Vec::new();
        let file = read_file(places)?;
        let path = file.is_some().then(|| places.settings_file());
        if let Some(bytes) = file {
            layers.push(Layer::file(places.settings_file().display().to_string(), bytes)?);
        }
        let mut variables: Vec<(String, String)> = env.collect();
        variables.sort();
        for (name, value) in &variables {
            layers.extend(Layer::variable(name, value).transpose()?);
        }
        for set in sets {
            layers.push(Layer::set(set)?);
        }
        for layer in &layers {
            layer.check_keys()?;
        }
        let raw: RawSettings = layers::merged(&layers).extract().map_err(|error| {
            let key = error.path.join(".");
            let reason = if keys::is_table(&key) { TABLE_WANTED.to_owned() } else { reason_of(&error.kind) };
            SettingsError::Invalid { place: place_of(&layers, &key), key, reason }
        })?;
        Self::check(raw, &layers, path)
    }

    /// Like [`Settings::load`], for a running program: a settings file that was there before and is gone now is an error.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn reload(
        &self,
        places: &Places,
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let fresh = Self::load(places, sets, env)?;
        match (&self.file, &fresh.file) {
            (Some(path), None) => Err(SettingsError::Gone { path: path.clone() }),
            _ => Ok(fresh),
        }
    }

    fn check(raw: RawSettings, layers: &[Layer], file: Option<PathBuf>) -> Result<Self, SettingsError> {
        let on = |key: &'static str| Refusing { key, layers };
        let direct = raw.link.direct;
        let (speech, quiet) = speech::read(raw.speech, raw.quiet, layers)?;
        Ok(Self {
            device: DeviceSettings {
                name: on("device.name")
                    .optional(raw.device.name, |text| checks::name(&text))?
                    .unwrap_or_else(host_name),
            },
            link: LinkSettings {
                direct: DirectSettings {
                    listen: on("link.direct.listen").or(direct.listen, |text| checks::address(&text), DIRECT_LISTEN)?,
                    advertise: on("link.direct.advertise").optional(direct.advertise, |text| checks::host(&text))?,
                    scheme: on("link.direct.scheme").or(direct.scheme, |text| checks::scheme(&text), Scheme::Auto)?,
                    hosts: on("link.direct.hosts").or(direct.hosts, |texts| checks::hosts(&texts), Vec::new())?,
                },
            },
            keeper: KeeperSettings {
                listen: on("keeper.listen").or(
                    raw.keeper.listen,
                    |text| checks::loopback_address(&text),
                    KEEPER_LISTEN,
                )?,
                display: raw.keeper.display.unwrap_or(true),
            },
            camera: CameraSettings {
                device: on("camera.device").optional(raw.camera.device, |text| checks::camera(&text))?,
                size: on("camera.size").or(raw.camera.size, |text| checks::picture_size(&text), CAMERA_SIZE)?,
                largest: on("camera.largest").or(
                    raw.camera.largest,
                    |text| checks::picture_size(&text),
                    CAMERA_LARGEST,
                )?,
            },
            audio: AudioSettings {
                input: on("audio.input").optional(raw.audio.input, |text| checks::sound_card(&text))?,
                output: on("audio.output").optional(raw.audio.output, |text| checks::sound_card(&text))?,
                volume: on("audio.volume").or(raw.audio.volume, checks::percent, VOLUME_PERCENT)?,
            },
            speech,
            quiet,
            sign: sign::read(raw.sign, layers, raw.keeper.display.unwrap_or(true))?,
            handlers: HandlerSettings {
                folder: on("handlers.folder").optional(raw.handlers.folder, |text| checks::folder(&text))?,
                accept_weak_sandbox: raw.handlers.accept_weak_sandbox.unwrap_or(false),
            },
            limits: LimitSettings {
                rate_per_second: on("limits.rate_per_second").or(
                    raw.limits.rate_per_second,
                    checks::rate_per_second,
                    RATE_PER_SECOND,
                )?,
                rate_burst: on("limits.rate_burst").or(raw.limits.rate_burst, checks::rate_burst, RATE_BURST)?,
            },
            log: LogSettings {
                filter: on("log.filter").or(raw.log.filter, |text| checks::filter(&text), "info".to_owned())?,
                format: on("log.format").or(raw.log.format, |text| checks::log_format(&text), LogFormat::Text)?,
            },
            file,
        })
    }

    /// The file these settings came from, if there was one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What `config init` writes: every key, commented out, with its meaning, default and unit.
    pub fn default_file() -> &'static str {
        static TEXT: LazyLock<String> = LazyLock::new(keys::default_file);
        &TEXT
    }

    /// The settings in force, as TOML that would give the same settings again.
    pub fn show(&self) -> String {
        let all = self.to_json();
        let mut document = toml_edit::DocumentMut::new();
        let mut unset = String::new();
        for key in keys::KEYS {
            let pointer = format!("/{}", key.path.replace('.', "/"));
            match all.pointer(&pointer).and_then(toml_value) {
                Some(value) => put(document.as_table_mut(), key.path, value),
                None => unset.push_str(&format!("# {} is unset: {}\n", key.path, key.unset)),
            }
        }
        let gap = if unset.is_empty() { "" } else { "\n" };
        format!("{document}{gap}{unset}")
    }

    /// The settings in force, as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The settings file's bytes, after the folder and the file were found safe; `None` when there is none.
fn read_file(places: &Places) -> Result<Option<Vec<u8>>, SettingsError> {
    match safe::check_not_writable(&places.config_dir) {
        Ok(()) => {}
        Err(SafeError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(SettingsError::Unsafe(error)),
    }
    let path = places.settings_file();
    match safe::check_not_writable(&path).and_then(|()| safe::read_limited(&path, FILE_BYTES_MAX)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(SafeError::Missing { .. }) => Ok(None),
        Err(error) => Err(SettingsError::Unsafe(error)),
    }
}

/// The last layer that sets `key` is the one whose value counts.
fn place_of(layers: &[Layer], key: &str) -> String {
    layers.iter().rev().find_map(|layer| layer.place(key)).unwrap_or_else(|| "settings".to_owned())
}

/// What stands where a table belongs.
const TABLE_WANTED: &str = "this is a table of settings, not a value";

/// figment's reason, in the words of the settings file.
fn reason_of(kind: &figment::error::Kind) -> String {
    use figment::error::Kind;
    match kind {
        Kind::InvalidType(found, expected) => {
            let wanted = match expected.as_str() {
                "u32" => "a whole number",
                "a boolean" => "true or false",
                "a string" => "text in quotes",
                "a sequence" => "a list of texts",
                other => other,
            };
            format!("expected {wanted}, found {found}")
        }
        other => other.to_string(),
    }
}

/// Turns a refused value into a sentence that names its place.
struct Refusing<'a> {
    key: &'static str,
    layers: &'a [Layer],
}

impl Refusing<'_> {
    fn optional<T, V>(
        self,
        raw: Option<T>,
        check: impl FnOnce(T) -> Result<V, String>,
    ) -> Result<Option<V>, SettingsError> {
        raw.map(check).transpose().map_err(|reason| SettingsError::Invalid {
            place: place_of(self.layers, self.key),
            key: self.key.to_owned(),
            reason,
        })
    }

    fn or<T, V>(
        self,
        raw: Option<T>,
        check: impl FnOnce(T) -> Result<V, String>,
        default: V,
    ) -> Result<V, SettingsError> {
        self.optional(raw, check).map(|value| value.unwrap_or(default))
    }
}

/// The machine's host name, as far as it can name a device.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    checks::name(&name).unwrap_or_else(|_| "device".to_owned())
}

fn toml_value(value: &serde_json::Value) -> Option<toml_edit::Value> {
    match value {
        serde_json::Value::Null | serde_json::Value::Object(_) => None,
        serde_json::Value::Bool(truth) => Some((*truth).into()),
        serde_json::Value::Number(number) => number.as_i64().map(Into::into),
        serde_json::Value::String(text) => Some(text.as_str().into()),
        serde_json::Value::Array(items) => {
            Some(items.iter().filter_map(toml_value).collect::<toml_edit::Array>().into())
        }
    }
}

fn put(mut table: &mut toml_edit::Table, path: &str, value: toml_edit::Value) {
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            table.insert(part, toml_edit::value(value));
            return;
        }
        let below = table.entry(part).or_insert_with(|| {
            let mut fresh = toml_edit::Table::new();
            fresh.set_implicit(true);
            toml_edit::Item::Table(fresh)
        });
        match below.as_table_mut() {
            Some(below) => table = below,
            None => return,
        }
    }
}
