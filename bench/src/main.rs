//! `make bench`: what the device adds to the price of its cryptography, as ratios in one run.
//!
//! Absolute figures depend on the machine and on who else uses it, so everything is set against a baseline measured in the
//! same run: the crypto alone (one strict verification and one signature of bytes of the same length), and a bare axum server
//! that sends the same bytes. The device runs on one processor and the load, which signs each request and verifies every
//! answer, on another; the device's price is its processor time for each call, read from the kernel. Rounds are interleaved and
//! medians printed.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for a terminal that measures real time on a real machine"
)]

mod crypto;
mod hardware;
mod house;
mod load;
mod report;
mod restart;
mod sandbox;
mod server;
mod speech;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Measures signed calls of device.health against the crypto alone and against a bare server.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Interleaved rounds; the median of them is printed.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of load for each server in each round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Keep-alive connections of the load.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Where latchkeyd is; default: beside this program.
    #[arg(long)]
    latchkeyd: Option<PathBuf>,
    /// Prints the figures as JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// A part of the report alone, and what the report starts as processes of its own.
#[derive(Debug, Clone, Subcommand)]
enum Part {
    /// Only the third table: camera, sound and idling, on the hardware that the settings name.
    #[command(
        after_help = "Example:\n  latchkey-bench hardware --set camera.device=/dev/video0 --set sign.led=camera::inuse"
    )]
    Hardware {
        /// A setting of the device that is measured, as latchkeyd takes it; without any, the device is simulated
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// The whole device, composed with a journal in memory.
    #[command(hide = true)]
    Memory { address: SocketAddr, state: PathBuf },
    /// Only the load, for a profile of a server that runs already.
    #[command(hide = true)]
    Load { address: SocketAddr, seconds: f64 },
    /// A bare axum server that sends bytes of the same length.
    #[command(hide = true)]
    Axum { address: SocketAddr, answer_bytes: usize },
}

impl Cli {
    /// Says what is measured now, to a person; JSON comes alone.
    fn progress(&self, what: &str) {
        if !self.json {
            println!("{what}");
        }
    }
}

/// As latchkeyd has it, so that the device composed here is the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match &cli.part {
        Some(Part::Memory { address, state }) => server::memory(*address, state),
        Some(Part::Load { address, seconds }) => report::load_only(*address, cli.connections, *seconds),
        Some(Part::Axum { address, answer_bytes }) => server::axum(*address, *answer_bytes),
        Some(Part::Hardware { set }) => hardware::run_alone(&cli, set),
        None => report::run(&cli),
    }
}
