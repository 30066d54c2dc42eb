//! A permit has private fields.

fn main() {
    let _forged = latchkey_actors::Permit { capability: "camera.snapshot".parse().unwrap(), ownership: 1, grant: None, seal: None, needs_active: false };
}
