//! The only program of the virtual machine that `scripts/test-vm.sh` starts: `latchkeyd` with a real V4L2 camera (the kernel's
//! test driver vivid) and a real LED class device, and `latchkey` as its agent: from pairing to a picture of a known colour, in the order
//! that the kernel saw, then with the camera pulled out, with a USB webcam and a USB sound card, and with faults at random; and once more with a USB light, and with a light on a GPIO line, that come and go.
//!
//! `vm_guest bench` has the benchmark measure the machine's devices instead (`scripts/bench-vm.sh`).
//!
//! It says each step in a line and ends with 1 at the first that fails, after the last words of the device. It relies on
//! what scripts rely on (commands, exit codes, `--json`), and on the kernel; on no crate of ours. The machine emulates its
//! processor, about ten times slower than the one outside, so every limit here is generous, and none is a measurement.

#![allow(clippy::print_stdout, reason = "its lines are its result")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed here, which answers null for a member it lacks")]

mod bench;
mod camera;
mod gpio_light;
mod gpio_sign;
mod holds;
mod kernel;
mod led;
mod order;
mod picture;
mod plug;
mod programs;
mod replug;
mod shining;
mod soak;
mod sound_card;
mod uhid;
mod usb_light;
mod webcam;

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use camera::Colour;
use kernel::Kernel;
use led::Led;
use programs::{Daemon, Device};

/// The files of a run; gone with the machine.
const FOLDER: &str = "/tmp/latchkey";
const CAMERA: &str = "/dev/video0";
/// Small, for a processor that is emulated.
const SIZE: &str = "320x180";
/// Names under which the two sides know each other here.
const DEVICE: &str = "vm";
const AGENT: &str = "camera-test@machine.latchkey.example";
/// Starting a program of ours costs a second or two of emulated time.
const START: Duration = Duration::from_secs(60);
/// Exit codes that scripts rely on.
const REFUSED: i32 = 3;

