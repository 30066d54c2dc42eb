//! Who answers a command: the running daemon, or, for what only reads, the state folder itself.

use std::path::Path;

use actors::{Command, FailCode, Reader, Reply};
use config::Places;
use wire::{SecretKey, Signer};

use super::problem::Problem;
use crate::keeper::ask::{Address, Ask, Talk, TalkError, Told};
use crate::key::{self, KeyFileError};

/// Whoever answers.
pub(crate) enum Answers {
    /// The daemon.
    Daemon(Talk),
    /// The state folder, read-only.
    Folder { reader: Box<Reader>, signer: Box<dyn Signer>, now_ms: u64 },
}

impl Answers {
    /// The daemon if it runs, else the state folder. `program` is `latchkeyd` with the flags that reach this device.
    pub(crate) fn anyone(places: &Places, program: &str, now_ms: u64) -> Result<Self, Problem> {
        match Talk::connect(&places.state_dir) {
            Ok(talk) => Ok(Self::Daemon(talk)),
            Err(TalkError::NotRunning { .. }) => Self::folder(&places.state_dir, program, now_ms),
            Err(error) => Err(error.into()),
        }
    }

    fn folder(state_dir: &Path, program: &str, now_ms: u64) -> Result<Self, Problem> {
        let signer = device_key(state_dir, program)?;
        let opened = Reader::open(state_dir, signer.public()).map_err(|error| Problem::of(&error))?;
        let reader = opened.ok_or_else(|| {
            Problem::failed(format!("this device has no state yet; it comes with the first start: {program} run"))
        })?;
        Ok(Self::Folder { reader: Box::new(reader), signer: Box::new(signer), now_ms })
    }

    /// The house's reply; a failure is a problem.
    pub(crate) fn house(&mut self, command: Command) -> Result<Reply, Problem> {
        let reply = match self {
            Self::Daemon(talk) => match talk.ask(&Ask::House { command })? {
                Told::House { reply } => reply,
                Told::Failed { message } => return Err(Problem::failed(message)),
                Told::Reloaded { .. } | Told::Address { .. } | Told::Tried { .. } => return Err(Problem::unfit()),
            },
            Self::Folder { reader, signer, now_ms } => reader.command(signer.as_ref(), *now_ms, &command),
        };
        match reply {
            Reply::Failed { code, message } => Err(Problem::reply(code, &message)),
            reply => Ok(reply),
        }
    }

    /// Something for the daemon that is not for the house.
    pub(crate) fn daemon_itself(&mut self, ask: &Ask) -> Result<Told, Problem> {
        match self {
            Self::Daemon(talk) => match talk.ask(ask)? {
                Told::Failed { message } => Err(Problem::failed(message)),
                told => Ok(told),
            },
            Self::Folder { .. } => {
                Err(Problem::reply(FailCode::NotNow, "latchkeyd is not running; start it with: latchkeyd run"))
            }
        }
    }

    /// Where the daemon listens, if it runs.
    pub(crate) fn address(&mut self) -> Result<Option<Address>, Problem> {
        match self {
            Self::Daemon(_) => match self.daemon_itself(&Ask::Address)? {
                Told::Address { address } => Ok(Some(address)),
                Told::House { .. } | Told::Reloaded { .. } | Told::Tried { .. } | Told::Failed { .. } => {
                    Err(Problem::unfit())
                }
            },
            Self::Folder { .. } => Ok(None),
        }
    }
}

/// The key of the device in `state_dir`; where there is none, the sentence says how one is made there.
pub(crate) fn device_key(state_dir: &Path, program: &str) -> Result<SecretKey, Problem> {
    key::read(state_dir).map_err(|error| match &error {
        KeyFileError::NoDevice { .. } => Problem::failed(format!("{error}; make one with: {program} run")),
        KeyFileError::Lost { .. } | KeyFileError::Damaged { .. } | KeyFileError::Safe(_) => Problem::of(&error),
    })
}
