//! The sign on a line of a GPIO chip.
//!
//! Lit by setting the line and reading it back. The line is asked of the kernel under the name [`CONSUMER`] and kept, so that no other
//! program drives it; it is given back when it fails, and looked for again, by the name that the keeper wrote, at the next use. A chip
//! named by its number is held against the label it had first: numbers are dealt anew when chips come and go, and another chip is never
//! taken for it. What the kernel is asked stands behind [`GpioChips`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use config::{GpioLine, LineName, SignCarrier};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{SignBackend, SignFault};

mod chardev;
#[cfg(test)]
mod tests;

pub use chardev::CharacterDevice;

/// The name under which the kernel shows who holds the line.
pub const CONSUMER: &str = "latchkey";

/// The kernel's GPIO chips, as far as a sign needs them.
pub trait GpioChips: Send + Sync {
    /// Every chip there is now; one that may not be opened is told as such.
    ///
    /// # Errors
    /// [`GpioFault::Driver`] when they cannot be listed.
    fn chips(&self) -> Result<Vec<GpioChip>, GpioFault>;
    /// Takes a line as an output, under the name [`CONSUMER`], set as `lit` says.
    ///
    /// # Errors
    /// See [`GpioFault`].
    fn take(&self, chip: &str, offset: u32, wanted: &GpioLine, lit: bool) -> Result<Box<dyn HeldLine>, GpioFault>;
}

/// A line that we hold; dropping it gives it back.
pub trait HeldLine: Send {
    /// Sets it.
    ///
    /// # Errors
    /// [`GpioFault::Driver`], also when the chip is gone.
    fn set(&self, lit: bool) -> Result<(), GpioFault>;
    /// How it stands, as the chip reads it.
    ///
    /// # Errors
    /// [`GpioFault::Driver`], also when the chip is gone.
    fn lit(&self) -> Result<bool, GpioFault>;
}

/// A chip that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpioChip {
    /// `gpiochip0`
    pub name: String,
    /// What its driver calls it; it stays when the numbers change.
    pub label: String,
    /// Its lines, or why they cannot be seen.
    pub lines: Result<Vec<GpioChipLine>, GpioFault>,
}

/// A line of a chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpioChipLine {
    /// Its place.
    pub offset: u32,
    /// What the board calls it; may be empty.
    pub name: String,
    /// Who holds it; empty for a holder without a name.
    pub used_by: Option<String>,
}

/// Why a line cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpioFault {
    /// There is no such chip or line now.
    #[error("{0}")]
    Missing(String),
    /// The name fits several.
    #[error("{0}")]
    Ambiguous(String),
    /// We may not open the chip.
    #[error("this program may not open /dev/{0}; add its user to the group gpio")]
    Forbidden(String),
    /// Another program, or the kernel, holds it.
    #[error("{}", held_by(.0))]
    Held(String),
    /// It was set and reads back otherwise.
    #[error("it was set {} and reads back {}", level(*.0), level(!*.0))]
    Disobeyed(bool),
    /// The kernel or the chip refused.
    #[error("{0}")]
    Driver(String),
}

fn held_by(who: &str) -> String {
    if who.is_empty() { "something else holds the line".to_owned() } else { format!("{who} holds the line") }
}

const fn level(lit: bool) -> &'static str {
    if lit { "lit" } else { "dark" }
}

/// A GPIO line that carries the sign.
#[derive(Clone)]
pub struct GpioSign {
    shared: Arc<Shared>,
}

struct Shared {
    wanted: GpioLine,
    chips: Box<dyn GpioChips>,
    hold: Mutex<Hold>,
}

#[derive(Default)]
struct Hold {
    line: Option<Box<dyn HeldLine>>,
    /// The label that the chip had when it was first found by its number.
    label: Option<String>,
}

impl GpioSign {
    /// The line `wanted`, through the kernel's character devices. Whether it is there is asked each time.
    pub fn new(wanted: GpioLine) -> Self {
        Self::over(wanted, CharacterDevice)
    }

