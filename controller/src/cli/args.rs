//! What can be typed, and its help.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use wire::declaration::LISTEN_SECONDS_MAX;
use wire::request::{LEASE_MS_MAX, LEASE_MS_MIN};

/// The end of every command's help. The text is wrapped to the terminal, so a paragraph is one line here.
macro_rules! help {
    ($($text:literal),+) => {
        concat!(
            $($text),+,
            "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 not reachable or not in time, 5 outcome unknown."
        )
    };
}

/// The longest time that can be given: a day, in seconds.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// What a lease may be, in seconds.
const LEASE_SECONDS: RangeInclusive<u64> = LEASE_MS_MIN / 1000..=LEASE_MS_MAX / 1000;

/// The sentence for a lease outside its range.
pub(crate) fn lease_range() -> String {
    format!("a lease has {} to {} seconds", LEASE_SECONDS.start(), LEASE_SECONDS.end())
}

fn lease_seconds(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|seconds| LEASE_SECONDS.contains(seconds)).ok_or_else(lease_range)
}

fn timeout_seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=TIMEOUT_SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| format!("a time has 1 to {TIMEOUT_SECONDS_MAX} seconds"))
}

const START: &str = "\
First steps:
  latchkey agent new kitchen-bot@home.example.org
  latchkey claim 'https://192.168.1.20:7601/#…'     the link from: latchkeyd pair
  latchkey capabilities kitchen
  latchkey snapshot kitchen -o kitchen.jpg

DEVICE is a name, the first six or more characters of a key, or a fingerprint.

State is kept in --state-dir, else $LATCHKEY_CONTROLLER_DIR, else ~/.local/state/latchkey-controller.

Exit codes:
  0  done
  1  failed
  2  wrong usage, or arguments outside what the device declares
  3  refused: not granted, not active, not approved in time, not the owner
  4  not reachable, or not in time
  5  outcome unknown: the request was sent and nothing proves how it ended

With --json a failure is a document too: {\"failed\", \"error\", \"message\"}
  failed   failed, usage, refused, unreachable or unknown
  error    the device's error code, or null";

/// Stands above the options that every command has.
const GLOBAL: &str = "Options of all commands";

/// Use devices that run latchkeyd: claim them, see what they offer, call it.
///
/// Each request is signed with an agent's key and sent straight to the device; each answer is checked against the key
/// that the device showed when it was paired.
#[derive(Debug, Parser)]
#[command(name = "latchkey", version, after_help = START, after_long_help = START, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Folder for keys and inventory (0700)
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Print one JSON document on stdout
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Give up after this long, whatever happens [default: 90, or as long as a keeper may take]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "SECONDS", value_parser = timeout_seconds)]
    pub(crate) timeout: Option<u64>,
    /// The agent to act for, if there is more than one
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "ADDRESS")]
    pub(crate) agent: Option<String>,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make and show agents: whose keys the devices obey
    #[command(after_help = AGENT_HELP)]
    Agent {
        /// What to do
        #[command(subcommand)]
        command: AgentCommand,
    },
    /// Ask for a device; its keeper approves at the device
    #[command(after_help = CLAIM_HELP)]
    Claim(Claim),
    /// List devices, and ask about changes that wait for a keeper
    #[command(after_help = DEVICES_HELP)]
    Devices,
    /// Show what a device offers: names, arguments with bounds, grants, state
    #[command(after_help = CAPABILITIES_HELP)]
    Capabilities {
        /// The device
        device: String,
        /// One capability, shown in full with a call to copy
        #[arg(value_name = "CAPABILITY")]
        name: Option<String>,
    },
    /// Make a device the agent's active one
    #[command(after_help = ACTIVATE_HELP)]
    Activate {
        /// The device
        device: String,
        /// For how many seconds, 5 to 300
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = lease_seconds)]
        lease: u64,
    },
    /// End activation
    #[command(after_help = DEACTIVATE_HELP)]
    Deactivate {
        /// The device
        device: String,
    },
    /// Use a capability
    #[command(after_help = CALL_HELP)]
    Call(Call),
    /// Stop a running call, also one that another process waits for
    #[command(after_help = CANCEL_HELP)]
    Cancel {
        /// The device
        device: String,
        /// The id of the call
        id: String,
    },
    /// Take a picture (camera.snapshot)
    #[command(after_help = SNAPSHOT_HELP)]
    Snapshot(Snapshot),
    /// Show a text or a picture (display.text, display.image)
    #[command(after_help = SHOW_HELP)]
    Show(Show),
    /// Listen for some seconds (microphone.listen)
    #[command(after_help = LISTEN_HELP)]
    Listen(Listen),
    /// Say a text aloud (speaker.say)
    #[command(after_help = SAY_HELP)]
    Say(Say),
    /// Ask how a device is (device.health)
    #[command(after_help = HEALTH_HELP)]
    Health {
        /// The device
        device: String,
    },
    /// Give a device to another agent; its keeper approves at the device
    #[command(after_help = TRANSFER_HELP)]
    Transfer(Transfer),
    /// Give a device up; its keeper approves at the device
    #[command(after_help = RELEASE_HELP)]
    Release {
        /// The device
        device: String,
        /// Do not wait for the keeper
        #[arg(long)]
        no_wait: bool,
    },
    /// Remove a device from the list; the device is not told
    #[command(after_help = FORGET_HELP)]
    Forget {
        /// The device
        device: String,
    },
}

