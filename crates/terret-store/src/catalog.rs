//! What people do with sessions besides running them. All of it reads and writes files on the caller's thread.

use std::path::Path;

use terret_agent::machine::{Record, State, apply};
use terret_agent::{SessionId, fold};
use terret_llm::Transcript;

use crate::copied::{close_open_calls, end_run};
use crate::database::open_to_write;
use crate::error::{Damage, Listed, StoreError};
use crate::index::{Index, stamp};
use crate::info::{Origin, SessionInfo};
use crate::journal::{SqliteJournal, locked};
use crate::lock::{self, Lock};
use crate::numbering::Numbering;
use crate::owned::{Owned, check_end};
use crate::place::{Place, sync_folder};
use crate::reader::{Reader, Reading, exists};
use crate::setup::{GivenRules, Setup};

/// A session that was made of another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Forked {
    /// The new session.
    pub session: SessionId,
    /// How many records were copied.
    pub records: u64,
    /// What is wrong with the other one.
    pub damage: Vec<Damage>,
    /// How many messages were asked for and not copied, because they come after the first damage. They can be read.
    pub left_out: usize,
}

impl SqliteJournal {
    /// All sessions that have a record, the one that was last appended to first. A session that can't be read is in the
    /// list, with its [`trouble`](SessionInfo::trouble).
    pub fn list(&self) -> Result<Vec<SessionInfo>, StoreError> {
        let entries = match std::fs::read_dir(self.folder()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io(self.folder(), error)),
        };
        let (mut index, mut infos, mut new) = (Index::open(self.folder()), Vec::new(), Vec::new());
        for entry in entries {
            let folder = entry.map_err(|error| StoreError::io(self.folder(), error))?.path();
            let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
            let place = Place::named(self.folder(), name);
            if name.starts_with('.') || !place.database().exists() {
                continue;
            }
            let stamp = stamp(&place);
            let info = match index.get(name, &stamp) {
                Some((info, true)) => info,
                known => {
                    let info = look(place, known.map(|(info, _)| info));
                    new.push((name.to_owned(), stamp, info.clone()));
                    info
                }
            };
            infos.push(info);
        }
        index.update(&new);
        infos.retain(|info| info.records > 0 || info.trouble.is_some());
        infos.sort_by(|a, b| (b.updated, &b.id).cmp(&(a.updated, &a.id)));
        Ok(infos)
    }

    /// The session that somebody means: the one of this name, or that was called so, or whose name begins so.
    pub fn find(&self, meant: &str) -> Result<SessionInfo, StoreError> {
        let mut infos = self.list()?;
        let unknown = || StoreError::Unknown { session: meant.to_owned().into(), folder: self.folder().into() };
        if meant.is_empty() {
            return Err(unknown());
        }
        if let Some(exact) = infos.iter().position(|info| info.id.as_str() == meant) {
            return Ok(infos.swap_remove(exact));
        }
        let is_called = |info: &SessionInfo| info.title.as_deref() == Some(meant);
        match infos.iter().any(is_called) {
            true => infos.retain(is_called),
            false => infos.retain(|info| info.id.as_str().starts_with(meant)),
        }
        match infos.len() {
            1 => infos.pop().ok_or_else(unknown),
            0 => Err(unknown()),
            _ => {
                let sessions = infos.into_iter().map(|info| info.id).collect();
                Err(StoreError::Ambiguous { prefix: meant.to_owned(), sessions })
            }
        }
    }

    /// Calls a session something, also while it runs; `None` takes its title away.
    pub fn rename(&self, session: &SessionId, title: Option<&str>) -> Result<(), StoreError> {
        let place = self.existing(session)?;
        check_end(&place)?;
        let db = open_to_write(&place.database())?;
        db.execute("UPDATE session SET title = ?1", [title]).map_err(StoreError::sqlite(&place.database()))?;
        Ok(())
    }

    /// Deletes a session with everything that belongs to it. One that somebody has open is refused.
    pub fn delete(&self, session: &SessionId) -> Result<(), StoreError> {
        let place = self.existing(session)?;
        // Not from one that was only stopped: it would go on to write into nothing.
        let _lock = locked(&place, Lock::take_free, self.lease_time())?;
        // At once for everybody, however long the rest takes.
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy();
        let gone = self.folder().join(format!(".deleted-{name}"));
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::io(path, error)
        };
        if gone.exists() {
            std::fs::remove_dir_all(&gone).map_err(io(&gone))?;
        }
        std::fs::rename(&place.folder, &gone).map_err(io(&place.folder))?;
        sync_folder(self.folder())?;
        std::fs::remove_dir_all(&gone).map_err(|source| StoreError::LeftBehind { path: gone, source })
    }

    /// Makes a new session of the first `messages` messages of another one, or of all that can be read of it; more than
    /// there are is an error. Results stay with their calls, and so it may be some more. The other session may be open, or
    /// damaged: then, what comes after the first damage is left out. A run that hasn't ended is ended in the new one, and
    /// calls without a result get one that says so: they are the other session's, which may go on with them.
    pub fn fork(&self, session: &SessionId, messages: Option<usize>, new: &SessionId) -> Result<Forked, StoreError> {
        let Reading { records, damage } = self.reader(session)?.read_all()?;
        let there = messages_of(records.iter().map(|kept| &kept.record));
        if let Some(messages) = messages.filter(|messages| *messages > there) {
            return Err(StoreError::TooFew { session: session.clone(), messages, there });
        }
        let whole = records.iter().zip(0..).take_while(|(kept, seq)| kept.seq == *seq && !is_damaged(&damage, *seq));
        let mut records: Vec<Record> = whole.map(|(kept, _)| kept.record.clone()).collect();
        let left_out = messages.unwrap_or(there).saturating_sub(messages_of(&records));
        if let Some(messages) = messages {
            records.truncate(cut_after(&records, messages));
        }
        let origin = Origin { session: session.clone(), records: records.len() as u64 };
        let state = fold(&records);
        records.extend(close_open_calls(&state));
        records.extend(end_run(&state, "this is a copy"));
        self.make(new, &records, |owned| owned.set_origin(&serde_json::to_string(&origin)?), Some(session))?;
        if !records.is_empty() {
            let setup = self.reader(session)?.setup().unwrap_or_default();
            self.set_up(new, &Setup { rules: GivenRules::default(), ..setup })?;
        }
        Ok(Forked { session: new.clone(), records: origin.records, damage, left_out })
    }

    /// Everything that is wrong with a session: what [`Reader::read_all`] finds, and what SQLite says of the file. Nothing is
    /// changed.
    pub fn check(&self, session: &SessionId) -> Result<Vec<Damage>, StoreError> {
        let mut reader = self.reader(session)?;
        let mut damage = reader.read_all()?.damage;
        if reader.salvaged {
            return Ok(damage);
        }
        let said: Result<String, _> = reader.db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
        let why = said.map_or_else(|error| Some(error.to_string()), |said| (said != "ok").then_some(said));
        damage.extend(why.map(|why| Damage::Database { why }));
        Ok(damage)
    }

    /// The messages from which the next model call of a session would be built, as far as they can be read, and what can't.
    pub fn transcript(&self, session: &SessionId) -> Result<(Transcript, Vec<Damage>), StoreError> {
        let mut state = State::new();
        let damage = self.reader(session)?.each_to_the_end(|kept| apply(&mut state, &kept.record))?;
        Ok((state.transcript().clone(), damage))
    }

    /// Makes a session of these records, and says what else is to be said of it. One that has records is refused. What
    /// blobs another session has are shared with it.
    pub(crate) fn make(
        &self,
        session: &SessionId,
        records: &[Record],
        say: impl FnOnce(&Owned) -> Result<(), StoreError>,
        shares_with: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        let place = Place::new(self.folder(), session);
        let mut owned = Owned::open(&place, locked(&place, Lock::take_free, self.lease_time())?)?;
        owned.shares_with = shares_with.map(|other| Place::new(self.folder(), other).blobs());
        let made = owned.append(0, records).and_then(|()| say(&owned));
        owned.close();
        made
    }

    /// Who has a session open for writing, for people; none if nobody has, also if whoever had has died or was silent for
    /// longer than its lease. Who writes isn't disturbed.
    pub fn owner(&self, session: &SessionId) -> Option<String> {
        lock::holder(&Place::new(self.folder(), session).owner())
    }

    fn existing(&self, session: &SessionId) -> Result<Place, StoreError> {
        let place = Place::new(self.folder(), session);
        match exists(&place)? {
            true => Ok(place),
            false => Err(StoreError::Unknown { session: session.clone(), folder: self.folder().into() }),
        }
    }
}

