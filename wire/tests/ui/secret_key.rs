//! A secret key has one owner.
use latchkey_wire::SecretKey;

fn copy(key: &SecretKey) -> SecretKey {
    key.clone()
}

fn needs_clone<T: Clone>(_: &T) {}

fn main() {
    needs_clone(&SecretKey::from_seed(&[1; 32]));
    let _ = copy;
}
