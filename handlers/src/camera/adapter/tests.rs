//! Names, nodes and errors: cases V3, V5, V6 and V9, on real links in a folder of the test's own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::bus::{CAPTURES, Mode, STREAMS, Sizes, Taken};
use super::super::capture::{Ended, Watch, shoot};
use super::super::colour::Said;
use super::super::video4linux::device_number;
use super::super::{BusyAt, CameraSetup, CameraTrouble, CaptureLimits, SimulatedCamera, simulated};
use super::*;
use crate::picture::jpeg;
use tokio_util::sync::CancellationToken;

const LIMITS: CaptureLimits = CaptureLimits {
    whole: Duration::from_millis(1500),
    making: Duration::from_secs(5),
    first_frame: Duration::from_millis(300),
    stall: Duration::from_millis(60),
    settle: Duration::from_millis(400),
    slice: Duration::from_millis(10),
    pause: Duration::from_millis(20),
};
/// What a camera says that it does.
const CAMERA: u32 = CAPTURES | STREAMS;
/// `V4L2_CAP_META_CAPTURE` and `V4L2_CAP_STREAMING`.
const METADATA: u32 = 0x0080_0000 | 0x0400_0000;
/// Two devices that every machine has, to stand for two cameras: what is tested is where names lead.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/zero"];

/// `/dev` in a folder of the test, with cameras behind the numbers of real devices.
struct Tree {
    root: tempfile::TempDir,
    /// What each device is: its capabilities and the brightness of its pictures.
    nodes: BTreeMap<NodeId, (u32, u8)>,
    /// The number that the device at the first path has from the second look at it on.
    later: Mutex<Option<PathBuf>>,
    looks: AtomicU32,
}

impl Tree {
    /// A camera of brightness 80 behind `/dev/null`, one of 160 behind `/dev/zero`.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["v4l/by-id", "v4l/by-path"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let ids = DEVICES.map(|device| device_number(Path::new(device)).unwrap());
        let nodes = ids.into_iter().zip([(CAMERA, 80), (CAMERA, 160)]).collect();
        Self { root, nodes, later: Mutex::default(), looks: AtomicU32::new(0) }
    }

    fn here(&self, path: &Path) -> PathBuf {
        self.root.path().join(path.strip_prefix("/dev").unwrap())
    }

    /// A link of the system, such as `v4l/by-id/a`, to what is under another name, such as `video0`.
    fn link(&self, name: &str, target: &str) {
        let path = self.root.path().join(name);
        let _ = fs::remove_file(&path);
        symlink(if target.starts_with('/') { PathBuf::from(target) } else { self.root.path().join(target) }, path)
            .unwrap();
    }

    fn unlink(&self, name: &str) {
        fs::remove_file(self.root.path().join(name)).unwrap();
    }

    fn capabilities(&mut self, device: &str, capabilities: u32) {
        self.nodes.get_mut(&device_number(Path::new(device)).unwrap()).unwrap().0 = capabilities;
    }
}

impl Bus for Tree {
    fn paths(&self, place: Place) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.here(place.folder())).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| place != Place::Number || name.starts_with("video"));
        names.sort();
        names.into_iter().map(|name| place.folder().join(name)).collect()
    }

    fn node_at(&self, path: &Path) -> Option<NodeId> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let later = self.later.lock().unwrap();
        match &*later {
            Some(later) if looks > 0 => device_number(later),
            _ => device_number(&self.here(path)),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Node>> {
        let id = device_number(&self.here(path)).ok_or(io::ErrorKind::NotFound)?;
        let (capabilities, level) = *self.nodes.get(&id).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Grey { id, capabilities, level }))
    }
}

/// A camera whose pictures are of one brightness.
struct Grey {
    id: NodeId,
    capabilities: u32,
    level: u8,
}

impl Node for Grey {
    fn id(&self) -> NodeId {
        self.id
    }

    fn about(&self) -> io::Result<About> {
        Ok(About { capabilities: self.capabilities, card: format!("Grey {}", self.level) })
    }

