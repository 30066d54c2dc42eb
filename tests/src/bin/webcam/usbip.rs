//! USB as the kernel's virtual host controller speaks it over a socket: requests for the device in, answers out.
//!
//! The bytes are those of the kernel's documentation, "USB/IP protocol": heads of 48 bytes, numbers with the biggest part first. Whoever
//! speaks them has been a device since [`Line::plug_in`]; when [`Line`] is dropped the device is unplugged.

use std::{
    fs,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    sync::mpsc::{self, Receiver},
    thread,
};

use anyhow::{Context, Result, bail};

/// The controller and its files `status`, `attach` and `detach`.
const CONTROLLER: &str = "/sys/devices/platform/vhci_hcd.0";
/// A port of it for devices of up to 480 Mbit/s, and its state when nothing is plugged into it.
const PORT_KIND: &str = "hs";
const PORT_FREE: &str = "004";
/// `USB_SPEED_HIGH` of the kernel.
const SPEED_HIGH: u32 = 3;
/// Which device of the other computer this is; there is one.
const DEVICE: u32 = 1;

const HEAD_BYTES: usize = 48;
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
    /// An earlier request is not wanted any more.
    Withdraw { number: u32, earlier: u32 },
}

/// How a request ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Bytes(Vec<u8>),
    /// The device does not do this.
    Stall,
}

/// The plugged-in cable.
pub(crate) struct Line {
    port: String,
    socket: UnixStream,
    pub(crate) requests: Receiver<Request>,
}

impl Line {
    /// Plugs a device into the first free port.
    pub(crate) fn plug_in() -> Result<Self> {
        let (ours, kernels) = UnixStream::pair()?;
        let status = fs::read_to_string(Path::new(CONTROLLER).join("status"))
            .context("this kernel has no virtual USB controller; load the module vhci-hcd")?;
        let port = free_port(&status).context("no USB port is free")?.to_owned();
        let wanted = format!("{port} {} {DEVICE} {SPEED_HIGH}", kernels.as_raw_fd());
        fs::write(Path::new(CONTROLLER).join("attach"), wanted).context("plugging in")?;
        let (sender, requests) = mpsc::channel();
        thread::spawn({
            let mut socket = ours.try_clone()?;
            // Ends when the cable is pulled out, or the other end of the channel is gone.
            move || while next(&mut socket).is_ok_and(|request| sender.send(request).is_ok()) {}
        });
        Ok(Self { port, socket: ours, requests })
    }

    pub(crate) fn answer(&mut self, number: u32, answer: &Answer) -> Result<()> {
        let (status, bytes): (i32, &[u8]) = match answer {
            Answer::Bytes(bytes) => (0, bytes),
            Answer::Stall => (STALLED, &[]),
        };
        self.submitted(number, status, bytes.len(), bytes)
    }

    /// The host's bytes were taken.
    pub(crate) fn taken(&mut self, number: u32, length: usize) -> Result<()> {
        self.submitted(number, 0, length, &[])
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
        let _ = fs::write(Path::new(CONTROLLER).join("detach"), &self.port);
    }
}

fn free_port(status: &str) -> Option<&str> {
    status.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (kind, port, state) = (words.next()?, words.next()?, words.next()?);
        (kind == PORT_KIND && state == PORT_FREE).then_some(port)
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
    let word = |index: usize| {
        let bytes = head.get(4 * index..4 * index + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    let (command, number, direction, endpoint) = (word(0), word(1), word(3), word(4));
    if command == UNLINK {
        return Ok(Request::Withdraw { number, earlier: word(5) });
    }
    let room = usize::try_from(word(6))?;
    if command != SUBMIT || room > TRANSFER_BYTES_MAX {
        bail!("the kernel said something unknown: {head:?}");
    }
    if endpoint != 0 {
        return Ok(Request::Read { number, room });
    }
    let setup = head.last_chunk().copied().unwrap_or_default();
    let mut data = Vec::new();
    if direction != TO_HOST {
        data.resize(room, 0);
        socket.read_exact(&mut data)?;
    }
    Ok(Request::Control { number, setup, data, room })
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
    fn an_answer_has_a_head_of_48_bytes_with_its_length_in_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_, requests) = mpsc::channel();
        let mut line = Line { port: "none".to_owned(), socket: ours, requests };
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
