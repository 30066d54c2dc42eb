//! The state folder: its lock and its key.

use std::os::unix::fs::PermissionsExt;

use latchkey_runtime::SystemChance;
use latchkey_runtime::key::{self, KEY_FILE, KeyFileError};
use latchkey_runtime::lock::{LockError, StateLock};
use wire::Signer;

use crate::device::folder;

#[test]
fn a_second_daemon_names_the_first_ones_pid() {
    let folder = folder();
    let first = StateLock::take(folder.path()).unwrap();
    let error = StateLock::take(folder.path()).unwrap_err();
    assert!(matches!(error, LockError::Held { .. }));
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    drop(first);
    assert!(StateLock::take(folder.path()).is_ok(), "control: a lock that ended is free");
}

#[test]
fn the_key_is_made_once_private_and_read_again() {
    let folder = folder();
    assert!(matches!(key::read(folder.path()), Err(KeyFileError::NoDevice { .. })));
    let (made, first) = key::read_or_make(folder.path(), &SystemChance).unwrap();
    let (read, second) = key::read_or_make(folder.path(), &SystemChance).unwrap();
    assert!(first && !second);
    assert_eq!(made.public(), read.public());
    let path = folder.path().join(KEY_FILE);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let loose = key::read_or_make(folder.path(), &SystemChance).unwrap_err().to_string();
    assert!(loose.contains("chmod 600"), "{loose}");
}

#[test]
fn a_damaged_or_lost_key_is_never_replaced() {
    let rows: [(&str, Option<&str>, bool, fn(&KeyFileError) -> bool); 3] = [
        ("damaged", Some("not a key"), false, |error| matches!(error, KeyFileError::Damaged { .. })),
        ("too short", Some("AAAA\n"), false, |error| matches!(error, KeyFileError::Damaged { .. })),
        ("lost, and its state is there", None, true, |error| matches!(error, KeyFileError::Lost { .. })),
    ];
    for (name, content, state, wanted) in rows {
        let folder = folder();
        let path = folder.path().join(KEY_FILE);
        if let Some(content) = content {
            config::safe::write_private(&path, content.as_bytes()).unwrap();
        }
        if state {
            std::fs::write(folder.path().join("state.db"), b"").unwrap();
        }
        let error = key::read_or_make(folder.path(), &SystemChance).unwrap_err();
        assert!(wanted(&error), "{name}: {error:?}");
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), content, "{name}: untouched");
    }
    let folder = folder();
    assert!(key::read_or_make(folder.path(), &SystemChance).is_ok(), "control");
}
