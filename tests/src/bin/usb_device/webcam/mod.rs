//! `usb_device webcam FOLDER [mjpeg|yuyv] [WIDTHxHEIGHT] [SERIAL]`: a USB webcam that sends the files in FOLDER as its pictures, whatever
//! they are (`reel.rs` tells the order). Its line names the device nodes, the one of pictures first.

mod reel;
mod video;

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    reel::{Frame, Reel},
    video::Change,
};
use crate::{
    announce, end_of_input,
    usbip::{Answer, Line, Port, Request, Speed},
    wait_for,
};

pub(crate) const USAGE: &str = "webcam FOLDER [mjpeg|yuyv] [WIDTHxHEIGHT] [SERIAL]";
/// From frame to frame.
const PACE: Duration = Duration::from_nanos(video::INTERVAL as u64 * 100);
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

pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let folder = words.next().context(USAGE)?;
    let mut webcam = Webcam::plug_in(Look::from_words(words)?, Reel::new(Path::new(&folder)))?;
    let port = webcam.line.port.clone();
    announce({
        let port = port.clone();
        // One for pictures and one for what the kernel tells about them.
        move || Some(nodes(&port)).filter(|nodes| nodes.len() == 2).map(|nodes| nodes.join(" "))
    });
    webcam.run(&end_of_input())?;
    let nodes = nodes(&port);
    drop(webcam);
    let gone = || nodes.iter().all(|node| !Path::new(node).exists()).then_some(());
    wait_for("the kernel still knows the webcam", gone)
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
        let (line, due) = (Line::plug_in(Speed::High)?, Instant::now());
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
            // It has no endpoint for that.
            Request::Stream { number, .. } => self.line.answer(number, &Answer::Stall),
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
                let (answer, change) = video::control(&self.look, setup, &data);
                if change == Change::Begins {
                    (self.frames, self.sent) = (self.reel.stream()?.into(), 0);
                }
                self.line.answer_control(number, answer, &data, room)
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

/// The device nodes that are made of what is plugged in there, the one of pictures first.
fn nodes(port: &Port) -> Vec<String> {
    let index = |part: &Path| fs::read_to_string(part.join("index")).unwrap_or_default();
    let mut parts: Vec<PathBuf> = port.parts("video4linux");
    parts.sort_by_key(|part| index(part));
    let name = |part: &PathBuf| Some(format!("/dev/{}", part.file_name()?.to_string_lossy()));
    parts.iter().filter_map(name).filter(|node| Path::new(node).exists()).collect()
}
