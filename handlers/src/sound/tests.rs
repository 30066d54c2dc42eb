#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests; their tasks end with them"
)]

use std::time::Instant;

use tokio::time::timeout;
use wire::{Arguments, Declaration, Object};

use super::measure::{loudness, pitch_hz, tone};
use super::*;
use crate::clock::SystemClock;
use crate::handler::{Call, CaptureHandler as _, Fault};
use crate::sign::{LedSign, Sign, SignBackend, SignTrouble, SimulatedSign};

/// Real threads run in real time, so the limits are small.
const LIMITS: ListenLimits = ListenLimits {
    beyond: Duration::from_millis(300),
    stall: Duration::from_millis(250),
    slice: Duration::from_millis(10),
};
/// No test here takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn arguments(seconds: u64) -> Arguments {
    let mut arguments = Object::new();
    arguments.insert("seconds", seconds);
    Declaration::microphone_listen().bounds.check(arguments).unwrap()
}

fn call(seconds: u64, stop: &CancellationToken) -> Call {
    let agent = "eve@home.example.org".parse().unwrap();
    Call { arguments: arguments(seconds), stop: stop.clone(), clock: Arc::new(SystemClock), agent }
}

/// A simulated microphone under a simulated sign.
struct Room {
    sign: Arc<Sign>,
    light: SimulatedSign,
    device: SimulatedMicrophone,
    microphone: Microphone,
}

impl Room {
    async fn new() -> Self {
        let light = SimulatedSign::new(|_| {});
        let sign = watched(vec![Arc::new(light.clone())]).await;
        let device = SimulatedMicrophone::new();
        device.at_once(true);
        let microphone = Microphone::new(device.clone(), LIMITS);
        Self { sign, light, device, microphone }
    }

    async fn listen(&self, seconds: u64) -> Result<Vec<u8>, Fault> {
        let lit = self.sign.light().await.unwrap();
        let run = self.microphone.run(call(seconds, &CancellationToken::new()), lit);
        file(timeout(PATIENCE, run).await.unwrap())
    }
}

async fn watched(backends: Vec<Arc<dyn SignBackend>>) -> Arc<Sign> {
    let sign = Sign::new(backends, Arc::new(SystemClock));
    tokio::spawn(Arc::clone(&sign).tend(CancellationToken::new()));
    tokio::task::yield_now().await;
    sign
}

fn file(value: Result<Object, Fault>) -> Result<Vec<u8>, Fault> {
    value.map(|value| {
        assert_eq!(value.get("mime").unwrap(), "audio/wav");
        wire::text::base64_decode(value.get("data").unwrap().as_str().unwrap()).unwrap()
    })
}

/// The samples of a file of 16 bits, mono, 16 kHz, of which every field of the head is looked at.
fn samples(wav: &[u8]) -> Vec<f32> {
    let four = |at: usize| u32::from_le_bytes(wav[at..at + 4].try_into().unwrap());
    let two = |at: usize| u16::from_le_bytes(wav[at..at + 2].try_into().unwrap());
    let data = u32::try_from(wav.len() - 44).unwrap();
    assert_eq!((&wav[..4], four(4), &wav[8..16]), (&b"RIFF"[..], data + 36, &b"WAVEfmt "[..]));
    assert_eq!((four(16), two(20), two(22), four(24)), (16, 1, 1, LISTEN_HZ));
    assert_eq!((four(28), two(32), two(34)), (LISTEN_HZ * 2, 2, 16));
    assert_eq!((&wav[36..40], four(40)), (&b"data"[..], data));
    wav[44..].chunks_exact(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0).collect()
}

#[tokio::test]
async fn a_recording_is_as_long_as_asked_and_holds_the_tone_that_was_there() {
    let room = Room::new().await;
    room.device.tone(Some(1_000));
    for seconds in [1, 2, 15] {
        let heard = samples(&room.listen(seconds).await.unwrap());
        assert_eq!(heard.len(), usize::try_from(seconds * u64::from(LISTEN_HZ)).unwrap());
        let middle = &heard[4_000..12_000];
        assert!((pitch_hz(middle, LISTEN_HZ) - 1_000.0).abs() < 1.0, "{}", pitch_hz(middle, LISTEN_HZ));
    }
    assert_eq!((room.device.opens(), room.device.closes()), (3, 3));
}

#[tokio::test]
async fn the_longest_recording_fits_an_answer() {
    let room = Room::new().await;
    assert!(room.listen(15).await.unwrap().len() <= wire::envelope::MEDIA_BYTES_MAX);
}

