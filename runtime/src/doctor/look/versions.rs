//! Versions of what we stand on that have known flaws which reach a device like this one. The list is short by choice: what nobody can
//! reach through us does not stand in it, such as a flaw in files of alsa-lib that are never read here (CVE-2026-25068).

use std::fs;

use crate::doctor::{Finding, Part};

/// A version: numbers, and behind them what a distribution adds.
type Numbers = [u32; 3];

/// The kernel's driver of USB cameras wrote beyond its memory when a camera described itself wrongly: whoever plugs one in can run code
/// in the kernel. From each line of kernels, the first one without it.
/// Source: the record of CVE-2024-53104 as of 2026-05-11, <https://www.cve.org/CVERecord?id=CVE-2024-53104>.
const KERNEL_FIXED: [Numbers; 8] =
    [[4, 19, 324], [5, 4, 286], [5, 10, 230], [5, 15, 172], [6, 1, 117], [6, 6, 61], [6, 11, 8], [6, 12, 1]];
/// Kernels from here on never had it. Source: the same record.
const KERNEL_NEW: Numbers = [6, 13, 0];

/// espeak-ng wrote beyond its memory on certain texts, and an agent chooses the text.
/// Source: CVE-2023-49990 to 49994, <https://security-tracker.debian.org/tracker/CVE-2023-49990>; upstream without it from 1.52.
const ESPEAK_FIXED: Numbers = [1, 52, 0];
/// Older ones that distributions mended: how their version begins, and the least number behind that. Sources: Debian's changelog of
/// 1.51+dfsg-10+deb12u1 and its tracker; Ubuntu's USN-6858-1, which also says that 24.04, with 1.51+dfsg-12build1, is not affected.
const ESPEAK_MENDED: [(&str, u32); 5] = [
    ("1.50+dfsg-7+deb11u", 2),
    ("1.51+dfsg-10+deb12u", 1),
    ("1.50+dfsg-6ubuntu0.", 1),
    ("1.50+dfsg-10ubuntu0.", 1),
    ("1.51+dfsg-", 12),
];

/// What is installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Installed {
    /// The kernel's release, and the text behind it, which names the version where a distribution's release does not.
    pub(crate) kernel: (String, String),
    /// The package's version, where the speech engine is espeak-ng and a package manager knows it.
    pub(crate) espeak: Option<String>,
}

impl Installed {
    pub(crate) fn look() -> Self {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let packages = fs::read_to_string("/var/lib/dpkg/status").unwrap_or_default();
        Self { kernel: (text(uname.release()), text(uname.version())), espeak: package(&packages, "espeak-ng") }
    }
}

/// The version of an installed package, as dpkg keeps it.
fn package(status: &str, name: &str) -> Option<String> {
    let entry = status.split("\n\n").find(|entry| entry.lines().next() == Some(&format!("Package: {name}")))?;
    let field = |label: &str| entry.lines().find_map(|line| line.strip_prefix(label)).map(str::trim);
    field("Status:").filter(|status| status.ends_with(" installed"))?;
    field("Version:").map(str::to_owned)
}

/// The leading numbers of a version.
fn numbers(text: &str) -> Option<Numbers> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut parts = text.get(..end)?.split('.').map(|part| part.parse::<u32>());
    let first = parts.next()?.ok()?;
    Some([first, parts.next()?.ok()?, parts.next().and_then(Result::ok).unwrap_or(0)])
}

/// Debian's release, 6.1.0-28-amd64, does not name the version; the text behind it does: Debian 6.1.119-1.
fn kernel((release, version): &(String, String)) -> Option<Numbers> {
    version.split_once("Debian ").and_then(|(_, rest)| numbers(rest)).or_else(|| numbers(release))
}

fn kernel_flawed(found: Numbers) -> bool {
    let line = KERNEL_FIXED.iter().find(|fixed| fixed[..2] == found[..2]);
    found < KERNEL_NEW && line.is_none_or(|fixed| found < *fixed)
}

