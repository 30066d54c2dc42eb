//! A light on a line of a GPIO chip as the sign, driven through the kernel's GPIO character device: pictures under it, a line that does not
//! obey, and the chip pulled out, in the middle of a capture too.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::{
    CAMERA, START,
    gpio_light::{GpioLights, LABEL, LINES},
    kernel::Kernel,
    programs::{Daemon, Device},
    replug::{cut, no_picture, picture_under},
    said, settings_without_sign,
};

/// The line whose light is the sign.
const LINE: usize = 2;

/// From the start of a device with this sign to its stop.
pub(crate) fn on_a_chip(device: &Device, daemon: &mut Daemon, kernel: &Kernel) -> Result<()> {
    let lights = GpioLights::plug_in()?;
    let sign = format!("{LABEL}/{LINE}");
    listed(device, &sign)?;
    said(&format!("a GPIO chip on USB is plugged in; latchkeyd hardware calls its lines {LABEL}/0 to {LABEL}/7"));
    device.settle(&format!("{}sign.gpio = \"{sign}\"\n", settings_without_sign(CAMERA)))?;
    *daemon = device.start()?;
    daemon.wait_until_ready(device, START)?;
    let pid = daemon.holds()?.pid;
    device.latchkeyd(&["doctor", "sign", "gpio"])?.done("the doctor lights it and reads it back")?;
    picture_under(device, kernel, &lights.shining(LINE))?;

    lights.stick(true);
    no_picture(device, "a line that stays low whatever it is told")?;
    let doctor = device.latchkeyd(&["doctor", "gpio"])?;
    ensure!(doctor.code() == Some(1) && doctor.text().contains("reads back"), "{}", doctor.text());
    lights.stick(false);
    picture_under(device, kernel, &lights.shining(LINE))?;
    ensure!((0..LINES).all(|line| line == LINE || lights.shining(line).times_lit() == 0), "another line's light shone");

    cut(device, daemon, &lights.shining(LINE), || lights.unplug())?;
    no_picture(device, "the chip pulled out")?;
    let lights = GpioLights::plug_in()?;
    picture_under(device, kernel, &lights.shining(LINE))?;
    ensure!(daemon.holds()?.pid == pid, "the device is another process");
    said("all of that without a restart of the device");
    daemon.stop()?;
    ensure!(!lights.shining(LINE).now(), "the device has ended, and the light shines");
    Ok(())
}

/// The lines of the chip are offered for the sign, each by a name that lasts.
fn listed(device: &Device, sign: &str) -> Result<()> {
    let things = device.latchkeyd(&["hardware", "--json"])?.json()?;
    let lines = things.as_array().context("hardware --json is no list")?.iter().filter(|thing| thing["kind"] == "gpio");
    let ids: BTreeSet<&str> = lines.filter_map(|thing| thing["id"].as_str()).collect();
    ensure!(ids.len() == LINES && ids.contains(sign), "listed as GPIO lines: {ids:?}");
    Ok(())
}
