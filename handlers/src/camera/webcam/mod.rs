//! The Video4Linux adapter against the kernel's own driver for USB webcams, `uvcvideo`, and a webcam that sends any bytes that it is given
//! (`tests/src/bin/usb_device`). `make test-vm` runs these in a throw-away machine (`scripts/test-vm.sh`); elsewhere they are ignored.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::vivid::{SMALL, handles, named, picture, picture_within, shows, wait_until};
use super::{CameraFault, CaptureLimits};
use crate::picture::jpeg;

mod frames;
mod plug;

/// The kernel's switch between handing over frames that it knows to be damaged, marked, and dropping them; kernels differ in how it stands.
const HANDS_OVER: &str = "/sys/module/uvcvideo/parameters/nodrop";

/// A webcam in this machine's USB port until it is dropped.
struct Webcam {
    folder: tempfile::TempDir,
    process: Child,
    /// The device node of its pictures.
    node: String,
    /// The node beside it, which gives the driver's words about each picture.
    metadata: String,
}

impl Webcam {
    /// With the words of the program that is one: form, size, serial number.
    fn plug_in(words: &[&str], frames: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in frames {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let mut command = Command::new("usb_device");
        command.arg("webcam").arg(folder.path()).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let nodes: Vec<&str> = line.split_whitespace().collect();
        let [node, metadata] = nodes.as_slice() else { panic!("the webcam says: {line}") };
        Self { node: (*node).to_owned(), metadata: (*metadata).to_owned(), folder, process }
    }

    /// One that sends Motion JPEG.
    fn of(frames: &[(&str, &[u8])]) -> Self {
        Self::plug_in(&[], frames)
    }

    fn picture(&self) -> Result<Vec<u8>, CameraFault> {
        picture(&named(&self.node))
    }
}

impl Drop for Webcam {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends once the kernel has let go of the device.
        let ended = self.process.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// A picture of one colour.
fn plain(colour: [u8; 3]) -> Vec<u8> {
    let pixels = usize::try_from(SMALL.pixels()).unwrap();
    jpeg::encode(colour.repeat(pixels), SMALL.width, SMALL.height, usize::MAX).unwrap()
}
