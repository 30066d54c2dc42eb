//! The card's code against the kernel's driver of sound cards on USB, `snd-usb-audio`, and cards that tests plug in and pull out
//! (`tests/src/bin/usb_device`): which card a name means, and that none takes another's place.
//! `make test-vm` runs these in a throw-away machine (`scripts/test-vm.sh`); elsewhere they are ignored.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "real cards are waited for in real time")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::loopback::{ATTEMPTS_MAX, PITCH_HZ, SOON, gap_free, pcm, playback, playing, record, recording};
use super::*;
use crate::sound::measure::pitch_hz;
use crate::sound::{Playback as _, Recording as _};

/// The card's own: the emulated processor takes a second to make a second of another.
const RATE_HZ: u32 = 48_000;
const SERIAL: &str = "0041";
const OTHER_SERIAL: &str = "0042";
/// What each of the two hears.
const HEARS_HZ: f64 = 700.0;
const OTHER_HEARS_HZ: f64 = 1_300.0;
/// The card's end of a pulled cable is noticed by the next poll of the driver's.
const UNPLUGGED_WITHIN: Duration = Duration::from_secs(10);

/// A sound card in a USB port of this machine until it is dropped.
struct SoundCard {
    process: Child,
    played: tempfile::NamedTempFile,
    /// What ALSA calls it.
    alsa: String,
}

