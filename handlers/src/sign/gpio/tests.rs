#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests; their tasks end with them"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SystemClock;
use crate::sign::{CHECK_EACH, Needed, Sign, SignState};

/// GPIO chips that only stand in memory; clones are the same chips.
#[derive(Clone, Default)]
struct Fake(Arc<Wires>);

#[derive(Default)]
struct Wires {
    chips: Mutex<Vec<GpioChip>>,
    /// Who drives what, as the wire stands: chip, offset, high.
    driven: Mutex<Vec<(String, u32, bool)>>,
    /// The wire stays as it is, whatever is set.
    stuck: AtomicBool,
    /// How many lines were ever taken.
    taken: AtomicUsize,
    /// How often a line was read.
    reads: AtomicUsize,
}

impl Fake {
    fn with(chips: &[(&str, &str, &[&str])]) -> Self {
        let fake = Self::default();
        chips.iter().for_each(|(name, label, lines)| fake.plug(name, label, lines));
        fake
    }

    fn plug(&self, name: &str, label: &str, lines: &[&str]) {
        let lines = lines.iter().enumerate().map(|(at, line)| GpioChipLine {
            offset: u32::try_from(at).unwrap(),
            name: (*line).to_owned(),
            used_by: None,
        });
        let lines = Ok(lines.collect());
        self.0.chips.lock().unwrap().push(GpioChip { name: name.to_owned(), label: label.to_owned(), lines });
    }

    fn unplug(&self, name: &str) {
        self.0.chips.lock().unwrap().retain(|chip| chip.name != name);
        self.0.driven.lock().unwrap().retain(|(chip, _, _)| chip != name);
    }

    fn lines(&self, chip: &str, change: impl FnOnce(&mut Result<Vec<GpioChipLine>, GpioFault>)) {
        let mut chips = self.0.chips.lock().unwrap();
        change(&mut chips.iter_mut().find(|known| known.name == chip).unwrap().lines);
    }

    /// What is driven, and whether it is high.
    fn wires(&self) -> Vec<(String, u32, bool)> {
        self.0.driven.lock().unwrap().clone()
    }

    fn high(&self, chip: &str, offset: u32) -> Option<bool> {
        self.wires().iter().find(|(name, at, _)| name == chip && *at == offset).map(|(_, _, high)| *high)
    }
}

impl GpioChips for Fake {
    fn chips(&self) -> Result<Vec<GpioChip>, GpioFault> {
        Ok(self.0.chips.lock().unwrap().clone())
    }

    fn take(&self, chip: &str, offset: u32, wanted: &GpioLine, lit: bool) -> Result<Box<dyn HeldLine>, GpioFault> {
        let high = lit != wanted.active_low();
        self.0.driven.lock().unwrap().push((chip.to_owned(), offset, high));
        self.0.taken.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FakeLine { fake: self.clone(), chip: chip.to_owned(), offset, low: wanted.active_low() }))
    }
}

struct FakeLine {
    fake: Fake,
    chip: String,
    offset: u32,
    low: bool,
}

impl FakeLine {
    fn with<T>(&self, change: impl FnOnce(&mut bool) -> T) -> Result<T, GpioFault> {
        let mut driven = self.fake.0.driven.lock().unwrap();
        let wire = driven.iter_mut().find(|(chip, offset, _)| *chip == self.chip && *offset == self.offset);
        wire.map(|(_, _, high)| change(high))
            .ok_or_else(|| GpioFault::Driver("No such device (os error 19)".to_owned()))
    }
}

impl HeldLine for FakeLine {
    fn set(&self, lit: bool) -> Result<(), GpioFault> {
        let stuck = self.fake.0.stuck.load(Ordering::Relaxed);
        self.with(|high| {
            if !stuck {
                *high = lit != self.low
            }
        })
    }

    fn lit(&self) -> Result<bool, GpioFault> {
        self.fake.0.reads.fetch_add(1, Ordering::Relaxed);
        self.with(|high| *high != self.low)
    }
}

impl Drop for FakeLine {
    fn drop(&mut self) {
        self.fake.0.driven.lock().unwrap().retain(|(chip, offset, _)| *chip != self.chip || *offset != self.offset);
    }
}

