//! reach (being written).
