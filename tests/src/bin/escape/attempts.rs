//! The attempts: what each prepares while it still may, and what it then does.

use std::thread;

use serde::{Deserialize, Serialize};

use crate::kernel::{Stopped, at, call, call_or, leave, text, wait};

/// Enough forks to tell a bomb, too few to hurt.
pub(crate) const FORKS_MAX: usize = 32;
/// More files than a handler's process may have open; a shell may have more.
const FILES_MAX: usize = 900;
/// More memory than a handler's process may have; only asked for, never touched.
const MEMORY_BYTES: i64 = 8 << 30;
/// Further in a file than a handler's process may write; the file has one block.
const FAR_BYTES: i64 = 64 << 30;
/// A process number that the kernel never gives.
const NOBODY: i64 = 0x3fff_ffff;

/// What an attempt needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stage {
    /// All of it lies here.
    pub(crate) folder: String,
    /// A folder within reach.
    pub(crate) read: String,
    /// A folder within reach that may be written.
    pub(crate) write: String,
    /// A file beyond.
    pub(crate) secret: String,
    /// Where a socket listens.
    pub(crate) socket: String,
    /// Where a port of this machine listens.
    pub(crate) port: u16,
    /// What this machine is called.
    pub(crate) host: String,
    /// The process that started this one.
    pub(crate) parent: i64,
    /// Where it keeps a secret.
    pub(crate) address: i64,
    /// A descriptor that it left open.
    pub(crate) left_open: i64,
}

/// Which folders the process has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Folders {
    /// None, as most handlers.
    None,
    /// One to read and one to write.
    Reach,
}

/// One way out.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) folders: Folders,
    /// What is at hand before the doors close: usually nothing.
    pub(crate) prepare: fn(&Stage) -> Result<i64, Stopped>,
    pub(crate) act: fn(&Stage, i64) -> Result<(), Stopped>,
}

const CWD: i64 = libc::AT_FDCWD as i64;
const READ: i64 = libc::O_RDONLY as i64;
const CREATE: i64 = (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL) as i64;

const fn bare(name: &'static str, act: fn(&Stage, i64) -> Result<(), Stopped>) -> Attempt {
    Attempt { name, folders: Folders::None, prepare: nothing, act }
}

const fn reaching(name: &'static str, act: fn(&Stage, i64) -> Result<(), Stopped>) -> Attempt {
    Attempt { name, folders: Folders::Reach, prepare: nothing, act }
}

const fn prepared(
    name: &'static str,
    folders: Folders,
    prepare: fn(&Stage) -> Result<i64, Stopped>,
    act: fn(&Stage, i64) -> Result<(), Stopped>,
) -> Attempt {
    Attempt { name, folders, prepare, act }
}

fn nothing(_: &Stage) -> Result<i64, Stopped> {
    Ok(0)
}

