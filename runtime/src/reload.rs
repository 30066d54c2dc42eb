//! What a running device can change about itself, and where people find it: the composition's side of the command socket.
//!
//! Owns the settings in force. A reload reads all of them first; only when they hold does anything change. Keys that are wired into
//! bound listeners and made parts keep their value until a restart, and are named.

use std::sync::{Arc, PoisonError, RwLock};

use actors::{House, Installed, SettingsChange};
use config::Settings;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::Playback;
use wire::{CapabilityName, Declaration};

use crate::device::{Bound, advertised_host, host_names, limits};
use crate::doctor::Finding;
use crate::doctor::trial::{Bench, Stage, Trial, own_name};
use crate::keeper::ask::{Address, Reloaded};
use crate::keeper::socket::Concierge;
use crate::rules::HostNames;

/// Reads the settings anew, given those in force. The error is one sentence.
pub type Reread = Arc<dyn Fn(&Settings) -> Result<Settings, String> + Send + Sync>;

/// What the keeper can have tried in a running device.
pub(crate) struct Tried {
    /// What can capture.
    pub(crate) captures: Vec<Installed>,
    /// What plays, by the settings in force.
    pub(crate) speaker: SpeakerOf,
}

/// What the settings play sound through.
pub(crate) type SpeakerOf = Arc<dyn Fn(&Settings) -> Arc<dyn Playback> + Send + Sync>;

/// The settings in force, and where the device is bound.
pub(crate) struct Reception {
    live: Arc<RwLock<Settings>>,
    bound: Bound,
    names: HostNames,
    reread: Option<Reread>,
    tried: Tried,
    /// One reload at a time: two must not mix their values.
    turn: tokio::sync::Mutex<()>,
}

impl Reception {
    pub(crate) fn new(
        live: Arc<RwLock<Settings>>,
        bound: Bound,
        names: HostNames,
        reread: Option<Reread>,
        tried: Tried,
    ) -> Self {
        Self { live, bound, names, reread, tried, turn: tokio::sync::Mutex::new(()) }
    }

