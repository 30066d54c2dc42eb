//! author (being written).
