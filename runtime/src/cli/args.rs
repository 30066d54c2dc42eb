//! What `latchkeyd` can be told.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::TypedValueParser as _;
use clap::{Parser, Subcommand};
use handlers::wasm::author::Lang;

use crate::doctor::Part;
use crate::simulate;

/// Stands above the options that every command has, so that a command's own come first.
const GLOBAL: &str = "Options of all commands";

/// The whole command line.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "latchkeyd",
    version,
    about = "Lets an AI agent use this device, as far as you allow it",
    long_about = "Lets an AI agent use this device, as far as you allow it.\n\n\
        latchkeyd runs on the device. An agent signs each request; the device checks the signature, its owner and your grants before \
        anything moves, and keeps a record of everything. Nothing is on until you turn it on, here.",
    after_help = "First steps:\n  \
        latchkeyd run                 start the device (add --simulate to try it without hardware)\n  \
        latchkeyd pair                show the link to give to your agent\n  \
        latchkeyd approve 482913      let the agent that shows this code own the device\n  \
        latchkeyd grant camera        allow it to take pictures\n  \
        latchkeyd receipts            see what it did\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 latchkeyd is not running.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Folder of the settings file latchkey.toml [also: LATCHKEY_CONFIG_DIR]
    #[arg(long, value_name = "DIR", global = true, help_heading = GLOBAL)]
    pub config_dir: Option<PathBuf>,

    /// Folder of the device's key, state and records [also: LATCHKEY_STATE_DIR]
    #[arg(long, value_name = "DIR", global = true, help_heading = GLOBAL)]
    pub state_dir: Option<PathBuf>,

    /// Use the system's folders, /etc/latchkey and /var/lib/latchkey
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub system: bool,

    /// Set one setting for this call, over file and environment; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", global = true, help_heading = GLOBAL)]
    pub sets: Vec<String>,

    /// What to do
    #[command(subcommand)]
    pub order: Order,
}

/// What stands under the help of `run`.
fn run_help() -> String {
    format!(
        "Examples:\n  latchkeyd run\n  latchkeyd run --simulate\n  latchkeyd run --simulate camera=dark-first,unplug@10s..20s\n  \
         latchkeyd --set link.direct.listen=0.0.0.0:7601 run\n\n\
         The first start makes the device's key. Ctrl-C or SIGTERM ends it: running work has ten seconds. SIGHUP reads the settings anew.\n\
         The environment variable LATCHKEY_LOG sets what is logged, as in LATCHKEY_LOG=debug.\n\n{}",
        simulate::help()
    )
}

