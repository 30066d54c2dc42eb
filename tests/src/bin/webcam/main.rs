//! `webcam FOLDER [mjpeg|yuyv] [WIDTHxHEIGHT] [SERIAL]`: plugs a USB webcam into this computer that sends the files in FOLDER as its
//! pictures, whatever they are (`reel.rs` tells the order).
//!
//! The kernel's own drivers do the rest: the webcam is a device of the USB Video Class behind the virtual host controller `vhci-hcd`, so
//! what a program meets is `uvcvideo` and a camera that it cannot tell from one of plastic. Says one line with the device nodes once they are
//! there, the one of pictures first; pulled out when its standard input ends. Only for the virtual machine of the tests.

#![allow(clippy::print_stdout, reason = "its line is its result")]
#![allow(clippy::disallowed_methods, reason = "a webcam keeps its own time, and the kernel is polled")]

mod reel;
mod usbip;
mod uvc;

use std::{
    collections::VecDeque,
    env, fs,
    io::{Read as _, stdin},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use reel::{Frame, Reel};
use usbip::{Answer, Line, Request};
use uvc::Change;

const USB_DEVICES: &str = "/sys/bus/usb/devices";
/// The kernel knows a webcam within a second; the machine is slow.
const KNOWN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// From frame to frame.
const PACE: Duration = Duration::from_nanos(uvc::INTERVAL as u64 * 100);
/// A payload's head: its own length, then `END OF HEADER`, and by frame which of two turns it is, its last part, or a fault.
const PAYLOAD_HEAD_BYTES: usize = 2;
const END_OF_HEADER: u8 = 0x80;
const FAULT: u8 = 0x40;
const LAST: u8 = 0x02;

/// How pictures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Motion JPEG.
    Jpeg,
    /// Y U Y V.
    Pairs,
}

/// What the webcam says that it is.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) form: Form,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) serial: String,
}

impl Look {
    /// Room that a host keeps for one picture: two bytes for each pixel.
    pub(crate) fn picture_bytes_max(&self) -> u32 {
        2 * u32::from(self.width) * u32::from(self.height)
    }

    fn from_words(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let form = match words.next().as_deref() {
            None | Some("mjpeg") => Form::Jpeg,
            Some("yuyv") => Form::Pairs,
            Some(other) => bail!("{other} is neither mjpeg nor yuyv"),
        };
        let size = words.next().unwrap_or_else(|| "320x180".to_owned());
        let (width, height) = size.split_once('x').context("a size is written WIDTHxHEIGHT")?;
        let serial = words.next().unwrap_or_else(|| "0001".to_owned());
        ensure!(words.next().is_none(), "too many words");
        Ok(Self { form, width: width.parse()?, height: height.parse()?, serial })
    }
}

fn main() -> Result<()> {
    let mut words = env::args().skip(1);
    let folder = words.next().context("usage: webcam FOLDER [mjpeg|yuyv] [WIDTHxHEIGHT] [SERIAL]")?;
    let look = Look::from_words(words)?;
    let serial = look.serial.clone();
    let mut webcam = Webcam::plug_in(look, Reel::new(Path::new(&folder)))?;
    thread::spawn(move || match wait_for_nodes(&serial) {
        Ok(nodes) => println!("{}", nodes.join(" ")),
        Err(error) => println!("FAILED: {error:#}"),
    });
    webcam.run(&end_of_input())?;
    let nodes = nodes_of(&webcam.look.serial);
    drop(webcam);
    wait_until("the kernel still knows the webcam", || nodes.iter().all(|node| !Path::new(node).exists()))
}

/// Closes when standard input ends, which is how a webcam is pulled out.
fn end_of_input() -> Receiver<()> {
    let (held, closed) = mpsc::channel();
    thread::spawn(move || {
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        drop(held);
    });
    closed
}

struct Webcam {
    look: Look,
    line: Line,
    reel: Reel,
    /// Reads of the host that wait for bytes of a picture: number and room.
    reads: VecDeque<(u32, usize)>,
    /// What the running stream still sends; the last one again and again.
    frames: VecDeque<Frame>,
    /// How much of the first of them is sent.
    sent: usize,
    /// Changes from frame to frame.
    turn: u8,
    due: Instant,
}

