//! Processes of handlers, as the kernel shows them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process of a handler, by its number and the time when it began, so that another with its number is not taken for it. Its
/// environment is empty, so no room's mark is in it: it is known by its parent and its hidden argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    began: u64,
}

impl Process {
    /// Handlers' processes of the daemon with this number.
    #[must_use]
    pub fn of(daemon: u32) -> Vec<Self> {
        let hidden = handlers::wasm::CHILD_ARGUMENT.as_bytes();
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let found = processes.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = Stat::of(pid)?;
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let is = stat.parent == daemon && command.split(|byte| *byte == 0).any(|argument| argument == hidden);
            is.then_some(Self { pid, began: stat.began })
        });
        found.collect()
    }

    /// Whether it ended, and was waited for.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        Stat::of(self.pid).is_none_or(|stat| stat.began != self.began)
    }

    /// Sends a signal, if it still lives.
    pub fn signal(&self, signal: Signal) {
        if !self.is_gone() {
            let _ = kill_process(Pid::from_raw(self.pid).expect("a number"), signal);
        }
    }
}

/// What the kernel says of a process.
struct Stat {
    parent: u32,
    began: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may hold anything: state, parent, and the beginning as the twentieth.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self { parent: fields.get(1)?.parse().ok()?, began: fields.get(19)?.parse().ok()? })
    }
}

/// Waits until processes of handlers are gone: they die with their daemon.
pub(crate) fn leave_none(children: &[Process]) {
    crate::until("the daemon's children to die with it", || children.iter().all(Process::is_gone).then_some(()));
}
