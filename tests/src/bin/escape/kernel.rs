//! System calls by their number, as an attacker inside a process would make them, and what stopped one.
#![allow(
    unsafe_code,
    reason = "an attempt to escape makes the kernel's calls itself; no library offers what is not to be had"
)]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd as _;

/// A call that was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    number: i64,
    /// Arguments with which the kernel itself would say something else.
    otherwise: [i64; 6],
    pub(crate) errno: i32,
}

impl Stopped {
    /// A refusal without a call, for what this machine cannot show.
    pub(crate) const fn here(errno: i32) -> Self {
        Self { number: -1, otherwise: [-1; 6], errno }
    }

    /// The mechanism. The filter answers before the kernel looks at arguments, so it was the filter if arguments that are wrong in another
    /// way get the same answer. What is not the filter's is told by the error.
    pub(crate) fn by(&self) -> &'static str {
        let again = if self.number < 0 { Ok(0) } else { raw(self.number, self.otherwise) };
        match (self.errno, again) {
            (errno, Err(again)) if errno == again => "seccomp",
            (libc::EMFILE | libc::ENOMEM | libc::EFBIG, _) => "rlimit",
            (libc::EBADF, _) => "closed descriptor",
            (libc::EACCES | libc::EXDEV, _) => "landlock",
            (libc::EPERM, _) => "no capabilities",
            _ => "unknown",
        }
    }
}

/// Makes a call. If it is refused, it is made once more with nothing but -1, to know who refused it.
pub(crate) fn call(number: i64, arguments: &[i64]) -> Result<i64, Stopped> {
    call_or(number, arguments, &[-1; 6])
}

/// The same with other arguments for the second time: such that only a filter that looks at arguments would refuse them as it did.
pub(crate) fn call_or(number: i64, arguments: &[i64], otherwise: &[i64]) -> Result<i64, Stopped> {
    raw(number, six(arguments)).map_err(|errno| Stopped { number, otherwise: six(otherwise), errno })
}

/// Asks for the process number by the way that 32-bit programs take, which a filter for 64-bit numbers alone would not see.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_32() -> Result<(), Stopped> {
    const GETPID_32: i64 = 20;
    let mut got = GETPID_32;
    // SAFETY: this call takes no arguments and touches no memory.
    unsafe { std::arch::asm!("int 0x80", inout("rax") got, out("r8") _, out("r9") _, out("r10") _, out("r11") _) };
    if got > 0 { Ok(()) } else { Err(Stopped::here(libc::ENOSYS)) }
}

fn six(arguments: &[i64]) -> [i64; 6] {
    let mut six = [0; 6];
    six[..arguments.len()].copy_from_slice(arguments);
    six
}

fn raw(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> Result<i64, i32> {
    // SAFETY: pointers among the arguments come from `text` and `at`, whose owners outlive the call; what the call does to this process
    // is what the attempt is about, and the process ends behind it.
    let got = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if got < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(got) }
}

/// A text for the kernel, for as long as the process lives.
pub(crate) fn text(text: &str) -> i64 {
    CString::new(text).unwrap().into_raw() as usize as i64
}

/// The address of something.
pub(crate) fn at<T: ?Sized>(what: &mut T) -> i64 {
    std::ptr::from_mut(what).cast::<u8>() as usize as i64
}

/// Leaves a file open under this number for the next program.
pub(crate) fn leave_open(file: &File, number: i32) {
    // SAFETY: both are numbers; the target is free by agreement.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
}

/// Closes a descriptor by its number.
pub(crate) fn close(number: i32) {
    // SAFETY: it was opened by `leave_open`.
    unsafe { libc::close(number) };
}

/// Takes no notice of a signal.
pub(crate) fn ignore_signal(signal: i32) {
    // SAFETY: no handler is set.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Has the kernel end this process after so many seconds.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: SIGALRM has its default, which ends the process.
    unsafe { libc::alarm(seconds) };
}

/// In the child of a fork: ends at once.
pub(crate) fn leave() -> ! {
    // SAFETY: runs no destructor and writes no buffer of the parent's.
    unsafe { libc::_exit(0) }
}

/// Waits for a child.
pub(crate) fn wait(pid: i64) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(i32::try_from(pid).unwrap(), std::ptr::null_mut(), 0) };
}

/// The name of an error.
pub(crate) fn name(errno: i32) -> String {
    let known = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EIO, "EIO"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    ];
    known.iter().find(|(number, _)| *number == errno).map_or_else(|| errno.to_string(), |(_, name)| (*name).to_owned())
}
