#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wire::Arguments;

use super::colour::Said;
use super::*;
use crate::clock::{Clock as _, SystemClock};
use crate::picture::jpeg;
use crate::sign::{LedSign, Sign, SignBackend, SignState, SignTrouble, SimulatedSign};

/// Real threads run in real time, so the limits are small.
const LIMITS: CaptureLimits = CaptureLimits {
    whole: Duration::from_millis(1500),
    making: Duration::from_secs(5),
    first_frame: Duration::from_millis(300),
    stall: Duration::from_millis(60),
    settle: Duration::from_millis(400),
    slice: Duration::from_millis(10),
    pause: Duration::from_millis(40),
};

fn arguments() -> Arguments {
    Declaration::camera_snapshot().bounds.check(Object::new()).unwrap()
}

fn call(stop: &CancellationToken) -> Call {
    let agent = "eve@home.example.org".parse().unwrap();
    Call { arguments: arguments(), stop: stop.clone(), clock: Arc::new(SystemClock), agent }
}

/// A simulated camera under a simulated sign, and everything that happened, in order.
struct Room {
    sign: Arc<Sign>,
    light: SimulatedSign,
    device: SimulatedCamera,
    camera: Camera,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl Room {
    async fn new() -> Self {
        let log: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let (of_sign, of_camera) = (Arc::clone(&log), Arc::clone(&log));
        let light =
            SimulatedSign::new(move |lit| of_sign.lock().unwrap().push(if lit { "sign on" } else { "sign off" }));
        let device = SimulatedCamera::with_listener(move |event| {
            of_camera.lock().unwrap().push(match event {
                CameraEvent::Opened => "opened",
                CameraEvent::Closed => "closed",
            });
        });
        let sign = Sign::new(vec![Arc::new(light.clone())], Arc::new(SystemClock));
        tokio::spawn(Arc::clone(&sign).tend(CancellationToken::new()));
        tokio::task::yield_now().await;
        let camera = Camera::simulated_within(device.clone(), &CameraSetup::default(), LIMITS);
        Self { sign, light, device, camera, log }
    }

    async fn snapshot(&self) -> Result<Vec<u8>, Fault> {
        let lit = self.sign.light().await.unwrap();
        file(timeout(Duration::from_secs(20), self.camera.run(call(&CancellationToken::new()), lit)).await.unwrap())
    }

    fn log(&self) -> Vec<&'static str> {
        self.log.lock().unwrap().clone()
    }
}

fn file(value: Result<Object, Fault>) -> Result<Vec<u8>, Fault> {
    value.map(|value| {
        assert_eq!(value.get("mime").unwrap(), "image/jpeg");
        wire::text::base64_decode(value.get("data").unwrap().as_str().unwrap()).unwrap()
    })
}

/// The colour in the middle of the lower half.
fn colour(file: &[u8]) -> [u8; 3] {
    let (rgb, width, height) = jpeg::to_rgb(file).unwrap();
    let at = usize::try_from((height * 3 / 4 * width + width / 2) * 3).unwrap();
    rgb.get(at..at + 3).unwrap().try_into().unwrap()
}

fn near(found: [u8; 3], wanted: [u8; 3]) -> bool {
    found.iter().zip(wanted).all(|(a, b)| a.abs_diff(b) <= 12)
}

#[tokio::test]
async fn a_picture_shows_what_the_camera_sees_and_says_that_it_is_simulated() {
    let room = Room::new().await;
    room.device.colour(Some([200, 30, 90]));
    let first = room.snapshot().await.unwrap();
    assert!(near(colour(&first), [200, 30, 90]), "{:?}", colour(&first));
    room.device.colour(Some([20, 160, 40]));
    let second = room.snapshot().await.unwrap();
    assert!(near(colour(&second), [20, 160, 40]), "{:?}", colour(&second));
    let (rgb, width, _) = jpeg::to_rgb(&second).unwrap();
    let band = usize::try_from(width).unwrap() * 3 * 48;
    let white = rgb.get(..band).unwrap().chunks(3).filter(|pixel| pixel.iter().all(|level| *level > 200)).count();
    assert!(white > 2000, "the word is drawn in white letters: {white} pixels");
    let counts = room.device.counts();
    assert_eq!((counts.opens, counts.closes), (2, 2));
}

#[tokio::test]
async fn the_sign_is_on_before_the_device_opens_and_off_only_after_it_closed() {
    let room = Room::new().await;
    room.snapshot().await.unwrap();
    let mut state = room.sign.watch();
    timeout(Duration::from_secs(20), state.wait_for(|state| *state == SignState::Dark)).await.unwrap().unwrap();
    assert_eq!(room.log(), ["sign on", "opened", "closed", "sign off"]);
}

