//! From a file's bytes to native code, in a process that has run no guest code and never will.
//!
//! Owns what a handler's file must be. Refuses in a sentence for its keeper: what is no component, native code, imports that nobody offers,
//! an `invoke` that is missing or of another type, a description that is too long or there twice. The same linker and the same type
//! check stand before each run.

use config::manifest::DESCRIPTOR_BYTES_MAX;
use wasmparser::{Parser, Payload};
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre};

use super::guest::{Guest, Invoked, linker};
use super::words;
use crate::wasm::author::DESCRIPTOR_SECTION;
use crate::wasm::frame::Compiled;

/// The one export of a handler.
pub(super) const INVOKE: &str = "invoke";
/// How every component begins, and how a core module does.
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";
/// How native code begins, of which a file is never made.
const NATIVE: &[u8] = b"\x7fELF";

/// Makes native code of a component or of its text.
///
/// # Errors
/// Why it is no handler, in a sentence.
pub(super) fn compile(engine: &Engine, source: Vec<u8>, text: bool) -> Result<Compiled, String> {
    let bytes = if text { assemble(&source)? } else { source };
    look(&bytes)?;
    let descriptor = descriptor(&bytes)?;
    let component = Component::from_binary(engine, &bytes).map_err(|error| words::refusal(&error))?;
    drop(bytes);
    linked(engine, &component)?;
    let mut imports: Vec<String> =
        component.component_type().imports(engine).map(|(name, _)| name.to_owned()).collect();
    imports.sort_unstable();
    let native = component.serialize().map_err(|error| words::refusal(&error))?;
    Ok(Compiled { native, imports, descriptor })
}

/// The component with all that it imports, its `invoke` of the right type.
///
/// # Errors
/// What is missing, or of another type.
pub(super) fn linked(engine: &Engine, component: &Component) -> Result<InstancePre<Guest>, String> {
    let linked = linker(engine).and_then(|linker| linker.instantiate_pre(component));
    let linked = linked.map_err(|error| words::refusal(&error))?;
    match component.component_type().get_export(engine, INVOKE).map(|export| export.ty) {
        Some(ComponentItem::ComponentFunc(invoke)) => invoke
            .typecheck::<(Vec<u8>,), (Invoked,)>(&linked.instance_type())
            .map_err(|error| format!("its export `{INVOKE}` has another type: {}", words::refusal(&error)))?,
        Some(_) => return Err(format!("its export `{INVOKE}` is no function")),
        None => return Err(format!("it exports no `{INVOKE}`")),
    }
    Ok(linked)
}

fn assemble(source: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(source).map_err(|_| "its text is not UTF-8".to_owned())?;
    wat::parse_str(text).map_err(|error| format!("its text is no component: {}", words::first_line(&error.to_string())))
}

fn look(bytes: &[u8]) -> Result<(), String> {
    if bytes.starts_with(COMPONENT) {
        Ok(())
    } else if bytes.starts_with(CORE_MODULE) {
        Err("it is a core module, not a component; `latchkeyd handler wrap` makes one of it".to_owned())
    } else if bytes.starts_with(NATIVE) {
        Err("it is native code; a device compiles components itself and takes nothing else".to_owned())
    } else {
        Err("it is no WebAssembly".to_owned())
    }
}

/// The description that the file itself carries, on its outermost level; one inside a part of it says nothing about the whole.
fn descriptor(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut found = None;
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| format!("it is damaged: {}", words::first_line(&error.to_string())))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth = depth.saturating_add(1),
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 0 && section.name() == DESCRIPTOR_SECTION => {
                if section.data().len() > DESCRIPTOR_BYTES_MAX {
                    return Err(format!(
                        "its section `{DESCRIPTOR_SECTION}` is longer than {DESCRIPTOR_BYTES_MAX} bytes"
                    ));
                }
                if found.replace(section.data().to_vec()).is_some() {
                    return Err(format!("it has two sections `{DESCRIPTOR_SECTION}`"));
                }
            }
            _ => {}
        }
    }
    Ok(found)
}
