//! From a bus of cameras to one source of pictures: which node is the chosen one, which mode it is set to, and what its errors mean.
//!
//! A camera that was named is that camera or none: the name is looked up for each capture, and again before the picture leaves, so that a camera
//! that takes over the number of one that was pulled out is never taken for it. Nothing stays open between captures.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::bus::{About, Agreed, Bus, Feed, Mode, Node, NodeId, Place, Size};
use super::colour::Coding;
use super::frame::{Frame, PixelFormat};
use super::mode::ranked;
use super::mute::Mute;
use super::{CameraChoice, CameraFault, FoundCamera, Post, Source, Stream};
use crate::clock::{Clock as _, SystemClock};

/// The cameras of a bus, as one source.
pub(super) struct Adapter<B> {
    bus: Arc<B>,
    choice: CameraChoice,
    wanted: Size,
    simulated: bool,
    post: Arc<Post>,
    /// Modes that sent nothing.
    mute: Arc<Mute>,
}

impl<B: Bus> Adapter<B> {
    pub(super) fn new(bus: Arc<B>, choice: CameraChoice, wanted: Size, simulated: bool, post: Arc<Post>) -> Self {
        Self { bus, choice, wanted, simulated, post, mute: Arc::default() }
    }

    /// The chosen camera, open, with the path by which it was chosen.
    fn chosen(&self) -> Result<(PathBuf, Box<dyn Node>), CameraFault> {
        match &self.choice {
            CameraChoice::First => self.first(),
            CameraChoice::Named(name) => self.named(name),
        }
    }

    /// The camera called `name`, or why it cannot be used.
    fn named(&self, name: &str) -> Result<(PathBuf, Box<dyn Node>), CameraFault> {
        let candidates = if name.starts_with('/') {
            vec![PathBuf::from(name)]
        } else {
            [Place::Kind, Place::Plug].map(|place| place.folder().join(name)).to_vec()
        };
        let found = candidates.into_iter().find(|path| self.bus.node_at(path).is_some());
        let path = found.ok_or_else(|| self.missing(name))?;
        match opened(&*self.bus, &path) {
            Ok((node, about)) if about.is_camera() => Ok((path, node)),
            Ok(_) => Err(CameraFault::Unusable(format!("{name} is not a camera that captures video"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing(name)),
            Err(error) => Err(cannot_open(&path, &error)),
        }
    }

    fn missing(&self, name: &str) -> CameraFault {
        let others = Place::ALL.iter().any(|place| !self.bus.paths(*place).is_empty());
        let other = if others { "; another one is, and never takes its place" } else { "" };
        CameraFault::Missing(format!("the camera {name} is not connected{other}"))
    }

    /// The first node that captures video. One that cannot be opened is passed over, and named if there is no other.
    fn first(&self) -> Result<(PathBuf, Box<dyn Node>), CameraFault> {
        let mut refused = None;
        for path in Place::ALL.iter().flat_map(|place| self.bus.paths(*place)) {
            match opened(&*self.bus, &path) {
                Ok((node, about)) if about.is_camera() => return Ok((path, node)),
                Ok(_) => {}
                Err(error) => refused = refused.or(Some(cannot_open(&path, &error))),
            }
        }
        Err(refused.unwrap_or_else(|| CameraFault::Missing("there is no camera on this device".to_owned())))
    }

    /// Sets the best mode that the node agrees to. It may answer with another size, format and row length than asked; those count.
    fn set_mode(&self, node: &mut dyn Node) -> Result<(Mode, Agreed, PixelFormat), CameraFault> {
        let mute = self.mute.known(SystemClock.boot());
        let (modes, offered) = ranked(node, self.wanted, &mute).map_err(|error| fault("list formats", &error))?;
        let mut refused = None;
        for mode in modes {
            match node.set(mode) {
                Ok(agreed) => {
                    if let Some(format) = agreed.format() {
                        tracing::debug!(?format, ?agreed, interval = ?mode.interval, "camera mode");
                        return Ok((mode, agreed, format));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    refused = Some(fault("set the mode", &error))
                }
                Err(error) => return Err(fault("set the mode", &error)),
            }
        }
        let offered: Vec<String> = offered.iter().map(|code| code.escape_ascii().to_string()).collect();
        Err(refused.unwrap_or_else(|| {
            CameraFault::Unusable(format!("the camera offers no known picture format, only {}", offered.join(" ")))
        }))
    }
}

/// An open node and what it says that it is. What is no node of the camera interface at all says nothing.
fn opened(bus: &impl Bus, path: &Path) -> io::Result<(Box<dyn Node>, About)> {
    let node = bus.open(path)?;
    let about = match node.about() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
            About { capabilities: 0, card: String::new() }
        }
        about => about?,
    };
    Ok((node, about))
}

fn cannot_open(path: &Path, error: &io::Error) -> CameraFault {
    match error.kind() {
        io::ErrorKind::PermissionDenied => CameraFault::Forbidden(format!(
            "this program may not open {}; add its user to the group video",
            path.display()
        )),
        _ => fault("open", error),
    }
}

/// What an error of the system means. Busy may come at any step: from opening, setting the mode, asking for buffers, or starting.
fn fault(step: &str, error: &io::Error) -> CameraFault {
    match error.raw_os_error() {
        Some(libc::EBUSY) => CameraFault::Busy,
        Some(libc::ENODEV | libc::ENXIO) => CameraFault::Unplugged,
        _ => CameraFault::Driver(format!("{error} (at {step})")),
    }
}

impl<B: Bus> Source for Adapter<B> {
    fn name(&self) -> String {
        match &self.choice {
            CameraChoice::First => "first camera of the system".to_owned(),
            CameraChoice::Named(name) => name.clone(),
        }
    }

