//! What the device adds to its hardware: `make bench`, third table, or `latchkey-bench hardware --set …` on real devices.
//!
//! Baselines of the same run: the camera opened and read by the device's own adapter under a lit sign, without check, JPEG, record or signature, for a
//! signed `camera.snapshot`; the speech engine alone for `speaker.say`. Without settings that name hardware everything is simulated, and
//! the table says so.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::store::GrantRow;
use anyhow::Context;
use config::{Places, Settings};
use handlers::camera::{Bare, Frame};
use handlers::{Camera, CameraSetup, Sign, SimulatedCamera, SimulatedSign, SystemClock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wire::{Lease, Object, OwnerRequest};

use crate::Cli;
use crate::load::{Connection, Party, invoke};
use crate::report::{Server, cpu_of_all, latchkeyd, median, own, resident_kib, start_device_with};
use crate::speech;

/// Snapshots of a device that has taken one already.
const WARM: usize = 10;
/// Devices that take their first snapshot.
const COLD: usize = 5;
/// How long the idle device is watched.
const IDLE: Duration = Duration::from_secs(10);
/// A frame that does not come by then is not going to.
const FRAME_MAX: Duration = Duration::from_secs(10);
/// A megapixel and a bit, as most webcams give it.
const PICTURE: (u32, u32) = (1280, 720);
/// Pictures that are encoded.
const PICTURES: usize = 20;

/// Everything measured, in milliseconds unless it says otherwise.
#[derive(Default)]
struct Figures {
    simulated: bool,
    camera: String,
    bare_cold_ms: Vec<f64>,
    bare_warm_ms: Vec<f64>,
    cold_ms: Vec<f64>,
    warm_ms: Vec<f64>,
    encode_ms_per_megapixel: f64,
    speech: speech::Figures,
    idle_percent: f64,
    idle_kib: u64,
    used_kib: u64,
}

/// Measures this table alone, and prints it.
pub(crate) fn run_alone(cli: &Cli, sets: &[String]) -> anyhow::Result<()> {
    let latchkeyd = latchkeyd(cli)?;
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let json = runtime.block_on(run(cli, &latchkeyd, folder.path(), sets))?;
    if cli.json {
        println!("{json:#}");
    }
    Ok(())
}

/// Measures, prints unless JSON is wanted, and gives the table as JSON.
pub(crate) async fn run(cli: &Cli, latchkeyd: &Path, folder: &Path, sets: &[String]) -> anyhow::Result<Value> {
    println!("hardware: the bare devices …");
    let mut figures = Figures { simulated: sets.is_empty(), ..Figures::default() };
    let (camera, sign) = parts(folder, sets)?;
    tokio::select! {
        done = bare_camera(&camera, &sign, &mut figures) => done?,
        () = Arc::clone(&sign).tend(CancellationToken::new()) => {}
    }
    figures.encode_ms_per_megapixel = encoding()?;
    figures.speech = speech::measure(runtime::speech_of(&settings(folder, sets)?)).await?;
    println!("hardware: whole devices …");
    for number in 0..COLD {
        let state = folder.join(format!("hardware-{number}"));
        let kitchen = Kitchen::start(latchkeyd, &state, sets).await?;
        if number == 0 {
            kitchen.idle(&mut figures).await?;
        }
        figures.cold_ms.push(kitchen.snapshot_ms().await?);
        if number == 0 {
            for _ in 0..WARM {
                figures.warm_ms.push(kitchen.snapshot_ms().await?);
            }
            figures.used_kib = resident_kib(kitchen.server.pid())?;
        }
    }
    if !cli.json {
        figures.print();
    }
    Ok(figures.json())
}

/// The camera and the sign of these settings, as the device has them.
fn parts(folder: &Path, sets: &[String]) -> anyhow::Result<(Camera, Arc<Sign>)> {
    if sets.is_empty() {
        let camera = Camera::simulated(SimulatedCamera::new(), &CameraSetup::default());
        return Ok((camera, Sign::new(vec![Arc::new(SimulatedSign::new(|_| {}))], Arc::new(SystemClock))));
    }
    let settings = settings(folder, sets)?;
    Ok((runtime::device::camera_of(&settings), runtime::device::sign_of(&settings)?))
}

fn settings(folder: &Path, sets: &[String]) -> anyhow::Result<Settings> {
    let places = Places { config_dir: folder.to_owned(), state_dir: folder.to_owned(), config_named: false };
    Ok(Settings::load(&places, sets, std::iter::empty())?)
}

/// Opened, one frame read and closed again; and the second frame of a camera that runs.
async fn bare_camera(camera: &Camera, sign: &Sign, figures: &mut Figures) -> anyhow::Result<()> {
    figures.camera = camera.name();
    for _ in 0..COLD {
        let lit = sign.light().await?;
        let began = Instant::now();
        let mut stream = camera.bare(lit)?;
        frame(&mut stream)?;
        figures.bare_cold_ms.push(ms(began));
        for _ in 0..2 {
            let began = Instant::now();
            frame(&mut stream)?;
            figures.bare_warm_ms.push(ms(began));
        }
    }
    Ok(())
}

fn frame(stream: &mut Bare) -> anyhow::Result<Frame> {
    stream.next(FRAME_MAX)?.context("the camera sends no frame")
}

/// Milliseconds for a million pixels, from a raw frame to a JPEG file of a size that may leave the device.
fn encoding() -> anyhow::Result<f64> {
    let (width, height) = PICTURE;
    let megapixels = f64::from(width) * f64::from(height) / 1e6;
    // Neither flat nor noise: a slope with a grain, as a room looks.
    let bytes: Vec<u8> =
        (0..width * height * 2).map(|at| ((at % (width * 2)) / 12 + (at % 977 % 13)).to_le_bytes()[0]).collect();
    let mut times = Vec::new();
    for _ in 0..PICTURES {
        let format = handlers::camera::PixelFormat::Yuyv;
        let frame = Frame { format, width, height, stride: 0, bytes: bytes.clone(), damaged: false };
        let began = Instant::now();
        handlers::camera::jpeg_of(frame, wire::envelope::MEDIA_BYTES_MAX)?;
        times.push(ms(began) / megapixels);
    }
    Ok(median(times.into_iter()))
}

/// A device, owned, active and allowed what is measured.
struct Kitchen {
    server: Server,
    party: Arc<Party>,
}

impl Kitchen {
    async fn start(latchkeyd: &Path, state: &Path, sets: &[String]) -> anyhow::Result<Self> {
        let party = Arc::new(Party::new());
        let grants = ["camera", "microphone", "speaker.say"]
            .map(|name| name.parse().map(|name| (name, GrantRow { since_ms: 0, seal: None })));
        let grants = grants.into_iter().collect::<Result<Vec<_>, _>>()?;
        own(state, &party, grants.into_iter())?;
        let server = start_device_with(latchkeyd, state, sets, sets.is_empty()).await?;
        let kitchen = Self { server, party };
        let activate = OwnerRequest::Activate { lease: Lease::from_ms(300_000).context("a lease")? };
        kitchen.connection().await?.call(&kitchen.party, &activate).await?;
        Ok(kitchen)
    }

    async fn connection(&self) -> anyhow::Result<Connection> {
        Connection::open(self.server.address).await
    }

    /// A whole signed call: sign lit and confirmed, picture taken, on record, answer verified.
    async fn snapshot_ms(&self) -> anyhow::Result<f64> {
        let mut connection = self.connection().await?;
        let began = Instant::now();
        connection.call(&self.party, &invoke("camera.snapshot", Object::new())).await?;
        Ok(ms(began))
    }

    /// Processor time and memory while nobody asks for anything.
    async fn idle(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let pid = self.server.pid();
        let (began, before) = (Instant::now(), cpu_of_all(pid)?);
        tokio::time::sleep(IDLE).await;
        let used = cpu_of_all(pid)?.saturating_sub(before);
        figures.idle_percent = 100.0 * used.as_secs_f64() / began.elapsed().as_secs_f64();
        figures.idle_kib = resident_kib(pid)?;
        Ok(())
    }
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

impl Figures {
    fn print(&self) {
        let median = |times: &[f64]| median(times.iter().copied());
        let mib = |kib: u64| kib as f64 / 1024.0;
        println!();
        println!("hardware, {}: {}", if self.simulated { "SIMULATED" } else { "real" }, self.camera);
        let row = |name: &str, bare: &[f64], whole: &[f64]| {
            let (bare, whole) = (median(bare), median(whole));
            println!("  {name}: {whole:.1} ms, {:.1} ms more than a bare frame ({bare:.1} ms)", whole - bare);
        };
        row("first signed camera.snapshot of a device", &self.bare_cold_ms, &self.cold_ms);
        row("a further one, which opens the camera anew", &self.bare_cold_ms, &self.warm_ms);
        println!("  a frame of a camera that runs: {:.1} ms", median(&self.bare_warm_ms));
        println!(
            "  speaker.say to its first sample: {:.1} ms, {:.2} x the engine alone ({}, {:.1} ms)",
            median(&self.speech.first_sample_ms),
            median(&self.speech.first_sample_ms) / median(&self.speech.engine_ms),
            self.speech.engine,
            median(&self.speech.engine_ms)
        );
        println!("  JPEG from YUYV: {:.1} ms a megapixel", self.encode_ms_per_megapixel);
        println!(
            "  idle with all parts attached: {:.2} % of a core (aim under 0.5), {:.1} MiB; after snapshots {:.1} MiB",
            self.idle_percent,
            mib(self.idle_kib),
            mib(self.used_kib)
        );
    }

    fn json(&self) -> Value {
        json!({
            "simulated": self.simulated,
            "camera": self.camera,
            "bare_frame_cold_ms": self.bare_cold_ms,
            "bare_frame_warm_ms": self.bare_warm_ms,
            "snapshot_cold_ms": self.cold_ms,
            "snapshot_warm_ms": self.warm_ms,
            "speech_engine_ms": self.speech.engine_ms,
            "first_sample_ms": self.speech.first_sample_ms,
            "jpeg_ms_per_megapixel": self.encode_ms_per_megapixel,
            "idle_cpu_percent": self.idle_percent,
            "resident_idle_kib": self.idle_kib,
            "resident_used_kib": self.used_kib,
        })
    }
}
