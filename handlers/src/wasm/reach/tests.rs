#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A machine in a folder: the device's own folders, an LED that is the sign, another that is not, a camera, a sound card.
struct Machine {
    room: TempDir,
    protected: Protected,
}

impl Machine {
    fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        let folders = [
            "var/lib/state/cache",
            "home/settings/handlers",
            "data/sensor",
            "sys/class/leds",
            "sys/class/video4linux",
            "sys/class/sound",
            "sys/class/hwmon",
            "sys/devices/board/leds/sign",
            "sys/devices/board/leds/lamp",
            "sys/devices/usb1/1-1/video4linux/video0",
            "sys/devices/usb1/1-2/sound/card0",
            "sys/devices/w1_bus_master1/28-1",
        ];
        for folder in folders {
            fs::create_dir_all(room.path().join(folder)).unwrap();
        }
        fs::write(room.path().join("data/file"), "x").unwrap();
        let links = [
            ("sys/devices/board/leds/sign", "sys/class/leds/sign"),
            ("sys/devices/board/leds/lamp", "sys/class/leds/lamp"),
            ("sys/devices/usb1/1-1/video4linux/video0", "sys/class/video4linux/video0"),
            ("sys/devices/usb1/1-2/sound/card0", "sys/class/sound/card0"),
            ("var/lib/state", "data/to-state"),
            ("var/lib/state/cache", "data/to-cache"),
            ("sys/class/leds/sign", "data/to-sign"),
            ("data/sensor", "data/to-sensor"),
            ("data/loop", "data/loop"),
            ("data/nowhere", "data/dangling"),
        ];
        for (target, link) in links {
            symlink(room.path().join(target), room.path().join(link)).unwrap();
        }
        symlink("/dev", room.path().join("data/to-dev")).unwrap();
        symlink("/", room.path().join("data/to-root")).unwrap();
        let at = |path: &str| room.path().join(path);
        let protected = Protected {
            folders: vec![
                (at("var/lib/state"), "the state folder"),
                (at("home/settings"), "the settings folder"),
                (at("home/settings/handlers"), "the handlers folder"),
                (at("var/lib/state/cache"), "the cache folder"),
            ],
            sign_devices: vec![at("sys/class/leds/sign")],
            listeners: vec!["127.0.0.1:8443".parse().unwrap()],
        };
        Self { room, protected }
    }

    fn at(&self, path: &str) -> PathBuf {
        if path.starts_with('/') { path.into() } else { self.room.path().join(path) }
    }

    fn check(&self, reach: &Reach, captures: bool) -> Result<Resolved, Refused> {
        let sys = self.at("sys");
        Judge { captures, protected: &self.protected, sys: &sys }.reach(reach)
    }

    fn folder(&self, path: &str, captures: bool) -> Result<Resolved, String> {
        let read = Reach { read: vec![self.at(path)], ..Reach::default() };
        let write = Reach { write: vec![self.at(path)], ..Reach::default() };
        let read = self.check(&read, captures).map_err(|Refused(why)| why);
        let write = self.check(&write, captures).map_err(|Refused(why)| why);
        assert_eq!(read.is_ok(), write.is_ok(), "the rules are the same for reading and for writing");
        read
    }
}

#[test]
fn what_is_holds_or_lies_under_a_closed_folder_is_refused_by_whatever_path_and_its_neighbour_is_not() {
    let machine = Machine::new();
    let rows = [
        ("var/lib/state", "it is the state folder"),
        ("var/lib", "it holds the state folder"),
        ("var/lib/state/other", "it lies under the state folder"),
        ("var/lib/state/cache", "it lies under the state folder"),
        ("home/settings", "it is the settings folder"),
        ("home/settings/handlers", "it lies under the settings folder"),
        ("home", "it holds the settings folder"),
        ("data/to-state", "it is the state folder"),
        ("data/to-state/cache", "it lies under the state folder"),
        ("data/to-cache", "it lies under the state folder"),
        ("/", "it holds everything"),
        ("//", "it holds everything"),
        ("/.", "it holds everything"),
        ("data/to-root", "it holds everything"),
        ("/dev", "it is the folder of devices"),
        ("/dev/shm", "it lies under the folder of devices"),
        ("data/to-dev", "it is the folder of devices"),
        ("/proc/self", "it lies under the folder of processes"),
        ("/proc/self/root", "it lies under the folder of processes"),
        ("/run/user", "it lies under the folder of sockets"),
        ("/etc/", "it is the folder of the system's settings"),
        ("/boot", "it is the folder that starts the machine"),
        ("sys/class/leds/sign", "it is what carries the in-use sign"),
        ("sys/devices/board/leds/sign", "it is what carries the in-use sign"),
        ("sys/devices/board/leds", "it holds what carries the in-use sign"),
        ("sys/devices/board", "it holds what carries the in-use sign"),
        ("sys/class/leds", "it holds what carries the in-use sign"),
        ("sys/class/leds/sign/device", "it lies under what carries the in-use sign"),
        ("data/to-sign", "it is what carries the in-use sign"),
        ("data/file", "it is not a folder"),
        ("data/file/below", "it is not a folder"),
        ("data/missing", "there is no such folder"),
        ("data/dangling", "there is no such folder"),
        ("data/loop", "it cannot be looked at"),
        ("data/../data/sensor", "without .."),
    ];
    for (path, why) in rows {
        let refused = machine.folder(path, true).unwrap_err();
        assert!(refused.starts_with("reach: ") && refused.contains(why), "{path}: {refused}");
    }
    for path in
        ["data/sensor", "data/to-sensor", "sys/class/leds/lamp", "sys/devices/board/leds/lamp", "sys/class/hwmon"]
    {
        machine.folder(path, false).unwrap_or_else(|why| panic!("{path}: {why}"));
    }
}

