//! The report: starts the servers one beside the other, loads them in turn, and prints ratios.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::SqliteVault;
use actors::store::{GrantRow, Vault};
use anyhow::{Context, bail};
use serde_json::json;
use wire::Signer;

use crate::Cli;
use crate::load::{Ask, Connection, Party, Run, drive, health};
use crate::{crypto, restart, server};

/// The processor that the servers and the crypto run on, and the one for the load.
const SERVER_CPU: &str = "0";
const LOAD_CPU: usize = 1;
/// A server that does not answer by then is broken.
const START_MAX: Duration = Duration::from_secs(20);
/// Starts whose median is printed.
const STARTS: usize = 7;
/// Houses that break once for the restart figure.
const RESTARTS: u32 = 100;

/// A server process; it ends with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From the start of the process to the first challenge.
    pub(crate) started: Duration,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One server in one round.
#[derive(Debug, Clone)]
struct Round {
    cpu_us: f64,
    run: Run,
}

/// Measures and prints.
pub(crate) fn run(cli: &Cli) -> anyhow::Result<()> {
    let me = std::env::current_exe()?;
    let latchkeyd = latchkeyd(cli)?;
    let folder = tempfile::tempdir()?;
    pin(LOAD_CPU)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(cli, &me, &latchkeyd, folder.path()))
}

/// The program that is measured.
pub(crate) fn latchkeyd(cli: &Cli) -> anyhow::Result<PathBuf> {
    let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("latchkeyd"));
    let latchkeyd = cli.latchkeyd.clone().map_or_else(beside, Ok)?;
    anyhow::ensure!(latchkeyd.is_file(), "no latchkeyd at {}; build it with: make build", latchkeyd.display());
    Ok(latchkeyd)
}

/// Loads a server that runs already, and prints the rate.
pub(crate) fn load_only(address: SocketAddr, connections: usize, seconds: f64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let party = Arc::new(Party::new());
    let run = runtime.block_on(drive(address, &party, connections, Duration::from_secs_f64(seconds), Ask::health()))?;
    println!(
        "{} calls in {:.1} s, p50 {:.2} ms, p99 {:.2} ms",
        run.calls,
        run.wall.as_secs_f64(),
        run.p50_ms,
        run.p99_ms
    );
    Ok(())
}

async fn measure(cli: &Cli, me: &Path, latchkeyd: &Path, folder: &Path) -> anyhow::Result<()> {
    let party = Arc::new(Party::new());
    cli.progress("starting the servers …");
    let (durable_state, memory_state) = (folder.join("durable"), folder.join("memory"));
    own(&durable_state, &party, std::iter::empty())?;
    own(&memory_state, &party, std::iter::empty())?;
    let durable = start_device(latchkeyd, &durable_state, None).await?;
    let memory = start(me, |address| vec!["memory".into(), address, memory_state.display().to_string()]).await?;
    let idle_kib = resident_kib(durable.child.id())?;
    let answer_bytes = Connection::open(durable.address).await?.call(&party, &health()).await?;
    let bare = start(me, |address| vec!["axum".into(), address, (answer_bytes * 4 / 3).to_string()]).await?;

    let (mut pair, mut axum, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=cli.rounds {
        cli.progress(&format!("round {round} of {} …", cli.rounds));
        pair.push(crypto_on_server_cpu(&party, answer_bytes, cli.seconds / 2.0)?);
        axum.push(load(&bare, &party, cli, Ask::Bare).await?);
        without.push(load(&memory, &party, cli, Ask::health()).await?);
        with.push(load(&durable, &party, cli, Ask::health()).await?);
    }
    let loaded_kib = resident_kib(durable.child.id())?;
    drop((durable, memory, bare));
    cli.progress("starts and restarts …");
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(start_device(latchkeyd, &durable_state, None).await?.started.as_secs_f64() * 1e3);
    }
    let restarts = restart::times_ms(RESTARTS).await?;
    let figures = Figures { pair, axum, without, with, idle_kib, loaded_kib, starts, restarts, answer_bytes };
    if !cli.json {
        figures.print();
    }
    let handlers = crate::sandbox::run(cli, latchkeyd, folder).await?;
    let hardware = crate::hardware::run(cli, latchkeyd, folder, &[]).await?;
    if cli.json {
        let mut all = figures.json();
        if let Some(all) = all.as_object_mut() {
            all.insert("handlers".to_owned(), handlers);
            all.insert("hardware".to_owned(), hardware);
        }
        println!("{all:#}");
    }
    Ok(())
}

struct Figures {
    pair: Vec<f64>,
    axum: Vec<Round>,
    without: Vec<Round>,
    with: Vec<Round>,
    idle_kib: u64,
    loaded_kib: u64,
    starts: Vec<f64>,
    restarts: Vec<f64>,
    answer_bytes: usize,
}