    fn formats(&self) -> io::Result<Vec<[u8; 4]>> {
        // What a metadata node says when it is asked for pictures.
        if self.capabilities & CAMERA == CAMERA {
            Ok(vec![*b"GREY"])
        } else {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
    }

    fn sizes(&self, _code: [u8; 4]) -> io::Result<Vec<Sizes>> {
        Ok(vec![Sizes::One(Size { width: 64, height: 48 })])
    }

    fn interval(&self, _code: [u8; 4], _size: Size) -> Option<Duration> {
        None
    }

    fn set(&mut self, mode: Mode) -> io::Result<Agreed> {
        Ok(Agreed { code: mode.code, size: mode.size, stride: 0, colours: Said::default() })
    }

    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>> {
        Ok(self)
    }
}

impl Feed for Grey {
    fn wait(&self, _wait: Duration) -> io::Result<bool> {
        Ok(true)
    }

    fn take(&mut self) -> io::Result<Option<Taken>> {
        Ok(Some(Taken { bytes: vec![self.level; 64 * 48], damaged: false }))
    }
}

fn adapter<B: Bus>(bus: &Arc<B>, choice: CameraChoice) -> Adapter<B> {
    Adapter::new(Arc::clone(bus), choice, CameraSetup::default().wanted(), false, Arc::default())
}

fn picture(source: &dyn Source) -> Result<Vec<u8>, String> {
    let watch = Watch::begin(LIMITS, CancellationToken::new(), CancellationToken::new());
    match shoot(source, &watch, usize::MAX, CameraSetup::default().bound()) {
        Ok(file) => Ok(file),
        Err(Ended::Camera(fault)) => Err(fault.to_string()),
        Err(Ended::Stopped) => panic!("nobody stopped it"),
    }
}

/// The brightness of a picture of the camera called `name`.
fn level(tree: &Arc<Tree>, name: &str) -> Result<u8, String> {
    picture(&adapter(tree, CameraChoice::Named(name.to_owned()))).map(|file| jpeg::look(&file).unwrap().mean)
}

#[test]
fn a_camera_keeps_its_name_when_the_numbers_change_places() {
    let tree = Arc::new(Tree::new());
    tree.link("video0", "/dev/null");
    tree.link("video1", "/dev/zero");
    tree.link("v4l/by-id/a", "video0");
    tree.link("v4l/by-id/b", "video1");
    assert_eq!((level(&tree, "a"), level(&tree, "b")), (Ok(80), Ok(160)));
    tree.link("video0", "/dev/zero");
    tree.link("video1", "/dev/null");
    tree.link("v4l/by-id/a", "video1");
    tree.link("v4l/by-id/b", "video0");
    assert_eq!((level(&tree, "a"), level(&tree, "b")), (Ok(80), Ok(160)));
    assert_eq!(level(&tree, "/dev/v4l/by-id/a"), Ok(80), "the whole path means the same");
}

#[test]
fn without_the_chosen_camera_there_is_no_picture_of_another() {
    let tree = Arc::new(Tree::new());
    tree.link("video0", "/dev/null");
    tree.link("video1", "/dev/zero");
    tree.link("v4l/by-id/a", "video0");
    tree.link("v4l/by-id/b", "video1");
    level(&tree, "a").unwrap();
    tree.unlink("v4l/by-id/a");
    tree.unlink("video0");
    let refused = "the camera a is not connected; another one is, and never takes its place";
    assert_eq!(level(&tree, "a"), Err(refused.to_owned()));
    assert_eq!(level(&tree, "b"), Ok(160), "which is there");
    // The link of the one that was pulled out is still there, and leads nowhere.
    tree.link("v4l/by-id/a", "video0");
    assert_eq!(level(&tree, "a"), Err(refused.to_owned()));
}

#[test]
fn a_camera_that_took_over_the_number_of_the_chosen_one_in_the_middle_of_a_capture_gives_no_picture() {
    let tree = Arc::new(Tree::new());
    tree.link("video0", "/dev/null");
    tree.link("v4l/by-id/a", "video0");
    assert_eq!(level(&tree, "a"), Ok(80));
    tree.looks.store(0, Ordering::Relaxed);
    *tree.later.lock().unwrap() = Some(PathBuf::from("/dev/zero"));
    let refused = level(&tree, "a").unwrap_err();
    assert_eq!(refused, "the camera was unplugged");
}

#[test]
fn a_node_for_metadata_is_not_a_camera_and_is_not_listed() {
    let mut tree = Tree::new();
    tree.capabilities("/dev/zero", METADATA);
    tree.link("video0", "/dev/null");
    tree.link("video1", "/dev/zero");
    tree.link("v4l/by-id/usb-cam-video-index0", "video0");
    tree.link("v4l/by-id/usb-cam-video-index1", "video1");
    tree.link("v4l/by-path/pci-usb-0-video-index0", "video0");
    tree.link("v4l/by-path/pci-usbv2-0-video-index0", "video0");
    let listed = list(&tree);
    let also = ["pci-usb-0-video-index0", "pci-usbv2-0-video-index0"].map(str::to_owned).to_vec();
    let camera = FoundCamera {
        id: "usb-cam-video-index0".to_owned(),
        name: "Grey 80".to_owned(),
        node: PathBuf::from("/dev/video0"),
        also,
        problem: None,
    };
    assert_eq!(listed, [camera], "one camera, though it has two names by its place");
    let tree = Arc::new(tree);
    assert_eq!(
        level(&tree, "usb-cam-video-index1"),
        Err("usb-cam-video-index1 is not a camera that captures video".to_owned())
    );
    for name in ["usb-cam-video-index0", "pci-usb-0-video-index0", "pci-usbv2-0-video-index0"] {
        assert_eq!(level(&tree, name), Ok(80), "{name}");
    }
    let first = picture(&adapter(&tree, CameraChoice::First)).unwrap();
    assert_eq!(jpeg::look(&first).unwrap().mean, 80);
}

#[test]
fn with_only_the_metadata_node_there_is_no_camera() {
    let mut tree = Tree::new();
    tree.capabilities("/dev/null", METADATA);
    tree.link("video1", "/dev/null");
    assert_eq!(list(&tree), []);
    let refused = picture(&adapter(&Arc::new(tree), CameraChoice::First)).unwrap_err();
    assert_eq!(refused, "there is no camera on this device");
}

#[test]
fn a_camera_without_a_lasting_name_is_listed_by_its_path() {
    let tree = Tree::new();
    tree.link("video7", "/dev/zero");
    let ids: Vec<String> = list(&tree).into_iter().map(|camera| camera.id).collect();
    assert_eq!(ids, ["/dev/video7"]);
}

#[test]
fn busy_unplugged_and_other_errors_are_told_apart_at_every_step() {
    for step in ["set the mode", "start", "read"] {
        let errno = |code| fault(step, &io::Error::from_raw_os_error(code));
        assert_eq!(errno(libc::EBUSY), CameraFault::Busy);
        assert_eq!(errno(libc::ENODEV), CameraFault::Unplugged);
        assert!(matches!(errno(libc::EIO), CameraFault::Driver(reason) if reason.ends_with(&format!("(at {step})"))));
    }
}

fn simulated(camera: &SimulatedCamera) -> Adapter<SimulatedCamera> {
    adapter(&Arc::new(camera.clone()), CameraChoice::Named(simulated::ID.to_owned()))
}

#[test]
fn a_busy_camera_says_so_in_the_same_words_wherever_it_is_noticed_and_at_once() {
    let camera = SimulatedCamera::new();
    for at in [BusyAt::Opening, BusyAt::Mode, BusyAt::Buffers, BusyAt::Start] {
        camera.trouble(Some(CameraTrouble::Busy(at)));
        let began = SystemClock.boot();
        assert_eq!(
            picture(&simulated(&camera)),
            Err("the camera is busy: another program uses it".to_owned()),
            "{at:?}"
        );
        assert!(SystemClock.boot().since(began) < Duration::from_secs(1), "{at:?}");
        camera.trouble(None);
        picture(&simulated(&camera)).unwrap();
    }
    assert_eq!(camera.counts().opens, camera.counts().closes);
}

#[test]
fn a_device_that_is_gone_at_every_call_is_left_alone_after_a_few_and_costs_next_to_nothing() {
    let camera = SimulatedCamera::new();
    camera.trouble(Some(CameraTrouble::Gone));
    let (source, cpu) = (simulated(&camera), || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime));
    let (began, before) = (SystemClock.boot(), cpu());
    while SystemClock.boot().since(began) < Duration::from_secs(2) {
        assert_eq!(picture(&source), Err("the camera was unplugged".to_owned()));
    }
    let after = cpu();
    let nanoseconds = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
    assert!(nanoseconds < 100_000_000, "under 5 % of two seconds: {nanoseconds} ns");
}

