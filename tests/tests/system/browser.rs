//! The display page in a real browser: what an agent shows, who acts, and the in-use sign that the page draws and answers for.
//!
//! Owns nothing of the device. The first test runs the two programs; the others keep the device inside the test, so that its camera and
//! its own sign can be told to misbehave. Without chromium they are skipped, and the skip is written to `LATCHKEY_SKIPS`; what needs
//! only a socket (D1) always runs. Named after the cases they hold: D1, D3, G8; of pictures, I4 to I7.

#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs reads the environment, and waits in real time by polling them"
)]

use std::time::{Duration, Instant};

mod driver;
mod kitchen;
mod pictures;

use actors::{Command, Reply};
use driver::{Browser, raw};
use handlers::{CameraTrouble, SignTrouble};
use kitchen::{Kitchen, until};
use latchkey_tests::guests::{Dropbox, Mode};
use latchkey_tests::{Agent, Keeper, Room, Start};
use serde_json::Value;
use wire::{ErrorCode, Object};

/// What happens within a second, on a machine under load.
const SOON: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// A screen on a wall, and one in a hand.
const WALL: (u32, u32) = (1280, 800);
const HAND: (u32, u32) = (390, 844);

/// 16 by 10 pixels of red.
const RED: &str =
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAKCAIAAAAy3EnLAAAAFElEQVR42mM4IadBEmIY1TA0NQAA7xmowd3nAo4AAAAASUVORK5CYII=";

/// What nobody's name or text may do.
const ALERT: &str = "<img src=x onerror=alert(1)>";
const SCRIPT: &str = "</script><script>alert(1)</script>";

/// What is in the middle of the sign's own place is the sign.
const SIGN_ON_TOP: &str = "(() => { const s = document.getElementById('sign'), b = s.getBoundingClientRect(); \
    return !s.hidden && b.height >= 40 && b.width >= innerWidth - 1 && [0.02, 0.5, 0.98].every((x) => [0.05, 0.5, 0.95].every((y) => \
    s.contains(document.elementFromPoint(innerWidth * x, b.top + b.height * y)))); })()";

/// Nothing hangs over the edges.
const INSIDE: &str =
    "document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight";

#[tokio::test]
async fn the_page_shows_texts_and_pictures_and_who_acts_with_what() {
    for (size, screen) in [(WALL, "wall"), (HAND, "hand")] {
        let Some(browser) = Browser::open(size).await else { return };
        let room = Room::new();
        let daemon = Start::simulated(&room).set("device.name=kitchen").up();
        let (keeper, agent) =
            (|words: &[&str]| room.latchkeyd(words).well(), |words: &[&str]| room.latchkey(words).well());
        let display = daemon.address().display.clone().expect("the page is served");
        browser.client.goto(&display).await.unwrap();

        browser.until("document.getElementById('idle-command').textContent === 'latchkeyd pair'").await;
        browser.shot(&format!("{screen}-new")).await;
        let link = keeper(&["pair", "--json"]).json()["link"].as_str().unwrap().to_owned();
        agent(&["agent", "new", "kitchen-bot@home.example.org"]);
        let claim = agent(&["claim", &link, "--no-wait", "--json"]).json();
        let code = claim["code"].as_str().unwrap();
        browser.until(&format!("document.getElementById('idle-waiting').textContent.includes({code:?})")).await;
        assert!(browser.text("#idle-command").await.ends_with(&code.replace(' ', "")), "the command that approves it");
        browser.shot(&format!("{screen}-claim")).await;
        keeper(&["approve", code]);
        agent(&["claim", "--resume"]);
        browser.until("document.getElementById('idle-next').textContent.includes('owns this device')").await;
        browser.shot(&format!("{screen}-idle")).await;

        for grant in ["camera", "display.text", "display.image"] {
            keeper(&["grant", grant]);
        }
        agent(&["show", "kitchen", "Dinner is ready.\nCome down."]);
        assert_eq!(browser.text("#text-fit").await, "Dinner is ready.\nCome down.");
        let who = browser.text("#foot-who").await;
        assert!(who.starts_with("kitchen-bot@home.example.org"), "{who}");
        assert_eq!(browser.js(&format!("return {INSIDE}")).await, Value::Bool(true), "{screen}");
        browser.shot(&format!("{screen}-text")).await;

        agent(&["snapshot", "kitchen", "-o", "a.jpg"]);
        browser.until(SIGN_ON_TOP).await;
        let sign = browser.text("#sign").await;
        assert!(
            sign.contains("Camera in use")
                && sign.contains("kitchen-bot@home.example.org")
                && sign.contains("simulated"),
            "{sign}"
        );
        assert_eq!(browser.js(&format!("return {INSIDE}")).await, Value::Bool(true), "{screen}");
        browser.shot(&format!("{screen}-sign")).await;
        browser.until("document.getElementById('sign').hidden").await;

        agent(&["show", "kitchen", "a.jpg"]);
        assert_eq!(browser.js("return document.querySelector('#image img').naturalWidth").await, 640);
        assert_eq!(browser.text("#text-fit").await, "", "the text made room");
        browser.shot(&format!("{screen}-picture")).await;
        assert_eq!(browser.console().await, Vec::<String>::new());
        browser.close().await;
    }
}

