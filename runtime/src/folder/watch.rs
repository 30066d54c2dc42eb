//! The kernel's word that something happened in the handlers folder.
//!
//! Owns the inotify watch: on the folder, or, while there is none, on the nearest folder above that exists. Called by the folder
//! service before each look, so that nothing falls between the two. A watch that cannot be had, or breaks, is told in a sentence and
//! tried again with the next look; until then the rescan finds what changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use config::folder::passed_over;
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::quiet::Word;

/// Words that may wait for the service; when there are more, it is told that some were lost.
pub(crate) const WORDS_MAX: usize = 256;

/// The watch on one folder.
pub(crate) struct Watch {
    folder: PathBuf,
    words: mpsc::Sender<Word>,
    armed: Option<Armed>,
    broken: Arc<AtomicBool>,
}

struct Armed {
    at: PathBuf,
    inode: (u64, u64),
    /// Its thread ends when this is dropped.
    _watcher: RecommendedWatcher,
}

impl Watch {
    pub(crate) fn new(folder: PathBuf, words: mpsc::Sender<Word>) -> Self {
        Self { folder, words, armed: None, broken: Arc::default() }
    }

    /// Sees to it that the right folder is watched; the name may stand for another folder than before.
    ///
    /// # Errors
    /// One sentence for the keeper.
    pub(crate) fn arm(&mut self) -> Result<(), String> {
        let Some((at, inode)) = nearest(&self.folder) else {
            self.armed = None;
            return Ok(());
        };
        let stands = self.armed.as_ref().is_some_and(|armed| (&armed.at, armed.inode) == (&at, inode));
        if stands && !self.broken.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.armed = None;
        let mut watcher = self.watcher().map_err(|error| sentence(&error))?;
        watcher.watch(&at, RecursiveMode::NonRecursive).map_err(|error| sentence(&error))?;
        self.armed = Some(Armed { at, inode, _watcher: watcher });
        Ok(())
    }

    fn watcher(&self) -> notify::Result<RecommendedWatcher> {
        let (folder, words, broken) = (self.folder.clone(), self.words.clone(), Arc::clone(&self.broken));
        let mut lost = false;
        notify::recommended_watcher(move |event: notify::Result<Event>| {
            let heard = match event {
                Ok(event) => understood(&folder, event),
                Err(error) => {
                    tracing::warn!(%error, "the watch on the handlers folder broke");
                    broken.store(true, Ordering::Relaxed);
                    vec![Word::Lost]
                }
            };
            for word in heard {
                if lost && words.try_send(Word::Lost).is_ok() {
                    lost = false;
                }
                lost |= words.try_send(word).is_err();
            }
        })
    }
}

/// The folder itself, or the nearest above it that exists. A link in its place is not followed: it is no folder of ours.
fn nearest(folder: &Path) -> Option<(PathBuf, (u64, u64))> {
    folder.ancestors().filter(|path| *path != Path::new("")).find_map(|path| {
        let found = if path == folder { fs::symlink_metadata(path) } else { fs::metadata(path) };
        let found = found.ok().filter(fs::Metadata::is_dir)?;
        Some((path.to_owned(), (found.dev(), found.ino())))
    })
}

fn sentence(error: &notify::Error) -> String {
    match &error.kind {
        notify::ErrorKind::MaxFilesWatch => limit(),
        notify::ErrorKind::Io(io) if io.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => limit(),
        _ => format!("the handlers folder is not watched, so changes count within a minute: {error}"),
    }
}

fn limit() -> String {
    "the handlers folder is not watched, so changes count within a minute: all inotify watches of this user are in use; raise \
     fs.inotify.max_user_watches and fs.inotify.max_user_instances"
        .to_owned()
}

