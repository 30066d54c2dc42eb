//! A handler's process, from its start to its end: the same program as the device, started anew with [`CHILD_ARGUMENT`].
//!
//! Owns the order in which it becomes harmless, and what it says on its two pipes. Started by the parent (`spawn`), which is the only one
//! that speaks to it. Refuses to go on when it cannot be confined or when a folder is not the one that the parent judged; whatever is not
//! in order on the pipe ends it. It ends when its input ends, at once, also while guest code runs.
//!
//! [`serve`] is the same conversation without the confinement, so that what the engine does with bad guests is tested in this crate.

mod compile;
mod engine;
mod guest;
mod http;
mod run;
#[cfg(test)]
mod tests;
mod words;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};
use rustix::time::ClockId;
use tokio::sync::{mpsc, oneshot};
use wasmtime::Engine;

pub(crate) use self::engine::WASMTIME;
use self::guest::{Folders, Shared};
use self::http::{Asked, Door};
use self::run::{Runner, Terms};
use super::confine::{self, Confinement, Plan, Purpose, Reachable};
use super::frame::{
    self, CallFrame, Done, Ended, FROM_CHILD_BYTES_MAX, FROM_COMPILER_BYTES_MAX, Folder, FrameError, FromChild,
    HttpAnswer, HttpTrouble, Role, Start, TO_CHILD_BYTES_MAX, ToChild, VERSION,
};

/// The hidden first argument that makes the program a handler's process. Not an option: no help names it, and it is looked at before
/// settings or keys are read.
pub const CHILD_ARGUMENT: &str = "--handler-process";
/// Messages of the parent that wait while a call runs: it sends few, a cancel and answers to requests.
const WAITING_MAX: usize = 4;
/// The longest message to a running handler: arguments, or an answer of the same length as may be sent.
const RUNNING_BYTES_MAX: usize = FROM_CHILD_BYTES_MAX;
/// Threads for file operations, of which one call needs one at a time; a few are there should some be stuck.
const FILE_THREADS_MAX: usize = 4;

/// Whether the program was started to be a handler's process.
#[must_use]
pub fn asked(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|first| first == CHILD_ARGUMENT)
}

/// Is a handler's process, on standard input and output, until input ends.
#[must_use]
pub fn main() -> ExitCode {
    match live() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn live() -> Result<(), FrameError> {
    let alone = confine::alone();
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let start = match frame::read(&mut input, RUNNING_BYTES_MAX)? {
        ToChild::Start(start) if start.version == VERSION => start,
        _ => return Err(FrameError::Form("not the beginning of this version".to_owned())),
    };
    let confined = alone.map_err(|error| error.to_string()).and_then(|()| confine(&start));
    match confined {
        Ok((confinement, folders, plan)) => {
            let seal = || confine::seal(&plan).map_err(|error| error.to_string());
            serve(input, &mut output, Setting { start, confinement, folders, seal })
        }
        Err(why) => frame::write(&mut output, &FromChild::NotReady { why }, FROM_CHILD_BYTES_MAX),
    }
}

fn confine(start: &Start) -> Result<(Confinement, Folders, Plan), String> {
    let mut reachable = Vec::new();
    let mut seen = Vec::new();
    for folder in &start.folders {
        let opened = open(folder)?;
        let named = folder
            .named
            .to_str()
            .ok_or_else(|| format!("the name of the folder {} is not UTF-8", folder.named.display()))?;
        // By its descriptor, so that it is the one that was opened and no other that has its name now.
        seen.push((PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())), named.to_owned(), folder.write));
        reachable.push(Reachable { folder: opened, write: folder.write });
    }
    let folders = Folders::open(&seen).map_err(|error| format!("a folder of its reach cannot be opened: {error}"))?;
    let purpose = match start.role {
        Role::Compile => Purpose::Compile,
        Role::Run | Role::Probe => Purpose::Run,
    };
    let plan = Plan { purpose, folders: reachable, memory_bytes: start.memory_bytes, accept_weak: start.accept_weak };
    let confinement = confine::enter(&plan).map_err(|error| error.to_string())?;
    Ok((confinement, folders, plan))
}

