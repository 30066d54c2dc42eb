//! The card's code against real cards of the kernel's loopback driver: what is played into one side is recorded from the other.
//! `make test-vm` runs these in a throw-away machine that has two of them (`scripts/test-vm.sh`); elsewhere they are ignored.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "real cards are waited for in real time")]

use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::sound::measure::{loudness, pitch_hz, tone};
use crate::sound::{Pcm, Playback as _, Recording as _, RecordingStream};

const DRIVER: &str = "/sys/bus/platform/drivers/snd_aloop";
/// The card with two places on each side, and the kernel's name of its device.
const PLAYED: &str = "plughw:CARD=Loopback,DEV=0";
const HEARD: &str = "plughw:CARD=Loopback,DEV=1";
const CARD: &str = "snd_aloop.0";
/// The card with one place on each side.
const SINGLE: &str = "plughw:CARD=Single,DEV=0";
const SINGLE_CARD: &str = "snd_aloop.1";
/// What the kernel says of its one place to play on.
const SINGLE_PLAYS: &str = "/proc/asound/Single/pcm0p/sub0/status";
const RATE_HZ: u32 = 16_000;
pub(super) const PITCH_HZ: f64 = 1000.0;
/// The effective value of a tone at half of what is loudest.
const LOUDNESS: f64 = 0.353_553;
pub(super) const ATTEMPTS_MAX: u32 = 5;
/// Long enough for anything of the emulated machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) fn playback(card: &str) -> CardPlayback {
    CardPlayback::new(CardChoice::of_setting(Some(card)))
}

pub(super) fn recording(card: &str) -> CardRecording {
    CardRecording::new(CardChoice::of_setting(Some(card)))
}

#[expect(clippy::cast_possible_truncation, reason = "a sample is a whole number")]
pub(super) fn pcm(rate_hz: u32, seconds: usize) -> Pcm {
    let samples = tone(PITCH_HZ, rate_hz, seconds * usize::try_from(rate_hz).unwrap());
    Pcm { rate_hz, samples: samples.iter().map(|sample| (sample * 32_767.0) as i16).collect() }
}

fn command(verb: &str, card: &str) {
    fs::write(Path::new(DRIVER).join(verb), card).unwrap();
}

