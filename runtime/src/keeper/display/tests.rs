//! The display in paused time, with pages that are only their ids and what they say.

use std::sync::atomic::{AtomicU64, Ordering};

use handlers::{Fault, ImageType, Screen, SignBackend, SignFault, TokioClock};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;

/// Every draw is another: a counter.
#[derive(Default)]
struct Counter(AtomicU64);

impl Chance for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        bytes[..8].copy_from_slice(&number.to_be_bytes());
    }
}

fn display() -> Display {
    Display::new(Arc::new(TokioClock::new(1_000_000)), Arc::new(Counter::default()), false)
}

/// A page as a browser holds it.
struct Page {
    display: Display,
    id: Token,
    stream: Connected,
    count: u64,
}

impl Page {
    fn open(display: &Display) -> Self {
        let id = display.mint();
        let stream = display.connect(id).unwrap();
        Self { display: display.clone(), id, stream, count: 0 }
    }

    fn state(&self) -> (Value, Token) {
        let state: Value = serde_json::from_str(&self.stream.state().unwrap()).unwrap();
        let nonce = Token::parse(state["nonce"].as_str().unwrap()).unwrap();
        (state, nonce)
    }

    fn say(&mut self, said: Said) -> bool {
        self.count += 1;
        self.display.hear(self.id, self.count, said)
    }

    /// Draws what is to be drawn now.
    fn draw(&mut self) -> Value {
        let (state, nonce) = self.state();
        assert!(self.say(Said::Drawn(nonce)));
        state
    }
}

fn shown(text: &str) -> Shown {
    Shown { content: Content::Text(text.to_owned()), agent: "alice@team.example.org".parse().unwrap() }
}

fn picture() -> Shown {
    let bytes: Arc<[u8]> = Arc::from(&b"pixels"[..]);
    let content = Content::Image { mime: ImageType::Png, bytes, width: 2, height: 2 };
    Shown { content, agent: "alice@team.example.org".parse().unwrap() }
}

/// Runs `work` and meanwhile, once it waits, `page_does`.
async fn meanwhile<T>(display: &Display, work: impl Future<Output = T>, page_does: impl FnOnce()) -> T {
    let mut changes = display.changes();
    changes.mark_unchanged();
    let page = async {
        changes.changed().await.unwrap();
        page_does();
    };
    tokio::join!(work, page).0
}

