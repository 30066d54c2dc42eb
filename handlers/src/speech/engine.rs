//! A program that speaks: espeak-ng, or the one that the keeper names.
//!
//! Owns how such a program is found, what it is started with, and what it may use up; `child` runs it. Refuses a program that is not
//! there, with what to install. The text reaches it by standard input alone, so that no text is an option.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::process::Resource;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use super::child::{self, Program};
use super::{Speech, SpeechFault, Spoken};

/// Where a program without a path is sought. The environment of whoever started us has no say in it.
const FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// The engine, unless another is named.
const ESPEAK: &str = "espeak-ng";
/// Text from standard input, WAV to standard output, and that text is UTF-8. Never `-m`, by which it would obey markup in a text.
const ESPEAK_ARGUMENTS: [&str; 4] = ["--stdin", "--stdout", "-b", "1"];

/// What espeak-ng may use up: it needs 60 MiB of addresses, and half a second for the longest text on a slow machine. Before it speaks it
/// makes room of 64 MiB for a sound server that it then does not use, which counts as a file.
const ESPEAK_MAY: &[(Resource, u64)] = &[
    (Resource::As, 256 * MIB),
    (Resource::Cpu, 10),
    (Resource::Fsize, 64 * MIB),
    (Resource::Nofile, 64),
    (Resource::Core, 0),
];
/// What any other engine may use up. Neural voices reserve far more addresses than memory, so what they fill is limited; they compute on
/// all cores, so their processor time may be several times what passes by the clock.
const OTHERS_MAY: &[(Resource, u64)] = &[
    (Resource::Data, 2048 * MIB),
    (Resource::Cpu, 120),
    (Resource::Fsize, 64 * MIB),
    (Resource::Nofile, 256),
    (Resource::Core, 0),
];
const MIB: u64 = 1024 * 1024;

/// Which engine speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineChoice {
    /// espeak-ng, with its own voice or this one.
    Espeak {
        /// As its option `-v` takes it.
        voice: Option<String>,
    },
    /// A program that reads text and writes WAV, with its arguments. A name without a path is sought where the system has its programs.
    Command {
        /// The program.
        program: String,
        /// Its arguments, as they stand; no shell sees them.
        arguments: Vec<String>,
    },
}

/// How long an engine may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// From its start to the last of its sound.
    pub whole: Duration,
}

impl Default for EngineLimits {
    fn default() -> Self {
        // A neural voice needs six for the longest text on a fast machine, and the time-out of a call leaves room for the sound.
        Self { whole: Duration::from_secs(20) }
    }
}

/// Speech by a short-lived process for each text.
pub struct SpeechEngine {
    choice: EngineChoice,
    limits: EngineLimits,
}

impl SpeechEngine {
    /// Speaks with this engine.
    pub fn new(choice: EngineChoice, limits: EngineLimits) -> Self {
        Self { choice, limits }
    }

    /// Its program, as `speech.command` names it first.
    pub fn program_name(&self) -> String {
        match &self.choice {
            EngineChoice::Espeak { .. } => ESPEAK.to_owned(),
            EngineChoice::Command { program, .. } => visible(program),
        }
    }

    fn program(&self) -> Result<Program, SpeechFault> {
        match &self.choice {
            EngineChoice::Espeak { voice } => {
                let path = find(ESPEAK).ok_or_else(|| SpeechFault::Missing(not_installed()))?;
                let voice = voice.iter().flat_map(|voice| ["-v".to_owned(), voice.clone()]);
                let arguments = ESPEAK_ARGUMENTS.into_iter().map(str::to_owned).chain(voice).collect();
                Ok(Program { path, arguments, limits: ESPEAK_MAY })
            }
            EngineChoice::Command { program, arguments } => {
                let path = find(program).ok_or_else(|| SpeechFault::Missing(not_there(program)))?;
                Ok(Program { path, arguments: arguments.clone(), limits: OTHERS_MAY })
            }
        }
    }
}

fn not_installed() -> String {
    format!(
        "there is no speech engine: {ESPEAK} is not installed; install the package {ESPEAK} (apt install {ESPEAK}), or name another \
         program with speech.command"
    )
}

fn not_there(program: &str) -> String {
    let program = visible(program);
    if program.starts_with('/') {
        format!("there is no speech engine: {program} of speech.command is not a program that we may run")
    } else {
        format!("there is no speech engine: {program} of speech.command is in none of {}", FOLDERS.join(", "))
    }
}

/// The program's file, if it is one that we may run.
fn find(program: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        let mode = fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file.permissions().mode());
        mode.is_some_and(|mode| mode & 0o111 != 0)
    };
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(runs);
    }
    FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(runs)
}

impl Speech for SpeechEngine {
    fn describe(&self) -> String {
        match &self.choice {
            EngineChoice::Espeak { voice: Some(voice) } => format!("{ESPEAK}, voice {voice}"),
            EngineChoice::Espeak { voice: None } | EngineChoice::Command { .. } => self.program_name(),
        }
    }

    fn ready(&self) -> Result<(), SpeechFault> {
        let program = self.program()?;
        crate::alone::can_be_in_one_group()
            .map_err(|error| SpeechFault::Unstarted { engine: program.name(), why: error.to_string() })
    }

    fn speak(&self, text: &str, stop: CancellationToken) -> BoxFuture<'static, Result<Spoken, SpeechFault>> {
        let (program, text, time) = (self.program(), text.to_owned(), self.limits.whole);
        async move { in_thread(Arc::new(program?), text, time, stop).await }.boxed()
    }
}

/// Runs the engine in a thread of its own. The thread ends when the process is gone, whether or not somebody still waits.
async fn in_thread(
    program: Arc<Program>,
    text: String,
    time: Duration,
    stop: CancellationToken,
) -> Result<Spoken, SpeechFault> {
    let stop = stop.child_token();
    // A caller that goes away stops the thread.
    let _guard = stop.clone().drop_guard();
    let unstarted = |why: String| SpeechFault::Unstarted { engine: program.name(), why };
    let (done, outcome) = oneshot::channel();
    let run = Arc::clone(&program);
    let thread = std::thread::Builder::new().name("speech".to_owned()).spawn(move || {
        // The caller may have gone.
        let _ = done.send(child::speak(&run, &text, time, &stop));
    });
    thread.map_err(|error| unstarted(error.to_string()))?;
    outcome.await.unwrap_or_else(|_| Err(unstarted("its thread ended early".to_owned())))
}