    /// The same over chips of somebody else's making.
    pub fn over(wanted: GpioLine, chips: impl GpioChips + 'static) -> Self {
        Self { shared: Arc::new(Shared { wanted, chips: Box::new(chips), hold: Mutex::default() }) }
    }

    /// Runs `work` where it may block: some chips hang on a slow bus.
    fn apart(&self, work: fn(&Shared) -> Result<(), GpioFault>) -> BoxFuture<'static, Result<(), SignFault>> {
        let (shared, sign) = (Arc::clone(&self.shared), self.name());
        async move {
            let done = tokio::task::spawn_blocking(move || work(&shared)).await;
            let fault = match done {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(fault)) => fault,
                Err(error) => GpioFault::Driver(error.to_string()),
            };
            Err(into_sign_fault(sign, &fault))
        }
        .boxed()
    }
}

/// A line that is not there, or not ours, never was lit by us; everything else did not obey.
fn into_sign_fault(sign: String, fault: &GpioFault) -> SignFault {
    let reason = fault.to_string();
    match fault {
        GpioFault::Missing(_) | GpioFault::Ambiguous(_) | GpioFault::Forbidden(_) | GpioFault::Held(_) => {
            SignFault::NotReady { sign, reason }
        }
        GpioFault::Disobeyed(_) | GpioFault::Driver(_) => SignFault::Unconfirmed { sign, reason },
    }
}

impl Shared {
    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn light(&self) -> Result<(), GpioFault> {
        self.turn(&mut self.hold(), true)
    }

    fn dark(&self) -> Result<(), GpioFault> {
        self.turn(&mut self.hold(), false)
    }

    fn check(&self) -> Result<(), GpioFault> {
        let hold = &mut *self.hold();
        let Some(line) = &hold.line else { return Err(GpioFault::Driver("it is off".to_owned())) };
        match line.lit() {
            Ok(true) => Ok(()),
            Ok(false) => Err(GpioFault::Disobeyed(true)),
            Err(fault) => Err(self.lost(hold, fault)),
        }
    }

    fn turn(&self, hold: &mut Hold, lit: bool) -> Result<(), GpioFault> {
        let line = match hold.line.take() {
            Some(line) => line,
            None => self.take(hold, lit)?,
        };
        match line.set(lit).and_then(|()| line.lit()) {
            Ok(read) => {
                hold.line = Some(line);
                if read == lit { Ok(()) } else { Err(GpioFault::Disobeyed(lit)) }
            }
            Err(fault) => {
                drop(line);
                Err(self.lost(hold, fault))
            }
        }
    }

    /// Gives a line back that failed, and says whether it is there at all.
    fn lost(&self, hold: &mut Hold, fault: GpioFault) -> GpioFault {
        hold.line = None;
        match self.find(hold) {
            Err(missing @ GpioFault::Missing(_)) => missing,
            Ok(_) | Err(_) => fault,
        }
    }

    fn find(&self, hold: &Hold) -> Result<Found, GpioFault> {
        locate(&self.wanted, &self.chips.chips()?, hold.label.as_deref())
    }

    fn take(&self, hold: &mut Hold, lit: bool) -> Result<Box<dyn HeldLine>, GpioFault> {
        let found = self.find(hold)?;
        if let Some(holder) = found.used_by {
            return Err(GpioFault::Held(holder));
        }
        let line = self.chips.take(&found.chip, found.offset, &self.wanted, lit)?;
        hold.label = Some(found.label);
        Ok(line)
    }

    fn ready(&self) -> Result<(), GpioFault> {
        let hold = match self.hold.try_lock() {
            Ok(hold) => hold,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody lights, checks or darkens it at this moment, and will say how that went.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if hold.line.is_some() {
            // It was there when it was last asked, or it would have been given back. Reading it may hang on a slow bus, and this is
            // called where nothing may block.
            return Ok(());
        }
        // The kernel answers from its own tables; no chip is asked.
        self.find(&hold)?.used_by.map_or(Ok(()), |holder| Err(GpioFault::Held(holder)))
    }
}

/// Where the wanted line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    chip: String,
    label: String,
    offset: u32,
    used_by: Option<String>,
}

