//! What the device and a handler's process say to each other: length-prefixed CBOR on two pipes.
//!
//! Owns the messages, their version and their limits. Written and read by the parent (`workshop`) and by the child (`child`), never by
//! guest code. Refuses a frame longer than its direction and occasion allow before a byte of it is stored, and anything that is not the
//! message expected; whoever refuses a frame gives up the pipe, since what follows cannot be trusted to be in step.

use std::io::{Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Both sides are the same program, so another number means that something else is at the other end.
pub(crate) const VERSION: u32 = 1;
/// Longest frame to a child: native code of the largest file (a 12 MB component gives some 46 MB).
pub(crate) const TO_CHILD_BYTES_MAX: usize = 160 * 1024 * 1024;
/// Longest frame from a child that runs guest code: a result or an HTTP body of 1 MiB, the log, and room for names.
pub(crate) const FROM_CHILD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Longest frame from a child that compiles: native code.
pub(crate) const FROM_COMPILER_BYTES_MAX: usize = TO_CHILD_BYTES_MAX;

/// Names that a component may import; one for every interface of the system, thrice.
const IMPORTS_MAX: usize = 1024;
/// Lines of one call: more than the world's 64, which the parent counts itself.
const LOG_LINES_MAX: usize = 256;
/// Headers of one request.
const HEADERS_MAX: usize = 128;

/// A list of at most so many entries. A frame's length alone would let its reader make tens of times as much of empty ones.
fn few<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Few<T, const MAX: usize>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> serde::de::Visitor<'de> for Few<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "at most {MAX} entries")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while let Some(entry) = entries.next_element()? {
                if kept.len() >= MAX {
                    return Err(serde::de::Error::invalid_length(MAX.saturating_add(1), &self));
                }
                kept.push(entry);
            }
            Ok(kept)
        }
    }

    from.deserialize_seq(Few::<T, MAX>(std::marker::PhantomData))
}

/// What the parent says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToChild {
    /// First of all, before anything is confined.
    Start(Start),
    /// To a compiler: the one file it sees.
    Compile {
        /// A component, or its text.
        #[serde(with = "serde_bytes")]
        source: Vec<u8>,
        /// Whether it is text.
        text: bool,
    },
    /// To a runner: the native code that a compiler made. The parent has held its MAC against it.
    Load {
        /// Native code.
        #[serde(with = "serde_bytes")]
        native: Vec<u8>,
    },
    /// Runs the handler once.
    Call(CallFrame),
    /// The call is no longer wanted.
    Cancel {
        /// Which call.
        number: u64,
    },
    /// What became of a request that the handler sent.
    Http {
        /// Of the request.
        number: u64,
        /// What came back.
        answer: Result<HttpAnswer, HttpTrouble>,
    },
}

/// How a child is to live.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// What it is for.
    pub(crate) role: Role,
    /// Folders to be opened before the doors close.
    pub(crate) folders: Vec<Folder>,
    /// Whether requests may be asked of the parent.
    pub(crate) http: bool,
    /// Linear memory of one instance, in bytes.
    pub(crate) memory_bytes: usize,
    /// The longest result, in bytes.
    pub(crate) result_bytes_max: usize,
    /// Goes on where the kernel lacks Landlock: the keeper said so.
    pub(crate) accept_weak: bool,
}

/// What a child is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Compiles one file and ends; never runs guest code.
    Compile,
    /// Runs one handler.
    Run,
    /// Enters the confinement, says how it went, and ends.
    Probe,
}

/// A folder of a handler's reach, as the parent resolved it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folder {
    /// As the manifest names it; so the guest sees it.
    pub(crate) named: PathBuf,
    /// Without links.
    pub(crate) real: PathBuf,
    /// The device and inode that the parent judged; another one is refused.
    pub(crate) inode: (u64, u64),
    /// Whether it may be written.
    pub(crate) write: bool,
}