/// All of them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    // What must go on working: the row that shows that this program's own judgement is not at fault.
    reaching("control: reads a file in its reach", |stage, _| open(&format!("{}/file", stage.read), READ).map(drop)),
    reaching("control: makes a file in its write reach", |stage, _| {
        open_with(&format!("{}/new", stage.write), CREATE).map(drop)
    }),
    reaching("control: has a second thread", |_, _| {
        thread::Builder::new()
            .spawn(|| ())
            .map_err(|error| Stopped::here(error.raw_os_error().unwrap_or(0)))?
            .join()
            .unwrap();
        Ok(())
    }),
    // Files.
    bare("opens /etc/passwd, no reach", |_, _| open("/etc/passwd", READ).map(drop)),
    reaching("opens /etc/passwd", |_, _| open("/etc/passwd", READ).map(drop)),
    reaching("opens a file beside its reach", |stage, _| open(&stage.secret, READ).map(drop)),
    reaching("opens a file beside its reach through ..", |stage, _| {
        open(&format!("{}/../beyond/secret", stage.read), READ).map(drop)
    }),
    reaching("opens a file beside its reach through a link", |stage, _| {
        open(&format!("{}/link", stage.write), READ).map(drop)
    }),
    reaching("lists a folder beside its reach", |stage, _| {
        open(&stage.folder, READ | i64::from(libc::O_DIRECTORY)).map(drop)
    }),
    bare("makes a file in /tmp, no reach", |stage, _| open_with(&format!("{}/new", stage.folder), CREATE).map(drop)),
    reaching("makes a file in /tmp", |stage, _| open_with(&format!("{}/new", stage.folder), CREATE).map(drop)),
    reaching("makes a file where it may only read", |stage, _| {
        open_with(&format!("{}/new", stage.read), CREATE).map(drop)
    }),
    reaching("removes a file where it may only read", |stage, _| {
        call(libc::SYS_unlinkat, &[CWD, text(&format!("{}/file", stage.read)), 0]).map(drop)
    }),
    reaching("opens a device", |_, _| open("/dev/null", i64::from(libc::O_RDWR)).map(drop)),
    prepared("opens by handle", Folders::Reach, handle_of_secret, |stage, handle| {
        let folder = call(libc::SYS_openat, &[CWD, text(&stage.read), READ])?;
        call(libc::SYS_open_by_handle_at, &[folder, handle, READ]).map(drop)
    }),
    bare("reads a descriptor that was left open", |stage, _| {
        let mut byte = [0_u8; 16];
        // Reading nothing from standard input is no error, and no filter.
        call_or(libc::SYS_read, &[stage.left_open, at(&mut byte), 16], &[0, 0, 0]).map(drop)
    }),
    // Devices, links, modes.
    reaching("makes a device node", |stage, _| {
        let null = i64::try_from(libc::makedev(1, 3)).unwrap();
        let mode = i64::from(libc::S_IFCHR | 0o600);
        call(libc::SYS_mknodat, &[CWD, text(&format!("{}/null", stage.write)), mode, null]).map(drop)
    }),
    reaching("makes a FIFO", |stage, _| {
        let mode = i64::from(libc::S_IFIFO | 0o600);
        call(libc::SYS_mknodat, &[CWD, text(&format!("{}/fifo", stage.write)), mode, 0]).map(drop)
    }),
    reaching("hard-links a file into its reach", |stage, _| {
        let (from, to) = (text(&stage.secret), text(&format!("{}/secret", stage.write)));
        call(libc::SYS_linkat, &[CWD, from, CWD, to, 0]).map(drop)
    }),
    reaching("renames a file out of its reach", |stage, _| {
        let (from, to) = (text(&format!("{}/file", stage.write)), text(&format!("{}/file", stage.folder)));
        call(libc::SYS_renameat2, &[CWD, from, CWD, to, 0]).map(drop)
    }),
    reaching("renames a file into its reach", |stage, _| {
        let (from, to) = (text(&stage.secret), text(&format!("{}/secret", stage.write)));
        call(libc::SYS_renameat2, &[CWD, from, CWD, to, 0]).map(drop)
    }),
    reaching("changes the mode of a file in its reach", |stage, _| {
        call(libc::SYS_fchmodat, &[CWD, text(&format!("{}/file", stage.write)), 0o4777]).map(drop)
    }),
    reaching("changes the owner of a file in its reach", |stage, _| {
        call(libc::SYS_fchownat, &[CWD, text(&format!("{}/file", stage.write)), 1, 1, 0]).map(drop)
    }),
    reaching("sets an extended attribute", |stage, _| {
        let (path, name) = (text(&format!("{}/file", stage.write)), text("trusted.latchkey"));
        call(libc::SYS_setxattr, &[path, name, text("1"), 1, 0]).map(drop)
    }),
    prepared("types into a terminal", Folders::None, terminal, |_, terminal| {
        let mut letter = *b"x";
        call_or(libc::SYS_ioctl, &[terminal, TIOCSTI, at(&mut letter)], &[-1, TIOCSTI, -1]).map(drop)
    }),
    // Sockets.
    bare("connects by TCP", |stage, _| {
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        let mut address = loopback(stage.port);
        call(libc::SYS_connect, &[socket, at(&mut address), 16]).map(drop)
    }),
    bare("sends by UDP", |stage, _| {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let mut address = loopback(stage.port);
        call(libc::SYS_sendto, &[socket, text("x"), 1, 0, at(&mut address), 16]).map(drop)
    }),
    bare("connects by a unix socket", |stage, _| {
        let socket = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
        let mut address = [0_u8; 110];
        address[..2].copy_from_slice(&u16::try_from(libc::AF_UNIX).unwrap().to_ne_bytes());
        address[2..2 + stage.socket.len()].copy_from_slice(stage.socket.as_bytes());
        call(libc::SYS_connect, &[socket, at(&mut address), 110]).map(drop)
    }),
    bare("opens a netlink socket", |_, _| socket(libc::AF_NETLINK, libc::SOCK_RAW, 0).map(drop)),
    bare("opens a packet socket", |_, _| socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)),
    bare("makes a pair of sockets", |_, _| {
        let mut pair = [0_i32; 2];
        let kind = i64::from(libc::SOCK_STREAM);
        call(libc::SYS_socketpair, &[i64::from(libc::AF_UNIX), kind, 0, at(&mut pair)]).map(drop)
    }),
    // Programs and processes.
    bare("starts another program", |_, _| start()),
    reaching("starts another program, with reach", |_, _| start()),
    bare("makes an anonymous file to run", |_, _| call(libc::SYS_memfd_create, &[text("x"), 0]).map(drop)),
    bare("forks", |_, _| fork_times(1)),
    bare("forks without end", |_, _| fork_times(FORKS_MAX)),
    bare("forks by clone3", |_, _| {
        let mut arguments = [0_u64; 11];
        arguments[4] = u64::try_from(libc::SIGCHLD).unwrap();
        born(call(libc::SYS_clone3, &[at(&mut arguments), 88])?);
        Ok(())
    }),
    bare("traces the parent", |stage, _| {
        call(libc::SYS_ptrace, &[i64::from(libc::PTRACE_SEIZE), stage.parent, 0, 0]).map(drop)
    }),
    bare("reads the parent's memory", |stage, _| across(libc::SYS_process_vm_readv, stage, stage.address)),
    bare("writes the parent's memory", |stage, _| {
        // Over an argument of its own that nobody reads again: the bytes are those that are there.
        across(libc::SYS_process_vm_writev, stage, stage.address).or_else(|stopped| match stopped.errno {
            // The secret lies in memory that nobody may write, so the kernel had let it through.
            libc::EFAULT => Ok(()),
            _ => Err(stopped),
        })
    }),
    reaching("reads the parent's memory through /proc", |stage, _| {
        let memory = open(&format!("/proc/{}/mem", stage.parent), READ)?;
        let mut bytes = [0_u8; 16];
        call(libc::SYS_pread64, &[memory, at(&mut bytes), 16, stage.address]).map(drop)
    }),
    reaching("reads the parent's environment through /proc", |stage, _| {
        open(&format!("/proc/{}/environ", stage.parent), READ).map(drop)
    }),
    bare("signals the parent", |stage, _| {
        call_or(libc::SYS_kill, &[stage.parent, i64::from(libc::SIGUSR1)], &[NOBODY, 0]).map(drop)
    }),
    bare("signals the parent's thread", |stage, _| {
        let arguments = [stage.parent, stage.parent, i64::from(libc::SIGUSR1)];
        call_or(libc::SYS_tgkill, &arguments, &[NOBODY, NOBODY, 0]).map(drop)
    }),
    bare("opens a handle of the parent", |stage, _| handle_of_parent(stage).map(drop)),
    prepared("signals the parent by its handle", Folders::None, handle_of_parent, |_, handle| {
        call(libc::SYS_pidfd_send_signal, &[handle, i64::from(libc::SIGUSR1), 0, 0]).map(drop)
    }),
    prepared("takes a descriptor of the parent by its handle", Folders::None, handle_of_parent, |_, handle| {
        call(libc::SYS_pidfd_getfd, &[handle, 0, 0]).map(drop)
    }),
    bare("takes a better priority", |_, _| call(libc::SYS_setpriority, &[0, 0, -20]).map(drop)),
    // Doors of the kernel.
    bare("opens the session's keys", |_, _| {
        call(libc::SYS_keyctl, &[i64::from(libc::KEYCTL_GET_KEYRING_ID), SESSION_KEYRING, 1]).map(drop)
    }),
    bare("adds a key", |_, _| {
        call(libc::SYS_add_key, &[text("user"), text("latchkey-escape"), text("x"), 1, PROCESS_KEYRING]).map(drop)
    }),
    bare("sets up io_uring", |_, _| {
        let mut parameters = [0_u8; 120];
        call(libc::SYS_io_uring_setup, &[4, at(&mut parameters)]).map(drop)
    }),
    bare("makes a BPF map", |_, _| {
        // An array of one value of eight bytes.
        let mut attributes = [0_u32; 32];
        attributes[..4].copy_from_slice(&[2, 4, 8, 1]);
        call(libc::SYS_bpf, &[0, at(&mut attributes), 128]).map(drop)
    }),
    bare("handles page faults", |_, _| call(libc::SYS_userfaultfd, &[i64::from(libc::O_CLOEXEC)]).map(drop)),
    bare("opens a performance counter", |_, _| {
        // The software clock of this process.
        let mut attributes = [0_u64; 16];
        attributes[0] = 1 | (128 << 32);
        call(libc::SYS_perf_event_open, &[at(&mut attributes), 0, -1, -1, 0]).map(drop)
    }),
    #[cfg(target_arch = "x86_64")]
    bare("calls through the door for 32-bit programs", |_, _| crate::kernel::call_32()),
    bare("takes namespaces of its own", |_, _| call(libc::SYS_unshare, &[i64::from(libc::CLONE_NEWNS)]).map(drop)),
    prepared("enters the parent's namespaces", Folders::None, handle_of_parent, |_, handle| {
        call(libc::SYS_setns, &[handle, i64::from(libc::CLONE_NEWUTS)]).map(drop)
    }),
    prepared("mounts", Folders::Reach, own_mounts, |stage, _| {
        call(libc::SYS_mount, &[text("none"), text(&stage.write), text("tmpfs"), 0, 0]).map(drop)
    }),
    reaching("changes its root", |stage, _| call(libc::SYS_chroot, &[text(&stage.write)]).map(drop)),
    bare("gives the machine the name that it has", |stage, _| {
        call(libc::SYS_sethostname, &[text(&stage.host), i64::try_from(stage.host.len()).unwrap()]).map(drop)
    }),
    bare("becomes another user", |_, _| call(libc::SYS_setresuid, &[1, 1, 1]).map(drop)),
    // Limits.
    bare("asks for more memory than its limit", |_, _| {
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        call(libc::SYS_mmap, &[0, MEMORY_BYTES, i64::from(rights), i64::from(kind), -1, 0]).map(drop)
    }),
    bare("maps shared memory, which its limit does not count", |_, _| mapped(libc::MAP_SHARED | libc::MAP_ANONYMOUS)),
    bare("maps a growing stack, which its limit does not count", |_, _| {
        mapped(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN)
    }),
    bare("makes memory executable", |_, _| {
        let kind = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        call_or(libc::SYS_mmap, &[0, 4096, EXECUTABLE, kind, -1, 0], &[0, 4096, EXECUTABLE, 0, -1, 0]).map(drop)
    }),
    prepared("makes its memory executable", Folders::None, page, |_, page| {
        call_or(libc::SYS_mprotect, &[page, 4096, EXECUTABLE], &[page + 1, 4096, EXECUTABLE]).map(drop)
    }),
    bare("raises its memory limit", |_, _| {
        let mut limit = [libc::RLIM_INFINITY; 2];
        let data = i64::from(libc::RLIMIT_DATA);
        call_or(libc::SYS_prlimit64, &[0, data, at(&mut limit), 0], &[0, data, -1, 0]).map(drop)
    }),
    reaching("fills the disk", |stage, _| {
        let file = open_with(&format!("{}/large", stage.write), CREATE)?;
        call(libc::SYS_pwrite64, &[file, text("x"), 1, FAR_BYTES]).map(drop)
    }),
    reaching("opens files without end", |stage, _| {
        for _ in 0..FILES_MAX {
            open(&format!("{}/file", stage.read), READ)?;
        }
        Ok(())
    }),
];

