//! One run of a speech engine: a process of its own, from its start until it is reaped.
//!
//! Called by `engine`, in a thread that lives as long as the process, because the kernel ends a process when the *thread* that started it
//! ends. The text goes in by standard input, the sound comes out by standard output; nothing of the text is ever an argument. Whatever
//! happens (the sound is whole, the engine complains, crashes, hangs, is no longer wanted), its whole process group is killed and the
//! process reaped before the thread ends.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Signal, kill_process_group, pidfd_open};
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use super::wav::{Wanted, Wav};
use super::{SpeechFault, Spoken};
use crate::clock::{BootTime, Clock as _, SystemClock};

/// How often `stop` is looked at.
const SLICE: Duration = Duration::from_millis(50);
/// How long an engine may take to leave once its sound is whole.
const LEAVE: Duration = Duration::from_millis(500);
/// Bytes that are taken from a pipe at once.
const PIECE_BYTES: usize = 64 * 1024;
/// What is kept of an engine's complaints: its first sentences say what was wrong.
const SAID_BYTES_MAX: usize = 500;
/// All of an engine's environment: programs that it starts are found, text is UTF-8, and nothing is kept in anybody's home.
const ENVIRONMENT: [(&str, &str); 3] =
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("HOME", "/nonexistent")];

/// A program that reads a text and writes WAV.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<String>,
    /// What it may use up, beside time by the clock.
    pub(super) limits: &'static [(Resource, u64)],
}

impl Program {
    /// What people call it.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        visible(&name.unwrap_or_else(|| self.path.display().to_string()))
    }

    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env_clear().envs(ENVIRONMENT).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, which nothing of it leaves: so it can be ended with everything that it started, and Ctrl-C at our terminal is for us.
        command.process_group(0);
        crate::alone::pipes_only(&mut command);
        crate::alone::bounded(&mut command, self.limits);
        crate::alone::in_one_group(&mut command)?;
        Ok(command)
    }
}

/// Has `words` spoken; returns when the process is gone.
pub(super) fn speak(
    program: &Program,
    words: &str,
    time: Duration,
    stop: &CancellationToken,
) -> Result<Spoken, SpeechFault> {
    let deadline = SystemClock.boot().add(time);
    let mut run = Run::start(program)?;
    run.tell(words);
    let ended = run.listen(deadline, stop);
    let status = run.end();
    let (said, engine) = (run.said(), program.name());
    match (ended, status) {
        (Listened::Stopped, _) => Err(SpeechFault::Stopped),
        (Listened::Late, _) => Err(SpeechFault::Slow { engine, seconds: time.as_secs(), said }),
        (Listened::Garbage(fault), _) => Err(SpeechFault::Garbage { engine, fault, said }),
        (Listened::Enough, _) => finish(run.take(), engine, said),
        (Listened::Ended, Ok(status)) if status.success() => finish(run.take(), engine, said),
        (Listened::Ended, Ok(status)) => Err(SpeechFault::Ended { engine, how: in_words(status), said }),
        (Listened::Ended, Err(error)) | (Listened::Lost(error), _) => {
            Err(SpeechFault::Ended { engine, how: format!("was lost: {error}"), said })
        }
    }
}

fn finish(wav: Wav, engine: String, said: String) -> Result<Spoken, SpeechFault> {
    wav.finish().map_err(|fault| SpeechFault::Garbage { engine, fault, said })
}

/// How listening to a process ended.
enum Listened {
    /// It ended by itself, and all that it wrote was read.
    Ended,
    /// It wrote all that is wanted.
    Enough,
    Garbage(super::WavFault),
    Late,
    Stopped,
    /// The system refused to let us listen.
    Lost(io::Error),
}

/// A process that runs.
struct Run {
    child: Child,
    /// Ready to be read once the process has ended.
    handle: OwnedFd,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    wav: Wav,
    said: Vec<u8>,
    reaped: bool,
}

/// What was there to be read.
enum Drained {
    Nothing,
    Something,
    /// The sound ends here, as its header says, or is long enough.
    Enough(Wanted),
}

