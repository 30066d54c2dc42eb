//! USB as the kernel's virtual host controller speaks it over a socket: requests for the device in, answers out.
//!
//! The bytes are those of the kernel's documentation, "USB/IP protocol": heads of 48 bytes, numbers with the biggest part first. Whoever
//! speaks them has been a device since [`Line::plug_in`]; when [`Line`] is dropped the device is unplugged.

use std::{
    fs,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    thread,
};

use anyhow::{Context, Result, bail};

/// The controller and its files `status`, `attach` and `detach`.
const CONTROLLER: &str = "/sys/devices/platform/vhci_hcd.0";
/// A port of it for devices of up to 480 Mbit/s, its state when nothing is plugged into it, and when the kernel knows what is.
const PORT_KIND: &str = "hs";
const PORT_FREE: &str = "004";
const PORT_USED: &str = "006";
/// Where the kernel shows what is plugged in.
const DEVICES: &str = "/sys/bus/usb/devices";
/// Which device of the other computer this is; there is one.
const DEVICE: u32 = 1;

const HEAD_BYTES: usize = 48;
/// Behind a transfer of several packets: offset, length, length that was moved, and status of each.
const PACKET_BYTES: usize = 16;
const PACKETS_MAX: usize = 1024;
const SUBMIT: u32 = 1;
const UNLINK: u32 = 2;
const SUBMITTED: u32 = 3;
const UNLINKED: u32 = 4;
const TO_HOST: u32 = 1;
/// A driver moves no more in one transfer; anything above is not the kernel.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// `-EPIPE`, by which a device says that it does not know a request, and `-ECONNRESET`, the end of one that was withdrawn.
const STALLED: i32 = -32;
const WITHDRAWN: i32 = -104;

/// What the host wants.
#[derive(Debug)]
pub(crate) enum Request {
    /// A control transfer: what is asked, what comes with it, and how much of an answer is taken.
    Control { number: u32, setup: [u8; 8], data: Vec<u8>, room: usize },
    /// The endpoint's next bytes.
    Read { number: u32, room: usize },
    /// Packets that keep time, one in each millisecond at full speed; to the host, or with what they carry.
    Stream { number: u32, packets: Vec<Packet>, data: Option<Vec<u8>> },
    /// An earlier request is not wanted any more.
    Withdraw { number: u32, earlier: u32 },
}

/// A part of a transfer that keeps time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    offset: u32,
    pub(crate) length: u32,
}

impl Packet {
    /// What of the transfer's bytes it carries.
    pub(crate) fn of<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        let (offset, length) = (self.offset as usize, self.length as usize);
        data.get(offset..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }
}

/// How fast the device talks, as the kernel numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speed {
    /// 12 Mbit/s.
    Full = 2,
    /// 480 Mbit/s.
    High = 3,
}

/// How a request ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Bytes(Vec<u8>),
    /// The device does not do this.
    Stall,
}

/// Where the cable is plugged in.
#[derive(Debug, Clone)]
pub(crate) struct Port(String);

impl Port {
    /// What the kernel made of the device's interfaces that is of a class of its: a folder of sysfs for each.
    pub(crate) fn parts(&self, class: &str) -> Vec<PathBuf> {
        let status = fs::read_to_string(Path::new(CONTROLLER).join("status")).unwrap_or_default();
        let Some(name) = device_in(&status, &self.0) else { return Vec::new() };
        let folders = |path: &Path| -> Vec<PathBuf> {
            fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
        };
        let interfaces = folders(&Path::new(DEVICES).join(name));
        interfaces.iter().flat_map(|interface| folders(&interface.join(class))).collect()
    }
}

/// The plugged-in cable.
pub(crate) struct Line {
    pub(crate) port: Port,
    socket: UnixStream,
    pub(crate) requests: Receiver<Request>,
}

impl Line {
    /// Plugs a device into the first free port.
    pub(crate) fn plug_in(speed: Speed) -> Result<Self> {
        let (ours, kernels) = UnixStream::pair()?;
        let status = fs::read_to_string(Path::new(CONTROLLER).join("status"))
            .context("this kernel has no virtual USB controller; load the module vhci-hcd")?;
        let port = free_port(&status).context("no USB port is free")?.to_owned();
        let wanted = format!("{port} {} {DEVICE} {}", kernels.as_raw_fd(), speed as u32);
        fs::write(Path::new(CONTROLLER).join("attach"), wanted).context("plugging in")?;
        let (sender, requests) = mpsc::channel();
        thread::spawn({
            let mut socket = ours.try_clone()?;
            // Ends when the cable is pulled out, or the other end of the channel is gone.
            move || while next(&mut socket).is_ok_and(|request| sender.send(request).is_ok()) {}
        });
        Ok(Self { port: Port(port), socket: ours, requests })
    }

    pub(crate) fn answer(&mut self, number: u32, answer: &Answer) -> Result<()> {
        let (status, bytes): (i32, &[u8]) = match answer {
            Answer::Bytes(bytes) => (0, bytes),
            Answer::Stall => (STALLED, &[]),
        };
        self.submitted(number, status, bytes.len(), bytes)
    }

