#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::TokioClock;

/// A sign over simulated backends, tended, and what the backends did with the time they did it.
struct Room {
    sign: Arc<Sign>,
    lights: Vec<SimulatedSign>,
    log: Arc<Mutex<Vec<(u64, bool)>>>,
    stop: CancellationToken,
    tending: tokio::task::JoinHandle<()>,
}

fn room(count: usize) -> Room {
    let log: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
    let start = Instant::now();
    let lights: Vec<SimulatedSign> = (0..count)
        .map(|_| {
            let log = Arc::clone(&log);
            SimulatedSign::new(move |lit| {
                let ms = u64::try_from(start.elapsed().as_millis()).unwrap();
                log.lock().unwrap().push((ms, lit));
            })
        })
        .collect();
    let backends = lights.iter().map(|light| Arc::new(light.clone()) as Arc<dyn SignBackend>).collect();
    let sign = Sign::new(backends, Arc::new(TokioClock::new(1_000_000)));
    let stop = CancellationToken::new();
    let tending = tokio::spawn(Arc::clone(&sign).tend(stop.clone()));
    Room { sign, lights, log, stop, tending }
}

impl Room {
    async fn tended(count: usize) -> Self {
        let room = room(count);
        tokio::task::yield_now().await;
        room
    }

    fn log(&self) -> Vec<(u64, bool)> {
        self.log.lock().unwrap().clone()
    }

