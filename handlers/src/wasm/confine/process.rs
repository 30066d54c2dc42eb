//! What a process is before it is confined: alone.
//!
//! Holds the two calls for which no safe wrapper is among our libraries, each a line: closing all other descriptors, and leaving a
//! signal aside. Neither touches memory of this program.
#![expect(
    unsafe_code,
    reason = "close_range and signal have no safe wrapper among our libraries; no argument points anywhere"
)]

use std::io::{self, Error};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Behind standard input, output and error.
const FIRST_INHERITED: libc::c_uint = 3;

/// Cuts what was inherited.
pub(super) fn alone() -> io::Result<()> {
    close_inherited()?;
    // The signal comes when the thread that started us ends; the end of the pipe says the same to a process that still listens.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    ignore_file_size_signal()
}

/// Whatever user it runs as, it has no right beyond that user's: of a device that runs as root this takes the rights of root.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

fn close_inherited() -> io::Result<()> {
    // SAFETY: closes numbers; nothing in this process holds one of them yet, since it is the first thing that it does.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST_INHERITED, libc::c_uint::MAX, 0) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// A file that grows beyond the limit is an error of the write then, which the guest sees, not the end of the process.
fn ignore_file_size_signal() -> io::Result<()> {
    // SAFETY: installs no function of ours.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(Error::last_os_error()) } else { Ok(()) }
}
