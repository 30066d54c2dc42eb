//! A USB webcam that the keeper chose by its name: it sends pictures without Huffman tables, is pulled out, and comes back.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{
    DEVICE, camera::Colour, kernel::Kernel, led::Led, order, picture, programs::Daemon, programs::Device, said,
    settings,
};

/// Where udev puts links with lasting names; the machine has no udev, and the test makes them.
const NAMES: &str = "/dev/v4l/by-id";
const NAME: &str = "usb-Latchkey_Test_webcam_0001-video-index0";
const METADATA: &str = "usb-Latchkey_Test_webcam_0001-video-index1";

/// A webcam in a USB port of this machine, with its links.
struct Webcam {
    process: Child,
    links: [PathBuf; 2],
}

impl Webcam {
    /// One that sends the files of a folder.
    fn plug_in(folder: &Path) -> Result<Self> {
        let mut command = Command::new("usb_device");
        let mut process = command.arg("webcam").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line)?;
        let (pictures, metadata) = line.trim().split_once(' ').with_context(|| format!("the webcam says: {line}"))?;
        fs::create_dir_all(NAMES)?;
        let links = [NAME, METADATA].map(|name| Path::new(NAMES).join(name));
        for (link, node) in links.iter().zip([pictures, metadata]) {
            symlink(node, link)?;
        }
        Ok(Self { process, links })
    }

    fn pull_out(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let ended = self.process.wait()?;
        ensure!(ended.success(), "the webcam ended with {ended}");
        for link in &self.links {
            fs::remove_file(link)?;
        }
        Ok(())
    }
}

/// The device takes the webcam instead of its other camera, by its name, loses it, and gets it back. The pictures that the webcam sends
/// are those of two colours that were taken before.
pub(crate) fn by_its_name(
    device: &Device,
    daemon: &Daemon,
    kernel: &Kernel,
    led: &Led,
    colours: [Colour; 2],
) -> Result<()> {
    let running = daemon.holds()?.pid;
    let folder = device.file("webcam");
    fs::create_dir_all(&folder)?;
    let send = |colour: Colour| -> Result<()> {
        let taken = fs::read(device.file(&format!("{}.jpg", colour.name())))?;
        let bare = picture::without_tables(&taken).context("a picture whose parts are not as they should be")?;
        ensure!(picture::middle(&bare).is_err(), "a picture without tables opens all the same");
        Ok(fs::write(folder.join("1.jpg"), bare)?)
    };
    let [first, second] = colours;
    send(first)?;
    let webcam = Webcam::plug_in(&folder)?;
    said("a USB webcam that leaves out Huffman tables is plugged in");
    let chosen = settings(led.name(), NAME);
    device.change_settings(&chosen)?;
    shows(device, kernel, led, first)?;

    webcam.pull_out()?;
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let lit = led.changes().len();
    let refused = device.latchkey(&["call", DEVICE, "camera.snapshot", "--json"])?;
    ensure!(refused.text().contains("hardware_unavailable"), "without its webcam: {}", refused.text());
    // The sign comes first, whatever is found of the camera.
    order::lighting(led, lit)?;
    said("with the webcam pulled out there is no picture, though another camera is there: hardware_unavailable");

    send(second)?;
    let webcam = Webcam::plug_in(&folder)?;
    shows(device, kernel, led, second)?;
    ensure!(daemon.holds()?.pid == running, "the device was restarted");
    said("the webcam is back, and so is its picture, without a restart");
    device.change_settings(&settings(led.name(), crate::CAMERA))?;
    webcam.pull_out()
}

fn shows(device: &Device, kernel: &Kernel, led: &Led, colour: Colour) -> Result<()> {
    const FILE: &str = "webcam.jpg";
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let before = led.changes().len();
    kernel.forget()?;
    device.snapshot(FILE)?.done("a picture is taken")?;
    let middle = picture::middle(&fs::read(device.file(FILE))?)?;
    ensure!(colour.is(middle), "the webcam sent {}, the picture shows {middle:?}", colour.name());
    fs::remove_file(device.file(FILE))?;
    let lighting = order::lighting(led, before)?;
    order::check(device, kernel, &lighting)?;
    said(&format!("it shows {}, with its tables put back", colour.name()));
    Ok(())
}
