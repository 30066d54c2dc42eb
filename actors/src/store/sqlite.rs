//! The vault on disk: `state.db` (SQLite, WAL, synchronous FULL) and `chain.head` beside it.
//!
//! Owns the connection and both files. Called by the store's thread; [`Reader`](super::Reader) reads beside it. Refuses a database of a
//! newer version. A damaged one is set aside by name, never deleted; the device then starts unowned with everything off and says so.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, ffi, params};
use wire::{Id, PublicKey, Record, RecordHash};

use super::{Durable, Head, OpenRow, OutcomeRow, Row, Vault, VaultError, schema};

/// The database's name in the state folder.
pub const STATE_FILE: &str = "state.db";
/// A database below this size is checked whole at start; of a larger one the last [`TAIL_CHECKED`] records are.
const CHECKED_WHOLE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How many records at the end of the chain are checked at start.
const TAIL_CHECKED: u32 = 64;
/// After so many pages in the write-ahead log it is merged back when nothing waits (4 KiB a page).
const WAL_PAGES_TIDY: i64 = 1_000;
/// `chain.head` is one line of JSON.
const HEAD_BYTES_MAX: usize = 1_024;

/// The vault of a real device.
#[derive(Debug)]
pub struct SqliteVault {
    folder: PathBuf,
    connection: Connection,
}

/// A vault, and what the keeper should know about it.
#[derive(Debug)]
pub struct OpenedVault {
    /// The vault.
    pub vault: SqliteVault,
    /// In sentences: what was set aside, what is missing.
    pub notices: Vec<String>,
}

/// What `chain.head` says.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadNote {
    last: u64,
    hash: RecordHash,
}

impl SqliteVault {
    /// Opens the state of a device in its folder, or makes it.
    ///
    /// # Errors
    ///
    /// [`VaultError::Newer`] for a state of a newer version; [`VaultError::Full`], [`VaultError::File`] and
    /// [`VaultError::Database`] when the files cannot be made or read. Damage is no error: the database is set aside.
    pub fn open(state_dir: &Path, device: &PublicKey, now_wall_ms: u64) -> Result<OpenedVault, VaultError> {
        let mut notices = Vec::new();
        let file = state_dir.join(STATE_FILE);
        let noted = read_note(state_dir);
        let existed = file.exists();
        let vault = match Self::open_checked(state_dir, device) {
            Ok(vault) => vault,
            Err(VaultError::Damaged(why)) => {
                let aside = set_aside(&file, now_wall_ms)?;
                notices.push(format!(
                    "state.db was damaged ({why}) and is kept as {}; the device starts without an owner, with everything off",
                    aside.display()
                ));
                Self::open_checked(state_dir, device)?
            }
            Err(other) => return Err(other),
        };
        let mut opened = OpenedVault { vault, notices };
        if opened.notices.is_empty() {
            opened.notices.extend(missing_records(noted.as_ref(), opened.vault.head()?, existed));
        }
        Ok(opened)
    }

