//! The second table of `make bench`.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bare::Bare;
use super::drops::{Busy, Kitchen, ask_for, echo, looping, many};
use super::inside::Inside;
use super::{ARGUMENTS, ECHO};
use crate::Cli;
use crate::load::Ask;
use crate::report::{median, quantile, resident_kib};

/// Calls of which the median is taken, in each round.
const CALLS: usize = 1_000;
/// Child processes that are started cold.
const STARTS: usize = 15;
/// Calls at once: what a custom capability takes, one that runs and four that wait.
const AT_ONCE: usize = 5;
/// Handlers of the device that idles.
const MANY: usize = 1_000;
/// Files dropped for the way to their first call.
const DROPS: usize = 5;

/// Everything measured.
#[derive(Default)]
struct Figures {
    bare_us: Vec<f64>,
    child_us: Vec<f64>,
    house_us: Vec<f64>,
    cold_ms: Vec<f64>,
    health_rate: Vec<f64>,
    echo_rate: Vec<f64>,
    health_cpu_us: Vec<f64>,
    echo_cpu_us: Vec<f64>,
    drop_ms: Vec<f64>,
    first_ms: Vec<f64>,
    alone_ms: Vec<f64>,
    beside_ms: Vec<f64>,
    beside_longest_ms: f64,
    many: Many,
}

/// The device with a thousand handlers.
#[derive(Default)]
struct Many {
    dropped_s: f64,
    start_ms: f64,
    bare_start_ms: f64,
    in_service_s: f64,
    resident_kib: u64,
    bare_resident_kib: u64,
    registration_ms: f64,
    listing_ms: f64,
}

/// Measures and gives the table, or its JSON.
pub(crate) async fn run(cli: &Cli, latchkeyd: &Path, folder: &Path) -> anyhow::Result<Value> {
    let mut figures = Figures::default();
    cli.progress("handlers: one process …");
    one_process(cli, latchkeyd, folder, &mut figures).await?;
    cli.progress("handlers: whole devices …");
    whole_devices(cli, latchkeyd, folder, &mut figures).await?;
    cli.progress(&format!("handlers: {MANY} of them …"));
    figures.many = a_thousand(latchkeyd, folder).await?;
    if !cli.json {
        figures.print();
    }
    Ok(figures.json())
}

async fn one_process(cli: &Cli, latchkeyd: &Path, folder: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let bare = Bare::new(ECHO)?;
    let inside = Inside::new(latchkeyd, folder).await?;
    let us = |times: Vec<Duration>| median(times.iter().map(|took| took.as_secs_f64() * 1e6));
    for _ in 0..cli.rounds {
        figures.bare_us.push(us(bare.times(ARGUMENTS, CALLS).await?));
        figures.child_us.push(us(inside.warm(CALLS).await?));
        figures.house_us.push(us(inside.through_a_house(CALLS).await?));
    }
    figures.cold_ms =
        Inside::cold(latchkeyd, folder, STARTS).await?.iter().map(|took| took.as_secs_f64() * 1e3).collect();
    figures.cold_ms.sort_by(f64::total_cmp);
    Ok(())
}

async fn whole_devices(cli: &Cli, latchkeyd: &Path, folder: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let (echo, looping) = (echo()?, looping()?);
    let time = Duration::from_secs_f64(cli.seconds);
    let late =
        (0..DROPS).map(|number| super::Drop::new(&format!("late{number}"), &format!("{ECHO};; {number}\n"), "1s"));
    let late = late.collect::<anyhow::Result<Vec<_>>>()?;
    let there = [echo.clone(), looping.clone()];
    let kitchen = Kitchen::start(latchkeyd, folder, "kitchen", &there).await?;
    kitchen.in_service(2).await?;
    let call = ask_for(&echo.name, false)?;
    kitchen.load(call.clone(), AT_ONCE, Duration::from_millis(300)).await?;
    for _ in 0..cli.rounds {
        let (run, cpu_us) = kitchen.load(Ask::health(), AT_ONCE, time).await?;
        figures.health_rate.push(run.calls as f64 / run.wall.as_secs_f64());
        figures.health_cpu_us.push(cpu_us);
        let (run, cpu_us) = kitchen.load(call.clone(), AT_ONCE, time).await?;
        figures.echo_rate.push(run.calls as f64 / run.wall.as_secs_f64());
        figures.echo_cpu_us.push(cpu_us);
    }
    for _ in 0..cli.rounds {
        figures.alone_ms.push(kitchen.load(call.clone(), 1, time).await?.0.p50_ms);
        let busy = Busy::start(&kitchen, &looping.name).await?;
        let (run, _) = kitchen.load(call.clone(), 1, time).await?;
        drop(busy);
        figures.beside_ms.push(run.p50_ms);
        figures.beside_longest_ms = figures.beside_longest_ms.max(run.longest_ms);
    }
    for drop in &late {
        let (in_service, first) = kitchen.first_call_after(latchkeyd, drop).await?;
        figures.drop_ms.push(in_service.as_secs_f64() * 1e3);
        figures.first_ms.push(first.as_secs_f64() * 1e3);
    }
    Ok(())
}