impl Figures {
    /// The median over the rounds of crypto time against a server's, round by round.
    fn of_limit(&self, rounds: &[Round]) -> f64 {
        median(self.pair.iter().zip(rounds).map(|(pair, round)| pair / round.cpu_us))
    }

    fn print(&self) {
        let cpu = |rounds: &[Round]| median(rounds.iter().map(|round| round.cpu_us));
        let p50 = |rounds: &[Round]| median(rounds.iter().map(|round| round.run.p50_ms));
        let p99 = |rounds: &[Round]| median(rounds.iter().map(|round| round.run.p99_ms));
        let rate = |rounds: &[Round]| median(rounds.iter().map(rate));
        println!();
        println!(
            "signed device.health over loopback keep-alive, answers of {} bytes, every one verified",
            self.answer_bytes
        );
        println!("                          CPU us/call   of the crypto limit   p50 ms   p99 ms   calls/s (wall)");
        println!("  crypto alone            {:>11.1}   {:>19.2}", median(self.pair.iter().copied()), 1.0);
        let row = |name: &str, rounds: &[Round], limit: String| {
            println!(
                "  {name:<22}  {:>11.1}   {limit:>19}   {:>6.2}   {:>6.2}   {:>14.0}",
                cpu(rounds),
                p50(rounds),
                p99(rounds),
                rate(rounds)
            );
        };
        row("bare axum, no keys", &self.axum, "-".to_owned());
        row("journal in memory", &self.without, format!("{:.2} (aim 0.60)", self.of_limit(&self.without)));
        row("durable records", &self.with, format!("{:.2} (aim 0.50)", self.of_limit(&self.with)));
        let added = cpu(&self.without) - cpu(&self.axum) - median(self.pair.iter().copied());
        println!(
            "  what we add to crypto and bare HTTP: {added:.1} us a call; records: {:.1} us",
            cpu(&self.with) - cpu(&self.without)
        );
        println!();
        let mib = |kib: u64| kib as f64 / 1024.0;
        println!(
            "  resident memory of latchkeyd: {:.1} MiB idle (aim under 20), {:.1} MiB after the load",
            mib(self.idle_kib),
            mib(self.loaded_kib)
        );
        println!(
            "  process start to first challenge: {:.1} ms median of {STARTS} (aim under 50)",
            median(self.starts.iter().copied())
        );
        println!(
            "  panic to the next good answer: {:.3} ms p50, {:.3} ms p99 of {RESTARTS} (aim under 1)",
            quantile(&self.restarts, 50),
            quantile(&self.restarts, 99)
        );
    }

    fn json(&self) -> serde_json::Value {
        let server = |rounds: &[Round]| {
            json!({
                "cpu_us": rounds.iter().map(|round| round.cpu_us).collect::<Vec<_>>(),
                "of_crypto_limit": self.of_limit(rounds),
                "p50_ms": median(rounds.iter().map(|round| round.run.p50_ms)),
                "p99_ms": median(rounds.iter().map(|round| round.run.p99_ms)),
                "calls_per_s": median(rounds.iter().map(rate)),
            })
        };
        json!({
            "crypto_pair_us": self.pair,
            "bare_axum": server(&self.axum),
            "journal_in_memory": server(&self.without),
            "durable_records": server(&self.with),
            "resident_idle_kib": self.idle_kib,
            "resident_loaded_kib": self.loaded_kib,
            "start_ms": self.starts,
            "restart_ms_p50": quantile(&self.restarts, 50),
            "restart_ms_p99": quantile(&self.restarts, 99),
        })
    }
}

fn rate(round: &Round) -> f64 {
    round.run.calls as f64 / round.run.wall.as_secs_f64()
}

async fn load(server: &Server, party: &Arc<Party>, cli: &Cli, ask: Ask) -> anyhow::Result<Round> {
    let before = cpu_time(server.child.id())?;
    let time = Duration::from_secs_f64(cli.seconds);
    let run = drive(server.address, party, cli.connections, time, ask).await?;
    let used = cpu_time(server.child.id())?.saturating_sub(before);
    Ok(Round { cpu_us: used.as_secs_f64() * 1e6 / run.calls.max(1) as f64, run })
}

/// A state folder with the run's device key, its owner and these grants in it.
pub(crate) fn own(
    state: &Path,
    party: &Party,
    grants: impl Iterator<Item = (wire::GrantName, GrantRow)>,
) -> anyhow::Result<()> {
    config::safe::ensure_private_dir(state)?;
    let key = wire::text::base64url_encode(party.device.seed().as_ref());
    config::safe::write_private(&state.join(runtime::key::KEY_FILE), format!("{key}\n").as_bytes())?;
    let mut vault = SqliteVault::open(state, party.device.public(), 0)?.vault;
    let mut durable = server::owned_state(party)?;
    durable.grants.extend(grants);
    vault.begin()?;
    vault.put_durable(&durable)?;
    vault.commit()?;
    vault.close_vault();
    Ok(())
}

