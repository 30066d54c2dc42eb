//! `Speaker` over speech and a card that count, and a clock on the wall that says what it is told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wire::Object;

use crate::clock::SystemClock;
use crate::handler::{Call, Fault, Handler as _};
use crate::sound::{Pcm, Playback, SoundFault};
use crate::speech::{LocalTime, SpeakLimits, Speaker, SpeakerBounds, Speech, SpeechFault, Spoken, WallTime};

/// A card that keeps what it was given.
#[derive(Default)]
struct Card {
    unready: Mutex<Option<SoundFault>>,
    fails: Mutex<Option<SoundFault>>,
    crashes: Mutex<bool>,
    /// Plays until it is stopped.
    lasts: Mutex<bool>,
    played: Mutex<Vec<Pcm>>,
}

impl Playback for Card {
    fn name(&self) -> String {
        "card".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn ready(&self) -> Result<(), SoundFault> {
        self.unready.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn play(&self, pcm: &Pcm, stop: &CancellationToken) -> Result<(), SoundFault> {
        self.played.lock().unwrap().push(pcm.clone());
        let (crashes, lasts) = (*self.crashes.lock().unwrap(), *self.lasts.lock().unwrap());
        assert!(!crashes, "the driver crashes");
        if lasts {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            return Err(SoundFault::Stopped);
        }
        self.fails.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

/// Speech that says what it is told to, and moves the clock on the wall while it works.
struct Voice {
    unready: Mutex<Option<SpeechFault>>,
    gives: Mutex<Result<Spoken, SpeechFault>>,
    asked: Mutex<Vec<String>>,
    wall: Arc<Wall>,
    later: Mutex<Option<u16>>,
}

impl Speech for Voice {
    fn describe(&self) -> String {
        "voice".to_owned()
    }

    fn ready(&self) -> Result<(), SpeechFault> {
        self.unready.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn speak(&self, text: &str, _stop: CancellationToken) -> BoxFuture<'static, Result<Spoken, SpeechFault>> {
        self.asked.lock().unwrap().push(text.to_owned());
        if let Some(minute) = *self.later.lock().unwrap() {
            self.wall.0.store(minute.into(), Ordering::Relaxed);
        }
        futures_util::future::ready(self.gives.lock().unwrap().clone()).boxed()
    }
}

#[derive(Default)]
struct Wall(AtomicU64);

impl LocalTime for Wall {
    fn now(&self) -> WallTime {
        WallTime::of_minute(u16::try_from(self.0.load(Ordering::Relaxed)).unwrap())
    }
}

struct Rig {
    card: Arc<Card>,
    voice: Arc<Voice>,
    wall: Arc<Wall>,
    bounds: SpeakerBounds,
    limits: SpeakLimits,
}

fn spoken(samples: Vec<i16>) -> Spoken {
    Spoken { pcm: Pcm { rate_hz: 1_000, samples }, cut: false }
}

impl Rig {
    fn new() -> Self {
        let wall = Arc::new(Wall::default());
        let voice = Voice {
            unready: Mutex::default(),
            gives: Mutex::new(Ok(spoken(vec![100; 2_000]))),
            asked: Mutex::default(),
            wall: Arc::clone(&wall),
            later: Mutex::default(),
        };
        let bounds = SpeakerBounds { volume_percent: 100, quiet: Vec::new() };
        Self { card: Arc::default(), voice: Arc::new(voice), wall, bounds, limits: SpeakLimits::default() }
    }

    async fn say_until(&self, text: &str, stop: CancellationToken) -> Result<Object, Fault> {
        let (voice, card, wall) = (self.voice.clone(), self.card.clone(), self.wall.clone());
        let speaker = Speaker::new(voice, card, wall, self.bounds.clone(), self.limits);
        let mut arguments = Object::new();
        arguments.insert("text", text);
        let arguments = speaker.declaration().bounds.check(arguments).unwrap();
        let agent = "eve@home.example.org".parse().unwrap();
        speaker.run(Call { arguments, stop, clock: Arc::new(SystemClock), agent }).await
    }

    async fn say(&self, text: &str) -> Result<Object, Fault> {
        self.say_until(text, CancellationToken::new()).await
    }

    /// How many texts the engine got, and how many sounds the card.
    fn counts(&self) -> (usize, usize) {
        (self.voice.asked.lock().unwrap().len(), self.card.played.lock().unwrap().len())
    }
}

#[tokio::test]
async fn a_text_is_spoken_and_played_as_it_is_and_the_value_is_empty() {
    let rig = Rig::new();
    assert_eq!(rig.say("hello\nworld").await, Ok(Object::new()));
    assert_eq!(*rig.voice.asked.lock().unwrap(), ["hello world"]);
    assert_eq!(*rig.card.played.lock().unwrap(), [spoken(vec![100; 2_000]).pcm]);
}

#[tokio::test]
async fn whatever_is_missing_is_found_before_anything_is_heard() {
    let card = Rig::new();
    *card.card.unready.lock().unwrap() = Some(SoundFault::Missing("there is no sound card".to_owned()));
    assert_eq!(card.say("x").await, Err(Fault::Unavailable("there is no sound card".to_owned())));
    assert_eq!(card.counts(), (0, 0));
    let engine = Rig::new();
    *engine.voice.unready.lock().unwrap() = Some(SpeechFault::Missing("there is no speech engine".to_owned()));
    assert_eq!(engine.say("x").await, Err(Fault::Unavailable("there is no speech engine".to_owned())));
    assert_eq!(engine.counts(), (0, 0));
    let crash = Rig::new();
    let how = "crashed: it aborted (signal 6)".to_owned();
    *crash.voice.gives.lock().unwrap() = Err(SpeechFault::Ended { engine: "sh".to_owned(), how, said: String::new() });
    let sentence = "nothing was said: the speech engine sh crashed: it aborted (signal 6)";
    assert_eq!(crash.say("buttons").await, Err(Fault::Failed(sentence.to_owned())));
    assert_eq!(crash.counts(), (1, 0));
}

#[tokio::test]
async fn a_text_without_a_word_is_refused_before_the_engine_is_asked() {
    let rig = Rig::new();
    let refused = Fault::Invalid { member: "text".to_owned(), reason: "nothing in it can be spoken".to_owned() };
    for text in ["", " \n", "\u{202e}\u{1}"] {
        assert_eq!(rig.say(text).await, Err(refused.clone()), "{text:?}");
    }
    assert_eq!(rig.counts(), (0, 0));
    *rig.voice.gives.lock().unwrap() = Ok(spoken(Vec::new()));
    assert_eq!(rig.say("\u{301}").await, Err(refused));
    assert_eq!(rig.counts(), (1, 0));
}

#[tokio::test]
async fn in_quiet_hours_nothing_is_said_and_the_sentence_says_until_when() {
    let mut rig = Rig::new();
    rig.bounds.quiet = vec!["22:00-07:00".parse().unwrap()];
    let quiet = |now: &str| {
        Fault::Unavailable(format!(
            "these are quiet hours at the device: nothing is said until 07:00 by its clock, which shows {now}"
        ))
    };
    for (minute, said) in [(22 * 60 - 1, None), (22 * 60, Some("22:00")), (6 * 60 + 59, Some("06:59")), (7 * 60, None)]
    {
        rig.wall.0.store(minute, Ordering::Relaxed);
        assert_eq!(rig.say("x").await.err(), said.map(quiet), "{minute}");
    }
    assert_eq!(rig.counts(), (2, 2));
    // They begin while the engine works.
    rig.wall.0.store(22 * 60 - 1, Ordering::Relaxed);
    *rig.voice.later.lock().unwrap() = Some(22 * 60);
    assert_eq!(rig.say("x").await, Err(quiet("22:00")));
    assert_eq!(rig.counts(), (3, 2));
    rig.bounds.quiet = vec!["00:00-24:00".parse().unwrap()];
    let always = Fault::Unavailable("at the device all hours are quiet: nothing is said".to_owned());
    assert_eq!(rig.say("x").await, Err(always));
}

#[tokio::test]
async fn no_sample_is_louder_than_the_keeper_allows_and_a_soft_voice_stays_as_it_is() {
    let rows: &[(u8, &[i16], &[i16])] = &[
        (100, &[i16::MIN, 16_384, i16::MAX], &[-32_767, 16_383, 32_766]),
        (50, &[32_767, -32_767, 100], &[16_383, -16_383, 49]),
        (50, &[16_383, -16_000, 0], &[16_383, -16_000, 0]),
        (1, &[i16::MIN, i16::MAX, 1], &[-327, 326, 0]),
        (1, &[300, -300], &[300, -300]),
    ];
    for (percent, given, wanted) in rows {
        let mut rig = Rig::new();
        rig.bounds.volume_percent = *percent;
        *rig.voice.gives.lock().unwrap() = Ok(spoken(given.to_vec()));
        rig.say("x").await.unwrap();
        assert_eq!(rig.card.played.lock().unwrap()[0].samples, *wanted, "{percent} %");
    }
}

#[tokio::test]
async fn t4_a_text_that_takes_too_long_is_cut_and_the_value_says_where() {
    let mut rig = Rig::new();
    rig.limits.whole = Duration::from_secs(5);
    *rig.voice.gives.lock().unwrap() = Ok(spoken(vec![1; 60_000]));
    let value = rig.say("x").await.unwrap();
    let cut_ms = serde_json::to_value(&value).unwrap()["cut_ms"].as_u64().unwrap();
    assert!((3_000..=5_000).contains(&cut_ms), "{cut_ms}");
    assert_eq!(rig.card.played.lock().unwrap()[0].duration(), Duration::from_millis(cut_ms));
    // The engine cut it already.
    *rig.voice.gives.lock().unwrap() = Ok(Spoken { cut: true, ..spoken(vec![1; 1_000]) });
    assert_eq!(serde_json::to_value(rig.say("x").await.unwrap()).unwrap()["cut_ms"], 1_000);
    *rig.voice.gives.lock().unwrap() = Ok(spoken(vec![1; 1_000]));
    assert_eq!(rig.say("x").await, Ok(Object::new()));
}

#[tokio::test]
async fn a_stop_is_heard_before_and_while_it_plays() {
    let rig = Rig::new();
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(rig.say_until("x", stop).await, Err(Fault::Stopped));
    assert_eq!(rig.counts(), (1, 0));
    *rig.card.lasts.lock().unwrap() = true;
    let stop = CancellationToken::new();
    let saying = rig.say_until("x", stop.clone());
    let stopper = async {
        while rig.counts().1 == 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    assert_eq!(tokio::join!(saying, stopper).0, Err(Fault::Stopped));
}

#[tokio::test]
async fn a_card_that_fails_or_crashes_is_a_sentence_and_the_next_text_is_said() {
    let rig = Rig::new();
    *rig.card.fails.lock().unwrap() = Some(SoundFault::Unplugged);
    assert_eq!(rig.say("x").await, Err(Fault::Unavailable("the sound card was unplugged".to_owned())));
    *rig.card.fails.lock().unwrap() = None;
    *rig.card.crashes.lock().unwrap() = true;
    let crashed = Fault::Unavailable("the sound card failed: its driver crashed".to_owned());
    assert_eq!(rig.say("x").await, Err(crashed));
    *rig.card.crashes.lock().unwrap() = false;
    assert_eq!(rig.say("x").await, Ok(Object::new()));
}