async fn a_thousand(latchkeyd: &Path, folder: &Path) -> anyhow::Result<Many> {
    let drops = many(MANY)?;
    let bare = Kitchen::start(latchkeyd, folder, "bare", &[]).await?;
    let bare_start_ms = bare.server.started.as_secs_f64() * 1e3;
    let bare_resident_kib = resident_kib(bare.server.pid())?;
    drop(bare);
    let first = Kitchen::start(latchkeyd, folder, "many", &drops).await?;
    let dropped_s = first.in_service(MANY).await?.as_secs_f64();
    let kitchen = first.again(latchkeyd).await?;
    let start_ms = kitchen.server.started.as_secs_f64() * 1e3;
    let in_service_s = kitchen.in_service(MANY).await?.as_secs_f64();
    let began = Instant::now();
    kitchen.registration().await?;
    let registration_ms = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    let listed = kitchen.listed(latchkeyd)?;
    let listing_ms = began.elapsed().as_secs_f64() * 1e3;
    anyhow::ensure!(listed >= MANY, "only {listed} handlers are listed");
    let resident_kib = resident_kib(kitchen.server.pid())?;
    Ok(Many {
        dropped_s,
        start_ms,
        bare_start_ms,
        in_service_s,
        resident_kib,
        bare_resident_kib,
        registration_ms,
        listing_ms,
    })
}

impl Figures {
    fn print(&self) {
        let of = |values: &[f64]| median(values.iter().copied());
        let each = |over: &[f64], base: &[f64]| median(over.iter().zip(base).map(|(over, base)| over / base));
        println!();
        println!("handlers, a WAT echo of effect \"read\", median of {} rounds", self.bare_us.len());
        println!("  bare wasmtime, pooled, in one process: {:>7.1} us a call", of(&self.bare_us));
        println!(
            "  a call to its process:                 {:>7.1} us, {:.1} x the bare call",
            of(&self.child_us),
            each(&self.child_us, &self.bare_us)
        );
        println!(
            "  the whole way through the house:       {:>7.1} us, {:.1} x the call to its process",
            of(&self.house_us),
            each(&self.house_us, &self.child_us)
        );
        println!(
            "  cold start of its process and a call:  {:>7.1} ms p50, {:.1} ms longest of {STARTS}",
            quantile(&self.cold_ms, 50),
            quantile(&self.cold_ms, 100)
        );
        println!(
            "  signed calls, {AT_ONCE} in flight: {:.2} of the rate of device.health (aim 0.75); CPU {:.1} us against {:.1}",
            each(&self.echo_rate, &self.health_rate),
            of(&self.echo_cpu_us),
            of(&self.health_cpu_us)
        );
        println!(
            "  from a dropped file to a capability: {:.0} ms (200 of them the wait for quiet); its first call {:.1} ms",
            of(&self.drop_ms),
            of(&self.first_ms)
        );
        println!(
            "  beside a handler that loops: p50 {:.2} x alone (aim under 1.20), longest call {:.1} ms (aim under 50)",
            each(&self.beside_ms, &self.alone_ms),
            self.beside_longest_ms
        );
        let many = &self.many;
        let mib = |kib: u64| kib as f64 / 1024.0;
        println!(
            "  {MANY} idle handlers: {:.1} MiB against {:.1} MiB of a device without; first challenge after {:.0} ms against {:.0} ms",
            mib(many.resident_kib),
            mib(many.bare_resident_kib),
            many.start_ms,
            many.bare_start_ms
        );
        println!(
            "    in service {:.1} s after a start ({:.1} s when never seen before); listing {:.0} ms; registration {:.0} ms",
            many.in_service_s, many.dropped_s, many.listing_ms, many.registration_ms
        );
    }

    fn json(&self) -> Value {
        let many = &self.many;
        json!({
            "bare_us": self.bare_us,
            "child_us": self.child_us,
            "house_us": self.house_us,
            "cold_ms": self.cold_ms,
            "health_calls_per_s": self.health_rate,
            "echo_calls_per_s": self.echo_rate,
            "health_cpu_us": self.health_cpu_us,
            "echo_cpu_us": self.echo_cpu_us,
            "drop_to_capability_ms": self.drop_ms,
            "first_call_ms": self.first_ms,
            "alone_p50_ms": self.alone_ms,
            "beside_loop_p50_ms": self.beside_ms,
            "beside_loop_longest_ms": self.beside_longest_ms,
            "thousand": {
                "resident_kib": many.resident_kib,
                "resident_without_kib": many.bare_resident_kib,
                "start_ms": many.start_ms,
                "start_without_ms": many.bare_start_ms,
                "in_service_s": many.in_service_s,
                "in_service_new_s": many.dropped_s,
                "listing_ms": many.listing_ms,
                "registration_ms": many.registration_ms,
            },
        })
    }
}
