//! Where a picture or a sound goes: a file that appears whole or not at all, a pipe, or stdout.
//!
//! Checked before anything is captured, so that nothing is captured for nothing.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::{Path, PathBuf};

use latchkey_controller::values::Media;
use serde_json::json;

use super::calls::Line;
use super::problem::Problem;
use super::session::Session;

/// Where a capture goes.
pub(super) enum Target {
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
    pub(super) fn new(output: &Path, json: bool) -> Result<Self, Problem> {
        if output == Path::new("-") {
            return match (json, stdout().is_terminal()) {
                (true, _) => Err(Problem::usage("stdout cannot carry both the file and --json; name a file")),
                (false, true) => {
                    Err(Problem::usage("a capture does not fit a terminal; name a file, or send stdout elsewhere"))
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
            return Err(Problem::usage(format!("there is no folder {}; nothing was captured", folder.display())));
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
        "{} cannot be written: {error}; the capture is lost, nothing was left there",
        path.display()
    ))
}

/// Writes what was captured and says where it is.
pub(super) fn deliver(
    session: &Session,
    line: &Line,
    (target, output): (&Target, &Path),
    media: &Media,
) -> Result<(), Problem> {
    target.write(&media.bytes)?;
    let (file, bytes) = (output.display(), media.bytes.len());
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
