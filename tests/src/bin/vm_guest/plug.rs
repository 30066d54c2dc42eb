//! A camera that is pulled out in the middle of a capture, while a handler's process is started; and its return.

#![allow(clippy::disallowed_methods, reason = "a test of real programs waits in real time, by polling them")]

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    CAMERA, DEVICE,
    camera::{self, Failure},
    holds::{cameras, children},
    kernel::Kernel,
    led::Led,
    order,
    programs::{Daemon, Device, Running},
    said,
};

const HANDLER: &str = "custom.acme.lamp";
const POLL: Duration = Duration::from_millis(20);
/// Threads that wait for work end by themselves within ten seconds.
const AS_BEFORE: Duration = Duration::from_secs(30);
/// For how long the device is watched while its camera is away.
const AWAY: Duration = Duration::from_secs(3);
/// What it may use of a processor meanwhile, with room for one that is emulated ten times slower.
const AWAY_SHARE_MAX: f64 = 0.1;
/// What it may say meanwhile.
const AWAY_LINES_MAX: usize = 20;
/// What the file of a handler may be read by.
const FILE_MODE: u32 = 0o644;

/// What the keeper drops into the handlers folder; the device has another process of its own compile it.
fn drop_handler(device: &Device) -> Result<()> {
    let folder = device.file("config/handlers");
    for end in ["toml", "wat"] {
        let name = format!("{HANDLER}.{end}");
        fs::copy(Path::new(HANDLER).join(&name), folder.join(&name)).with_context(|| name.clone())?;
        fs::set_permissions(folder.join(&name), fs::Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}

/// A capture that hangs, a handler's process that is started meanwhile, and the cable pulled out.
pub(crate) fn pulled_out(device: &Device, daemon: &Daemon, kernel: &Kernel, led: &Led) -> Result<()> {
    device.latchkeyd(&["handler", "new", "acme.lamp", "--lang", "wat"])?.done("a handler is made")?;
    device.latchkey(&["activate", DEVICE])?.done("the device is active")?;
    let before = daemon.holds()?;
    let own = OpenOptions::new().read(true).open(CAMERA)?;
    ensure!(cameras(std::process::id()) == 1, "a held camera is seen among descriptors");
    drop(own);
    camera::fail(Path::new(CAMERA), Failure::DropsFrames { percent: 100 })?;
    kernel.forget()?;
    let lit = led.changes().len();
    let mut snapshot = device.begin_latchkey(&["snapshot", DEVICE, "-o", &device.file("cut.jpg").to_string_lossy()])?;
    let born = child_meanwhile(device, daemon, kernel, &mut snapshot)?;
    said(&format!("process {born} is started for a handler while the camera is open, and has no handle of it"));
    let left = kernel.seen()?.open_now();
    camera::pull_out()?;
    let ended = snapshot.end()?;
    ensure!(ended.code() != Some(0), "a picture without a camera: {}", ended.text());
    let lighting = order::lighting(led, lit)?;
    order::check(device, kernel, &lighting)?;
    said(&format!("the camera was pulled out with {left} handle open: no picture, no handle left, and no light"));
    while_away(device, daemon)?;
    camera::put_back(Path::new(CAMERA))?;
    for end in ["toml", "wat"] {
        fs::remove_file(device.file("config/handlers").join(format!("{HANDLER}.{end}")))?;
    }
    as_before(daemon, &before)
}

/// Has the device start a child while it has the camera open, and looks into that child.
fn child_meanwhile(device: &Device, daemon: &Daemon, kernel: &Kernel, snapshot: &mut Running) -> Result<u32> {
    let pid = daemon.holds()?.pid;
    while cameras(pid) == 0 {
        ensure!(!snapshot.has_ended()?, "the capture ended before the camera was open: {:?}", kernel.seen()?);
        thread::sleep(POLL);
    }
    let known = children(pid)?;
    drop_handler(device)?;
    loop {
        ensure!(!snapshot.has_ended()?, "the capture ended before a child was started: {:?}", kernel.seen()?);
        // Until it runs its own program it is a copy of the device's, handles and all.
        let new = children(pid)?.into_iter().find(|child| !known.contains(child) && line(*child) != line(pid));
        if let Some(child) = new.filter(|child| cameras(pid) > 0 && !line(*child).is_empty()) {
            ensure!(cameras(child) == 0, "the handler's process holds a camera");
            return Ok(child);
        }
        thread::sleep(POLL);
    }
}

/// With what words a process was started.
fn line(pid: u32) -> Vec<u8> {
    fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default()
}

fn while_away(device: &Device, daemon: &Daemon) -> Result<()> {
    let lines = daemon.lines();
    for _ in 0..2 {
        let refused = device.latchkey(&["call", DEVICE, "camera.snapshot", "--json"])?;
        ensure!(refused.text().contains("hardware_unavailable"), "without a camera: {}", refused.text());
    }
    let before = daemon.holds()?;
    let began = Instant::now();
    thread::sleep(AWAY);
    let share = (daemon.holds()?.processor - before.processor).as_secs_f64() / began.elapsed().as_secs_f64();
    let said_meanwhile = daemon.lines() - lines;
    ensure!(share <= AWAY_SHARE_MAX, "without a camera the device uses {share:.2} of a processor");
    ensure!(said_meanwhile <= AWAY_LINES_MAX, "without a camera the device said {said_meanwhile} lines");
    said(&format!(
        "without the camera: hardware_unavailable, {said_meanwhile} lines in the log, {:.1} % of a processor",
        share * 100.0
    ));
    Ok(())
}

/// Waits until the device holds no more than before.
pub(crate) fn as_before(daemon: &Daemon, before: &crate::holds::Holds) -> Result<()> {
    let began = Instant::now();
    loop {
        let now = daemon.holds()?;
        let same =
            now.descriptors <= before.descriptors && now.threads <= before.threads && now.children <= before.children;
        if same && now.cameras == 0 {
            said(&format!(
                "descriptors, threads and children are as before: {}, {}, {}",
                now.descriptors, now.threads, now.children
            ));
            return Ok(());
        }
        ensure!(began.elapsed() < AS_BEFORE, "before {before:?}, now {now:?}");
        thread::sleep(POLL);
    }
}
