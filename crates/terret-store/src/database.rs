//! The database of a session: its format, and how it is opened.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::chain;
use crate::error::StoreError;
use crate::head::Head;
use crate::lock::myself;
use crate::place::{Place, sync_folder};

/// "trrt": tells a journal from other SQLite files.
const APPLICATION: i32 = 0x7472_7274;
/// Goes up when an older version could misread a file.
const FORMAT: i64 = 1;

/// `seq` is the row's own id, so that there is one tree to write and numbers are unique. The link is the checksum of
/// [`chain`](crate::chain); `pieces` says what was cut out of the body into blobs.
pub(crate) const SCHEMA: &str = "
CREATE TABLE session (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    id TEXT NOT NULL,
    created INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    owner TEXT NOT NULL,
    title TEXT,
    origin TEXT
) STRICT;
CREATE TABLE record (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    pieces TEXT NOT NULL,
    link BLOB NOT NULL
) STRICT;
CREATE TRIGGER a_record_is_never_changed BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'a record is never changed'); END;
CREATE TRIGGER a_record_is_never_deleted BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'a record is never deleted'); END;
";

/// Makes the database of a session that has none, with nobody as its owner. It appears whole or not at all.
pub(crate) fn create(place: &Place) -> Result<(), StoreError> {
    let (path, new) = (place.database(), place.folder.join("journal.new"));
    // What is left of an attempt that was interrupted.
    let _ = std::fs::remove_file(&new);
    let build = || {
        let db = Connection::open(&new)?;
        // It is synced once, below, before it gets its name.
        db.pragma_update(None, "synchronous", "OFF")?;
        db.pragma_update(None, "journal_mode", "MEMORY")?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.pragma_update(None, "user_version", FORMAT)?;
        db.execute_batch(SCHEMA)?;
        let values = params![place.session.as_str(), now(), ""];
        db.execute("INSERT INTO session (only, id, created, fence, owner) VALUES (1, ?1, ?2, 0, ?3)", values)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.close().map_err(|(_, error)| error)
    };
    build().map_err(StoreError::sqlite(&path))?;
    let io = |error| StoreError::io(&path, error);
    File::open(&new).and_then(|file| file.sync_all()).map_err(io)?;
    // First, so that there is no record without it.
    let nothing = Head { records: 0, link: chain::start(&place.session) };
    let head = File::create(place.head()).and_then(|mut file| nothing.write(&mut file).and_then(|()| file.sync_all()));
    head.map_err(|error| StoreError::io(place.head(), error))?;
    std::fs::rename(&new, &path).map_err(io)?;
    sync_folder(&place.folder)
}

/// Opens a database for its owner.
pub(crate) fn open_to_write(path: &Path) -> Result<Connection, StoreError> {
    let open = || {
        let db =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        settle(&db)?;
        db.pragma_update(None, "synchronous", "FULL")?;
        // A log that grew while somebody read for long shrinks again.
        db.pragma_update(None, "journal_size_limit", 8 << 20)?;
        Ok(db)
    };
    let db = open().map_err(StoreError::sqlite(path))?;
    check_format(&db, path)?;
    Ok(db)
}

/// Opens a database for a reader, who disturbs nobody.
pub(crate) fn open_to_read(place: &Place) -> Result<Connection, StoreError> {
    let path = place.database();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |name: &Path, flags| {
        let db = Connection::open_with_flags(name, flags)?;
        settle(&db)?;
        // The first that really reads.
        db.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0))?;
        Ok(db)
    };
    let db = match open(&path, flags) {
        // SQLite wants to make an index of the log. Where it can't, and there is no log, nobody writes either.
        Err(_) if path.is_file() && !place.write_ahead_log().exists() => {
            let uri = format!("file:{}?immutable=1", escaped(&path));
            open(Path::new(&uri), flags | OpenFlags::SQLITE_OPEN_URI)
        }
        opened => opened,
    };
    let db = db.map_err(StoreError::sqlite(&path))?;
    check_format(&db, &path)?;
    Ok(db)
}

fn settle(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(Duration::from_secs(5))?;
    db.pragma_update(None, "cell_size_check", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    // 256 KiB: records are read once, in order.
    db.pragma_update(None, "cache_size", -256)
}

fn check_format(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(StoreError::sqlite(path));
    let found = number("user_version")?;
    match number("application_id")? == i64::from(APPLICATION) {
        false => Err(StoreError::Foreign { path: path.to_owned() }),
        // No version has such a number: the file was damaged.
        true if !(1..1000).contains(&found) => Err(StoreError::Foreign { path: path.to_owned() }),
        true if found > FORMAT => Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT }),
        true => Ok(()),
    }
}

/// Makes the caller the owner, and everybody before it none. The new fence is durable on return.
pub(crate) fn raise_fence(db: &Connection, place: &Place) -> Result<i64, StoreError> {
    let raise = "UPDATE session SET fence = fence + 1, owner = ?1 RETURNING fence";
    db.query_row(raise, [myself()], |row| row.get(0)).map_err(|error| match error.sqlite_error_code() {
        // It was stopped in the middle of a write: SQLite's own lock stays with it for as long as it lives.
        Some(ErrorCode::DatabaseBusy) => {
            let owner = db.query_row("SELECT owner FROM session", [], |row| row.get(0));
            let owner: String = owner.unwrap_or_else(|_| "another process".to_owned());
            let owner = format!("{owner}, which was stopped in the middle of a write");
            StoreError::Owned { session: place.session.clone(), owner }
        }
        _ => StoreError::sqlite(&place.database())(error),
    })
}

/// A path in a URI of SQLite.
fn escaped(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

/// Unix milliseconds.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
