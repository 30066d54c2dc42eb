//! The program itself: what it prints, and how it ends.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use latchkey_controller::inventory::ChangeState;
use serde_json::Value;
use tokio::process::Command;
use wire::answer::ErrorCode;

use crate::fake::{Fake, Fault, JPEG};

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> std::path::PathBuf {
        self.0.path().join("state")
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latchkey"));
        command.args(words).env_clear().env("LATCHKEY_CONTROLLER_DIR", self.state()).stdin(Stdio::null());
        // Settings of a proxy, which nobody reads.
        command.env("http_proxy", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1");
        command.current_dir(self.0.path()).kill_on_drop(true);
        command
    }

    async fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().await.unwrap()
    }

    /// Runs it and holds it to an exit code; gives stdout and stderr.
    async fn expect(&self, code: i32, words: &[&str]) -> (String, String) {
        let output = self.run(words).await;
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words:?}\nstdout: {out}\nstderr: {err}");
        assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "{words:?} lets escapes through: {out}{err}");
        (out, err)
    }

    async fn json(&self, words: &[&str]) -> Value {
        let (out, _) = self.expect(0, &[&["--json"], words].concat()).await;
        serde_json::from_str(&out).unwrap()
    }

    /// A folder with an agent that owns the device as `kitchen`.
    async fn with(fake: &Fake) -> Self {
        let home = Self::new();
        home.expect(0, &["agent", "new", "bot@home.example.org"]).await;
        let link = fake.link().expose();
        home.expect(0, &["claim", &link, "--name", "kitchen", "--no-wait"]).await;
        fake.keeper_says(ChangeState::Approved);
        home.expect(0, &["claim", "--resume"]).await;
        home
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_first_day_with_a_device() {
    let fake = Fake::plain().await;
    fake.state().name = "k\u{1b}[31mitchen".to_owned();
    let home = Home::new();
    assert_eq!(home.json(&["agent", "new", "bot@home.example.org"]).await["agent"], "bot@home.example.org");
    let (_, err) = home.expect(1, &["agent", "new", "bot@home.example.org"]).await;
    assert!(err.contains("has a key already"), "{err}");

    let link = fake.link().expose();
    let claim = home.json(&["claim", &link, "--name", "kitchen", "--no-wait"]).await;
    assert_eq!((claim["state"].as_str(), claim["device"].as_str()), (Some("pending"), Some("kitchen")));
    let again = home.json(&["claim", &link, "--no-wait"]).await;
    assert_eq!(again["id"], claim["id"], "asking again is the same claim");
    home.expect(3, &["claim", "--resume", "--no-wait"]).await;
    let (_, err) = home.expect(3, &["health", "kitchen"]).await;
    assert!(err.contains("not approved yet"), "{err}");
    let (_, err) = home.expect(3, &["--timeout", "1", "claim", "--resume"]).await;
    assert!(err.contains("not approved in time"), "{err}");
    fake.keeper_says(ChangeState::Approved);
    assert_eq!(home.json(&["claim", "--resume"]).await["state"], "approved");

    let devices = home.json(&["devices"]).await;
    assert_eq!((devices[0]["name"].as_str(), devices[0]["state"].as_str()), (Some("kitchen"), Some("owned")));
    let key = devices[0]["key"].as_str().unwrap();
    home.expect(0, &["health", &key[..8]]).await;
    home.expect(0, &["health", devices[0]["fingerprint"].as_str().unwrap()]).await;
    home.expect(0, &["health", "kitchen"]).await;
    home.expect(0, &["devices"]).await;
    let (out, _) = home.expect(0, &["capabilities", "kitchen"]).await;
    assert!(out.contains("a text of at most 4096 bytes") && out.contains("camera on"), "{out}");
    assert_eq!(home.json(&["capabilities", "kitchen"]).await["device"], key);
    let (out, _) = home.expect(0, &["capabilities", "kitchen", "display.text"]).await;
    assert!(
        out.contains("a text of at most 4096 bytes") && out.contains("latchkey call kitchen display.text text="),
        "{out}"
    );
    assert_eq!(home.json(&["capabilities", "kitchen", "display.text"]).await["name"], "display.text");
    let (_, err) = home.expect(2, &["capabilities", "kitchen", "custom.acme.lamp"]).await;
    assert!(err.contains("kitchen offers no custom.acme.lamp; see: latchkey capabilities kitchen"), "{err}");

    let (_, err) = home.expect(0, &["show", "kitchen", "dinner"]).await;
    assert!(err.contains("activating kitchen for 60 s"), "{err}");
    home.expect(0, &["call", "kitchen", "display.text", "text=17"]).await;
    home.expect(0, &["call", "kitchen", "display.text", "{\"text\":\"json\"}"]).await;
    std::fs::write(home.path("plan.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    assert_eq!(home.json(&["show", "kitchen", "plan.png"]).await["capability"], "display.image");
    home.expect(0, &["show", "kitchen", "plan.png", "--text"]).await;
    assert_eq!(fake.state().shown, ["dinner", "17", "json", "image/png", "plan.png"]);

    let picture = home.json(&["snapshot", "kitchen", "-o", "kitchen.jpg"]).await;
    assert_eq!(picture["bytes"], JPEG.len());
    assert_eq!(std::fs::read(home.path("kitchen.jpg")).unwrap(), JPEG);
    assert_eq!(home.run(&["snapshot", "kitchen", "-o", "-"]).await.stdout, JPEG);

    home.expect(0, &["deactivate", "kitchen"]).await;
    home.expect(0, &["activate", "kitchen", "--lease", "30"]).await;
    let id = "0".repeat(48);
    assert_eq!(home.json(&["cancel", "kitchen", &id]).await["cancelled"], false);
    home.expect(0, &["deactivate", "kitchen"]).await;
    home.expect(0, &["release", "kitchen", "--no-wait"]).await;
    fake.keeper_says(ChangeState::Approved);
    assert_eq!(home.json(&["devices"]).await[0]["state"], "gone");
    home.expect(0, &["forget", "kitchen"]).await;
    assert_eq!(home.json(&["devices"]).await, serde_json::json!([]));
}

#[tokio::test]
async fn a_device_whose_claim_was_approved_meanwhile_answers_to_its_own_name() {
    let fake = Fake::plain().await;
    let home = Home::new();
    home.expect(0, &["agent", "new", "bot@home.example.org"]).await;
    home.expect(0, &["claim", &fake.link().expose(), "--no-wait"]).await;
    for words in [&["snapshot", "kitchen", "-o", "kitchen.jpg"][..], &["forget", "kitchen"]] {
        let (_, err) = home.expect(2, words).await;
        assert!(err.contains("no device is called kitchen"), "nobody approved it yet: {err}");
    }
    fake.keeper_says(ChangeState::Approved);
    home.expect(0, &["snapshot", "kitchen", "-o", "kitchen.jpg"]).await;
    assert_eq!(std::fs::read(home.path("kitchen.jpg")).unwrap(), JPEG);
    let (_, err) = home.expect(2, &["health", "pantry"]).await;
    assert!(err.contains("no device is called pantry"), "{err}");
}

#[tokio::test]
async fn each_failure_has_its_exit_code_and_its_sentence() {
    let fake = Fake::plain().await;
    let home = Home::with(&fake).await;
    let show = ["show", "kitchen", "x", "--text"];
    let key = fake.link().device.to_string();
    let link = |end: &str| format!("http://127.0.0.1:{}/#{key}{end}", fake.port);
    let rows: [(&[&str], i32, &str); 21] = [
        (&["health", "kitchn"], 2, "no device is called kitchn (did you mean kitchen?); see: latchkey devices"),
        (&["call", "kitchen", "display"], 2, "display is not a capability name"),
        (&["cancel", "kitchen", "12"], 2, "12 is no id: not 48 lower-case hex digits"),
        (&["activate", "kitchen", "--lease", "301"], 2, "a lease has 5 to 300 seconds"),
        (&["health", "kitchen", "--timeout", "0"], 2, "a time has 1 to 86400 seconds"),
        (&["call", "kitchen", "display.txt", "text=x"], 3, "did you mean display.text?"),
        (&["call", "kitchen", "display.text", "txt=x"], 2, "did you mean text?"),
        (&["call", "kitchen", "display.text"], 2, "text: is missing"),
        (&["call", "kitchen", "camera.snapshot", "facing=front"], 2, "no argument is called facing; declared: none"),
        (&["show", "kitchen", "missing.png"], 2, "there is no file missing.png"),
        (&["snapshot", "kitchen", "-o", "no/folder.jpg"], 2, "nothing was captured"),
        (&["show", "kitchen", "x", "--no-activate"], 3, "run: latchkey activate kitchen"),
        (&["claim", "https://127.0.0.1:1"], 2, "put the link in quotes"),
        (&["claim", "ftp://127.0.0.1:1/#x.y"], 2, "must begin with https:// or http://"),
        (&["claim", "http://127.0.0.1/#x.y"], 2, "the port of the pairing link"),
        (&["claim", "http://127.0.0.1:1/#x.y"], 2, "the device key of the pairing link is damaged"),
        (&["claim", &link(".short")], 2, "the secret of the pairing link"),
        (&["claim", &link(".AAAAAAAAAAAAAAAAAAAAAA")], 3, "used, expired or mistyped"),
        (&["claim", &link(".BwcHBwcHBwcHBwcHBwcHBw")], 3, "owned already"),
        (&["claim"], 2, "Usage:"),
        (&["agent", "new", "Bot"], 2, "Bot is not a full agent address"),
    ];
    for (words, code, sentence) in rows {
        let (_, err) = home.expect(code, words).await;
        assert!(err.contains(sentence), "{words:?}: {err}");
    }
    assert_eq!(fake.state().shown, [""; 0]);

    fake.state().granted = false;
    let (_, err) = home.expect(3, &["snapshot", "kitchen", "-o", "kitchen.jpg"]).await;
    assert_eq!(err, "error: camera is not granted on kitchen; at the device run: latchkeyd grant camera\n");
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 1, "no file is left");
    fake.state().granted = true;

    fake.state().refuse = Some(ErrorCode::Unsupported);
    home.expect(3, &["health", "kitchen"]).await;
    fake.state().refuse = None;
    home.expect(0, &["activate", "kitchen"]).await;
    fake.state().fault = Fault::Forbidden;
    let (_, err) = home.expect(3, &["health", "kitchen"]).await;
    assert!(err.contains("not its owner"), "{err}");
    fake.state().fault = Fault::None;
    let control = home.expect(0, &show).await;
    let (out, _) = home.expect(0, &["transfer", "kitchen", "--to", "b@c.d.e", "--key", &key, "--no-wait"]).await;
    assert!(out.starts_with("code "), "{out}");
    assert!(control.0.contains("shown on kitchen"));
}

#[tokio::test]
async fn a_lost_answer_is_unknown_for_a_change_and_unreachable_for_a_read() {
    let mut fake = Fake::plain().await;
    let home = Home::with(&fake).await;
    home.expect(0, &["show", "kitchen", "first"]).await;
    fake.state().lose = Some("invoke");
    let (_, err) = home.expect(5, &["show", "kitchen", "second"]).await;
    assert!(err.contains("may have been done") && err.contains("--id "), "{err}");
    home.expect(4, &["health", "kitchen"]).await;
    home.expect(4, &["snapshot", "kitchen", "-o", "kitchen.jpg"]).await;
    assert!(!home.path("kitchen.jpg").exists());
    fake.state().lose = None;
    home.expect(0, &["health", "kitchen"]).await;
    assert_eq!(fake.state().shown, ["first", "second"]);

    fake.state().fault = Fault::TrickleBody;
    let started = std::time::Instant::now();
    let (_, err) = home.expect(4, &["--timeout", "1", "snapshot", "kitchen", "-o", "kitchen.jpg"]).await;
    assert!(started.elapsed().as_secs() < 10 && err.contains("--timeout"), "{err}");
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 1, "no file is left");

    fake.stop().await;
    let (_, err) = home.expect(4, &["health", "kitchen"]).await;
    assert!(err.contains("is latchkeyd running on kitchen"), "{err}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_folder_that_is_not_safe_or_damaged_is_refused_and_left_as_it_is() {
    let fake = Fake::plain().await;
    let home = Home::with(&fake).await;
    let agent = home.state().join("agents/bot@home.example.org");
    for (path, loose, tight) in [
        (home.state(), 0o755, 0o700),
        (agent.clone(), 0o750, 0o700),
        (agent.join("key"), 0o644, 0o600),
        (agent.join("inventory.json"), 0o660, 0o600),
    ] {
        set_mode(&path, loose);
        let (_, err) = home.expect(1, &["health", "kitchen"]).await;
        assert!(err.contains(&format!("chmod {}", if path.is_dir() { "700" } else { "600" })), "{err}");
        set_mode(&path, tight);
        home.expect(0, &["health", "kitchen"]).await;
    }

    let file = agent.join("inventory.json");
    let good = std::fs::read(&file).unwrap();
    for damage in ["{", "{\"version\":1,\"version\":1,\"devices\":[]}", "{\"version\":2,\"devices\":[],\"new\":0}", ""]
    {
        std::fs::write(&file, damage).unwrap();
        let link = fake.link().expose();
        for words in [&["health", "kitchen"][..], &["claim", &link, "--no-wait"], &["devices"]] {
            let (_, err) = home.expect(1, words).await;
            assert!(err.contains(file.to_str().unwrap()), "{err}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), damage, "it is not written over");
    }
    std::fs::write(&file, good).unwrap();
    home.expect(0, &["health", "kitchen"]).await;
}

#[tokio::test]
async fn one_process_at_a_time_uses_a_key_and_the_second_names_the_first() {
    let fake = Fake::plain().await;
    let home = Home::with(&fake).await;
    fake.state().hang = Some("registration");
    let mut first = home.command(&["health", "kitchen"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    fake.wait_for(|state| state.hanging > 0).await;
    let (_, err) = home.expect(1, &["health", "kitchen"]).await;
    assert!(err.contains(&format!("pid {}", first.id().unwrap())), "{err}");
    // A cancel overtakes: without that nobody could stop a call that hangs.
    home.expect(0, &["cancel", "kitchen", &"0".repeat(48)]).await;
    first.kill().await.unwrap();
    fake.state().hang = None;
    home.expect(0, &["health", "kitchen"]).await;
}

#[tokio::test]
async fn an_interrupt_cancels_the_call_at_the_device_and_a_second_one_stops_waiting() {
    let fake = Fake::plain().await;
    let home = Home::with(&fake).await;
    home.expect(0, &["activate", "kitchen"]).await;
    fake.state().hang = Some("invoke");
    let child = home.command(&["show", "kitchen", "x"]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    fake.wait_for(|state| state.hanging > 0).await;
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    fake.wait_for(|state| state.asked.contains(&"cancel")).await;
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    let err = text(output.stderr);
    assert!(err.contains("cancelling display.text on kitchen") && err.contains("--id "), "{err}");
    assert_eq!(output.status.code(), Some(5), "{err}");
}
