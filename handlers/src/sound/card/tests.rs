//! The card's code over ALSA itself, without a card: its plug-ins that play into a file and record from one.
//!
//! ALSA reads its configuration once for each process, so each test runs its inner half in a process of its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::sound::measure::{loudness, pitch_hz, tone};
use crate::sound::{LISTEN_HZ, Pcm, Playback as _, Recording as _};

/// What the inner half is told by.
const FOLDER: &str = "LATCHKEY_TEST_SOUND_FOLDER";

/// Runs the inner half of a test under an ALSA configuration, with FOLDER in it replaced by a folder for its files.
fn in_a_process(inner: &str, configuration: &str, prepare: impl FnOnce(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let file = folder.path().join("asound.conf");
    fs::write(&file, configuration.replace("FOLDER", folder.path().to_str().unwrap())).unwrap();
    let name = format!("sound::card::tests::{inner}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--ignored", "--nocapture"]);
    let ended = command.env("ALSA_CONFIG_PATH", file).env(FOLDER, folder.path()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    assert!(!said.contains("ALSA lib"), "ALSA's own lines stay away from the terminal: {said}");
    folder
}

fn folder() -> std::path::PathBuf {
    std::env::var_os(FOLDER).unwrap().into()
}

/// A card that plays into a raw file at one rate and in one format, and records from another.
fn files(format: &str, rate_hz: u32) -> String {
    format!(
        "pcm.tofile {{ type file slave.pcm {{ type null }} file \"FOLDER/out.raw\" format \"raw\" perm 0644 }}\n\
         pcm.fromfile {{ type file slave.pcm {{ type null }} file \"/dev/null\" infile \"FOLDER/in.raw\" format \"raw\" }}\n\
         pcm.!default {{ type asym\n\
           playback.pcm {{ type plug slave {{ pcm \"tofile\" format {format} rate {rate_hz} channels 1 }} }}\n\
           capture.pcm {{ type plug slave {{ pcm \"fromfile\" format {format} rate {rate_hz} channels 1 }} }}\n\
           hint {{ show on description \"Files\" }} }}\n"
    )
}

fn samples(file: &Path) -> Vec<f32> {
    let bytes = fs::read(file).unwrap();
    bytes.chunks_exact(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0).collect()
}

/// Without the silence before and after it.
fn sound(samples: &[f32]) -> &[f32] {
    let loud = |sample: &f32| sample.abs() > 0.001;
    let (first, last) = (samples.iter().position(loud).unwrap(), samples.iter().rposition(loud).unwrap());
    &samples[first..=last]
}

#[test]
fn a4_what_is_played_arrives_whole_at_the_cards_own_rate() {
    for rate_hz in [48_000, 44_100, 16_000] {
        let folder = in_a_process("plays", &files("S16_LE", rate_hz), |_| {});
        let all = samples(&folder.path().join("out.raw"));
        let heard = sound(&all);
        let seconds = heard.len() as f64 / f64::from(rate_hz);
        assert!((seconds - 2.0).abs() <= 0.04, "{seconds} s at {rate_hz} Hz");
        let middle = &heard[heard.len() / 4..heard.len() * 3 / 4];
        assert!((pitch_hz(middle, rate_hz) - 440.0).abs() < 1.0, "{} Hz", pitch_hz(middle, rate_hz));
        assert!((loudness(middle) - 0.5 / std::f64::consts::SQRT_2).abs() < 0.01, "{}", loudness(middle));
    }
}

#[test]
#[ignore = "the inner half of a test"]
fn plays() {
    let card = CardPlayback::new(CardChoice::Default);
    assert_eq!(card.ready(), Ok(()));
    let pcm = Pcm::of(&tone(440.0, 22_050, 44_100), 22_050);
    let begun = Instant::now();
    card.play(&pcm, &CancellationToken::new()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(cards().iter().any(|card| card.id == "default" && card.plays), "{:?}", cards());
}

#[test]
fn a2_a_card_that_takes_eight_bits_alone_is_played_on_with_silence_in_the_middle() {
    let folder = in_a_process("plays", &files("U8", 48_000), |_| {});
    let bytes = fs::read(folder.path().join("out.raw")).unwrap();
    let (low, high) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!((60..=70).contains(low) && (186..=196).contains(high), "{low} to {high}");
    assert!(bytes.iter().rev().take(100).all(|byte| (127..=129).contains(byte)), "it ends in silence");
}

#[test]
fn what_lies_before_the_microphone_is_recorded() {
    for rate_hz in [48_000, 44_100, 16_000] {
        let written = tone(1_000.0, rate_hz, usize::try_from(rate_hz).unwrap() * 4);
        in_a_process("records", &files("S16_LE", rate_hz), |folder| {
            let bytes: Vec<u8> =
                Pcm::of(&written, rate_hz).samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            fs::write(folder.join("in.raw"), bytes).unwrap();
        });
    }
}

#[test]
#[ignore = "the inner half of a test"]
fn records() {
    let card = CardRecording::new(CardChoice::Default);
    assert_eq!(card.ready(), Ok(()));
    let mut stream = card.open().unwrap();
    let mut heard = Vec::new();
    while heard.len() < usize::try_from(stream.rate_hz()).unwrap() {
        heard.extend(stream.next(Duration::from_secs(5)).unwrap().unwrap());
    }
    let rate_hz = stream.rate_hz();
    drop(stream);
    let heard = crate::sound::resample::resample(&heard, rate_hz, LISTEN_HZ).unwrap();
    // A file that is not paced loses pieces under load; the tone stands in some half second of it.
    let off = |piece: &[f32]| (pitch_hz(piece, LISTEN_HZ) - 1_000.0).abs();
    let best = heard.windows(8_000).step_by(400).map(off).fold(f64::INFINITY, f64::min);
    assert!(best < 1.0, "{best} Hz beside the tone, {} samples", heard.len());
}

#[test]
fn a1_a_default_that_is_listed_and_cannot_be_opened_is_no_card() {
    for configuration in [
        "pcm.!default { type hw card 7 hint { show on description \"Broken\" } }\n",
        "pcm.!default { type plug slave.pcm \"nowhere\" hint { show on description \"Broken\" } }\n",
        "",
    ] {
        in_a_process("finds_no_card", configuration, |_| {});
    }
}

#[test]
#[ignore = "the inner half of a test"]
fn finds_no_card() {
    let (speaker, microphone) = (CardPlayback::new(CardChoice::Default), CardRecording::new(CardChoice::Default));
    let pcm = Pcm::of(&tone(440.0, 22_050, 2_000), 22_050);
    for _ in 0..2 {
        let fault = speaker.play(&pcm, &CancellationToken::new()).unwrap_err();
        assert!(matches!(fault, SoundFault::Missing(_)), "{fault:?}");
        let fault = microphone.open().err().unwrap();
        assert!(matches!(fault, SoundFault::Missing(_)), "{fault:?}");
    }
    assert_eq!(speaker.ready().unwrap_err().to_string(), "there is no sound card that can play on this device");
    assert_eq!(microphone.ready().unwrap_err().to_string(), "there is no sound card that can record on this device");
}

#[test]
fn a_card_that_is_named_is_that_card_or_none() {
    in_a_process("finds_not_the_other", &files("S16_LE", 48_000), |_| {});
}

#[test]
#[ignore = "the inner half of a test"]
fn finds_not_the_other() {
    let named = || CardChoice::Named("plughw:CARD=Gone,DEV=0".to_owned());
    let pcm = Pcm::of(&tone(440.0, 22_050, 2_000), 22_050);
    let words = |way: &str| format!("the sound card plughw:CARD=Gone,DEV=0 is not connected, or cannot {way}");
    let fault = CardPlayback::new(named()).play(&pcm, &CancellationToken::new()).unwrap_err();
    assert_eq!(fault.to_string(), words("play"));
    assert_eq!(CardRecording::new(named()).open().err().unwrap().to_string(), words("record"));
    assert!(!folder().join("out.raw").exists(), "nothing reached the default card");
    CardPlayback::new(CardChoice::Default).play(&pcm, &CancellationToken::new()).unwrap();
    assert!(folder().join("out.raw").exists(), "control: the default card is there");
}
