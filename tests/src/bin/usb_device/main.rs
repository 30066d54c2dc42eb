//! `usb_device webcam …` or `usb_device sound-card …`: plugs a device on USB into this computer.
//!
//! The kernel's own drivers do the rest: the device is behind the virtual host controller `vhci-hcd`, so what a program meets is
//! `uvcvideo` or `snd-usb-audio`, and a device that it cannot tell from one of plastic. Says one line once the kernel has made of it what
//! programs use; pulled out when its standard input ends. Only for the virtual machine of the tests.

#![allow(clippy::print_stdout, reason = "its line is its result")]
#![allow(clippy::disallowed_methods, reason = "a device keeps its own time, and the kernel is polled")]

mod about;
mod sound_card;
mod usbip;
mod webcam;

use std::{
    env,
    io::{Read as _, stdin},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};

/// The kernel knows a device within a second; the machine is slow.
const KNOWN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let mut words = env::args().skip(1);
    match words.next().as_deref() {
        Some("webcam") => webcam::run(words),
        Some("sound-card") => sound_card::run(words),
        _ => bail!("usage: usb_device {} | {}", webcam::USAGE, sound_card::USAGE),
    }
}

/// Says in a thread of its own what the kernel made of the device, as soon as it has.
fn announce(made: impl Fn() -> Option<String> + Send + 'static) {
    thread::spawn(move || match wait_for("the kernel made nothing of the device", made) {
        Ok(line) => println!("{line}"),
        Err(error) => println!("FAILED: {error:#}"),
    });
}

/// Closes when standard input ends, which is how a device is pulled out.
fn end_of_input() -> Receiver<()> {
    let (held, closed) = mpsc::channel();
    thread::spawn(move || {
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        drop(held);
    });
    closed
}

fn wait_for<T>(what: &'static str, look: impl Fn() -> Option<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(began.elapsed() < KNOWN, "{what}");
        thread::sleep(POLL);
    }
}
