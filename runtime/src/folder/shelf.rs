//! What lies in the handlers folder, and how far each file has come.
//!
//! Pure: looks and verdicts come in, the next file to judge and the whole for the house go out. Owns the handlers' logs, which outlive a
//! change of their file. A file that changed leaves service with the look that saw it, before it is judged anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::{FolderNow, Installed, RefusedHandler, Seal};
use config::digest::Digest;
use config::folder::{HandlerFile, Look, RefusedFile};
use handlers::wasm::log::HandlerLog;
use wire::CapabilityName;

use super::candidate::{Refusal, file_name, seal};

/// The longest a refused file waits for its next trial, in rescans: what was the moment's fault is mended within an hour.
const RESCANS_MAX: u32 = 64;

/// The files that were looked at last.
#[derive(Default)]
pub(crate) struct Shelf {
    entries: BTreeMap<CapabilityName, Entry>,
    refused: Vec<RefusedHandler>,
    logs: BTreeMap<CapabilityName, Arc<HandlerLog>>,
}

struct Entry {
    file: HandlerFile,
    stand: Stand,
}

enum Stand {
    /// Not judged yet.
    Waiting,
    /// It can serve.
    Ready(Box<Installed>),
    /// It was refused, and is to be judged again in some rescans.
    Refused { why: String, again_in: u32, rescans: u32 },
}

impl Shelf {
    /// Takes over what was seen. What did not change keeps its stand.
    pub(crate) fn take(&mut self, look: Look) {
        let mut before = std::mem::take(&mut self.entries);
        for file in look.files {
            let known = before.remove(&file.name);
            let same = known.filter(|known| seal(&known.file) == seal(&file) && known.file.path == file.path);
            let stand = same.map_or(Stand::Waiting, |known| known.stand);
            self.entries.insert(file.name.clone(), Entry { file, stand });
        }
        self.refused = look.refused.into_iter().map(refused).collect();
        let (entries, refused) = (&self.entries, &self.refused);
        self.logs.retain(|name, _| {
            entries.contains_key(name) || refused.iter().any(|refused| refused.name.as_ref() == Some(name))
        });
    }

    /// The folder could not be looked at: nothing of it serves, and what was known of it has to be judged anew.
    pub(crate) fn doubt(&mut self) {
        for entry in self.entries.values_mut() {
            entry.stand = Stand::Waiting;
        }
        self.refused.clear();
    }

    /// A minute has passed.
    pub(crate) fn minute(&mut self) {
        for entry in self.entries.values_mut() {
            if let Stand::Refused { again_in, .. } = &mut entry.stand {
                *again_in = again_in.saturating_sub(1);
            }
        }
    }

    /// The file to be judged next: new ones before refused ones, small ones first, so that many handlers are not kept waiting by one
    /// that takes half a minute.
    pub(crate) fn next(&self) -> Option<HandlerFile> {
        let turn = |entry: &Entry| match entry.stand {
            Stand::Waiting => Some((false, entry.file.bytes)),
            Stand::Refused { again_in: 0, .. } => Some((true, entry.file.bytes)),
            Stand::Refused { .. } | Stand::Ready(_) => None,
        };
        let next = self.entries.values().filter_map(|entry| Some((turn(entry)?, entry))).min_by_key(|(turn, _)| *turn);
        next.map(|(_, entry)| entry.file.clone())
    }

    /// Whether this content of this name still lies there.
    pub(crate) fn holds(&self, name: &CapabilityName, content: Seal) -> bool {
        self.entries.get(name).is_some_and(|entry| seal(&entry.file) == content)
    }

    /// What became of a file; nothing if it is another by now.
    pub(crate) fn settle(&mut self, name: &CapabilityName, content: Seal, verdict: Result<Installed, Refusal>) {
        let Some(entry) = self.entries.get_mut(name).filter(|entry| seal(&entry.file) == content) else { return };
        entry.stand = match verdict {
            Ok(installed) => Stand::Ready(Box::new(installed)),
            // Its reach is judged before it is compiled, and costs nothing.
            Err(Refusal::Reach(why)) => Stand::Refused { why, again_in: 1, rescans: 1 },
            Err(Refusal::File(why)) => {
                let rescans = match entry.stand {
                    Stand::Refused { rescans, .. } => rescans.saturating_mul(2).min(RESCANS_MAX),
                    Stand::Waiting | Stand::Ready(_) => 1,
                };
                Stand::Refused { why, again_in: rescans, rescans }
            }
        };
    }

    /// The log of a handler; the same for all contents of a name.
    pub(crate) fn log(&mut self, name: &CapabilityName) -> Arc<HandlerLog> {
        Arc::clone(self.logs.entry(name.clone()).or_default())
    }

    /// All contents that lie there, whatever becomes of them.
    pub(crate) fn contents(&self) -> Vec<Digest> {
        self.entries.values().map(|entry| entry.file.digest).collect()
    }

    /// The whole of it, for the house.
    pub(crate) fn now(&self, held: Option<String>, notice: Option<String>) -> FolderNow {
        let mut now = FolderNow { refused: self.refused.clone(), held, notice, ..FolderNow::default() };
        for (name, entry) in &self.entries {
            match &entry.stand {
                Stand::Waiting => now.pending.push((name.clone(), seal(&entry.file))),
                Stand::Ready(installed) => now.installed.push(Installed::clone(installed)),
                Stand::Refused { why, .. } => now.refused.push(RefusedHandler {
                    file: file_name(&entry.file),
                    name: Some(name.clone()),
                    why: why.clone(),
                    seal: Some(seal(&entry.file)),
                }),
            }
        }
        now.refused.sort_by(|a, b| a.file.cmp(&b.file));
        now
    }
}

