//! What the device adds to its hardware: `make bench`, third table, or `latchkey-bench hardware --set …` on real devices.
//!
//! Baselines of the same run: the camera opened and read by the device's own adapter under a lit sign, without check, JPEG, record or signature, for the
//! adapter's picture and for a signed `camera.snapshot`; the speech engine alone for `speaker.say`. Without settings that name hardware everything is
//! simulated, and the table says so. `make bench-vm` runs it on devices of a real kernel, whose processor is emulated: its ratios count.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::store::GrantRow;
use anyhow::Context;
use config::{Places, Settings};
use handlers::camera::{Bare, Coding, Frame};
use handlers::{Call, Camera, CameraSetup, CaptureHandler as _, Sign, SimulatedCamera, SimulatedSign, SystemClock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wire::{Declaration, Lease, Object, OwnerRequest};

use crate::Cli;
use crate::crypto;
use crate::load::{Connection, Party, invoke};
use crate::report::{Server, cpu_of_all, latchkeyd, median, own, resident_kib, start_device_with, used};
use crate::speech;

/// Snapshots of a device that has taken one already.
const WARM: usize = 10;
/// Devices that take their first snapshot.
const COLD: usize = 5;
/// How often a device speaks.
const SPOKEN: usize = 5;
/// A device that was just started has done all there is to do by then.
const STARTED: Duration = Duration::from_secs(2);
/// How long the idle device is watched.
const IDLE: Duration = Duration::from_secs(10);
/// A frame that does not come by then is not going to.
const FRAME_MAX: Duration = Duration::from_secs(10);
/// A megapixel and a bit, as most webcams give it.
const PICTURE: (u32, u32) = (1280, 720);
/// How long a signed answer is, about, and for how long such are signed to learn how fast the processor is.
const PAIR_BYTES: usize = 700;
const PAIR_SECONDS: f64 = 0.5;
/// Pictures that are encoded.
const PICTURES: usize = 20;

/// Everything measured, in milliseconds unless it says otherwise.
#[derive(Default)]
struct Figures {
    /// The settings that name the hardware; none when it is simulated.
    sets: Vec<String>,
    camera: String,
    /// One check of a signature and one signature, in microseconds: how fast this processor is.
    pair_us: f64,
    bare_cold_ms: Vec<f64>,
    bare_warm_ms: Vec<f64>,
    adapter_ms: Vec<f64>,
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
    cli.progress("hardware: the bare devices …");
    let mut figures = Figures { sets: sets.to_vec(), ..Figures::default() };
    figures.pair_us = crypto::pair_us(&Party::new(), PAIR_BYTES, PAIR_SECONDS);
    let (camera, sign) = parts(folder, sets)?;
    tokio::select! {
        // Whoever tends the sign must have begun before anybody asks for light.
        biased;
        () = Arc::clone(&sign).tend(CancellationToken::new()) => {}
        done = bare_camera(&camera, &sign, &mut figures) => done?,
    }
    figures.encode_ms_per_megapixel = encoding()?;
    let engine = runtime::speech_of(&settings(folder, sets)?);
    let simulated = sets.is_empty();
    figures.speech = speech::measure(engine, simulated).await?;
    cli.progress("hardware: whole devices …");
    for number in 0..COLD {
        let state = folder.join(format!("hardware-{number}"));
        let kitchen = Kitchen::start(latchkeyd, &state, sets).await?;
        if number == 0 {
            kitchen.idle(&mut figures).await?;
        }
        figures.cold_ms.push(kitchen.snapshot_ms().await?);
        if number > 0 {
            continue;
        }
        for _ in 0..WARM {
            figures.warm_ms.push(kitchen.snapshot_ms().await?);
        }
        figures.used_kib = resident_kib(kitchen.server.pid())?;
        if !simulated && figures.speech.missing.is_none() {
            figures.speech.missing = kitchen.speak(&mut figures.speech.card_ms).await.err().map(|e| format!("{e:#}"));
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

/// Opened, one frame read and closed again; further frames of a camera that runs; and the adapter's own picture.
async fn bare_camera(camera: &Camera, sign: &Sign, figures: &mut Figures) -> anyhow::Result<()> {
    for _ in 0..COLD {
        let lit = sign.light().await?;
        let began = Instant::now();
        let mut stream = camera.bare(lit)?;
        let first = frame(&mut stream)?;
        figures.bare_cold_ms.push(ms(began));
        figures.camera = format!("{}, {}x{} {:?}", camera.name(), first.width, first.height, first.format);
        for _ in 0..2 {
            let began = Instant::now();
            frame(&mut stream)?;
            figures.bare_warm_ms.push(ms(began));
        }
        drop(stream);
        let lit = sign.light().await?;
        let began = Instant::now();
        camera.run(snapshot()?, lit).await?;
        figures.adapter_ms.push(ms(began));
    }
    Ok(())
}

/// The call that a signed one comes to in the end.
fn snapshot() -> anyhow::Result<Call> {
    let arguments = Declaration::camera_snapshot().bounds.check(Object::new())?;
    let agent = "bench@load.example.org".parse()?;
    Ok(Call { arguments, stop: CancellationToken::new(), clock: Arc::new(SystemClock), agent })
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
        let frame =
            Frame { format, width, height, stride: 0, coding: Coding::default(), bytes: bytes.clone(), damaged: false };
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

    /// Whole signed calls, each from its beginning to the moment at which the kernel has a card play.
    async fn speak(&self, card_ms: &mut Vec<f64>) -> anyhow::Result<()> {
        let mut arguments = Object::new();
        arguments.insert("text", speech::SENTENCE);
        let request = invoke("speaker.say", arguments);
        for _ in 0..SPOKEN {
            let mut connection = self.connection().await?;
            let playing = speech::Playing::watch()?;
            connection.call(&self.party, &request).await?;
            card_ms.push(playing.since_ms()?);
        }
        Ok(())
    }

    /// Processor time and memory while nobody asks for anything.
    async fn idle(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let pid = self.server.pid();
        tokio::time::sleep(STARTED).await;
        let (began, before) = (Instant::now(), cpu_of_all(pid)?);
        tokio::time::sleep(IDLE).await;
        let used = used(&before, &cpu_of_all(pid)?);
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
        let mib = |kib: u64| kib as f64 / 1024.0;
        println!();
        match self.sets.as_slice() {
            [] => println!("hardware, SIMULATED; sound is not played"),
            sets => println!("hardware, real: {}", sets.join(" ")),
        }
        if cfg!(debug_assertions) {
            println!("  This build is not optimised: nothing here says how fast the device is.");
        }
        println!("  this processor: {:.0} us for one check of a signature and one signature", self.pair_us);
        self.print_camera();
        println!(
            "  JPEG from YUYV                                   {:>9.1} ms a megapixel",
            self.encode_ms_per_megapixel
        );
        self.print_speech();
        println!(
            "  idle with all parts attached: {:.2} % of a core (aim under 0.5), {:.1} MiB resident; after snapshots {:.1} MiB",
            self.idle_percent,
            mib(self.idle_kib),
            mib(self.used_kib)
        );
    }

    fn print_camera(&self) {
        let bare = median_of(&self.bare_cold_ms);
        let row = |name: &str, times: &[f64], about: &str| {
            let time = median_of(times);
            println!("    {name:<46} {time:>9.1} {:>12.2}   {about}", time / bare);
        };
        let beyond = match median_of(&self.warm_ms) - median_of(&self.adapter_ms) {
            more if more > 0.0 => format!("{more:.1} ms beyond the adapter: sign, records, signatures, HTTP"),
            _ => "not more than the adapter, as far as this run can tell".to_owned(),
        };
        println!("  {:<48} {:>9} {:>12}", self.camera, "ms", "bare frames");
        row("bare frame, the camera opened for it", &self.bare_cold_ms, "");
        row("bare frame of a camera that runs", &self.bare_warm_ms, "");
        row("the adapter's picture, alone", &self.adapter_ms, "waits until exposure has settled, then JPEG");
        row("signed camera.snapshot, the first of a device", &self.cold_ms, "");
        row("signed camera.snapshot, further ones", &self.warm_ms, &beyond);
    }

    fn print_speech(&self) {
        let speech = &self.speech;
        if let Some(missing) = &speech.missing {
            println!("  speaker.say was not measured: {missing}");
            return;
        }
        let engine = median_of(&speech.engine_ms);
        let row = |name: &str, times: &[f64]| {
            let time = median_of(times);
            println!("    {name:<46} {time:>9.1} {:>12.2}", time / engine);
        };
        println!("  {:<48} {:>9} {:>12}", "speaker.say", "ms", "the engine");
        row(&format!("the engine alone: {}", speech.engine), &speech.engine_ms);
        row("the capability, until it hands sound to a card", &speech.handed_ms);
        if !self.sets.is_empty() {
            row("signed, until the card plays", &speech.card_ms);
        }
    }

    fn json(&self) -> Value {
        json!({
            "simulated": self.sets.is_empty(),
            "settings": self.sets,
            "optimised": !cfg!(debug_assertions),
            "crypto_pair_us": self.pair_us,
            "camera": self.camera,
            "bare_frame_cold_ms": self.bare_cold_ms,
            "bare_frame_warm_ms": self.bare_warm_ms,
            "adapter_picture_ms": self.adapter_ms,
            "snapshot_cold_ms": self.cold_ms,
            "snapshot_warm_ms": self.warm_ms,
            "speech_missing": self.speech.missing,
            "speech_engine_ms": self.speech.engine_ms,
            "speech_handed_ms": self.speech.handed_ms,
            "first_sample_ms": if self.sets.is_empty() { &self.speech.handed_ms } else { &self.speech.card_ms },
            "jpeg_ms_per_megapixel": self.encode_ms_per_megapixel,
            "idle_cpu_percent": self.idle_percent,
            "resident_idle_kib": self.idle_kib,
            "resident_used_kib": self.used_kib,
        })
    }
}

fn median_of(times: &[f64]) -> f64 {
    median(times.iter().copied())
}
