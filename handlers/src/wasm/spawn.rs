//! spawn (being written).