#[tokio::test(start_paused = true)]
async fn the_sign_is_lit_when_a_visible_page_says_that_it_drew_this_lighting() {
    let display = display();
    assert!(matches!(SignBackend::light(&display).await, Err(SignFault::NotReady { .. })), "no page is open");
    let mut page = Page::open(&display);
    assert!(display.ready().is_err(), "open, but not known to be in sight");
    page.draw();
    assert_eq!(display.ready(), Ok(()));
    let lit = meanwhile(&display, SignBackend::light(&display), || assert!(page.draw()["sign"].is_object())).await;
    assert_eq!((lit, display.check().await), (Ok(()), Ok(())));
    display.dark().await.unwrap();
    assert!(page.draw()["sign"].is_null());
    assert!(display.check().await.is_err(), "dark is not lit");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_answer_or_answers_for_another_state_lights_nothing() {
    type Answer = fn(&mut Page, &mut Page, Token) -> bool;
    let rows: [(&str, Answer, bool); 7] = [
        (
            "control: the page's own nonce of the lit state",
            |page, _, _| {
                let nonce = page.state().1;
                page.say(Said::Drawn(nonce))
            },
            true,
        ),
        ("silence", |_, _, _| false, false),
        ("the nonce of the state before", |page, _, old| page.say(Said::Drawn(old)), false),
        (
            "the nonce that another page was sent",
            |page, other, _| {
                let nonce = other.state().1;
                page.say(Said::Drawn(nonce))
            },
            false,
        ),
        ("an invented nonce", |page, _, _| page.say(Said::Drawn(Token([9; 24]))), false),
        (
            "an answer older than the last one",
            |page, _, _| {
                let nonce = page.state().1;
                page.display.hear(page.id, page.count, Said::Drawn(nonce))
            },
            false,
        ),
        (
            "a page that went out of sight",
            |page, _, _| {
                let nonce = page.state().1;
                page.say(Said::Drawn(nonce));
                page.say(Said::Hidden)
            },
            false,
        ),
    ];
    for (name, answer, wanted) in rows {
        let display = display();
        let mut page = Page::open(&display);
        let mut other = Page::open(&display);
        let old = page.state().1;
        assert!(page.say(Said::Drawn(old)));
        let lit = meanwhile(&display, SignBackend::light(&display), || {
            answer(&mut page, &mut other, old);
        });
        // The page out of sight confirmed before it went; the check right after says so.
        let lit = lit.await.is_ok() && display.check().await.is_ok();
        assert_eq!(lit, wanted, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_draw_the_sign_is_named_as_the_reason() {
    let display = display();
    let mut page = Page::open(&display);
    page.draw();
    let sign = handlers::Sign::new(vec![Arc::new(display.clone())], Arc::new(TokioClock::new(1_000_000)));
    let stop = CancellationToken::new();
    let mut tending = tokio::task::JoinSet::new();
    tending.spawn(Arc::clone(&sign).tend(stop.clone()));
    tokio::task::yield_now().await;
    let fault = sign.light().await.unwrap_err();
    assert_eq!(fault.to_string(), "the in-use sign (display page) did not obey: the display page has not drawn it");
    stop.cancel();
    tending.join_all().await;
    assert!(page.draw()["sign"].is_null(), "and it is not lit");
}

#[tokio::test(start_paused = true)]
async fn a_lit_page_that_closes_hides_or_falls_silent_loses_the_sign() {
    type Happening = fn(Page) -> Option<Page>;
    let rows: [(&str, Duration, Happening, Result<(), &str>); 5] = [
        (
            "control: it beats",
            Duration::from_secs(1),
            |mut page| {
                page.draw();
                Some(page)
            },
            Ok(()),
        ),
        ("just inside its time", SILENT_MAX, Some, Ok(())),
        ("silent", SILENT_MAX + Duration::from_millis(1), Some, Err("the display page fell silent")),
        (
            "hidden",
            Duration::ZERO,
            |mut page| {
                page.say(Said::Hidden);
                Some(page)
            },
            Err("the display page went out of sight"),
        ),
        ("closed", Duration::ZERO, |_page| None, Err("the display page was closed")),
    ];
    for (name, wait, happening, wanted) in rows {
        let display = display();
        let mut page = Page::open(&display);
        page.draw();
        meanwhile(&display, SignBackend::light(&display), || {
            page.draw();
        })
        .await
        .unwrap();
        tokio::time::advance(wait).await;
        let _page = happening(page);
        assert_eq!(display.check().await, wanted.map_err(|reason| SignFault::Lost(reason.to_owned())), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_counts_when_it_is_drawn() {
    type Answer = fn(&mut Page) -> bool;
    let rows: [(&str, Answer, Option<&str>); 4] = [
        ("control: drawn", |page| page.draw()["content"]["text"] == "hello", None),
        ("not drawn in time", |_page| true, Some("the display page did not say that it drew this")),
        (
            "failed",
            |page| {
                let nonce = page.state().1;
                page.say(Said::Failed(nonce))
            },
            Some("the display page could not draw the picture"),
        ),
        (
            "failed, and drawn by a later beat of the same state",
            |page| {
                let nonce = page.state().1;
                page.say(Said::Failed(nonce)) && page.say(Said::Drawn(nonce))
            },
            Some("the display page could not draw the picture"),
        ),
    ];
    for (name, answer, wanted) in rows {
        let display = display();
        let mut page = Page::open(&display);
        page.draw();
        let drawn =
            meanwhile(&display, display.show(shown("hello"), CancellationToken::new()), || assert!(answer(&mut page)))
                .await;
        assert_eq!(drawn, wanted.map_or(Ok(()), |reason| Err(Fault::Failed(reason.to_owned()))), "{name}");
    }
    let none = display().show(shown("hello"), CancellationToken::new()).await;
    assert!(matches!(none, Err(Fault::Unavailable(reason)) if reason.contains("no display page is open")));
}

#[tokio::test(start_paused = true)]
async fn a_picture_is_fetched_once_by_the_page_it_was_named_to() {
    let display = display();
    let mut page = Page::open(&display);
    page.draw();
    let mut path = None;
    meanwhile(&display, display.show(picture(), CancellationToken::new()), || {
        path = page.draw()["content"]["picture"].as_str().map(str::to_owned);
    })
    .await
    .unwrap();
    let token = Token::parse(path.unwrap().strip_prefix("/display/picture/").unwrap()).unwrap();
    assert_eq!(display.picture(Token([9; 24])), None, "an invented path");
    let (mime, bytes) = display.picture(token).unwrap();
    assert_eq!((mime, bytes.as_ref()), ("image/png", &b"pixels"[..]));
    assert_eq!(display.picture(token), None, "a path works once");
    assert!(page.draw()["content"]["picture"].is_null(), "the page keeps what it has");
    display.clear();
    assert!(page.draw()["content"].is_null());
}

#[tokio::test(start_paused = true)]
async fn pages_are_those_that_this_process_minted_and_not_too_many() {
    let display = display();
    assert!(display.connect(Token([9; 24])).is_none(), "a page nobody minted");
    let first = Page::open(&display);
    let id = first.id;
    let again = display.connect(id).unwrap();
    assert!(first.stream.state().is_none(), "a second stream takes the place of the first");
    drop(first.stream);
    assert!(again.state().is_some(), "and the end of the first does not close the second");
    drop(again);
    assert!(display.connect(id).is_some(), "a broken stream opens again");
    let pages: Vec<_> = (0..VIEWERS_MAX).map(|_| Page::open(&display)).collect();
    assert!(display.connect(display.mint()).is_none(), "one page too many");
    drop(pages);
    assert!(display.connect(display.mint()).is_some());
    assert!(!display.hear(Token([9; 24]), 1, Said::Hidden), "a page that is not open");
}

#[tokio::test(start_paused = true)]
async fn what_was_shown_goes_with_its_ownership_and_its_grant_also_when_nobody_told_of_it() {
    let grants = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let before = grants(&["camera", "display.text"]);
    let rows: [(&str, u64, Vec<String>, bool); 5] = [
        ("control: nothing changed", 1, before.clone(), true),
        ("another grant is off", 1, grants(&["display.text"]), true),
        ("one more is on", 1, grants(&["camera", "display.text", "display.image"]), true),
        ("the grant to show is off", 1, grants(&["camera"]), false),
        ("another owner, with the same grants", 2, before.clone(), false),
    ];
    for (name, ownership, now, stays) in rows {
        let display = display();
        display.hold_against(1, &before);
        let mut page = Page::open(&display);
        page.draw();
        let text = display.show(shown("hello"), CancellationToken::new());
        meanwhile(&display, text, || assert_eq!(page.draw()["content"]["text"], "hello")).await.unwrap();
        display.hold_against(ownership, &now);
        assert_eq!(page.draw()["content"].is_object(), stays, "{name}");
    }
}