    /// Opens an existing database for reading; none is no error.
    pub(super) fn open_to_read(state_dir: &Path) -> Result<Option<Self>, VaultError> {
        let file = state_dir.join(STATE_FILE);
        if !file.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&file, flags)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version == 0 {
            // A first start is making it at this moment.
            return Ok(None);
        }
        if version > schema::VERSION {
            let path = file.display().to_string();
            return Err(VaultError::Newer { path, found: version, known: schema::VERSION });
        }
        Ok(Some(Self { folder: state_dir.to_owned(), connection }))
    }

    /// From here to the rollback everything read is of one moment, whatever a daemon beside writes.
    pub(super) fn begin_reading(&mut self) -> Result<(), VaultError> {
        Ok(self.connection.execute_batch("BEGIN DEFERRED")?)
    }

    fn open_checked(state_dir: &Path, device: &PublicKey) -> Result<Self, VaultError> {
        let file = state_dir.join(STATE_FILE);
        let connection = Connection::open(&file)?;
        // Whose it is, before anything about it is changed.
        let new = Self::is_new(&connection, &file)?;
        let mut vault = Self { connection: configure(connection)?, folder: state_dir.to_owned() };
        if new {
            vault.create()?;
        }
        let bytes = std::fs::metadata(&file).map(|meta| meta.len()).unwrap_or_default();
        if bytes <= CHECKED_WHOLE_BYTES_MAX {
            let verdict: String = vault.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            if verdict != "ok" {
                return Err(VaultError::Damaged(verdict));
            }
        }
        vault.durable()?;
        vault.check_tail(device)?;
        Ok(vault)
    }

    /// Whether the database is still empty; refused when it is another's, or of another version.
    fn is_new(connection: &Connection, file: &Path) -> Result<bool, VaultError> {
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if version > schema::VERSION {
            let path = file.display().to_string();
            return Err(VaultError::Newer { path, found: version, known: schema::VERSION });
        }
        let new = version == 0 && tables == 0;
        if !new && (application != schema::APPLICATION_ID || version != schema::VERSION) {
            return Err(VaultError::Damaged("it is not a state of latchkeyd".to_owned()));
        }
        Ok(new)
    }

    fn create(&mut self) -> Result<(), VaultError> {
        let create = format!(
            "BEGIN IMMEDIATE; {} PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT;",
            schema::CREATE,
            schema::APPLICATION_ID,
            schema::VERSION
        );
        Ok(self.connection.execute_batch(&create)?)
    }

    fn check_tail(&mut self, device: &PublicKey) -> Result<(), VaultError> {
        let Some(head) = self.head()? else { return Ok(()) };
        let from = head.last.saturating_sub(u64::from(TAIL_CHECKED));
        let mut before = if from == 0 { Some(RecordHash::genesis(device)) } else { None };
        for row in self.rows(from, TAIL_CHECKED)? {
            let record = Record::from_cbor(&row.cbor).map_err(|error| VaultError::Damaged(error.to_string()))?;
            let linked = before.is_none_or(|before| before == record.before);
            // Below the first record kept, the chain hangs on a checkpoint.
            let linked = linked || row.sequence == head.first && head.first > 1;
            if !linked || record.sequence != row.sequence {
                return Err(VaultError::Damaged(format!("record {} does not follow the one before", row.sequence)));
            }
            before = Some(record.hash());
        }
        if before != Some(head.hash) {
            return Err(VaultError::Damaged("the last record does not match its hash".to_owned()));
        }
        Ok(())
    }
}

fn configure(connection: Connection) -> Result<Connection, VaultError> {
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = 8388608;
         PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;",
    )?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Renames the database and its side files; the name tells when.
fn set_aside(file: &Path, now_wall_ms: u64) -> Result<PathBuf, VaultError> {
    let name = |suffix: &str| PathBuf::from(format!("{}{suffix}", file.display()));
    let aside = name(&format!(".damaged-{now_wall_ms}"));
    for side in ["", "-wal", "-shm"] {
        let from = name(side);
        let to = PathBuf::from(format!("{}{side}", aside.display()));
        if let Err(error) = std::fs::rename(&from, to)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(VaultError::File { path: from.display().to_string(), error: error.to_string() });
        }
    }
    Ok(aside)
}

