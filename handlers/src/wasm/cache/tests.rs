#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::*;

/// The same bytes each time, told at the start.
struct Dice(u8);

impl Chance for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

const ENGINE: &str = "wasmtime 48.0.8 x86_64 settings 1234";

struct Room {
    room: tempfile::TempDir,
    cache: Cache,
    digest: Digest,
    compiled: Compiled,
}

impl Room {
    fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        let cache = Cache::open(&room.path().join("cache"), &Dice(1)).unwrap();
        let compiled = Compiled {
            native: (0..=255).collect(),
            imports: vec!["device:handler/host@0.1.0".to_owned(), "wasi:clocks/wall-clock@0.2.6".to_owned()],
            descriptor: Some(br#"{"description":"x"}"#.to_vec()),
        };
        let digest = Digest::of(b"source");
        cache.keep(&digest, ENGINE, &compiled).unwrap();
        Self { room, cache, digest, compiled }
    }

    fn entry(&self) -> PathBuf {
        self.cache.path(&self.digest, ENGINE)
    }

    fn folder(&self) -> PathBuf {
        self.room.path().join("cache")
    }
}

#[test]
fn what_was_kept_is_found_by_its_source_and_its_engine_alone() {
    let room = Room::new();
    assert_eq!(room.cache.find(&room.digest, ENGINE).as_ref(), Some(&room.compiled));
    assert_eq!(room.cache.find(&Digest::of(b"other"), ENGINE), None);
    assert_eq!(room.cache.find(&room.digest, "wasmtime 48.0.9"), None);
    assert_eq!(room.cache.find(&room.digest, ENGINE), Some(room.compiled), "asking for others removes nothing");
    let mode = fs::metadata(room.cache.path(&room.digest, ENGINE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn every_changed_byte_is_noticed_and_the_entry_removed() {
    let whole = fs::read(Room::new().entry()).unwrap();
    let head_bytes = whole.len() - MAC_BYTES - 4 - 256;
    let at = [
        ("the first of the MAC", 0),
        ("the last of the MAC", MAC_BYTES - 1),
        ("the head's length", MAC_BYTES + 3),
        ("the head's high length", MAC_BYTES),
        ("the first of the head", MAC_BYTES + 4),
        ("the last of the head", MAC_BYTES + 4 + head_bytes - 1),
        ("the first of the native code", MAC_BYTES + 4 + head_bytes),
        ("the middle of the native code", whole.len() - 128),
        ("the last of the native code", whole.len() - 1),
    ];
    for (what, at) in at {
        for bit in [0x01, 0x80] {
            let room = Room::new();
            let mut bytes = fs::read(room.entry()).unwrap();
            bytes[at] ^= bit;
            fs::write(room.entry(), &bytes).unwrap();
            assert_eq!(room.cache.find(&room.digest, ENGINE), None, "{what}");
            assert!(!room.entry().exists(), "{what}: the entry stays");
        }
    }
}

#[test]
fn an_entry_that_is_not_as_it_was_written_is_removed_and_one_that_is_stays() {
    let refused = |what: &str, harm: &dyn Fn(&Room, &Path)| {
        let room = Room::new();
        harm(&room, &room.entry());
        assert_eq!(room.cache.find(&room.digest, ENGINE), None, "{what}");
        assert!(fs::symlink_metadata(room.entry()).is_err(), "{what}: the entry stays");
    };
    let size = |path: &Path, bytes: u64| fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    refused("empty", &|_, path| size(path, 0));
    refused("half a MAC", &|_, path| size(path, 16));
    refused("a MAC alone", &|_, path| size(path, 32));
    refused("one byte less", &|_, path| size(path, length(path) - 1));
    refused("one byte more", &|_, path| size(path, length(path) + 1));
    refused("too long", &|_, path| size(path, u64::try_from(ENTRY_BYTES_MAX).unwrap() + 1));
    refused("readable by others", &|_, path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap());
    refused("writable by the group", &|_, path| fs::set_permissions(path, fs::Permissions::from_mode(0o620)).unwrap());
    refused("a link to itself elsewhere", &|room, path| {
        let elsewhere = room.room.path().join("elsewhere");
        fs::rename(path, &elsewhere).unwrap();
        symlink(&elsewhere, path).unwrap();
    });
    refused("a pipe", &|_, path| {
        fs::remove_file(path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    });
    refused("the entry of another source", &|room, path| {
        room.cache.keep(&Digest::of(b"other"), ENGINE, &room.compiled).unwrap();
        fs::rename(room.cache.path(&Digest::of(b"other"), ENGINE), path).unwrap();
    });
    refused("the entry of another engine", &|room, path| {
        room.cache.keep(&room.digest, "other", &room.compiled).unwrap();
        fs::rename(room.cache.path(&room.digest, "other"), path).unwrap();
    });
    refused("made under another key", &|room, path| {
        let other = Cache::open(&room.room.path().join("other"), &Dice(2)).unwrap();
        other.keep(&room.digest, ENGINE, &room.compiled).unwrap();
        fs::copy(other.path(&room.digest, ENGINE), path).unwrap();
    });
    if rustix::process::geteuid().is_root() {
        refused("of another owner", &|_, path| chown(path, Some(1), None).unwrap());
    }
    let room = Room::new();
    let bytes = fs::read(room.entry()).unwrap();
    fs::write(room.entry(), bytes).unwrap();
    assert_eq!(room.cache.find(&room.digest, ENGINE).as_ref(), Some(&room.compiled), "the same bytes hold");
}

#[test]
fn nothing_moves_between_the_engines_text_and_the_code_behind_it() {
    let room = Room::new();
    let of = |engine: &str, body: &[u8]| room.cache.mac(&room.digest, engine, body).finalize().into_bytes();
    assert_ne!(of("ab", b"c"), of("a", b"bc"));
    assert_eq!(of("ab", b"c"), of("ab", b"c"));
}

#[test]
fn the_key_is_made_once_for_us_alone_and_a_loose_one_is_refused() {
    let room = Room::new();
    let again = Cache::open(&room.folder(), &Dice(9)).unwrap();
    assert_eq!(again.find(&room.digest, ENGINE).as_ref(), Some(&room.compiled), "the key outlives us");
    let key = room.folder().join(KEY_FILE);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Cache::open(&room.folder(), &Dice(1)), Err(SafeError::Loose { mode: 0o640, .. })));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    for bytes in [0, 31, 33] {
        fs::write(&key, vec![1; bytes]).unwrap();
        let renewed = Cache::open(&room.folder(), &Dice(9)).unwrap();
        assert_eq!(fs::read(&key).unwrap(), [9; KEY_BYTES], "a key of {bytes} bytes is replaced");
        assert_eq!(renewed.find(&room.digest, ENGINE), None);
    }
}

#[test]
fn a_loose_folder_is_refused_and_a_missing_one_is_made() {
    let room = Room::new();
    assert_eq!(fs::metadata(room.folder()).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(room.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(Cache::open(&room.folder(), &Dice(1)), Err(SafeError::Loose { mode: 0o755, .. })));
}

#[test]
fn what_is_not_used_any_more_goes_and_everything_else_stays() {
    let room = Room::new();
    let other = Digest::of(b"other");
    room.cache.keep(&other, ENGINE, &room.compiled).unwrap();
    room.cache.keep(&room.digest, "old engine", &room.compiled).unwrap();
    fs::write(room.folder().join(".tmpX1"), "half").unwrap();
    fs::write(room.folder().join("note"), "of somebody").unwrap();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(room.folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    };
    let expected = |entries: &[PathBuf]| {
        let mut names = [entries, &[room.folder().join("key"), room.folder().join("note")]].concat();
        names.sort();
        names
    };
    room.cache.keep_only(&[room.digest, other], None);
    let (mine, old) = (room.entry(), room.cache.path(&room.digest, "old engine"));
    let others = room.cache.path(&other, ENGINE);
    assert_eq!(names(), expected(&[mine.clone(), old, others.clone()]), "without an engine none is judged by it");
    room.cache.keep_only(&[room.digest, other], Some(ENGINE));
    assert_eq!(names(), expected(&[mine.clone(), others]));
    room.cache.keep_only(&[room.digest], Some(ENGINE));
    assert_eq!(names(), expected(&[mine]));
    room.cache.keep_only(&[], Some(ENGINE));
    assert_eq!(names(), expected(&[]));
}
