//! A device that stops at one named point and waits there to be killed: `crash_device POINT CAPABILITY EFFECTS`.
//!
//! Everything in it is what `latchkeyd run --simulate` has, around a vault, a signer, a sign, a camera and a screen that know
//! where they are. Whatever the hardware did is written to the file EFFECTS, and is on disk, before anything else happens; the
//! crash tests compare the records with it.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "this is a main: it reads its arguments and environment and speaks to its parent"
)]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actors::store::{Durable, Head, OpenRow, OutcomeRow, Row};
use actors::{SqliteVault, Vault, VaultError};
use anyhow::{Context as _, Result};
use config::{Flags, Places, Settings, safe};
use handlers::camera::{CameraEvent, SimulatedCamera};
use handlers::{Clock as _, SimulatedSign, SystemClock};
use latchkey_tests::points::Point;
use runtime::lock::StateLock;
use runtime::{Device, DoorLimits, Options, Simulation, SocketLimits, SystemChance, key};
use wire::record::RecordKind;
use wire::{Domain, Id, PublicKey, Record, RecordHash, SecretKey, Signature, Signer};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().context("usage: crash_device POINT CAPABILITY EFFECTS");
    let point: Point = argument()?.parse().map_err(anyhow::Error::msg)?;
    let (capability, effects) = (argument()?, PathBuf::from(argument()?));
    let watch = Arc::new(Watch { point, capability, answering: AtomicBool::new(false) });
    let places = Places::find(Flags::default(), &|name| std::env::var_os(name), false)?;
    let sets = ["link.direct.listen=127.0.0.1:0", "keeper.listen=127.0.0.1:0"].map(str::to_owned);
    let settings = Settings::load(&places, &sets, std::iter::empty())?;
    safe::ensure_private_dir(&places.state_dir)?;
    let _lock = StateLock::take(&places.state_dir)?;
    let (key, _first) = key::read_or_make(&places.state_dir, &SystemChance)?;
    let opened = SqliteVault::open(&places.state_dir, key.public(), SystemClock.wall_ms())?;
    let options = Options {
        settings,
        state_dir: places.state_dir.clone(),
        signer: Arc::new(StoppingSigner { key, watch: Arc::clone(&watch) }),
        vault: Box::new(StoppingVault { inner: opened.vault, watch: Arc::clone(&watch), open: Transaction::default() }),
        notices: opened.notices,
        clock: Arc::new(SystemClock),
        zone: runtime::TimeZone::UTC,
        chance: Arc::new(SystemChance),
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
        simulation: Some(hardware(&watch, &effects)),
        door: DoorLimits::default(),
        socket: Some(SocketLimits::default()),
        reread: None,
        handlers: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    runtime.block_on(async {
        let running = Device::start(options).await?;
        println!("link {}", running.direct_addr);
        std::future::pending::<Result<()>>().await
    })
}

/// Where this device stops.
struct Watch {
    point: Point,
    capability: String,
    /// The end of the watched call is on disk, so the next answer is its.
    answering: AtomicBool,
}

impl Watch {
    fn reached(&self, point: Point) {
        if self.point == point {
            println!("at {point}");
            loop {
                std::thread::park();
            }
        }
    }
}

/// Hardware that writes down what it did before it goes on.
fn hardware(watch: &Arc<Watch>, effects: &Path) -> Simulation {
    let note = |effects: &Path| {
        let effects = effects.to_owned();
        move |what: &str| {
            let mut file = File::options().append(true).create(true).open(&effects)?;
            writeln!(file, "{what}").and_then(|()| file.sync_all())
        }
    };
    let (stop, noted) = (Arc::clone(watch), note(effects));
    let mut simulation = Simulation::new(move |line| {
        if line.starts_with("simulated screen:") {
            stop.reached(Point::HandlerBegun);
            drop(noted("shown"));
            stop.reached(Point::HandlerActed);
        }
    });
    let (stop, noted) = (Arc::clone(watch), note(effects));
    simulation.sign = SimulatedSign::new(move |lit| {
        if lit {
            drop(noted("sign on"));
            stop.reached(Point::SignLit);
        }
    });
    let (stop, noted) = (Arc::clone(watch), note(effects));
    simulation.camera = SimulatedCamera::with_listener(move |event| {
        if event == CameraEvent::Opened {
            stop.reached(Point::HandlerBegun);
            drop(noted("camera opened"));
            stop.reached(Point::HandlerActed);
        }
    });
    simulation
}

/// Signs with the device key, and knows when it signs the watched answer.
struct StoppingSigner {
    key: SecretKey,
    watch: Arc<Watch>,
}

impl Signer for StoppingSigner {
    fn public(&self) -> &PublicKey {
        self.key.public()
    }