/// One call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallFrame {
    /// Its number, which its answers carry.
    pub(crate) number: u64,
    /// JSON text of one object.
    #[serde(with = "serde_bytes")]
    pub(crate) arguments: Vec<u8>,
    /// Time for all of it, in milliseconds. The parent keeps the limit; the child's own is a little later, for a parent that hangs.
    pub(crate) within_ms: u64,
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromChild {
    /// The doors are closed.
    Ready {
        /// [`VERSION`].
        version: u32,
        /// What the kernel gave.
        confinement: super::confine::Confinement,
        /// Engine version, hash of its settings and the processor: native code is good for equal text alone.
        engine: String,
    },
    /// It cannot be confined, or a folder is not the one that was judged.
    NotReady {
        /// In a sentence.
        why: String,
    },
    /// A compiler's good end.
    Compiled(Compiled),
    /// The native code is in place.
    Loaded,
    /// The file, or the code, is not a handler.
    Refused {
        /// In a sentence.
        why: String,
    },
    /// A call ended.
    Done(Done),
    /// The handler wants to send a request.
    Http {
        /// Of the request; unique in this child.
        number: u64,
        /// Of the call.
        call: u64,
        /// What is to be sent.
        request: HttpRequest,
    },
}

/// What a compiler found and made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compiled {
    /// Native code.
    #[serde(with = "serde_bytes")]
    pub(crate) native: Vec<u8>,
    /// What the component imports, sorted: `wasi:clocks/wall-clock@0.2.6`.
    #[serde(deserialize_with = "few::<_, _, IMPORTS_MAX>")]
    pub(crate) imports: Vec<String>,
    /// The bytes of its `device:handler/descriptor` section, at most 8 KiB.
    #[serde(with = "serde_bytes")]
    pub(crate) descriptor: Option<Vec<u8>>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Which call.
    pub(crate) number: u64,
    /// Its end.
    pub(crate) ended: Ended,
    /// What it logged; at most 64 lines of at most 1 KiB.
    #[serde(deserialize_with = "few::<_, _, LOG_LINES_MAX>")]
    pub(crate) log: Vec<(super::log::Level, String)>,
    /// Lines beyond the 64.
    pub(crate) log_dropped: u64,
    /// Processor time of the whole process during the call, in microseconds.
    pub(crate) cpu_us: u64,
    /// The most linear memory that its instance had, in bytes.
    pub(crate) memory_bytes: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// The guest's result: bytes that should be JSON text, not yet looked at.
    Value(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The guest said that it failed. Both texts are the guest's, cut to 200 and 1,000 bytes.
    Failed {
        /// A word.
        code: String,
        /// A line.
        message: String,
    },
    /// The guest trapped, or broke a limit or the ABI. In words of ours: `memory limit: …`, `trapped: …`.
    Trapped(String),
    /// It was cut off by the child's own clock.
    TimedOut,
    /// It was cancelled by the parent.
    Cancelled,
}

/// A request of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    /// `http` or `https`.
    pub(crate) scheme: String,
    /// Host and port as the guest wrote them.
    pub(crate) authority: String,
    pub(crate) path_and_query: String,
    /// Names in lower case.
    #[serde(deserialize_with = "few::<_, _, HEADERS_MAX>")]
    pub(crate) headers: Vec<(String, serde_bytes::ByteBuf)>,
    #[serde(with = "serde_bytes")]
    pub(crate) body: Vec<u8>,
}

/// An answer for a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, serde_bytes::ByteBuf)>,
    #[serde(with = "serde_bytes")]
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer; each has its `wasi:http` error code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HttpTrouble {
    /// Not in the handler's reach, or an address that no name may lead to.
    Denied,
    /// The call has sent as many as it may.
    TooMany,
    /// The name is not known.
    NoName,
    /// Nobody answers there.
    Refused,
    /// The body, there or back, is too long.
    TooLarge,
    /// No time was left.
    TimedOut,
    /// What came back is no HTTP, or the line broke.
    Broken,
}