#[test]
fn a_mode_that_sent_nothing_is_not_the_first_choice_of_the_next_capture() {
    let camera = SimulatedCamera::new();
    camera.trouble(Some(CameraTrouble::Silent));
    let source = simulated(&camera);
    assert_eq!(picture(&source), Err("the camera is silent: it sends no pictures".to_owned()));
    let mute = || source.mute.known(SystemClock.boot()).len();
    assert_eq!(mute(), 1, "it was waited for long enough");
    camera.trouble(None);
    picture(&source).unwrap();
    assert_eq!(mute(), 0, "a frame makes up for it");
}

#[test]
fn a_capture_that_was_stopped_or_lost_its_sign_says_nothing_about_the_mode() {
    let camera = SimulatedCamera::new();
    camera.trouble(Some(CameraTrouble::Silent));
    let patient = CaptureLimits { whole: Duration::from_secs(8), first_frame: Duration::from_secs(4), ..LIMITS };
    for by_sign in [false, true] {
        let source = simulated(&camera);
        let (stop, lost) = (CancellationToken::new(), CancellationToken::new());
        let end = if by_sign { lost.clone() } else { stop.clone() };
        let (_running, over) = std::sync::mpsc::sync_channel::<()>(1);
        let ender = std::thread::spawn(move || {
            // Long enough for a warm camera, and not for a cold one.
            let _ = over.recv_timeout(Duration::from_millis(1600));
            end.cancel();
        });
        let ended = shoot(&source, &Watch::begin(patient, stop, lost), usize::MAX, CameraSetup::default().bound());
        assert!(matches!(ended, Err(Ended::Stopped)), "by the sign: {by_sign}");
        ender.join().unwrap();
        assert_eq!(source.mute.known(SystemClock.boot()), [], "by the sign: {by_sign}");
    }
}