impl Webcam {
    fn plug_in(look: Look, reel: Reel) -> Result<Self> {
        let (line, due) = (Line::plug_in()?, Instant::now());
        Ok(Self { look, line, reel, reads: VecDeque::new(), frames: VecDeque::new(), sent: 0, turn: 0, due })
    }

    /// Until it is pulled out, or `ended` closes.
    fn run(&mut self, ended: &Receiver<()>) -> Result<()> {
        while ended.try_recv() != Err(TryRecvError::Disconnected) {
            let wait = if self.reads.is_empty() { PACE } else { self.due.saturating_duration_since(Instant::now()) };
            match self.line.requests.recv_timeout(wait.min(PACE)) {
                Ok(request) => self.take(request)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if Instant::now() >= self.due {
                self.send()?;
            }
        }
        Ok(())
    }

    fn take(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Read { number, room } => {
                self.reads.push_back((number, room));
                Ok(())
            }
            Request::Withdraw { number, earlier } => {
                let open = self.reads.len();
                self.reads.retain(|(waiting, _)| *waiting != earlier);
                self.line.withdrawn(number, self.reads.len() < open)
            }
            Request::Control { number, setup, data, room } => {
                let (answer, change) = uvc::control(&self.look, setup, &data);
                if change == Change::Begins {
                    (self.frames, self.sent) = (self.reel.stream()?.into(), 0);
                }
                match answer {
                    Answer::Bytes(_) if !data.is_empty() => self.line.taken(number, data.len()),
                    Answer::Bytes(mut bytes) => {
                        bytes.truncate(room);
                        self.line.answer(number, &Answer::Bytes(bytes))
                    }
                    Answer::Stall => self.line.answer(number, &Answer::Stall),
                }
            }
        }
    }

    /// Sends as much of the picture as the host has room for.
    fn send(&mut self) -> Result<()> {
        while let (Some(frame), Some((number, room))) = (self.frames.front(), self.reads.front().copied()) {
            if frame.stall {
                self.reads.pop_front();
                self.line.answer(number, &Answer::Stall)?;
                self.next();
                return Ok(());
            }
            let rest = frame.bytes.get(self.sent..).unwrap_or_default();
            // One byte less than there is room for: a transfer that is not full ends its payload.
            let part = rest.get(..room.saturating_sub(PAYLOAD_HEAD_BYTES + 1)).unwrap_or(rest);
            let last = part.len() == rest.len();
            let mut info = END_OF_HEADER | self.turn;
            info |= if last { LAST } else { 0 };
            info |= if frame.damaged { FAULT } else { 0 };
            let payload = [&[2, info], part].concat();
            self.sent += part.len();
            self.reads.pop_front();
            self.line.answer(number, &Answer::Bytes(payload))?;
            if last {
                self.next();
                return Ok(());
            }
        }
        Ok(())
    }

    fn next(&mut self) {
        if self.frames.len() > 1 {
            self.frames.pop_front();
        }
        (self.sent, self.turn, self.due) = (0, self.turn ^ 1, Instant::now() + PACE);
    }
}

/// The device nodes of the webcam with this serial number, the one of pictures first.
fn nodes_of(serial: &str) -> Vec<String> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let folders = |path: &Path| -> Vec<PathBuf> {
        fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let ours = folders(Path::new(USB_DEVICES)).into_iter().filter(|device| read(device.join("serial")) == serial);
    let interfaces = ours.flat_map(|device| folders(&device));
    let mut nodes: Vec<(String, PathBuf)> = interfaces
        .flat_map(|interface| folders(&interface.join("video4linux")))
        .map(|node| (read(node.join("index")), node))
        .collect();
    nodes.sort();
    let name = |node: PathBuf| Some(format!("/dev/{}", node.file_name()?.to_string_lossy()));
    nodes.into_iter().filter_map(|(_, node)| name(node)).collect()
}

fn wait_for_nodes(serial: &str) -> Result<Vec<String>> {
    // One for pictures and one for what the kernel tells about them.
    let here =
        || Some(nodes_of(serial)).filter(|nodes| nodes.len() == 2 && nodes.iter().all(|n| Path::new(n).exists()));
    wait_until("the kernel made no camera of the webcam", || here().is_some())?;
    here().context("the webcam went away again")
}

fn wait_until(what: &'static str, done: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !done() {
        ensure!(began.elapsed() < KNOWN, "{what}");
        thread::sleep(POLL);
    }
    Ok(())
}