/// What an event says about the folder; nothing of what happens beside it.
fn understood(folder: &Path, event: Event) -> Vec<Word> {
    if event.need_rescan() {
        return vec![Word::Lost];
    }
    let kind = event.kind;
    let ours = event.paths.into_iter().filter(|path| path.starts_with(folder) || folder.starts_with(path));
    // What a look passes over is nobody's wait.
    let ours = ours.filter(|path| path.parent() != Some(folder) || !path.file_name().is_some_and(passed_over));
    ours.filter_map(|path| word(kind, path)).collect()
}

fn word(kind: EventKind, path: PathBuf) -> Option<Word> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Word::Written(path)),
        // Reading it, which our own looks do, changes nothing.
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Data(_)) => Some(Word::Writing(path)),
        // A link to a file is whole at once; a copy begins with nothing.
        EventKind::Create(CreateKind::File) if is_empty(&path) => Some(Word::Writing(path)),
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) | EventKind::Remove(_) => Some(Word::Written(path)),
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Any | EventKind::Other => Some(Word::Changed),
    }
}

fn is_empty(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::File;
    use std::io::Write;
    use std::time::Duration;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    struct Bench {
        parent: TempDir,
        folder: PathBuf,
        watch: Watch,
        words: mpsc::Receiver<Word>,
    }

    fn bench() -> Bench {
        let parent = TempDir::new().unwrap();
        let folder = parent.path().join("handlers");
        let (sender, words) = mpsc::channel(WORDS_MAX);
        Bench { watch: Watch::new(folder.clone(), sender), parent, folder, words }
    }

    impl Bench {
        /// Reads words until the wanted one comes.
        async fn expect(&mut self, wanted: &Word) {
            let mut heard = Vec::new();
            let came = timeout(Duration::from_secs(20), async {
                while let Some(word) = self.words.recv().await {
                    if word == *wanted {
                        return true;
                    }
                    heard.push(word);
                }
                false
            });
            assert!(matches!(came.await, Ok(true)), "{wanted:?} after {heard:?}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_comes_later_is_seen_to_come_and_then_watched() {
        let mut bench = bench();
        bench.watch.arm().unwrap();
        File::create(bench.parent.path().join("beside")).unwrap();
        fs::create_dir(&bench.folder).unwrap();
        assert_eq!(bench.words.recv().await, Some(Word::Changed), "nothing was said about the file beside it");
        bench.watch.arm().unwrap();
        let file = bench.folder.join("custom.acme.lamp.wat");
        let mut writer = File::create(&file).unwrap();
        bench.expect(&Word::Writing(file.clone())).await;
        writer.write_all(b"(component)").unwrap();
        bench.expect(&Word::Writing(file.clone())).await;
        drop(writer);
        bench.expect(&Word::Written(file.clone())).await;
        fs::hard_link(&file, bench.folder.join("custom.acme.lamp.wasm")).unwrap();
        bench.expect(&Word::Changed).await;
    }

    #[tokio::test]
    async fn another_folder_of_the_same_name_is_watched_in_its_place() {
        let mut bench = bench();
        fs::create_dir(&bench.folder).unwrap();
        bench.watch.arm().unwrap();
        fs::rename(&bench.folder, bench.parent.path().join("old")).unwrap();
        bench.expect(&Word::Written(bench.folder.clone())).await;
        fs::create_dir(&bench.folder).unwrap();
        bench.watch.arm().unwrap();
        let file = bench.folder.join("a");
        File::create(&file).unwrap();
        bench.expect(&Word::Written(file)).await;
    }

    #[tokio::test]
    async fn looking_into_the_folder_is_no_news() {
        let mut bench = bench();
        fs::create_dir(&bench.folder).unwrap();
        let file = bench.folder.join("a");
        fs::write(&file, "text").unwrap();
        bench.watch.arm().unwrap();
        fs::read(&file).unwrap();
        fs::read_dir(&bench.folder).unwrap().count();
        fs::remove_file(&file).unwrap();
        assert_eq!(bench.words.recv().await, Some(Word::Written(file)), "the first word is that of the removal");
    }
}
