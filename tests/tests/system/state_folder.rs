//! The state folder when something is wrong with it: one sentence that says what to do, and nothing is lost (P1, P3, G1).

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use latchkey_tests::agent::{fresh_id, text};
use latchkey_tests::keeper::short;
use latchkey_tests::programs::{command, program, run};
use latchkey_tests::{Agent, Ended, Room, Start, skip, until};
use serde_json::json;
use wire::{ErrorCode, OwnerRequest};

/// The user without rights that every Linux has.
const NOBODY: u32 = 65_534;

/// A device with an owner and a grant, stopped.
fn settled(room: &Room) -> Agent {
    let owner = Agent::default();
    let mut daemon = Start::simulated(room).up();
    owner.settle(&daemon.line(), &daemon.keeper(), &["camera", "display.text"]);
    owner.call(&daemon.line(), "display.text", text("before")).value();
    assert_eq!(daemon.stop(), 0);
    owner
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A way to damage a file of the state.
type Damage = fn(&Path);

#[test]
fn a_damaged_state_is_set_aside_by_name_and_the_device_starts_unowned_with_everything_off() {
    let damages: &[(&str, Damage)] = &[
        ("its head is garbage", |db| overwrite(db, 0, &[0x5a; 64])),
        ("it is something else", |db| fs::write(db, "no database at all".repeat(1_000)).unwrap()),
        ("it ends in the middle", |db| {
            let half = fs::metadata(db).unwrap().len() / 2;
            fs::File::options().write(true).open(db).unwrap().set_len(half).unwrap();
        }),
        ("a page in it is garbage", |db| overwrite(db, 4096, &[0x5a; 4096])),
        ("the pages after the first are zero", |db| {
            let length = usize::try_from(fs::metadata(db).unwrap().len()).unwrap();
            overwrite(db, 4096, &vec![0; length - 4096]);
        }),
    ];
    let room = Room::new();
    let owner = settled(&room);
    let db = room.state().join("state.db");
    let (whole, key) = (fs::read(&db).unwrap(), fs::read(room.state().join("device.key")).unwrap());
    for (name, damage) in damages {
        fs::write(&db, &whole).unwrap();
        damage(&db);
        let damaged = fs::read(&db).unwrap();
        let mut daemon = Start::simulated(&room).up();
        let (line, keeper) = (daemon.line(), daemon.keeper());
        let told = daemon.out.await_line("notice");
        assert!(told.contains("state.db was damaged") && told.contains("is kept as"), "{name}: {told}");
        let status = keeper.status();
        assert_eq!((status.owner, status.grants_on), (None, vec![]), "{name}");
        assert!(status.notices.iter().any(|notice| notice.contains("damaged")), "{name}");
        let asked = line.post(&owner.seal(&line.device, fresh_id(), line.challenge(), &OwnerRequest::Registration));
        assert!(asked.is_forbidden(), "{name}: {asked:?}");
        // Paired anew, nothing is granted that was.
        owner.settle(&line, &keeper, &[]);
        assert_eq!(owner.call(&line, "camera.snapshot", json!({})).code(), ErrorCode::Denied, "{name}");
        assert_eq!(owner.call(&line, "display.text", text("after")).code(), ErrorCode::Denied, "{name}");
        keeper.verify();
        assert_eq!(daemon.stop(), 0);
        let aside: Vec<_> =
            names(&room.state()).into_iter().filter(|file| file.starts_with("state.db.damaged-")).collect();
        let kept = aside.iter().find(|file| !file.ends_with("-wal") && !file.ends_with("-shm")).expect(name);
        assert_eq!(fs::read(room.state().join(kept)).unwrap(), damaged, "{name}: kept as it was");
        assert_eq!(fs::read(room.state().join("device.key")).unwrap(), key, "{name}: still the same device");
        for file in aside {
            fs::remove_file(room.state().join(file)).unwrap();
        }
    }
    // The control: the state as it was, under the same key, is taken.
    fs::write(&db, &whole).unwrap();
    let daemon = Start::simulated(&room).up();
    assert_eq!(daemon.keeper().status().grants_on, ["camera", "display.text"]);
    owner.activate(&daemon.line(), 60_000);
    owner.call(&daemon.line(), "display.text", text("after")).value();
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    fs::File::options().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_state_that_vanished_is_noticed_and_gives_nobody_anything() {
    for emptied in [false, true] {
        let room = Room::new();
        let owner = settled(&room);
        let db = room.state().join("state.db");
        if emptied {
            fs::File::create(&db).unwrap();
        } else {
            fs::remove_file(&db).unwrap();
        }
        let daemon = Start::simulated(&room).up();
        let notice = daemon.out.await_line("notice");
        assert!(notice.contains("record"), "emptied: {emptied}: {notice}");
        assert_eq!(daemon.keeper().status().owner, None);
        owner.settle(&daemon.line(), &daemon.keeper(), &[]);
        assert_eq!(owner.call(&daemon.line(), "camera.snapshot", json!({})).code(), ErrorCode::Denied);
    }
}

#[test]
fn a_state_of_a_newer_version_is_refused_and_left_as_it_is() {
    let room = Room::new();
    let _owner = settled(&room);
    let db = room.state().join("state.db");
    let ours = fs::read(&db).unwrap();
    // SQLite keeps the version of its user at byte 60, big-endian.
    overwrite(&db, 60, &[0, 0, 0, 99]);
    let newer = fs::read(&db).unwrap();
    Start::simulated(&room).run().refused(1, &["newer latchkeyd", "state version 99", "use that program"]);
    room.latchkeyd(&["receipts"]).refused(1, &["newer latchkeyd"]);
    assert_eq!(fs::read(&db).unwrap(), newer);
    fs::write(&db, ours).unwrap();
    assert!(Start::simulated(&room).up().keeper().status().owner.is_some(), "the control");
}

#[test]
fn a_second_daemon_on_the_same_folder_names_the_first_one_and_leaves_it_alone() {
    let room = Room::new();
    let mut first = Start::simulated(&room).up();
    let pid = format!("pid {}", first.pid());
    Start::simulated(&room).run().refused(1, &["running already", &pid, "--state-dir"]);
    assert!(first.alive());
    let status = room.latchkeyd(&["status", "--json"]).well().json();
    assert_eq!(status["pid"], first.pid());
    first.kill();
    // A killed daemon leaves nothing that stands in the way.
    let mut second = Start::simulated(&room).up();
    assert_eq!(second.stop(), 0);
}

#[test]
fn records_are_read_while_they_are_written_without_an_error_or_a_lost_row() {
    const CALLS: usize = 300;
    let room = Room::new();
    let daemon = Start::simulated(&room).up();
    let (owner, line, keeper) = (Agent::default(), daemon.line(), daemon.keeper());
    owner.own(&line, &keeper);
    let before = keeper.last();
    let writing = std::thread::spawn(move || {
        for _ in 0..CALLS {
            owner.call(&line, "device.health", json!({})).value();
        }
    });
    let mut reads = 0;
    while !writing.is_finished() || reads == 0 {
        let receipts = room.latchkeyd(&["receipts", "--last", "500", "--json"]).well().json();
        let numbers: Vec<_> =
            receipts.as_array().unwrap().iter().map(|record| record["sequence"].as_u64().unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "a row is missing: {numbers:?}");
        room.latchkeyd(&["receipts", "--verify"]).well();
        reads += 1;
    }
    writing.join().unwrap();
    let calls = keeper.records(before).iter().filter(|record| short(record) == "call device.health ok").count();
    assert_eq!(calls, CALLS);
}

#[test]
fn loose_permissions_stop_the_start_and_the_mend_in_the_sentence_mends_them() {
    let rows: &[(&str, u32, &str)] = &[
        ("state", 0o755, "chmod 700"),
        ("state", 0o710, "chmod 700"),
        ("state/device.key", 0o644, "chmod 600"),
        ("state/device.key", 0o660, "chmod 600"),
        ("config", 0o777, "chmod go-w"),
        ("config/latchkey.toml", 0o666, "chmod go-w"),
    ];
    let room = Room::new();
    room.settings("[device]\nname = \"pantry\"\n");
    let _owner = settled(&room);
    for (path, mode, mend) in rows {
        let path = room.file(path);
        fs::set_permissions(&path, Permissions::from_mode(*mode)).unwrap();
        let refused =
            Start::simulated(&room).run().refused(1, &[mend, &path.display().to_string(), &format!("{mode:04o}")]);
        let ordered = refused.err.trim_end().rsplit_once("run: ").expect("a mend").1.to_owned();
        let mut shell = command(&room, Path::new("/bin/sh"));
        shell.args(["-c", &ordered]);
        run(shell).well();
        let mut daemon = Start::simulated(&room).up();
        assert!(daemon.keeper().status().owner.is_some(), "nothing is lost");
        assert_eq!(daemon.stop(), 0);
    }
}

#[test]
fn what_stands_in_place_of_a_folder_or_is_missing_is_named() {
    let room = Room::new();
    // A missing state folder is made, for its user alone.
    let mut daemon = Start::simulated(&room).up();
    assert_eq!(daemon.stop(), 0);
    assert_eq!(fs::metadata(room.state()).unwrap().mode() & 0o7777, 0o700);
    // A settings folder that somebody named is not made up; the defaults hold, and that is told.
    let missing = room.file("missing");
    let free = ["--set", "link.direct.listen=127.0.0.1:0", "--set", "keeper.listen=127.0.0.1:0"];
    let named = [&["--config-dir", missing.to_str().unwrap()][..], &free, &["run", "--simulate"]].concat();
    let mut daemon = Start::bare(&room).arguments(&named).up();
    let told = daemon.err.find(|line| line.contains("there is no settings folder")).expect("it is told");
    assert!(told.contains(missing.to_str().unwrap()) && told.contains("config init"), "{told}");
    assert!(!missing.exists());
    assert_eq!(daemon.stop(), 0);
    // A file is no folder.
    fs::write(&missing, "").unwrap();
    Start::bare(&room)
        .arguments(&["--state-dir", missing.to_str().unwrap(), "run", "--simulate"])
        .run()
        .refused(1, &["is not a folder", missing.to_str().unwrap()]);
    // A state without its key is not taken over by a new one.
    let key = room.state().join("device.key");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    Start::simulated(&room).run().refused(1, &["not its key", "from a backup"]);
    assert!(!key.exists());
    latchkey_tests::room::private(&key, b"not a key\n");
    Start::simulated(&room).run().refused(1, &["device.key", "damaged", "from a backup"]);
    assert_eq!(fs::read(&key).unwrap(), b"not a key\n");
    latchkey_tests::room::private(&key, &kept);
    assert_eq!(Start::simulated(&room).up().stop(), 0);
}

#[test]
fn a_port_in_use_is_named_with_the_key_that_chooses_another() {
    let room = Room::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (key, other) in [("link.direct.listen", "keeper.listen"), ("keeper.listen", "link.direct.listen")] {
        let with = |address: &str| {
            Start::bare(&room)
                .set(&format!("{key}={address}"))
                .set(&format!("{other}=127.0.0.1:0"))
                .arguments(&["run", "--simulate"])
        };
        with(&address).run().refused(1, &["cannot listen on", &address, key]);
        assert_eq!(with("127.0.0.1:0").up().stop(), 0, "the control: {key}");
    }
}

/// Whether this test may act as other users; if not, it is noted as skipped.
fn root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("root", &format!("{what} needs root"));
    }
    root
}

