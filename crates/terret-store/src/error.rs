use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use terret_agent::{JournalError, SessionId};

/// Why a session can't be read or written. Each says which file, what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no session {:?} in {}", session.as_str(), folder.display())]
    Unknown {
        /// The session.
        session: SessionId,
        /// Where it would be.
        folder: PathBuf,
    },
    /// Several sessions begin so, or are called so.
    #[error("{prefix:?} may be {} sessions ({}): say more of the one that is meant", sessions.len(), Names(sessions))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// The sessions, the newest first.
        sessions: Vec<SessionId>,
    },
    /// Somebody else has the session open for writing.
    #[error("session {session} is open in {owner}: end that first, or fork the session")]
    Owned {
        /// The session.
        session: SessionId,
        /// Who has it, for people.
        owner: String,
    },
    /// This writer was taken for dead, and somebody else took the session over.
    #[error("session {session} was taken over by {owner}: nothing further is written here")]
    Fenced {
        /// The session.
        session: SessionId,
        /// Who has it now, for people.
        owner: String,
    },
    /// The writer doesn't know of the last records.
    #[error("another process has continued session {session}: {expected} records were expected, {found} are there")]
    Behind {
        /// The session.
        session: SessionId,
        /// How many records the writer knew of.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Something of the session was changed or lost behind our back. Nothing is written to it; what is readable can be
    /// read and forked.
    #[error("session {session} is damaged ({}): {}. Nothing was changed. What is readable can be shown, exported and forked into a new session", path.display(), Listed(damage))]
    Damaged {
        /// The session.
        session: SessionId,
        /// Its folder.
        path: PathBuf,
        /// What is wrong.
        damage: Vec<Damage>,
    },
    /// Written by a newer version.
    #[error("{} was written by a newer terret (format {found}; this one knows {known}): use that version", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that is known here.
        known: i64,
    },
    /// A file that isn't a journal.
    #[error("{} is not a session of terret: move it away", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// There is no room.
    #[error("the disk is full: {} could not be written, and nothing of this append was kept. Make room and go on", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// It can be read, but not written.
    #[error("{} can't be written ({why}): make it writable, or keep sessions in another folder", path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A session is deleted, and some of its files are still there.
    #[error("the session is deleted, but not all of its files: remove {} by hand ({source})", path.display())]
    LeftBehind {
        /// What is left of its folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A fork of more messages than there are.
    #[error("session {session} has {there} messages, and {messages} were asked for")]
    TooFew {
        /// The session.
        session: SessionId,
        /// How many messages were asked for.
        messages: usize,
        /// How many there are.
        there: usize,
    },
    /// What a session is exported to can't be written.
    #[error("the export can't be written: {0}")]
    Output(io::Error),
    /// What is to be imported can't be read.
    #[error("what is to be imported can't be read: {0}")]
    Input(io::Error),
    /// A file that isn't a session of pi.
    #[error("this is not a session file of pi: {0}")]
    NotPi(String),
    /// A record can't be written as JSON.
    #[error("a record can't be written as JSON: {0}")]
    Unwritable(#[from] serde_json::Error),
    /// The thread that writes is gone, by a bug.
    #[error("the thread that writes sessions is gone")]
    Gone,
}

/// What is wrong with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Records that were acknowledged are gone from the end: the database or its write-ahead log was cut, changed or
    /// replaced.
    Shortened {
        /// How many records there are.
        found: u64,
        /// How many were acknowledged.
        known: u64,
    },
    /// Records between others are gone.
    Missing {
        /// The first one.
        from: u64,
        /// The one after the last.
        to: u64,
    },
    /// A record can't be read.
    Unreadable {
        /// Its number, from 0.
        record: u64,
        /// Why.
        why: String,
    },
    /// A record that can be read isn't what was written.
    Changed {
        /// Its number, from 0.
        record: u64,
    },
    /// A record can be read, but not checked, because the one before it can't be read, or for the first one the session's
    /// name.
    Unchecked {
        /// Its number, from 0.
        record: u64,
    },
    /// A long text or picture of a record is gone. The rest of the record can be read.
    BlobMissing {
        /// The record's number, from 0.
        record: u64,
        /// The file.
        path: PathBuf,
        /// How many bytes it had.
        bytes: u64,
    },
    /// A long text or picture of a record isn't what was written. The rest of the record can be read.
    BlobChanged {
        /// The record's number, from 0.
        record: u64,
        /// The file.
        path: PathBuf,
    },
    /// The database file itself is damaged. What stands in its pages was read all the same.
    Database {
        /// What SQLite says.
        why: String,
    },
    /// The file that says how many records were acknowledged is gone or can't be read: the end may be missing without a
    /// trace.
    HeadUnreadable,
    /// The session is in the folder of another one: somebody copied it, or renamed its folder.
    Misplaced {
        /// Which session it is.
        session: SessionId,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Shortened { found, known } => {
                write!(f, "{} of {known} records are gone from the end", known.saturating_sub(*found))
            }
            Damage::Missing { from, to } if to - from == 1 => write!(f, "record {from} is gone"),
            Damage::Missing { from, to } => write!(f, "records {from} to {} are gone", to - 1),
            Damage::Unreadable { record, why } => write!(f, "record {record} can't be read: {why}"),
            Damage::Changed { record } => write!(f, "record {record} was changed after it was written"),
            Damage::Unchecked { record: 0 } => {
                f.write_str("record 0 can't be checked without the session's name, which is lost")
            }
            Damage::Unchecked { record } => {
                write!(f, "record {record} can't be checked without the one before it")
            }
            Damage::BlobMissing { record, path, bytes } => {
                write!(f, "{bytes} bytes of record {record} are gone: {} is missing", path.display())
            }
            Damage::BlobChanged { record, path } => {
                write!(f, "a part of record {record} was changed: {} isn't what was written", path.display())
            }
            Damage::Database { why } => write!(f, "the database is damaged: {why}"),
            Damage::HeadUnreadable => f.write_str(
                "the file `head` is gone or can't be read, so that nobody can tell whether the end is there",
            ),
            Damage::Misplaced { session } => write!(
                f,
                "this is session {:?} in the folder of another one: it was copied, or its folder renamed, by hand",
                session.as_str()
            ),
        }
    }
}