fn sign(fake: &Fake, wanted: &str) -> GpioSign {
    GpioSign::over(wanted.parse().unwrap(), fake.clone())
}

const BOARD: (&str, &str, &[&str]) = ("gpiochip0", "pinctrl-board", &["ID_SDA", "LAMP", "GPIO2"]);
const EXPANDER: (&str, &str, &[&str]) = ("gpiochip1", "expander", &["", "RELAY", "LAMP2"]);

#[tokio::test]
async fn a_line_is_taken_lit_read_back_darkened_and_kept() {
    for (wanted, lit_is_high) in [("pinctrl-board/1", true), ("pinctrl-board/LAMP,active-low", false)] {
        let fake = Fake::with(&[BOARD, EXPANDER]);
        let sign = sign(&fake, wanted);
        sign.ready().unwrap();
        assert_eq!(fake.wires(), [], "looking changes nothing");
        let off = sign.check().await.unwrap_err().to_string();
        assert_eq!(off, format!("the in-use sign (GPIO {wanted}) did not obey: it is off"));
        sign.dark().await.unwrap();
        assert_eq!(fake.high("gpiochip0", 1), Some(!lit_is_high), "{wanted}");
        for _ in 0..2 {
            sign.light().await.unwrap();
            assert_eq!(fake.high("gpiochip0", 1), Some(lit_is_high), "{wanted}");
            sign.check().await.unwrap();
            sign.ready().unwrap();
            sign.dark().await.unwrap();
            assert_eq!(fake.high("gpiochip0", 1), Some(!lit_is_high), "{wanted}");
        }
        assert_eq!(fake.0.taken.load(Ordering::Relaxed), 1, "the line stays ours");
        drop(sign);
        assert_eq!(fake.wires(), [], "and is given back at the end");
    }
}

#[tokio::test]
async fn whether_a_held_line_is_ready_is_told_without_reading_it() {
    let fake = Fake::with(&[BOARD]);
    let sign = sign(&fake, "pinctrl-board/1");
    sign.light().await.unwrap();
    let reads = || fake.0.reads.load(Ordering::Relaxed);
    let before = reads();
    sign.ready().unwrap();
    assert_eq!(reads(), before);
    sign.check().await.unwrap();
    assert_eq!(reads(), before + 1, "a check reads it");
    fake.unplug("gpiochip0");
    sign.check().await.unwrap_err();
    sign.ready().unwrap_err();
}

#[tokio::test]
async fn a_line_that_reads_back_otherwise_is_not_confirmed() {
    let fake = Fake::with(&[BOARD]);
    let sign = sign(&fake, "LAMP");
    sign.dark().await.unwrap();
    fake.0.stuck.store(true, Ordering::Relaxed);
    let told = sign.light().await.unwrap_err().to_string();
    assert_eq!(told, "the in-use sign (GPIO LAMP) did not obey: it was set lit and reads back dark");
    fake.0.stuck.store(false, Ordering::Relaxed);
    sign.light().await.unwrap();
    // Something outside pulls the wire down.
    fake.0.driven.lock().unwrap()[0].2 = false;
    assert!(sign.check().await.unwrap_err().to_string().ends_with("it was set lit and reads back dark"));
}

#[test]
fn a_line_is_found_by_label_number_or_name_and_everything_else_is_refused_by_name() {
    let fake = Fake::with(&[BOARD, EXPANDER, ("gpiochip2", "twin", &["A"]), ("gpiochip3", "twin", &["A", "LAMP2"])]);
    fake.lines("gpiochip1", |lines| lines.as_mut().unwrap()[1].used_by = Some("spi0 CS0".to_owned()));
    let rows: &[(&str, Result<(), &str>)] = &[
        ("pinctrl-board/2", Ok(())),
        ("gpiochip0/2", Ok(())),
        ("gpiochip0/GPIO2", Ok(())),
        ("GPIO2", Ok(())),
        ("gpiochip0/LAMP", Ok(())),
        ("gpiochip3/LAMP2", Ok(())),
        ("pinctrl-board/3", Err("the GPIO chip pinctrl-board has no line 3")),
        ("pinctrl-bord/2", Err("there is no GPIO chip pinctrl-bord")),
        ("gpiochip9/2", Err("there is no GPIO chip gpiochip9")),
        ("GPIO3", Err("no GPIO chip has a line GPIO3")),
        ("expander/RELAY", Err("spi0 CS0 holds the line")),
        ("twin/0", Err("that could be each of gpiochip2/0, gpiochip3/0; name chip and line")),
        ("LAMP2", Err("that could be each of gpiochip1/2, gpiochip3/1; name chip and line")),
    ];
    for (wanted, outcome) in rows {
        let told = sign(&fake, wanted).ready().map_err(|fault| fault.to_string());
        let outcome = outcome.map_err(|reason| format!("the in-use sign (GPIO {wanted}) cannot be lit: {reason}"));
        assert_eq!(told, outcome, "{wanted}");
    }
    assert_eq!(fake.wires(), []);
    let told = sign(&Fake::default(), "a/1").ready().unwrap_err().to_string();
    assert!(told.ends_with("there is no GPIO chip on this device"), "{told}");
}

