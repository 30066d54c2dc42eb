//! Where the processes of handlers are started: the one place for them.
//!
//! Owns a thread that lives as long as the workshop and starts every child, because the kernel ends a child when the *thread* that
//! started it ends. A child gets its two pipes and nothing else: no descriptor, no environment but a word for its allocator, no folder, no terminal's signals. It is
//! reaped by a thread of its own, whatever becomes of us; dropping its [`Life`] kills it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::child::CHILD_ARGUMENT;
use super::line;

/// Orders that may wait for the thread: more than there can be children, a compiler and a probe together.
const ORDERS_MAX: usize = 32;

/// The one variable of a child's environment: its allocator (mimalloc) sets 16 MiB aside at a time, not 1 GiB. What it sets aside
/// counts against the limit on data, which else would lie a gigabyte above the guest's own.
const ALLOCATOR_ROOM: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "16MiB");

/// Which program a child is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The one that runs, also when its file was replaced meanwhile.
    This,
    /// The one at a path, for tests.
    At(PathBuf),
}

/// Starts children. Tests put a fake here.
pub(crate) trait Starter: Send + Sync {
    /// Starts one. `alive` is dropped when it is gone and reaped.
    fn start(&self, alive: TaskTrackerToken) -> BoxFuture<'static, io::Result<Born>>;
}

/// A child that was started.
pub(crate) struct Born {
    pub(crate) from: line::From,
    pub(crate) to: line::To,
    pub(crate) life: Box<dyn Life>,
}

/// The life of a child. Dropping it kills the child.
pub(crate) trait Life: Send {
    /// Waits for its end, and says how that was.
    fn end(&mut self) -> BoxFuture<'_, String>;
}

/// The thread.
pub(crate) struct Spawner {
    orders: SyncSender<Order>,
}

struct Order {
    alive: TaskTrackerToken,
    reply: oneshot::Sender<io::Result<Raw>>,
}

/// A child, before the runtime has its pipes.
struct Raw {
    from: OwnedFd,
    to: OwnedFd,
    life: Process,
}

struct Process {
    /// Names this very process, also after its number went to another one.
    handle: OwnedFd,
    ended: oneshot::Receiver<ExitStatus>,
}

impl Spawner {
    /// Starts the thread; it ends, and every child with it, when this is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn new(program: Program) -> io::Result<Self> {
        let (orders, taken) = sync_channel::<Order>(ORDERS_MAX);
        std::thread::Builder::new().name("handler-spawner".to_owned()).spawn(move || {
            while let Ok(Order { alive, reply }) = taken.recv() {
                // Whoever ordered may be gone; the child then dies with its `Raw`.
                drop(reply.send(spawn(&program, alive)));
            }
        })?;
        Ok(Self { orders })
    }
}

impl Starter for Spawner {
    fn start(&self, alive: TaskTrackerToken) -> BoxFuture<'static, io::Result<Born>> {
        let (reply, born) = oneshot::channel();
        let ordered = self.orders.try_send(Order { alive, reply });
        async move {
            ordered.map_err(|_| io::Error::other("too many processes are being started"))?;
            let raw = born.await.map_err(|_| io::Error::other("the thread that starts processes ended"))??;
            let from = pipe::Receiver::from_owned_fd(raw.from)?;
            let to = pipe::Sender::from_owned_fd(raw.to)?;
            Ok(Born { from: Box::new(from), to: Box::new(to), life: Box::new(raw.life) })
        }
        .boxed()
    }
}

impl Life for Process {
    fn end(&mut self) -> BoxFuture<'_, String> {
        async {
            match (&mut self.ended).await {
                Ok(status) => in_words(status),
                Err(_) => "its process ended".to_owned(),
            }
        }
        .boxed()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

fn spawn(program: &Program, alive: TaskTrackerToken) -> io::Result<Raw> {
    // First who reaps: where the system has no room for that thread, no child is started.
    let (told, ended) = oneshot::channel();
    let reaper = reaper(told, alive)?;
    let mut child = command(program).spawn()?;
    let adopted = adopt(&mut child);
    if adopted.is_err() {
        // Without a handle it could not be ended later.
        drop(child.kill());
    }
    drop(reaper.send(child));
    let (from, to, handle) = adopted?;
    Ok(Raw { from, to, life: Process { handle, ended } })
}

/// A thread that waits for the end of one child, so that none stays a zombie however long its end takes.
fn reaper(told: oneshot::Sender<ExitStatus>, alive: TaskTrackerToken) -> io::Result<SyncSender<Child>> {
    let (hand_over, handed) = sync_channel::<Child>(1);
    std::thread::Builder::new().name("handler-reaper".to_owned()).spawn(move || {
        if let Some(status) = handed.recv().ok().and_then(|mut child| child.wait().ok()) {
            // Nobody waits for it when it was ended by us.
            let _ = told.send(status);
        }
        drop(alive);
    })?;
    Ok(hand_over)
}

fn command(program: &Program) -> Command {
    let path = match program {
        // In the child this still is the inode that we run.
        Program::This => Path::new("/proc/self/exe"),
        Program::At(path) => path.as_path(),
    };
    let mut command = Command::new(path);
    command.arg0(OsStr::new("latchkeyd")).arg(CHILD_ARGUMENT).env_clear().current_dir("/");
    command.env(ALLOCATOR_ROOM.0, ALLOCATOR_ROOM.1);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A group of its own: Ctrl-C at our terminal is for us.
    command.process_group(0);
    crate::alone::pipes_only(&mut command);
    command
}

/// What we hold of a child.
fn adopt(child: &mut Child) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    let missing = || io::Error::other("a pipe is missing");
    let from = child.stdout.take().ok_or_else(missing)?;
    let to = child.stdin.take().ok_or_else(missing)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(missing)?;
    // Not reaped yet, so the number is still its own.
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((from.into(), to.into(), handle))
}

/// How a process ended.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(libc::SIGSYS)) => "its process made a system call that it may not make".to_owned(),
        (_, Some(libc::SIGKILL)) => "its process was killed (for its memory, or by someone)".to_owned(),
        (_, Some(libc::SIGXCPU)) => "its process used up its processor time".to_owned(),
        (_, Some(signal)) => format!("its process died of signal {signal}"),
        (Some(code), None) => format!("its process ended with code {code}"),
        (None, None) => "its process ended".to_owned(),
    }
}

#[cfg(test)]
mod tests;