#[tokio::test]
async fn busy_missing_unplugged_silent_broken_and_crashed_cameras_are_told_apart_in_words() {
    let missing = "the camera simulated-camera-video-index0 is not connected";
    let other = "the camera simulated-camera-video-index0 is not connected; another one is, and never takes its place";
    let rows = [
        (CameraTrouble::Missing, missing),
        (CameraTrouble::Other, other),
        (CameraTrouble::MetadataOnly, "simulated-camera-video-index0 is not a camera that captures video"),
        (CameraTrouble::Busy(BusyAt::Start), "the camera is busy: another program uses it"),
        (CameraTrouble::Unplugged, missing),
        (CameraTrouble::PulledOut, "the camera was unplugged"),
        (CameraTrouble::Gone, "the camera was unplugged"),
        (CameraTrouble::Silent, "the camera is silent: it sends no pictures"),
        (CameraTrouble::BrokenFirst(u32::MAX), "the camera sends broken pictures: the driver marked it as damaged"),
        (CameraTrouble::CutFirst(u32::MAX), "the camera sends broken pictures: "),
        (
            CameraTrouble::ShortFirst(u32::MAX),
            "the camera sends broken pictures: 368640 bytes do not hold 640 x 480 pixels with 1280 bytes a row",
        ),
        (CameraTrouble::Panic, "the camera's driver crashed: the simulated driver was told to panic"),
    ];
    let room = Room::new().await;
    for (trouble, words) in rows {
        room.device.trouble(Some(trouble));
        let started = SystemClock.boot();
        let Fault::Unavailable(said) = room.snapshot().await.unwrap_err() else { panic!("{trouble:?}") };
        // Which part of the file is missing is chance.
        assert!(if words.ends_with(' ') { said.starts_with(words) } else { said == words }, "{trouble:?}: {said}");
        assert!(SystemClock.boot().since(started) < LIMITS.whole * 2, "{trouble:?} took too long");
        let counts = room.device.counts();
        assert_eq!(counts.opens, counts.closes, "{trouble:?} leaves no handle open");
        room.device.trouble(None);
        room.snapshot().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_camera_gets_wrong_but_shows_in_the_end_is_shown_as_it_is() {
    let room = Room::new().await;
    room.device.colour(Some([120, 130, 90]));
    let rows = [
        (CameraTrouble::DarkFirst(5), (640, 480)),
        (CameraTrouble::GreenFirst(5), (640, 480)),
        (CameraTrouble::BrokenFirst(5), (640, 480)),
        (CameraTrouble::CutFirst(5), (640, 480)),
        (CameraTrouble::ShortFirst(5), (640, 480)),
        (CameraTrouble::NotYet(50), (640, 480)),
        (CameraTrouble::NoTables, (640, 480)),
        (CameraTrouble::Padded, (640, 480)),
        (CameraTrouble::Odd, (639, 479)),
        (CameraTrouble::SlowRaw, (640, 480)),
    ];
    for (trouble, (width, height)) in rows {
        room.device.trouble(Some(trouble));
        let file = room.snapshot().await.unwrap();
        assert!(near(colour(&file), [120, 130, 90]), "{trouble:?}: {:?}", colour(&file));
        let (rgb, wide, high) = jpeg::to_rgb(&file).unwrap();
        assert_eq!((wide, high), (width, height), "{trouble:?}");
        // The lower right corner: rows that were read with the wrong length, or an odd edge, show there.
        let edge = rgb.rchunks_exact(3).next().unwrap();
        assert!(near(edge.try_into().unwrap(), [120, 130, 90]), "{trouble:?}: {edge:?} at the edge");
        let strict = jpeg::whole(&file).unwrap();
        assert_eq!(strict.as_ref(), file, "{trouble:?}: its own Huffman tables are in it");
    }
}

#[tokio::test]
async fn twelve_megapixels_leave_within_the_keepers_bound_and_a_mebibyte() {
    let room = Room::new().await;
    room.device.colour(Some([90, 120, 200]));
    room.device.trouble(Some(CameraTrouble::Large));
    let limits = CaptureLimits { whole: Duration::from_secs(30), ..LIMITS };
    for (largest, wanted) in [((1920, 1080), (1440, 1080)), ((640, 640), (640, 480))] {
        let setup =
            CameraSetup { largest: PictureSize { width: largest.0, height: largest.1 }, ..CameraSetup::default() };
        let camera = Camera::simulated_within(room.device.clone(), &setup, limits);
        let lit = room.sign.light().await.unwrap();
        let file = file(camera.run(call(&CancellationToken::new()), lit).await).unwrap();
        assert!(file.len() <= MEDIA_BYTES_MAX);
        let seen = jpeg::look(&file).unwrap();
        assert_eq!((seen.width, seen.height), wanted);
        assert!(near(colour(&file), [90, 120, 200]));
    }
}

#[tokio::test]
async fn a_camera_that_is_pulled_out_and_comes_back_works_again_without_anything_being_made_anew() {
    let room = Room::new().await;
    room.snapshot().await.unwrap();
    for trouble in [CameraTrouble::PulledOut, CameraTrouble::Unplugged, CameraTrouble::Other] {
        room.device.trouble(Some(trouble));
        room.snapshot().await.unwrap_err();
        room.device.trouble(None);
        room.snapshot().await.unwrap();
    }
    let counts = room.device.counts();
    assert_eq!(counts.opens, counts.closes);
}

#[tokio::test]
async fn a_trouble_that_was_given_a_time_ends_with_it() {
    let room = Room::new().await;
    let span = crate::trouble::Span::parse("..1500ms").unwrap();
    room.device.rehearse(vec![crate::trouble::Planned { trouble: CameraTrouble::Unplugged, span }]);
    let began = SystemClock.boot();
    room.snapshot().await.unwrap_err();
    while room.snapshot().await.is_err() {
        assert!(SystemClock.boot().since(began) < Duration::from_secs(10), "it comes back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(SystemClock.boot().since(began) >= Duration::from_millis(1400), "and not before its time");
}

/// How many descriptors of this process, and how many seen by a child that is started now, lead to a simulated camera.
fn handles() -> (usize, usize) {
    let own = std::fs::read_dir("/proc/self/fd").unwrap();
    let own = own.filter(|entry| {
        let target = std::fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.to_string_lossy().contains(simulated::HANDLE))
    });
    let child = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    (own.count(), String::from_utf8(child.stdout).unwrap().matches(simulated::HANDLE).count())
}

#[test]
fn no_child_inherits_a_capture_handle() {
    let device = SimulatedCamera::new();
    let setup = CameraSetup::default();
    let choice = CameraChoice::Named(simulated::ID.to_owned());
    let source = Adapter::new(Arc::new(device.clone()), choice, setup.wanted(), true, device.post());
    let stream = source.open().unwrap();
    assert_eq!(handles(), (1, 0), "this process holds it, its child does not");
    let inherited = rustix::fs::memfd_create(simulated::HANDLE, rustix::fs::MemfdFlags::empty()).unwrap();
    assert_eq!(handles(), (2, 1), "one that is not closed on exec would be seen");
    drop(inherited);
    drop(stream);
    assert_eq!(handles(), (0, 0));
}

#[tokio::test]
async fn a_dark_room_is_believed_when_time_is_up() {
    let room = Room::new().await;
    room.device.trouble(Some(CameraTrouble::DarkFirst(u32::MAX)));
    let file = room.snapshot().await.unwrap();
    assert!(near(colour(&file), [0, 0, 0]));
}

#[tokio::test]
async fn one_frame_and_then_nothing_gives_that_frame() {
    let room = Room::new().await;
    room.device.colour(Some([10, 20, 200]));
    room.device.trouble(Some(CameraTrouble::OneFrame));
    assert!(near(colour(&room.snapshot().await.unwrap()), [10, 20, 200]));
    assert_eq!(room.device.counts().frames, 1);
}

#[tokio::test]
async fn a_stopped_capture_closes_the_device_soon() {
    let room = Room::new().await;
    room.device.trouble(Some(CameraTrouble::Silent));
    let stop = CancellationToken::new();
    let lit = room.sign.light().await.unwrap();
    let running = tokio::spawn(room.camera.run(call(&stop), lit));
    opened(&room).await;
    stop.cancel();
    let ended = timeout(Duration::from_secs(5), running).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err(), Fault::Stopped);
    assert_eq!(room.device.counts().closes, 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_stops_the_capture_too() {
    let room = Room::new().await;
    room.device.trouble(Some(CameraTrouble::Silent));
    let lit = room.sign.light().await.unwrap();
    let running = tokio::spawn(room.camera.run(call(&CancellationToken::new()), lit));
    opened(&room).await;
    running.abort();
    dark(&room).await;
    assert_eq!(room.device.counts().closes, 1);
}

#[tokio::test]
async fn a_lost_sign_ends_the_capture() {
    let room = Room::new().await;
    room.device.trouble(Some(CameraTrouble::Silent));
    let lit = room.sign.light().await.unwrap();
    let running = tokio::spawn(room.camera.run(call(&CancellationToken::new()), lit));
    opened(&room).await;
    room.light.trouble(Some(SignTrouble::GoesOut));
    let ended = timeout(Duration::from_secs(5), running).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err(), Fault::Stopped);
    assert_eq!(room.log(), ["sign on", "opened", "sign off", "closed"]);
}

#[tokio::test]
async fn a_driver_that_hangs_keeps_the_sign_lit_and_the_camera_unavailable_until_it_returns() {
    let room = Room::new().await;
    room.device.trouble(Some(CameraTrouble::Hang));
    let lit = room.sign.light().await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(room.camera.run(call(&stop), lit));
    seen(&room, |counts| counts.hangs > 0).await;
    stop.cancel();
    running.abort();
    room.device.trouble(None);
    let anew = Camera::simulated_within(room.device.clone(), &CameraSetup::default(), LIMITS);
    let refused = anew.run(call(&CancellationToken::new()), room.sign.light().await.unwrap()).await.unwrap_err();
    assert_eq!(refused, room.snapshot().await.unwrap_err(), "a handler made anew knows of the old one's thread");
    assert_eq!(refused, Fault::Unavailable("a former capture still hangs in the camera's driver".to_owned()));
    // The thread is a real one, so the time that would darken the sign has to pass for real.
    tokio::time::sleep(crate::sign::ON_MIN + Duration::from_millis(400)).await;
    assert!(room.light.is_lit(), "no time is long enough while a handle may be open");
    room.device.release();
    dark(&room).await;
    assert_eq!(room.log(), ["sign on", "opened", "closed", "sign off"]);
    room.snapshot().await.unwrap();
}

#[tokio::test]
async fn a_simulated_sign_serves_no_real_camera_and_a_real_one_no_simulated_camera() {
    let led = tempfile::tempdir().unwrap();
    let folder = led.path().join("a");
    std::fs::create_dir(&folder).unwrap();
    for (file, text) in [("max_brightness", "1"), ("brightness", "0")] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let real: Arc<dyn SignBackend> = Arc::new(LedSign::new(led.path(), "a").unwrap());
    let pretended: Arc<dyn SignBackend> = Arc::new(SimulatedSign::new(|_| {}));
    for (backend, pretends) in [(real, false), (pretended, true)] {
        let sign = Sign::new(vec![backend], Arc::new(SystemClock));
        tokio::spawn(Arc::clone(&sign).tend(CancellationToken::new()));
        tokio::task::yield_now().await;
        for camera_pretends in [false, true] {
            let device = Scripted::new(camera_pretends, vec![grey(100); 9]);
            let camera = Camera::new(device.clone(), LIMITS, &CameraSetup::default());
            let lit = sign.light().await.unwrap();
            let taken = camera.run(call(&CancellationToken::new()), lit).await;
            let opens = *device.opens.lock().unwrap();
            assert_eq!((taken.is_ok(), opens), if camera_pretends == pretends { (true, 1) } else { (false, 0) });
        }
    }
}

async fn opened(room: &Room) {
    seen(room, |counts| counts.opens > 0).await;
}

/// Waits until the camera's counts are so.
async fn seen(room: &Room, are_so: fn(CameraCounts) -> bool) {
    let (seen, mut opened) = watch::channel(());
    let device = room.device.clone();
    std::thread::spawn(move || {
        while !are_so(device.counts()) {
            std::thread::yield_now();
        }
        seen.send_replace(());
    });
    timeout(Duration::from_secs(10), opened.changed()).await.unwrap().unwrap();
}

async fn dark(room: &Room) {
    let mut state = room.sign.watch();
    timeout(Duration::from_secs(10), state.wait_for(|state| *state == SignState::Dark)).await.unwrap().unwrap();
}

/// A camera that gives exactly these frames, each time it is opened anew from the next script.
#[derive(Clone)]
struct Scripted {
    simulated: bool,
    scripts: Arc<Mutex<VecDeque<Vec<Step>>>>,
    opens: Arc<Mutex<u32>>,
    post: Arc<Post>,
}

type Step = Result<Frame, CameraFault>;

impl Scripted {
    fn new(simulated: bool, script: Vec<Step>) -> Self {
        Self::of(simulated, vec![script])
    }

    fn of(simulated: bool, scripts: Vec<Vec<Step>>) -> Self {
        Self { simulated, scripts: Arc::new(Mutex::new(scripts.into())), opens: Arc::default(), post: Arc::default() }
    }

    fn shoot(&self) -> Result<Vec<u8>, CameraFault> {
        let watch = Watch::begin(LIMITS, CancellationToken::new(), CancellationToken::new());
        match capture::shoot(self, &watch, MEDIA_BYTES_MAX, CameraSetup::default().bound()) {
            Ok(file) => Ok(file),
            Err(Ended::Camera(fault)) => Err(fault),
            Err(Ended::Stopped) => panic!("nobody stopped it"),
        }
    }
}

impl Source for Scripted {
    fn name(&self) -> String {
        "scripted".to_owned()
    }

    fn simulated(&self) -> bool {
        self.simulated
    }

    fn post(&self) -> Arc<Post> {
        Arc::clone(&self.post)
    }

    fn open(&self) -> Result<Box<dyn Stream>, CameraFault> {
        *self.opens.lock().unwrap() += 1;
        match self.scripts.lock().unwrap().pop_front() {
            Some(script) => Ok(Box::new(Script(script.into()))),
            None => Err(CameraFault::Missing("gone".to_owned())),
        }
    }
}

struct Script(VecDeque<Step>);

impl Stream for Script {
    fn next(&mut self, wait: Duration) -> Result<Option<Frame>, CameraFault> {
        match self.0.pop_front() {
            Some(step) => step.map(Some),
            None => {
                std::thread::park_timeout(wait);
                Ok(None)
            }
        }
    }
}

fn grey(level: u8) -> Step {
    let bytes = vec![level; 64 * 48];
    Ok(Frame {
        format: PixelFormat::Grey,
        width: 64,
        height: 48,
        stride: 0,
        coding: Coding::of(Said::default(), PixelFormat::Grey),
        bytes,
        damaged: false,
    })
}

fn mjpeg(bytes: Vec<u8>) -> Step {
    Ok(Frame {
        format: PixelFormat::Mjpeg,
        width: 64,
        height: 48,
        stride: 0,
        coding: Coding::default(),
        bytes,
        damaged: false,
    })
}

fn level(file: &[u8]) -> u8 {
    jpeg::look(file).unwrap().mean
}

#[test]
fn the_picture_is_one_whose_brightness_has_settled() {
    let script = [40, 60, 90, 120, 140, 150, 151, 150, 150, 150].map(grey).to_vec();
    let file = Scripted::new(false, script).shoot().unwrap();
    assert!(level(&file).abs_diff(150) <= 2, "{}", level(&file));
}

#[test]
fn an_error_drops_the_stream_and_a_new_one_gives_the_picture() {
    let broken = vec![grey(90), Err(CameraFault::Driver("EIO".to_owned()))];
    let camera = Scripted::of(false, vec![broken, vec![Err(CameraFault::Unplugged)], vec![grey(99); 9]]);
    assert!(level(&camera.shoot().unwrap()).abs_diff(99) <= 2);
    assert_eq!(*camera.opens.lock().unwrap(), 3);
}

#[test]
fn a_camera_pulled_out_under_the_capture_is_unplugged_and_not_merely_missing() {
    let camera = Scripted::of(false, vec![vec![grey(90), Err(CameraFault::Unplugged)]]);
    assert_eq!(camera.shoot().unwrap_err(), CameraFault::Unplugged);
    let absent = Scripted::of(false, vec![]);
    assert_eq!(absent.shoot().unwrap_err(), CameraFault::Missing("gone".to_owned()));
    assert_eq!(*absent.opens.lock().unwrap(), 1, "what is not there is not asked for again");
}

#[test]
fn a_camera_that_fails_each_time_is_left_alone_after_a_few_attempts() {
    let camera = Scripted::of(false, vec![vec![Err(CameraFault::Driver("EIO".to_owned()))]; 50]);
    assert_eq!(camera.shoot().unwrap_err(), CameraFault::Driver("EIO".to_owned()));
    assert_eq!(*camera.opens.lock().unwrap(), 4);
}

#[test]
fn broken_and_cut_off_jpeg_frames_are_skipped_and_the_good_one_passes_unchanged() {
    let good = jpeg::tests::file(64, 48);
    let cut = good.get(..good.len() * 3 / 5).unwrap().to_vec();
    let script = vec![mjpeg(b"not a picture".to_vec()), mjpeg(cut), mjpeg(good.clone()), mjpeg(Vec::new())];
    assert_eq!(Scripted::new(false, script).shoot().unwrap(), good);
}
