//! Searching what was said.
//!
//! An index of all runs of three characters tells which messages may hold a text; those are read, and looked into. So a
//! hit is always what stands in a session, whatever the index says. The index grows when somebody searches, by what is new
//! since the last time. It can be deleted at any time; where there is none, everything is read.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use terret_agent::machine::Record;
use terret_llm::{Block, Message};

use crate::error::StoreError;
use crate::index::open_rebuildable;
use crate::info::SessionInfo;
use crate::journal::SqliteJournal;
use crate::numbering::{Numbered, Numbering};
use crate::reader::Kept;

/// A message that holds what was searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The session.
    pub session: SessionInfo,
    /// The message's number, from 1: a fork of so many messages ends with it. None if no model has been told it.
    pub message: Option<u64>,
    /// The number of the record that holds the message, from 0.
    pub record: u64,
    /// The line in which it was found, cut to what stands around it.
    pub line: String,
}

const FORMAT: i64 = 3;
/// Records are only ever appended, so a session is known by when it was made and how many were taken in, and goes on
/// with the numbers of its messages. Of a text, nothing is kept but which runs of three characters it has.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, created INTEGER NOT NULL, records INTEGER NOT NULL,
    numbering TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, session TEXT NOT NULL, record INTEGER NOT NULL, message INTEGER);
CREATE INDEX IF NOT EXISTS said_in ON said (session, record);
CREATE VIRTUAL TABLE IF NOT EXISTS runs
    USING fts5 (text, content = '', contentless_delete = 1, detail = 'none', tokenize = 'trigram');
";

impl SqliteJournal {
    /// The messages that hold a text, of the newest session first; at most `most`. Case doesn't matter for ASCII. The text
    /// is taken as it is: nothing in it has a meaning.
    pub fn search(&self, text: &str, most: usize) -> Result<Vec<Hit>, StoreError> {
        let (sessions, text) = (self.list()?, text.to_ascii_lowercase());
        let candidates = self.candidates(&sessions, &text);
        let mut hits = Vec::new();
        for session in sessions {
            // A damaged session is searched as far as it can be read.
            let Ok(mut reader) = self.reader(&session.id) else { continue };
            let mut look = |kept: &Kept, message: Option<u64>| {
                let line = message_of(&kept.record).and_then(|message| line_with(message, &text));
                hits.extend(line.map(|line| Hit { session: session.clone(), message, record: kept.seq, line }));
                hits.len() < most
            };
            match &candidates {
                Some(candidates) => {
                    for (record, message) in candidates.get(session.id.as_str()).into_iter().flatten() {
                        let Ok(true) = reader.skip_to(*record) else { continue };
                        let Ok(reading) = reader.read(1) else { continue };
                        if !reading.records.iter().all(|kept| look(kept, *message)) {
                            return Ok(hits);
                        }
                    }
                }
                None => {
                    let mut numbering = Numbering::default();
                    while let Ok(reading) = reader.read(1000)
                        && !reading.records.is_empty()
                    {
                        let numbered = reading.records.iter().flat_map(|kept| numbering.take(kept.seq, &kept.record));
                        let numbers: HashMap<u64, u64> = numbered.map(|it| (it.record, it.message)).collect();
                        if !reading.records.iter().all(|kept| look(kept, numbers.get(&kept.seq).copied())) {
                            return Ok(hits);
                        }
                    }
                }
            }
        }
        Ok(hits)
    }

    /// The records that may hold a text; none if they can't be told and everything must be read.
    fn candidates(&self, sessions: &[SessionInfo], text: &str) -> Option<Candidates> {
        let query = query(text)?;
        let path = self.folder().join("search.db");
        let find = || -> rusqlite::Result<Candidates> {
            let mut db = open_rebuildable(&path, FORMAT, SCHEMA)?;
            self.update(&mut db, sessions)?;
            find(&db, &query)
        };
        let found = find().or_else(|_| {
            // Damaged, or of another version. Whatever is in it is in the sessions, too.
            let _ = std::fs::remove_file(&path);
            find()
        });
        found.ok()
    }

