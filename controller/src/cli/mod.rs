//! The command line: what people and scripts see of the library.
//!
//! Results go to stdout, everything else to stderr. With `--json` stdout carries one JSON document; its forms are in the
//! help of each command. Exit codes are those of [`Kind`](latchkey_controller::Kind).

mod agents;
mod args;
mod calls;
mod outside;
mod ownership;
mod pictures;
mod problem;
mod screen;
mod session;
mod sounds;
mod tables;
mod target;

use std::process::ExitCode;

use clap::Parser as _;
use tokio::runtime::Runtime;

use args::{AgentCommand, Cli, Command};
use latchkey_controller::Kind;
use problem::Problem;
use screen::Screen;
use session::Session;

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => {
            // Help and version are no errors; clap knows.
            let code = if said.use_stderr() { Kind::Usage.exit_code() } else { 0 };
            return if said.print().is_ok() { ExitCode::from(code) } else { ExitCode::FAILURE };
        }
    };
    let screen = Screen::new(cli.json);
    let done = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => run_to_end(runtime, run(cli, screen)),
        Err(error) => Err(Problem::failed(format!("the async runtime does not start: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            screen.error(&problem.sentence);
            screen.failure(problem.kind.as_str(), problem.code, &problem.sentence);
            ExitCode::from(problem.kind.exit_code())
        }
    }
}

/// Runs `work` and ends with it: a name lookup that its time-out gave up still holds a thread, and dropping the runtime would wait for it.
fn run_to_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

async fn run(cli: Cli, screen: Screen) -> Result<(), Problem> {
    let session = Session::open(&cli, screen)?;
    match cli.command {
        Command::Agent { command: AgentCommand::New { address } } => agents::new(&session, &address),
        Command::Agent { command: AgentCommand::List } => agents::list(&session),
        Command::Agent { command: AgentCommand::Show { address } } => agents::show(&session, address.as_deref()),
        Command::Claim(claim) => ownership::claim(&session, &claim).await,
        Command::Devices => ownership::devices(&session).await,
        Command::Capabilities { device, name } => calls::capabilities(&session, &device, name.as_deref()).await,
        Command::Activate { device, lease } => calls::activate(&session, &device, lease).await,
        Command::Deactivate { device } => calls::deactivate(&session, &device).await,
        Command::Call(call) => calls::call(&session, &call).await,
        Command::Cancel { device, id } => calls::cancel(&session, &device, &id).await,
        Command::Snapshot(snapshot) => pictures::snapshot(&session, &snapshot).await,
        Command::Show(show) => pictures::show(&session, &show).await,
        Command::Listen(listen) => sounds::listen(&session, &listen).await,
        Command::Say(say) => sounds::say(&session, &say).await,
        Command::Health { device } => calls::health(&session, &device).await,
        Command::Transfer(transfer) => ownership::transfer(&session, &transfer).await,
        Command::Release { device, no_wait } => ownership::release(&session, &device, no_wait).await,
        Command::Forget { device } => ownership::forget(&session, &device).await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lookup_that_still_hangs_when_its_time_is_over_does_not_hold_the_program_up() {
        let (hung, lookup) = mpsc::sync_channel::<()>(1);
        let (ended, end) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let gave_up = run_to_end(runtime, async {
                let (begun, begins) = tokio::sync::oneshot::channel();
                let hangs = tokio::task::spawn_blocking(move || begun.send(()).map(|()| lookup.recv()));
                begins.await.unwrap();
                tokio::time::timeout(Duration::from_millis(1), hangs).await.is_err()
            });
            ended.send(gave_up).unwrap();
        });
        assert!(end.recv_timeout(Duration::from_secs(10)).unwrap(), "the time-out is kept");
        drop(hung);
    }
}
