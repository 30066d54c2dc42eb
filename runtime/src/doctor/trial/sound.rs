//! What a second of sound says of the microphone, and a tone of the speaker. The sound is weighed and let go.

use std::sync::Arc;
use std::time::Duration;

use handlers::sound::{Pcm, SoundFault};
use handlers::speech::{SpeechFault, Spoken};
use handlers::{Clock as _, Playback, SystemClock};
use tokio_util::sync::CancellationToken;
use wire::Object;
use wire::text::base64_decode;

use crate::doctor::{Finding, Part};

/// The head of the WAV files that `microphone.listen` gives.
const HEAD_BYTES: usize = 44;
/// The loudest sample there is.
const FULL: f64 = 32_768.0;
/// Below this the microphone hears nothing, not even its own noise: it is muted, or no microphone is at the card.
const DEAF_BELOW_DB: f64 = -90.0;
/// The tone: what every speaker plays and nobody is startled by.
const TONE_HZ: f64 = 440.0;
const TONE_RATE_HZ: u32 = 48_000;
/// How loud, of 1.
const TONE_LEVEL: f64 = 0.1;
/// A tone of a second that has not ended by then is not going to.
const TONE_MAX: Duration = Duration::from_secs(10);

/// What was heard, in decibels of the loudest there is: the mean and the peak.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    mean_db: f64,
    peak_db: f64,
}

impl Level {
    fn of(wav: &[u8]) -> Option<Self> {
        let samples = wav.get(HEAD_BYTES..)?.chunks_exact(2);
        let levels: Vec<f64> =
            samples.filter_map(|pair| Some(f64::from(i16::from_le_bytes(pair.try_into().ok()?)) / FULL)).collect();
        if levels.is_empty() {
            return None;
        }
        let mean = (levels.iter().map(|level| level * level).sum::<f64>() / levels.len() as f64).sqrt();
        let peak = levels.iter().fold(0.0_f64, |peak, level| peak.max(level.abs()));
        let db = |level: f64| 20.0 * level.max(1e-6).log10();
        Some(Self { mean_db: db(mean), peak_db: db(peak) })
    }
}

pub(super) fn judge_heard(
    input: Option<&str>,
    (simulated, user): (bool, &str),
    told: Result<Object, String>,
) -> Finding {
    let name = named(input, simulated, "microphone");
    let heard = told.and_then(|value| {
        let data = value.get("data").and_then(serde_json::Value::as_str).unwrap_or_default();
        let wav = base64_decode(data).map_err(|error| format!("it gave no sound: {error}"))?;
        Level::of(&wav).ok_or_else(|| "it gave an empty sound".to_owned())
    });
    match heard {
        Ok(Level { mean_db, .. }) if mean_db < DEAF_BELOW_DB => Finding::broken(
            Part::Microphone,
            format!("{name} hears nothing at all ({mean_db:.0} dB): it is muted, or no microphone is connected"),
            "alsamixer",
        ),
        Ok(Level { mean_db, peak_db }) => Finding::works(
            Part::Microphone,
            format!(
                "{name} heard a second of the room, {mean_db:.0} dB and at most {peak_db:.0} dB, under the lit sign; it was thrown away"
            ),
        ),
        Err(why) => broken(Part::Microphone, &why, user),
    }
}

