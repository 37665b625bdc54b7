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
use crate::salvage::salvage;

/// Reads a session from its first record to the last, and then what is appended. It never disturbs the writer.
#[derive(Debug)]
pub struct Reader {
    pub(crate) place: Place,
    pub(crate) db: Connection,
    /// What is wrong with the files, and hasn't been told yet.
    damage: Vec<Damage>,
    /// Whether the database is what could be salvaged of the session's.
    pub(crate) salvaged: bool,
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
        Self::open_any(place.clone())
    }

    /// Opens whichever session is in a folder.
    pub(crate) fn open_any(place: Place) -> Result<Self, StoreError> {
        let opened = open_to_read(&place).and_then(|db| Self::of(db, place.clone(), Vec::new()));
        let why = match &opened {
            Ok(reader) if reader.place.is_its_own() => return opened,
            // Its name may be what was damaged.
            Ok(_) => "the session's name isn't what was written".to_owned(),
            Err(error) if error.is_corruption() => error.cause(),
            Err(_) => return opened,
        };
        let salvaged = match salvage(&place)? {
            Some(db) => Self::of(db, place, vec![Damage::Database { why }])?,
            None => return opened,
        };
        let mut reader = match opened {
            Ok(reader) if !salvaged.place.is_its_own() => reader,
            _ => Self { salvaged: true, ..salvaged },
        };
        if !reader.place.is_its_own() {
            reader.damage.push(Damage::Misplaced { session: reader.place.session.clone() });
        }
        Ok(reader)
    }

    fn of(db: Connection, mut place: Place, damage: Vec<Damage>) -> Result<Self, StoreError> {
        let id: Result<String, _> = db.query_row("SELECT id FROM session", [], |row| row.get(0));
        place.session = id.map_err(StoreError::sqlite(&place.database()))?.into();
        let link = (!place.is_nameless()).then(|| chain::start(&place.session));
        Ok(Self { place, db, damage, salvaged: false, next: 0, link })
    }

    /// Reads at most `most` further records; fewer at the end. What is damaged is skipped and told.
    pub fn read(&mut self, most: usize) -> Result<Reading, StoreError> {
        let mut records = Vec::new();
        let damage = self.each(most, &mut |kept| records.push(kept))?;
        Ok(Reading { records, damage })
    }

    /// Reads everything that is left, and checks the end.
    pub fn read_all(&mut self) -> Result<Reading, StoreError> {
        let mut records = Vec::new();
        let damage = self.each_to_the_end(|kept| records.push(kept))?;
        Ok(Reading { records, damage })
    }

    /// Takes in everything that is left, a record at a time, and checks the end.
    pub(crate) fn each_to_the_end(&mut self, mut take: impl FnMut(Kept)) -> Result<Vec<Damage>, StoreError> {
        // Before the records: what is acknowledged in the meantime is no damage.
        let head = self.head();
        let mut damage = self.each(usize::MAX, &mut take)?;
        let (known, unreadable) = match head? {
            Ok(known) => (known, None),
            Err(damage) => (end_of_nothing(&self.place), Some(damage)),
        };
        if self.next < known.records {
            damage.extend(self.missed(self.next, known.records)?);
            damage.extend(self.each(usize::MAX, &mut take)?);
        }
        if self.next < known.records {
            damage.push(Damage::Shortened { found: self.next, known: known.records });
        }
        damage.extend(unreadable);
        Ok(damage)
    }

    /// Takes in at most `most` further records, one at a time.
    fn each(&mut self, most: usize, take: &mut dyn FnMut(Kept)) -> Result<Vec<Damage>, StoreError> {
        let (mut damage, mut left) = (std::mem::take(&mut self.damage), most);
        while left > 0 {
            let before = self.next;
            let scanned = self.scan(left, &mut damage, &mut |kept| {
                left -= 1;
                take(kept);
            });
            match scanned {
                Ok(Scanned::Gap { to }) => {
                    damage.extend(self.missed(self.next, to)?);
                    if !self.holds(self.next, to)? {
                        damage.push(Damage::Missing { from: self.next, to });
                        (self.next, self.link) = (to, None);
                    }
                }
                Ok(Scanned::End) if self.next == before => break,
                Ok(Scanned::End) => {}
                Err(error) if error.is_corruption() => {
                    if !self.salvage(error.cause())? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            damage.append(&mut self.damage);
        }
        Ok(damage)
    }

    /// Goes on with what can be salvaged. False if that has been done already.
    fn salvage(&mut self, why: String) -> Result<bool, StoreError> {
        if self.salvaged {
            return Ok(false);
        }
        self.salvaged = true;
        let Some(db) = salvage(&self.place)? else { return Ok(false) };
        self.db = db;
        self.damage.push(Damage::Database { why });
        Ok(true)
    }

    /// Looks for records that SQLite doesn't find, and tells of it if there are some.
    fn missed(&mut self, from: u64, to: u64) -> Result<Option<Damage>, StoreError> {
        self.salvage(format!("SQLite doesn't find all records from {from} to {}", to - 1))?;
        // If there are none, that they are gone says everything.
        let told = std::mem::take(&mut self.damage).pop();
        Ok(if self.holds(from, to)? { told } else { None })
    }

    /// Whether there is one of these records.
    fn holds(&self, from: u64, to: u64) -> Result<bool, StoreError> {
        let query = "SELECT EXISTS (SELECT 1 FROM record WHERE seq >= ?1 AND seq < ?2)";
        self.db.query_row(query, [from, to], |row| row.get(0)).map_err(StoreError::sqlite(&self.place.database()))
    }

    /// Checks only that what was acknowledged is there.
    pub(crate) fn check_end(&mut self) -> Result<Vec<Damage>, StoreError> {
        let head = self.head()?;
        if !self.damage.is_empty() {
            return Ok(std::mem::take(&mut self.damage));
        }
        let end = match end(&self.db, &self.place) {
            Ok(end) => end,
            Err(error) if error.is_corruption() => return Ok(vec![Damage::Database { why: error.cause() }]),
            Err(error) => return Err(error),
        };
        let known = match head {
            Ok(known) => known,
            Err(damage) => return Ok(vec![damage]),
        };
        if end.records < known.records {
            let damage = self.missed(end.records, known.records)?;
            let found = self::end(&self.db, &self.place)?.records;
            let gone = (found < known.records).then_some(Damage::Shortened { found, known: known.records });
            return Ok(damage.into_iter().chain(gone).collect());
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

    /// How many records were acknowledged.
    fn head(&self) -> Result<Result<Head, Damage>, StoreError> {
        let head = Head::read(&self.place.head()).map_err(|error| StoreError::io(self.place.head(), error))?;
        // It is there before the database is, and so before any record.
        let none =
            || end(&self.db, &self.place).is_ok_and(|end| end.records == 0).then_some(end_of_nothing(&self.place));
        Ok(match head {
            Some(head) => head.map_err(|_| Damage::HeadUnreadable),
            None => none().ok_or(Damage::HeadUnreadable),
        })
    }

    fn scan(
        &mut self,
        most: usize,
        damage: &mut Vec<Damage>,
        take: &mut dyn FnMut(Kept),
    ) -> Result<Scanned, StoreError> {
        let Self { place, db, next, link, .. } = self;
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
                return Ok(Scanned::Gap { to: seq });
            }
            let (kept, own_link) = take_in(row, seq, *link, place, damage);
            (*next, *link) = (seq + 1, own_link);
            if let Some(kept) = kept {
                take(kept);
            }
        }
        Ok(Scanned::End)
    }
}

/// Where a scan stopped.
enum Scanned {
    /// After as many as were asked for, or where no more follow.
    End,
    /// Where records are missing, up to this one.
    Gap { to: u64 },
}

fn end_of_nothing(place: &Place) -> Head {
    Head { records: 0, link: chain::start(&place.session) }
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