/// The arguments with every `--set` in front of the command, in their order: clap would take only those behind a command where
/// some stand before it, and drop the others without a word.
#[must_use]
pub fn settings_first(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut first: Vec<OsString> = arguments.next().into_iter().collect();
    let mut rest = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            rest.push(argument);
            break;
        }
        if argument == "--set" {
            first.push(argument);
            first.extend(arguments.next());
        } else if argument.as_encoded_bytes().starts_with(b"--set=") {
            first.push(argument);
        } else {
            rest.push(argument);
        }
    }
    first.extend(rest);
    first.extend(arguments);
    first
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Order {
    /// Start the device and keep it running
    #[command(
        after_help = run_help()
    )]
    Run {
        /// Pretend: every part is simulated and no hardware is touched; with words, parts misbehave
        #[arg(long, value_name = "PART=TROUBLE", num_args = 0..)]
        simulate: Option<Vec<String>>,
    },

    /// Read the settings anew, without a restart
    Reload(Output),

    /// Show how the device stands, and each of its parts
    Status(Output),

    /// Open pairing for ten minutes, and show the link for your agent
    #[command(after_help = "Examples:\n  latchkeyd pair\n  latchkeyd pair --json\n\n\
        The link holds a secret: whoever has it may ask to own this device. Nobody owns it before you approve.")]
    Pair(Output),

    /// List who asks to own this device, or to give it back
    Claims(Output),

    /// Agree to a claim, a transfer or a release
    #[command(after_help = "Examples:\n  latchkeyd approve 482913\n  latchkeyd approve \"482 913\"\n\n\
        Compare the code with the one that your agent shows. If they differ, somebody else is asking: refuse.")]
    Approve {
        /// The code, or the id of the request
        #[arg(value_name = "CODE|ID", num_args = 1..=2, required = true)]
        which: Vec<String>,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Refuse a claim, a transfer or a release
    Refuse {
        /// The code, or the id of the request
        #[arg(value_name = "CODE|ID", num_args = 1..=2, required = true)]
        which: Vec<String>,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// List what the owner may use, and what not
    Grants(Output),

    /// Turn a grant on: the owner may use what it covers
    #[command(after_help = "Examples:\n  latchkeyd grant camera\n  latchkeyd grant display.text")]
    Grant {
        /// A grant or a capability, such as camera or display.text
        name: String,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Turn a grant off; what runs under it is stopped
    #[command(after_help = "Example:\n  latchkeyd revoke camera")]
    Revoke {
        /// A grant or a capability, such as camera or display.text
        name: String,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Show, check, export or follow the records of what was done
    #[command(
        after_help = "Examples:\n  latchkeyd receipts --last 50\n  latchkeyd receipts --follow\n  latchkeyd receipts --verify\n  \
        latchkeyd receipts --export kitchen.receipts\n  latchkeyd verify-export kitchen.receipts"
    )]
    Receipts {
        /// Check that no record was changed, dropped or moved
        #[arg(long, conflicts_with_all = ["export", "follow", "last"])]
        verify: bool,
        /// Write all records to FILE, signed by the device
        #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "last"])]
        export: Option<PathBuf>,
        /// Go on printing records as they come
        #[arg(long)]
        follow: bool,
        /// How many of the latest to show
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: u32,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Check a file of exported records; works on any machine
    #[command(
        after_help = "Examples:\n  latchkeyd verify-export kitchen.receipts\n  latchkeyd verify-export kitchen.receipts --key KEY\n\n\
        Without --key it only shows that one device signed all of it; with --key, that it was that device."
    )]
    VerifyExport {
        /// The exported file
        file: PathBuf,
        /// The key of the device that must have signed it; latchkeyd key prints it
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        key: Option<String>,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Take the device from its owner, at once
    #[command(
        after_help = "Running work is stopped, every grant is turned off, and pairing is possible again. Records are kept."
    )]
    Release {
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// End the owner's present use of the device; grants stay as they are
    Deactivate(Output),

    /// Try a capability again that was given up
    Restart {
        /// Its name, such as camera.snapshot
        capability: String,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// List the handlers that you dropped into the handlers folder
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  latchkeyd handlers\n  latchkeyd handlers show custom.acme.lamp\n  \
        latchkeyd handlers log custom.acme.lamp\n\n\
        A file custom.MAKER.ACTION.wasm in the handlers folder becomes a capability of that name. It is off until you grant it, and again \n\
        when the file changes. To make one, see: latchkeyd handler --help"
    )]
    Handlers {
        /// What to see of one
        #[command(subcommand)]
        order: Option<HandlersOrder>,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// For those who write handlers: begin, check, run and pack one; works without the device
    #[command(
        subcommand,
        after_help = "From nothing to a handler that runs:\n  latchkeyd handler new acme.lamp --lang wat\n  \
        latchkeyd handler run custom.acme.lamp/custom.acme.lamp.wat level=40\n  \
        latchkeyd handler check custom.acme.lamp/custom.acme.lamp.wat"
    )]
    Handler(HandlerOrder),

    /// Try every part for real, and say what is wrong and which command mends it
    #[command(after_help = format!("{DOCTOR}\n\nParts: {}.", part_names()))]
    Doctor {
        /// Only these parts
        #[arg(value_name = "PART", value_parser = part())]
        parts: Vec<Part>,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// List what could be used: cameras, LEDs, GPIO lines, displays
    #[command(after_help = "Examples:\n  latchkeyd hardware\n  latchkeyd hardware --json\n\n\
        Each is named as the settings take it; what they use now is marked. It only looks, and needs no running device.")]
    Hardware(Output),

    /// Show the device's public key and fingerprint
    Key(Output),

    /// Make, check or show the settings
    #[command(subcommand)]
    Config(ConfigOrder),
}

