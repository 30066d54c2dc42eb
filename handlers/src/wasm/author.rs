//! What authors of handlers need at a desk: a component made of a core module, a description put into a file, a project to begin with.
//!
//! Owns the one copy of the world ([`WIT`]) in its text form, and how a file is taken apart into sections. Called by
//! `latchkeyd handler new|wrap|pack` and by tests; it works on bytes alone, opens no file and runs no guest code. Refuses what can never
//! become a handler, in a sentence; what a device then makes of a file, `latchkeyd handler check` says.

mod project;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Display;

use config::manifest::{DESCRIPTOR_BYTES_MAX, Descriptor, ManifestError};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{BinaryReader, BinaryReaderError, Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub use self::project::{Lang, ProjectFile, project};

/// What a handler and the device say to each other, as every tool that makes components reads it.
pub const WIT: &str = include_str!("../../wit/handler.wit");
/// The world in it.
const WORLD: &str = "handler";
/// The function of that world that a core module must export.
const INVOKE: &str = "invoke";
/// Where a component carries its description.
pub const DESCRIPTOR_SECTION: &str = "device:handler/descriptor";

/// Begins every WebAssembly file.
const MAGIC: &[u8] = b"\0asm";
/// Magic and version.
const HEADER_BYTES: usize = 8;
/// The number of a custom section, in modules and components alike.
const CUSTOM: u8 = 0;

/// Why nothing can be made of what an author gave.
#[derive(Debug, thiserror::Error)]
pub enum AuthorError {
    /// Bytes of another kind.
    #[error("this is neither WebAssembly nor its text")]
    NotWasm,
    /// Text with a mistake.
    #[error("line {line}, column {column}: {message}")]
    Text {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// A file that ends too early, or whose parts do not fit together.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// A core module where a component belongs.
    #[error("this is a core module, and a handler is a component; `latchkeyd handler wrap` makes one of it")]
    CoreModule,
    /// A core module without the one function.
    #[error("the module exports no function `{INVOKE}`")]
    NoInvoke,
    /// A core module whose functions or imports do not fit the world.
    #[error("the module does not fit the handlers' world: {0}")]
    Unfit(String),
    /// A description that is too long.
    #[error("the description has {0} bytes, where {DESCRIPTOR_BYTES_MAX} are the most")]
    DescriptorLength(usize),
    /// A description that is wrong, or asks for more than to describe.
    #[error(transparent)]
    Descriptor(#[from] ManifestError),
    /// A name that no capability can have.
    #[error(
        "{0:?} is not MAKER.ACTION, like acme.lamp: two words of small letters, digits, - and _, which begin with a letter"
    )]
    Name(String),
    /// A language without a project.
    #[error("{0:?} is none of js, rust, c and wat")]
    Lang(String),
    /// The world itself cannot be read: a mistake of ours.
    #[error("the handlers' world cannot be read: {0}")]
    World(String),
}

/// A component made of a core module or its text. The module exports `invoke`, `memory` and `cabi_realloc`, and `cabi_post_invoke` if it
/// wants to free a result; it may import the older system interface (`wasi_snapshot_preview1`), as C programs with a libc do. What is
/// a component already comes back as it is, its text as bytes.
///
/// # Errors
/// [`AuthorError`] when it is no WebAssembly, has no `invoke`, or does not fit the world.
pub fn wrap(core_or_text: &[u8]) -> Result<Vec<u8>, AuthorError> {
    let given = binary(core_or_text)?;
    if is_component(&given) {
        return Ok(given.into_owned());
    }
    let core = Core::read(&given)?;
    if !core.invoke {
        return Err(AuthorError::NoInvoke);
    }
    let mut module = given.into_owned();
    if !core.described {
        describe(&mut module)?;
    }
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).map_err(unfit)?;
    if core.old_system {
        let (name, adapter) = (WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER);
        encoder = encoder.adapter(name, adapter).map_err(unfit)?;
    }
    encoder.encode().map_err(unfit)
}

