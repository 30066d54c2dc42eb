//! The display as the ports that the handlers know: a screen, and a backend of the in-use sign.

use std::time::Duration;

use config::SignCarrier;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::{Fault, Screen, Shown, SignBackend, SignFault};
use tokio_util::sync::CancellationToken;

use super::{Display, OnStage, bump};

/// How long a page has to draw and confirm the sign: inside the two seconds that any backend has to answer, so that the reason is still
/// told. Two frames take 33 ms; a small machine under load is given fifty times that.
const LIGHT_MAX: Duration = Duration::from_millis(1_800);

/// How long a page has to draw what it was given; inside the five seconds of `display.text` and `display.image`.
const DRAW_MAX: Duration = Duration::from_secs(4);

impl Display {
    async fn draw(&self, shown: Shown) -> Result<(), Fault> {
        let _turn = self.inner.turn.lock().await;
        let number = {
            let mut stage = self.inner.stage();
            stage.present(self.where_to_open()).map_err(Fault::Unavailable)?;
            stage.contents = stage.contents.saturating_add(1);
            let number = stage.contents;
            stage.content = Some(OnStage { number, shown, at_ms: self.inner.clock.wall_ms() });
            stage.pictures.clear();
            number
        };
        bump(&self.inner.changed);
        let drawn = self.until(DRAW_MAX, |stage, _now| {
            if stage.viewers.values().any(|viewer| viewer.visible && viewer.drawn_content >= number) {
                return Some(Ok(()));
            }
            if stage.viewers.is_empty() {
                return Some(Err("the display page was closed before it drew this"));
            }
            let failed = stage.viewers.values().all(|viewer| viewer.failed_content >= number);
            failed.then_some(Err("the display page could not draw the picture"))
        });
        match drawn.await {
            Some(drawn) => drawn.map_err(|reason| Fault::Failed(reason.to_owned())),
            None => Err(Fault::Failed("the display page did not say that it drew this".to_owned())),
        }
    }

    async fn light_up(&self) -> Result<(), SignFault> {
        let lighting = {
            let mut stage = self.inner.stage();
            if let Err(reason) = stage.present(self.where_to_open()) {
                return Err(SignFault::NotReady { sign: self.name(), reason });
            }
            stage.lightings = stage.lightings.saturating_add(1);
            stage.sign_lit = true;
            stage.lightings
        };
        bump(&self.inner.changed);
        let lit = self.until(LIGHT_MAX, |stage, now| stage.carried(now).is_ok().then_some(()));
        if lit.await.is_some() {
            return Ok(());
        }
        let reason = self.inner.stage().carried(self.inner.clock.boot()).err();
        self.go_dark(Some(lighting));
        Err(SignFault::Unconfirmed { sign: self.name(), reason: reason.unwrap_or("it answered too late").to_owned() })
    }

    /// Takes the sign off the page; of a certain lighting only, if one is named.
    fn go_dark(&self, lighting: Option<u64>) {
        let mut stage = self.inner.stage();
        if lighting.is_none_or(|lighting| lighting == stage.lightings) {
            stage.sign_lit = false;
        }
        drop(stage);
        bump(&self.inner.changed);
    }
}

impl Screen for Display {
    fn show(&self, shown: Shown, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let display = self.clone();
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => Err(Fault::Stopped),
                drawn = display.draw(shown) => drawn,
            }
        }
        .boxed()
    }

    fn present(&self) -> bool {
        self.inner.stage().present("").is_ok()
    }

    fn describe(&self) -> String {
        match self.inner.stage().present(self.where_to_open()) {
            Ok(()) => format!("display page {}", self.where_to_open()),
            Err(reason) => reason,
        }
    }
}

impl SignBackend for Display {
    fn name(&self) -> String {
        "display page".to_owned()
    }

    fn simulated(&self) -> bool {
        self.inner.simulated
    }

    fn carrier(&self) -> Option<SignCarrier> {
        Some(SignCarrier::Display)
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let display = self.clone();
        async move { display.light_up().await }.boxed()
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let carried = self.inner.stage().carried(self.inner.clock.boot());
        let carried = carried.map_err(|reason| SignFault::Lost(reason.to_owned()));
        std::future::ready(carried).boxed()
    }

    fn ready(&self) -> Result<(), SignFault> {
        let present = self.inner.stage().present(self.where_to_open());
        present.map_err(|reason| SignFault::NotReady { sign: SignBackend::name(self), reason })
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.go_dark(None);
        std::future::ready(Ok(())).boxed()
    }
}
