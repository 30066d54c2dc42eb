//! The settings as they are written: every key may be absent, nothing is checked beyond its kind.

use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSettings {
    pub(super) device: RawDevice,
    pub(super) link: RawLink,
    pub(super) keeper: RawKeeper,
    pub(super) camera: RawCamera,
    pub(super) audio: RawAudio,
    pub(super) speech: RawSpeech,
    pub(super) quiet: RawQuiet,
    pub(super) sign: RawSign,
    pub(super) handlers: RawHandlers,
    pub(super) limits: RawLimits,
    pub(super) log: RawLog,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawDevice {
    pub(super) name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLink {
    pub(super) direct: RawDirect,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawDirect {
    pub(super) listen: Option<String>,
    pub(super) advertise: Option<String>,
    pub(super) scheme: Option<String>,
    pub(super) hosts: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawKeeper {
    pub(super) listen: Option<String>,
    pub(super) display: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCamera {
    pub(super) device: Option<String>,
    pub(super) size: Option<String>,
    pub(super) largest: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAudio {
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
    pub(super) volume: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSpeech {
    pub(super) command: Option<Vec<String>>,
    pub(super) voice: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawQuiet {
    pub(super) hours: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSign {
    pub(super) led: Option<String>,
    pub(super) gpio: Option<String>,
    pub(super) require: Option<Vec<String>>,
    pub(super) sound: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawHandlers {
    pub(super) folder: Option<String>,
    pub(super) accept_weak_sandbox: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) rate_per_second: Option<u32>,
    pub(super) rate_burst: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLog {
    pub(super) filter: Option<String>,
    pub(super) format: Option<String>,
}
