//! Custom handlers: what the kernel must give them, and what of the folder serves.

use actors::{HandlerLine, HandlerState};
use handlers::wasm::confine::Confinement;

use crate::doctor::{Finding, Part};
use crate::folder::weakness;

/// What a running device says of its folder.
pub(crate) fn judge(handlers: &[HandlerLine], notice: Option<&str>, accepted: bool) -> Finding {
    let broken = |what: String| Finding::broken(Part::Handlers, what, "latchkeyd handlers");
    if let Some(notice) = notice.filter(|_| !accepted || handlers.is_empty()) {
        return broken(notice.to_owned());
    }
    let named = |line: &HandlerLine| line.name.clone().unwrap_or_else(|| line.file.clone());
    if let Some(line) = handlers.iter().find(|line| matches!(line.state, HandlerState::Unavailable)) {
        let name = named(line);
        let what = format!("{name} failed too often and was given up");
        return Finding::broken(Part::Handlers, what, format!("latchkeyd restart {name}"));
    }
    let refused: Vec<_> = handlers.iter().filter(|line| matches!(line.state, HandlerState::Refused)).collect();
    if let Some(first) = refused.first() {
        let why = first.why.as_deref().unwrap_or("it was refused");
        let more = if refused.len() > 1 { format!(" (and {} more)", refused.len() - 1) } else { String::new() };
        return broken(format!("{} is not taken: {why}{more}", first.file));
    }
    match (handlers.len(), notice) {
        (0, _) => Finding::not_needed(Part::Handlers, "no handler lies in the folder"),
        (count, None) => {
            Finding::works(Part::Handlers, format!("all {count} files of the folder serve, each confined"))
        }
        (count, Some(notice)) => Finding::works(Part::Handlers, format!("all {count} files serve; {notice}")),
    }
}

/// What this machine would give to handlers, tried without a device.
pub(crate) fn judge_machine(files: usize, probed: Result<Confinement, String>) -> Finding {
    if files == 0 {
        return Finding::not_needed(Part::Handlers, "no handler lies in the folder");
    }
    match probed {
        Ok(confinement) => {
            let abi = confinement.landlock_abi.map_or_else(String::new, |abi| format!(" {abi}"));
            let what = weakness(&confinement)
                .unwrap_or_else(|| format!("this kernel confines handlers with seccomp and Landlock{abi}"));
            Finding::works(Part::Handlers, what)
        }
        Err(why) => Finding::broken(Part::Handlers, why, "cat /sys/kernel/security/lsm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn without_a_device_the_machine_is_judged_only_where_a_handler_waits_for_it() {
        let whole = Confinement { landlock_abi: Some(4), seccomp: true };
        let weak = Confinement { landlock_abi: None, seccomp: true };
        let rows = [
            (0, Err("no Landlock".to_owned()), Verdict::NotNeeded, "no handler lies"),
            (1, Ok(whole), Verdict::Works, "seccomp and Landlock 4"),
            (1, Ok(weak), Verdict::Works, "without Landlock"),
            (1, Err("this kernel gives no Landlock".to_owned()), Verdict::Broken, "no Landlock"),
        ];
        for (files, probed, verdict, words) in rows {
            let told = judge_machine(files, probed);
            assert_eq!(told.verdict, verdict);
            assert!(told.what.contains(words), "{}", told.what);
        }
    }

    #[test]
    fn a_folder_whose_files_do_not_all_serve_is_broken() {
        let told = judge(&[], None, false);
        assert_eq!(told.verdict, Verdict::NotNeeded);
        let told = judge(&[], Some("the handlers folder /srv/h is not there"), false);
        assert_eq!((told.verdict, told.mend.as_deref()), (Verdict::Broken, Some("latchkeyd handlers")));
    }
}
