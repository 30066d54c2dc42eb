use std::sync::atomic::{AtomicU8, Ordering};

use super::*;

struct Count(AtomicU8);

impl Chance for Count {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError> {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
}

fn agent(name: &str) -> Agent {
    format!("{name}@home.example.org").parse().unwrap()
}

#[test]
fn a_key_is_made_once_and_read_back() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(&home.path().join("state")).unwrap();
    let chance = Count(AtomicU8::new(1));
    assert!(matches!(folder.agent(None), Err(FolderError::NoAgents)));
    let (_, key) = folder.new_agent(&agent("one"), &chance).unwrap();
    assert!(matches!(folder.new_agent(&agent("one"), &chance), Err(FolderError::AgentExists(_))));
    assert_eq!(*folder.agent(None).unwrap().signer().unwrap().public(), key);
    folder.new_agent(&agent("two"), &chance).unwrap();
    assert!(matches!(folder.agent(None), Err(FolderError::WhichAgent(names)) if names.len() == 2));
    assert!(matches!(folder.agent(Some("three")), Err(FolderError::NoSuchAgent { .. })));
    assert_eq!(*folder.agent(Some("two@home.example.org")).unwrap().agent(), agent("two"));
}

#[test]
fn a_damaged_key_is_named_and_left() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(&home.path().join("state")).unwrap();
    let (agent, _) = folder.new_agent(&agent("one"), &Count(AtomicU8::new(1))).unwrap();
    let path = agent.path.join("key");
    let good = std::fs::read(&path).unwrap();
    for damage in [&b""[..], b"short", &[0xff; 43], &good[..40]] {
        std::fs::write(&path, damage).unwrap();
        assert!(matches!(agent.signer(), Err(FolderError::KeyDamaged { .. })), "{damage:?}");
        assert_eq!(std::fs::read(&path).unwrap(), damage);
    }
    std::fs::write(&path, good).unwrap();
    agent.signer().unwrap();
}

#[tokio::test]
async fn the_lock_ends_with_its_holder() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(&home.path().join("state")).unwrap();
    let (agent, _) = folder.new_agent(&agent("one"), &Count(AtomicU8::new(1))).unwrap();
    let lock = agent.lock().await.unwrap();
    let Err(FolderError::Locked { pid, .. }) = agent.lock().await else { panic!("two hold the lock") };
    assert_eq!(pid, Some(std::process::id().to_string()));
    drop(lock);
    agent.lock().await.unwrap();
}
