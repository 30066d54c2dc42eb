//! How every process that we start is born: with its three pipes and nothing else of ours.
//!
//! Called by those who start processes, before they do. Another thread may open a descriptor that is not closed on exec at any moment (a
//! camera's library does), so all of them are marked in the child between fork and exec. Std runs code there under `unsafe` only, which
//! stands here and nowhere else on the parent's side.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use rustix::process::{Resource, Rlimit, Signal};

/// Behind standard input, output and error.
const FIRST_INHERITED: libc::c_uint = 3;

/// It inherits its first three descriptors, and no other.
pub(crate) fn pipes_only(command: &mut Command) {
    // SAFETY: the function makes one system call and touches no memory, which is what may be done between fork and exec.
    #[expect(unsafe_code, reason = "see the head of this file")]
    unsafe {
        command.pre_exec(mark_inherited);
    }
}

/// It has these limits from its first moment, gains no rights by what it starts, and dies with the thread that started it.
pub(crate) fn bounded(command: &mut Command, limits: &'static [(Resource, u64)]) {
    let bound = move || {
        for (resource, most) in limits {
            limit(*resource, *most)?;
        }
        rustix::thread::set_no_new_privs(true)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    // SAFETY: the closure makes system calls with numbers, over a table that lives as long as the program; it allocates nothing and
    // takes no lock.
    #[expect(unsafe_code, reason = "see the head of this file")]
    unsafe {
        command.pre_exec(bound);
    }
}

/// Neither it nor anything that it starts can leave the process group that it is born in, so that whoever ends the group ends all of it: `setsid` and
/// `setpgid` answer `EPERM`, and nothing that it starts is another processor's program. Takes effect after [`bounded`], without which the kernel
/// refuses it.
///
/// # Errors
/// When there is no such filter for this processor.
pub(crate) fn in_one_group(command: &mut Command) -> io::Result<()> {
    let filter = group_filter().map_err(io::Error::other)?;
    let close = move || seccompiler::apply_filter(&filter).map_err(|_| io::Error::last_os_error());
    // SAFETY: the closure hands a program that was made before the fork to two system calls; it allocates nothing and takes no lock.
    #[expect(unsafe_code, reason = "see the head of this file")]
    unsafe {
        command.pre_exec(close);
    }
    Ok(())
}

/// Whether there is such a filter for this processor.
///
/// # Errors
/// When there is none.
pub(crate) fn can_be_in_one_group() -> io::Result<()> {
    group_filter().map(drop).map_err(io::Error::other)
}

fn group_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    /// `__X32_SYSCALL_BIT`: some kernels for x86-64 take the same calls under a second number.
    const SECOND_NUMBER: libc::c_long = 0x4000_0000;
    let mut refused = vec![libc::SYS_setsid, libc::SYS_setpgid];
    if cfg!(target_arch = "x86_64") {
        refused.extend([libc::SYS_setsid | SECOND_NUMBER, libc::SYS_setpgid | SECOND_NUMBER]);
    }
    let rules: BTreeMap<_, _> = refused.into_iter().map(|number| (number, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let processor = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, processor)?.try_into()
}

/// For good: the hard limit as well. One that is lower already stays.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
    rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    Ok(())
}

/// Marks every descriptor but the first three to be closed on exec.
fn mark_inherited() -> io::Result<()> {
    // SAFETY: the call takes three numbers and no pointer.
    #[expect(unsafe_code, reason = "see the head of this file")]
    let failed =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST_INHERITED, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
