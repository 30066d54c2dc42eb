//! The pictures that the webcam sends: the files of a folder in the order of their names, as they are, over and over the last one.
//!
//! Words in a file's name tell of more than its bytes: `damaged` marks the frame as bad, as a camera does that noticed; `stall` breaks the
//! stream off in its place; `once` leaves it out of every later stream.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// More than any picture here needs.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) damaged: bool,
    pub(crate) stall: bool,
}

/// The files of a folder.
pub(crate) struct Reel {
    folder: PathBuf,
    sent: BTreeSet<String>,
}

impl Reel {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), sent: BTreeSet::new() }
    }

    /// What one stream sends, from its beginning.
    pub(crate) fn stream(&mut self) -> Result<Vec<Frame>> {
        let entries = fs::read_dir(&self.folder).with_context(|| self.folder.display().to_string())?;
        let names: BTreeSet<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        let mut frames = Vec::new();
        for name in names {
            let says = |word: &str| name.split(['-', '.']).any(|part| part == word);
            if says("once") && !self.sent.insert(name.clone()) {
                continue;
            }
            let path = self.folder.join(&name);
            ensure!(fs::metadata(&path)?.len() <= FILE_BYTES_MAX, "{} is too large for a frame", path.display());
            frames.push(Frame { bytes: fs::read(&path)?, damaged: says("damaged"), stall: says("stall") });
        }
        ensure!(!frames.is_empty(), "there is no file to send in {}", self.folder.display());
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sent_in_the_order_of_their_names_and_some_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["2-damaged.jpg", "1-stall-once", "3.jpg"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let mut reel = Reel::new(folder.path());
        let told = |frames: Vec<Frame>| -> Vec<(u8, bool, bool)> {
            frames.iter().map(|frame| (*frame.bytes.first().unwrap(), frame.damaged, frame.stall)).collect()
        };
        assert_eq!(told(reel.stream().unwrap()), [(b'1', false, true), (b'2', true, false), (b'3', false, false)]);
        assert_eq!(told(reel.stream().unwrap()), [(b'2', true, false), (b'3', false, false)]);
    }

    #[test]
    fn a_folder_without_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Reel::new(folder.path()).stream().is_err());
    }
}
