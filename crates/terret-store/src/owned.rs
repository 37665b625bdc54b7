use std::fs::{DirBuilder, File, OpenOptions};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};
use terret_agent::machine::Record;

use crate::blobs::{Blobs, cut};
use crate::chain::{self, Link, Row};
use crate::database::{create, now, open_to_write, raise_fence};
use crate::error::StoreError;
use crate::head::Head;
use crate::lock::{LEASE, Lock};
use crate::place::{Place, sync_folder};
use crate::reader::{Reader, exists};

/// A session that is open for writing.
pub(crate) struct Owned {
    place: Place,
    db: Connection,
    /// After the last record: nobody else writes any for as long as the fence is ours.
    end: Head,
    head: File,
    pub(crate) lock: SharedLock,
    /// Where another session keeps blobs, of which those that are needed here are shared.
    pub(crate) shares_with: Option<PathBuf>,
    /// Who this owner is: the next one has a higher number.
    pub(crate) fence: i64,
}

/// The lock of a session, until its owner lets go of it.
pub(crate) type SharedLock = Arc<Mutex<Option<Lock>>>;

impl Owned {
    /// Opens a session. Refuses a damaged one, and leaves it as it is.
    pub(crate) fn open(place: &Place, mut lock: Lock) -> Result<Self, StoreError> {
        let path = place.database();
        if !exists(place)? {
            create(place)?;
        }
        // Before SQLite opens it for writing, which would throw away what it can't use of the log.
        check_end(place)?;
        let db = open_to_write(&path)?;
        let fence = raise_fence(&db, place)?;
        lock.confirm()?;
        let (end, head) = (end(&db, place)?, open_head(place)?);
        Ok(Self {
            place: place.clone(),
            db,
            end,
            head,
            lock: Arc::new(Mutex::new(Some(lock))),
            shares_with: None,
            fence,
        })
    }

    /// Says that the owner is there.
    pub(crate) fn renew(&self) {
        if let Some(lock) = &mut *self.lock.lock().unwrap_or_else(PoisonError::into_inner) {
            // If it can't, others take the owner for stopped, and the fence keeps the two apart.
            let _ = lock.renew();
        }
    }

    /// Appends all records or none. Durable on return.
    pub(crate) fn append(&mut self, expected: u64, records: &[Record]) -> Result<(), StoreError> {
        // Deferred, it would be refused at once if somebody had written since it began to read.
        self.execute("BEGIN IMMEDIATE")?;
        let written = self.write(expected, records).and_then(|end| self.execute("COMMIT").map(|()| end));
        let Ok(end) = written else {
            // Where this fails, SQLite has done it already.
            let _ = self.execute("ROLLBACK");
            return written.map(drop);
        };
        self.end = end;
        // The records are durable, whatever becomes of the head. Its place on the disk is taken since it was made.
        let _ = end.write(&mut self.head);
        Ok(())
    }

    fn write(&self, expected: u64, records: &[Record]) -> Result<Head, StoreError> {
        check_fence(&self.db, self.fence, &self.place)?;
        if self.end.records != expected {
            let (session, found) = (self.place.session.clone(), self.end.records);
            return Err(StoreError::Behind { session, expected, found });
        }
        let blobs = Blobs { folder: &self.place.blobs(), shared: self.shares_with.as_deref() };
        insert(&self.db, self.end, records, blobs, &self.place)
    }

    /// Executes a statement that is kept prepared.
    fn execute(&self, statement: &str) -> Result<(), StoreError> {
        let done = self.db.prepare_cached(statement).and_then(|mut statement| statement.execute([]));
        done.map(drop).map_err(StoreError::sqlite(&self.place.database()))
    }

    /// Says when it was made, in Unix milliseconds, if that was elsewhere.
    pub(crate) fn set_created(&self, created: i64) -> Result<(), StoreError> {
        let set = self.db.execute("UPDATE session SET created = ?1", [created]);
        set.map(drop).map_err(StoreError::sqlite(&self.place.database()))
    }

    /// Says what it was forked from.
    pub(crate) fn set_origin(&self, origin: &str) -> Result<(), StoreError> {
        let set = self.db.execute("UPDATE session SET origin = ?1", [origin]);
        set.map(drop).map_err(StoreError::sqlite(&self.place.database()))
    }

