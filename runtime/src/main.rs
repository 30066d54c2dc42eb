//! `latchkeyd`: the device, and the keeper's tool on it.

use std::io::{BufReader, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use handlers::{Clock, SystemClock, wasm};
use jiff::tz::TimeZone;
use latchkey_runtime::boot;
use latchkey_runtime::cli::args::{Cli, Order, settings_first};
use latchkey_runtime::cli::{self, World};

/// A signed call is a few dozen small allocations on several threads; in a profile under the load of `make bench`
/// allocation and copying with glibc took 17 % of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "arguments are read here, once")]
    let arguments: Vec<_> = std::env::args_os().collect();
    // A handler's process is this program too, and it begins before anything of the device is read.
    if wasm::child_asked(&arguments) {
        return wasm::child_main();
    }
    let cli = Cli::parse_from(settings_first(arguments));
    let world = world();
    let colour = world.colour;
    let ended = match &cli.order {
        Order::Run { simulate } => boot::run(&cli, simulate.as_deref(), world),
        _ => perform(&cli, world),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let mark = if colour { "\u{1b}[31mlatchkeyd:\u{1b}[0m" } else { "latchkeyd:" };
            // Nobody reads what we would say about a closed standard error.
            let _ = writeln!(std::io::stderr(), "{mark} {}", problem.sentence);
            ExitCode::from(problem.ended.code())
        }
    }
}

fn perform(cli: &Cli, mut world: World) -> Result<(), cli::Problem> {
    cli::perform(cli, &mut world)
}

/// The real outside.
fn world() -> World {
    #[expect(clippy::disallowed_methods, reason = "the environment is read here, once")]
    let env: Vec<_> = std::env::vars_os().collect();
    let plain = env.iter().any(|(name, value)| name == "NO_COLOR" && !value.is_empty());
    let terminal = std::io::stdout().is_terminal();
    World {
        env,
        root: rustix::process::geteuid().is_root(),
        now_ms: SystemClock.wall_ms(),
        zone: TimeZone::system(),
        input: Box::new(BufReader::new(std::io::stdin())),
        asks: std::io::stdin().is_terminal(),
        out: Box::new(std::io::stdout()),
        aside: Box::new(std::io::stderr()),
        terminal,
        colour: terminal && !plain,
    }
}
