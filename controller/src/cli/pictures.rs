//! `snapshot` and `show`: pictures from a device, texts and pictures to one.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::{Path, PathBuf};

use latchkey_controller::values::{self, SNAPSHOT, picture_mime};
use serde_json::{Value, json};
use wire::declaration::DISPLAY_IMAGE_BYTES_MAX;
use wire::json::Object;

use super::args;
use super::calls::{Line, parse_capability, read_file};
use super::problem::Problem;
use super::session::Session;

/// Where a picture goes, checked before one is taken.
enum Target {
    Stdout,
    /// A file that appears whole or not at all, made in `folder`.
    File {
        path: PathBuf,
        folder: PathBuf,
    },
    /// A pipe or a device, which cannot be replaced.
    Stream(PathBuf),
}

impl Target {
    fn new(output: &Path, json: bool) -> Result<Self, Problem> {
        if output == Path::new("-") {
            return match (json, stdout().is_terminal()) {
                (true, _) => Err(Problem::usage("stdout cannot carry both the picture and --json; name a file")),
                (false, true) => {
                    Err(Problem::usage("a picture does not fit a terminal; name a file, or send stdout elsewhere"))
                }
                (false, false) => Ok(Self::Stdout),
            };
        }
        let path = match std::fs::metadata(output) {
            Ok(there) if there.is_dir() => {
                return Err(Problem::usage(format!("{} is a folder; name a file in it", output.display())));
            }
            Ok(there) if !there.is_file() => return Ok(Self::Stream(output.to_owned())),
            // Behind a symbolic link the file is replaced, not the link.
            Ok(_) => std::fs::canonicalize(output).unwrap_or_else(|_| output.to_owned()),
            Err(_) => output.to_owned(),
        };
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        if !folder.is_dir() {
            return Err(Problem::usage(format!("there is no folder {}; no picture was taken", folder.display())));
        }
        Ok(Self::File { path, folder })
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Problem> {
        match self {
            Self::Stdout => {
                let mut out = stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())?;
            }
            Self::Stream(path) => {
                let open = std::fs::OpenOptions::new().write(true).open(path);
                open.and_then(|mut file| file.write_all(bytes)).map_err(|error| cannot_write(path, &error))?;
            }
            Self::File { path, folder } => {
                let whole = || {
                    let mut file = tempfile::NamedTempFile::new_in(folder)?;
                    file.write_all(bytes)?;
                    file.as_file().sync_all()?;
                    file.persist(path).map_err(|error| error.error)?;
                    Ok(())
                };
                whole().map_err(|error| cannot_write(path, &error))?;
            }
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Problem {
    Problem::failed(format!(
        "{} cannot be written: {error}; the picture is lost, nothing was left there",
        path.display()
    ))
}

pub(crate) async fn snapshot(session: &Session, snapshot: &args::Snapshot) -> Result<(), Problem> {
    let target = Target::new(&snapshot.output, session.screen.json)?;
    let capability = parse_capability(SNAPSHOT)?;
    let line = Line::open(session, &snapshot.device, capability.clone(), &snapshot.sending).await?;
    let value = line.invoke(session, Object::new()).await?;
    let no_picture = || Problem::failed("the device answered no picture");
    let media = values::check(&capability, &value).ok().flatten().ok_or_else(no_picture)?;
    target.write(&media.bytes)?;
    let file = snapshot.output.display();
    let bytes = media.bytes.len();
    if session.screen.json {
        let document = json!({
            "device": line.device.name, "id": line.id, "file": file.to_string(), "mime": media.mime, "bytes": bytes,
        });
        session.screen.json(&document)?;
    } else if matches!(target, Target::Stdout) {
        session.screen.note(&format!("{bytes} bytes, {}", media.mime));
    } else {
        session.screen.line(&format!("{file}: {bytes} bytes, {}", media.mime))?;
    }
    Ok(())
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