    /// Ends a control request that came with this data, or took so much of an answer.
    pub(crate) fn answer_control(&mut self, number: u32, answer: Answer, data: &[u8], room: usize) -> Result<()> {
        match answer {
            Answer::Bytes(_) if !data.is_empty() => self.submitted(number, 0, data.len(), &[]),
            Answer::Bytes(mut bytes) => {
                bytes.truncate(room);
                self.answer(number, &Answer::Bytes(bytes))
            }
            Answer::Stall => self.answer(number, &Answer::Stall),
        }
    }

    /// Ends a transfer of packets: all of them were taken, or each brings its piece.
    pub(crate) fn answer_stream(&mut self, number: u32, packets: &[Packet], pieces: Option<&[Vec<u8>]>) -> Result<()> {
        let mut lengths = packets.iter().map(|packet| packet.length).collect::<Vec<_>>();
        for (length, piece) in lengths.iter_mut().zip(pieces.unwrap_or_default()) {
            *length = u32::try_from(piece.len())?;
        }
        let (all, count) = (lengths.iter().sum::<u32>(), u32::try_from(packets.len())?);
        // Status, length, first frame, number of packets, number of errors.
        let mut answer = head(SUBMITTED, number, &[0, all, 0, count, 0].map(u32::to_be_bytes).concat()).to_vec();
        answer.extend(pieces.unwrap_or_default().concat());
        for (packet, length) in packets.iter().zip(lengths) {
            answer.extend([packet.offset, packet.length, length, 0].map(u32::to_be_bytes).concat());
        }
        self.socket.write_all(&answer).context("the cable is out")
    }

    fn submitted(&mut self, number: u32, status: i32, length: usize, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(length)?.to_be_bytes();
        let head = head(SUBMITTED, number, &[status.to_be_bytes(), length].concat());
        self.socket.write_all(&[&head, bytes].concat()).context("the cable is out")
    }

    /// Ends a request to withdraw; whether the earlier one was still open says whether it ends with this.
    pub(crate) fn withdrawn(&mut self, number: u32, was_open: bool) -> Result<()> {
        let status = if was_open { WITHDRAWN } else { 0 };
        self.socket.write_all(&head(UNLINKED, number, &status.to_be_bytes())).context("the cable is out")
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Fails only where the kernel has unplugged it already.
        let _ = fs::write(Path::new(CONTROLLER).join("detach"), &self.port.0);
    }
}

fn free_port(status: &str) -> Option<&str> {
    status.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (kind, port, state) = (words.next()?, words.next()?, words.next()?);
        (kind == PORT_KIND && state == PORT_FREE).then_some(port)
    })
}

/// What the kernel calls the device in a port, once it knows it.
fn device_in<'a>(status: &'a str, port: &str) -> Option<&'a str> {
    status.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (kind, number, state) = (words.next()?, words.next()?, words.next()?);
        (kind == PORT_KIND && number == port && state == PORT_USED).then(|| words.last())?
    })
}

fn head(command: u32, number: u32, rest: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    // Device, direction and endpoint stay 0 in answers.
    let bytes = [&command.to_be_bytes(), &number.to_be_bytes(), [0; 12].as_slice(), rest].concat();
    for (place, byte) in head.iter_mut().zip(bytes) {
        *place = byte;
    }
    head
}

fn next(socket: &mut impl Read) -> Result<Request> {
    let mut head = [0; HEAD_BYTES];
    socket.read_exact(&mut head)?;
    let word = |index: usize| word(&head, index);
    let (command, number, direction, endpoint) = (word(0), word(1), word(3), word(4));
    if command == UNLINK {
        return Ok(Request::Withdraw { number, earlier: word(5) });
    }
    let room = usize::try_from(word(6))?;
    if command != SUBMIT || room > TRANSFER_BYTES_MAX {
        bail!("the kernel said something unknown: {head:?}");
    }
    let mut take = |length: usize| -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        socket.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let count = usize::try_from(word(8))?;
    if endpoint != 0 && (1..=PACKETS_MAX).contains(&count) {
        let data = if direction == TO_HOST { None } else { Some(take(room)?) };
        let packets = take(count * PACKET_BYTES)?;
        return Ok(Request::Stream { number, packets: packets.chunks_exact(PACKET_BYTES).map(packet).collect(), data });
    }
    if endpoint != 0 {
        return Ok(Request::Read { number, room });
    }
    let setup = head.last_chunk().copied().unwrap_or_default();
    let data = if direction == TO_HOST { Vec::new() } else { take(room)? };
    Ok(Request::Control { number, setup, data, room })
}

fn packet(bytes: &[u8]) -> Packet {
    Packet { offset: word(bytes, 0), length: word(bytes, 1) }
}

