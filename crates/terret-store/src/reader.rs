use std::path::Path;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow};
use terret_agent::SessionId;
use terret_agent::machine::Record;

use crate::blobs::{Piece, splice};
use crate::chain::{self, Link, Row};
use crate::database::open_to_read;
use crate::error::{Damage, StoreError};
use crate::head::Head;
use crate::owned::end;
use crate::place::Place;

/// Reads a session from its first record to the last, and then what is appended. It never disturbs the writer.
#[derive(Debug)]
pub struct Reader {
    pub(crate) place: Place,
    pub(crate) db: Connection,
    /// The number of the next record.
    pub(crate) next: u64,
    /// The link of the record before that one, if it could be read.
    pub(crate) link: Option<Link>,
}

/// A record as it was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its number in the session, from 0.
    pub seq: u64,
    /// When it was appended, in Unix milliseconds.
    pub at: i64,
    /// The record.
    pub record: Record,
}

/// What could be read, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// All records that can be read, in order.
    pub records: Vec<Kept>,
    /// What can't, and what isn't what was written. Empty for a session that is whole.
    pub damage: Vec<Damage>,
}

impl Reader {
    pub(crate) fn open(root: &Path, session: &SessionId) -> Result<Self, StoreError> {
        let place = Place::new(root, session);
        match exists(&place)? {
            true => Self::open_place(&place),
            false => Err(StoreError::Unknown { session: session.clone(), folder: root.to_owned() }),
        }
    }

    pub(crate) fn open_place(place: &Place) -> Result<Self, StoreError> {
        let reader = Self::open_any(place.clone())?;
        match reader.place.session == place.session {
            true => Ok(reader),
            false => Err(StoreError::Foreign { path: place.database() }),
        }
    }

    /// Opens whichever session is in a folder.
    pub(crate) fn open_any(mut place: Place) -> Result<Self, StoreError> {
        let db = open_to_read(&place)?;
        let id: String = db
            .query_row("SELECT id FROM session", [], |row| row.get(0))
            .map_err(StoreError::sqlite(&place.database()))?;
        place.session = id.into();
        let link = Some(chain::start(&place.session));
        Ok(Self { place, db, next: 0, link })
    }

    /// Reads at most `most` further records; fewer at the end. What is damaged is skipped and told.
    pub fn read(&mut self, most: usize) -> Result<Reading, StoreError> {
        let mut records = Vec::new();
        let damage = self.each(most, |kept| records.push(kept))?;
        Ok(Reading { records, damage })
    }

    /// Reads everything that is left, and checks the end.
    pub fn read_all(&mut self) -> Result<Reading, StoreError> {
        let mut records = Vec::new();
        let damage = self.each_to_the_end(|kept| records.push(kept))?;
        Ok(Reading { records, damage })
    }

    /// Takes in everything that is left, a record at a time, and checks the end.
    pub(crate) fn each_to_the_end(&mut self, take: impl FnMut(Kept)) -> Result<Vec<Damage>, StoreError> {
        // Before the records: what is acknowledged in the meantime is no damage.
        let head = self.head();
        let mut damage = self.each(usize::MAX, take)?;
        let (known, unreadable) = match head? {
            Ok(known) => (known, None),
            Err(damage) => (Head { records: 0, link: chain::start(&self.place.session) }, Some(damage)),
        };
        if self.next < known.records {
            damage.push(Damage::Shortened { found: self.next, known: known.records });
        }
        damage.extend(unreadable);
        Ok(damage)
    }