#[tokio::test]
async fn a_recording_takes_the_time_that_it_lasts_and_hears_stop_at_once() {
    let room = Room::new().await;
    room.device.at_once(false);
    let begun = Instant::now();
    room.listen(1).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    let (stop, lit) = (CancellationToken::new(), room.sign.light().await.unwrap());
    let run = room.microphone.run(call(15, &stop), lit);
    let begun = Instant::now();
    let stopped = async {
        while room.device.opens() < 2 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (value, ()) = tokio::join!(run, stopped);
    assert_eq!(value.unwrap_err(), Fault::Stopped);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(room.device.closes(), 2);
}

#[tokio::test]
async fn what_a_microphone_gets_wrong_is_told_apart_in_words_and_leaves_nothing_open() {
    let rows = [
        (SoundTrouble::Missing, "there is no microphone on this device"),
        (SoundTrouble::Busy, "the sound card is busy: another program uses it"),
        (SoundTrouble::Forbidden, "this program may not open the microphone"),
        (SoundTrouble::Unplugged, "the sound card was unplugged"),
        (SoundTrouble::Silent, "the sound card stands still: it neither takes nor gives sound"),
        (SoundTrouble::PollError, "the sound card failed: it reports an error at every turn (POLLERR)"),
        (SoundTrouble::Panic, "the sound card's driver crashed: the simulated microphone was told to"),
    ];
    let room = Room::new().await;
    for (trouble, words) in rows {
        room.device.trouble(Some(trouble));
        assert_eq!(room.listen(1).await.unwrap_err(), Fault::Unavailable(words.to_owned()), "{trouble:?}");
        assert_eq!(room.device.opens(), room.device.closes(), "{trouble:?}");
        room.device.trouble(None);
        room.listen(1).await.unwrap();
    }
}

#[tokio::test]
async fn a2_a3_a_microphone_of_odd_forms_is_opened_in_one_that_works_and_keeps_its_pitch() {
    let troubles = [
        SoundTrouble::Only48k,
        SoundTrouble::OnlyU8,
        SoundTrouble::WildRange,
        SoundTrouble::FloatFails,
        SoundTrouble::Gaps,
    ];
    let room = Room::new().await;
    room.device.tone(Some(1_000));
    for trouble in troubles {
        room.device.trouble(Some(trouble));
        let heard = samples(&room.listen(1).await.unwrap());
        assert_eq!(heard.len(), 16_000, "{trouble:?}");
        // Best of the pieces between gaps.
        let off = |piece: &[f32]| (pitch_hz(piece, LISTEN_HZ) - 1_000.0).abs();
        let best = heard.chunks_exact(600).map(off).fold(f64::INFINITY, f64::min);
        assert!(best < 5.0, "{trouble:?}: {best} Hz beside the tone");
    }
}

#[tokio::test]
async fn a_driver_that_hangs_keeps_the_sign_lit_and_the_microphone_taken_until_it_lets_go() {
    let room = Room::new().await;
    room.device.trouble(Some(SoundTrouble::Hang));
    let lit = room.sign.light().await.unwrap();
    let stop = CancellationToken::new();
    let hanging = room.microphone.run(call(1, &stop), lit);
    assert!(timeout(Duration::from_millis(200), hanging).await.is_err(), "it hangs, and its caller goes away");
    let refused = room.listen(1).await.unwrap_err();
    assert_eq!(refused, Fault::Unavailable("a former recording still hangs in the sound card's driver".to_owned()));
    room.device.trouble(None);
    room.device.release();
    let free = async {
        while room.device.taken().load(std::sync::atomic::Ordering::Acquire) {
            tokio::task::yield_now().await
        }
    };
    timeout(PATIENCE, free).await.unwrap();
    room.listen(1).await.unwrap();
}

#[tokio::test]
async fn a_lost_sign_ends_a_recording() {
    let room = Room::new().await;
    room.device.at_once(false);
    let lit = room.sign.light().await.unwrap();
    let stop = CancellationToken::new();
    let run = room.microphone.run(call(15, &stop), lit);
    let lose = async {
        while room.device.opens() == 0 {
            tokio::task::yield_now().await;
        }
        room.light.trouble(Some(SignTrouble::GoesOut));
    };
    let (value, ()) = timeout(PATIENCE, async { tokio::join!(run, lose) }).await.unwrap();
    assert_eq!(value.unwrap_err(), Fault::Stopped);
    assert_eq!(room.device.closes(), 1);
}

#[tokio::test]
async fn a_simulated_sign_does_not_serve_a_real_microphone_nor_the_reverse() {
    let room = Room::new().await;
    let real = Microphone::new(CardRecording::new(CardChoice::Default), LIMITS);
    let lit = room.sign.light().await.unwrap();
    let refused = real.run(call(1, &CancellationToken::new()), lit).await.unwrap_err();
    assert_eq!(refused.to_string(), "a simulated in-use sign does not serve a real microphone");

    let leds = tempfile::tempdir().unwrap();
    let led = leds.path().join("sign");
    std::fs::create_dir(&led).unwrap();
    std::fs::write(led.join("max_brightness"), "1\n").unwrap();
    std::fs::write(led.join("brightness"), "0\n").unwrap();
    let sign = watched(vec![Arc::new(LedSign::new(leds.path(), "sign").unwrap())]).await;
    let lit = sign.light().await.unwrap();
    let refused = room.microphone.run(call(1, &CancellationToken::new()), lit).await.unwrap_err();
    assert_eq!(refused.to_string(), "a real in-use sign does not serve a simulated microphone");
    assert_eq!(room.device.opens(), 0);
}

/// A second of a tone as speech engines give it.
fn speech() -> Pcm {
    Pcm::of(&tone(440.0, 22_050, 44_100), 22_050)
}

#[test]
fn a4_two_seconds_of_speech_last_two_seconds_at_whatever_rate_the_card_has() {
    for trouble in [None, Some(SoundTrouble::Only48k), Some(SoundTrouble::OnlyU8), Some(SoundTrouble::WildRange)] {
        let speaker = SimulatedSpeaker::new(|_| {});
        speaker.at_once(true);
        speaker.trouble(trouble);
        speaker.play(&speech(), &CancellationToken::new()).unwrap();
        let Played { rate_hz, samples } = speaker.last().unwrap();
        let seconds = samples.len() as f64 / f64::from(rate_hz);
        assert!((seconds - 2.0).abs() <= 0.04, "{trouble:?}: {seconds} s at {rate_hz} Hz");
        let middle = &samples[samples.len() / 4..samples.len() / 2];
        assert!((pitch_hz(middle, rate_hz) - 440.0).abs() < 1.0, "{trouble:?}: {}", pitch_hz(middle, rate_hz));
        assert!((loudness(middle) - 0.5 / std::f64::consts::SQRT_2).abs() < 0.01, "{trouble:?}");
    }
}

#[test]
fn a2_what_fails_in_floating_point_is_played_in_sixteen_bits() {
    let speaker = SimulatedSpeaker::new(|_| {});
    speaker.at_once(true);
    speaker.trouble(Some(SoundTrouble::FloatFails));
    speaker.play(&speech(), &CancellationToken::new()).unwrap();
    assert_eq!(speaker.last().unwrap().rate_hz, 8_000, "the one rate at which it takes sixteen bits");
}

#[test]
fn a5_what_a_speaker_gets_wrong_is_told_apart_and_ends_in_time() {
    let rows = [
        (SoundTrouble::Missing, "there is no speaker on this device"),
        (SoundTrouble::Busy, "the sound card is busy: another program uses it"),
        (SoundTrouble::Unplugged, "the sound card was unplugged"),
        (SoundTrouble::Silent, "the sound card stands still: it neither takes nor gives sound"),
        (SoundTrouble::PollError, "the sound card failed: it reports an error at every turn (POLLERR)"),
    ];
    for (trouble, words) in rows {
        let speaker = SimulatedSpeaker::new(|_| {});
        speaker.at_once(true);
        speaker.trouble(Some(trouble));
        let begun = Instant::now();
        let fault = speaker.play(&speech(), &CancellationToken::new()).unwrap_err();
        assert_eq!(fault.to_string(), words, "{trouble:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{trouble:?}: {:?}", begun.elapsed());
        speaker.trouble(None);
        speaker.play(&speech(), &CancellationToken::new()).unwrap();
    }
}

#[test]
fn a_speaker_that_is_told_to_stop_falls_silent_at_once() {
    let speaker = SimulatedSpeaker::new(|_| {});
    let stop = CancellationToken::new();
    let ended = std::thread::scope(|threads| {
        let playing = threads.spawn(|| {
            let begun = Instant::now();
            (speaker.play(&Pcm::of(&tone(440.0, 16_000, 16_000 * 30), 16_000), &stop), begun.elapsed())
        });
        stop.cancel();
        playing.join().unwrap()
    });
    assert_eq!(ended.0, Err(SoundFault::Stopped));
    assert!(ended.1 < Duration::from_secs(2), "{:?}", ended.1);
}
