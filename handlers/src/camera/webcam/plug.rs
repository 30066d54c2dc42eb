//! The webcam's second node, its name, and its cable.

use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use super::super::adapter::list;
use super::super::bus::Place;
use super::super::video4linux::Video4Linux;
use super::*;

/// A link of the kind that udev makes, which the machine does not have; gone with this.
struct Link(std::path::PathBuf);

impl Link {
    fn new(name: &str, node: &str) -> Self {
        fs::create_dir_all(Place::Kind.folder()).unwrap();
        let link = Place::Kind.folder().join(name);
        symlink(node, &link).unwrap();
        Self(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v3_the_node_for_metadata_is_no_camera_whatever_it_is_called() {
    let webcam = Webcam::of(&[("1", &plain([128; 3]))]);
    let (pictures, metadata) = ("usb-Test_webcam-video-index0", "usb-Test_webcam-video-index1");
    let _links = [Link::new(pictures, &webcam.node), Link::new(metadata, &webcam.metadata)];
    let listed: Vec<String> = list(&Video4Linux).into_iter().map(|camera| camera.id).collect();
    assert!(listed.iter().any(|id| id == pictures) && !listed.iter().any(|id| id == metadata), "{listed:?}");
    assert!(!listed.contains(&webcam.metadata), "{listed:?}");
    for name in [metadata, &webcam.metadata] {
        let fault = picture(&named(name)).unwrap_err();
        assert!(matches!(&fault, CameraFault::Unusable(reason) if reason.contains("not a camera")), "{fault}");
    }
    picture(&named(pictures)).unwrap();
}

#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v4_pulled_out_of_a_capture_it_is_unplugged_and_plugged_in_again_it_works() {
    const NAME: &str = "usb-Test_webcam_0001-video-index0";
    // Never a picture, so that the capture goes on until the cable is out.
    let mut webcam = Webcam::of(&[("1", b"no picture")]);
    let link = Link::new(NAME, &webcam.node);
    let capture = thread::spawn(|| picture(&named(NAME)));
    wait_until("the capture begins", || handles() == 1);
    drop(webcam.process.stdin.take());
    let fault = capture.join().unwrap().unwrap_err();
    assert!(matches!(fault, CameraFault::Unplugged), "{fault}");
    drop((webcam, link));
    assert_eq!(handles(), 0);

    let good = plain([0, 0, 255]);
    let webcam = Webcam::of(&[("1", &good)]);
    let link = Link::new(NAME, &webcam.node);
    assert_eq!(picture(&named(NAME)).unwrap(), good);
    let number = webcam.node.clone();
    drop((webcam, link));

    // Another webcam of the same kind gets its number, and is never taken for it.
    let other = Webcam::plug_in(&["mjpeg", "320x180", "0002"], &[("1", &good)]);
    let _link = Link::new("usb-Test_webcam_0002-video-index0", &other.node);
    assert_eq!(other.node, number);
    let fault = picture(&named(NAME)).unwrap_err();
    assert!(matches!(&fault, CameraFault::Missing(reason) if reason.contains("never takes its place")), "{fault}");
    assert_eq!(other.picture().unwrap(), good, "control: the other one works");
}

/// A webcam that is opened by others in between: each capture leaves it free.
#[test]
#[ignore = "needs the kernel's webcam driver; see the head of this module"]
fn v5_a_webcam_in_use_is_busy_and_free_again_after_a_capture_that_ran_out_of_time() {
    use super::super::Source as _;
    let webcam = Webcam::of(&[("1", b"no picture")]);
    let holder = named(&webcam.node).open().unwrap();
    assert_eq!(webcam.picture().unwrap_err(), CameraFault::Busy);
    drop(holder);
    let [whole, first_frame] = [2, 1].map(Duration::from_secs);
    let limits = CaptureLimits { whole, first_frame, ..CaptureLimits::default() };
    assert!(picture_within(&named(&webcam.node), limits).is_err());
    assert_eq!(handles(), 0);
    fs::write(webcam.folder.path().join("1"), plain([128; 3])).unwrap();
    webcam.picture().unwrap();
}
