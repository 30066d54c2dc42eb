//! `device.health`: how the device is, in numbers.
//!
//! Called often, so what the system must be asked for is read at most once in [`READ_EACH`] and apart from the threads that answer.
//! Every number is an integer with its unit in its name. What the machine does not have is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use wire::{Declaration, Object};

use crate::clock::{BootTime, Clock};
use crate::handler::{Call, Fault, Handler};
use crate::wasm::WASMTIME;

/// How old a reading may be: sensors and disks change slower, and some take a millisecond to answer.
pub const READ_EACH: Duration = Duration::from_secs(1);
/// Calls this close together get the same report: a flood of them costs little, and nobody sees the difference.
const SAME_REPORT: Duration = Duration::from_millis(5);
/// Where the kernel shows its temperatures and batteries.
const SYSTEM: &str = "/sys/class";
/// The kernel's files here hold one number or word.
const FILE_BYTES_MAX: u64 = 256;

/// What only the actors know: states of capabilities, links, counters. Merged into the health value.
pub trait Census: Send + Sync {
    /// The members to merge, such as `capabilities` and `links`.
    fn report(&self) -> Object;
}

/// What the machine is fitted with beside itself, and may lose: sound cards, for one. Asked at most once in [`READ_EACH`].
pub trait Fittings: Send + Sync {
    /// The members to add, such as `sound`.
    fn report(&self) -> Object;
}

/// What a [`Health`] is made of.
pub struct HealthParts {
    /// The program's version.
    pub version: &'static str,
    /// Whether the device is a simulation.
    pub simulated: bool,
    /// The folder whose disk is measured: the state folder.
    pub folder: PathBuf,
    /// The time. Up time counts from the making of the handler.
    pub clock: Arc<dyn Clock>,
    /// What the actors know.
    pub census: Arc<dyn Census>,
    /// What the machine is fitted with.
    pub fittings: Arc<dyn Fittings>,
}

/// `device.health`.
pub struct Health {
    declaration: Declaration,
    shared: Arc<Shared>,
}

struct Shared {
    parts: HealthParts,
    system: PathBuf,
    started: BootTime,
    readings: Mutex<Option<Readings>>,
    reported: Mutex<Option<(BootTime, Object)>>,
    /// Held by the one who reads; everyone else goes on with the last readings.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Readings {
    at: BootTime,
    values: Arc<Map<String, Value>>,
}

impl Health {
    /// The handler for one device.
    pub fn new(parts: HealthParts) -> Self {
        Self::over(parts, SYSTEM)
    }

    fn over(parts: HealthParts, system: impl Into<PathBuf>) -> Self {
        let started = parts.clock.boot();
        let shared = Shared {
            parts,
            system: system.into(),
            started,
            readings: Mutex::default(),
            reported: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        };
        Self { declaration: Declaration::device_health(), shared: Arc::new(shared) }
    }
}

impl Handler for Health {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, _call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        Arc::clone(&self.shared).report().boxed()
    }
}

impl Shared {
    async fn report(self: Arc<Self>) -> Result<Object, Fault> {
        let boot = self.parts.clock.boot();
        if let Some((at, report)) = &*self.reported.lock().unwrap_or_else(PoisonError::into_inner)
            && boot.since(*at) < SAME_REPORT
        {
            return Ok(report.clone());
        }
        let readings = self.current().await;
        let parts = &self.parts;
        let mut value = Object::new();
        value.insert("uptime_ms", millis(boot.since(self.started)));
        value.insert("version", parts.version);
        value.insert("simulated", parts.simulated);
        value.insert("handlers", json!({ "engine": format!("wasmtime {WASMTIME}") }));
        value.insert("clock", json!({ "boot_ms": boot.as_ms(), "wall_ms": parts.clock.wall_ms() }));
        for (name, reading) in readings.iter() {
            value.insert(name.clone(), reading.clone());
        }
        for (name, member) in parts.census.report().into_map() {
            value.insert(name, member);
        }
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = Some((boot, value.clone()));
        Ok(value)
    }