    async fn until(&self, wanted: impl Fn(&SignState) -> bool) -> SignState {
        let mut watch = self.sign.watch();
        let state = timeout(Duration::from_secs(60), watch.wait_for(|state| wanted(state))).await;
        state.unwrap().unwrap().clone()
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_short_capture_leaves_the_sign_on_for_three_seconds_in_all() {
    let room = Room::tended(1).await;
    let lit = room.sign.light().await.unwrap();
    assert!(room.lights[0].is_lit() && lit.simulated() && lit.on_at_ms() == 1_000_000);
    let shown = SignState::Lit { since_ms: 1_000_000, backend: "simulated".to_owned(), simulated: true };
    assert_eq!(*room.sign.watch().borrow(), shown);
    tokio::time::advance(ms(400)).await;
    drop(lit);
    room.until(|state| *state == SignState::Dark).await;
    assert_eq!(room.log(), [(0, true), (3000, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_long_capture_keeps_the_sign_on_until_its_last_hold_is_dropped_and_no_longer() {
    let room = Room::tended(1).await;
    let lit = room.sign.light().await.unwrap();
    let thread = lit.hold();
    drop(lit);
    tokio::time::sleep(ms(7100)).await;
    assert!(room.lights[0].is_lit());
    drop(thread);
    room.until(|state| *state == SignState::Dark).await;
    assert_eq!(room.log(), [(0, true), (7100, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_capture_joins_the_lighting_and_the_later_close_counts() {
    let room = Room::tended(1).await;
    let first = room.sign.light().await.unwrap();
    tokio::time::sleep(ms(2000)).await;
    let second = room.sign.light().await.unwrap();
    assert_eq!(first.on_at_ms(), second.on_at_ms());
    drop(first);
    tokio::time::sleep(ms(3000)).await;
    assert!(room.lights[0].is_lit());
    drop(second);
    room.until(|state| *state == SignState::Dark).await;
    assert_eq!(room.log(), [(0, true), (5000, false)]);
    let third = room.sign.light().await.unwrap();
    assert!(third.on_at_ms() > 1_000_000, "a new lighting after the dark");
}

#[tokio::test(start_paused = true)]
async fn a_sign_that_goes_out_is_lost_within_a_check_and_darkened_after_the_capture_ends() {
    let room = Room::tended(1).await;
    let lit = room.sign.light().await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    assert!(!lit.lost().is_cancelled());
    let before = Instant::now();
    room.lights[0].trouble(Some(SignTrouble::GoesOut));
    timeout(ms(1000), lit.lost().cancelled_owned()).await.unwrap();
    assert!(before.elapsed() <= CHECK_EACH);
    assert_eq!(room.until(|state| matches!(state, SignState::Lost(_))).await, SignState::Lost("it is dark".to_owned()));
    let held = room.sign.light().await.unwrap_err();
    assert_eq!(held, SignFault::Lost("it is dark".to_owned()), "no new capture beside one that lost its sign");
    room.lights[0].trouble(None);
    drop(lit);
    room.until(|state| *state == SignState::Dark).await;
    let again = room.sign.light().await.unwrap();
    assert!(!again.lost().is_cancelled(), "after the old capture ended the sign works again");
}

#[tokio::test(start_paused = true)]
async fn a_sign_that_cannot_be_lit_or_does_not_confirm_gives_no_light_and_stays_dark() {
    let room = Room::tended(1).await;
    for (trouble, named) in [
        (SignTrouble::Missing, "cannot be lit: it is told to be missing"),
        (SignTrouble::Unconfirmed, "did not obey: it is told not to confirm"),
        (SignTrouble::Hangs, "did not obey: it did not answer in time"),
    ] {
        room.lights[0].trouble(Some(trouble));
        let fault = room.sign.light().await.unwrap_err().to_string();
        assert!(fault.ends_with(named), "{fault}");
        room.lights[0].trouble(None);
        tokio::time::sleep(ms(2500)).await;
        assert!(!room.lights[0].is_lit(), "what {trouble:?} lit is darkened");
    }
    drop(room.sign.light().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_given_up_halfway_leaves_nothing_lit() {
    let room = Room::tended(1).await;
    room.lights[0].trouble(Some(SignTrouble::Hangs));
    assert!(timeout(ms(100), room.sign.light()).await.is_err());
    assert!(room.lights[0].is_lit());
    room.lights[0].trouble(None);
    tokio::time::sleep(ms(1)).await;
    assert!(!room.lights[0].is_lit());
}

#[tokio::test(start_paused = true)]
async fn without_backends_or_without_anyone_who_tends_there_is_no_light() {
    let none = Room::tended(0).await;
    assert_eq!(none.sign.light().await.unwrap_err(), SignFault::NoBackend);
    let light = SimulatedSign::new(|_| {});
    let untended = Sign::new(vec![Arc::new(light.clone())], Arc::new(TokioClock::new(0)));
    assert_eq!(untended.light().await.unwrap_err(), SignFault::Unwatched);
    assert_eq!(untended.ready().unwrap_err(), SignFault::Unwatched);
    assert!(!light.is_lit());
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&untended).tend(stop.clone()));
    tokio::task::yield_now().await;
    drop(untended.light().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn when_the_tending_dies_captures_lose_the_sign_and_a_new_tending_darkens_it_only_after_they_end() {
    let room = Room::tended(1).await;
    let lit = room.sign.light().await.unwrap();
    room.tending.abort();
    timeout(ms(10), lit.lost().cancelled_owned()).await.unwrap();
    assert_eq!(room.sign.light().await.unwrap_err(), SignFault::Unwatched);
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&room.sign).tend(stop.clone()));
    tokio::time::sleep(ms(10_000)).await;
    assert!(room.lights[0].is_lit(), "nothing darkens the sign over a capture that still runs");
    drop(lit);
    room.until(|state| *state == SignState::Dark).await;
    assert!(!room.lights[0].is_lit());
}

#[tokio::test(start_paused = true)]
async fn tending_darkens_at_its_start_and_at_its_end() {
    let light = SimulatedSign::new(|_| {});
    light.light().await.unwrap();
    let sign = Sign::new(vec![Arc::new(light.clone())], Arc::new(TokioClock::new(0)));
    let stop = CancellationToken::new();
    let tending = tokio::spawn(Arc::clone(&sign).tend(stop.clone()));
    tokio::time::sleep(ms(1)).await;
    assert!(!light.is_lit(), "a light left on by a crash goes off at the start");
    drop(sign.light().await.unwrap());
    assert!(light.is_lit());
    stop.cancel();
    tending.await.unwrap();
    assert!(!light.is_lit());
}

#[tokio::test(start_paused = true)]
async fn of_two_backends_one_that_works_suffices_and_one_that_drops_out_loses_nothing() {
    let room = Room::tended(2).await;
    room.lights[0].trouble(Some(SignTrouble::Missing));
    drop(room.sign.light().await.unwrap());
    room.until(|state| *state == SignState::Dark).await;
    room.lights[0].trouble(None);
    let lit = room.sign.light().await.unwrap();
    assert!(room.lights.iter().all(SimulatedSign::is_lit), "all that work are lit");
    room.lights[0].trouble(Some(SignTrouble::GoesOut));
    tokio::time::sleep(ms(1000)).await;
    assert!(!lit.lost().is_cancelled());
    room.lights[1].trouble(Some(SignTrouble::GoesOut));
    timeout(ms(1000), lit.lost().cancelled_owned()).await.unwrap();
    room.stop.cancel();
}

/// A folder that looks like the LED `name` to anyone who reads and writes files.
fn led(root: &Path, name: &str) {
    let folder = root.join(name);
    fs::create_dir(&folder).unwrap();
    for (file, text) in [("max_brightness", "255\n"), ("brightness", "0\n"), ("trigger", "[none] timer heartbeat\n")] {
        fs::write(folder.join(file), text).unwrap();
    }
}

#[tokio::test]
async fn an_led_is_lit_to_the_full_read_back_and_darkened() {
    let root = tempfile::tempdir().unwrap();
    led(root.path(), "kitchen::inuse");
    let sign = LedSign::new(root.path(), "kitchen::inuse").unwrap();
    let brightness = root.path().join("kitchen::inuse/brightness");
    sign.ready().unwrap();
    assert!(sign.check().await.is_err(), "a dark LED is not confirmed");
    sign.light().await.unwrap();
    assert_eq!(fs::read_to_string(&brightness).unwrap(), "255");
    sign.check().await.unwrap();
    fs::write(&brightness, "3").unwrap();
    let dim = sign.check().await.unwrap_err().to_string();
    assert_eq!(dim, "the in-use sign (LED kitchen::inuse) did not obey: its brightness reads 3 instead of 255");
    sign.dark().await.unwrap();
    assert_eq!(fs::read_to_string(&brightness).unwrap(), "0");
    assert!(!sign.required() && !sign.simulated());
    assert!(Needed::new(Arc::new(sign)).required());
}

#[tokio::test]
async fn an_led_under_a_kernel_trigger_is_not_confirmed() {
    let root = tempfile::tempdir().unwrap();
    led(root.path(), "a");
    let trigger = root.path().join("a/trigger");
    let sign = LedSign::new(root.path(), "a").unwrap();
    sign.light().await.unwrap();
    fs::write(&trigger, "none [timer] heartbeat").unwrap();
    assert!(sign.check().await.unwrap_err().to_string().ends_with("a trigger of the kernel drives it"));
    sign.light().await.unwrap();
    assert_eq!(fs::read_to_string(&trigger).unwrap(), "none", "lighting takes the LED from its trigger");
    sign.check().await.unwrap();
}

#[tokio::test]
async fn an_led_that_is_missing_or_vanishes_is_named() {
    let root = tempfile::tempdir().unwrap();
    led(root.path(), "a");
    let sign = LedSign::new(root.path(), "a").unwrap();
    sign.light().await.unwrap();
    fs::remove_dir_all(root.path().join("a")).unwrap();
    for fault in [sign.ready(), sign.check().await, sign.light().await, sign.dark().await] {
        let fault = fault.unwrap_err().to_string();
        assert!(fault.contains("LED a") && fault.ends_with("there is no such LED"), "{fault}");
    }
    assert!(!root.path().join("a").exists(), "nothing is created in its place");
    for name in ["", ".", "..", "a/b", "../a", "a\0"] {
        assert!(LedSign::new(root.path(), name).is_err(), "{name:?}");
    }
}

#[tokio::test]
async fn a_sign_on_a_real_led_is_real_and_lost_when_the_led_vanishes() {
    let root = tempfile::tempdir().unwrap();
    led(root.path(), "a");
    let sign = Sign::new(vec![Arc::new(LedSign::new(root.path(), "a").unwrap())], Arc::new(crate::clock::SystemClock));
    let stop = CancellationToken::new();
    let tending = tokio::spawn(Arc::clone(&sign).tend(stop.clone()));
    tokio::task::yield_now().await;
    let lit = sign.light().await.unwrap();
    assert!(!lit.simulated());
    fs::remove_dir_all(root.path().join("a")).unwrap();
    timeout(Duration::from_secs(10), lit.lost().cancelled_owned()).await.unwrap();
    drop(lit);
    stop.cancel();
    tending.await.unwrap();
}

#[tokio::test]
async fn an_led_that_vanishes_and_returns_is_the_sign_again_without_a_restart_and_no_other_takes_its_place() {
    let root = tempfile::tempdir().unwrap();
    led(root.path(), "a");
    let backend = Needed::new(Arc::new(LedSign::new(root.path(), "a").unwrap()));
    let sign = Sign::new(vec![backend], Arc::new(crate::clock::SystemClock));
    let stop = CancellationToken::new();
    let tending = tokio::spawn(Arc::clone(&sign).tend(stop.clone()));
    let mut watch = sign.watch();
    tokio::task::yield_now().await;
    let lit = sign.light().await.unwrap();
    fs::remove_dir_all(root.path().join("a")).unwrap();
    timeout(Duration::from_secs(10), lit.lost().cancelled_owned()).await.unwrap();
    drop(lit);
    // Its end is known, and can go on record, although the LED does not come back.
    timeout(Duration::from_secs(10), watch.wait_for(|state| *state == SignState::Dark)).await.unwrap().unwrap();
    led(root.path(), "b");
    assert!(sign.ready().is_err() && sign.light().await.is_err());
    let brightness = |name: &str| fs::read_to_string(root.path().join(name).join("brightness")).unwrap();
    assert_eq!(brightness("b"), "0\n", "the other LED was not touched");
    // It comes back as it was when it was pulled out, and is darkened before anybody captures.
    led(root.path(), "a");
    fs::write(root.path().join("a/brightness"), "255").unwrap();
    timeout(Duration::from_secs(10), async {
        while brightness("a") != "0" {
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await
    .unwrap();
    sign.ready().unwrap();
    let lit = sign.light().await.unwrap();
    assert_eq!(brightness("a"), "255");
    drop(lit);
    stop.cancel();
    tending.await.unwrap();
}

/// The LED that `led` makes, as one of a USB light.
fn led_of(root: &Path, name: &str, uevent: &str) {
    led(root, name);
    fs::create_dir(root.join(name).join("device")).unwrap();
    fs::write(root.join(name).join("device/uevent"), uevent).unwrap();
}

#[tokio::test]
async fn another_light_under_the_same_name_is_not_the_sign_and_is_not_touched() {
    let first = "DRIVER=hid-led\nHID_ID=0003:00001294:00001320\nHID_NAME=Webmail Notifier\nHID_PHYS=usb-1/input0\nHID_UNIQ=41\n";
    // The same light in another port, which is the control, and what is not that light.
    let unknown = "DRIVER=leds-gpio\n";
    let rows = [
        (first, first.replace("usb-1", "usb-2"), None),
        (first, first.replace("=41", "=42"), Some("Webmail Notifier, serial number 42")),
        (first, first.replace("HID_UNIQ=41", "HID_UNIQ="), Some("Webmail Notifier")),
        (first, first.replace("1320", "1321"), Some("Webmail Notifier, serial number 41")),
        (first, "PRODUCT=3/46d/c31c/110\nNAME=\"A Keyboard\"\nUNIQ=\"\"\n".to_owned(), Some("A Keyboard")),
        (first, unknown.to_owned(), Some("a device without a name")),
        (unknown, first.to_owned(), Some("Webmail Notifier, serial number 41")),
        (unknown, unknown.to_owned(), None),
    ];
    for (first, then, another) in rows {
        let root = tempfile::tempdir().unwrap();
        let brightness = || fs::read_to_string(root.path().join("a/brightness")).unwrap();
        led_of(root.path(), "a", first);
        let sign = LedSign::new(root.path(), "a").unwrap();
        sign.light().await.unwrap();
        fs::remove_dir_all(root.path().join("a")).unwrap();
        assert!(sign.ready().is_err());
        led_of(root.path(), "a", &then);
        // Whose it is, is known from when it was told to shine.
        let outcomes = [sign.light().await, sign.ready(), sign.check().await, sign.dark().await];
        let Some(another) = another else {
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            continue;
        };
        assert_eq!(brightness(), "0\n", "{then}");
        for outcome in [0, 1, 3].map(|at: usize| outcomes[at].clone().unwrap_err()) {
            assert!(matches!(outcome, SignFault::NotReady { .. }), "{outcome:?}");
            let ends =
                format!("another light has its name now: {another}; if that one is to be the sign, restart latchkeyd");
            assert!(outcome.to_string().ends_with(&ends), "{outcome}");
        }
        fs::write(root.path().join("a/brightness"), "255").unwrap();
        assert!(sign.check().await.is_err(), "lit by somebody else");
        // The first one again.
        fs::remove_dir_all(root.path().join("a")).unwrap();
        led_of(root.path(), "a", first);
        sign.light().await.unwrap();
    }
}

#[tokio::test]
async fn a_light_whose_name_is_no_text_is_the_sign_and_one_that_tells_nothing_readable_is_darkened() {
    let root = tempfile::tempdir().unwrap();
    led_of(root.path(), "a", "");
    let uevent = root.path().join("a/device/uevent");
    fs::write(&uevent, b"HID_NAME=Lampe \xc3\nHID_UNIQ=41\n").unwrap();
    let sign = LedSign::new(root.path(), "a").unwrap();
    sign.light().await.unwrap();
    sign.check().await.unwrap();
    // Not a file any more: an error that is neither "gone" nor "another".
    fs::remove_file(&uevent).unwrap();
    fs::create_dir(&uevent).unwrap();
    assert!(sign.check().await.is_err());
    sign.dark().await.unwrap();
    assert_eq!(fs::read_to_string(root.path().join("a/brightness")).unwrap(), "0");
}

#[tokio::test(start_paused = true)]
async fn what_must_work_is_needed_whatever_else_is_lit_and_what_need_not_is_lit_beside_it() {
    let lights: Vec<_> = (0..2).map(|_| SimulatedSign::new(|_| {})).collect();
    let backends = vec![Needed::new(Arc::new(lights[0].clone())), Arc::new(lights[1].clone()) as Arc<dyn SignBackend>];
    let sign = Sign::new(backends, Arc::new(TokioClock::new(0)));
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&sign).tend(stop.clone()));
    tokio::task::yield_now().await;
    lights[0].trouble(Some(SignTrouble::Missing));
    assert!(sign.ready().is_err() && sign.light().await.is_err(), "the other one does not stand for it");
    lights[0].trouble(None);
    lights[1].trouble(Some(SignTrouble::Unconfirmed));
    drop(sign.light().await.unwrap());
    lights[1].trouble(None);
    tokio::time::sleep(ms(10_000)).await;
    let lit = sign.light().await.unwrap();
    assert!(lights.iter().all(SimulatedSign::is_lit));
    lights[1].trouble(Some(SignTrouble::GoesOut));
    tokio::time::sleep(ms(1000)).await;
    assert!(!lit.lost().is_cancelled());
    lights[0].trouble(Some(SignTrouble::GoesOut));
    timeout(ms(1000), lit.lost().cancelled_owned()).await.unwrap();
    stop.cancel();
}

#[test]
fn leds_are_listed_by_name_with_what_keeps_one_from_being_the_sign() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(leds(&root.path().join("none")), []);
    led(root.path(), "kitchen::inuse");
    led(root.path(), "flat");
    fs::write(root.path().join("flat/max_brightness"), "0").unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    let told: Vec<_> = leds(root.path()).into_iter().map(|led| (led.name, led.problem)).collect();
    let problem = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            ("empty".to_owned(), problem("there is no such LED")),
            ("flat".to_owned(), problem("its max_brightness is 0")),
            ("kitchen::inuse".to_owned(), None),
        ]
    );
}
