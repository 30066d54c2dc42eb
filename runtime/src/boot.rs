//! `latchkeyd run`: the real clock, real randomness, the environment, signals and systemd around a [`Device`].
//!
//! The only place, beside the main, that knows the outside. Called by the main; ends by SIGTERM or SIGINT (running work has
//! [`DRAIN`]), by a second signal, or by an error before the device answers.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use actors::{Caller, Command, House, Link, NodeState, Reply, SqliteVault, Way};
use config::{LogFormat, Settings, safe};
use handlers::{Chance, Clock, SystemClock};
use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use wire::Signer;

use crate::announce::Terminal;
use crate::cli::args::Cli;
use crate::cli::print::Style;
use crate::cli::{Ended, Problem, World, program};
use crate::device::{Device, HandlersPlace, Options, Running};
use crate::door::DoorLimits;
use crate::keeper::SocketLimits;
use crate::key;
use crate::lock::StateLock;
use crate::reload::Reread;
use crate::simulate::{Rehearsal, Simulation};

/// Running work may go on for this long after SIGTERM; the longest built-in capability takes ten seconds.
const DRAIN: Duration = Duration::from_secs(10);

/// What is left of tasks and blocking threads after the device has stopped may go on for this long.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// Where Linux names the present boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The operating system's randomness.
#[derive(Debug, Clone, Copy)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn fill(&self, bytes: &mut [u8]) {
        #[expect(clippy::disallowed_methods, reason = "this is where the real randomness is made")]
        let filled = getrandom::fill(bytes);
        #[expect(
            clippy::expect_used,
            reason = "a device without randomness must not go on; Linux gives it once it has booted"
        )]
        filled.expect("the operating system gives randomness");
    }
}

/// Runs the device until it is told to stop; with `simulate` on simulated parts, which have the troubles that its words name.
///
/// # Errors
/// One sentence, when the device cannot start.
pub fn run(cli: &Cli, simulate: Option<&[String]>, mut world: World) -> Result<(), Problem> {
    let rehearsal = simulate.map(Rehearsal::parse).transpose();
    let rehearsal = rehearsal.map_err(|error| Problem::new(Ended::Usage, error.to_string()))?;
    let places = world.places(cli)?;
    let settings = Settings::load(&places, &cli.sets, world.variables()).map_err(|error| of(&error))?;
    log(&settings, &world)?;
    if let Some(advice) = places.advice() {
        tracing::warn!("{advice}");
    }
    safe::ensure_private_dir(&places.state_dir).map_err(|error| of(&error))?;
    let lock = StateLock::take(&places.state_dir).map_err(|error| of(&error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let chance: Arc<dyn Chance> = Arc::new(SystemChance);
    let (signer, first) = key::read_or_make(&places.state_dir, chance.as_ref()).map_err(|error| Problem::of(&error))?;
    let opened = SqliteVault::open(&places.state_dir, signer.public(), clock.wall_ms()).map_err(|error| of(&error))?;

    let style = Style { zone: world.zone.clone(), colour: world.colour, program: program(cli, &world) };
    let out = std::mem::replace(&mut world.out, Box::new(std::io::sink()));
    let terminal = Terminal::new(out, Arc::clone(&clock), style).map_err(|error| of(&error))?;
    let simulation = rehearsal.map(|rehearsal| {
        let told = terminal.clone();
        let simulation = Simulation::new(move |line| told.say(line));
        simulation.rehearse(&rehearsal);
        simulation
    });
    let handlers = HandlersPlace::of(&places, &settings);
    let sets = cli.sets.clone();
    let state_dir = places.state_dir.clone();
    let variables: Vec<_> = world.variables().collect();
    let reread: Reread = Arc::new(move |before| {
        before.reload(&places, &sets, variables.iter().cloned()).map_err(|error| of(&error).sentence)
    });
    let options = Options {
        settings,
        state_dir,
        signer: Arc::new(signer),
        vault: Box::new(opened.vault),
        notices: opened.notices,
        clock,
        zone: world.zone.clone(),
        chance,
        boot_id: std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default(),
        simulation,
        door: DoorLimits::default(),
        socket: Some(SocketLimits::default()),
        reread: Some(reread),
        handlers: Some(handlers),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| of(&error))?;
    let ended = run_to_end(runtime, live(options, &terminal, first));
    terminal.finish();
    // Only now: the command socket's file, which goes with the runtime's last task, is then still ours.
    drop(lock);
    ended
}

/// Runs `work` and ends with it. Dropping the runtime would wait for threads that hang in a driver.
fn run_to_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_TASKS);
    done
}