const TIOCSTI: i64 = libc::TIOCSTI as i64;
const SESSION_KEYRING: i64 = libc::KEY_SPEC_SESSION_KEYRING as i64;
const PROCESS_KEYRING: i64 = libc::KEY_SPEC_PROCESS_KEYRING as i64;

const EXECUTABLE: i64 = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as i64;

/// A page of a kind of memory.
fn mapped(kind: libc::c_int) -> Result<(), Stopped> {
    let rights = i64::from(libc::PROT_READ | libc::PROT_WRITE);
    // Of no length: a kernel that came so far would say that.
    let otherwise = [0, 0, rights, i64::from(kind), -1, 0];
    call_or(libc::SYS_mmap, &[0, 4096, rights, i64::from(kind), -1, 0], &otherwise).map(drop)
}

/// A page of memory.
fn page(_: &Stage) -> Result<i64, Stopped> {
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    call(libc::SYS_mmap, &[0, 4096, i64::from(rights), i64::from(kind), -1, 0])
}

fn open(path: &str, how: i64) -> Result<i64, Stopped> {
    call(libc::SYS_openat, &[CWD, text(path), how])
}

fn open_with(path: &str, how: i64) -> Result<i64, Stopped> {
    call(libc::SYS_openat, &[CWD, text(path), how, 0o600])
}