#[tokio::test]
async fn a_handler_whose_content_changed_is_told_on_the_page_with_the_command_that_grants_it_anew() {
    const NAME: &str = "custom.example.echo";
    for (size, screen) in [(WALL, "wall"), (HAND, "hand")] {
        let Some(browser) = Browser::open(size).await else { return };
        let room = Room::new();
        let handlers = Dropbox::at(&room.config().join("handlers"));
        handlers.fixture(NAME, "echo", Mode::default());
        let daemon = Start::simulated(&room).set("device.name=kitchen").up();
        let agent = Agent::new("kitchen-bot@home.example.org");
        agent.own(&daemon.line(), &daemon.keeper());
        browser.client.goto(daemon.address().display.as_deref().expect("the page is served")).await.unwrap();
        grant_when_ready(&daemon.keeper(), NAME).await;
        browser.until(&format!("document.getElementById('idle').textContent.includes('Allowed: {NAME}')")).await;
        assert_eq!(browser.text("#idle-changed").await, "", "control: nothing has changed");

        handlers.fixture(NAME, "echo", Mode { top: "timeout = \"2s\"", ..Mode::default() });
        browser.until(&format!("document.getElementById('idle-changed').textContent.includes({NAME:?})")).await;
        let told = browser.text("#idle-changed").await;
        assert!(told.contains("changed") && told.contains(&format!("grant {NAME}")), "{told}");
        assert_eq!(browser.js(&format!("return {INSIDE}")).await, Value::Bool(true), "{screen}");
        browser.shot(&format!("{screen}-changed")).await;
        grant_when_ready(&daemon.keeper(), NAME).await;
        browser.until("document.getElementById('idle-changed').textContent === ''").await;
        assert_eq!(browser.console().await, Vec::<String>::new());
        browser.close().await;
    }
}