/// Finds the one line that is meant. A chip that was known by its number is still the one with the label it had then.
fn locate(wanted: &GpioLine, chips: &[GpioChip], label: Option<&str>) -> Result<Found, GpioFault> {
    let meant: Vec<&GpioChip> = chips.iter().filter(|chip| meant(wanted, chip)).collect();
    if let (Some(name), [one]) = (wanted.chip(), meant.as_slice())
        && let Some(label) = label.filter(|label| **label != one.label && one.lines.is_ok())
    {
        return Err(GpioFault::Missing(format!("{name} is another chip now, {} and not {label}", one.label)));
    }
    let mut found = Vec::new();
    let mut unseen = None;
    for chip in &meant {
        let lines = match &chip.lines {
            Ok(lines) => lines,
            Err(fault) => {
                unseen = unseen.or_else(|| Some(fault.clone()));
                continue;
            }
        };
        found.extend(lines.iter().filter(|line| fits(wanted.line(), line)).map(|line| (*chip, line)));
    }
    match (found.as_slice(), unseen) {
        ([(chip, line)], _) => Ok(Found {
            chip: chip.name.clone(),
            label: chip.label.clone(),
            offset: line.offset,
            used_by: line.used_by.clone(),
        }),
        ([], Some(fault)) => Err(fault),
        ([], None) => Err(GpioFault::Missing(missing(wanted, &meant, chips.len()))),
        (several, _) => {
            let places: Vec<String> =
                several.iter().map(|(chip, line)| format!("{}/{}", chip.name, line.offset)).collect();
            Err(GpioFault::Ambiguous(format!("that could be each of {}; name chip and line", places.join(", "))))
        }
    }
}

/// Whether a chip may hold the wanted line. The label of one that cannot be opened is not known.
fn meant(wanted: &GpioLine, chip: &GpioChip) -> bool {
    match wanted.chip() {
        None => true,
        Some(name) => chip.name == name || chip.label == name || (chip.lines.is_err() && !is_number(name)),
    }
}

fn is_number(chip: &str) -> bool {
    chip.strip_prefix("gpiochip").is_some_and(|rest| rest.parse::<u32>().is_ok())
}

fn fits(wanted: &LineName, line: &GpioChipLine) -> bool {
    match wanted {
        LineName::Offset(offset) => line.offset == *offset,
        LineName::Named(name) => line.name == *name,
    }
}

fn missing(wanted: &GpioLine, meant: &[&GpioChip], chips: usize) -> String {
    let line = match wanted.line() {
        LineName::Offset(offset) => offset.to_string(),
        LineName::Named(name) => name.clone(),
    };
    match (wanted.chip(), meant, chips) {
        (_, _, 0) => "there is no GPIO chip on this device".to_owned(),
        (Some(chip), [], _) => format!("there is no GPIO chip {chip}"),
        (Some(chip), _, _) => format!("the GPIO chip {chip} has no line {line}"),
        (None, _, _) => format!("no GPIO chip has a line {line}"),
    }
}

impl SignBackend for GpioSign {
    fn name(&self) -> String {
        format!("GPIO {}", self.shared.wanted)
    }

    fn simulated(&self) -> bool {
        false
    }

    fn carrier(&self) -> Option<SignCarrier> {
        Some(SignCarrier::Gpio)
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.apart(Shared::light)
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.apart(Shared::check)
    }

    fn ready(&self) -> Result<(), SignFault> {
        let sign = self.name();
        self.shared.ready().map_err(|fault| SignFault::NotReady { sign, reason: fault.to_string() })
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.apart(Shared::dark)
    }
}