fn socket(family: i32, kind: i32, protocol: i64) -> Result<i64, Stopped> {
    call(libc::SYS_socket, &[i64::from(family), i64::from(kind), protocol])
}

fn loopback(port: u16) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&u16::try_from(libc::AF_INET).unwrap().to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    address
}

/// This very program: it says that it was started.
fn start() -> Result<(), Stopped> {
    let mut arguments = [text("escape"), text("started"), 0];
    let mut environment = [0_i64];
    call(libc::SYS_execve, &[text("/proc/self/exe"), at(&mut arguments), at(&mut environment)]).map(drop)
}

/// The child ends at once, the parent waits for it.
fn born(pid: i64) {
    if pid == 0 {
        leave();
    }
    wait(pid);
}

fn fork_times(times: usize) -> Result<(), Stopped> {
    for _ in 0..times {
        // A kernel without the filter would find nothing wrong with the flags but that they belong together.
        let flags = i64::from(libc::SIGCHLD);
        born(call_or(libc::SYS_clone, &[flags, 0, 0, 0, 0], &[i64::from(libc::CLONE_SIGHAND), 0, 0, 0, 0])?);
    }
    Ok(())
}

/// Copies the parent's secret, or writes it where it is.
fn across(number: i64, stage: &Stage, remote: i64) -> Result<(), Stopped> {
    let mut bytes = [0_u8; 16];
    let mut here = [at(&mut bytes), 16];
    let mut there = [remote, 16];
    call(number, &[stage.parent, at(&mut here), 1, at(&mut there), 1, 0]).map(drop)
}