fn open(folder: &Folder) -> Result<File, String> {
    let shown = folder.named.display();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&folder.real, flags, Mode::empty());
    let opened = opened.map_err(|error| format!("the folder {shown} cannot be opened: {error}"))?;
    let found =
        rustix::fs::fstat(&opened).map_err(|error| format!("the folder {shown} cannot be looked at: {error}"))?;
    if (found.st_dev, found.st_ino) == folder.inode {
        Ok(File::from(opened))
    } else {
        Err(format!("the folder {shown} is not the one that was judged"))
    }
}

/// What a conversation is about.
struct Setting<S> {
    start: Start,
    confinement: Confinement,
    folders: Folders,
    /// Takes what only loading needed.
    seal: S,
}

/// Says that it is ready, and does what it is for.
///
/// # Errors
/// When the pipe breaks, or what comes is not in order. That input ended is no error.
fn serve<S>(
    mut input: impl Read + Send + 'static,
    output: &mut impl Write,
    setting: Setting<S>,
) -> Result<(), FrameError>
where
    S: FnOnce() -> Result<(), String>,
{
    let Setting { start, confinement, folders, seal } = setting;
    let engine = match engine::engine() {
        Ok(engine) => engine,
        Err(error) => {
            return say(output, &FromChild::NotReady { why: format!("no engine: {}", words::refusal(&error)) });
        }
    };
    say(output, &FromChild::Ready { version: VERSION, confinement, engine: engine::name(&engine) })?;
    match start.role {
        Role::Probe => Ok(()),
        Role::Compile => match hear(&mut input)? {
            None => Ok(()),
            Some(ToChild::Compile { source, text }) => {
                let told = match compile::compile(&engine, source, text) {
                    Ok(compiled) => FromChild::Compiled(compiled),
                    Err(why) => FromChild::Refused { why },
                };
                frame::write(output, &told, FROM_COMPILER_BYTES_MAX)
            }
            Some(_) => Err(FrameError::Form("not what a compiler is asked".to_owned())),
        },
        Role::Run => match hear(&mut input)? {
            None => Ok(()),
            Some(ToChild::Load { native }) => run(input, output, &engine, native, &start, folders, seal),
            Some(_) => Err(FrameError::Form("not what a handler is told first".to_owned())),
        },
    }
}

fn run<S>(
    input: impl Read + Send + 'static,
    output: &mut impl Write,
    engine: &Engine,
    native: Vec<u8>,
    start: &Start,
    folders: Folders,
    seal: S,
) -> Result<(), FrameError>
where
    S: FnOnce() -> Result<(), String>,
{
    let (asked, asking) = mpsc::channel(WAITING_MAX);
    let door = start.http.then(|| Door::new(asked));
    let terms = Terms { memory_bytes: start.memory_bytes, result_bytes_max: start.result_bytes_max, folders, door };
    let runner = match Runner::load(engine, native, terms) {
        Ok(runner) => runner,
        Err(why) => return say(output, &FromChild::Refused { why }),
    };
    let (heard, inbox) = mpsc::channel(WAITING_MAX);
    // Ends with its input, or when nobody takes what it hears; the process does not wait for it.
    std::thread::Builder::new().name("ear".to_owned()).spawn(move || listen(input, &heard))?;
    if let Err(why) = seal() {
        return say(output, &FromChild::NotReady { why });
    }
    // No driver for sockets: there are none.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(FILE_THREADS_MAX).build()?;
    say(output, &FromChild::Loaded)?;
    let ended = runtime.block_on(Conversation { runner, inbox, asking, output }.go_on());
    // A file operation that hangs must not hold up the end.
    runtime.shutdown_background();
    ended
}

fn listen(mut input: impl Read, heard: &mpsc::Sender<Result<ToChild, FrameError>>) {
    loop {
        let message = frame::read(&mut input, RUNNING_BYTES_MAX);
        let last = message.is_err();
        if heard.blocking_send(message).is_err() || last {
            return;
        }
    }
}

/// One message, for which room is made at once: the parent announces nothing that it does not send. None when input ended before.
fn hear(input: &mut impl Read) -> Result<Option<ToChild>, FrameError> {
    let mut head = [0; 4];
    match input.read_exact(&mut head) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut bytes = vec![0; frame::length(head, TO_CHILD_BYTES_MAX)?];
    input.read_exact(&mut bytes)?;
    frame::decode(&bytes).map(Some)
}