fn espeak_flawed(version: &str) -> bool {
    // Without its epoch, if it has one.
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let number = |begins: &str| -> Option<u32> {
        version.strip_prefix(begins)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let mended = ESPEAK_MENDED.iter().any(|(begins, least)| number(begins).is_some_and(|found| found >= *least));
    !mended && numbers(version).is_some_and(|found| found < ESPEAK_FIXED)
}

pub(crate) fn judge(installed: &Installed) -> Finding {
    let (release, _) = &installed.kernel;
    if kernel(&installed.kernel).is_some_and(kernel_flawed) {
        let what = format!(
            "the kernel ({release}) has a known flaw by which a USB camera can run code in it (CVE-2024-53104)"
        );
        return Finding::broken(
            Part::Versions,
            what,
            "apt-get update && apt-get full-upgrade, then restart the machine",
        );
    }
    if let Some(espeak) = installed.espeak.as_deref().filter(|version| espeak_flawed(version)) {
        let what = format!("espeak-ng {espeak} has known flaws that a text can reach (CVE-2023-49990 to 49994)");
        return Finding::broken(Part::Versions, what, "apt-get update && apt-get install --only-upgrade espeak-ng");
    }
    let espeak = installed.espeak.as_ref().map_or_else(String::new, |version| format!(" and espeak-ng {version}"));
    Finding::works(Part::Versions, format!("no known flaw of kernel {release}{espeak} reaches this device"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn kernels_and_engines_with_a_known_flaw_are_told_from_those_without() {
        let kernels = [
            ("6.1.0-28-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1 (2024-11-22)", true),
            ("6.1.0-26-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.112-1 (2024-09-30)", false),
            ("6.6.61", "#1 SMP", true),
            ("6.6.60-v8+", "#1 SMP", false),
            ("6.11.7", "#1 SMP", false),
            ("6.12.0", "#1 SMP", false),
            ("6.12.1", "#1 SMP", true),
            ("6.12.48+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1 (2025-09-20)", true),
            ("6.13.0-rc1", "#1 SMP", true),
            ("6.18.44-fc-v669", "#1 SMP", true),
            ("6.8.0-49-generic", "#49-Ubuntu SMP", false),
            ("5.15.172", "#1", true),
            ("5.15.171", "#1", false),
            ("something", "else", true),
        ];
        for (release, version, good) in kernels {
            let installed = Installed { kernel: (release.to_owned(), version.to_owned()), espeak: None };
            let finding = judge(&installed);
            assert_eq!(finding.verdict == Verdict::Works, good, "{release} {version}: {}", finding.what);
            assert_eq!(finding.what.contains("CVE-2024-53104"), !good);
        }
        let engines = [
            ("1.51+dfsg-10", false),
            ("1.51+dfsg-10+deb12u1", true),
            ("1.51+dfsg-10+deb12u2", true),
            ("1.51+dfsg-12build1", true),
            ("1.50+dfsg-10ubuntu0.1", true),
            ("1.50+dfsg-6ubuntu0.1", true),
            ("1.50+dfsg-7+deb11u1", false),
            ("1.50+dfsg-7+deb11u2", true),
            ("1:1.51+dfsg-11", false),
            ("1.50+dfsg-7", false),
            ("1.52.0+dfsg-4", true),
            ("1.49.2", false),
        ];
        for (version, good) in engines {
            let kernel = ("6.12.1".to_owned(), String::new());
            let finding = judge(&Installed { kernel, espeak: Some(version.to_owned()) });
            assert_eq!(finding.verdict == Verdict::Works, good, "{version}: {}", finding.what);
        }
    }

    #[test]
    fn a_package_counts_only_where_it_is_installed() {
        let status = "Package: a\nStatus: install ok installed\nVersion: 1\n\n\
                      Package: espeak-ng\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.51+dfsg-10+deb12u2\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nVersion: 2\n";
        assert_eq!(package(status, "espeak-ng").as_deref(), Some("1.51+dfsg-10+deb12u2"));
        assert_eq!((package(status, "gone"), package(status, "espeak")), (None, None));
    }
}