fn refused(file: RefusedFile) -> RefusedHandler {
    let RefusedFile { file, name, why } = file;
    RefusedHandler { file, name, why, seal: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use actors::Work;
    use config::manifest::Manifest;
    use handlers::Fault;
    use wire::Declaration;

    use super::*;

    fn name(action: &str) -> CapabilityName {
        format!("custom.acme.{action}").parse().unwrap()
    }

    fn file(action: &str, content: &str) -> HandlerFile {
        HandlerFile {
            name: name(action),
            path: format!("/h/custom.acme.{action}.wasm").into(),
            text: false,
            digest: Digest::of(content.as_bytes()),
            manifest_digest: None,
            manifest: Manifest::default(),
            bytes: content.len() as u64,
        }
    }

    fn look(files: &[HandlerFile]) -> Look {
        Look { files: files.to_vec(), refused: Vec::new() }
    }

    fn installed() -> Installed {
        let none = || Err::<Work, _>(Fault::Stopped);
        Installed { declaration: Declaration::device_health(), make: Arc::new(none), custom: None }
    }

    /// How many serve, wait and are refused.
    fn counts(shelf: &Shelf) -> (usize, usize, usize) {
        let now = shelf.now(None, None);
        (now.installed.len(), now.pending.len(), now.refused.len())
    }

    #[test]
    fn a_changed_file_leaves_service_with_the_look_that_saw_it_and_keeps_its_log() {
        let mut shelf = Shelf::default();
        let (lamp, other) = (file("lamp", "one"), file("other", "two"));
        shelf.take(look(&[lamp.clone(), other.clone()]));
        assert_eq!(counts(&shelf), (0, 2, 0));
        for file in [&lamp, &other] {
            shelf.settle(&file.name, seal(file), Ok(installed()));
        }
        let log = shelf.log(&lamp.name);
        shelf.take(look(&[lamp.clone(), other.clone()]));
        assert_eq!(counts(&shelf), (2, 0, 0), "the same files stay in service");
        let changed = file("lamp", "another");
        shelf.take(look(&[changed.clone(), other.clone()]));
        assert_eq!(counts(&shelf), (1, 1, 0));
        assert!(Arc::ptr_eq(&log, &shelf.log(&lamp.name)));
        shelf.settle(&lamp.name, seal(&lamp), Ok(installed()));
        assert_eq!(counts(&shelf), (1, 1, 0), "a verdict about the old content counts for nothing");
        shelf.settle(&lamp.name, seal(&changed), Ok(installed()));
        assert_eq!(counts(&shelf), (2, 0, 0));
        shelf.take(look(&[other]));
        assert_eq!(counts(&shelf), (1, 0, 0));
        assert!(!Arc::ptr_eq(&log, &shelf.log(&lamp.name)), "the log of a file that went is gone");
    }

    #[test]
    fn small_files_come_first_and_new_ones_before_refused_ones() {
        let mut shelf = Shelf::default();
        let (large, small) = (file("a", "much longer"), file("b", "short"));
        shelf.take(look(&[large.clone(), small.clone()]));
        assert_eq!(shelf.next(), Some(small.clone()));
        shelf.settle(&small.name, seal(&small), Err(Refusal::File("no".to_owned())));
        shelf.minute();
        assert_eq!(shelf.next(), Some(large.clone()));
        shelf.settle(&large.name, seal(&large), Ok(installed()));
        assert_eq!(shelf.next(), Some(small));
    }

    #[test]
    fn a_refused_file_is_judged_again_in_growing_distances_and_its_reach_each_minute() {
        let mut shelf = Shelf::default();
        let lamp = file("lamp", "one");
        shelf.take(look(std::slice::from_ref(&lamp)));
        let waits = |shelf: &mut Shelf| {
            let mut minutes = 0;
            while shelf.next().is_none() {
                shelf.minute();
                minutes += 1;
            }
            minutes
        };
        let mut waited = Vec::new();
        for _ in 0..9 {
            shelf.settle(&lamp.name, seal(&lamp), Err(Refusal::File("no memory".to_owned())));
            assert_eq!(shelf.now(None, None).refused[0].why, "no memory");
            waited.push(waits(&mut shelf));
        }
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        shelf.settle(&lamp.name, seal(&lamp), Err(Refusal::Reach("not there".to_owned())));
        assert_eq!(waits(&mut shelf), 1);
        assert_eq!(counts(&shelf), (0, 0, 1), "it stays refused until it is judged");
    }

    #[test]
    fn of_a_folder_that_cannot_be_looked_at_nothing_serves_and_what_was_known_waits() {
        let mut shelf = Shelf::default();
        let lamp = file("lamp", "one");
        shelf.take(look(std::slice::from_ref(&lamp)));
        shelf.settle(&lamp.name, seal(&lamp), Ok(installed()));
        assert_eq!(counts(&shelf), (1, 0, 0));
        shelf.doubt();
        assert_eq!(counts(&shelf), (0, 1, 0));
    }
}
