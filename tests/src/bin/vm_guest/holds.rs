//! What a process holds of the system, as the kernel tells it: descriptors, threads, children, memory, processor time.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};

/// The kernel counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holds {
    pub(crate) pid: u32,
    pub(crate) descriptors: usize,
    pub(crate) cameras: usize,
    pub(crate) threads: usize,
    pub(crate) children: usize,
    /// Memory that lies in the machine, in KiB.
    pub(crate) resident_kib: u64,
    pub(crate) processor: Duration,
}

pub(crate) fn of(pid: u32) -> Result<Holds> {
    let folder = Path::new("/proc").join(pid.to_string());
    let status = fs::read_to_string(folder.join("status")).context("reading what a process holds")?;
    let number =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    Ok(Holds {
        pid,
        descriptors: fs::read_dir(folder.join("fd"))?.count(),
        cameras: cameras(pid),
        threads: fs::read_dir(folder.join("task"))?.count(),
        children: children(pid)?.len(),
        resident_kib: number("VmRSS:").context("no memory is told")?,
        processor: processor(&folder)?,
    })
}

/// How many descriptors of a process lead to a camera.
pub(crate) fn cameras(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else { return 0 };
    let leads = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().starts_with("/dev/video"))
    };
    entries.filter_map(Result::ok).filter_map(|entry| leads(entry).then_some(())).count()
}

/// The processes that a process started, and theirs.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let mut family = vec![pid];
    let mut index = 0;
    while let Some(parent) = family.get(index).copied() {
        let tasks = fs::read_dir(Path::new("/proc").join(parent.to_string()).join("task"));
        for task in tasks.into_iter().flatten() {
            // A thread may end meanwhile.
            let list = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            family.extend(list.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        index += 1;
    }
    family.remove(0);
    Ok(family)
}

fn processor(folder: &Path) -> Result<Duration> {
    let stat = fs::read_to_string(folder.join("stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("a process without a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum::<u32>();
    Ok(TICK * ticks)
}