    /// Lets go of the session. One without records leaves nothing behind.
    pub(crate) fn close(self) {
        let Self { place, db, head, lock, .. } = self;
        let lease = lock.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(LEASE, |lock| lock.lease());
        let empty = is_empty(&db, &place);
        drop(db);
        // While nobody waits for it. Without it, only the head may be behind after a power failure.
        let _ = head.sync_all();
        // Somebody else may have owned it in the meantime: what counts is what is there once it is locked again.
        if empty
            && let Ok(Ok(_lock)) = Lock::take_free(&place.owner(), lease)
            && Reader::open_place(&place).is_ok_and(|reader| is_empty(&reader.db, &place))
        {
            // If it can't be removed, there is an empty session more, which no list shows.
            let _ = std::fs::remove_dir_all(&place.folder);
        }
    }
}

fn is_empty(db: &Connection, place: &Place) -> bool {
    end(db, place).is_ok_and(|end| end.records == 0)
}

fn open_head(place: &Place) -> Result<File, StoreError> {
    let path = place.head();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| StoreError::io(&path, error))
}

/// Makes the folder of a session, with nothing in it yet. Only its user may look into it: people say secrets to models.
pub(crate) fn make_folder(place: &Place) -> Result<(), StoreError> {
    if place.folder.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&place.folder).map_err(|error| StoreError::io(&place.folder, error))?;
    sync_folder(&place.root)
}

/// Checks that nothing is missing at the end, without reading everything.
pub(crate) fn check_end(place: &Place) -> Result<(), StoreError> {
    let damage = Reader::open_place(place)?.check_end()?;
    if damage.is_empty() {
        return Ok(());
    }
    Err(StoreError::Damaged { session: place.session.clone(), path: place.folder.clone(), damage })
}

fn check_fence(db: &Connection, fence: i64, place: &Place) -> Result<(), StoreError> {
    let ask = |what| db.prepare_cached(what);
    let found = ask("SELECT fence FROM session").and_then(|mut it| it.query_row([], |row| row.get::<_, i64>(0)));
    let sqlite = StoreError::sqlite(&place.database());
    if found.map_err(&sqlite)? == fence {
        return Ok(());
    }
    let owner = ask("SELECT owner FROM session").and_then(|mut it| it.query_row([], |row| row.get(0)));
    Err(StoreError::Fenced { session: place.session.clone(), owner: owner.map_err(sqlite)? })
}

/// How many records there are, and the last one's link.
pub(crate) fn end(db: &Connection, place: &Place) -> Result<Head, StoreError> {
    let sqlite = StoreError::sqlite(&place.database());
    let mut statement = db.prepare_cached("SELECT seq, link FROM record ORDER BY seq DESC LIMIT 1").map_err(&sqlite)?;
    let last: Option<(u64, Link)> =
        rusqlite::OptionalExtension::optional(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(&sqlite)?;
    Ok(match last {
        Some((seq, link)) => Head { records: seq + 1, link },
        None => Head { records: 0, link: chain::start(&place.session) },
    })
}

fn insert(db: &Connection, end: Head, records: &[Record], blobs: Blobs<'_>, place: &Place) -> Result<Head, StoreError> {
    let sqlite = StoreError::sqlite(&place.database());
    let mut insert = db
        .prepare_cached("INSERT INTO record (seq, at, kind, body, pieces, link) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
        .map_err(&sqlite)?;
    let (mut head, at) = (end, now());
    for record in records {
        let whole = serde_json::to_string(record)?;
        let (body, pieces) = cut(&whole, blobs)?;
        let pieces = if pieces.is_empty() { String::new() } else { serde_json::to_string(&pieces)? };
        let row = Row { seq: head.records, at, kind: kind(&whole), body: &body, pieces: &pieces };
        let link = chain::next(&head.link, row);
        insert.execute(params![row.seq, row.at, row.kind, row.body, row.pieces, link]).map_err(&sqlite)?;
        head = Head { records: head.records + 1, link };
    }
    Ok(head)
}

/// What kind of record it is: the first string of its JSON.
fn kind(body: &str) -> &str {
    body.split('"').nth(1).unwrap_or_default()
}