/// A camera that lists no sizes, agrees to one of its own, and sends nothing in its first format.
struct Stubborn {
    asked: Arc<Mutex<Vec<[u8; 4]>>>,
}

/// Its node, and what it was set to.
struct StubbornNode {
    asked: Arc<Mutex<Vec<[u8; 4]>>>,
    speaks: bool,
}

impl Bus for Stubborn {
    fn paths(&self, place: Place) -> Vec<PathBuf> {
        if place == Place::Number { vec![PathBuf::from("/dev/video0")] } else { Vec::new() }
    }

    fn node_at(&self, _path: &Path) -> Option<NodeId> {
        Some(NodeId(1))
    }

    fn open(&self, _path: &Path) -> io::Result<Box<dyn Node>> {
        Ok(Box::new(StubbornNode { asked: Arc::clone(&self.asked), speaks: false }))
    }
}

impl Node for StubbornNode {
    fn id(&self) -> NodeId {
        NodeId(1)
    }

    fn about(&self) -> io::Result<About> {
        Ok(About { capabilities: CAMERA, card: "Stubborn".to_owned() })
    }

    fn formats(&self) -> io::Result<Vec<[u8; 4]>> {
        Ok(vec![*b"MJPG", *b"GREY"])
    }

    fn sizes(&self, _code: [u8; 4]) -> io::Result<Vec<Sizes>> {
        Ok(Vec::new())
    }

    fn interval(&self, _code: [u8; 4], _size: Size) -> Option<Duration> {
        None
    }

    fn set(&mut self, mode: Mode) -> io::Result<Agreed> {
        self.asked.lock().unwrap().push(mode.code);
        self.speaks = mode.code == *b"GREY";
        Ok(Agreed { code: mode.code, size: Size { width: 64, height: 48 }, stride: 0, colours: Said::default() })
    }

    fn start(self: Box<Self>) -> io::Result<Box<dyn Feed>> {
        Ok(self)
    }
}

impl Feed for StubbornNode {
    fn wait(&self, wait: Duration) -> io::Result<bool> {
        if !self.speaks {
            std::thread::park_timeout(wait);
        }
        Ok(self.speaks)
    }

    fn take(&mut self) -> io::Result<Option<Taken>> {
        Ok(Some(Taken { bytes: vec![90; 64 * 48], damaged: false }))
    }
}

#[test]
fn a_silent_mode_of_a_camera_that_adjusts_sizes_is_known_by_what_was_asked() {
    let asked: Arc<Mutex<Vec<[u8; 4]>>> = Arc::default();
    let source = adapter(&Arc::new(Stubborn { asked: Arc::clone(&asked) }), CameraChoice::First);
    picture(&source).unwrap();
    picture(&source).unwrap();
    assert_eq!(*asked.lock().unwrap(), [*b"MJPG", *b"GREY", *b"GREY"], "the silent one is tried once");
}
