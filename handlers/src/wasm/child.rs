//! The child's side (being written).
