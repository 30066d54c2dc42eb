//! Two real cameras with lasting names, which change their numbers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::adapter::list;
use super::super::bus::Place;
use super::super::video4linux::Video4Linux;
use super::super::{CameraFault, Source as _};
use super::{ANY_SIZE, BLUE, NODE, OTHER, PIECES, RED, SMALL, handles, named, picture, show, shows};

const HALL: &str = "usb-Maker_Hall-video-index0";
const YARD: &str = "usb-Maker_Yard-video-index0";

/// The links that udev makes, which the machine does not have; gone with this.
struct Links(PathBuf);

impl Links {
    fn new() -> Self {
        let folder = Place::Kind.folder();
        fs::create_dir_all(folder).unwrap();
        Self(folder.to_owned())
    }

    fn lead(&self, name: &str, node: &str) {
        self.remove(name);
        let number = Path::new(node).file_name().unwrap();
        symlink(Path::new("../..").join(number), self.0.join(name)).unwrap();
    }

    fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.0.join(name));
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn a_camera_chosen_by_its_name_is_that_one_whatever_its_number_and_no_other_when_it_is_gone() {
    let links = Links::new();
    links.lead(HALL, NODE);
    links.lead(YARD, OTHER);
    show(NODE, RED);
    show(OTHER, BLUE);
    assert!(shows(&picture(&named(HALL)).unwrap(), SMALL, RED.1));

    // After a start the kernel counted them the other way round.
    links.lead(HALL, OTHER);
    links.lead(YARD, NODE);
    show(OTHER, RED);
    show(NODE, BLUE);
    assert!(shows(&picture(&named(HALL)).unwrap(), SMALL, RED.1));
    assert!(shows(&picture(&named(YARD)).unwrap(), SMALL, BLUE.1));

    links.remove(HALL);
    let fault = picture(&named(HALL)).unwrap_err();
    let CameraFault::Missing(reason) = &fault else { panic!("{fault}") };
    assert!(reason.contains("never takes its place"), "{reason}");
    assert!(shows(&picture(&named(YARD)).unwrap(), SMALL, BLUE.1), "the other one is still there");

    // Its number goes to the other one in the middle of a capture.
    links.lead(HALL, OTHER);
    let hall = named(HALL);
    let mut stream = hall.open().unwrap();
    while stream.next(Duration::from_secs(1)).unwrap().is_none() {}
    assert!(stream.is_chosen());
    links.lead(HALL, NODE);
    assert!(!stream.is_chosen());
    drop(stream);
    assert_eq!(handles(), 0);
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn cameras_are_listed_once_by_their_most_lasting_name() {
    let links = Links::new();
    links.lead(HALL, NODE);
    let found = list(&Video4Linux);
    let ids: Vec<&str> = found.iter().map(|camera| camera.id.as_str()).collect();
    assert_eq!(ids, [HALL, OTHER, ANY_SIZE, PIECES]);
    let hall = found.first().unwrap();
    assert_eq!((hall.node.as_path(), hall.problem.as_deref()), (Path::new(NODE), None));
    assert!(hall.name.contains("vivid"), "{}", hall.name);
}
