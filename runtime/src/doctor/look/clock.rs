//! The wall clock: it labels records and says how long pairing stays open. Deadlines do not hang on it.

use std::path::Path;

use crate::doctor::{Finding, Part};

/// 1 January 2026: before this program was written.
const WRITTEN_MS: u64 = 1_767_225_600_000;
/// 1 January 2100: a clock that says so has lost its battery in another way.
const FAR_MS: u64 = 4_102_444_800_000;

/// Where systemd's own time service says that it has heard the time.
const TIMESYNC: &str = "/run/systemd/timesync";

const SYNCHRONISE: &str = "timedatectl set-ntp true";

/// Whether the clock is set by others: yes, not yet, or nobody here says so.
pub(crate) fn synchronised() -> Option<bool> {
    let folder = Path::new(TIMESYNC);
    folder.exists().then(|| folder.join("synchronized").exists())
}

pub(crate) fn judge(now_ms: u64, shown: &str, synchronised: Option<bool>) -> Finding {
    if !(WRITTEN_MS..FAR_MS).contains(&now_ms) {
        return Finding::broken(Part::Clock, format!("the clock says {shown}, which cannot be"), SYNCHRONISE);
    }
    let beside = match synchronised {
        Some(true) => "and is kept right over the network",
        Some(false) => "and has not heard the right time since the start; records may carry a wrong one",
        None => "and no time service of systemd runs here that would say whether it is right",
    };
    Finding::works(Part::Clock, format!("the clock says {shown}, {beside}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_clock_that_cannot_be_right_is_broken_and_one_that_nobody_sets_is_told() {
        let rows = [
            (1_800_000_000_000, Some(true), Verdict::Works, "is kept right"),
            (1_800_000_000_000, Some(false), Verdict::Works, "has not heard the right time"),
            (1_800_000_000_000, None, Verdict::Works, "no time service"),
            (0, Some(true), Verdict::Broken, "cannot be"),
            (WRITTEN_MS - 1, None, Verdict::Broken, "cannot be"),
            (FAR_MS, None, Verdict::Broken, "cannot be"),
        ];
        for (now_ms, synchronised, verdict, words) in rows {
            let finding = judge(now_ms, "then", synchronised);
            assert_eq!(finding.verdict, verdict, "{now_ms}");
            assert!(finding.what.contains(words), "{}", finding.what);
            assert_eq!(finding.mend.is_some(), verdict == Verdict::Broken);
        }
    }
}
