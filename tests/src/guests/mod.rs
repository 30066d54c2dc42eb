//! Handlers for tests, as the text of components, and the folder that they are dropped into.
//!
//! [`text`] gives the component of a name; what each does stands in `fixtures.rs`. Every one is small, readable, and does one thing,
//! good or bad. [`Dropbox`] puts files into the handlers folder as people and programs do: whole by a rename, or byte by byte.

mod dropbox;
mod fixtures;
mod outside;

pub use dropbox::{Dropbox, Mode};
pub use fixtures::{FIXTURES, Fixture};
pub use outside::Outside;

/// The text of the component with this name.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn text(name: &str) -> String {
    let found = FIXTURES.iter().find(|(known, _)| *known == name);
    let (_, fixture) = found.unwrap_or_else(|| panic!("no handler {name} among the fixtures"));
    match fixture {
        Fixture::Guest { pages, outside, core } => component(*pages, outside, core),
        Fixture::Whole(text) => (*text).to_owned(),
    }
}

/// A handler that answers with an object of exactly so many bytes.
#[must_use]
pub fn sized(bytes: usize) -> String {
    let core = r#"
        (data (i32.const 300) "{\"a\":\"")
        (func (export "invoke") (param $ptr i32) (param $len i32) (result i32)
          (memory.fill (i32.const 65536) (i32.const 120) (i32.const BYTES))
          (memory.copy (i32.const 65536) (i32.const 300) (i32.const 6))
          (i32.store16 (i32.add (i32.const 65534) (i32.const BYTES)) (i32.const 0x7d22))
          (call $answer (i32.const 65536) (i32.const BYTES)))"#;
    component(40, &[], &core.replace("BYTES", &bytes.to_string()))
}

/// A handler that answers with these bytes.
#[must_use]
pub fn saying(bytes: &[u8]) -> String {
    let spelled: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let core = r#"
        (data (i32.const 300) "SPELLED")
        (func (export "invoke") (param $ptr i32) (param $len i32) (result i32)
          (call $answer (i32.const 300) (i32.const LENGTH)))"#;
    component(2, &[], &core.replace("SPELLED", &spelled).replace("LENGTH", &bytes.len().to_string()))
}

/// A component of the handler's world around the fields of a core module.
///
/// The memory is made first, in a module of its own, since functions of the host need it before the guest is there. Its first 300 bytes
/// are for results, text stands at 300, and what the host hands in comes behind 1024.
fn component(pages: u32, outside: &[Outside], core: &str) -> String {
    let imports: String = outside.iter().map(|outside| outside.component()).collect();
    let given: String = outside.iter().map(|outside| outside.given()).collect();
    let asked: String = outside.iter().map(|outside| outside.core()).collect();
    format!(
        r#"(component
  (import "device:handler/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string)))
    (export "handler-error" (type (eq $record)))))
  (alias export $types "handler-error" (type $handler-error))
  (core module $room
    (memory (export "memory") {pages})
    (global $next (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $had i32) (param $align i32) (param $bytes i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get $bytes)))
      (local.get $at)))
  (core instance $room (instantiate $room)){imports}
  (core module $guest
    (import "room" "memory" (memory {pages})){asked}
    (func $answer (param $ptr i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 0) (i32.const 0))
      (i32.store (i32.const 4) (local.get $ptr))
      (i32.store (i32.const 8) (local.get $len))
      (i32.const 0))
    (func $fail (param $code i32) (param $code-len i32) (param $message i32) (param $message-len i32) (result i32)
      (i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (local.get $code))
      (i32.store (i32.const 8) (local.get $code-len))
      (i32.store (i32.const 12) (local.get $message))
      (i32.store (i32.const 16) (local.get $message-len))
      (i32.const 0))
    (func $digits (param $at i32) (param $number i32)
      (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.div_u (local.get $number) (i32.const 100))))
      (i32.store8 (i32.add (local.get $at) (i32.const 1))
        (i32.add (i32.const 48) (i32.rem_u (i32.div_u (local.get $number) (i32.const 10)) (i32.const 10))))
      (i32.store8 (i32.add (local.get $at) (i32.const 2))
        (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))){core})
  (core instance $guest (instantiate $guest
    (with "room" (instance $room))
    (with "host" (instance{given}))))
  (func $invoke (param "args" (list u8)) (result (result (list u8) (error $handler-error)))
    (canon lift (core func $guest "invoke")
      (memory (core memory $room "memory")) (realloc (core func $room "realloc"))))
  (export "invoke" (func $invoke)))
"#
    )
}
