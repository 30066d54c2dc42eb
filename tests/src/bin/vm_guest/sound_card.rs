//! A USB sound card that the keeper chose by its serial number: the device tries it, hears through it, loses it, takes no other of its
//! kind in its place, and gets it back.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{
    CAMERA, DEVICE,
    kernel::Kernel,
    led::Led,
    order,
    programs::{Daemon, Device},
    said, settings,
};

const SERIAL: &str = "0041";
const OTHER_SERIAL: &str = "0042";
/// What each of the two hears.
const HEARS_HZ: usize = 700;
const OTHER_HEARS_HZ: usize = 1_300;
/// How far the counted pitch of a second may be off: emulated cards have gaps, at which a turn is cut.
const OFF_HZ: usize = 20;
/// A sound file as the device makes it: its head, then 16,000 samples a second of 16 bits.
const HEAD_BYTES: usize = 44;
const RATE_HZ: usize = 16_000;
/// A sample that is no silence.
const LOUD: u16 = 1_000;

/// A sound card in a USB port of this machine.
struct SoundCard {
    process: Child,
    played: PathBuf,
    /// What ALSA calls it.
    alsa: String,
}

impl SoundCard {
    fn plug_in(device: &Device, serial: &str, hears_hz: usize) -> Result<Self> {
        let played = device.file(&format!("played-{serial}"));
        let mut command = Command::new("usb_device");
        command.arg("sound-card").arg(&played).args([serial, &hears_hz.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line)?;
        let alsa = line.trim().to_owned();
        ensure!(!alsa.is_empty() && !alsa.contains(' '), "the sound card says: {line}");
        Ok(Self { process, played, alsa })
    }

    /// Whether it was told to play something that is heard.
    fn was_heard(&self) -> Result<bool> {
        let bytes = fs::read(&self.played)?;
        Ok(bytes.as_chunks().0.iter().any(|sample| i16::from_le_bytes(*sample).unsigned_abs() > LOUD))
    }

    fn pull_out(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let ended = self.process.wait()?;
        ensure!(ended.success(), "the sound card ended with {ended}");
        Ok(())
    }
}

/// From a device without a sound card of its own to the same.
pub(crate) fn by_its_serial(device: &Device, daemon: &Daemon, kernel: &Kernel, led: &Led) -> Result<()> {
    let running = daemon.holds()?.pid;
    let card = SoundCard::plug_in(device, SERIAL, HEARS_HZ)?;
    let id = listed(device)?;
    said(&format!("a USB sound card is plugged in; latchkeyd hardware calls it {id}"));
    let without = settings(led.name(), CAMERA);
    device.change_settings(&format!("{without}audio.input = \"{id}\"\naudio.output = \"{id}\"\n"))?;
    device.latchkeyd(&["grant", "microphone"])?.done("the keeper grants the microphone")?;
    tried(device, &card)?;
    hears(device, kernel, led)?;
    let alsa = card.alsa.clone();
    card.pull_out()?;
    deaf(device, "with the card pulled out")?;
    let other = SoundCard::plug_in(device, OTHER_SERIAL, OTHER_HEARS_HZ)?;
    ensure!(other.alsa == alsa, "ALSA gave the other card the name {}, not {alsa}", other.alsa);
    deaf(device, "with another of its kind in its place, under its name of ALSA's")?;
    ensure!(!other.was_heard()?, "the other card played");
    let card = SoundCard::plug_in(device, SERIAL, HEARS_HZ)?;
    hears(device, kernel, led)?;
    ensure!(daemon.holds()?.pid == running, "the device was restarted");
    said("the card is back beside the other one, and is heard through, without a restart");
    device.change_settings(&without)?;
    other.pull_out()?;
    card.pull_out()
}

/// The name by which the settings may choose the card.
fn listed(device: &Device) -> Result<String> {
    let things = device.latchkeyd(&["hardware", "--json"])?.json()?;
    let things = things.as_array().context("hardware --json is no list")?;
    let ids = |kind: &'static str| {
        let of_kind = things.iter().filter(move |thing| thing["kind"] == kind);
        of_kind.filter_map(|thing| thing["id"].as_str()).filter(|id| id.contains(SERIAL)).collect::<Vec<_>>()
    };
    let (inputs, outputs) = (ids("input"), ids("output"));
    ensure!(inputs.len() == 1 && inputs == outputs, "listed to hear with {inputs:?}, to play on {outputs:?}");
    Ok(inputs.concat())
}

/// The doctor takes a picture, hears a second and plays a tone, all with the real thing.
fn tried(device: &Device, card: &SoundCard) -> Result<()> {
    const PARTS: [&str; 4] = ["sign", "camera", "microphone", "speaker"];
    ensure!(!card.was_heard()?, "something was played before anything was asked");
    let mut words = vec!["doctor", "--json"];
    words.extend(PARTS);
    let found = device.latchkeyd(&words)?.json()?;
    for part in PARTS {
        let of_it = found.as_array().and_then(|all| all.iter().find(|one| one["part"] == part));
        let one = of_it.with_context(|| format!("the doctor says nothing of {part}: {found}"))?;
        ensure!(one["ok"] == true && one["mend"].is_null(), "{one}");
        said(&format!("the doctor on {part}: {}", one["what"].as_str().context("without a word")?));
    }
    ensure!(card.was_heard()?, "the doctor's tone did not reach the card");
    Ok(())
}

fn hears(device: &Device, kernel: &Kernel, led: &Led) -> Result<()> {
    let file = device.file("heard.wav");
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    led.wait_until_dark(order::DARK_AGAIN)?;
    let lit = led.changes().len();
    kernel.forget()?;
    device.latchkey(&["listen", DEVICE, "--seconds", "1", "-o", &file.to_string_lossy()])?.done("a second is heard")?;
    let wav = fs::read(&file)?;
    let samples = wav.strip_prefix(b"RIFF").and_then(|_| wav.get(HEAD_BYTES..)).context("no sound file")?;
    let samples: Vec<i16> = samples.as_chunks().0.iter().map(|sample| i16::from_le_bytes(*sample)).collect();
    ensure!(samples.len().abs_diff(RATE_HZ) <= 1, "{} samples in a second", samples.len());
    let pitch = samples.windows(2).filter(|pair| matches!(pair, [low, high] if *low < 0 && *high >= 0)).count();
    ensure!(pitch.abs_diff(HEARS_HZ) <= OFF_HZ, "the card hears {HEARS_HZ} Hz, the sound has {pitch} Hz");
    fs::remove_file(file)?;
    let lighting = order::lighting(led, lit)?;
    order::check(device, kernel, &lighting)?;
    said(&format!("it has the card's tone of {HEARS_HZ} Hz: {pitch} Hz"));
    Ok(())
}

fn deaf(device: &Device, why: &str) -> Result<()> {
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let refused = device.latchkey(&["call", DEVICE, "microphone.listen", "seconds=1", "--json"])?;
    ensure!(refused.code() != Some(0), "{why}, and a sound: {}", refused.text());
    ensure!(refused.text().contains("hardware_unavailable"), "{why}: refused with another reason: {}", refused.text());
    let doctor = device.latchkeyd(&["doctor", "speaker"])?;
    ensure!(doctor.code() == Some(1), "{why}, and the doctor says: {}", doctor.text());
    said(&format!("{why}: no sound, hardware_unavailable"));
    Ok(())
}
