//! The sign, the handles of captures and the records, in the kernel's own order.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    kernel::{Kernel, Seen, wall_ms},
    led::{Change, Led},
    programs::Device,
    said,
};

/// The sign stays on for 3 s after it went on; the rest is slowness.
pub(crate) const DARK_AGAIN: Duration = Duration::from_secs(20);
/// How long the sign may shine once no capture handle is open any more.
const LIT_AFTERWARDS_MAX: Duration = Duration::from_secs(3);
/// The least time for which it shines.
const SHINES_MIN: Duration = Duration::from_millis(2_900);
/// How much later than the kernel the records may have it: they are written by the emulated processor.
const RECORDED_WITHIN_MS: i128 = 2_000;

/// The sign, from on to off.
pub(crate) struct Lighting {
    pub(crate) on: Change,
    pub(crate) off: Change,
}

/// The lighting that began with this change of the LED, once it is over.
pub(crate) fn lighting(led: &Led, index: usize) -> Result<Lighting> {
    let on = led.wait_for(index, DARK_AGAIN)?;
    ensure!(on.on, "the LED went off before it went on");
    let off = led.wait_for(index + 1, DARK_AGAIN)?;
    ensure!(!off.on, "the LED went on twice");
    Ok(Lighting { on, off })
}

/// Holds one capture against the kernel's order and the records.
pub(crate) fn check(device: &Device, kernel: &Kernel, lighting: &Lighting) -> Result<Seen> {
    let seen = kernel.seen()?;
    let (on, off) = (lighting.on.at, lighting.off.at);
    let first = seen.opened.iter().min().context("the kernel saw no capture handle opened")?;
    let last = seen.closed.iter().max().context("the kernel saw no capture handle closed")?;
    ensure!(seen.open_now() == 0, "the LED is off, and a capture handle is open: {seen:?}");
    ensure!(on <= *first, "a capture handle was opened {:?} before the LED went on", on - *first);
    ensure!(seen.frames.iter().all(|frame| on <= *frame), "a frame is older than the light: {seen:?}");
    ensure!(*last <= off, "a capture handle was closed {:?} after the LED went off", *last - off);
    ensure!(off - on >= SHINES_MIN, "the LED shone for {:?} only", off - on);
    ensure!(off - *last <= LIT_AFTERWARDS_MAX, "the LED shone for {:?} with no capture handle open", off - *last);
    records_agree(device, lighting, *first)?;
    said(&format!(
        "by the kernel's clock: light on, {} ms, first of {} handles opened, {} frames, last closed, {} ms, light off; the records agree",
        (*first - on).as_millis(),
        seen.opened.len(),
        seen.frames.len(),
        (off - *last).as_millis()
    ));
    Ok(seen)
}

fn records_agree(device: &Device, Lighting { on, off }: &Lighting, first: Duration) -> Result<()> {
    let (on, first, off) = (wall_ms(on.at)?, wall_ms(first)?, wall_ms(off.at)?);
    let records = device.records()?;
    let sign = records.iter().rfind(|record| record["kind"] == "sign").context("no record tells of the sign")?;
    let when =
        |member: &str| sign[member].as_i64().map(i128::from).with_context(|| format!("{member} is missing in {sign}"));
    let (said_on, said_off) = (when("sign_on_at")?, when("sign_off_at")?);
    // Both clocks are cut to milliseconds.
    ensure!((on - 2..=first + 2).contains(&said_on), "on at {on}, opened at {first}, and recorded as on at {said_on}");
    ensure!(
        (off - 2..=off + RECORDED_WITHIN_MS).contains(&said_off),
        "off at {off}, and recorded as off at {said_off}"
    );
    let of_the_call =
        |record: &&Value| record["kind"] != "sign" && record["sign_on_at"].as_i64().map(i128::from) == Some(said_on);
    ensure!(records.iter().any(|record| of_the_call(&record)), "no record of a call tells of this lighting: {sign}");
    Ok(())
}