    fn simulated(&self) -> bool {
        self.simulated
    }

    fn post(&self) -> Arc<Post> {
        Arc::clone(&self.post)
    }

    fn open(&self) -> Result<Box<dyn Stream>, CameraFault> {
        let (path, mut node) = self.chosen()?;
        let (mode, agreed, format) = self.set_mode(&mut *node)?;
        let id = node.id();
        let feed = node.start().map_err(|error| fault("start", &error))?;
        let bus = Arc::clone(&self.bus);
        let chosen: Box<dyn Fn() -> bool> = Box::new(move || bus.node_at(&path) == Some(id));
        let mute = Arc::clone(&self.mute);
        Ok(Box::new(Running { feed, mode, agreed, format, chosen, mute }))
    }
}

struct Running {
    feed: Box<dyn Feed>,
    /// What was asked for.
    mode: Mode,
    agreed: Agreed,
    format: PixelFormat,
    /// Whether the name still leads to what was opened.
    chosen: Box<dyn Fn() -> bool>,
    mute: Arc<Mute>,
}

impl Stream for Running {
    fn next(&mut self, wait: Duration) -> Result<Option<Frame>, CameraFault> {
        let taken = match self.feed.wait(wait) {
            Ok(false) => return Ok(None),
            Ok(true) => self.feed.take().map_err(|error| fault("read", &error)),
            Err(error) => Err(fault("wait", &error)),
        };
        let taken = taken?;
        if taken.is_some() {
            self.mute.forget(self.mode);
        }
        Ok(taken.map(|taken| Frame {
            format: self.format,
            width: self.agreed.size.width,
            height: self.agreed.size.height,
            stride: self.agreed.stride,
            coding: Coding::of(self.agreed.colours, self.format),
            bytes: taken.bytes,
            damaged: taken.damaged,
        }))
    }

    fn is_chosen(&self) -> bool {
        (self.chosen)()
    }

    fn gave_nothing(&self) {
        self.mute.add(self.mode, SystemClock.boot());
    }
}

/// Every camera of the bus once, by the most lasting name that it has. Opens each node to ask what it is, and starts none.
pub(super) fn list(bus: &impl Bus) -> Vec<FoundCamera> {
    let mut found: Vec<(NodeId, FoundCamera)> = Vec::new();
    for (place, path) in
        Place::ALL.iter().flat_map(|place| bus.paths(*place).into_iter().map(move |path| (*place, path)))
    {
        let Some(node) = bus.node_at(&path) else { continue };
        if let Some((_, known)) = found.iter_mut().find(|(known, _)| *known == node) {
            match place {
                Place::Kind | Place::Plug => known.also.extend(last_part(&path)),
                Place::Number => known.node = path,
            }
            continue;
        }
        let (name, problem) = match opened(bus, &path) {
            Ok((_, about)) if about.is_camera() => (about.card, None),
            Ok(_) => continue,
            Err(error) => (String::new(), Some(cannot_open(&path, &error).to_string())),
        };
        let id = match place {
            Place::Kind | Place::Plug => last_part(&path),
            Place::Number => None,
        };
        let id = id.unwrap_or_else(|| path.display().to_string());
        found.push((node, FoundCamera { id, name, node: path, also: Vec::new(), problem }));
    }
    found.into_iter().map(|(_, camera)| camera).collect()
}

fn last_part(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