/// `agent …`
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Make an agent with a key of its own, for example: latchkey agent new kitchen-bot@home.example.org
    New {
        /// Its address, name@scope.provider
        address: String,
    },
    /// List agents; --json: [{"agent","key","fingerprint"}]
    List,
    /// Show an agent's public key; --json: {"agent","key","fingerprint"}
    Show {
        /// Its address, if there is more than one
        address: Option<String>,
    },
}

const CLAIM_HELP: &str = help!(
    "The link comes from `latchkeyd pair` at the device, and holds a secret: put it in quotes. Compare the code that is printed with the one at the device; the keeper then runs `latchkeyd approve CODE` there.\n\n",
    "Example:\n  latchkey claim 'https://192.168.1.20:7601/#…' --name kitchen\n\n",
    "--json: {\"device\", \"key\", \"fingerprint\", \"agent\", \"id\", \"code\", \"state\", \"expires_at\"}; state is pending, approved, refused or expired, times are milliseconds since 1970. With --resume, one such line for each claim that waits.\n\n",
    "A claim that is not approved (yet) ends with 3; one that was only asked for, with --no-wait, ends with 0."
);

/// `claim`
#[derive(Debug, Args)]
pub(crate) struct Claim {
    /// The pairing link, or - to read it from stdin
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) link: Option<String>,
    /// What to call the device here [default: its own name]
    #[arg(long, conflicts_with = "resume")]
    pub(crate) name: Option<String>,
    /// Print the code and do not wait for the keeper
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Wait for claims made before; with --no-wait just ask how they stand
    #[arg(long)]
    pub(crate) resume: bool,
}

const DEVICES_HELP: &str = help!(
    "Example:\n  latchkey devices\n\n",
    "--json: [{\"name\", \"key\", \"fingerprint\", \"agent\", \"address\", \"state\", \"change\", \"maybe_active_ms\"}]; state is owned, claiming or gone; change is null or {\"kind\", \"id\", \"state\", \"code\", \"to\", \"expires_at\", \"asked\"}, where asked is false if the device could not be asked now; maybe_active_ms is how long the device may still be the active one."
);

const CAPABILITIES_HELP: &str = help!(
    "Examples:\n  latchkey capabilities kitchen\n  latchkey capabilities kitchen display.text\n\n",
    "--json: with a capability its member of the list below, else the device's registration as it signed it: {\"device\", \"name\", \"protocol\", \"owner\", \"active\", \"active_until\", \"simulated\", \"capabilities\": [{\"name\", \"description\", \"arguments\", \"effect\", \"activation\", \"grant\", \"captures\", \"timeout_ms\", \"state\"}]}"
);

const ACTIVATE_HELP: &str = help!(
    "An agent has at most one active device. Another one that may be active is deactivated first; if it cannot be reached, this waits until its lease is certainly over, if the time given allows.\n\n",
    "Example:\n  latchkey activate kitchen --lease 120\n\n",
    "--json: {\"device\", \"active\", \"lease_ms\"}"
);

const CALL_HELP: &str = help!(
    "Values get the type that the device declares (see `latchkey capabilities DEVICE`). name=@FILE reads a file, in base64 where the device wants that; name=@@TEXT is the text @TEXT. Instead of name=value, one JSON object can be given, or - to read it from stdin. A capability that needs an active device activates it. Ctrl-C cancels the call at the device.\n\n",
    "Examples:\n  latchkey call kitchen display.text text='dinner is ready'\n  latchkey call kitchen custom.acme.lamp '{\"level\":3}'\n\n",
    "--json: {\"device\", \"id\", \"value\"}\n\n",
    "Exit code 5 means that it may have been done. Asking again with the same --id never does it twice: it gives the outcome that the device has on record."
);

/// `call`
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The device
    pub(crate) device: String,
    /// The capability
    pub(crate) capability: String,
    /// name=value…, or one JSON object, or - for JSON from stdin
    #[arg(value_name = "ARGUMENT", allow_hyphen_values = false)]
    pub(crate) arguments: Vec<String>,
    /// How to send it
    #[command(flatten)]
    pub(crate) sending: Sending,
}