/// The number at that place, of four bytes like each before it.
fn word(bytes: &[u8], index: usize) -> u32 {
    let bytes = bytes.get(4 * index..4 * index + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_of_the_right_kind_is_taken() {
        let status = "hub port sta spd dev      sockfd local_busid\nhs  0000 006 003 00000001 000003 1-1\n\
                      hs  0001 004 000 00000000 000000 0-0\nss  0008 004 000 00000000 000000 0-0\n";
        assert_eq!(free_port(status), Some("0001"));
        assert_eq!(free_port("hub port sta\nss  0008 004 000\n"), None);
        assert_eq!([device_in(status, "0000"), device_in(status, "0001")], [Some("1-1"), None]);
    }

    #[test]
    fn requests_are_read_as_the_kernel_writes_them() {
        let submit = |direction: u8, endpoint: u8, room: u8, setup: [u8; 8]| {
            let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, direction, 0, 0, 0, endpoint];
            bytes.extend([0, 0, 0, 0, 0, 0, 0, room, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(setup);
            bytes
        };
        let setup = [0x21, 1, 0, 1, 1, 0, 2, 0];
        let with_data = [submit(0, 0, 2, setup), vec![8, 9]].concat();
        match next(&mut with_data.as_slice()).unwrap() {
            Request::Control { number: 7, setup: asked, data, room: 2 } => {
                assert_eq!((asked, data), (setup, vec![8, 9]));
            }
            other => panic!("{other:?}"),
        }
        let read = next(&mut submit(1, 1, 64, [0; 8]).as_slice()).unwrap();
        assert!(matches!(read, Request::Read { number: 7, room: 64 }), "{read:?}");
        let mut unlink = submit(0, 0, 0, [0; 8]);
        *unlink.get_mut(3).unwrap() = 2;
        *unlink.get_mut(23).unwrap() = 5;
        let withdraw = next(&mut unlink.as_slice()).unwrap();
        assert!(matches!(withdraw, Request::Withdraw { number: 7, earlier: 5 }), "{withdraw:?}");
        assert!(next(&mut with_data.get(..40).unwrap()).is_err(), "cut off");
    }

    #[test]
    fn packets_are_read_behind_what_they_carry_and_answered_one_by_one() {
        let head = [SUBMIT, 7, 1, 0, 1, 0, 6, 0, 2, 1, 0, 0].map(u32::to_be_bytes).concat();
        let packets = [0, 4, 0, 0, 4, 2, 0, 0].map(u32::to_be_bytes).concat();
        let asked = [head, vec![1, 2, 3, 4, 5, 6], packets].concat();
        let Request::Stream { number: 7, packets, data: Some(data) } = next(&mut asked.as_slice()).unwrap() else {
            panic!("another request")
        };
        let carried: Vec<&[u8]> = packets.iter().map(|packet| packet.of(&data)).collect();
        assert_eq!(carried, [[1, 2, 3, 4].as_slice(), &[5, 6]]);
        assert!(next(&mut asked.get(..asked.len() - 1).unwrap()).is_err(), "cut off");
        assert_eq!(Packet { offset: 4, length: 9 }.of(&data), [], "beyond the transfer");

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_, requests) = mpsc::channel();
        let mut line = Line { port: Port("none".to_owned()), socket: ours, requests };
        line.answer_stream(7, &packets, Some(&[vec![9, 9], vec![8]])).unwrap();
        let mut said = [0; HEAD_BYTES + 3 + 2 * PACKET_BYTES];
        theirs.read_exact(&mut said).unwrap();
        assert_eq!([0, 1, 5, 6, 8].map(|index| word(&said, index)), [SUBMITTED, 7, 0, 3, 2]);
        assert_eq!(said.get(48..51).unwrap(), [9, 9, 8]);
        let told: Vec<u32> = (0..8).map(|index| word(said.get(51..).unwrap(), index)).collect();
        assert_eq!(told, [0, 4, 2, 0, 4, 2, 1, 0]);
    }

    #[test]
    fn an_answer_has_a_head_of_48_bytes_with_its_length_in_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_, requests) = mpsc::channel();
        let mut line = Line { port: Port("none".to_owned()), socket: ours, requests };
        line.answer(9, &Answer::Bytes(vec![1, 2, 3])).unwrap();
        line.answer(10, &Answer::Stall).unwrap();
        line.withdrawn(11, true).unwrap();
        let mut said = [0; 3 * HEAD_BYTES + 3];
        theirs.read_exact(&mut said).unwrap();
        assert_eq!(said.get(..8).unwrap(), [0, 0, 0, 3, 0, 0, 0, 9]);
        assert_eq!(said.get(20..28).unwrap(), [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(said.get(48..51).unwrap(), [1, 2, 3]);
        assert_eq!(said.get(71..75).unwrap(), STALLED.to_be_bytes());
        assert_eq!(said.get(99..107).unwrap(), [0, 0, 0, 4, 0, 0, 0, 11]);
        assert_eq!(said.get(119..123).unwrap(), WITHDRAWN.to_be_bytes());
    }
}
