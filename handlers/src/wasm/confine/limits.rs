//! What the process may use up: memory, descriptors, file sizes, processor time.
//!
//! The limits hold for the whole process, so they are a second line behind the engine's own limits on a guest; a guest meets those first
//! and gets an error of its call, while whoever meets these has left the guest's memory, or the process ends.

use std::io;

use rustix::process::{Resource, Rlimit};

use super::Purpose;

/// Memory beside the guest's own and beside what the process has before it is confined (an allocator that sets a large room aside at
/// once has it then): 21 MiB of the engine's tables and stacks, messages of a call, and four threads for files with 2 MiB each, twice
/// over. Measured with a guest that fills 256 MiB and with 36 MB of native code.
const BESIDE_BYTES: u64 = 96 * 1024 * 1024;
/// While native code is loaded it lies in memory twice, as a message and as code: twice the longest message.
const LOADING_BYTES: u64 = 2 * super::super::frame::TO_CHILD_BYTES_MAX as u64;
/// The compiler's working memory: the largest guest that was tried (an 18 MB Python component) needs well under half of it.
const COMPILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Processor time of a compiler, in seconds: the largest guest that was tried needs 24 on a slow machine.
const COMPILE_CPU_SECONDS: u64 = 120;
/// Descriptors: three of the process, those of the folders, one for each memory image, and the files that a guest holds open.
const FILES: u64 = 128;
/// The longest file that a guest can write into a folder of its reach.
const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Where `/proc/self/statm` tells what counts against the limit on data.
const DATA_FIELD: usize = 5;
/// Steps that other work of the device goes before.
const NICE: i32 = 10;

/// Sets what holds from the start.
pub(super) fn set(purpose: Purpose, memory_bytes: usize) -> io::Result<()> {
    let more = match purpose {
        Purpose::Compile => COMPILE_BYTES,
        Purpose::Run => {
            let guest = u64::try_from(memory_bytes).unwrap_or(u64::MAX);
            guest.saturating_add(BESIDE_BYTES).saturating_add(LOADING_BYTES)
        }
    };
    limit(Resource::Data, data_bytes()?.saturating_add(more))?;
    limit(Resource::Nofile, FILES)?;
    limit(Resource::Fsize, FILE_BYTES)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Memlock, 0)?;
    match purpose {
        Purpose::Compile => limit(Resource::Cpu, COMPILE_CPU_SECONDS)?,
        Purpose::Run => {}
    }
    rustix::process::nice(NICE)?;
    Ok(())
}

/// Takes back what only loading needed; once, after [`set`].
pub(super) fn tighten() -> io::Result<()> {
    let now = rustix::process::getrlimit(Resource::Data).current.unwrap_or(u64::MAX);
    limit(Resource::Data, now.saturating_sub(LOADING_BYTES))
}

/// What the process has already, whose allocator may have set aside room from its first moment.
fn data_bytes() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_ascii_whitespace().nth(DATA_FIELD).and_then(|field| field.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has another form"))?;
    Ok(pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX)))
}

/// For good: the hard limit as well. One that is lower already stays.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
    rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    Ok(())
}
