//! Its only constructor is the authority's.

fn main() {
    let _forged = latchkey_actors::Permit::assertion(&wire::Declaration::camera_snapshot(), None, 1);
}