    fn last(&self) -> Option<Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Readings no older than [`READ_EACH`], or the last ones while somebody is reading anew.
    async fn current(self: &Arc<Self>) -> Arc<Map<String, Value>> {
        let now = self.parts.clock.boot();
        let last = self.last();
        if let Some(fresh) = last.as_ref().filter(|last| now.since(last.at) < READ_EACH) {
            return Arc::clone(&fresh.values);
        }
        let _reader = match (last, self.reading.try_lock()) {
            (_, Ok(reader)) => reader,
            (Some(last), Err(_)) => return last.values,
            (None, Err(_)) => self.reading.lock().await,
        };
        // Whoever waited finds what the reader before left.
        if let Some(fresh) = self.last().filter(|last| now.since(last.at) < READ_EACH) {
            return fresh.values;
        }
        let shared = Arc::clone(self);
        let values = tokio::task::spawn_blocking(move || {
            let mut values = read(&shared.system, &shared.parts.folder);
            values.extend(shared.parts.fittings.report().into_map());
            values
        })
        .await;
        // A reader that crashed leaves the machine's numbers out; the device still answers.
        let readings = Readings { at: now, values: Arc::new(values.unwrap_or_default()) };
        *self.readings.lock().unwrap_or_else(PoisonError::into_inner) = Some(readings.clone());
        readings.values
    }
}

/// Everything that has to be asked for.
fn read(system: &Path, folder: &Path) -> Map<String, Value> {
    let mut values = Map::new();
    read_machine(&mut values);
    if let Ok(disk) = rustix::fs::statvfs(folder) {
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        values.insert(
            "disk".to_owned(),
            json!({ "free_bytes": bytes(disk.f_bavail), "total_bytes": bytes(disk.f_blocks) }),
        );
    }
    if let Some(hottest) = temperature(system) {
        values.insert("temperature_c".to_owned(), hottest.into());
    }
    if let Some(battery) = battery(system) {
        values.insert("battery".to_owned(), battery);
    }
    values
}

#[allow(clippy::useless_conversion, reason = "the kernel's long has 32 bits on some machines")]
fn read_machine(values: &mut Map<String, Value>) {
    /// The kernel counts load in parts of 65,536.
    const LOAD_ONE: u64 = 1 << 16;
    let found = rustix::system::sysinfo();
    let [one, five, fifteen] = found.loads.map(|load| u64::from(load).saturating_mul(100) / LOAD_ONE);
    let load = json!({ "one_minute_percent": one, "five_minutes_percent": five, "fifteen_minutes_percent": fifteen });
    values.insert("load".to_owned(), load);
    let bytes = |amount| u64::from(amount).saturating_mul(u64::from(found.mem_unit));
    let free = available_bytes().unwrap_or_else(|| bytes(found.freeram));
    values.insert("memory".to_owned(), json!({ "available_bytes": free, "total_bytes": bytes(found.totalram) }));
}

/// What programs could still take, caches included, as the kernel estimates it.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The hottest part that the kernel knows, in degrees Celsius.
fn temperature(system: &Path) -> Option<i64> {
    /// Sensors that are not connected read far outside of this.
    const PLAUSIBLE: std::ops::RangeInclusive<i64> = -60..=200;
    let zones = entries(&system.join("thermal"), "thermal_zone");
    let degrees = zones.iter().filter_map(|zone| Some(word(&zone.join("temp"))?.parse::<i64>().ok()? / 1000));
    degrees.filter(|degrees| PLAUSIBLE.contains(degrees)).max()
}

/// The first battery.
fn battery(system: &Path) -> Option<Value> {
    entries(&system.join("power_supply"), "").iter().find_map(|supply| {
        // A mouse's battery is not this device's.
        if word(&supply.join("type"))? != "Battery" || word(&supply.join("scope")).as_deref() == Some("Device") {
            return None;
        }
        let percent = word(&supply.join("capacity"))?.parse::<u8>().ok().filter(|percent| *percent <= 100)?;
        let status = word(&supply.join("status")).unwrap_or_else(|| "unknown".to_owned());
        Some(json!({ "percent": percent, "status": status.to_ascii_lowercase() }))
    })
}

fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = found
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix)))
        .collect();
    paths.sort();
    paths
}

