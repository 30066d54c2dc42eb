//! A screen that only pretends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::{Content, Fault, Planned, Screen, Shown, Trouble, Troubles};
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use crate::keeper::display::Display;

/// How a simulated screen misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenTrouble {
    /// There is none.
    Missing,
    /// It never says that it has drawn.
    Hangs,
    /// It says that it could not draw.
    Fails,
}

impl Trouble for ScreenTrouble {
    const PART: &'static str = "screen";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("missing", Self::Missing, "there is no screen, so nothing is shown"),
        ("hang", Self::Hangs, "it never says that it has drawn"),
        ("fail", Self::Fails, "it says that it could not draw"),
    ];
}

const NO_SCREEN: &str = "the simulated screen is told to be missing";

/// A screen that draws in one line of text, and remembers; clones share everything.
#[derive(Clone)]
pub struct SimulatedScreen {
    say: Arc<dyn Fn(&str) + Send + Sync>,
    count: Arc<AtomicU64>,
    last: Arc<Mutex<Option<Shown>>>,
    troubles: Arc<Mutex<Troubles<ScreenTrouble>>>,
}

impl SimulatedScreen {
    pub(super) fn new(say: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self { say, count: Arc::default(), last: Arc::default(), troubles: Arc::default() }
    }

    /// How many things it has shown.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// What it shows now.
    #[must_use]
    pub fn last(&self) -> Option<Shown> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<ScreenTrouble>>) {
        *self.troubles.lock().unwrap_or_else(PoisonError::into_inner) = Troubles::planned(planned);
    }

    fn trouble(&self) -> Option<ScreenTrouble> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).first()
    }

    fn draw(&self, shown: Shown) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let what = match &shown.content {
            Content::Text(text) => format!("\"{}\"", visible(text)),
            Content::Image { mime, width, height, .. } => format!("a picture, {} {width}x{height}", mime.as_mime()),
        };
        (self.say)(&format!("simulated screen: {} shows {what}", visible(shown.agent.as_str())));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
    }
}

impl Screen for SimulatedScreen {
    fn show(&self, shown: Shown, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let screen = self.clone();
        async move {
            if stop.is_cancelled() {
                return Err(Fault::Stopped);
            }
            match screen.trouble() {
                Some(ScreenTrouble::Missing) => return Err(Fault::Unavailable(NO_SCREEN.to_owned())),
                Some(ScreenTrouble::Fails) => {
                    return Err(Fault::Failed("the simulated screen was told that it cannot draw".to_owned()));
                }
                Some(ScreenTrouble::Hangs) => {
                    stop.cancelled().await;
                    return Err(Fault::Stopped);
                }
                None => screen.draw(shown),
            }
            Ok(())
        }
        .boxed()
    }

    fn present(&self) -> bool {
        self.trouble() != Some(ScreenTrouble::Missing)
    }

    fn describe(&self) -> String {
        if self.present() { "simulated screen" } else { NO_SCREEN }.to_owned()
    }
}

/// The simulated screen, and the page beside it when one is open.
#[derive(Clone)]
pub(crate) struct BothScreens {
    pub(crate) simulated: SimulatedScreen,
    pub(crate) page: Display,
}

impl Screen for BothScreens {
    fn show(&self, shown: Shown, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let both = self.clone();
        async move {
            both.simulated.show(shown.clone(), stop.clone()).await?;
            if both.page.present()
                && let Err(error) = both.page.show(shown, stop).await
            {
                tracing::info!(%error, "the display page did not follow the simulated screen");
            }
            Ok(())
        }
        .boxed()
    }

    fn present(&self) -> bool {
        self.simulated.present()
    }

    fn describe(&self) -> String {
        format!("{}; {}", self.simulated.describe(), self.page.describe())
    }
}
