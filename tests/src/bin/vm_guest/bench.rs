//! `vm_guest bench`: plugs in a USB light and has `latchkey-bench` measure the devices of this machine, with that light as the sign.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{
    CAMERA,
    usb_light::{Model, UsbLight},
};

/// Prints what the benchmark prints. `options` are its own.
pub(crate) fn run(options: impl Iterator<Item = String>) -> Result<()> {
    let light = UsbLight::plug_in(Model::Notifier, "0041")?;
    let settings = [format!("camera.device={CAMERA}"), format!("sign.led={}", Model::Notifier.red())];
    let mut bench = Command::new("latchkey-bench");
    bench.args(options).arg("hardware").args(settings.iter().flat_map(|setting| ["--set", setting]));
    let ended = bench.status().context("starting latchkey-bench")?;
    ensure!(ended.success(), "latchkey-bench ended with {ended}");
    let lit = light.shining.times_lit();
    ensure!(lit > 0, "the light was never lit");
    Ok(())
}
