//! A real browser, driven through chromedriver. It lives in a folder of its own and is ended with everything it started, however the
//! test ends.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

/// A start takes two seconds; the rest is for a loaded machine.
const START_MAX: Duration = Duration::from_secs(60);
/// How long the page is given for what it does at once.
const SEEN_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// Two browsers at once on a small machine make each other late.
static ONE: Mutex<()> = Mutex::const_new(());

/// A browser with one session.
pub(super) struct Browser {
    /// What steers it.
    pub(super) client: Client,
    driver: Driver,
    _turn: MutexGuard<'static, ()>,
}

struct Driver {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

/// The programs that are needed, or `None` after the skip was written down.
fn programs() -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let browser = ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| find(name));
    let missing = match (browser, find("chromedriver")) {
        (Some(browser), Some(driver)) => return Some((browser, driver)),
        (None, _) => "chromium",
        (Some(_), None) => "chromedriver",
    };
    latchkey_tests::skip("browser", &format!("{missing} is not installed, so nothing looked at the display page"));
    None
}

impl Browser {
    /// Opens a browser whose page has exactly this many pixels; `None` where there is none.
    pub(super) async fn open((width, height): (u32, u32)) -> Option<Self> {
        let (browser, driver) = programs()?;
        let turn = ONE.lock().await;
        let driver = Driver::start(&driver).await;
        let profile = driver.folder.path().join("profile");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-proxy-server",
            "--lang=en",
        ];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let metrics = json!({"width": width, "height": height, "pixelRatio": 1.0, "mobile": false, "touch": false});
        let wanted = json!({
            "goog:chromeOptions": {"binary": browser, "args": arguments, "mobileEmulation": {"deviceMetrics": metrics}},
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        });
        let Value::Object(wanted) = wanted else { unreachable!("it was just made an object") };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(wanted).connect(&format!("http://{}", driver.address)).await;
        Some(Self { client: client.expect("chromedriver opens a session"), driver, _turn: turn })
    }

    /// Ends the session, as chromedriver would otherwise leave the browser behind.
    pub(super) async fn close(self) {
        self.client.close().await.unwrap();
    }

    /// Runs a script in the page.
    pub(super) async fn js(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until the page answers `true`.
    pub(super) async fn until(&self, condition: &str) {
        let began = Instant::now();
        while self.js(&format!("return Boolean({condition})")).await != Value::Bool(true) {
            let said = "return document.body.innerText + ' | ' + document.visibilityState";
            assert!(began.elapsed() < SEEN_MAX, "the page never had: {condition}; it says: {}", self.js(said).await);
            tokio::time::sleep(POLL).await;
        }
    }

    /// The text of an element that is on the screen; empty for one that is not.
    pub(super) async fn text(&self, selector: &str) -> String {
        let script = format!(
            "const e = document.querySelector({selector:?}); return e && e.checkVisibility() ? e.textContent : ''"
        );
        self.js(&script).await.as_str().unwrap_or_default().to_owned()
    }

    /// What the browser's console said since this was last asked: failed loads, scripts and styles that the policy kept out.
    pub(super) async fn console(&self) -> Vec<String> {
        let session = self.client.session_id().await.unwrap().unwrap();
        let body = r#"{"type":"browser"}"#;
        let request = format!(
            "POST /session/{session}/se/log HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.driver.address,
            body.len()
        );
        let (status, answer) = raw(self.driver.address, request.as_bytes());
        assert_eq!(status, Some(200), "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let lines = answer["value"].as_array().unwrap();
        lines.iter().filter_map(|line| line["message"].as_str().map(str::to_owned)).collect()
    }

    /// A picture of the page, for people who want to look; written only where `LATCHKEY_SHOTS` names a folder.
    pub(super) async fn shot(&self, name: &str) {
        let Some(folder) = std::env::var_os("LATCHKEY_SHOTS") else { return };
        fs::create_dir_all(&folder).unwrap();
        fs::write(Path::new(&folder).join(format!("{name}.png")), self.client.screenshot().await.unwrap()).unwrap();
    }
}

impl Driver {
    async fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("chromedriver.out");
        let child = Command::new(program)
            .arg("--port=0")
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::null())
            .stdout(File::create(&said).unwrap())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromedriver starts");
        // From here on its Drop ends it.
        let mut driver = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), folder };
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&said).unwrap_or_default();
            let port = text.split_once("started successfully on port ").and_then(|(_, rest)| rest.split_once('.'));
            if let Some((port, _)) = port {
                driver.address.set_port(port.parse().unwrap());
                return driver;
            }
            assert!(began.elapsed() < START_MAX, "chromedriver did not say its port: {text}");
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        // A browser whose session was not closed has a group of its own; its command line names our folder.
        let ours = self.folder.path().to_string_lossy().into_owned();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            if let Some(pid) = pid.filter(|_| String::from_utf8_lossy(&line).contains(&ours)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Sends bytes as they are; gives the status and the body of the answer, no status for a connection that was closed without one.
pub(super) fn raw(address: SocketAddr, request: &[u8]) -> (Option<u16>, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SEEN_MAX)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    // A server that refuses may reset the connection after its answer, and chromedriver keeps it open.
    while let Ok(read @ 1..) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..read]);
        if is_whole(&answer) {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

/// Whether as much has come as the head says.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}
