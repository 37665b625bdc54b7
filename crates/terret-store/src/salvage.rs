//! What is left of a database that SQLite can't read any more.
//!
//! SQLite finds a page by way of other pages, so that one that is lost or changed can hide all that are behind it; a file
//! that is shorter than its first page says can't be opened at all. Here every page of the database and of its log is
//! looked at by itself, and the rows that stand in it are put into a new database that is nowhere but in temporary files.
//! The original is only read. A row may be found several times, and one that was changed once: the
//! [chain](crate::chain) says which one was written.
//!
//! (SQLite's documentation: "Database File Format".)

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};
use terret_agent::SessionId;

use crate::chain::{self, Link, Row};
use crate::database::SCHEMA;
use crate::error::StoreError;
use crate::place::Place;
use crate::setup;

/// A database with what was found; none if nothing of a session was.
pub(crate) fn salvage(place: &Place) -> Result<Option<Connection>, StoreError> {
    let io = |error| StoreError::io(place.database(), error);
    let mut pages = Pages::open(place).map_err(io)?;
    // Without a name: SQLite keeps it in a file of its own that it removes.
    let db = Connection::open("").map_err(StoreError::sqlite(&std::env::temp_dir()))?;
    let sqlite = StoreError::sqlite(&place.database());
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").map_err(&sqlite)?;
    db.execute_batch(SCHEMA).and_then(|()| db.execute_batch(FOUND)).map_err(&sqlite)?;
    let mut about = About::default();
    let mut error = None;
    pages
        .each(|pages, page| {
            let rows = rows(pages, page);
            error = rows.into_iter().try_for_each(|row| about.take(row, &db)).err();
            error.is_none()
        })
        .map_err(io)?;
    if let Some(error) = error {
        return Err(sqlite(error));
    }
    let found = about.finish(&db, place).map_err(&sqlite)?;
    db.execute_batch("COMMIT").map_err(&sqlite)?;
    Ok(found.then_some(db))
}

/// All copies of records that were found, once each.
const FOUND: &str = "
CREATE TABLE found (seq INTEGER NOT NULL, sum BLOB NOT NULL, at, kind, body, pieces, link, UNIQUE (seq, sum));
";

/// What stands beside the records.
#[derive(Default)]
struct About {
    /// The session's row, with the highest fence.
    session: Option<[Value; 7]>,
    setup: Option<String>,
}