/// A handler is compiled before it can be granted.
async fn grant_when_ready(keeper: &Keeper, name: &str) {
    let begun = Instant::now();
    loop {
        match keeper.ask(Command::Grant { name: name.to_owned() }) {
            Reply::Granted { .. } => return,
            Reply::Failed { .. } if begun.elapsed() < SOON => tokio::time::sleep(POLL).await,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn d3_names_and_texts_are_shown_as_they_are_and_run_nothing() {
    let Some(browser) = Browser::open(WALL).await else { return };
    // Control: this browser runs such a text where a page takes it for markup, and what runs is noticed.
    browser.client.goto(&format!("data:text/html,{ALERT}")).await.unwrap();
    assert_eq!(browser.client.get_alert_text().await.unwrap(), "1");
    browser.client.accept_alert().await.unwrap();

    for text in [ALERT, SCRIPT] {
        let kitchen = Kitchen::open(text, &["display.text"]).await;
        browser.client.goto(&kitchen.display()).await.unwrap();
        browser.until("document.getElementById('idle-name').checkVisibility()").await;
        assert_eq!(browser.text("#idle-name").await, text);
        assert_eq!(browser.client.title().await.unwrap(), text);
        kitchen.owner().show(text).await.unwrap();
        assert_eq!(browser.text("#text-fit").await, text);
        assert_eq!(browser.text("#foot-name").await, text);
        assert_eq!(browser.js("return document.querySelectorAll('img[src=x], script:not([src])').length").await, 0);
        assert!(browser.client.get_alert_text().await.is_err(), "nothing ran");
        assert_eq!(browser.console().await, Vec::<String>::new(), "the policy had nothing to keep out");

        // Control: were it taken for markup all the same, the policy would keep it from running, and say so.
        browser.js(&format!("document.getElementById('text-fit').innerHTML = {ALERT:?}")).await;
        browser.until("document.querySelector('img[src=x]').complete").await;
        assert!(browser.client.get_alert_text().await.is_err(), "the policy stands behind it");
        let said = browser.console().await.join("\n");
        assert!(said.contains("Content Security Policy"), "{said}");
        browser.client.goto("about:blank").await.unwrap();
        kitchen.close().await;
    }
    browser.close().await;
}

#[tokio::test]
async fn g8_a_page_that_is_hidden_or_closed_takes_the_sign_and_the_capture_with_it() {
    let Some(browser) = Browser::open(WALL).await else { return };
    let rows = [("nothing happens to it", None), ("hidden", Some("cancelled")), ("closed", Some("cancelled"))];
    for (happening, wanted) in rows {
        let kitchen = Kitchen::open("kitchen", &["camera"]).await;
        // Only the page can carry the sign, and the camera takes its time.
        kitchen.simulation.sign.trouble(Some(SignTrouble::Missing));
        kitchen.simulation.camera.trouble(Some(CameraTrouble::Silent));
        let owner = kitchen.owner();

        let without = owner.call("camera.snapshot", Object::new()).await.unwrap_err();
        assert_eq!(without.error, ErrorCode::HardwareUnavailable, "no page is open: {}", without.message);
        assert_eq!(kitchen.simulation.camera.counts().opens, 0, "and the camera was not touched");

        browser.client.goto(&kitchen.display()).await.unwrap();
        browser.until("document.getElementById('idle-name').checkVisibility()").await;
        wait_for_page(&kitchen).await;
        let mut events = kitchen.events();
        let capture = owner.call("camera.snapshot", Object::new());
        let happen = async {
            until(
                &mut events,
                |event| matches!(event, actors::Event::Acting { capability, .. } if capability == "camera.snapshot"),
            )
            .await;
            browser.until(SIGN_ON_TOP).await;
            match happening {
                "hidden" => {
                    let first = browser.client.window().await.unwrap();
                    let other = browser.client.new_window(true).await.unwrap();
                    browser.client.switch_to_window(other.handle).await.unwrap();
                    Some(first)
                }
                "closed" => {
                    browser.client.goto("about:blank").await.unwrap();
                    None
                }
                _ => None,
            }
        };
        let (captured, first) = tokio::join!(capture, happen);
        let refusal = captured.unwrap_err();
        let code = wanted.unwrap_or("hardware_unavailable");
        assert_eq!(refusal.error.as_str(), code, "{happening}: {}", refusal.message);
        // The capture thread closes what it opened at its next look; a camera that stays silent is opened twice.
        soon(async || {
            let counts = kitchen.simulation.camera.counts();
            (counts.opens >= 1 && counts.closes == counts.opens).then_some(()).ok_or(format!("{happening}: {counts:?}"))
        })
        .await;
        if let Some(first) = first {
            browser.client.close_window().await.unwrap();
            browser.client.switch_to_window(first).await.unwrap();
        }
        browser.client.goto("about:blank").await.unwrap();
        kitchen.close().await;
    }
    browser.close().await;
}

#[tokio::test]
async fn g8_nothing_that_an_agent_shows_comes_over_the_sign() {
    for size in [WALL, HAND] {
        let Some(browser) = Browser::open(size).await else { return };
        let kitchen = Kitchen::open("kitchen", &["camera", "display.text", "display.image"]).await;
        browser.client.goto(&kitchen.display()).await.unwrap();
        browser.until("document.getElementById('idle-name').checkVisibility()").await;
        wait_for_page(&kitchen).await;
        kitchen.simulation.sign.trouble(Some(SignTrouble::Missing));
        kitchen.simulation.camera.trouble(Some(CameraTrouble::Silent));
        let owner = kitchen.owner();
        let mut events = kitchen.events();
        let show = async {
            until(
                &mut events,
                |event| matches!(event, actors::Event::Acting { capability, .. } if capability == "camera.snapshot"),
            )
            .await;
            browser.until(SIGN_ON_TOP).await;
            owner.show_png(RED).await.unwrap();
            assert_eq!(browser.js("return document.querySelector('#image img').naturalWidth").await, 16);
            assert_eq!(browser.js(&format!("return {SIGN_ON_TOP}")).await, Value::Bool(true), "a picture");
            // Control: the picture has the rest of the screen.
            let below =
                "document.getElementById('image').contains(document.elementFromPoint(innerWidth / 2, innerHeight / 2))";
            assert_eq!(browser.js(&format!("return {below}")).await, Value::Bool(true));
            browser.shot(&format!("over-{}", size.0)).await;
            owner.show(&"W".repeat(4096)).await.unwrap();
            assert_eq!(browser.js(&format!("return {SIGN_ON_TOP}")).await, Value::Bool(true), "a text without an end");
        };
        let (captured, ()) = tokio::join!(owner.call("camera.snapshot", Object::new()), show);
        assert_eq!(
            captured.unwrap_err().error,
            ErrorCode::HardwareUnavailable,
            "the camera stayed silent, the sign did not go"
        );
        browser.client.goto("about:blank").await.unwrap();
        kitchen.close().await;
        browser.close().await;
    }
}

#[tokio::test]
async fn a_picture_is_drawn_though_the_next_state_came_before_it_was() {
    let Some(browser) = Browser::open(WALL).await else { return };
    let kitchen = Kitchen::open("kitchen", &["display.image"]).await;
    browser.client.goto(&kitchen.display()).await.unwrap();
    wait_for_page(&kitchen).await;
    // The page is busy with something else while two states come.
    browser.js("drawing = true").await;
    let owner = kitchen.owner();
    let busy = async {
        browser.until("waiting?.content?.picture").await;
        kitchen.allow("camera").await;
        browser.until("waiting.grants.includes('camera')").await;
        browser.js("drawing = false; drawAll()").await;
    };
    let (shown, ()) = tokio::join!(owner.show_png(RED), busy);
    shown.unwrap();
    browser.until("document.querySelector('#image img')?.naturalWidth === 16").await;
    browser.client.goto("about:blank").await.unwrap();
    kitchen.close().await;
    browser.close().await;
}

/// The page says by itself that it is in sight; until then it carries nothing.
async fn wait_for_page(kitchen: &Kitchen) {
    soon(async || {
        let sign = kitchen.status().await.sign;
        let missing = sign.contains("no display page is open") || sign.contains("not in sight");
        if missing { Err(sign) } else { Ok(()) }
    })
    .await;
}

/// Waits until `there` finds what it looks for.
async fn soon(there: impl AsyncFn() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(missing) = there().await {
        assert!(began.elapsed() < SOON, "{missing}");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_the_pages_answer_only_to_their_own_names_and_origins() {
    let kitchen = Kitchen::open("kitchen", &[]).await;
    let address = kitchen.pages();
    let port = address.port();
    let own = format!("127.0.0.1:{port}");
    let host = |value: &str| format!("Host: {value}\r\n");
    let with = |line: &str| format!("Host: {own}\r\n{line}\r\n");
    let rows: &[(&str, String, u16)] = &[
        ("the address", host(&own), 200),
        ("localhost", host(&format!("localhost:{port}")), 200),
        ("the address of version 6", host(&format!("[::1]:{port}")), 200),
        ("a name re-pointed to this machine", host(&format!("evil.example:{port}")), 403),
        ("a name that starts like ours", host(&format!("localhost.evil.example:{port}")), 403),
        ("a name that ends like ours", host(&format!("evil.localhost:{port}")), 403),
        ("another address", host(&format!("192.0.2.7:{port}")), 403),
        ("another port", host("127.0.0.1:1"), 403),
        ("no port", host("127.0.0.1"), 403),
        ("an empty Host", "Host:\r\n".to_owned(), 403),
        ("no Host", String::new(), 403),
        ("two Hosts", format!("Host: {own}\r\nHost: {own}\r\n"), 403),
        ("two Hosts, one of them foreign", format!("Host: {own}\r\nHost: evil.example\r\n"), 403),
        ("our own Origin", with(&format!("Origin: http://{own}")), 200),
        ("a foreign Origin", with("Origin: http://evil.example"), 403),
        ("an Origin on another port of this machine", with("Origin: http://127.0.0.1:1"), 403),
        ("our Origin by another scheme", with(&format!("Origin: https://{own}")), 403),
        ("the Origin of a file or a sandbox", with("Origin: null"), 403),
        ("two Origins", with(&format!("Origin: http://{own}\r\nOrigin: http://evil.example")), 403),
        ("a page of ours asks", with("Sec-Fetch-Site: same-origin"), 200),
        ("the address was typed", with("Sec-Fetch-Site: none"), 200),
        ("another site asks", with("Sec-Fetch-Site: cross-site"), 403),
        ("another port of this machine asks", with("Sec-Fetch-Site: same-site"), 403),
    ];
    for (name, headers, wanted) in rows {
        let (status, body) =
            raw(address, format!("GET /display HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes());
        // Without a Host the library below refuses before our rule does.
        let refused = *wanted == 403 && matches!(status, Some(400 | 403));
        assert!(status == Some(*wanted) || refused, "{name}: {status:?} {body}");
        assert_eq!(
            body.contains("data-page="),
            *wanted == 200,
            "{name}: a page is minted only for those who may have one"
        );
    }
    kitchen.close().await;
}
