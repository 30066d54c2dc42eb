//! Arguments come from bounds alone.
use latchkey_wire::{Arguments, Object};

fn main() {
    let _ = Arguments(Object::new());
    let _ = Arguments::assertion(Object::new());
}