/// Plays the tone; gives how long that took.
pub(super) async fn play_tone(speaker: Arc<dyn Playback>) -> Result<Duration, String> {
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let began = SystemClock.boot();
    let playing = tokio::task::spawn_blocking(move || speaker.play(&tone(), &stop));
    match tokio::time::timeout(TONE_MAX, playing).await {
        Ok(Ok(Ok(()))) => Ok(SystemClock.boot().since(began)),
        Ok(Ok(Err(fault))) => Err(fault.to_string()),
        Ok(Err(error)) => Err(format!("the sound card's driver crashed: {error}")),
        Err(_) => Err(SoundFault::Silent.to_string()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a sample of at most a tenth of what fits")]
fn tone() -> Pcm {
    let step = std::f64::consts::TAU * TONE_HZ / f64::from(TONE_RATE_HZ);
    let samples = (0..TONE_RATE_HZ).map(|at| (FULL * TONE_LEVEL * (step * f64::from(at)).sin()) as i16).collect();
    Pcm { rate_hz: TONE_RATE_HZ, samples }
}

pub(super) fn judge_played(
    output: Option<&str>,
    (simulated, user): (bool, &str),
    played: Result<Duration, String>,
) -> Finding {
    let name = named(output, simulated, "speaker");
    match played {
        Ok(took) => Finding::works(
            Part::Speaker,
            format!(
                "{name} played a tone of one second in {} ms; did you hear it? if not: alsamixer",
                took.as_millis()
            ),
        ),
        Err(why) => broken(Part::Speaker, &why, user),
    }
}

/// Without a setting and without an engine nothing is asked for.
pub(super) fn judge_spoken(engine: &str, named: bool, spoken: Result<Spoken, SpeechFault>) -> Finding {
    match spoken {
        Ok(Spoken { pcm, .. }) if pcm.samples.is_empty() => {
            Finding::broken(Part::Speech, format!("{engine} made no sound of a sentence"), "latchkeyd config show")
        }
        Ok(Spoken { pcm, .. }) => Finding::works(
            Part::Speech,
            format!("{engine} made {:.1} s of sound of a sentence, which was not played", pcm.duration().as_secs_f64()),
        ),
        Err(fault @ SpeechFault::Missing(_)) if named => {
            Finding::broken(Part::Speech, fault.to_string(), "latchkeyd config show")
        }
        Err(fault @ SpeechFault::Missing(_)) => {
            Finding::broken(Part::Speech, fault.to_string(), "apt-get install espeak-ng")
        }
        Err(fault) => Finding::broken(Part::Speech, fault.to_string(), "latchkeyd config show"),
    }
}

fn named(card: Option<&str>, simulated: bool, what: &str) -> String {
    match (card, simulated) {
        (_, true) => format!("the simulated {what}"),
        (Some(card), false) => card.to_owned(),
        (None, false) => "the default sound card".to_owned(),
    }
}

/// The fault, and the command for it.
fn broken(part: Part, why: &str, user: &str) -> Finding {
    let (what, command) = match why.split_once("; add its user to the group audio") {
        Some((what, _)) => return Finding::broken(part, what, format!("usermod -aG audio {user}")),
        None if why.contains("in-use sign") => (why, "latchkeyd doctor sign led gpio display"),
        None if why.contains("another program uses it") => (why, "fuser -v /dev/snd/*"),
        None if why.contains("not connected") || why.contains("no sound card") || why.contains("there is no") => {
            (why, "latchkeyd hardware")
        }
        // Several cards; the words say what to write instead.
        None if why.contains("have the name") => (why, "latchkeyd hardware"),
        None if why.contains("hangs in") || why.contains("crashed") => (why, "systemctl restart latchkeyd"),
        None if why.contains("at this moment") => (why, "latchkeyd doctor microphone"),
        None => (why, "journalctl --dmesg --lines=50"),
    };
    Finding::broken(part, what, command)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::doctor::Verdict;

    fn heard(samples: &[i16]) -> Object {
        let mut wav = vec![0; HEAD_BYTES];
        wav.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
        let mut value = Object::new();
        value.insert("data", wire::text::base64_encode(&wav));
        value
    }

    #[test]
    fn a_second_of_a_room_works_and_a_muted_microphone_does_not() {
        let judge = |samples: &[i16]| judge_heard(None, (false, "latchkey"), Ok(heard(samples)));
        let room: Vec<i16> = (0..16_000).map(|at| if at % 2 == 0 { 328 } else { -328 }).collect();
        let works = judge(&room);
        assert_eq!((works.verdict, works.mend.as_deref()), (Verdict::Works, None));
        assert!(works.what.contains("-40 dB and at most -40 dB"), "{}", works.what);
        let deaf = judge(&[0; 16_000]);
        assert_eq!((deaf.verdict, deaf.mend.as_deref()), (Verdict::Broken, Some("alsamixer")));
        assert_eq!(judge(&[]).verdict, Verdict::Broken);
        assert_eq!(judge_heard(None, (false, "latchkey"), Ok(Object::new())).verdict, Verdict::Broken);
    }

    #[test]
    fn an_engine_speaks_or_is_named_with_what_mends_it() {
        let spoken =
            |samples: usize| Ok(Spoken { pcm: Pcm { rate_hz: 16_000, samples: vec![1; samples] }, cut: false });
        let works = judge_spoken("espeak-ng", false, spoken(24_000));
        assert_eq!(works.what, "espeak-ng made 1.5 s of sound of a sentence, which was not played");
        assert_eq!(judge_spoken("espeak-ng", false, spoken(0)).verdict, Verdict::Broken);
        let missing = || Err(SpeechFault::Missing("there is no speech engine here".to_owned()));
        for (named, mend) in [(false, "apt-get install espeak-ng"), (true, "latchkeyd config show")] {
            assert_eq!(judge_spoken("engine", named, missing()).mend.as_deref(), Some(mend));
        }
    }

    #[test]
    fn each_fault_of_sound_has_its_command() {
        let rows = [
            ("this program may not open the sound card; add its user to the group audio", "usermod -aG audio latchkey"),
            ("the in-use sign (LED a) cannot be lit: there is no such LED", "latchkeyd doctor sign led gpio display"),
            ("the sound card is busy: another program uses it", "fuser -v /dev/snd/*"),
            ("the sound card plughw:CARD=A,DEV=0 is not connected, or cannot record", "latchkeyd hardware"),
            ("a former recording still hangs in the sound card's driver", "systemctl restart latchkeyd"),
            ("an agent captures at this moment; try again when it is done", "latchkeyd doctor microphone"),
            ("the sound card stands still: it neither takes nor gives sound", "journalctl --dmesg --lines=50"),
        ];
        for (why, command) in rows {
            let told = judge_heard(Some("plughw:CARD=A,DEV=0"), (false, "latchkey"), Err(why.to_owned()));
            assert_eq!((told.verdict, told.mend.as_deref()), (Verdict::Broken, Some(command)), "{why}");
            assert!(why.starts_with(&told.what));
        }
    }

    #[tokio::test]
    async fn the_tone_is_a_second_long_and_a_speaker_that_is_missing_is_told() {
        let speaker = handlers::SimulatedSpeaker::new(|_| {});
        let played = play_tone(Arc::new(speaker.clone())).await;
        assert!(played.as_ref().unwrap() >= &Duration::from_millis(900), "{played:?}");
        let told = judge_played(None, (true, "latchkey"), played);
        assert_eq!(told.verdict, Verdict::Works);
        speaker.trouble(Some(handlers::SoundTrouble::Missing));
        let told = judge_played(None, (true, "latchkey"), play_tone(Arc::new(speaker)).await);
        assert_eq!((told.verdict, told.mend.as_deref()), (Verdict::Broken, Some("latchkeyd hardware")));
    }
}
