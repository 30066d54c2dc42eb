//! Whether the user that the device runs as may open what it needs: the files of cameras, sound cards and GPIO chips belong to groups.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::doctor::{Finding, Part};

/// Who opens the hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) name: String,
    /// All groups that count, by number.
    pub(crate) groups: Vec<u32>,
}

/// The user that a packaged service runs as.
const SERVICE: &str = "latchkey";
/// Its unit, which may give it more groups than it has.
const UNITS: [&str; 2] = ["/etc/systemd/system/latchkeyd.service", "/usr/lib/systemd/system/latchkeyd.service"];

/// A file of hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) path: PathBuf,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    /// What its group is called.
    pub(crate) group: String,
}

impl User {
    /// The one that a process runs as, with the groups that the kernel counts for it.
    pub(crate) fn of_process(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::of_status(&status, &passwd)
    }

    fn of_status(status: &str, passwd: &str) -> Option<Self> {
        let numbers = |label: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(label))?;
            Some(line.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).collect::<Vec<_>>())
        };
        // Real, effective, saved, and that of the file system.
        let uid = *numbers("Uid:")?.get(1)?;
        let mut groups = numbers("Groups:").unwrap_or_default();
        groups.extend(numbers("Gid:")?.get(1));
        Some(Self { uid, name: name_of(passwd, uid).unwrap_or_else(|| uid.to_string()), groups })
    }

    /// The user of a packaged service that does not run now, by the system's own lists; none where there is no such user.
    pub(crate) fn of_service() -> Option<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let unit = UNITS.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        Self::of_lists(SERVICE, &read("/etc/passwd"), &read("/etc/group"), &unit)
    }

    fn of_lists(name: &str, passwd: &str, group: &str, unit: &str) -> Option<Self> {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let own = passwd.lines().map(fields).find(|fields| fields.first().is_some_and(|known| known == name))?;
        let uid = own.get(2)?.parse().ok()?;
        let given: Vec<&str> = (unit.lines())
            .filter_map(|line| line.trim().strip_prefix("SupplementaryGroups="))
            .flat_map(str::split_whitespace)
            .collect();
        let mut groups: Vec<u32> = own.get(3).and_then(|gid| gid.parse().ok()).into_iter().collect();
        for fields in group.lines().map(fields) {
            let [called, _, gid, members, ..] = fields.as_slice() else { continue };
            if given.contains(&called.as_str()) || members.split(',').any(|member| member == name) {
                groups.extend(gid.parse::<u32>());
            }
        }
        Some(Self { uid, name: name.to_owned(), groups })
    }

    /// Whether the kernel lets it read and write.
    fn may(&self, node: &Node) -> bool {
        let bits = if self.uid == node.uid {
            node.mode >> 6
        } else if self.groups.contains(&node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        self.uid == 0 || bits & 0o6 == 0o6
    }
}

/// The name of a user or a group by its number, in the system's list of them.
fn name_of(list: &str, number: u32) -> Option<String> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}

/// The files of hardware under `root` (in earnest, /dev) that the device would open: cameras and sound cards, and chips where a line is
/// the sign.
pub(crate) fn nodes(root: &Path, gpio: bool) -> Vec<Node> {
    let group = fs::read_to_string("/etc/group").unwrap_or_default();
    let mut paths = Vec::new();
    let mut take = |folder: PathBuf, wanted: &dyn Fn(&str) -> bool| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        paths.extend(entries.filter(|entry| entry.file_name().to_str().is_some_and(wanted)).map(|entry| entry.path()));
    };
    let numbered = |name: &str, stem: &str| name.strip_prefix(stem).is_some_and(|rest| rest.parse::<u32>().is_ok());
    take(root.to_owned(), &|name| numbered(name, "video") || (gpio && numbered(name, "gpiochip")));
    take(root.join("snd"), &|name| name.starts_with("pcm"));
    paths.sort();
    paths.into_iter().filter_map(|path| node(path, &group)).collect()
}

fn node(path: PathBuf, group: &str) -> Option<Node> {
    let found = fs::metadata(&path).ok()?;
    let gid = found.gid();
    let group = name_of(group, gid).unwrap_or_else(|| gid.to_string());
    Some(Node { path, uid: found.uid(), gid, mode: found.mode() & 0o777, group })
}