/// What a list shows. Only what is new since it was last looked at is read.
fn look(place: Place, known: Option<SessionInfo>) -> SessionInfo {
    let folder = place.session.clone();
    let id = folder.clone();
    let look = || -> Result<SessionInfo, StoreError> {
        let mut reader = Reader::open_any(place)?;
        let (about, setup) = (reader.about()?, reader.setup()?);
        // A copy that somebody made by hand goes by the name of its folder, for there is another one of its own name.
        let id = if reader.place.is_its_own() { about.id } else { folder };
        let mut info = match known {
            Some(info) if info.trouble.is_none() && info.id == id && reader.skip_to(info.records)? => info,
            _ => SessionInfo::new(id),
        };
        (info.created, info.title, info.origin) = (about.created, about.title, about.origin);
        info.setup = setup;
        info.updated = info.updated.max(info.created);
        let damage = reader.each_to_the_end(|kept| info.take_in(&kept))?;
        info.trouble = (!damage.is_empty()).then(|| Listed(&damage).to_string());
        Ok(info)
    };
    look().unwrap_or_else(|error| SessionInfo { trouble: Some(error.to_string()), ..SessionInfo::new(id) })
}

/// How many messages were said in these records.
fn messages_of<'a>(records: impl IntoIterator<Item = &'a Record>) -> usize {
    let mut numbering = Numbering::default();
    (0..).zip(records).map(|(seq, record)| numbering.take(seq, record).len()).sum()
}

