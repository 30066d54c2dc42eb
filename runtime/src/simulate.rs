//! Hardware that only pretends: for `latchkeyd run --simulate`, the benchmark and whole-system tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::camera::SimulatedCamera;
use handlers::{Content, Fault, Screen, Shown, SimulatedSign};
use tokio_util::sync::CancellationToken;
use wire::text::visible;

use crate::keeper::display::Display;

/// What a simulated device has in place of hardware; clones share everything.
#[derive(Clone)]
pub struct Simulation {
    /// The camera.
    pub camera: SimulatedCamera,
    /// The sign.
    pub sign: SimulatedSign,
    /// The screen.
    pub screen: SimulatedScreen,
}

impl Simulation {
    /// Hardware that works. `say` gets a line for each thing that a person would see.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let say: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(say);
        let of_sign = Arc::clone(&say);
        let sign = SimulatedSign::new(move |lit| {
            of_sign(if lit { "simulated sign: ON, the camera is in use" } else { "simulated sign: off" });
        });
        Self { camera: SimulatedCamera::new(), sign, screen: SimulatedScreen::new(say) }
    }
}

/// A screen that draws in one line of text, and remembers; clones share everything.
#[derive(Clone)]
pub struct SimulatedScreen {
    say: Arc<dyn Fn(&str) + Send + Sync>,
    count: Arc<AtomicU64>,
    last: Arc<Mutex<Option<Shown>>>,
}

impl SimulatedScreen {
    fn new(say: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self { say, count: Arc::default(), last: Arc::default() }
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
            screen.draw(shown);
            Ok(())
        }
        .boxed()
    }

    fn present(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "simulated screen".to_owned()
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
        true
    }

    fn describe(&self) -> String {
        format!("simulated screen; {}", self.page.describe())
    }
}