/// A component with this description in it, in place of one that it had. Text is turned into bytes first.
///
/// # Errors
/// [`AuthorError`] when it is no component, or the description is wrong, too long, or asks for more than to describe.
pub fn pack(component: &[u8], descriptor: &[u8]) -> Result<Vec<u8>, AuthorError> {
    if descriptor.len() > DESCRIPTOR_BYTES_MAX {
        return Err(AuthorError::DescriptorLength(descriptor.len()));
    }
    Descriptor::parse(descriptor)?;
    let given = binary(component)?;
    if !is_component(&given) {
        return Err(AuthorError::CoreModule);
    }
    let mut packed = without_descriptor(&given).map_err(damaged)?;
    let mut body = Vec::new();
    push_length(&mut body, DESCRIPTOR_SECTION.len());
    body.extend_from_slice(DESCRIPTOR_SECTION.as_bytes());
    body.extend_from_slice(descriptor);
    packed.push(CUSTOM);
    push_length(&mut packed, body.len());
    packed.extend_from_slice(&body);
    Ok(packed)
}

/// WebAssembly as bytes, whichever form it was given in.
fn binary(given: &[u8]) -> Result<Cow<'_, [u8]>, AuthorError> {
    if given.starts_with(MAGIC) {
        return Ok(Cow::Borrowed(given));
    }
    let text = std::str::from_utf8(given).map_err(|_| AuthorError::NotWasm)?;
    wat::parse_str(text).map(Cow::Owned).map_err(|error| mistake(&error.to_string()))
}

/// The parser's message, place and picture of the line, as one line.
fn mistake(told: &str) -> AuthorError {
    let mut lines = told.lines();
    let message = lines.next().unwrap_or_default().to_owned();
    let place = lines.next().and_then(|line| {
        let mut numbers = line.rsplit(':').map(str::parse);
        let (column, line) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((line, column))
    });
    let (line, column) = place.unwrap_or((1, 1));
    AuthorError::Text { line, column, message }
}

fn is_component(bytes: &[u8]) -> bool {
    Parser::is_component(bytes)
}

/// What matters of a core module.
#[derive(Debug, Default)]
struct Core {
    /// It exports the one function.
    invoke: bool,
    /// It says itself which world it was made for.
    described: bool,
    /// It imports the older system interface.
    old_system: bool,
}

impl Core {
    fn read(bytes: &[u8]) -> Result<Self, AuthorError> {
        let mut core = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(damaged)? {
                Payload::Version { encoding: Encoding::Component, .. } => return Err(AuthorError::CoreModule),
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        core.old_system |= import.map_err(damaged)?.module == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        core.invoke |= export.map_err(damaged)?.name == INVOKE;
                    }
                }
                Payload::CustomSection(section) => core.described |= section.name().starts_with("component-type"),
                _ => {}
            }
        }
        Ok(core)
    }
}

/// Writes into a core module which world it is made for.
fn describe(module: &mut Vec<u8>) -> Result<(), AuthorError> {
    let mut resolve = Resolve::default();
    let package = resolve.push_source("handler.wit", WIT).map_err(of_world)?;
    let world = resolve.select_world(&[package], Some(WORLD)).map_err(of_world)?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).map_err(of_world)
}

/// The component without its description, wherever at its top that stands.
fn without_descriptor(component: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    let mut reader = BinaryReader::new(component, 0);
    let mut kept = reader.read_bytes(HEADER_BYTES)?.to_vec();
    while !reader.eof() {
        let number = reader.read_u8()?;
        let body = reader.read_reader()?;
        let is_descriptor = number == CUSTOM && body.clone().read_string()? == DESCRIPTOR_SECTION;
        if !is_descriptor {
            let body = body.clone().read_bytes(body.bytes_remaining())?;
            kept.push(number);
            push_length(&mut kept, body.len());
            kept.extend_from_slice(body);
        }
    }
    Ok(kept)
}

/// A length as WebAssembly writes it: seven bits in a byte, the lowest first.
fn push_length(to: &mut Vec<u8>, length: usize) {
    let mut left = length;
    loop {
        let low = u8::try_from(left & 0x7f).unwrap_or_default();
        left >>= 7;
        if left == 0 {
            to.push(low);
            return;
        }
        to.push(low | 0x80);
    }
}

fn unfit(error: impl Display) -> AuthorError {
    AuthorError::Unfit(format!("{error:#}"))
}

fn of_world(error: impl Display) -> AuthorError {
    AuthorError::World(format!("{error:#}"))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn damaged(error: BinaryReaderError) -> AuthorError {
    AuthorError::Damaged(error.message().to_owned())
}