/// Cards that are pulled out; back when this is dropped.
struct PulledOut(Vec<&'static str>);

impl Drop for PulledOut {
    fn drop(&mut self) {
        self.0.iter().for_each(|card| command("bind", card));
    }
}

/// Plays in a thread of its own.
pub(super) fn playing(card: &str, pcm: Pcm) -> (JoinHandle<Result<(), SoundFault>>, CancellationToken) {
    let (playback, stop) = (playback(card), CancellationToken::new());
    let heard = stop.clone();
    (thread::spawn(move || playback.play(&pcm, &heard)), stop)
}

/// What is heard, from the first loud piece on, until `enough` samples of it came.
pub(super) fn record(stream: &mut dyn RecordingStream, enough: usize) -> Vec<f32> {
    let (mut samples, began) = (Vec::new(), Instant::now());
    while samples.len() < enough {
        assert!(began.elapsed() < SOON, "{} samples", samples.len());
        let piece = stream.next(Duration::from_millis(500)).unwrap().unwrap_or_default();
        if !samples.is_empty() || loudness(&piece) > LOUDNESS / 4.0 {
            samples.extend(piece);
        }
    }
    samples
}

/// The half second whose loudness wavers least, from one hundredth of a second to the next, if none of these is silent.
pub(super) fn gap_free(samples: &[f32], rate_hz: u32) -> Option<&[f32]> {
    let rate = usize::try_from(rate_hz).unwrap();
    let (half, piece) = (rate / 2, rate / 100);
    // Each hundredth is weighed once: the machine is slow.
    let wavers: Vec<f64> = samples.chunks_exact(piece).map(|piece| (loudness(piece) - LOUDNESS).abs()).collect();
    let windows = wavers.windows(half / piece).map(|window| window.iter().copied().fold(0.0, f64::max));
    let (at, most) = windows.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (most < LOUDNESS / 2.0).then(|| samples.get(at * piece..at * piece + half)).flatten()
}

fn hears_the_tone() {
    // A card is not emulated: its time goes on while the machine's stands still, so a loaded one may have gaps everywhere.
    let heard = (0..ATTEMPTS_MAX).find_map(|_| {
        let mut stream = recording(HEARD).open().unwrap();
        let (player, _stop) = playing(PLAYED, pcm(RATE_HZ, 4));
        let rate_hz = stream.rate_hz();
        let samples = record(&mut *stream, 3 * usize::try_from(rate_hz).unwrap());
        player.join().unwrap().unwrap();
        let best = gap_free(&samples, rate_hz)?;
        Some((pitch_hz(best, rate_hz), 20.0 * (loudness(best) / LOUDNESS).log10()))
    });
    let (pitch, level_db) = heard.unwrap();
    println!("{pitch:.2} Hz, {level_db:+.2} dB");
    assert!((pitch - PITCH_HZ).abs() < 1.0, "{pitch} Hz");
    assert!(level_db.abs() < 1.0, "{level_db} dB");
}

/// Processor time of this process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

#[test]
#[ignore = "needs the kernel's loopback cards; see the head of this file"]
fn a_tone_that_is_played_into_a_real_card_is_heard_from_it() {
    hears_the_tone();
}

#[test]
#[ignore = "needs the kernel's loopback cards; see the head of this file"]
fn a_card_pulled_out_while_it_plays_and_records_is_unplugged_costs_nothing_and_works_when_it_is_back() {
    let before = cards();
    let mut stream = recording(HEARD).open().unwrap();
    let (player, _stop) = playing(PLAYED, pcm(RATE_HZ, 10));
    record(&mut *stream, 4000);
    let pulled_out = PulledOut(vec![CARD]);
    // The kernel waits in this until everybody has closed the card.
    let pulling = thread::spawn(|| command("unbind", CARD));
    let (began, before_used) = (Instant::now(), used());
    let heard = loop {
        match stream.next(Duration::from_millis(500)) {
            Ok(_) => assert!(began.elapsed() < SOON, "the recording goes on"),
            Err(fault) => break fault,
        }
    };
    let played = player.join().unwrap().unwrap_err();
    println!("both knew after {:?}, for {:?} of processor time", began.elapsed(), used() - before_used);
    assert_eq!((heard, played), (SoundFault::Unplugged, SoundFault::Unplugged));
    drop(stream);
    pulling.join().unwrap();
    let gone = [playback(PLAYED).ready().unwrap_err(), recording(HEARD).ready().unwrap_err()];
    assert!(gone.iter().all(|fault| matches!(fault, SoundFault::Missing(_))), "{gone:?}");
    let fault = playback(PLAYED).play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap_err();
    assert!(matches!(fault, SoundFault::Missing(_)), "{fault}");
    let (idle, idle_used) = (Instant::now(), used());
    thread::sleep(Duration::from_secs(2));
    let share = (used() - idle_used).as_secs_f64() / idle.elapsed().as_secs_f64();
    assert!(share < 0.05, "{share} of a processor with nothing to do");
    drop(pulled_out);
    assert_eq!(cards(), before, "the same cards under the same names");
    hears_the_tone();
}

#[test]
#[ignore = "needs the kernel's loopback cards; see the head of this file"]
fn a_card_that_another_one_plays_on_or_records_from_is_busy() {
    let mut holder = recording(SINGLE).open().unwrap();
    holder.next(SOON).unwrap();
    let began = Instant::now();
    assert_eq!(recording(SINGLE).open().map(|_| ()).unwrap_err(), SoundFault::Busy);
    drop(holder);
    recording(SINGLE).open().unwrap();

    let (player, stop) = playing(SINGLE, pcm(RATE_HZ, 10));
    // Open alone is not enough: it is opened for a moment to be asked what it offers.
    while !fs::read_to_string(SINGLE_PLAYS).unwrap().contains("RUNNING") {
        assert!(began.elapsed() < SOON, "nobody has it");
        thread::sleep(Duration::from_millis(20));
    }
    let held = playback(SINGLE).play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap_err();
    assert_eq!(held, SoundFault::Busy);
    stop.cancel();
    assert_eq!(player.join().unwrap(), Err(SoundFault::Stopped));
    playback(SINGLE).play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap();
}

#[test]
#[ignore = "needs the kernel's loopback cards; see the head of this file"]
fn without_any_card_there_is_no_sound_and_one_that_comes_later_is_used() {
    let [out, hear] = [playback(DEFAULT).name(), recording(DEFAULT).name()];
    let (playback, recording) = (playback(DEFAULT), recording(DEFAULT));
    let pulled_out = PulledOut(vec![CARD, SINGLE_CARD]);
    pulled_out.0.iter().for_each(|card| command("unbind", card));
    assert_eq!(cards(), []);
    let faults = [
        playback.ready().unwrap_err(),
        recording.ready().unwrap_err(),
        playback.play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap_err(),
        recording.open().map(|_| ()).unwrap_err(),
    ];
    assert!(faults.iter().all(|fault| matches!(fault, SoundFault::Missing(_))), "{out}, {hear}: {faults:?}");
    drop(pulled_out);
    // That the default card could not be opened is believed for some seconds, by whoever only asks; whoever uses it tries at once.
    playback.play(&pcm(RATE_HZ, 1), &CancellationToken::new()).unwrap();
    recording.open().unwrap().next(SOON).unwrap();
    playback.ready().unwrap();
    recording.ready().unwrap();
}