pub(crate) fn judge(user: &User, nodes: &[Node]) -> Finding {
    if nodes.is_empty() {
        return Finding::not_needed(Part::Groups, "this machine has no camera and no sound card to open");
    }
    let shut: Vec<&Node> = nodes.iter().filter(|node| !user.may(node)).collect();
    let User { name, .. } = user;
    let Some(first) = shut.first() else {
        let what = match nodes {
            [one] => format!("{name} may open {}", one.path.display()),
            many => format!("{name} may open all {} files of cameras and sound cards", many.len()),
        };
        return Finding::works(Part::Groups, what);
    };
    let more = match shut.len() {
        1 => String::new(),
        several => format!(" and {} more", several - 1),
    };
    let path = first.path.display();
    let mut groups: Vec<&str> =
        shut.iter().filter(|node| by_group(user, node)).map(|node| node.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.is_empty() {
        let what = format!("{name} may not open {path}{more}: nobody but root may");
        return Finding::broken(Part::Groups, what, format!("chmod g+rw {path}"));
    }
    let what = format!("{name} may not open {path}{more}; it is not in {}", listed(&groups));
    Finding::broken(Part::Groups, what, format!("usermod -aG {} {name}", groups.join(",")))
}

/// Whether membership would help: a group that may, and that is nobody's by accident.
fn by_group(user: &User, node: &Node) -> bool {
    node.uid != user.uid && node.gid != 0 && node.mode & 0o060 == 0o060
}

fn listed(groups: &[&str]) -> String {
    match groups {
        [one] => format!("the group {one}"),
        several => format!("the groups {}", several.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::doctor::Verdict;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nlatchkey:x:990:980::/var/lib/latchkey:/usr/sbin/nologin\n";
    const GROUP: &str = "root:x:0:\naudio:x:29:pulse,latchkey\nvideo:x:44:\nlatchkey:x:980:\n";

    fn node(path: &str, gid: u32, group: &str, mode: u32) -> Node {
        Node { path: path.into(), uid: 0, gid, mode, group: group.to_owned() }
    }

    fn user(uid: u32, groups: &[u32]) -> User {
        User { uid, name: if uid == 0 { "root" } else { "latchkey" }.to_owned(), groups: groups.to_vec() }
    }

    #[test]
    fn a_file_that_the_devices_user_may_not_open_is_named_with_its_group_and_the_command() {
        let camera = node("/dev/video0", 44, "video", 0o660);
        let sound = node("/dev/snd/pcmC0D0c", 29, "audio", 0o660);
        let alone = node("/dev/video1", 0, "root", 0o600);
        type Row<'a> = (User, Vec<Node>, Verdict, &'a str, Option<&'a str>);
        let rows: [Row<'_>; 7] = [
            (user(990, &[]), vec![], Verdict::NotNeeded, "not there and not needed: this machine has no camera", None),
            (user(990, &[44]), vec![camera.clone()], Verdict::Works, "latchkey may open /dev/video0", None),
            (user(990, &[44, 29]), vec![camera.clone(), sound.clone()], Verdict::Works, "all 2 files", None),
            (
                user(0, &[]),
                vec![camera.clone(), sound.clone(), alone.clone()],
                Verdict::Works,
                "root may open all 3",
                None,
            ),
            (
                user(990, &[29]),
                vec![camera.clone(), sound.clone()],
                Verdict::Broken,
                "latchkey may not open /dev/video0; it is not in the group video",
                Some("usermod -aG video latchkey"),
            ),
            (
                user(990, &[]),
                vec![camera, sound],
                Verdict::Broken,
                "latchkey may not open /dev/video0 and 1 more; it is not in the groups audio and video",
                Some("usermod -aG audio,video latchkey"),
            ),
            (
                user(990, &[44]),
                vec![alone],
                Verdict::Broken,
                "latchkey may not open /dev/video1: nobody but root may",
                Some("chmod g+rw /dev/video1"),
            ),
        ];
        for (user, nodes, verdict, words, mend) in rows {
            let finding = judge(&user, &nodes);
            assert_eq!(finding.verdict, verdict, "{nodes:?}");
            assert!(finding.what.contains(words), "{}", finding.what);
            assert_eq!(finding.mend.as_deref(), mend);
        }
    }

    #[test]
    fn the_user_is_the_one_of_the_process_or_the_one_of_the_service() {
        let status = "Name:\tlatchkeyd\nUid:\t990\t990\t990\t990\nGid:\t980\t980\t980\t980\nGroups:\t29 44 980 \n";
        let found = User::of_status(status, PASSWD).unwrap();
        assert_eq!((found.uid, found.name.as_str(), &found.groups[..3]), (990, "latchkey", &[29, 44, 980][..]));
        assert_eq!(User::of_status("Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\n", PASSWD).unwrap().name, "7");
        assert_eq!(User::of_status("Name:\tx\n", PASSWD), None);
        let unit = "[Service]\nSupplementaryGroups=video\n";
        assert_eq!(User::of_lists("latchkey", PASSWD, GROUP, unit).unwrap().groups, [980, 29, 44]);
        assert_eq!(User::of_lists("latchkey", PASSWD, GROUP, "").unwrap().groups, [980, 29]);
        assert_eq!(User::of_lists("nobody-here", PASSWD, GROUP, unit), None);
        assert_eq!(User::of_process(std::process::id()).unwrap().uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn only_cameras_sound_cards_and_the_chips_of_a_sign_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("snd")).unwrap();
        for name in ["video0", "videodev", "vbi0", "gpiochip0", "snd/pcmC0D0p", "snd/timer"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        for (gpio, wanted) in
            [(false, &["snd/pcmC0D0p", "video0"][..]), (true, &["gpiochip0", "snd/pcmC0D0p", "video0"])]
        {
            let found = nodes(root.path(), gpio);
            let names: Vec<_> =
                found.iter().map(|node| node.path.strip_prefix(root.path()).unwrap().to_str().unwrap()).collect();
            assert_eq!(names, wanted);
        }
    }
}