fn of(error: &dyn Error) -> Problem {
    Problem::of(error)
}

fn log(settings: &Settings, world: &World) -> Result<(), Problem> {
    let (filter, whence) = match world.variable("LATCHKEY_LOG").and_then(|value| value.into_string().ok()) {
        Some(filter) if !filter.is_empty() => (filter, "LATCHKEY_LOG"),
        Some(_) | None => (settings.log.filter.clone(), "log.filter"),
    };
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Problem::failed(format!("{whence} is not a filter: {error}; try info, or warn,latchkey_actors=debug"))
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(world.colour);
    let set = match settings.log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    set.map_err(|error| Problem::failed(format!("cannot set up logging: {error}")))
}

async fn live(options: Options, terminal: &Terminal, first: bool) -> Result<(), Problem> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| of(&error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| of(&error))?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(|error| of(&error))?;
    let running = Device::start(options).await.map_err(|error| of(&error))?;
    // Subscribed before anybody is told of the device, so that no claim is missed.
    let events = running.house.events();
    let caller = Caller { uid: rustix::process::geteuid().as_raw(), way: Way::Socket };
    if let Reply::Status(status) = running.house.command(caller, Command::Status).await {
        terminal.welcome(&status, &running.address(), first);
    }
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let (house, stopped, told) = (running.house.clone(), stop.clone(), terminal.clone());
    tasks.spawn(async move { told.follow(&house, events, stopped).await });
    let (house, stopped) = (running.house.clone(), stop.clone());
    tasks.spawn(async move { watch(house, caller, stopped).await });
    notify(&[NotifyState::Ready]);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => read_anew(&running, terminal).await,
        }
    }
    notify(&[NotifyState::Stopping]);
    terminal.say("stopping; running work has ten seconds");
    tokio::select! {
        () = running.stop(DRAIN) => terminal.say("stopped"),
        _ = terminate.recv() => terminal.say("stopped at once"),
        _ = interrupt.recv() => terminal.say("stopped at once"),
    }
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

async fn read_anew(running: &Running, terminal: &Terminal) {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    match running.reload().await {
        Ok(reloaded) => {
            let changed =
                if reloaded.changed.is_empty() { "nothing changed".to_owned() } else { reloaded.changed.join(", ") };
            terminal.say(&format!("settings were read anew: {changed}"));
            if !reloaded.restart.is_empty() {
                terminal.say(&format!("these need a restart of latchkeyd: {}", reloaded.restart.join(", ")));
            }
        }
        Err(sentence) => {
            tracing::error!(%sentence, "the settings were not read anew");
            terminal.say(&format!("the settings stay as they were: {sentence}"));
        }
    }
    notify(&[NotifyState::Ready]);
}

/// Tells the service manager that the device works, as often as it asks for, and only when a challenge, the state and the tree
/// answer.
async fn watch(house: House, caller: Caller, stop: CancellationToken) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let half = limit / 2;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(half) => {}
        }
        if timeout(half, healthy(&house, caller)).await == Ok(true) {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the device does not answer itself; the service manager is not told that it works");
        }
    }
}

async fn healthy(house: &House, caller: Caller) -> bool {
    let _challenge = house.challenge(Link::Direct);
    let answers = matches!(house.command(caller, Command::Status).await, Reply::Status(_));
    let tree = house.tree();
    answers && tree.borrow().root.state == NodeState::Running
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_thread_that_hangs_in_a_driver_does_not_keep_the_program_from_ending() {
        let (hung, driver) = sync_channel::<()>(1);
        let (ended, end) = sync_channel(1);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            run_to_end(runtime, async {
                let (begun, begins) = tokio::sync::oneshot::channel();
                drop(tokio::task::spawn_blocking(move || begun.send(()).map(|()| driver.recv())));
                begins.await.unwrap();
            });
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(hung);
    }
}
