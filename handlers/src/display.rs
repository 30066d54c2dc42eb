//! `display.text` and `display.image`.
//!
//! Called by their capability actors; hand what is fit to be shown to the [`Screen`]. Refuse a picture whose bytes are not what its
//! declared type says, that is cut off, or that would take too much memory or time to show. A picture is gone through once here, to its last
//! pixel, before any screen sees it; what was shown before stays until then.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wire::declaration::DISPLAY_IMAGE_BYTES_MAX;
use wire::{Agent, Declaration, Object};

use crate::handler::{Call, Fault, Handler};
use crate::picture::{Picture, intake};
use crate::screen::{Content, ImageType, Screen, Shown};

/// A picture that takes longer to look at than this is refused: two seconds before the capability's own time-out, so that the reason reaches the
/// caller.
const LOOK: Duration = Duration::from_secs(3);

/// `display.text`.
pub struct DisplayText {
    declaration: Declaration,
    screen: Arc<dyn Screen>,
}

/// `display.image`.
pub struct DisplayImage {
    declaration: Declaration,
    screen: Arc<dyn Screen>,
}

impl DisplayText {
    /// Shows on `screen`.
    pub fn new(screen: Arc<dyn Screen>) -> Self {
        Self { declaration: Declaration::display_text(), screen }
    }
}

impl DisplayImage {
    /// Shows on `screen`.
    pub fn new(screen: Arc<dyn Screen>) -> Self {
        Self { declaration: Declaration::display_image(), screen }
    }
}

impl Handler for DisplayText {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let screen = Arc::clone(&self.screen);
        async move {
            let content = Content::Text(argument(&call, "text")?);
            show(&*screen, content, call.agent, call.stop).await
        }
        .boxed()
    }
}

impl Handler for DisplayImage {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let screen = Arc::clone(&self.screen);
        async move {
            let (mime, data) = (argument(&call, "mime")?, argument(&call, "data")?);
            // Decoding takes long enough to be kept from the threads that answer others.
            let (stop, clock, began) = (call.stop.clone(), Arc::clone(&call.clock), call.clock.boot());
            let wanted = move || !stop.is_cancelled() && clock.boot().since(began) < LOOK;
            let content = tokio::task::spawn_blocking(move || image(&mime, &data, &wanted))
                .await
                .map_err(|error| Fault::Failed(format!("the picture's decoder crashed: {error}")))??;
            show(&*screen, content, call.agent, call.stop).await
        }
        .boxed()
    }
}

async fn show(screen: &dyn Screen, content: Content, agent: Agent, stop: CancellationToken) -> Result<Object, Fault> {
    if stop.is_cancelled() {
        return Err(Fault::Stopped);
    }
    if !screen.present() {
        return Err(Fault::Unavailable(format!("nothing would show it: {}", screen.describe())));
    }
    screen.show(Shown { content, agent }, stop).await.map(|()| Object::new())
}

fn argument(call: &Call, member: &str) -> Result<String, Fault> {
    let text = call.arguments.string(member);
    text.map(str::to_owned).ok_or_else(|| invalid(member, "a string is needed here"))
}

fn invalid(member: &str, reason: impl Into<String>) -> Fault {
    Fault::Invalid { member: member.to_owned(), reason: reason.into() }
}

/// The picture, if it is one.
fn image(mime: &str, data: &str, wanted: &dyn Fn() -> bool) -> Result<Content, Fault> {
    let declared = ImageType::ALL.into_iter().find(|known| known.as_mime() == mime);
    let declared = declared.ok_or_else(|| invalid("mime", "only image/jpeg and image/png are shown"))?;
    let bytes = wire::text::base64_decode(data).map_err(|error| invalid("data", error.to_string()))?;
    if bytes.len() > DISPLAY_IMAGE_BYTES_MAX {
        let reason = format!("at most {DISPLAY_IMAGE_BYTES_MAX} bytes when decoded, this has {}", bytes.len());
        return Err(invalid("data", reason));
    }
    let picture = intake(declared, &bytes, wanted).map_err(|reason| invalid("data", reason))?;
    let Picture { kind, bytes, width, height } = picture;
    Ok(Content::Image { mime: kind, bytes: bytes.into(), width, height })
}

#[cfg(test)]
mod tests;