fn say(output: &mut impl Write, message: &FromChild) -> Result<(), FrameError> {
    frame::write(output, message, FROM_CHILD_BYTES_MAX)
}

/// Calls, one at a time, until input ends.
struct Conversation<'a, W> {
    runner: Runner,
    inbox: mpsc::Receiver<Result<ToChild, FrameError>>,
    asking: mpsc::Receiver<Asked>,
    output: &'a mut W,
}

/// What happened while a call ran.
enum Event {
    Ended(Ended),
    Heard(Option<Result<ToChild, FrameError>>),
    Asked(Asked),
}

type Waiting = Vec<(u64, oneshot::Sender<Result<HttpAnswer, HttpTrouble>>)>;

impl<W: Write> Conversation<'_, W> {
    async fn go_on(mut self) -> Result<(), FrameError> {
        loop {
            match self.inbox.recv().await {
                None | Some(Err(FrameError::Ended)) => return Ok(()),
                Some(Err(error)) => return Err(error),
                Some(Ok(ToChild::Call(call))) => {
                    let Some(done) = self.call(call).await? else { return Ok(()) };
                    say(self.output, &FromChild::Done(done))?;
                }
                // Of a call that is over.
                Some(Ok(ToChild::Cancel { .. } | ToChild::Http { .. })) => {}
                Some(Ok(ToChild::Start(_) | ToChild::Compile { .. } | ToChild::Load { .. })) => {
                    return Err(out_of_order());
                }
            }
        }
    }

    /// None when input ended meanwhile.
    async fn call(&mut self, call: CallFrame) -> Result<Option<Done>, FrameError> {
        let number = call.number;
        // What a call asked for that was cut off before we took it is not asked in the name of the next one.
        while self.asking.try_recv().is_ok() {}
        let record = self.runner.record();
        let mut waiting = Waiting::new();
        let began_us = cpu_us();
        let mut running = pin!(self.runner.call(call, record.clone()));
        let ended = loop {
            let event = tokio::select! {
                biased;
                heard = self.inbox.recv() => Event::Heard(heard),
                Some(asked) = self.asking.recv() => Event::Asked(asked),
                ended = &mut running => Event::Ended(ended),
            };
            match event {
                Event::Ended(ended) => break ended,
                Event::Asked(Asked { number: request_number, request, answer }) => {
                    waiting.retain(|(_, answer)| !answer.is_closed());
                    waiting.push((request_number, answer));
                    say(self.output, &FromChild::Http { number: request_number, call: number, request })?;
                }
                Event::Heard(None | Some(Err(FrameError::Ended))) => return Ok(None),
                Event::Heard(Some(Err(error))) => return Err(error),
                Event::Heard(Some(Ok(ToChild::Cancel { number: cancelled }))) if cancelled == number => {
                    break Ended::Cancelled;
                }
                Event::Heard(Some(Ok(ToChild::Cancel { .. }))) => {}
                Event::Heard(Some(Ok(ToChild::Http { number, answer }))) => {
                    if let Some(place) = waiting.iter().position(|(waits, _)| *waits == number) {
                        // A guest that gave up waiting has dropped its end.
                        let _ = waiting.swap_remove(place).1.send(answer);
                    }
                }
                Event::Heard(Some(Ok(
                    ToChild::Start(_) | ToChild::Compile { .. } | ToChild::Load { .. } | ToChild::Call(_),
                ))) => {
                    return Err(out_of_order());
                }
            }
        };
        Ok(Some(done(number, ended, &record, began_us)))
    }
}

fn done(number: u64, ended: Ended, record: &Shared, began_us: u64) -> Done {
    let mut record = record.record();
    Done {
        number,
        ended,
        log: std::mem::take(&mut record.log),
        log_dropped: record.log_dropped,
        cpu_us: cpu_us().saturating_sub(began_us),
        memory_bytes: u64::try_from(record.budget.memory_bytes()).unwrap_or(u64::MAX),
    }
}

/// Processor time of this process, in microseconds.
fn cpu_us() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}

fn out_of_order() -> FrameError {
    FrameError::Form("not in this order".to_owned())
}