/// Why a frame cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The other side ended.
    #[error("the pipe ended")]
    Ended,
    /// A frame longer than allowed, or empty.
    #[error("a frame of {bytes} bytes, where {bytes_max} are the most")]
    Length {
        /// As announced.
        bytes: usize,
        /// Allowed.
        bytes_max: usize,
    },
    /// Not the message expected.
    #[error("a frame that is no message: {0}")]
    Form(String),
    /// The pipe broke.
    #[error("the pipe broke")]
    Pipe(#[from] std::io::Error),
}

/// A message as the bytes of one frame, length first.
///
/// # Errors
/// When it is longer than `bytes_max`.
pub(crate) fn encode<T: Serialize>(message: &T, bytes_max: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    ciborium::into_writer(message, &mut bytes).map_err(|error| FrameError::Form(error.to_string()))?;
    let length = bytes.len().saturating_sub(4);
    let announced = u32::try_from(length).ok().filter(|_| length <= bytes_max);
    let announced = announced.ok_or(FrameError::Length { bytes: length, bytes_max })?;
    if let Some(head) = bytes.first_chunk_mut::<4>() {
        *head = announced.to_be_bytes();
    }
    Ok(bytes)
}

/// The message in the bytes behind a length.
///
/// # Errors
/// When they are no such message, or when bytes are left over.
pub(crate) fn decode<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, FrameError> {
    let message = ciborium::from_reader(&mut bytes).map_err(|error| FrameError::Form(error.to_string()))?;
    if bytes.is_empty() { Ok(message) } else { Err(FrameError::Form("bytes are left over".to_owned())) }
}

/// How long a frame will be.
///
/// # Errors
/// When that is empty or more than `bytes_max`.
pub(crate) fn length(head: [u8; 4], bytes_max: usize) -> Result<usize, FrameError> {
    let bytes = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if bytes == 0 || bytes > bytes_max { Err(FrameError::Length { bytes, bytes_max }) } else { Ok(bytes) }
}

/// Reads one message and waits for it.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read, bytes_max: usize) -> Result<T, FrameError> {
    let mut head = [0; 4];
    from.read_exact(&mut head).map_err(ended)?;
    let length = length(head, bytes_max)?;
    // Grows as bytes come, so that an announced length alone costs nothing.
    let mut bytes = Vec::new();
    from.take(u64::try_from(length).unwrap_or(u64::MAX)).read_to_end(&mut bytes).map_err(ended)?;
    if bytes.len() < length { Err(FrameError::Ended) } else { decode(&bytes) }
}

/// Writes one message.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn write<T: Serialize>(to: &mut impl Write, message: &T, bytes_max: usize) -> Result<(), FrameError> {
    let bytes = encode(message, bytes_max)?;
    to.write_all(&bytes).and_then(|()| to.flush()).map_err(ended)
}

fn ended(error: std::io::Error) -> FrameError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::BrokenPipe => FrameError::Ended,
        _ => FrameError::Pipe(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(imports: usize) -> Result<FromChild, FrameError> {
        let compiled = Compiled { native: vec![1], imports: vec![String::new(); imports], descriptor: None };
        let frame = encode(&FromChild::Compiled(compiled), FROM_COMPILER_BYTES_MAX).unwrap();
        decode(&frame[4..])
    }

    #[test]
    fn a_list_in_a_frame_has_its_own_end_so_that_many_small_entries_cost_no_more_than_they_may() {
        assert!(
            matches!(compiled(IMPORTS_MAX), Ok(FromChild::Compiled(compiled)) if compiled.imports.len() == IMPORTS_MAX)
        );
        let refused = compiled(IMPORTS_MAX + 1).unwrap_err().to_string();
        assert!(refused.contains("at most 1024 entries"), "{refused}");
    }
}