fn handle_of_parent(stage: &Stage) -> Result<i64, Stopped> {
    call(libc::SYS_pidfd_open, &[stage.parent, 0])
}

/// The kernel's own handle of the secret file.
fn handle_of_secret(stage: &Stage) -> Result<i64, Stopped> {
    let handle = Box::leak(Box::new([0_u32; 34]));
    handle[0] = 128;
    let (at, mount) = (at(handle), at(Box::leak(Box::new(0_i32))));
    call(libc::SYS_name_to_handle_at, &[CWD, text(&stage.secret), at, mount, 0])?;
    Ok(at)
}

/// A terminal that belongs to this process.
fn terminal(_: &Stage) -> Result<i64, Stopped> {
    let controller = open("/dev/ptmx", i64::from(libc::O_RDWR | libc::O_NOCTTY))?;
    let mut unlocked = 0_i32;
    call(libc::SYS_ioctl, &[controller, libc::TIOCSPTLCK as i64, at(&mut unlocked)])?;
    let mut number = 0_u32;
    call(libc::SYS_ioctl, &[controller, libc::TIOCGPTN as i64, at(&mut number)])?;
    call(libc::SYS_setsid, &[])?;
    open(&format!("/dev/pts/{number}"), i64::from(libc::O_RDWR))
}

/// Mounts of its own, so that what it mounts is gone with it. They need to be cut off from the machine's.
fn own_mounts(_: &Stage) -> Result<i64, Stopped> {
    call(libc::SYS_unshare, &[i64::from(libc::CLONE_NEWNS)])?;
    let private = i64::try_from(libc::MS_REC | libc::MS_PRIVATE).unwrap();
    call(libc::SYS_mount, &[text("none"), text("/"), 0, private, 0])
}
