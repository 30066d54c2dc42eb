//! The sign on an LED of the system.
//!
//! Lit by writing the LED's full brightness, after its trigger was set to none so that the kernel does not blink it; confirmed by
//! reading both back. It is found anew by its name each time, so one that is pulled out and plugged in again is the sign again, and no
//! other takes its place: the kernel deals the names of USB lights anew, so that a name is held against the light that had it first. Two
//! lights of one model without serial numbers are the same to it, as they are to the kernel.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use config::SignCarrier;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use wire::text::visible;

use super::{SignBackend, SignFault};

/// Where the system shows its LEDs.
pub const LEDS: &str = "/sys/class/leds";
/// The kernel's files here hold one number or one page of words.
const FILE_BYTES_MAX: usize = 16 * 1024;

/// What the kernel tells of the device behind an LED that stays the same wherever and whenever it is plugged in: USB and HID devices,
/// input devices, and what the board's description names. Its port and its number do not count.
const LASTING: [&str; 8] = ["HID_ID", "HID_NAME", "HID_UNIQ", "PRODUCT", "NAME", "UNIQ", "OF_FULLNAME", "MODALIAS"];

/// An LED that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLed {
    /// Its name, as `sign.led` takes it.
    pub name: String,
    /// Why it cannot be the sign.
    pub problem: Option<String>,
}

/// The LEDs under `root` (in earnest, [`LEDS`]), by name.
pub fn leds(root: &Path) -> Vec<FoundLed> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let found = names.into_iter().filter_map(|name| {
        let led = LedSign::new(root, &name).ok()?;
        let problem = led.usable().err().map(|fault| fault.to_string());
        Some(FoundLed { name, problem })
    });
    found.collect()
}

/// An LED under [`LEDS`].
#[derive(Debug, Clone)]
pub struct LedSign {
    folder: PathBuf,
    name: String,
    /// The device that this LED belonged to when it was first told to shine or to go dark, which a device does as it starts.
    first: Arc<OnceLock<Bearer>>,
    /// The life of an LED of this name that was found to be another one's, and whose.
    other: Arc<Mutex<Option<(u64, Bearer)>>>,
}

/// The device that an LED belongs to: lines such as `HID_UNIQ=0042`. No line for an LED that the kernel tells nothing of; all of those are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bearer(Vec<String>);

impl Bearer {
    fn of_uevent(text: &str) -> Self {
        let lasting = |line: &&str| line.split_once('=').is_some_and(|(key, _)| LASTING.contains(&key));
        Self(text.lines().filter(lasting).map(str::to_owned).collect())
    }

    fn told(&self, keys: &[&str]) -> Option<&str> {
        let fields = self.0.iter().filter_map(|line| line.split_once('='));
        let mut values = fields.filter(|(key, _)| keys.contains(key)).map(|(_, value)| value.trim_matches('"'));
        values.find(|value| !value.is_empty())
    }
}

impl fmt::Display for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.told(&["HID_NAME", "NAME", "OF_FULLNAME"]).unwrap_or("a device without a name");
        f.write_str(&visible(name))?;
        match self.told(&["HID_UNIQ", "UNIQ"]) {
            Some(serial) => write!(f, ", serial number {}", visible(serial)),
            None => Ok(()),
        }
    }
}

/// Why an LED did not do what it was told.
#[derive(Debug, thiserror::Error)]
enum LedFault {
    #[error("{}", explain(.0))]
    Kernel(#[from] io::Error),
    #[error("another light has its name now: {0}; if that one is to be the sign, restart latchkeyd")]
    Another(Bearer),
}

impl LedFault {
    /// Whether the LED that is meant is not there.
    fn absent(&self) -> bool {
        match self {
            Self::Kernel(error) => absent(error),
            Self::Another(_) => true,
        }
    }
}

impl LedSign {
    /// The LED `name` under `root` (in earnest, [`LEDS`]).
    ///
    /// # Errors
    /// [`SignFault::NotReady`] when `name` is not the name of one folder. Whether the LED is there is asked each time.
    pub fn new(root: impl Into<PathBuf>, name: &str) -> Result<Self, SignFault> {
        if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
            return Err(SignFault::NotReady {
                sign: format!("LED {name:?}"),
                reason: format!("that is not a name under {LEDS}"),
            });
        }
        Ok(Self { folder: root.into().join(name), name: name.to_owned(), first: Arc::default(), other: Arc::default() })
    }