    /// Takes in at most `most` further records, one at a time.
    fn each(&mut self, most: usize, mut take: impl FnMut(Kept)) -> Result<Vec<Damage>, StoreError> {
        let (mut damage, mut left) = (Vec::new(), most);
        while left > 0 {
            let before = self.next;
            let scanned = self.scan(left, &mut damage, &mut |kept| {
                left -= 1;
                take(kept);
            });
            match scanned {
                Ok(()) if self.next == before => break,
                Ok(()) => {}
                Err(error) if error.is_corruption() => {
                    if !self.step_over(error, &mut damage)? {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(damage)
    }

    /// Checks only that what was acknowledged is there.
    pub(crate) fn check_end(&mut self) -> Result<Vec<Damage>, StoreError> {
        let head = self.head()?;
        let end = match end(&self.db, &self.place) {
            Ok(end) => end,
            Err(error) if error.is_corruption() => return Ok(vec![Damage::Database { why: error.to_string() }]),
            Err(error) => return Err(error),
        };
        let known = match head {
            Ok(known) => known,
            Err(damage) => return Ok(vec![damage]),
        };
        if end.records < known.records {
            return Ok(vec![Damage::Shortened { found: end.records, known: known.records }]);
        }
        let Some(last) = known.records.checked_sub(1) else { return Ok(Vec::new()) };
        Ok(match self.link_of(last)? {
            Some(link) if link == known.link => Vec::new(),
            Some(_) => vec![Damage::Changed { record: last }],
            None => vec![Damage::Missing { from: last, to: known.records }],
        })
    }

    /// Goes on after this many records, if there are as many.
    pub(crate) fn skip_to(&mut self, records: u64) -> Result<bool, StoreError> {
        let Some(last) = records.checked_sub(1) else { return Ok(true) };
        let Some(link) = self.link_of(last)? else { return Ok(false) };
        (self.next, self.link) = (records, Some(link));
        Ok(true)
    }

    /// The link of a record, as it stands there.
    pub(crate) fn link_of(&self, record: u64) -> Result<Option<Link>, StoreError> {
        let link = self.db.query_row("SELECT link FROM record WHERE seq = ?1", [record], |row| row.get(0)).optional();
        link.map_err(StoreError::sqlite(&self.place.database()))
    }

    /// How many records were acknowledged; nothing was if nobody says so.
    fn head(&self) -> Result<Result<Head, Damage>, StoreError> {
        let head = Head::read(&self.place.head()).map_err(|error| StoreError::io(self.place.head(), error))?;
        let none = Head { records: 0, link: chain::start(&self.place.session) };
        Ok(head.unwrap_or(Ok(none)).map_err(|_| Damage::HeadUnreadable))
    }

    fn scan(&mut self, most: usize, damage: &mut Vec<Damage>, take: &mut dyn FnMut(Kept)) -> Result<(), StoreError> {
        let Self { place, db, next, link } = self;
        let path = place.database();
        let sqlite = StoreError::sqlite(&path);
        let mut statement = db
            .prepare_cached(
                "SELECT seq, at, kind, body, pieces, link FROM record WHERE seq >= ?1 ORDER BY seq LIMIT ?2",
            )
            .map_err(&sqlite)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query((*next, most)).map_err(&sqlite)?;
        while let Some(row) = rows.next().map_err(&sqlite)? {
            let seq: u64 = row.get(0).map_err(&sqlite)?;
            if seq < *next {
                damage.push(Damage::Database { why: format!("record {seq} stands after record {next}") });
                continue;
            }
            if seq > *next {
                damage.push(Damage::Missing { from: *next, to: seq });
                *link = None;
            }
            let (kept, own_link) = take_in(row, seq, *link, place, damage);
            (*next, *link) = (seq + 1, own_link);
            if let Some(kept) = kept {
                take(kept);
            }
        }
        Ok(())
    }

    /// Goes on after a record that SQLite can't read. False where none follows.
    fn step_over(&mut self, error: StoreError, damage: &mut Vec<Damage>) -> Result<bool, StoreError> {
        // Not the database's own word: the number of its last record may be what was damaged.
        let known = self.head()?.map_or(0, |head| head.records);
        if self.next >= known {
            damage.push(Damage::Database { why: error.to_string() });
            return Ok(false);
        }
        damage.push(Damage::Unreadable { record: self.next, why: error.to_string() });
        self.next += 1;
        self.link = None;
        Ok(true)
    }
}

/// Whether a session has a database. One that is gone although records were acknowledged is damage.
pub(crate) fn exists(place: &Place) -> Result<bool, StoreError> {
    let io = |error| StoreError::io(&place.folder, error);
    if place.database().try_exists().map_err(io)? {
        return Ok(true);
    }
    match Head::read(&place.head()).map_err(io)? {
        Some(Ok(Head { records, .. })) if records > 0 => Err(StoreError::Damaged {
            session: place.session.clone(),
            path: place.folder.clone(),
            damage: vec![Damage::Shortened { found: 0, known: records }],
        }),
        _ => Ok(false),
    }
}

/// A row as a record, as far as it can be read, and its link. `previous` is the link before it, if that is known.
fn take_in(
    row: &SqlRow<'_>,
    seq: u64,
    previous: Option<Link>,
    place: &Place,
    damage: &mut Vec<Damage>,
) -> (Option<Kept>, Option<Link>) {
    let link: Option<Link> = row.get(5).ok();
    let mut read = || -> Result<Kept, String> {
        let at = column(row, 1)?;
        let (kind, body, pieces): (String, String, String) = (column(row, 2)?, column(row, 3)?, column(row, 4)?);
        let kept = Row { seq, at, kind: &kind, body: &body, pieces: &pieces };
        match previous {
            Some(previous) if Some(chain::next(&previous, kept)) == link => {}
            Some(_) => damage.push(Damage::Changed { record: seq }),
            None => damage.push(Damage::Unchecked { record: seq }),
        }
        let whole = if pieces.is_empty() {
            body
        } else {
            let pieces: Vec<Piece> = serde_json::from_str(&pieces).map_err(|error| error.to_string())?;
            let (whole, lost) = splice(&body, &pieces, &place.blobs(), seq);
            damage.extend(lost);
            whole
        };
        let record = serde_json::from_str(&whole).map_err(|error| error.to_string())?;
        Ok(Kept { seq, at, record })
    };
    match read() {
        Ok(kept) => (Some(kept), link),
        Err(why) => {
            damage.push(Damage::Unreadable { record: seq, why });
            (None, link)
        }
    }
}

fn column<T: FromSql>(row: &SqlRow<'_>, at: usize) -> Result<T, String> {
    row.get(at).map_err(|error| error.to_string())
}
