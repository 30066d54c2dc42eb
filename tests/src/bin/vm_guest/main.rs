//! The only program of the virtual machine that `scripts/test-vm.sh` starts: `latchkeyd` with a real V4L2 camera (the kernel's
//! test driver vivid) and a real LED class device, and `latchkey` as its agent, from pairing to a picture of a known colour.
//!
//! It says each step in a line and ends with 1 at the first that fails, after the last words of the device. It relies on
//! what scripts rely on (commands, exit codes, `--json`), and on the kernel; on no crate of ours. The machine emulates its
//! processor, about ten times slower than the one outside, so every limit here is generous, and none is a measurement.

#![allow(clippy::print_stdout, reason = "its lines are its result")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed here, which answers null for a member it lacks")]

mod camera;
mod led;
mod picture;
mod programs;

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use camera::Colour;
use led::Led;
use programs::{Daemon, Device};

/// The files of a run; gone with the machine.
const FOLDER: &str = "/tmp/latchkey";
const CAMERA: &str = "/dev/video0";
/// Names under which the two sides know each other here.
const DEVICE: &str = "vm";
const AGENT: &str = "camera-test@machine.latchkey.example";
/// Starting a program of ours costs a second or two of emulated time.
const START: Duration = Duration::from_secs(60);
/// The sign stays on for 3 s after it went on; the rest is slowness.
const DARK_AGAIN: Duration = Duration::from_secs(20);
/// Exit codes that scripts rely on.
const REFUSED: i32 = 3;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let led = Led::plug_in()?;
    let name = led.name().to_owned();
    said(&format!("an LED is at /sys/class/leds/{name}"));

    let device = Device::furnish(Path::new(FOLDER), &settings(&name))?;
    device.latchkeyd(&["config", "check"])?.done("the settings are accepted")?;
    let mut daemon = device.start()?;
    let outcome = story(&device, &mut daemon, led);
    if outcome.is_err() {
        println!("---- what the device said\n{}----", daemon.words());
    }
    outcome
}

fn story(device: &Device, daemon: &mut Daemon, led: Led) -> Result<()> {
    daemon.wait_until_ready(device, START)?;
    said("the device runs");
    claim(device)?;
    without_a_grant(device, &led)?;
    device.latchkeyd(&["grant", "camera"])?.done("the keeper grants the camera")?;
    let first = Colour::at_random(None)?;
    for colour in [first, Colour::at_random(Some(first))?] {
        picture_of(device, &led, colour)?;
    }
    records(device)?;
    without_a_sign(device, led)?;
    daemon.stop()?;
    said("the device stops when told to");
    device.latchkeyd(&["receipts", "--verify"])?.done("the records hold, read without the device running")
}

fn settings(led: &str) -> String {
    format!(
        "device.name = \"{DEVICE}\"\nlink.direct.listen = \"127.0.0.1:0\"\nkeeper.listen = \"127.0.0.1:0\"\n\
         camera.device = \"{CAMERA}\"\nsign.led = \"{led}\"\n"
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

fn picture_of(device: &Device, led: &Led, colour: Colour) -> Result<()> {
    let name = format!("{}.jpg", colour.name());
    camera::show(Path::new(CAMERA), colour)?;
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let before = led.changes().len();
    device.snapshot(&name)?.done("a picture is taken")?;
    let lit = led.changes().get(before).copied().context("the LED did not change while a picture was taken")?;
    ensure!(lit.on, "the LED went off before it went on");
    let jpeg = fs::read(device.file(&name)).context("the picture was not written")?;
    let written = fs::metadata(device.file(&name))?.modified()?;
    ensure!(lit.at <= written, "the LED went on after the picture was there");
    let middle = picture::middle(&jpeg)?;
    ensure!(colour.is(middle), "the camera showed {}, the picture shows {middle:?}", colour.name());
    said(&format!("it shows {}, drawn at random: {middle:?}; the LED was on before it", colour.name()));
    let dark = led.wait_for(before + 1, DARK_AGAIN)?;
    ensure!(!dark.on, "the LED went on twice");
    let shone = dark.at.duration_since(lit.at)?;
    ensure!(shone >= Duration::from_millis(2_900), "the LED shone for {shone:?} only");
    said(&format!("the LED went off after {:.1} s", shone.as_secs_f64()));
    Ok(())
}

fn records(device: &Device) -> Result<()> {
    device.latchkeyd(&["receipts", "--verify"])?.done("the records hold")?;
    let records = device.latchkeyd(&["receipts", "--json"])?.json()?;
    let records = records.as_array().or_else(|| records["records"].as_array()).context("receipts --json is no list")?;
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
