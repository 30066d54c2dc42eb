//! `snapshot` and `show`: pictures from a device, texts and pictures to one.

use std::path::Path;

use latchkey_controller::values::{self, SNAPSHOT, picture_mime};
use serde_json::{Value, json};
use wire::declaration::DISPLAY_IMAGE_BYTES_MAX;
use wire::json::Object;

use super::args;
use super::calls::{Line, parse_capability, read_file};
use super::problem::Problem;
use super::session::Session;
use super::target::{Target, deliver};

pub(crate) async fn snapshot(session: &Session, snapshot: &args::Snapshot) -> Result<(), Problem> {
    let target = Target::new(&snapshot.output, session.screen.json)?;
    let capability = parse_capability(SNAPSHOT)?;
    let line = Line::open(session, &snapshot.device, capability.clone(), &snapshot.sending).await?;
    let value = line.invoke(session, Object::new()).await?;
    let no_picture = || Problem::failed("the device answered no picture");
    let media = values::check(&capability, &value).ok().flatten().ok_or_else(no_picture)?;
    deliver(session, &line, (&target, &snapshot.output), &media)
}

/// What to show, and by which capability.
struct Showing {
    capability: &'static str,
    arguments: Object,
}

impl Showing {
    fn text(text: &str) -> Self {
        let mut arguments = Object::new();
        arguments.insert("text", text);
        Self { capability: "display.text", arguments }
    }

    fn new(what: &str, force_text: bool) -> Result<Self, Problem> {
        let path = Path::new(what);
        if force_text {
            return Ok(Self::text(what));
        }
        if !path.is_file() {
            let lower = what.to_ascii_lowercase();
            let like_a_picture = [".jpg", ".jpeg", ".png"].iter().any(|end| lower.ends_with(end));
            if like_a_picture && !what.contains(char::is_whitespace) {
                return Err(Problem::usage(format!("there is no file {what}; if it is a text, add --text")));
            }
            return Ok(Self::text(what));
        }
        let bytes = read_file(path, DISPLAY_IMAGE_BYTES_MAX)
            .map_err(|error| Problem::usage(format!("{what} cannot be read: {error}")))?;
        let Some(mime) = picture_mime(&bytes) else {
            return Err(Problem::usage(format!(
                "{what} is a file, and neither JPEG nor PNG; to show the word itself add --text, to show what is in it: latchkey show DEVICE --text \"$(cat {what})\""
            )));
        };
        if bytes.len() > DISPLAY_IMAGE_BYTES_MAX {
            return Err(Problem::usage(format!(
                "{what} has more than the {DISPLAY_IMAGE_BYTES_MAX} bytes that a display takes; make it smaller"
            )));
        }
        let mut arguments = Object::new();
        arguments.insert("mime", mime);
        arguments.insert("data", wire::text::base64_encode(&bytes));
        Ok(Self { capability: "display.image", arguments })
    }
}

pub(crate) async fn show(session: &Session, show: &args::Show) -> Result<(), Problem> {
    let Showing { capability, arguments } = Showing::new(&show.what, show.text)?;
    let line = Line::open(session, &show.device, parse_capability(capability)?, &show.sending).await?;
    let value = line.invoke(session, arguments).await?;
    if session.screen.json {
        let document = json!({
            "device": line.device.name, "id": line.id, "capability": capability, "value": Value::from(value),
        });
        session.screen.json(&document)?;
    } else {
        session.screen.line(&format!("shown on {}", line.device.name))?;
    }
    Ok(())
}