#[allow(clippy::disallowed_methods, reason = "its one word needs no parser")]
fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let outcome = match words.next().as_deref() {
        None => run(),
        Some("bench") => bench::run(words),
        Some(other) => Err(anyhow::anyhow!("unknown word {other:?}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let kernel = Kernel::ask()?;
    let led = Led::plug_in()?;
    let name = led.name().to_owned();
    said(&format!("an LED is at /sys/class/leds/{name}"));

    let device = Device::furnish(Path::new(FOLDER), &settings(&name, CAMERA))?;
    device.latchkeyd(&["config", "check"])?.done("the settings are accepted")?;
    let mut daemon = device.start()?;
    let outcome = story(&device, &mut daemon, &kernel, led);
    if outcome.is_err() {
        println!("---- what the device said\n{}----", daemon.words());
    }
    outcome
}

fn story(device: &Device, daemon: &mut Daemon, kernel: &Kernel, led: Led) -> Result<()> {
    daemon.wait_until_ready(device, START)?;
    said("the device runs");
    claim(device)?;
    without_a_grant(device, &led)?;
    device.latchkeyd(&["grant", "camera"])?.done("the keeper grants the camera")?;
    let first = Colour::at_random(None)?;
    let second = Colour::at_random(Some(first))?;
    for colour in [first, second] {
        picture_of(device, kernel, &led, colour)?;
    }
    records(device)?;
    plug::pulled_out(device, daemon, kernel, &led)?;
    picture_of(device, kernel, &led, first)?;
    webcam::by_its_name(device, daemon, kernel, &led, [first, second])?;
    sound_card::by_its_serial(device, daemon, kernel, &led)?;
    soak::snapshots(device, daemon)?;
    without_a_sign(device, led)?;
    daemon.stop()?;
    said("the device stops when told to");
    device.latchkeyd(&["receipts", "--verify"])?.done("the records hold, read without the device running")?;
    replug::usb_light(device, daemon, kernel)?;
    gpio_sign::on_a_chip(device, daemon, kernel)
}

fn settings(led: &str, camera: &str) -> String {
    format!("{}sign.led = \"{led}\"\n", settings_without_sign(camera))
}

fn settings_without_sign(camera: &str) -> String {
    format!(
        "device.name = \"{DEVICE}\"\nlink.direct.listen = \"127.0.0.1:7601\"\nkeeper.listen = \"127.0.0.1:0\"\n\
         camera.device = \"{camera}\"\ncamera.size = \"{SIZE}\"\n"
    )
}

fn claim(device: &Device) -> Result<()> {
    device.latchkey(&["agent", "new", AGENT])?.done("an agent has a key")?;
    let pairing = device.latchkeyd(&["pair", "--json"])?.json()?;
    let link = pairing["link"].as_str().context("pair --json names no link")?;
    let waiting = device.begin_latchkey(&["claim", link])?;
    let pending = device.wait_for_claim(START)?;
    ensure!(pending["agent"] == AGENT, "the device shows another agent: {pending}");
    let code = pending["code"].as_str().context("a claim without a code")?;
    device.latchkeyd(&["approve", &code.replace(' ', "")])?.done("the keeper approves by the code")?;
    let claimed = waiting.end()?;
    let shown = claimed.text().replace(' ', "").contains(&code.replace(' ', ""));
    ensure!(shown, "the agent's side showed another code than {code}: {}", claimed.text());
    claimed.done("the agent owns the device; both sides showed one code")
}

/// The control beside the pictures: the same call, before the keeper allowed it.
fn without_a_grant(device: &Device, led: &Led) -> Result<()> {
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let refused = device.snapshot("denied.jpg")?;
    ensure!(refused.code() == Some(REFUSED), "without a grant: {}", refused.text());
    ensure!(!device.file("denied.jpg").exists(), "a refused picture left a file");
    ensure!(led.changes().iter().all(|change| !change.on), "the LED went on for a refused picture");
    said("without a grant there is no picture and no light");
    Ok(())
}

fn picture_of(device: &Device, kernel: &Kernel, led: &Led, colour: Colour) -> Result<()> {
    let name = format!("{}.jpg", colour.name());
    camera::show(Path::new(CAMERA), colour)?;
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let before = led.changes().len();
    kernel.forget()?;
    device.snapshot(&name)?.done("a picture is taken")?;
    let middle = picture::middle(&fs::read(device.file(&name)).context("the picture was not written")?)?;
    ensure!(colour.is(middle), "the camera showed {}, the picture shows {middle:?}", colour.name());
    said(&format!("it shows {}, drawn at random: {middle:?}", colour.name()));
    let lighting = order::lighting(led, before)?;
    let seen = order::check(device, kernel, &lighting)?;
    ensure!(!seen.frames.is_empty(), "a picture without a frame");
    Ok(())
}

fn records(device: &Device) -> Result<()> {
    device.latchkeyd(&["receipts", "--verify"])?.done("the records hold")?;
    let records = device.records()?;
    let lit = |record: &&Value| {
        let when = |member: &str| record[member].as_u64();
        record["what"] == "camera.snapshot"
            && record["outcome"] == "ok"
            && matches!((when("received_at"), when("sign_on_at"), when("ended_at")), (Some(asked), Some(on), Some(ended)) if asked <= on && on <= ended)
    };
    let count = records.iter().filter(lit).count();
    ensure!(count == 2, "two pictures with a lit sign were taken, the records tell of {count}");
    said("the records tell of two pictures, each after its sign went on");
    Ok(())
}

fn without_a_sign(device: &Device, led: Led) -> Result<()> {
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    led.unplug()?;
    let refused = device.latchkey(&["call", DEVICE, "camera.snapshot", "--json"])?;
    ensure!(refused.code() != Some(0), "a picture without a sign: {}", refused.text());
    ensure!(refused.text().contains("hardware_unavailable"), "refused with another reason: {}", refused.text());
    ensure!(device.snapshot("unlit.jpg")?.code() != Some(0), "a picture without a sign");
    ensure!(!device.file("unlit.jpg").exists(), "a refused picture left a file");
    said("with the LED unplugged there is no picture: hardware_unavailable");
    Ok(())
}

fn said(line: &str) {
    println!("ok  {line}");
}
