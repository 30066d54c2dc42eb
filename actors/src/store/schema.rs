//! The tables of `state.db` and their version.

/// Raised with each change of the tables; a database of a higher version is refused.
pub(super) const VERSION: i64 = 1;

/// "LKST", so that `file` and we know whose database it is.
pub(super) const APPLICATION_ID: i64 = 0x4c4b_5354;

/// The tables of a new database.
pub(super) const CREATE: &str = "
    CREATE TABLE state (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE records (
        sequence INTEGER PRIMARY KEY,
        cbor BLOB NOT NULL,
        hash BLOB NOT NULL,
        salt BLOB NOT NULL,
        at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE outcomes (
        ownership INTEGER NOT NULL,
        id BLOB NOT NULL,
        content BLOB NOT NULL,
        outcome TEXT,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (ownership, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE open_calls (
        sequence INTEGER PRIMARY KEY,
        ownership INTEGER NOT NULL,
        id BLOB NOT NULL,
        what TEXT NOT NULL
    ) STRICT;
";