    pub(crate) fn in_force(&self) -> Settings {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the settings in force play sound through.
    pub(crate) fn speaker(&self) -> Arc<dyn Playback> {
        (self.tried.speaker)(&self.in_force())
    }

    pub(crate) async fn read_anew(&self, house: House) -> Result<Reloaded, String> {
        let _turn = self.turn.lock().await;
        let before = self.in_force();
        let Some(reread) = &self.reread else { return Err("this device does not read its settings anew".to_owned()) };
        let wanted = reread(&before)?;
        let (after, reloaded) = step(&before, &wanted);
        if !reloaded.changed.is_empty() {
            self.names.replace(host_names(&after));
            *self.live.write().unwrap_or_else(PoisonError::into_inner) = after.clone();
            let renew = stand_on(&before, &after);
            let (name, limits) = (after.device.name.clone(), limits(&after));
            house.settings_changed(SettingsChange { name, limits, renew }).await;
        }
        tracing::info!(changed = ?reloaded.changed, restart = ?reloaded.restart, "settings were read anew");
        Ok(reloaded)
    }

    pub(crate) fn where_it_listens(&self) -> Address {
        let Bound { direct, tls, keeper, simulated } = self.bound;
        Address {
            tls,
            host: advertised_host(&self.in_force(), direct),
            port: direct.port(),
            direct: direct.to_string(),
            display: keeper.map(|keeper| format!("http://{keeper}/display")),
            pid: std::process::id(),
            simulated,
        }
    }
}

/// The capabilities that stand on what changed, and are to be made anew.
fn stand_on(before: &Settings, after: &Settings) -> Vec<CapabilityName> {
    let speaker = |settings: &Settings| {
        let audio = (settings.audio.output.clone(), settings.audio.volume);
        (audio, settings.speech.clone(), settings.quiet.clone())
    };
    let moved = [
        (Declaration::camera_snapshot(), before.camera != after.camera),
        (Declaration::microphone_listen(), before.audio.input != after.audio.input),
        (Declaration::speaker_say(), speaker(before) != speaker(after)),
    ];
    moved.into_iter().filter(|(_, moved)| *moved).map(|(declaration, _)| declaration.name).collect()
}

/// The settings after a reload, and which keys moved. What cannot change in a running device stays as it was.
fn step(before: &Settings, wanted: &Settings) -> (Settings, Reloaded) {
    let mut after = before.clone();
    let mut reloaded = Reloaded::default();
    let (old, new) = (&before.link.direct, &wanted.link.direct);
    let live = [
        ("device.name", before.device.name != wanted.device.name),
        ("link.direct.advertise", old.advertise != new.advertise),
        ("link.direct.hosts", old.hosts != new.hosts),
        ("camera.device", before.camera.device != wanted.camera.device),
        ("camera.size", before.camera.size != wanted.camera.size),
        ("camera.largest", before.camera.largest != wanted.camera.largest),
        ("audio.input", before.audio.input != wanted.audio.input),
        ("audio.output", before.audio.output != wanted.audio.output),
        ("audio.volume", before.audio.volume != wanted.audio.volume),
        ("speech.command", before.speech.command != wanted.speech.command),
        ("speech.voice", before.speech.voice != wanted.speech.voice),
        ("quiet.hours", before.quiet != wanted.quiet),
        ("limits.rate_per_second", before.limits.rate_per_second != wanted.limits.rate_per_second),
        ("limits.rate_burst", before.limits.rate_burst != wanted.limits.rate_burst),
    ];
    let fixed = [
        ("link.direct.listen", old.listen != new.listen),
        ("link.direct.scheme", old.scheme != new.scheme),
        ("keeper.listen", before.keeper.listen != wanted.keeper.listen),
        ("keeper.display", before.keeper.display != wanted.keeper.display),
        ("sign.led", before.sign.led != wanted.sign.led),
        ("sign.gpio", before.sign.gpio != wanted.sign.gpio),
        ("sign.require", before.sign.require != wanted.sign.require),
        ("sign.sound", before.sign.sound != wanted.sign.sound),
        ("handlers.folder", before.handlers.folder != wanted.handlers.folder),
        ("handlers.accept_weak_sandbox", before.handlers.accept_weak_sandbox != wanted.handlers.accept_weak_sandbox),
        ("log.filter", before.log.filter != wanted.log.filter),
        ("log.format", before.log.format != wanted.log.format),
    ];
    let moved =
        |keys: &[(&str, bool)]| keys.iter().filter(|(_, moved)| *moved).map(|(key, _)| (*key).to_owned()).collect();
    reloaded.changed = moved(&live);
    reloaded.restart = moved(&fixed);
    after.device = wanted.device.clone();
    after.link.direct.advertise.clone_from(&new.advertise);
    after.link.direct.hosts.clone_from(&new.hosts);
    after.camera = wanted.camera.clone();
    after.audio = wanted.audio.clone();
    after.speech = wanted.speech.clone();
    after.quiet = wanted.quiet.clone();
    after.limits = wanted.limits;
    (after, reloaded)
}

impl Concierge for Reception {
    fn reload(self: Arc<Self>, house: House) -> BoxFuture<'static, Result<Reloaded, String>> {
        async move { self.read_anew(house).await }.boxed()
    }

    fn address(&self) -> Address {
        self.where_it_listens()
    }

    fn try_out(self: Arc<Self>, house: House, trial: Trial) -> BoxFuture<'static, Vec<Finding>> {
        let settings = self.in_force();
        let bench = Bench {
            simulated: self.bound.simulated,
            page: self.bound.keeper.map(|keeper| format!("http://{keeper}/display")),
            captures: self.tried.captures.clone(),
            speaker: (self.tried.speaker)(&settings),
            settings,
            user: own_name(),
            stage: Stage::House(house),
        };
        async move { bench.perform(trial).await }.boxed()
    }
}