struct Names<'a>(&'a [SessionId]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, session) in self.0.iter().take(3).enumerate() {
            write!(f, "{}{session}", if at == 0 { "" } else { ", " })?;
        }
        if self.0.len() > 3 { f.write_str(", …") } else { Ok(()) }
    }
}

/// What is wrong, in a line.
pub(crate) struct Listed<'a>(pub(crate) &'a [Damage]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (at, damage) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{damage}", if at == 0 { "" } else { "; " })?;
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "; and {more} more"),
        }
    }
}

impl StoreError {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly { path, why: source.to_string() }
            }
            _ => StoreError::Io { path, source },
        }
    }

    /// What SQLite says about a file.
    pub(crate) fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| {
            let path = path.clone();
            match source.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::Full { path },
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                    StoreError::ReadOnly { path, why: source.to_string() }
                }
                Some(ErrorCode::NotADatabase) => StoreError::Foreign { path },
                _ => StoreError::Sqlite { path, source },
            }
        }
    }

    /// Whether the file's content is to blame.
    pub(crate) fn is_corruption(&self) -> bool {
        use rusqlite::Error;
        let source = match self {
            StoreError::Foreign { .. } => return true,
            StoreError::Sqlite { source, .. } => source,
            _ => return false,
        };
        match source.sqlite_error_code() {
            Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::Unknown),
            None => matches!(
                source,
                // Our statements are right: a schema that they don't fit was changed.
                Error::SqlInputError { .. }
                    | Error::QueryReturnedNoRows
                    | Error::InvalidColumnType(..)
                    | Error::FromSqlConversionFailure(..)
                    | Error::IntegralValueOutOfRange(..)
                    | Error::Utf8Error(..)
            ),
        }
    }

    /// What is wrong with the file, without its name.
    pub(crate) fn cause(&self) -> String {
        match self {
            StoreError::Foreign { .. } => "its first page isn't what was written".into(),
            StoreError::Sqlite { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }
}

impl From<StoreError> for JournalError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Owned { session, owner } => JournalError::Owned { session, owner },
            StoreError::Fenced { session, owner } => JournalError::Fenced { session, owner },
            StoreError::Behind { session, expected, found } => JournalError::Behind { session, expected, found },
            other => JournalError::Storage(other.to_string()),
        }
    }
}