    /// Takes in what is new, and forgets sessions that are gone.
    fn update(&self, db: &mut Connection, sessions: &[SessionInfo]) -> rusqlite::Result<()> {
        let mut known: HashMap<String, (i64, u64, String)> = db
            .prepare("SELECT id, created, records, numbering FROM session")?
            .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?))))?
            .collect::<Result<_, _>>()?;
        for session in sessions {
            let name = session.id.as_str();
            let known = known.remove(name).filter(|(created, ..)| *created == session.created);
            if known.as_ref().is_some_and(|(_, records, _)| *records == session.records) {
                continue;
            }
            let Ok(mut reader) = self.reader(&session.id) else { continue };
            let transaction = db.transaction()?;
            let numbering = known
                .filter(|(_, records, _)| *records < session.records && matches!(reader.skip_to(*records), Ok(true)))
                .and_then(|(.., numbering)| serde_json::from_str(&numbering).ok());
            let mut numbering: Numbering = match numbering {
                Some(numbering) => numbering,
                None => {
                    let Ok(anew) = self.reader(&session.id) else { continue };
                    reader = anew;
                    forget(&transaction, name)?;
                    Numbering::default()
                }
            };
            while let Ok(reading) = reader.read(200)
                && !reading.records.is_empty()
            {
                for kept in &reading.records {
                    take_in(&transaction, name, kept)?;
                    for Numbered { record, message } in numbering.take(kept.seq, &kept.record) {
                        transaction
                            .prepare_cached("UPDATE said SET message = ?1 WHERE session = ?2 AND record = ?3")?
                            .execute(params![message, name, record])?;
                    }
                }
            }
            let keep = "INSERT OR REPLACE INTO session (id, created, records, numbering) VALUES (?1, ?2, ?3, ?4)";
            let numbering = serde_json::to_string(&numbering).unwrap_or_default();
            transaction.execute(keep, params![name, session.created, reader.next, numbering])?;
            transaction.commit()?;
        }
        for gone in known.keys() {
            forget(db, gone)?;
        }
        Ok(())
    }
}

/// By session: records, and the numbers of the messages in them.
type Candidates = HashMap<String, Vec<(u64, Option<u64>)>>;

/// What the index is asked: for each run of three characters, as a text in quotes. None if there is no such run.
fn query(text: &str) -> Option<String> {
    /// What was found is looked into anyway.
    const ENOUGH: usize = 32;
    let characters: Vec<char> = text.chars().collect();
    let runs = characters.windows(3).filter(|run| !run.contains(&'\0')).take(ENOUGH);
    let quoted: Vec<_> =
        runs.map(|run| format!("\"{}\"", run.iter().collect::<String>().replace('"', "\"\""))).collect();
    (!quoted.is_empty()).then(|| quoted.join(" AND "))
}

fn find(db: &Connection, query: &str) -> rusqlite::Result<Candidates> {
    let mut statement = db.prepare(
        "SELECT said.session, said.record, said.message FROM runs JOIN said ON said.id = runs.rowid WHERE runs MATCH ?1
         ORDER BY said.record",
    )?;
    let mut rows = statement.query([query])?;
    let mut found = Candidates::new();
    while let Some(row) = rows.next()? {
        found.entry(row.get(0)?).or_default().push((row.get(1)?, row.get(2)?));
    }
    Ok(found)
}

fn take_in(db: &Connection, session: &str, kept: &Kept) -> rusqlite::Result<()> {
    let Some(text) = message_of(&kept.record).map(text_of).filter(|text| !text.is_empty()) else { return Ok(()) };
    db.prepare_cached("INSERT INTO said (session, record) VALUES (?1, ?2)")?.execute(params![session, kept.seq])?;
    let id = db.last_insert_rowid();
    db.prepare_cached("INSERT INTO runs (rowid, text) VALUES (?1, ?2)")?.execute(params![id, text])?;
    Ok(())
}

fn forget(db: &Connection, session: &str) -> rusqlite::Result<()> {
    db.execute("DELETE FROM runs WHERE rowid IN (SELECT id FROM said WHERE session = ?1)", [session])?;
    db.execute("DELETE FROM said WHERE session = ?1", [session])?;
    db.execute("DELETE FROM session WHERE id = ?1", [session]).map(drop)
}

fn message_of(record: &Record) -> Option<&Message> {
    match record {
        Record::RunStarted { prompt, .. } => prompt.as_deref(),
        Record::Queued { message, .. } | Record::Objected { message } | Record::ReplyAccepted { message, .. } => {
            Some(message)
        }
        Record::CallClosed { result } => Some(result),
        _ => None,
    }
}

/// The texts of a message that people look for.
fn texts(message: &Message) -> Vec<&str> {
    match message {
        Message::User(user) => user.content.iter().filter_map(|content| content.as_text()).collect(),
        Message::ToolResult(result) => result.content.iter().filter_map(|content| content.as_text()).collect(),
        Message::Assistant(reply) => {
            let mut texts = Vec::new();
            for block in &reply.content {
                match block {
                    Block::Text(block) => texts.push(block.text.as_str()),
                    Block::ToolCall(call) => texts.extend([call.name.as_str(), call.arguments.as_str()]),
                    _ => {}
                }
            }
            texts
        }
    }
}

/// SQLite ends a text at a NUL when it cuts it into runs.
fn text_of(message: &Message) -> String {
    texts(message).join("\n").replace('\0', " ")
}

/// The first line of a message that holds a text, with what stands around it.
fn line_with(message: &Message, text: &str) -> Option<String> {
    texts(message).into_iter().flat_map(str::lines).find_map(|line| {
        let at = line.to_ascii_lowercase().find(text)?;
        let from = line.floor_char_boundary(at.saturating_sub(60));
        let to = line.ceil_char_boundary((at + text.len() + 60).min(line.len()));
        line.get(from..to).map(|line| line.trim().to_owned())
    })
}