/// Starts a simulated device, with a folder for handlers if there is one.
pub(crate) async fn start_device(latchkeyd: &Path, state: &Path, handlers: Option<&Path>) -> anyhow::Result<Server> {
    let sets: Vec<_> = handlers.map(|handlers| format!("handlers.folder={}", handlers.display())).into_iter().collect();
    start_device_with(latchkeyd, state, &sets, true).await
}

/// Starts a device with these settings, simulated or on the hardware that they name.
pub(crate) async fn start_device_with(
    latchkeyd: &Path,
    state: &Path,
    sets: &[String],
    simulated: bool,
) -> anyhow::Result<Server> {
    start(latchkeyd, |address| {
        let folder = state.display().to_string();
        let mut words = vec!["--state-dir".to_owned(), folder.clone(), "--config-dir".to_owned(), folder];
        let mut sets = sets.to_vec();
        if let Ok(address) = address.parse() {
            sets.extend(server::settings(address));
        }
        words.extend(sets.into_iter().flat_map(|set| ["--set".to_owned(), set]));
        words.push("run".to_owned());
        words.extend(simulated.then(|| "--simulate".to_owned()));
        words
    })
    .await
}

/// Starts a server on its processor and waits for its first challenge.
async fn start(program: &Path, words: impl FnOnce(String) -> Vec<String>) -> anyhow::Result<Server> {
    let address = free_address()?;
    let mut command = Command::new("taskset");
    command.args(["-c", SERVER_CPU]).arg(program).args(words(address.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("LATCHKEY_LOG", "error");
    let began = Instant::now();
    let child = command.spawn().context("cannot start a server; is taskset (util-linux) installed?")?;
    let mut server = Server { child, address, started: Duration::ZERO };
    loop {
        if let Ok(mut connection) = Connection::open(address).await
            && connection.challenge().await.is_ok()
        {
            server.started = began.elapsed();
            return Ok(server);
        }
        if let Some(status) = server.child.try_wait()? {
            bail!("{} ended at once: {status}", program.display());
        }
        anyhow::ensure!(began.elapsed() < START_MAX, "{} does not answer", program.display());
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// A port that was free a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn crypto_on_server_cpu(party: &Arc<Party>, answer_bytes: usize, seconds: f64) -> anyhow::Result<f64> {
    let party = Arc::clone(party);
    let worker = std::thread::spawn(move || {
        pin(0)?;
        anyhow::Ok(crypto::pair_us(&party, answer_bytes, seconds))
    });
    worker.join().map_err(|_| anyhow::anyhow!("the crypto round broke off"))?
}

pub(crate) fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).context("this needs two processors")
}

/// Processor time of all threads of a process.
fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    Ok(cpu_of_threads(pid)?.into_values().sum())
}

/// Processor time of each thread of a process.
fn cpu_of_threads(pid: u32) -> anyhow::Result<BTreeMap<u32, Duration>> {
    let mut threads = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        // A thread may end while we read.
        let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let used = text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or_default();
        threads.insert(thread, Duration::from_nanos(used));
    }
    Ok(threads)
}

/// Processor time of each thread of a process and of its children.
pub(crate) fn cpu_of_all(pid: u32) -> anyhow::Result<BTreeMap<u32, Duration>> {
    let mut threads = cpu_of_threads(pid)?;
    for entry in std::fs::read_dir("/proc")? {
        let Some(other) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Any of them may end while we read.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{other}/stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent == Some(pid) {
            threads.extend(cpu_of_threads(other).unwrap_or_default());
        }
    }
    Ok(threads)
}

/// What was used between two looks. A thread that has ended meanwhile takes what it used with it, and nothing of the others.
pub(crate) fn used(before: &BTreeMap<u32, Duration>, after: &BTreeMap<u32, Duration>) -> Duration {
    let of_thread =
        |(thread, now): (&u32, &Duration)| now.saturating_sub(before.get(thread).copied().unwrap_or_default());
    after.iter().map(of_thread).sum()
}

pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    quantile(&values, 50)
}

/// Of sorted values.
pub(crate) fn quantile(sorted: &[f64], part: usize) -> f64 {
    sorted.get((sorted.len() * part / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ended_takes_nothing_from_what_the_others_used() {
        let threads = |times: &[(u32, u64)]| {
            times.iter().map(|(thread, ms)| (*thread, Duration::from_millis(*ms))).collect::<BTreeMap<_, _>>()
        };
        let before = threads(&[(1, 100), (2, 50)]);
        let rows = [
            (vec![(1, 100), (2, 50)], 0),
            (vec![(1, 103), (2, 50)], 3),
            (vec![(1, 103)], 3),
            (vec![(1, 101), (3, 2)], 3),
        ];
        for (after, wanted) in rows {
            assert_eq!(used(&before, &threads(&after)), Duration::from_millis(wanted), "{after:?}");
        }
    }
}