impl SoundCard {
    fn plug_in(serial: &str, hears_hz: f64) -> Self {
        let played = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("usb_device");
        command.arg("sound-card").arg(played.path()).args([serial, &hears_hz.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let id = line.trim();
        assert!(!id.is_empty() && !id.contains(' '), "the sound card says: {line}");
        Self { process, played, alsa: format!("plughw:CARD={id},DEV=0") }
    }

    /// The names under which the device lists it, the first first.
    fn names(&self) -> Vec<String> {
        let of_it = |card: &Card| card.id == self.alsa || card.also.contains(&self.alsa);
        let cards = cards();
        let Some(card) = cards.iter().find(|card| of_it(card)) else { panic!("{} is not in {cards:?}", self.alsa) };
        assert!(card.plays && card.records, "{card:?}");
        [vec![card.id.clone()], card.also.clone()].concat()
    }

    /// All that it has played, silence too.
    fn played(&self) -> Vec<f32> {
        let bytes = fs::read(self.played.path()).unwrap();
        let (samples, _) = bytes.as_chunks();
        samples.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32_768.0).collect()
    }

    /// Whether it played anything at all.
    fn was_used(&self) -> bool {
        !self.played().is_empty()
    }
}

impl Drop for SoundCard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends once the kernel has let go of the card.
        let ended = self.process.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// The tone that is played under this name arrives in this card.
fn plays_on(name: &str, card: &SoundCard) {
    let pitch = (0..ATTEMPTS_MAX).find_map(|_| {
        let from = card.played().len();
        playback(name).play(&pcm(RATE_HZ, 2), &CancellationToken::new()).unwrap();
        let played = card.played().split_off(from);
        gap_free(&played, RATE_HZ).map(|best| pitch_hz(best, RATE_HZ))
    });
    let pitch = pitch.unwrap();
    assert!((pitch - PITCH_HZ).abs() < 1.0, "{name}: {pitch} Hz");
}

/// What is recorded under this name is what this card hears.
fn hears(name: &str, hears_hz: f64) {
    let pitch = (0..ATTEMPTS_MAX).find_map(|_| {
        let mut stream = recording(name).open().unwrap();
        let rate_hz = stream.rate_hz();
        let samples = record(&mut *stream, usize::try_from(rate_hz).unwrap());
        gap_free(&samples, rate_hz).map(|best| pitch_hz(best, rate_hz))
    });
    let pitch = pitch.unwrap();
    assert!((pitch - hears_hz).abs() < 1.0, "{name}: {pitch} Hz");
}

/// Neither plays nor records, since the card of this name is not there.
fn is_gone(name: &str) {
    let faults = [
        playback(name).ready().unwrap_err(),
        recording(name).ready().unwrap_err(),
        playback(name).play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap_err(),
        recording(name).open().map(|_| ()).unwrap_err(),
    ];
    assert!(faults.iter().all(|fault| matches!(fault, SoundFault::Missing(_))), "{name}: {faults:?}");
}

#[test]
#[ignore = "needs the kernel's driver of sound cards on USB; see the head of this file"]
fn v6_a_card_is_found_by_its_serial_number_and_another_of_its_kind_never_takes_its_place() {
    let card = SoundCard::plug_in(SERIAL, HEARS_HZ);
    let name = card.names().remove(0);
    assert_eq!(name, format!("usb:1209:0002,SERIAL={SERIAL},DEV=0"));
    plays_on(&name, &card);
    hears(&name, HEARS_HZ);
    let alsa = card.alsa.clone();
    drop(card);
    is_gone(&name);

    let other = SoundCard::plug_in(OTHER_SERIAL, OTHER_HEARS_HZ);
    assert_eq!(other.alsa, alsa, "control: ALSA gives it the name of the card that went");
    is_gone(&name);
    assert!(!other.was_used(), "the other card was used in its place");
    plays_on(&alsa, &other);
    hears(&alsa, OTHER_HEARS_HZ);

    let card = SoundCard::plug_in(SERIAL, HEARS_HZ);
    assert_ne!(card.alsa, alsa, "control: the name of ALSA's is the other's now");
    let before = other.played().len();
    plays_on(&name, &card);
    hears(&name, HEARS_HZ);
    assert_eq!(other.played().len(), before, "the other card was used beside it");
}

#[test]
#[ignore = "needs the kernel's driver of sound cards on USB; see the head of this file"]
fn v6_two_cards_with_one_serial_number_are_told_apart_by_their_ports() {
    let cards = [HEARS_HZ, OTHER_HEARS_HZ].map(|hears_hz| SoundCard::plug_in(SERIAL, hears_hz));
    let shared = format!("usb:1209:0002,SERIAL={SERIAL}");
    let fault = playback(&shared).play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap_err();
    let SoundFault::Ambiguous(said) = &fault else { panic!("{fault:?}") };
    assert!(recording(&shared).open().is_err(), "recorded from one of the two");
    assert!(cards.iter().all(|card| !card.was_used()), "played on one of the two");
    let names = cards.each_ref().map(|card| card.names().remove(0));
    for (name, (card, hears_hz)) in names.iter().zip(cards.iter().zip([HEARS_HZ, OTHER_HEARS_HZ])) {
        assert!(name.contains("PORT=") && said.contains(name), "{name}: {said}");
        plays_on(name, card);
        hears(name, hears_hz);
    }
}

#[test]
#[ignore = "needs the kernel's driver of sound cards on USB; see the head of this file"]
fn a5_a_card_whose_cable_is_pulled_out_while_it_plays_and_records_is_unplugged() {
    let card = SoundCard::plug_in(SERIAL, HEARS_HZ);
    let name = card.names().remove(0);
    let mut stream = recording(&name).open().unwrap();
    let (player, _stop) = playing(&name, pcm(RATE_HZ, 10));
    record(&mut *stream, 4_000);
    let began = Instant::now();
    while card.played().iter().all(|sample| *sample == 0.0) {
        if player.is_finished() {
            panic!("it does not play: {:?}", player.join().unwrap());
        }
        assert!(began.elapsed() < SOON, "nothing is played");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(card);
    let pulled = Instant::now();
    let heard = loop {
        match stream.next(Duration::from_millis(500)) {
            Ok(_) => assert!(pulled.elapsed() < UNPLUGGED_WITHIN, "the recording goes on"),
            Err(fault) => break fault,
        }
    };
    let played = player.join().unwrap().unwrap_err();
    println!("both knew {:?} after the card was gone", pulled.elapsed());
    assert_eq!((heard, played), (SoundFault::Unplugged, SoundFault::Unplugged));
    assert!(pulled.elapsed() < UNPLUGGED_WITHIN, "{:?}", pulled.elapsed());
    drop(stream);
    is_gone(&name);
    let card = SoundCard::plug_in(SERIAL, HEARS_HZ);
    plays_on(&name, &card);
    hears(&name, HEARS_HZ);
}
