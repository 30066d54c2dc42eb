//! Cameras of the system, through Video4Linux: the names in `/dev`, and the devices behind them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use super::Post;
use super::bus::{Bus, Node, NodeId, Place};
use super::device::Device;

/// The cameras that the kernel lists.
#[derive(Debug)]
pub(super) struct Video4Linux;

impl Video4Linux {
    /// One for the process: the device has one camera, whichever it is.
    pub(super) fn post() -> Arc<Post> {
        static POST: LazyLock<Arc<Post>> = LazyLock::new(Arc::default);
        Arc::clone(&POST)
    }
}

impl Bus for Video4Linux {
    fn paths(&self, place: Place) -> Vec<PathBuf> {
        let numbered = |name: &str| name.strip_prefix("video").is_some_and(|rest| rest.parse::<u32>().is_ok());
        match place {
            Place::Kind | Place::Plug => sorted(place.folder(), |_| true),
            Place::Number => sorted(place.folder(), numbered),
        }
    }

    fn node_at(&self, path: &Path) -> Option<NodeId> {
        device_number(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Node>> {
        Ok(Box::new(Device::open(path)?))
    }
}

/// The number of the device that a path leads to, through any links.
pub(super) fn device_number(path: &Path) -> Option<NodeId> {
    let found = fs::metadata(path).ok()?;
    found.file_type().is_char_device().then(|| NodeId(found.rdev()))
}

/// The entries of `folder`, video2 before video10.
fn sorted(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| wanted(name)).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names.into_iter().map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn nodes_are_taken_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["video10", "video2", "video0", "videodev", "vbi0"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found =
            sorted(folder.path(), |name| name.strip_prefix("video").is_some_and(|rest| rest.parse::<u32>().is_ok()));
        let names: Vec<&str> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["video0", "video2", "video10"]);
    }

    #[test]
    fn a_link_leads_to_the_number_of_its_device_and_a_file_to_none() {
        let folder = tempfile::tempdir().unwrap();
        let (link, dangling, file) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        std::os::unix::fs::symlink("/dev/none-such", &dangling).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(device_number(&link), device_number(Path::new("/dev/null")));
        assert!(device_number(&link).is_some());
        assert_eq!((device_number(&dangling), device_number(&file)), (None, None));
    }
}