impl Run {
    fn start(program: &Program) -> Result<Self, SpeechFault> {
        let unstarted = |error: io::Error| SpeechFault::Unstarted { engine: program.name(), why: error.to_string() };
        let mut child = program.command().and_then(|mut command| command.spawn()).map_err(unstarted)?;
        let handle = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(error) => {
                kill(&child);
                drop(child.wait());
                return Err(unstarted(error.into()));
            }
        };
        let (out, err) = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
        let run = Self { child, handle, out, err, wav: Wav::new(), said: Vec::new(), reaped: false };
        for pipe in [&run.out, &run.err].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true).map_err(|error| unstarted(error.into()))?;
        }
        Ok(run)
    }

    /// Gives it the text, and the end of it. The longest text fits an empty pipe, so this waits for nobody.
    fn tell(&mut self, words: &str) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // One that does not read its text shows that by its sound.
            let _ = pipe.write_all(format!("{words}\n").as_bytes());
        }
    }

    /// Until it has ended and all was read, or sooner.
    fn listen(&mut self, mut deadline: BootTime, stop: &CancellationToken) -> Listened {
        let mut whole = false;
        loop {
            if stop.is_cancelled() {
                return Listened::Stopped;
            }
            let now = SystemClock.boot();
            if now >= deadline {
                return if whole { Listened::Enough } else { Listened::Late };
            }
            // Asked before the pipes are drained: what it wrote before its end is then in them.
            let ended = match self.wait(deadline.since(now).min(SLICE)) {
                Ok(ended) => ended,
                Err(error) => return Listened::Lost(error.into()),
            };
            match self.drain() {
                Ok(Drained::Something) => {}
                Ok(Drained::Nothing) if ended => return if whole { Listened::Enough } else { Listened::Ended },
                Ok(Drained::Nothing) => {}
                Ok(Drained::Enough(Wanted::Whole)) if !whole => {
                    whole = true;
                    deadline = deadline.min(SystemClock.boot().add(LEAVE));
                }
                Ok(Drained::Enough(Wanted::Whole | Wanted::More)) => {}
                Ok(Drained::Enough(Wanted::Cut)) => return Listened::Enough,
                Err(fault) => return Listened::Garbage(fault),
            }
        }
    }

    /// Waits until there is something to read, or the process has ended, which is said.
    fn wait(&self, most: Duration) -> rustix::io::Result<bool> {
        let mut watched = vec![PollFd::new(&self.handle, PollFlags::IN)];
        watched.extend([&self.out, &self.err].into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        match poll(&mut watched, Some(&most)) {
            Ok(_) | Err(Errno::INTR) => Ok(watched.first().is_some_and(|process| !process.revents().is_empty())),
            Err(error) => Err(error),
        }
    }

    /// Reads what is there: some of its complaints, and a piece of its sound.
    fn drain(&mut self) -> Result<Drained, super::WavFault> {
        let mut piece = vec![0; PIECE_BYTES];
        let complaint = next(&mut self.err, &mut piece);
        let complained = complaint.is_some();
        let room = SAID_BYTES_MAX.saturating_sub(self.said.len());
        self.said.extend(complaint.unwrap_or_default().iter().take(room));
        match next(&mut self.out, &mut piece) {
            Some(bytes) => match self.wav.push(bytes)? {
                Wanted::More => Ok(Drained::Something),
                enough => Ok(Drained::Enough(enough)),
            },
            None if complained => Ok(Drained::Something),
            None => Ok(Drained::Nothing),
        }
    }

    /// What it complained of, as one line.
    fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.said);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        visible(&lines.join("; "))
    }

    /// Ends it with all of its group, and reaps it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.reaped {
            kill(&self.child);
        }
        self.reaped = true;
        self.child.wait()
    }

    fn take(&mut self) -> Wav {
        std::mem::replace(&mut self.wav, Wav::new())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// Ends a process that was not reaped yet, so that its number is still its own, and all of its group.
fn kill(child: &Child) {
    // Fails only when nobody of the group is left.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
}

/// The next bytes of a pipe that are there; one that has ended is closed.
fn next<'a>(pipe: &mut Option<OwnedFd>, piece: &'a mut [u8]) -> Option<&'a [u8]> {
    let fd: BorrowedFd<'_> = pipe.as_ref()?.as_fd();
    match rustix::io::read(fd, &mut *piece) {
        Ok(read) if read > 0 => piece.get(..read),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Ok(_) | Err(_) => {
            *pipe = None;
            None
        }
    }
}

/// How a process ended.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(libc::SIGXCPU)) => "used up its processor time".to_owned(),
        (_, Some(libc::SIGXFSZ)) => "wrote a file that was too long".to_owned(),
        (_, Some(libc::SIGKILL)) => "was killed (for its processor time, its memory, or by someone)".to_owned(),
        (_, Some(libc::SIGSYS)) => {
            "was refused by the kernel: it is no program for this processor's own word size (signal 31)".to_owned()
        }
        (_, Some(libc::SIGABRT)) => "crashed: it aborted (signal 6)".to_owned(),
        (_, Some(signal)) => format!("crashed: it died of signal {signal}"),
        (Some(code), None) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