    fn read(&self, file: &str) -> io::Result<String> {
        use io::Read as _;
        let mut bytes = Vec::new();
        let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
        fs::File::open(self.folder.join(file))?.take(limit).read_to_end(&mut bytes)?;
        // A device calls itself what it likes, and the kernel cuts names in the middle of a letter.
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn read_number(&self, file: &str) -> io::Result<u64> {
        let text = self.read(file)?;
        text.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{file} reads {text:?}")))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        use io::Write as _;
        // Never creates: a file that is not there is an LED that is not there.
        fs::OpenOptions::new().write(true).truncate(true).open(self.folder.join(file))?.write_all(text.as_bytes())
    }

    fn full(&self) -> io::Result<u64> {
        match self.read_number("max_brightness") {
            Ok(0) => Err(io::Error::other("its max_brightness is 0")),
            other => other,
        }
    }

    /// That the LED of this name is still the one that it was first. May wait: the kernel tells of a device when it has finished with it.
    fn same(&self) -> Result<(), LedFault> {
        let life = self.life()?;
        let told = match self.read("device/uevent") {
            Ok(text) => text,
            // Some LEDs have no device behind them.
            Err(error) if absent(&error) => String::new(),
            Err(error) => return Err(error.into()),
        };
        // One that went meanwhile has told nothing.
        self.full()?;
        let now = Bearer::of_uevent(&told);
        let same = *self.first.get_or_init(|| now.clone()) == now;
        *self.other() = (!same).then(|| (life, now.clone()));
        if same { Ok(()) } else { Err(LedFault::Another(now)) }
    }

    fn other(&self) -> MutexGuard<'_, Option<(u64, Bearer)>> {
        self.other.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other than the name, no LED that comes later has it: the kernel gives its folder a number of its own.
    fn life(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(fs::metadata(&self.folder)?.ino())
    }

    /// Whether it could be lit, as far as that is known without waiting; changes nothing.
    fn usable(&self) -> Result<(), LedFault> {
        let life = self.life()?;
        self.full()?;
        if let Some((_, bearer)) = self.other().as_ref().filter(|(other, _)| *other == life) {
            return Err(LedFault::Another(bearer.clone()));
        }
        Ok(writable(&self.folder.join("brightness"))?)
    }

    /// Takes the LED from whatever the kernel shows with it. LEDs without triggers have no such file.
    fn take_from_trigger(&self) -> io::Result<()> {
        match self.read("trigger") {
            Ok(triggers) if !free_of_trigger(&triggers) => self.write("trigger", "none"),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read_back(&self) -> Result<(), LedFault> {
        let (full, now) = (self.full()?, self.read_number("brightness")?);
        if now != full {
            return Err(io::Error::other(format!("its brightness reads {now} instead of {full}")).into());
        }
        match self.read("trigger") {
            Ok(triggers) if !free_of_trigger(&triggers) => {
                Err(io::Error::other("a trigger of the kernel drives it").into())
            }
            Ok(_) => self.same(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.same(),
            Err(error) => Err(error.into()),
        }
    }

    fn light_now(&self) -> Result<(), LedFault> {
        self.same()?;
        self.take_from_trigger()?;
        self.write("brightness", &self.full()?.to_string())?;
        self.read_back()
    }

    fn dark_now(&self) -> Result<(), LedFault> {
        // What cannot be told apart is darkened all the same; another's light is not ours to touch.
        if let Err(another @ LedFault::Another(_)) = self.same() {
            return Err(another);
        }
        self.write("brightness", "0")?;
        match self.read_number("brightness")? {
            0 => Ok(()),
            now => Err(io::Error::other(format!("its brightness still reads {now}")).into()),
        }
    }

    /// Runs `work` where it may block: some LEDs hang on a slow bus.
    fn apart(&self, work: fn(&Self) -> Result<(), LedFault>) -> BoxFuture<'static, Result<(), SignFault>> {
        let led = self.clone();
        let sign = self.name();
        async move {
            let done = tokio::task::spawn_blocking(move || work(&led)).await;
            match done {
                Ok(Ok(())) => Ok(()),
                Ok(Err(fault)) => {
                    let reason = fault.to_string();
                    Err(if fault.absent() {
                        SignFault::NotReady { sign, reason }
                    } else {
                        SignFault::Unconfirmed { sign, reason }
                    })
                }
                Err(error) => Err(SignFault::Unconfirmed { sign, reason: error.to_string() }),
            }
        }
        .boxed()
    }
}

/// The active trigger stands in brackets.
fn free_of_trigger(triggers: &str) -> bool {
    !triggers.contains('[') || triggers.contains("[none]")
}

/// Whether the LED is gone: its folder, or, under an open file, its device.
fn absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        _ if absent(error) => "there is no such LED".to_owned(),
        io::ErrorKind::PermissionDenied => "this program may not write to it".to_owned(),
        _ => error.to_string(),
    }
}

fn writable(file: &Path) -> io::Result<()> {
    rustix::fs::access(file, rustix::fs::Access::WRITE_OK).map_err(io::Error::from)
}

impl SignBackend for LedSign {
    fn name(&self) -> String {
        format!("LED {}", self.name)
    }

    fn simulated(&self) -> bool {
        false
    }

    fn carrier(&self) -> Option<SignCarrier> {
        Some(SignCarrier::Led)
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.apart(Self::light_now)
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.apart(Self::read_back)
    }

    fn ready(&self) -> Result<(), SignFault> {
        self.usable().map_err(|fault| SignFault::NotReady { sign: self.name(), reason: fault.to_string() })
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.apart(Self::dark_now)
    }
}
