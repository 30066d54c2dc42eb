//! seccomp: the system calls that are left.
//!
//! A list of what may be called; everything else answers `EPERM`. Not the end of the process: libraries try calls that they can do
//! without (the allocator asks for huge pages, the engine for a batched release of memory) and go on when refused, so that a list which
//! kills would turn each update of a library into a crash; and an attempt to escape that is answered can be told from one that never
//! came, by the tests and by whoever debugs a device. Nothing is gained by asking again.
//!
//! What is not on the list is gone by name for the reader: sockets of every kind, exec, fork, ptrace, `process_vm_*`, `io_uring`, keys,
//! modes and owners, times of files, links, mounts, bpf, perf, userfaultfd, ioctl, locks, other processes' signals.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::ConfineError;

/// Memory, threads, clocks, and the two pipes. What the arguments decide stands in [`bounded`].
const ALWAYS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Answered by a filter of its own, see `without_clone3`.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    // On ARM the engine makes new code visible to the other processors by it.
    libc::SYS_membarrier,
    // Pictures of a guest's initial memory, while code is loaded; `seal` takes it.
    libc::SYS_memfd_create,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    // Only to take away more; `seal` uses it.
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Files in folders of the reach. Which files is Landlock's part: it sees where a name leads, which a filter of numbers cannot.
const WITH_FOLDERS: &[c_long] = &[
    libc::SYS_fadvise64,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statx,
    libc::SYS_unlinkat,
];

/// What a new thread of the same process has, and what a new process or name space would have instead.
const CLONE_JUDGED: u64 = THREAD
    | (libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_PTRACE
        | libc::CLONE_PIDFD
        | libc::CLONE_VFORK) as u64;
const THREAD: u64 =
    (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXEC: u64 = libc::PROT_EXEC as u64;
/// Kinds of memory that `RLIMIT_DATA` does not count.
const UNCOUNTED: u64 = (libc::MAP_SHARED | libc::MAP_GROWSDOWN) as u64;

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Closes all but the list, for this thread and those that it starts.
pub(super) fn filter(folders: bool) -> Result<(), ConfineError> {
    let listed = ALWAYS.iter().chain(if folders { WITH_FOLDERS } else { &[] });
    let mut rules: Rules = listed.map(|number| (*number, Vec::new())).collect();
    rules.extend(bounded()?);
    let listed = program(rules, SeccompAction::Errno(errno(libc::EPERM)), SeccompAction::Allow)?;
    let without_clone3 = program(without_clone3(), SeccompAction::Allow, SeccompAction::Errno(errno(libc::ENOSYS)))?;
    seccompiler::apply_filter(&without_clone3).map_err(refused)?;
    seccompiler::apply_filter(&listed).map_err(refused)
}

/// Takes from all threads what only loading needed.
pub(super) fn seal(folders: bool) -> Result<(), ConfineError> {
    let taken = program(sealed(folders)?, SeccompAction::Allow, SeccompAction::Errno(errno(libc::EPERM)))?;
    seccompiler::apply_filter_all_threads(&taken).map_err(refused)
}

/// Calls that may be made with some arguments.
fn bounded() -> Result<Rules, ConfineError> {
    let own = u64::from(std::process::id());
    Ok(Rules::from([
        // Code is written as data and made executable by `mprotect` once it stands: no memory is ever both. Shared memory and
        // growing stacks are not needed, and the limit on data does not count them.
        (
            libc::SYS_mmap,
            vec![both(
                condition(2, SeccompCmpOp::MaskedEq(EXEC), 0)?,
                condition(3, SeccompCmpOp::MaskedEq(UNCOUNTED), 0)?,
            )?],
        ),
        (
            libc::SYS_mprotect,
            vec![rule(2, SeccompCmpOp::MaskedEq(EXEC), 0)?, rule(2, SeccompCmpOp::MaskedEq(WRITE), 0)?],
        ),
        (libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(CLONE_JUDGED), THREAD)?]),
        (libc::SYS_kill, vec![rule(0, SeccompCmpOp::Eq, own)?]),
        (libc::SYS_tgkill, vec![rule(0, SeccompCmpOp::Eq, own)?]),
        // Limits of this process alone; no capability is left to raise one.
        (libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Eq, 0)?]),
        (libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS])?),
        (
            libc::SYS_fcntl,
            one_of(
                1,
                &[libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC, libc::F_ADD_SEALS],
            )?,
        ),
    ]))
}

/// `clone3` hides its flags behind a pointer, where no filter sees them. Answered as by a kernel without it, so that the C library falls
/// back to `clone`, whose flags are judged. Of two filters the stricter answer holds, so the list may name it.
fn without_clone3() -> Rules {
    Rules::from([(libc::SYS_clone3, Vec::new())])
}

fn sealed(folders: bool) -> Result<Rules, ConfineError> {
    let mut taken = Rules::from([
        (libc::SYS_mprotect, vec![rule(2, SeccompCmpOp::MaskedEq(EXEC), EXEC)?]),
        (libc::SYS_memfd_create, Vec::new()),
        (libc::SYS_membarrier, Vec::new()),
        (libc::SYS_seccomp, Vec::new()),
    ]);
    if !folders {
        // Threads wait for files only; without files none is started any more.
        taken.insert(libc::SYS_clone, Vec::new());
    }
    Ok(taken)
}

fn program(rules: Rules, otherwise: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, ConfineError> {
    let processor = TargetArch::try_from(std::env::consts::ARCH).map_err(refused)?;
    SeccompFilter::new(rules, otherwise, listed, processor).and_then(BpfProgram::try_from).map_err(refused)
}

fn rule(argument: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompRule, ConfineError> {
    SeccompRule::new(vec![condition(argument, compare, value)?]).map_err(refused)
}

fn both(one: SeccompCondition, other: SeccompCondition) -> Result<SeccompRule, ConfineError> {
    SeccompRule::new(vec![one, other]).map_err(refused)
}

fn condition(argument: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompCondition, ConfineError> {
    // What is judged stands in the lower half of each of these arguments.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value).map_err(refused)
}

fn one_of(argument: u8, values: &[libc::c_int]) -> Result<Vec<SeccompRule>, ConfineError> {
    values.iter().map(|value| rule(argument, SeccompCmpOp::Eq, u64::from(value.unsigned_abs()))).collect()
}

fn errno(number: libc::c_int) -> u32 {
    number.unsigned_abs()
}

fn refused(error: impl std::fmt::Display) -> ConfineError {
    ConfineError::Seccomp(error.to_string())
}