/// What call, snapshot, show, listen and say have in common.
#[derive(Debug, Args)]
pub(crate) struct Sending {
    /// Do not activate the device; refuse if it is not active
    #[arg(long)]
    pub(crate) no_activate: bool,
    /// For how many seconds to activate, 5 to 300, if needed [default: 60, or what the capability takes]
    #[arg(long, value_name = "SECONDS", value_parser = lease_seconds)]
    pub(crate) lease: Option<u64>,
    /// Ask again under this id instead of a new one
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

const CANCEL_HELP: &str = help!(
    "Example:\n  latchkey cancel kitchen 4f1c…\n\n",
    "--json: {\"device\", \"id\", \"cancelled\"}; false means that nothing runs under that id."
);

const SNAPSHOT_HELP: &str = help!(
    "The file appears whole or not at all, readable by you alone; - is stdout. The device is activated if it is not active.\n\n",
    "Example:\n  latchkey snapshot kitchen -o kitchen.jpg\n\n",
    "--json: {\"device\", \"id\", \"file\", \"mime\", \"bytes\"}"
);

/// `snapshot`
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// The device
    pub(crate) device: String,
    /// Where the picture goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// How to send it
    #[command(flatten)]
    pub(crate) sending: Sending,
}

const SHOW_HELP: &str = help!(
    "If the word names a JPEG or PNG file, the picture is shown, else the text. The device is activated if it is not active.\n\n",
    "Examples:\n  latchkey show kitchen 'dinner is ready'\n  latchkey show kitchen plan.png\n\n",
    "--json: {\"device\", \"id\", \"capability\", \"value\"}"
);

/// `show`
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The device
    pub(crate) device: String,
    /// What to show
    #[arg(value_name = "TEXT|FILE")]
    pub(crate) what: String,
    /// It is a text, even if a file has that name
    #[arg(long)]
    pub(crate) text: bool,
    /// How to send it
    #[command(flatten)]
    pub(crate) sending: Sending,
}

const LISTEN_HELP: &str = help!(
    "A WAV file, 16 kHz, 16 bit, mono. It appears whole or not at all, readable by you alone; - is stdout. The device is activated if it is not active.\n\n",
    "Example:\n  latchkey listen kitchen --seconds 5 -o kitchen.wav\n\n",
    "--json: {\"device\", \"id\", \"file\", \"mime\", \"bytes\"}"
);

/// `listen`
#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// The device
    pub(crate) device: String,
    /// How many seconds, 1 to 15
    #[arg(short, long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=LISTEN_SECONDS_MAX))]
    pub(crate) seconds: u64,
    /// Where the sound goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// How to send it
    #[command(flatten)]
    pub(crate) sending: Sending,
}

const SAY_HELP: &str = help!(
    "At most 500 bytes. Ends when the last word was said. The device is activated if it is not active.\n\n",
    "Example:\n  latchkey say kitchen 'dinner is ready'\n\n",
    "--json: {\"device\", \"id\", \"value\"}"
);

/// `say`
#[derive(Debug, Args)]
pub(crate) struct Say {
    /// The device
    pub(crate) device: String,
    /// What to say
    pub(crate) text: String,
    /// How to send it
    #[command(flatten)]
    pub(crate) sending: Sending,
}

const HEALTH_HELP: &str = help!("Example:\n  latchkey health kitchen\n\n", "--json: the value of device.health.");

const TRANSFER_HELP: &str = help!(
    "The new owner's agent shows its key with `latchkey agent show`. The keeper compares the code and approves at the device.\n\n",
    "Example:\n  latchkey transfer kitchen --to hall-bot@home.example.org --key 3b1…\n\n",
    "--json: {\"device\", \"key\", \"fingerprint\", \"agent\", \"id\", \"code\", \"state\", \"expires_at\"}"
);

/// `transfer`
#[derive(Debug, Args)]
pub(crate) struct Transfer {
    /// The device
    pub(crate) device: String,
    /// The new owner
    #[arg(long, value_name = "AGENT")]
    pub(crate) to: String,
    /// The new owner's public key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) key: String,
    /// Do not wait for the keeper
    #[arg(long)]
    pub(crate) no_wait: bool,
}

const RELEASE_HELP: &str = help!(
    "Example:\n  latchkey release kitchen\n\n",
    "--json: {\"device\", \"key\", \"fingerprint\", \"agent\", \"id\", \"code\", \"state\", \"expires_at\"}; there is no code."
);

const DEACTIVATE_HELP: &str = help!("Example:\n  latchkey deactivate kitchen\n\n", "--json: {\"device\", \"active\"}");

const FORGET_HELP: &str = help!(
    "The device goes on obeying this agent's key until it is released or transferred. While it may be active it cannot be forgotten.\n\n",
    "Example:\n  latchkey forget kitchen\n\n",
    "--json: {\"device\", \"forgotten\"}"
);

const AGENT_HELP: &str = help!(
    "An agent is a key under an address. Devices obey the key; whoever can read it can act for the agent.\n\n",
    "Example:\n  latchkey agent new kitchen-bot@home.example.org\n\n",
    "--json: {\"agent\", \"key\", \"fingerprint\"}; a list of them for `agent list`."
);