#[test]
fn a_chip_that_may_not_be_opened_is_told_with_what_mends_it() {
    let fake = Fake::with(&[BOARD, EXPANDER]);
    let forbidden = GpioFault::Forbidden("gpiochip0".to_owned());
    fake.lines("gpiochip0", |lines| *lines = Err(forbidden.clone()));
    for wanted in ["gpiochip0/1", "pinctrl-board/1", "LAMP"] {
        let told = sign(&fake, wanted).ready().unwrap_err().to_string();
        assert!(told.ends_with("this program may not open /dev/gpiochip0; add its user to the group gpio"), "{told}");
    }
    sign(&fake, "expander/RELAY").ready().unwrap();
}

#[tokio::test]
async fn a_chip_that_vanishes_and_returns_under_another_number_is_the_sign_again_without_a_restart() {
    let fake = Fake::with(&[BOARD, EXPANDER]);
    let light = sign(&fake, "expander/RELAY");
    let sign = Sign::new(vec![Needed::new(Arc::new(light.clone()))], Arc::new(SystemClock));
    let stop = CancellationToken::new();
    let tending = tokio::spawn(Arc::clone(&sign).tend(stop.clone()));
    let mut watch = sign.watch();
    tokio::task::yield_now().await;
    let lit = sign.light().await.unwrap();
    fake.unplug("gpiochip1");
    timeout(CHECK_EACH * 40, lit.lost().cancelled_owned()).await.unwrap();
    drop(lit);
    // Nothing of it can be lit any more: the sign counts as dark, and nothing is captured without it.
    timeout(CHECK_EACH * 40, watch.wait_for(|state| *state == SignState::Dark)).await.unwrap().unwrap();
    let told = sign.ready().unwrap_err().to_string();
    assert!(told.ends_with("cannot be lit: there is no GPIO chip expander"), "{told}");
    assert!(sign.light().await.is_err());
    // Another chip has its number now; it comes back under another.
    fake.plug("gpiochip1", "modem", &["", "RELAY"]);
    assert!(sign.light().await.is_err(), "never another in its place");
    fake.plug("gpiochip4", "expander", &["", "RELAY"]);
    let lit = sign.light().await.unwrap();
    assert_eq!((fake.high("gpiochip4", 1), fake.high("gpiochip1", 1)), (Some(true), None));
    drop(lit);
    stop.cancel();
    tending.await.unwrap();
}

#[tokio::test]
async fn a_chip_known_by_its_number_is_not_replaced_by_another_that_gets_the_number() {
    let fake = Fake::with(&[BOARD, EXPANDER]);
    let sign = sign(&fake, "gpiochip1/1");
    sign.light().await.unwrap();
    fake.unplug("gpiochip1");
    assert!(sign.check().await.unwrap_err().to_string().ends_with("there is no GPIO chip gpiochip1"));
    fake.plug("gpiochip1", "modem", &["", "RESET"]);
    for told in [sign.ready(), sign.light().await, sign.dark().await] {
        let told = told.unwrap_err().to_string();
        assert!(told.ends_with("gpiochip1 is another chip now, modem and not expander"), "{told}");
    }
    assert_eq!(fake.wires(), []);
    fake.unplug("gpiochip1");
    fake.plug("gpiochip1", "expander", &["", "RELAY"]);
    sign.light().await.unwrap();
    assert_eq!(fake.high("gpiochip1", 1), Some(true));
}
