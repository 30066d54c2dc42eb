//! One permit, one call.

fn twice(permit: &latchkey_actors::Permit) -> latchkey_actors::Permit {
    permit.clone()
}

fn copied<T: Clone>(_: T) {}

fn main() {
    let _ = twice;
    let _ = copied::<latchkey_actors::Permit>;
}