/// One command about one handler in the folder.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum HandlersOrder {
    /// Show all of one handler: its files, limits, reach and arguments
    Show {
        /// Its name, such as custom.acme.lamp
        name: String,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },
    /// Show what a handler logged in its last calls
    Log {
        /// Its name, such as custom.acme.lamp
        name: String,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },
}

/// One command for those who write handlers.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum HandlerOrder {
    /// Write a small project that builds with its language's usual tools
    #[command(
        after_help = "Examples:\n  latchkeyd handler new acme.lamp --lang wat\n  latchkeyd handler new acme.lamp --lang js --dir lamp\n\n\
        The README.md in the new folder says how it is built."
    )]
    New {
        /// Who makes it, and what it does: acme.lamp becomes custom.acme.lamp
        #[arg(value_name = "MAKER.ACTION")]
        name: String,
        /// In which language: js, rust, c or wat
        #[arg(long, value_name = "LANGUAGE", value_parser = language())]
        lang: Lang,
        /// Where to; else a new folder custom.MAKER.ACTION here
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },

    /// Say what a handler imports, asks for and would get, or why it would be refused
    #[command(after_help = "Example:\n  latchkeyd handler check custom.acme.lamp.wasm\n\n\
        The file is judged as the device would: its name, its .toml beside it, its description, its reach, and whether it compiles.")]
    Check {
        /// The handler, custom.MAKER.ACTION.wasm or .wat
        file: PathBuf,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Run a handler once under its real limits and sandbox, without installing it
    #[command(after_help = "Examples:\n  latchkeyd handler run custom.acme.lamp.wasm level=40\n  \
        latchkeyd handler run custom.acme.lamp.wasm --args '{\"level\": 40}'\n\n\
        The result goes to standard output; time, memory and what it logged go to standard error. A .toml beside the file counts.")]
    Run {
        /// The handler, custom.MAKER.ACTION.wasm or .wat
        file: PathBuf,
        /// The arguments, one JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// Single arguments; numbers, lists and objects as JSON, texts as they are
        #[arg(value_name = "NAME=VALUE", conflicts_with = "args")]
        pairs: Vec<String>,
        /// How it prints
        #[command(flatten)]
        output: Output,
    },

    /// Put a description into a component, in place of one it has
    #[command(after_help = "Example:\n  latchkeyd handler pack custom.acme.lamp.wasm --descriptor lamp.json\n\n\
        The description is a JSON object with the members description and arguments. It only describes: limits and reach stand in the \n\
        .toml, which is the keeper's.")]
    Pack {
        /// The component
        file: PathBuf,
        /// The description, a JSON file
        #[arg(long, value_name = "FILE")]
        descriptor: PathBuf,
        /// Where to; else into the file itself
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },

    /// Make a component of a core module, or of its text
    #[command(after_help = "Example:\n  latchkeyd handler wrap lamp.wasm -o custom.acme.lamp.wasm\n\n\
        The module exports invoke, memory and cabi_realloc, as C compiled without a libc does.")]
    Wrap {
        /// The core module, .wasm or .wat
        file: PathBuf,
        /// Where to; else beside the file, ending in .wasm
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

const DOCTOR: &str = "Examples:\n  latchkeyd doctor\n  latchkeyd doctor camera sign\n  latchkeyd doctor --json\n\n\
    It lights the in-use sign and takes a picture, which nobody sees: the running device does, or this command itself where none\n\
    runs. It changes nothing. Exit code 0: all that is configured works; 1: something does not.";

fn part_names() -> String {
    Part::ALL.map(Part::as_str).join(", ")
}

/// The parts, listed in the error.
fn part() -> impl clap::builder::TypedValueParser<Value = Part> {
    clap::builder::PossibleValuesParser::new(Part::ALL.map(Part::as_str))
        .try_map(|word| Part::ALL.into_iter().find(|part| part.as_str() == word).ok_or("no such part"))
}

/// The languages, listed in the help and in the error.
fn language() -> impl clap::builder::TypedValueParser<Value = Lang> {
    clap::builder::PossibleValuesParser::new(["js", "rust", "c", "wat"]).try_map(|word| word.parse::<Lang>())
}

/// One command about settings.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigOrder {
    /// Write a settings file that explains every key
    Init,
    /// Check the settings, change nothing
    Check,
    /// Show the settings in force
    Show(Output),
}

/// How a command prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Output {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}