fn is_damaged(damage: &[Damage], seq: u64) -> bool {
    damage.iter().any(|damage| match damage {
        // What it is chained to is the name of its session, which is lost.
        Damage::Unchecked { record: 0 } => false,
        Damage::Unreadable { record, .. }
        | Damage::Changed { record }
        | Damage::Unchecked { record }
        | Damage::BlobMissing { record, .. }
        | Damage::BlobChanged { record, .. } => *record == seq,
        _ => false,
    })
}

/// How many records yield the first `messages` messages, and the results of their calls. The end of a run belongs to its
/// last message.
fn cut_after(records: &[Record], messages: usize) -> usize {
    let (mut state, mut numbering, mut said) = (State::new(), Numbering::default(), 0);
    if messages == 0 {
        return 0;
    }
    for (record, after) in records.iter().zip(1..) {
        apply(&mut state, record);
        said += numbering.take(after, record).len();
        if said >= messages && state.batch().is_none() {
            let ends =
                matches!(records.get(usize::try_from(after).unwrap_or(usize::MAX)), Some(Record::RunEnded { .. }));
            return usize::try_from(after).unwrap_or(usize::MAX) + usize::from(ends);
        }
    }
    records.len()
}

impl Reader {
    /// What the session says of itself.
    pub(crate) fn about(&self) -> Result<About, StoreError> {
        let path = self.place.database();
        let row = self.db.query_row("SELECT id, created, title, origin FROM session", [], |row| {
            let origin: Option<String> = row.get(3)?;
            Ok(About {
                id: row.get::<_, String>(0)?.into(),
                created: row.get(1)?,
                title: row.get(2)?,
                origin: origin.and_then(|origin| serde_json::from_str(&origin).ok()),
            })
        });
        row.map_err(StoreError::sqlite(&path))
    }
}

pub(crate) struct About {
    pub(crate) id: SessionId,
    pub(crate) created: i64,
    pub(crate) title: Option<String>,
    origin: Option<Origin>,
}
