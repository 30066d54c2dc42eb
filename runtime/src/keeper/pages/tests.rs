//! The stream of states, in paused time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::VecDeque;
use std::pin::{Pin, pin};

use futures_util::StreamExt;
use handlers::TokioClock;

use super::*;
use crate::boot::SystemChance;

fn display() -> Display {
    Display::new(Arc::new(TokioClock::new(1_000_000)), Arc::new(SystemChance), false)
}

type Item = Option<Result<Bytes, Infallible>>;

fn text(item: Item) -> String {
    let Ok(bytes) = item.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn nonce(state: &str) -> Token {
    let json = state.strip_prefix("event: state\ndata: ").unwrap();
    let state: serde_json::Value = serde_json::from_str(json).unwrap();
    Token::parse(state["nonce"].as_str().unwrap()).unwrap()
}

/// What the stream gives without waiting.
fn at_once(stream: Pin<&mut impl Stream<Item = Result<Bytes, Infallible>>>) -> Option<String> {
    let mut stream = stream;
    stream.next().now_or_never().map(text)
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_together_with_a_tick_is_told() {
    let display = display();
    let connected = display.connect(display.mint()).unwrap();
    let mut stream = pin!(states(connected, display.changes(), CancellationToken::new()));
    assert!(text(stream.next().await).starts_with("event: state"));
    // Which of the two comes first is chance.
    for round in 0..64 {
        tokio::time::advance(TICK).await;
        display.post(|board| board.name = format!("round {round}"));
        let told = [text(stream.next().await), text(stream.next().await)].concat();
        assert!(told.contains(&format!("\"round {round}\"")), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_behind_is_still_heard_when_changes_flood() {
    const BEHIND: Duration = Duration::from_millis(500);
    let display = display();
    let page = display.mint();
    let mut stream = pin!(states(display.connect(page).unwrap(), display.changes(), CancellationToken::new()));
    let mut drawing: VecDeque<(Instant, Token)> = VecDeque::new();
    let (mut said, mut heard) = (0, 0);
    for number in 0..2_000 {
        display.post(|board| board.name = number.to_string());
        while let Some(told) = at_once(stream.as_mut()) {
            if told.starts_with("event: state") {
                drawing.push_back((Instant::now() + BEHIND, nonce(&told)));
            }
        }
        while let Some((_, nonce)) = drawing.pop_front_if(|(due, _)| *due <= Instant::now()) {
            said += 1;
            heard += u64::from(display.hear(page, said, Said::Drawn(nonce)));
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(heard >= 20, "{heard} of {said} answers counted in two seconds");
    assert_eq!(heard, said);
}
