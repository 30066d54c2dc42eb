//! Hundreds of small snapshots, most of them with a fault of the camera at a random moment. Each ends with a whole picture of the right
//! colour or with a reason, and the device holds no more afterwards than before.

#![allow(clippy::disallowed_methods, reason = "a test of real programs waits in real time, and faults come at random")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    CAMERA, DEVICE, START,
    camera::{self, Colour, Failure},
    picture,
    plug::as_before,
    programs::{Daemon, Device, Running},
    said,
};

/// How many snapshots there are, if the machine is quick enough.
const SNAPSHOTS: u32 = 300;
/// No new one is begun after this.
const BUDGET: Duration = Duration::from_secs(40);
/// Even a loaded machine gets this far.
const SNAPSHOTS_MIN: u32 = 40;
/// So many come before what the device holds is looked at for the first time: it keeps a few things for the next call.
const WARM_UP: u32 = 10;
/// What its memory may have grown by at the end: pieces of the allocator, not pictures.
const GROWTH_MAX_KIB: u64 = 8 * 1024;
/// Longer than any call takes.
const ANSWER: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Repeats a run whose seed was printed.
struct Chance(u64);

impl Chance {
    fn new() -> Result<Self> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).context("no randomness")?;
        Ok(Self(u64::from_ne_bytes(seed) | 1))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// What goes wrong during one snapshot.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// Told to the camera before the snapshot begins.
    Before(Failure),
    /// Told to it while the snapshot runs.
    After(Duration, Failure),
    /// Another program has it.
    Busy,
    /// It is pulled out, and put back a moment later.
    PulledOut(Duration),
}

fn draw(chance: &mut Chance) -> Fault {
    let moment = Duration::from_millis(chance.below(300));
    match chance.below(20) {
        0 => Fault::Before(Failure::RefusesBuffers),
        1 => Fault::Before(Failure::RefusesABuffer),
        2 => Fault::Before(Failure::RefusesToStart),
        3 => Fault::Before(Failure::DropsFrames { percent: 50 }),
        4 | 5 => Fault::After(moment, Failure::Disconnects),
        6 | 7 => Fault::After(moment, Failure::DamagesAFrame),
        8 | 9 => Fault::After(moment, Failure::Stops),
        10 => Fault::Busy,
        11 => Fault::PulledOut(moment),
        _ => Fault::None,
    }
}

/// `controller_in_a_server`, which keeps the agent's key open, so that a snapshot costs one request.
struct Server {
    _running: Running,
    address: String,
}

impl Server {
    fn start(device: &Device) -> Result<Self> {
        let mut running = device.begin_beside("controller_in_a_server", &["127.0.0.1:0"])?;
        let began = Instant::now();
        loop {
            if let Some(address) = running.out().trim().strip_prefix("http://") {
                return Ok(Self { address: address.trim_end_matches('/').to_owned(), _running: running });
            }
            ensure!(!running.has_ended()? && began.elapsed() < START, "the server does not start: {}", running.out());
            thread::sleep(POLL);
        }
    }

    /// The picture, or why there is none.
    fn picture(&self) -> Result<Result<Vec<u8>, String>> {
        let mut line = TcpStream::connect(&self.address)?;
        line.set_read_timeout(Some(ANSWER))?;
        write!(line, "GET /{DEVICE}/picture.jpg HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut answer = Vec::new();
        line.read_to_end(&mut answer).context("no answer")?;
        let end =
            answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("an answer without an end of its head")?;
        let body = answer.split_off(end + 4);
        let head = String::from_utf8_lossy(&answer).into_owned();
        if head.starts_with("HTTP/1.1 200") {
            return Ok(Ok(body));
        }
        let reason = String::from_utf8_lossy(&body).trim().to_owned();
        ensure!(!reason.is_empty(), "refused without a reason: {head}");
        Ok(Err(reason))
    }
}

/// Takes them.
pub(crate) fn snapshots(device: &Device, daemon: &Daemon) -> Result<()> {
    let server = Server::start(device)?;
    let mut chance = Chance::new()?;
    let seed = chance.0;
    said(&format!("snapshots with random faults begin, seed {seed}"));
    let outcome = all_of_them(&server, daemon, &mut chance);
    outcome.with_context(|| format!("seed {seed}"))
}

fn all_of_them(server: &Server, daemon: &Daemon, chance: &mut Chance) -> Result<()> {
    let began = Instant::now();
    let (mut taken, mut pictures) = (0, 0);
    let mut before = daemon.holds()?;
    let mut colour = Colour::at_random(None)?;
    camera::show(Path::new(CAMERA), colour)?;
    while taken < SNAPSHOTS && (began.elapsed() < BUDGET || taken < SNAPSHOTS_MIN) {
        if taken == WARM_UP {
            before = daemon.holds()?;
        }
        if chance.below(10) == 0 {
            colour = Colour::at_random(Some(colour))?;
            camera::show(Path::new(CAMERA), colour)?;
        }
        let fault = draw(chance);
        match under(fault, server, colour).with_context(|| format!("snapshot {taken}, {fault:?}"))? {
            Ok(jpeg) => {
                let middle = picture::middle(&jpeg).with_context(|| format!("snapshot {taken}, {fault:?}"))?;
                ensure!(colour.is(middle), "snapshot {taken}, {fault:?}: {} was shown, {middle:?} came", colour.name());
                pictures += 1;
            }
            Err(reason) if matches!(fault, Fault::None) => {
                bail!("snapshot {taken}: no picture without a fault: {reason}")
            }
            Err(reason) => ensure!(reason.contains("camera"), "snapshot {taken}, {fault:?}: {reason}"),
        }
        taken += 1;
    }
    let took = began.elapsed().as_secs();
    let fewer = if taken < SNAPSHOTS { format!(" (of {SNAPSHOTS}; the time is up)") } else { String::new() };
    said(&format!(
        "{taken} snapshots{fewer} in {took} s: {pictures} pictures of the right colour, {} reasons, none broken",
        taken - pictures
    ));
    as_before(daemon, &before)?;
    let after = daemon.holds()?;
    ensure!(after.pid == before.pid, "the device is another process");
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    ensure!(grown <= GROWTH_MAX_KIB, "the device grew by {grown} KiB, from {} KiB", before.resident_kib);
    said(&format!("the device is the same process, and {grown} KiB larger than after {WARM_UP} of them"));
    Ok(())
}

fn under(fault: Fault, server: &Server, colour: Colour) -> Result<Result<Vec<u8>, String>> {
    let node = Path::new(CAMERA);
    match fault {
        Fault::None => server.picture(),
        Fault::Busy => {
            let _other = camera::occupy(node)?;
            server.picture()
        }
        Fault::Before(failure) => {
            camera::fail(node, failure)?;
            let outcome = server.picture();
            camera::fail(node, Failure::DropsFrames { percent: 0 })?;
            outcome
        }
        Fault::After(moment, failure) => meanwhile(server, || {
            thread::sleep(moment);
            camera::fail(node, failure)
        }),
        Fault::PulledOut(moment) => meanwhile(server, || {
            thread::sleep(moment);
            camera::pull_out()?;
            thread::sleep(moment);
            camera::put_back(node)?;
            camera::show(node, colour)
        }),
    }
}

fn meanwhile(server: &Server, fault: impl FnOnce() -> Result<()> + Send) -> Result<Result<Vec<u8>, String>> {
    thread::scope(|scope| {
        let fault = scope.spawn(fault);
        let outcome = server.picture();
        match fault.join() {
            Ok(done) => done?,
            Err(_) => bail!("the fault could not be made"),
        }
        outcome
    })
}