fn word(file: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(file).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::TokioClock;

    struct Counted;

    impl Census for Counted {
        fn report(&self) -> Object {
            let mut report = Object::new();
            report.insert("capabilities", json!([{ "name": "camera.snapshot", "state": "ready" }]));
            report
        }
    }

    struct Bare;

    impl Fittings for Bare {
        fn report(&self) -> Object {
            let mut report = Object::new();
            report.insert("sound", json!({ "input": "absent", "output": "present" }));
            report
        }
    }

    fn machine() -> tempfile::TempDir {
        let system = tempfile::tempdir().unwrap();
        let files = [
            ("thermal/thermal_zone0", "temp", "41700\n"),
            ("thermal/thermal_zone1", "temp", "53200\n"),
            ("thermal/thermal_zone2", "temp", "-274000\n"),
            ("power_supply/AC", "type", "Mains\n"),
            ("power_supply/BAT0", "type", "Battery\n"),
            ("power_supply/BAT0", "capacity", "87\n"),
            ("power_supply/BAT0", "status", "Discharging\n"),
        ];
        for (folder, file, text) in files {
            let folder = system.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        }
        system
    }

    fn health(system: &Path) -> Health {
        let clock = Arc::new(TokioClock::new(1_700_000_000_000));
        let parts = HealthParts {
            version: "1.2.3",
            simulated: true,
            folder: system.to_owned(),
            clock,
            census: Arc::new(Counted),
            fittings: Arc::new(Bare),
        };
        Health::over(parts, system)
    }

    async fn ask(health: &Health) -> Object {
        let arguments = health.declaration().bounds.check(Object::new()).unwrap();
        let agent = "eve@home.example.org".parse().unwrap();
        let clock = Arc::clone(&health.shared.parts.clock);
        health.run(Call { arguments, stop: CancellationToken::new(), clock, agent }).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn health_tells_the_machine_the_clock_and_what_the_actors_know() {
        let system = machine();
        let health = health(system.path());
        tokio::time::advance(Duration::from_millis(1500)).await;
        let value = ask(&health).await;
        let part = |name: &str| value.get(name).unwrap().clone();
        assert_eq!(part("uptime_ms"), 1500);
        assert_eq!((part("version"), part("simulated")), ("1.2.3".into(), true.into()));
        assert_eq!(part("handlers"), json!({ "engine": format!("wasmtime {WASMTIME}") }));
        assert_eq!(part("clock"), json!({ "boot_ms": 1500, "wall_ms": 1_700_000_001_500_u64 }));
        assert_eq!(
            (part("temperature_c"), part("battery")),
            (53.into(), json!({ "percent": 87, "status": "discharging" }))
        );
        assert_eq!(part("capabilities"), json!([{ "name": "camera.snapshot", "state": "ready" }]));
        for pointer in ["/memory/available_bytes", "/memory/total_bytes", "/disk/free_bytes", "/disk/total_bytes"] {
            let all = Value::from(value.clone().into_map());
            assert!(all.pointer(pointer).and_then(Value::as_u64).unwrap() > 0, "{pointer}");
        }
        assert!(value.get("load").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn readings_are_kept_for_a_second_and_then_read_anew() {
        let system = machine();
        let health = health(system.path());
        let hot = system.path().join("thermal/thermal_zone1/temp");
        assert_eq!(ask(&health).await.get("temperature_c").unwrap(), 53);
        fs::write(&hot, "60000").unwrap();
        tokio::time::advance(READ_EACH - SAME_REPORT).await;
        assert_eq!(ask(&health).await.get("temperature_c").unwrap(), 53);
        tokio::time::advance(SAME_REPORT).await;
        assert_eq!(ask(&health).await.get("temperature_c").unwrap(), 60);
    }

    #[tokio::test]
    async fn a_machine_without_sensors_leaves_them_out() {
        let empty = tempfile::tempdir().unwrap();
        let value = ask(&health(empty.path())).await;
        assert!(
            value.get("temperature_c").is_none() && value.get("battery").is_none() && value.get("memory").is_some()
        );
    }

    #[tokio::test]
    async fn every_number_is_an_integer() {
        fn check(value: &Value) {
            match value {
                Value::Number(number) => assert!(number.is_i64() || number.is_u64(), "{number}"),
                Value::Array(items) => items.iter().for_each(check),
                Value::Object(members) => members.values().for_each(check),
                Value::Null | Value::Bool(_) | Value::String(_) => {}
            }
        }
        check(&Value::from(ask(&health(machine().path())).await.into_map()));
    }
}