#[test]
fn a_relative_path_is_refused() {
    let reach = Reach { read: vec!["data/sensor".into()], ..Reach::default() };
    let Refused(why) = check(&reach, false, &Protected::default()).unwrap_err();
    assert!(why.contains("named from / on"), "{why}");
}

#[test]
fn a_camera_or_a_microphone_needs_the_word_for_it() {
    let machine = Machine::new();
    let rows = [
        ("sys/class/video4linux", "a camera"),
        ("sys/class/video4linux/video0", "a camera"),
        ("sys/devices/usb1/1-1/video4linux/video0", "a camera"),
        ("sys/devices/usb1/1-1", "a camera"),
        ("sys/class/sound", "a microphone"),
        ("sys/class/sound/card0", "a microphone"),
        ("sys/devices/usb1/1-2", "a microphone"),
        ("sys/devices/usb1", "a camera"),
    ];
    for (path, what) in rows {
        let refused = machine.folder(path, false).unwrap_err();
        assert!(refused.contains(what) && refused.contains("captures = true"), "{path}: {refused}");
        machine.folder(path, true).unwrap_or_else(|why| panic!("{path}: {why}"));
    }
    machine.folder("sys/devices/w1_bus_master1", false).unwrap();
}

#[test]
fn a_folder_is_resolved_without_links_and_one_named_twice_is_writable() {
    let machine = Machine::new();
    let named = machine.at("data/to-sensor");
    let reach =
        Reach { read: vec![named.clone(), machine.at("data/sensor")], write: vec![named.clone()], http: vec![] };
    let folders = machine.check(&reach, false).unwrap().folders;
    let found = fs::metadata(machine.at("data/sensor")).unwrap();
    let real = fs::canonicalize(machine.at("data/sensor")).unwrap();
    let inode = (found.dev(), found.ino());
    let expected = [
        Folder { named, real: real.clone(), inode, write: true },
        Folder { named: machine.at("data/sensor"), real, inode, write: false },
    ];
    assert_eq!(folders, expected);
}

#[test]
fn a_folder_that_was_replaced_or_whose_link_points_elsewhere_no_longer_stands() {
    let machine = Machine::new();
    let reach = Reach { read: vec![machine.at("data/to-sensor")], ..Reach::default() };
    let folder = machine.check(&reach, false).unwrap().folders.remove(0);
    assert!(stands(&folder));
    fs::rename(machine.at("data/sensor"), machine.at("data/old")).unwrap();
    assert!(!stands(&folder), "nothing is there");
    fs::create_dir(machine.at("data/sensor")).unwrap();
    assert!(!stands(&folder), "another folder is there");
    fs::remove_dir(machine.at("data/sensor")).unwrap();
    fs::rename(machine.at("data/old"), machine.at("data/sensor")).unwrap();
    assert!(stands(&folder), "the same one is back");
    fs::remove_file(machine.at("data/to-sensor")).unwrap();
    symlink(machine.at("var/lib/state"), machine.at("data/to-sensor")).unwrap();
    assert!(!stands(&folder), "the link leads elsewhere");
}

#[test]
fn the_devices_own_listeners_are_refused_by_every_name_and_their_neighbours_are_not() {
    let machine = Machine::new();
    let name = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let own = [
        "http://127.0.0.1:8443".to_owned(),
        "https://127.9.9.9:8443".to_owned(),
        "http://[::1]:8443".to_owned(),
        "http://[::ffff:127.0.0.1]:8443".to_owned(),
        "http://0.0.0.0:8443".to_owned(),
        "http://[::]:8443".to_owned(),
        "http://localhost:8443".to_owned(),
        "http://LOCALHOST:8443".to_owned(),
        "http://some.localhost:8443".to_owned(),
        format!("http://{name}:8443"),
        format!("http://{}.local:8443", name.split('.').next().unwrap()),
    ];
    let reach = |origin: &str| Reach { http: vec![origin.parse().unwrap()], ..Reach::default() };
    for origin in own {
        let Refused(why) = machine.check(&reach(&origin), false).unwrap_err();
        assert!(why.contains("is this device itself"), "{origin}: {why}");
        machine.check(&reach(&origin.replace(":8443", ":8444")), false).unwrap();
    }
    for origin in ["http://192.0.2.1:8443", "http://[2001:db8::1]:8443", "http://lamp.example:8443"] {
        machine.check(&reach(origin), false).unwrap();
    }
}

#[test]
fn an_address_is_own_when_this_machine_can_listen_there() {
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(is_own_address(listening.local_addr().unwrap().ip()));
    assert!(!is_own_address("192.0.2.1".parse().unwrap()));
}