fn read_note(folder: &Path) -> Option<HeadNote> {
    let bytes = config::safe::read_private(&folder.join("chain.head"), HEAD_BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// What `chain.head` remembers and the journal does not have.
fn missing_records(noted: Option<&HeadNote>, head: Option<Head>, existed: bool) -> Option<String> {
    let noted = noted?;
    let last = head.map_or(0, |head| head.last);
    if !existed && noted.last > 0 {
        return Some(format!(
            "state.db is gone, but the journal once had {} records; the device starts without an owner, with everything off",
            noted.last
        ));
    }
    if noted.last > last {
        return Some(format!(
            "the journal ends at record {last}, but it once had {}; an older state.db was put in place",
            noted.last
        ));
    }
    (noted.last == last && last > 0 && head.is_some_and(|head| head.hash != noted.hash))
        .then(|| format!("record {last} is not the one that was written; another state.db was put in place"))
}

impl Vault for SqliteVault {
    fn recover(&mut self) -> Result<(), VaultError> {
        self.connection = configure(Connection::open(self.folder.join(STATE_FILE))?)?;
        Ok(())
    }

    fn begin(&mut self) -> Result<(), VaultError> {
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    fn commit(&mut self) -> Result<(), VaultError> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn rollback(&mut self) {
        // It fails only where SQLite has already rolled back.
        if !self.connection.is_autocommit() {
            drop(self.connection.execute_batch("ROLLBACK"));
        }
    }

    fn durable(&mut self) -> Result<Option<Durable>, VaultError> {
        let json: Option<String> = self
            .connection
            .prepare_cached("SELECT json FROM state WHERE only = 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        json.map(|json| serde_json::from_str(&json).map_err(|error| VaultError::Damaged(error.to_string()))).transpose()
    }

    fn put_durable(&mut self, durable: &Durable) -> Result<(), VaultError> {
        let json = serde_json::to_string(durable).map_err(|error| VaultError::Database(error.to_string()))?;
        self.connection
            .prepare_cached("INSERT INTO state (only, json) VALUES (1, ?1) ON CONFLICT (only) DO UPDATE SET json = ?1")?
            .execute([json])?;
        Ok(())
    }

    fn head(&mut self) -> Result<Option<Head>, VaultError> {
        let found = self
            .connection
            .prepare_cached(
                "SELECT sequence, hash, (SELECT min(sequence) FROM records) FROM records ORDER BY sequence DESC LIMIT 1",
            )?
            .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?, row.get::<_, i64>(2)?)))
            .optional()?;
        let Some((last, hash, first)) = found else { return Ok(None) };
        Ok(Some(Head { first: unsigned(first)?, last: unsigned(last)?, hash: RecordHash::from_bytes(hash) }))
    }

    fn append(&mut self, row: &Row, hash: &RecordHash) -> Result<(), VaultError> {
        self.connection
            .prepare_cached("INSERT INTO records (sequence, cbor, hash, salt, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![signed(row.sequence), row.cbor, hash.as_bytes(), row.salt, signed(row.at_ms)])?;
        Ok(())
    }

    fn rows(&mut self, after: u64, limit: u32) -> Result<Vec<Row>, VaultError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT sequence, cbor, salt, at_ms FROM records WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
        )?;
        let found = statement.query_map(params![signed(after), limit], |row| {
            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?))
        })?;
        found
            .map(|row| {
                let (sequence, cbor, salt, at_ms) = row?;
                Ok(Row { sequence: unsigned(sequence)?, cbor, salt, at_ms: unsigned(at_ms)? })
            })
            .collect()
    }

    fn outcome(&mut self, ownership: u64, id: &Id) -> Result<Option<OutcomeRow>, VaultError> {
        let found = self
            .connection
            .prepare_cached("SELECT content, outcome, at_ms FROM outcomes WHERE ownership = ?1 AND id = ?2")?
            .query_row(params![signed(ownership), id.as_bytes()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let Some((content, outcome, at_ms)) = found else { return Ok(None) };
        Ok(Some(OutcomeRow { content, outcome, at_ms: unsigned(at_ms)? }))
    }

    fn put_outcome(&mut self, ownership: u64, id: &Id, row: &OutcomeRow) -> Result<(), VaultError> {
        self.connection
            .prepare_cached(
                "INSERT INTO outcomes (ownership, id, content, outcome, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (ownership, id) DO UPDATE SET content = ?3, outcome = ?4, at_ms = ?5",
            )?
            .execute(params![signed(ownership), id.as_bytes(), row.content, row.outcome, signed(row.at_ms)])?;
        Ok(())
    }

    fn forget_outcome(&mut self, ownership: u64, id: &Id) -> Result<(), VaultError> {
        self.connection
            .prepare_cached("DELETE FROM outcomes WHERE ownership = ?1 AND id = ?2")?
            .execute(params![signed(ownership), id.as_bytes()])?;
        Ok(())
    }

    fn forget_outcomes(&mut self, ownership: u64, before_ms: u64) -> Result<(), VaultError> {
        self.connection
            .prepare_cached("DELETE FROM outcomes WHERE ownership <> ?1 OR at_ms < ?2")?
            .execute(params![signed(ownership), signed(before_ms)])?;
        Ok(())
    }

    fn put_open(&mut self, row: &OpenRow) -> Result<(), VaultError> {
        self.connection
            .prepare_cached("INSERT INTO open_calls (sequence, ownership, id, what) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![signed(row.sequence), signed(row.ownership), row.id.as_bytes(), row.what])?;
        Ok(())
    }

    fn close(&mut self, sequence: u64) -> Result<(), VaultError> {
        self.connection.prepare_cached("DELETE FROM open_calls WHERE sequence = ?1")?.execute([signed(sequence)])?;
        Ok(())
    }

    fn open_calls(&mut self) -> Result<Vec<OpenRow>, VaultError> {
        let mut statement =
            self.connection.prepare_cached("SELECT sequence, ownership, id, what FROM open_calls ORDER BY sequence")?;
        let found = statement.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, [u8; 24]>(2)?, row.get(3)?))
        })?;
        found
            .map(|row| {
                let (sequence, ownership, id, what) = row?;
                let (sequence, ownership) = (unsigned(sequence)?, unsigned(ownership)?);
                Ok(OpenRow { sequence, ownership, id: Id::from_bytes(id), what })
            })
            .collect()
    }

    fn record_bytes(&mut self) -> Result<u64, VaultError> {
        let pages: i64 = self.connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        let free: i64 = self.connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
        let size: i64 = self.connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        unsigned((pages - free) * size)
    }

    fn first_since(&mut self, at_ms: u64) -> Result<Option<u64>, VaultError> {
        let found: Option<i64> = self.connection.query_row(
            "SELECT min(sequence) FROM records WHERE at_ms >= ?1",
            [signed(at_ms)],
            |row| row.get(0),
        )?;
        found.map(unsigned).transpose()
    }

    fn prune(&mut self, before: u64) -> Result<(), VaultError> {
        self.connection.execute("DELETE FROM records WHERE sequence < ?1", [signed(before)])?;
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), VaultError> {
        let pages: i64 = self.connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).unwrap_or(0);
        if pages >= WAL_PAGES_TIDY {
            self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
        Ok(())
    }

    fn note_head(&mut self, head: &Head) -> Result<(), VaultError> {
        let file = self.folder.join("chain.head");
        let note = HeadNote { last: head.last, hash: head.hash };
        let json = serde_json::to_vec(&note).map_err(|error| VaultError::Database(error.to_string()))?;
        config::safe::write_private(&file, &json)
            .map_err(|error| VaultError::File { path: file.display().to_string(), error: error.to_string() })
    }

    fn close_vault(&mut self) {
        // Merging the log back is a courtesy; the next start does it otherwise.
        drop(self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    }
}

impl From<rusqlite::Error> for VaultError {
    fn from(error: rusqlite::Error) -> Self {
        // A new write-ahead log needs a shared index beside it, and no room for that has a code of its own.
        let no_index = error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            _ if no_index => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error.to_string()),
            _ => Self::Database(error.to_string()),
        }
    }
}

/// SQLite's integers are signed; ours stay far below 2^63.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> Result<u64, VaultError> {
    u64::try_from(value).map_err(|_| VaultError::Damaged(format!("{value} where a count stands")))
}