#[test]
fn a_folder_of_another_user_is_refused_with_both_users_named() {
    if !root("a state folder of another user") {
        return;
    }
    let room = Room::new();
    let _owner = settled(&room);
    for path in [room.state(), room.state().join("device.key")] {
        chown(&path, Some(NOBODY), None).unwrap();
        Start::simulated(&room).run().refused(1, &["belongs to user 65534", "runs as user 0", "chown"]);
        chown(&path, Some(0), None).unwrap();
    }
    assert_eq!(Start::simulated(&room).up().stop(), 0, "the control");
}

/// `latchkeyd` as another user, from a copy that this user may run.
fn as_nobody(room: &Room) -> Command {
    let copy = room.file("latchkeyd");
    if !copy.exists() {
        fs::copy(program("latchkeyd"), &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(room.path(), Permissions::from_mode(0o711)).unwrap();
    }
    let mut nobody = command(room, Path::new("setpriv"));
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
    nobody
}

fn nobody(room: &Room, arguments: &[&str]) -> Ended {
    let mut latchkeyd = as_nobody(room);
    latchkeyd.args(arguments);
    run(latchkeyd)
}

#[test]
fn a_device_runs_without_rights_and_obeys_its_user_and_root() {
    if !root("running as another user") {
        return;
    }
    let room = Room::new();
    let mut start = as_nobody(&room);
    start.args(["--set", "link.direct.listen=127.0.0.1:0", "--set", "keeper.listen=127.0.0.1:0", "run", "--simulate"]);
    for folder in [room.state(), room.config()] {
        latchkey_tests::room::folder(&folder);
        chown(&folder, Some(NOBODY), None).unwrap();
    }
    let mut daemon = Start::with(&room, start).up();
    let pair = nobody(&room, &["pair", "--json"]).well().json();
    assert!(pair["link"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let status = room.latchkeyd(&["status", "--json"]).well().json();
    assert_eq!(status["pid"], daemon.pid(), "root may ask too");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn the_command_socket_obeys_nobody_but_its_user_and_root() {
    if !root("asking as another user") {
        return;
    }
    let room = Room::new();
    let daemon = Start::simulated(&room).up();
    let (owner, keeper) = (Agent::default(), daemon.keeper());
    owner.own(&daemon.line(), &keeper);
    let socket = room.state().join("latchkeyd.sock");
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let before = keeper.last();
    nobody(&room, &["grant", "camera"]).refused(3, &["only the user that runs latchkeyd"]);
    // Even where the folder and the socket's own mode let somebody in, the kernel names the caller.
    fs::set_permissions(room.state(), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    for order in [["grant", "camera"].as_slice(), &["release", "--yes"], &["pair"]] {
        let ended = nobody(&room, order);
        assert_eq!(ended.code(), 4, "{order:?}: {ended:?}");
        daemon.err.await_line("a stranger was refused");
    }
    assert_eq!((keeper.last(), keeper.status().grants_on), (before, vec![]));
    // The control: the same order of the right user.
    room.latchkeyd(&["grant", "camera"]).well();
    assert_eq!(keeper.status().grants_on, ["camera"]);
}

/// A small file system over a folder of the room; it goes with this value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(folder: PathBuf) -> Option<Self> {
        latchkey_tests::room::folder(&folder);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "latchkey-test"]).arg(&folder);
        let mounted = rustix::process::geteuid().is_root() && mount.output().is_ok_and(|ended| ended.status.success());
        if !mounted {
            skip("root", "a full disk is made by mounting a small one, which is not allowed here");
            return None;
        }
        Some(Self(folder))
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("ballast")).unwrap();
        for piece in [4096, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg("--lazy").arg(&self.0).output();
        assert!(std::thread::panicking() || ended.unwrap().status.success(), "it is unmounted");
    }
}

#[test]
fn on_a_full_disk_nothing_is_done_health_says_so_and_work_goes_on_when_there_is_room() {
    let room = Room::new();
    let Some(disk) = SmallDisk::over(room.state()) else { return };
    let mut daemon = Start::simulated(&room).up();
    let (owner, line, keeper) = (Agent::default(), daemon.line(), daemon.keeper());
    owner.settle(&line, &keeper, &["camera", "display.text", "speaker.say"]);
    owner.call(&line, "display.text", text("there is room")).value();
    let pid = daemon.pid();

    disk.fill();
    let (id, before) = (fresh_id(), keeper.last());
    let refused = owner.call_as(&line, id, "display.text", text("full"));
    assert_eq!(refused.code(), ErrorCode::StorageFull);
    assert_eq!(owner.call(&line, "camera.snapshot", json!({})).code(), ErrorCode::StorageFull);
    assert_eq!(owner.call(&line, "speaker.say", text("full")).code(), ErrorCode::StorageFull);
    let health = owner.call(&line, "device.health", json!({})).value();
    assert_eq!(health.get("journal").and_then(|journal| journal.get("writable")), Some(&json!(false)), "{health}");
    let status = keeper.status();
    assert!(status.notices.iter().any(|notice| notice.contains("disk full")), "{:?}", status.notices);
    assert_eq!(status.journal.last, before);
    let asked = owner.ask(&line, fresh_id(), &OwnerRequest::Registration);
    assert_eq!(asked.word(), "ok", "reads go on");
    room.latchkeyd(&["receipts"]).well();
    room.latchkeyd(&["revoke", "camera"]).refused(1, &["disk is full"]);
    let printed = daemon.out.all();
    assert!(
        !printed.iter().any(|line| line.contains("full\"") || line.contains("sign: ON")),
        "nothing moved: {printed:#?}"
    );

    disk.free();
    until("records are written again", || {
        let ended = owner.call_as(&line, id, "display.text", text("full"));
        (ended.word() == "ok").then_some(())
    });
    assert!(daemon.alive() && daemon.pid() == pid, "without a restart");
    let shown = daemon.out.all().iter().filter(|line| line.contains("simulated screen:")).count();
    assert_eq!(shown, 2, "once before, once after");
    keeper.verify();
    assert!(keeper.records(before).iter().any(|record| short(record) == "call display.text ok"));
    owner.call(&line, "speaker.say", text("room")).value();

    // A start on a full disk says what is wrong, and loses nothing.
    assert_eq!(daemon.stop(), 0);
    disk.fill();
    if let Some(ended) = Start::simulated(&room).spawned_or_ended() {
        let ended = ended.refused(1, &["the disk is full"]);
        assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended:?}");
    }
    disk.free();
    let daemon = Start::simulated(&room).up();
    assert!(daemon.keeper().status().owner.is_some());
    daemon.keeper().verify();
    drop(daemon);
}
