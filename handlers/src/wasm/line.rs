//! The parent's end of the two pipes to a handler's process.
//!
//! Owns what was read and is no whole frame yet, and what is still to be written. Used by `workshop` and `handler`. Refuses what
//! [`frame`] refuses; whoever gets an error here gives up the process, since nothing behind it can be trusted to be in step. Reading
//! and writing go on together: a process that waits for us to read never waits for ever because we wait for it.

use std::collections::VecDeque;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::frame::{self, FrameError, ToChild};

/// What is read at once: a pipe's usual room.
const READ_BYTES: usize = 64 * 1024;
/// Frames that may wait to be written. A process that asks and asks and never reads is given up here.
const WAITING_FRAMES_MAX: usize = 64;

/// Where a process's frames come from.
pub(crate) type From = Box<dyn AsyncRead + Send + Unpin>;
/// Where frames for a process go.
pub(crate) type To = Box<dyn AsyncWrite + Send + Unpin>;

/// Both pipes.
pub(crate) struct Line {
    reader: Reader,
    writer: Writer,
}

struct Reader {
    from: From,
    bytes: Vec<u8>,
}

struct Writer {
    to: To,
    frames: VecDeque<Vec<u8>>,
    /// How much of the first frame is written.
    written: usize,
}

impl Line {
    pub(crate) fn new(from: From, to: To) -> Self {
        let reader = Reader { from, bytes: Vec::new() };
        Self { reader, writer: Writer { to, frames: VecDeque::new(), written: 0 } }
    }

    /// Puts a message behind those that wait; it is written while the next frame is awaited.
    ///
    /// # Errors
    /// When it is too long, or too many wait.
    pub(crate) fn say(&mut self, message: &ToChild) -> Result<(), FrameError> {
        self.say_encoded(frame::encode(message, frame::TO_CHILD_BYTES_MAX)?)
    }

    /// Like [`Line::say`], for a message that was encoded elsewhere because it is long.
    ///
    /// # Errors
    /// When too many wait.
    pub(crate) fn say_encoded(&mut self, frame: Vec<u8>) -> Result<(), FrameError> {
        let frames = &mut self.writer.frames;
        if frames.len() >= WAITING_FRAMES_MAX {
            return Err(FrameError::Form("it asks without reading".to_owned()));
        }
        frames.push_back(frame);
        Ok(())
    }

    /// The next message. May be dropped and asked again: nothing is lost.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub(crate) async fn hear<T: DeserializeOwned>(&mut self, bytes_max: usize) -> Result<T, FrameError> {
        frame::decode(&self.hear_encoded(bytes_max).await?)
    }

    /// Like [`Line::hear`], for a message that is decoded elsewhere because it is long.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub(crate) async fn hear_encoded(&mut self, bytes_max: usize) -> Result<Vec<u8>, FrameError> {
        let (reader, writer) = (&mut self.reader, &mut self.writer);
        loop {
            tokio::select! {
                biased;
                written = writer.write(), if !writer.frames.is_empty() => match written {
                    // It may have said why before it ended; that comes first.
                    Err(FrameError::Ended) => writer.frames.clear(),
                    other => other?,
                },
                frame = reader.next(bytes_max) => return frame,
            }
        }
    }
}

impl Reader {
    async fn next(&mut self, bytes_max: usize) -> Result<Vec<u8>, FrameError> {
        loop {
            if let Some(frame) = self.whole(bytes_max)? {
                return Ok(frame);
            }
            // Grows as bytes come, so that an announced length alone costs nothing.
            self.bytes.reserve(READ_BYTES);
            if self.from.read_buf(&mut self.bytes).await.map_err(ended)? == 0 {
                return Err(FrameError::Ended);
            }
        }
    }

    /// The first frame, if all of it is here.
    fn whole(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = frame::length(*head, bytes_max)?;
        if rest.len() < length {
            return Ok(None);
        }
        let behind = self.bytes.split_off(length.saturating_add(4));
        let mut frame = std::mem::replace(&mut self.bytes, behind);
        frame.drain(..4);
        Ok(Some(frame))
    }
}

impl Writer {
    async fn write(&mut self) -> Result<(), FrameError> {
        while let Some(frame) = self.frames.front() {
            let rest = frame.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                self.frames.pop_front();
                self.written = 0;
                continue;
            }
            match self.to.write(rest).await.map_err(ended)? {
                0 => return Err(FrameError::Ended),
                bytes => self.written = self.written.saturating_add(bytes),
            }
        }
        self.to.flush().await.map_err(ended)
    }
}

fn ended(error: std::io::Error) -> FrameError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::BrokenPipe => FrameError::Ended,
        _ => FrameError::Pipe(error),
    }
}

#[cfg(test)]
mod tests;