impl About {
    /// Takes a row of whichever table it is of.
    fn take(&mut self, Found { id, values }: Found, db: &Connection) -> rusqlite::Result<()> {
        match values.as_slice() {
            [Value::Null, Value::Int(at), Value::Text(kind), Value::Text(body), Value::Text(pieces), Value::Blob(link)]
                // A page that was cut off has rows of zeros.
                if link.len() == size_of::<Link>() && id >= 0 && serde_json::from_str::<IgnoredAny>(body).is_ok() =>
            {
                let seq = u64::try_from(id).unwrap_or_default();
                let sum = chain::next(&Link::default(), Row { seq, at: *at, kind, body, pieces });
                let sum = Sha256::new().chain_update(sum).chain_update(link).finalize();
                db.prepare_cached("INSERT OR IGNORE INTO found VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                    .execute(params![id, sum.as_slice(), at, kind, body, pieces, link])
                    .map(drop)
            }
            [Value::Null, Value::Text(_), Value::Int(_), Value::Int(fence), Value::Text(_), title, origin]
                if id == 1 && [title, origin].into_iter().all(|it| matches!(it, Value::Null | Value::Text(_))) =>
            {
                let known = self.session.as_ref().map_or(i64::MIN, |row| row[3].int());
                if *fence >= known {
                    self.session = values.try_into().ok();
                }
                Ok(())
            }
            [Value::Null, Value::Text(body)] if id == 1 && body.starts_with('{') => {
                self.setup = Some(body.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Puts things in their place. False if there is nothing of a session.
    fn finish(self, db: &Connection, place: &Place) -> rusqlite::Result<bool> {
        let first: Option<i64> =
            db.query_row("SELECT at FROM found ORDER BY seq LIMIT 1", [], |row| row.get(0)).optional()?;
        let by_folder = place.folder.file_name().unwrap_or_default().to_string_lossy();
        let session = match (self.session, first) {
            (Some([_, Value::Text(id), created, _, _, title, origin]), _) => (id, created.int(), title, origin),
            (_, Some(first)) => (by_folder.into_owned(), first, Value::Null, Value::Null),
            _ => return Ok(false),
        };
        let (id, created, title, origin) = session;
        let keep =
            "INSERT INTO session (only, id, created, fence, owner, title, origin) VALUES (1, ?1, ?2, 0, '', ?3, ?4)";
        db.execute(keep, params![id, created, title.text(), origin.text()])?;
        if let Some(setup) = self.setup {
            db.execute_batch(setup::SCHEMA)?;
            db.execute("INSERT INTO setup (only, body) VALUES (1, ?1)", [setup])?;
        }
        choose(db, chain::start(&SessionId::from(id)))?;
        Ok(true)
    }
}

/// Of the copies of each record, keeps the one that was written, as far as the one before it tells which that is.
fn choose(db: &Connection, start: Link) -> rusqlite::Result<()> {
    let mut keep =
        db.prepare("INSERT INTO record SELECT seq, at, kind, body, pieces, link FROM found WHERE rowid = ?1")?;
    let mut found = db.prepare("SELECT rowid, seq, at, kind, body, pieces, link FROM found ORDER BY seq, rowid")?;
    let mut rows = found.query([])?;
    // The copy that is kept if there is no better one: its place, number and link, and whether it was written.
    let mut best: Option<(i64, u64, Link, bool)> = None;
    let mut before = Some((0, start));
    while let Some(row) = rows.next()? {
        let (at, kind, body, pieces): (i64, String, String, String) =
            (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        let (rowid, seq, link): (i64, u64, Link) = (row.get(0)?, row.get(1)?, row.get(6)?);
        if let Some((kept, number, link, _)) = best.take_if(|(_, number, ..)| *number != seq) {
            keep.execute([kept])?;
            before = Some((number + 1, link));
        }
        let previous = before.filter(|(next, _)| *next == seq).map(|(_, link)| link);
        let row = Row { seq, at, kind: &kind, body: &body, pieces: &pieces };
        let written = previous.is_some_and(|previous| chain::next(&previous, row) == link);
        if best.is_none_or(|(.., sure)| written && !sure) {
            best = Some((rowid, seq, link, written));
        }
    }
    best.map_or(Ok(()), |(kept, ..)| keep.execute([kept]).map(drop))
}

/// A row of a table.
struct Found {
    id: i64,
    values: Vec<Value>,
}

enum Value {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Value {
    fn int(&self) -> i64 {
        if let Value::Int(number) = self { *number } else { 0 }
    }

    fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }
}

/// What SQLite makes by default, and so what all sessions have, in bytes.
const PAGE: usize = 4096;
/// Of the log.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: usize = 24;

type Page = [u8; PAGE];

/// The pages of a database, and those in its log.
struct Pages {
    database: File,
    log: Option<File>,
    /// Where in the log the last copy of a page is.
    logged: HashMap<u32, u64>,
    /// How long both files are: no row is longer.
    bytes: u64,
}

impl Pages {
    fn open(place: &Place) -> io::Result<Self> {
        let log = match File::open(place.write_ahead_log()) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            log => Some(log?),
        };
        let database = File::open(place.database())?;
        let mut bytes = database.metadata()?.len();
        if let Some(log) = &log {
            bytes += log.metadata()?.len();
        }
        Ok(Self { database, log, logged: HashMap::new(), bytes })
    }

    /// Looks at every copy of every page, until the answer is no.
    fn each(&mut self, mut look: impl FnMut(&Self, &Page) -> bool) -> io::Result<()> {
        self.find_logged()?;
        let mut at = 0;
        while let Some(page) = self.at(&self.database, at)? {
            at += PAGE as u64;
            if !look(self, &page) {
                return Ok(());
            }
        }
        let Some(log) = &self.log else { return Ok(()) };
        let mut at = LOG_HEADER + FRAME_HEADER as u64;
        while let Some(page) = self.at(log, at)? {
            at += (FRAME_HEADER + PAGE) as u64;
            if !look(self, &page) {
                break;
            }
        }
        Ok(())
    }

    fn find_logged(&mut self) -> io::Result<()> {
        let Some(mut log) = self.log.as_ref() else { return Ok(()) };
        let end = log.metadata()?.len();
        let mut header = [0; LOG_HEADER as usize];
        let mut at = LOG_HEADER;
        log.seek(SeekFrom::Start(0))?;
        if log.read_exact(&mut header).is_err() {
            return Ok(());
        }
        while at + ((FRAME_HEADER + PAGE) as u64) <= end {
            let mut frame = [0; FRAME_HEADER];
            log.seek(SeekFrom::Start(at))?;
            log.read_exact(&mut frame)?;
            let page = u32_at(&frame, 0).unwrap_or_default();
            // What is behind the end of the log is of an earlier one, unless the salt is what was damaged.
            let is_current = frame.get(8..16) == header.get(16..24);
            let place = at + FRAME_HEADER as u64;
            match is_current {
                true => _ = self.logged.insert(page, place),
                false => _ = self.logged.entry(page).or_insert(place),
            }
            at += (FRAME_HEADER + PAGE) as u64;
        }
        Ok(())
    }

    /// The last copy of a page.
    fn page(&self, number: u32) -> Option<Page> {
        let logged = self.logged.get(&number).zip(self.log.as_ref());
        match logged {
            Some((at, log)) => self.at(log, *at).ok()?,
            None => self.at(&self.database, u64::from(number.checked_sub(1)?) * PAGE as u64).ok()?,
        }
    }

    /// The page that begins here; what is cut off of the last one is zero.
    fn at(&self, mut file: &File, at: u64) -> io::Result<Option<Page>> {
        let mut page = [0; PAGE];
        file.seek(SeekFrom::Start(at))?;
        let mut read = 0;
        while let Some(rest) = page.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match file.read(rest) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((read > 0).then_some(page))
    }
}

/// The rows of a page, as those of a leaf of a table. If it is none, or was damaged, nearly nothing of it looks like a row.
fn rows(pages: &Pages, page: &Page) -> Vec<Found> {
    let count = usize::from(u16_at(page, 3).unwrap_or_default()).min(PAGE / 2);
    let cells = (0..count).filter_map(|cell| u16_at(page, 8 + 2 * cell));
    cells.filter_map(|at| row(pages, page.get(usize::from(at)..)?)).collect()
}

fn row(pages: &Pages, cell: &[u8]) -> Option<Found> {
    let mut cell = Cursor(cell);
    let length = usize::try_from(cell.varint()?).ok().filter(|length| *length as u64 <= pages.bytes)?;
    let id = cell.varint()?;
    let payload = payload(pages, cell.0, length)?;
    let mut types = Cursor(&payload);
    let header = usize::try_from(types.varint()?).ok()?;
    let mut body = Cursor(payload.get(header..)?);
    // Without the length of the header itself.
    let own = payload.len() - types.0.len();
    let mut types = Cursor(types.0.get(..header.checked_sub(own)?)?);
    let mut values = Vec::new();
    while !types.0.is_empty() && values.len() < 8 {
        values.push(body.value(types.varint()?)?);
    }
    Some(Found { id, values })
}

/// The bytes of a row: all of them in its page, or the first ones there, and the others in a list of pages.
fn payload(pages: &Pages, cell: &[u8], length: usize) -> Option<Vec<u8>> {
    const MOST: usize = PAGE - 35;
    const LEAST: usize = (PAGE - 12) * 32 / 255 - 23;
    const REST: usize = PAGE - 4;
    if length <= MOST {
        return Some(cell.get(..length)?.to_vec());
    }
    let local = LEAST + (length - LEAST) % REST;
    let local = if local <= MOST { local } else { LEAST };
    let mut payload = cell.get(..local)?.to_vec();
    let mut next = u32_at(cell, local)?;
    while payload.len() < length {
        let page = pages.page(next)?;
        next = u32_at(&page, 0)?;
        payload.extend_from_slice(page.get(4..4 + REST.min(length - payload.len()))?);
    }
    Some(payload)
}

/// Bytes that are still to be read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<i64> {
        let mut value = 0_i64;
        for n in 0..9 {
            let byte = i64::from(*self.take(1)?.first()?);
            if n == 8 {
                return Some(value << 8 | byte);
            }
            value = value << 7 | byte & 0x7f;
            if byte < 0x80 {
                break;
            }
        }
        Some(value)
    }

    /// A value of one of SQLite's serial types. There are no numbers with a fraction in our tables.
    fn value(&mut self, serial: i64) -> Option<Value> {
        Some(match serial {
            0 => Value::Null,
            1..=4 => self.int(usize::try_from(serial).ok()?)?,
            5 => self.int(6)?,
            6 => self.int(8)?,
            8 | 9 => Value::Int(serial - 8),
            12.. if serial % 2 == 0 => Value::Blob(self.take(usize::try_from((serial - 12) / 2).ok()?)?.to_vec()),
            13.. => {
                let text = self.take(usize::try_from((serial - 13) / 2).ok()?)?;
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
            _ => return None,
        })
    }

    fn int(&mut self, bytes: usize) -> Option<Value> {
        let bytes = self.take(bytes)?;
        let sign = if bytes.first()? & 0x80 == 0 { 0 } else { -1 };
        Some(Value::Int(bytes.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte))))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
