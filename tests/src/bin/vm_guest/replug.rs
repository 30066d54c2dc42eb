//! A USB light as the sign, which is pulled out, in the middle of a capture too, and comes back under its name; and other lights in its place.

#![allow(clippy::disallowed_methods, reason = "a test of real programs waits in real time, by polling them")]

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    CAMERA, DEVICE, START,
    camera::{self, Colour, Failure},
    kernel::{self, Kernel},
    picture,
    programs::{Daemon, Device},
    said, settings,
    shining::Shining,
    usb_light::{Model, UsbLight},
};

/// The serial number of the light that is the sign, and of another one of its model.
const SERIAL: &str = "0041";
const OTHER_SERIAL: &str = "0042";
/// The sign stays on for 3 s after it went on; the rest is slowness.
const DARK_AGAIN: Duration = Duration::from_secs(20);
/// How long a capture may outlive its sign, with room for the slow machine.
const CUT_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// From the start of a device with this sign to its stop.
pub(crate) fn usb_light(device: &Device, daemon: &mut Daemon, kernel: &Kernel) -> Result<()> {
    let light = UsbLight::plug_in(Model::Notifier, SERIAL)?;
    said(&format!("a USB light is plugged in; its red is /sys/class/leds/{}", Model::Notifier.red()));
    device.settle(&settings(Model::Notifier.red(), CAMERA))?;
    *daemon = device.start()?;
    daemon.wait_until_ready(device, START)?;
    let pid = daemon.holds()?.pid;
    picture_under(device, kernel, &light.shining)?;
    light.unplug()?;
    no_picture(device, "the light pulled out")?;
    others(device)?;
    let light = UsbLight::plug_in(Model::Notifier, SERIAL)?;
    picture_under(device, kernel, &light.shining)?;
    cut(device, daemon, &light.shining.clone(), || light.unplug())?;
    let light = UsbLight::plug_in(Model::Notifier, SERIAL)?;
    picture_under(device, kernel, &light.shining)?;
    ensure!(daemon.holds()?.pid == pid, "the device is another process");
    said("all of that without a restart of the device");
    daemon.stop()
}

/// A picture of a random colour, before which the light went on, and after which it went off.
pub(crate) fn picture_under(device: &Device, kernel: &Kernel, light: &Shining) -> Result<()> {
    let colour = Colour::at_random(None)?;
    camera::show(Path::new(CAMERA), colour)?;
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    ensure!(!light.now(), "the light is on before anything is asked");
    let before = light.count();
    kernel.forget()?;
    device.snapshot("under-usb.jpg")?.done("a picture is taken")?;
    let returned = kernel::now();
    let middle = picture::middle(&fs::read(device.file("under-usb.jpg")).context("the picture was not written")?)?;
    ensure!(colour.is(middle), "the camera showed {}, the picture shows {middle:?}", colour.name());
    fs::remove_file(device.file("under-usb.jpg"))?;
    let (on, off) = light.lighting(before, DARK_AGAIN)?;
    ensure!(on < returned, "the picture was back {:?} before the light was told to go on", on - returned);
    let seen = kernel.seen()?;
    let first = seen.opened.iter().min().context("the kernel saw no camera opened")?;
    let last = seen.closed.iter().max().context("the kernel saw no camera closed")?;
    ensure!(*last <= off, "a camera was closed {:?} after the light was told to go off", *last - off);
    let millis = |time: Duration| i64::try_from(time.as_millis());
    said(&format!(
        "it shows {}; the light itself was told to go on {} ms before the first handle was opened, and off {} ms after the last was closed",
        colour.name(),
        millis(*first)? - millis(on)?,
        millis(off)? - millis(*last)?
    ));
    Ok(())
}

/// A call that is refused for want of a sign.
pub(crate) fn no_picture(device: &Device, why: &str) -> Result<()> {
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let refused = device.latchkey(&["call", DEVICE, "camera.snapshot", "--json"])?;
    ensure!(refused.code() != Some(0), "{why}, and a picture: {}", refused.text());
    ensure!(refused.text().contains("hardware_unavailable"), "{why}: refused with another reason: {}", refused.text());
    ensure!(device.snapshot("unlit.jpg")?.code() != Some(0), "{why}, and a picture");
    ensure!(!device.file("unlit.jpg").exists(), "{why}: a refused picture left a file");
    said(&format!("{why}: no picture, hardware_unavailable"));
    Ok(())
}

/// Neither a light of another name nor another light of the same name is the sign.
fn others(device: &Device) -> Result<()> {
    for (model, serial, why) in [
        (Model::Flag, SERIAL, "a light of another model in its place"),
        (Model::Notifier, OTHER_SERIAL, "another light of its model, under its name, in its place"),
    ] {
        let other = UsbLight::plug_in(model, serial)?;
        no_picture(device, why)?;
        let doctor = device.latchkeyd(&["doctor", "sign"])?;
        ensure!(doctor.code() != Some(0), "the doctor takes it for the sign: {}", doctor.text());
        let word = if model == Model::Flag { "there is no such LED" } else { OTHER_SERIAL };
        ensure!(doctor.text().contains(word), "the doctor does not say {word:?}: {}", doctor.text());
        ensure!(other.shining.times_lit() == 0, "the other light was lit: {:?}", other.shining);
        other.unplug()?;
    }
    Ok(())
}

/// The light is pulled out while a capture waits for a frame.
pub(crate) fn cut(
    device: &Device,
    daemon: &Daemon,
    light: &Shining,
    pull_out: impl FnOnce() -> Result<()>,
) -> Result<()> {
    camera::fail(Path::new(CAMERA), Failure::DropsFrames { percent: 100 })?;
    let mut snapshot = device.begin_latchkey(&["snapshot", DEVICE, "-o", &device.file("cut.jpg").to_string_lossy()])?;
    while daemon.holds()?.cameras == 0 {
        ensure!(!snapshot.has_ended()?, "the capture ended before the camera was open");
        thread::sleep(POLL);
    }
    ensure!(light.now(), "a camera is open and the light is off");
    pull_out()?;
    let pulled = Instant::now();
    while daemon.holds()?.cameras > 0 {
        ensure!(
            pulled.elapsed() < CUT_WITHIN,
            "the camera is still open {CUT_WITHIN:?} after the light was pulled out"
        );
        thread::sleep(POLL);
    }
    let took = pulled.elapsed();
    let ended = snapshot.end()?;
    ensure!(ended.code() != Some(0) && ended.text().contains("sign"), "no word of the sign: {}", ended.text());
    ensure!(!device.file("cut.jpg").exists(), "a picture without a sign");
    camera::fail(Path::new(CAMERA), Failure::DropsFrames { percent: 0 })?;
    said(&format!(
        "the light pulled out in the middle of a capture: the camera is closed {} ms later",
        took.as_millis()
    ));
    Ok(())
}
