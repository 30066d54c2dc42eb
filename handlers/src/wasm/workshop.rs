//! workshop (being written).