    fn sign(&self, domain: Domain, message: &[u8]) -> Signature {
        if domain == Domain::Link && self.watch.answering.load(Ordering::SeqCst) {
            self.watch.reached(Point::BeforeAnswer);
        }
        self.key.sign(domain, message)
    }
}

/// What the open transaction holds of what is watched.
#[derive(Debug, Clone, Copy, Default)]
struct Transaction {
    started: bool,
    ended: bool,
    release: bool,
}

/// The vault of a real device that knows what it commits.
struct StoppingVault {
    inner: SqliteVault,
    watch: Arc<Watch>,
    open: Transaction,
}

impl Vault for StoppingVault {
    fn begin(&mut self) -> Result<(), VaultError> {
        self.open = Transaction::default();
        self.inner.begin()
    }

    fn append(&mut self, row: &Row, hash: &RecordHash) -> Result<(), VaultError> {
        self.inner.append(row, hash)?;
        let record = Record::from_cbor(&row.cbor).map_err(|error| VaultError::Damaged(error.to_string()))?;
        let what = record.what.as_deref().unwrap_or_default();
        match (record.kind, record.outcome.is_some()) {
            (RecordKind::Call, ended) if what == self.watch.capability => {
                self.open.started |= !ended;
                self.open.ended |= ended;
            }
            (RecordKind::Change, _) if what == "release.here" => {
                self.open.release = true;
                self.watch.reached(Point::ReleaseRecorded);
            }
            _ => {}
        }
        Ok(())
    }

    fn put_durable(&mut self, durable: &Durable) -> Result<(), VaultError> {
        self.inner.put_durable(durable)?;
        if self.open.release {
            self.watch.reached(Point::ReleaseState);
        }
        Ok(())
    }

    fn forget_outcomes(&mut self, ownership: u64, before_ms: u64) -> Result<(), VaultError> {
        self.inner.forget_outcomes(ownership, before_ms)?;
        if self.open.release {
            self.watch.reached(Point::ReleaseForgotten);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), VaultError> {
        let Transaction { started, ended, release } = self.open;
        let holds = [
            (started, Point::BeforeStarted, Point::AfterStarted),
            (ended, Point::BeforeEnd, Point::AfterEnd),
            (release, Point::BeforeRelease, Point::AfterRelease),
        ];
        for (_, before, _) in holds.iter().filter(|(held, ..)| *held) {
            self.watch.reached(*before);
        }
        self.inner.commit()?;
        for (_, _, after) in holds.iter().filter(|(held, ..)| *held) {
            self.watch.reached(*after);
        }
        if ended {
            self.watch.answering.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), VaultError> {
        self.inner.recover()
    }

    fn rollback(&mut self) {
        self.inner.rollback();
    }

    fn durable(&mut self) -> Result<Option<Durable>, VaultError> {
        self.inner.durable()
    }

    fn head(&mut self) -> Result<Option<Head>, VaultError> {
        self.inner.head()
    }

    fn rows(&mut self, after: u64, limit: u32) -> Result<Vec<Row>, VaultError> {
        self.inner.rows(after, limit)
    }

    fn outcome(&mut self, ownership: u64, id: &Id) -> Result<Option<OutcomeRow>, VaultError> {
        self.inner.outcome(ownership, id)
    }

    fn put_outcome(&mut self, ownership: u64, id: &Id, row: &OutcomeRow) -> Result<(), VaultError> {
        self.inner.put_outcome(ownership, id, row)
    }

    fn forget_outcome(&mut self, ownership: u64, id: &Id) -> Result<(), VaultError> {
        self.inner.forget_outcome(ownership, id)
    }

    fn put_open(&mut self, row: &OpenRow) -> Result<(), VaultError> {
        self.inner.put_open(row)
    }

    fn close(&mut self, sequence: u64) -> Result<(), VaultError> {
        self.inner.close(sequence)
    }

    fn open_calls(&mut self) -> Result<Vec<OpenRow>, VaultError> {
        self.inner.open_calls()
    }

    fn record_bytes(&mut self) -> Result<u64, VaultError> {
        self.inner.record_bytes()
    }

    fn first_since(&mut self, at_ms: u64) -> Result<Option<u64>, VaultError> {
        self.inner.first_since(at_ms)
    }

    fn prune(&mut self, before: u64) -> Result<(), VaultError> {
        self.inner.prune(before)
    }

    fn tidy(&mut self) -> Result<(), VaultError> {
        self.inner.tidy()
    }

    fn note_head(&mut self, head: &Head) -> Result<(), VaultError> {
        self.inner.note_head(head)
    }

    fn close_vault(&mut self) {
        self.inner.close_vault();
    }
}
