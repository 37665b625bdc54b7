//! The index: what a list shows of each session, so that listing doesn't read them all. It can be deleted at any time;
//! where it can't be read or written, everything works without it.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, params};

use crate::info::SessionInfo;
use crate::place::Place;

/// Goes up when [`SessionInfo`] is told differently by the same records.
const FORMAT: i64 = 4;
const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS session (folder TEXT PRIMARY KEY, stamp TEXT NOT NULL, info TEXT NOT NULL)";

pub(crate) struct Index {
    db: Option<Connection>,
    known: HashMap<String, (String, SessionInfo)>,
}

impl Index {
    pub(crate) fn open(root: &Path) -> Self {
        let path = root.join("index.db");
        let opened = open(&path).or_else(|_| {
            // Damaged, or of another version. Whatever is in it is in the sessions, too.
            let _ = std::fs::remove_file(&path);
            open(&path)
        });
        match opened {
            Ok((db, known)) => Self { db: Some(db), known },
            Err(_) => Self { db: None, known: HashMap::new() },
        }
    }

    /// What is known of the session in a folder, and whether nothing has changed since.
    pub(crate) fn get(&mut self, folder: &str, stamp: &str) -> Option<(SessionInfo, bool)> {
        let (stamped, info) = self.known.remove(folder)?;
        Some((info, stamped == stamp))
    }

    /// Keeps what is new, and forgets the sessions that weren't asked for.
    pub(crate) fn update(self, new: &[(String, String, SessionInfo)]) {
        let Self { db: Some(mut db), known } = self else { return };
        if new.is_empty() && known.is_empty() {
            return;
        }
        let mut write = || -> rusqlite::Result<()> {
            let transaction = db.transaction()?;
            for folder in known.keys() {
                transaction.execute("DELETE FROM session WHERE folder = ?1", [folder])?;
            }
            for (folder, stamp, info) in new {
                let Ok(info) = serde_json::to_string(info) else { continue };
                transaction
                    .execute("INSERT OR REPLACE INTO session VALUES (?1, ?2, ?3)", params![folder, stamp, info])?;
            }
            transaction.commit()
        };
        // Without it the next list is slower, and that is all.
        let _ = write();
    }
}

type Known = HashMap<String, (String, SessionInfo)>;

/// Opens a database that can be made anew from the sessions, or makes an empty one. Fails for one of another format.
pub(crate) fn open_rebuildable(path: &Path, format: i64, schema: &str) -> rusqlite::Result<Connection> {
    // As private as the sessions. If it can't be made, SQLite says why.
    #[cfg(unix)]
    let _ = std::os::unix::fs::OpenOptionsExt::mode(std::fs::OpenOptions::new().append(true).create(true), 0o600)
        .open(path);
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_millis(500))?;
    db.pragma_update(None, "synchronous", "OFF")?;
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found != format && found != 0 {
        return Err(rusqlite::Error::InvalidQuery);
    }
    db.execute_batch(schema)?;
    db.pragma_update(None, "user_version", format)?;
    Ok(db)
}

fn open(path: &Path) -> rusqlite::Result<(Connection, Known)> {
    let db = open_rebuildable(path, FORMAT, SCHEMA)?;
    let known = {
        let mut statement = db.prepare("SELECT folder, stamp, info FROM session")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)))?;
        let mut known = Known::new();
        for row in rows {
            let (folder, stamp, info) = row?;
            if let Ok(info) = serde_json::from_str(&info) {
                known.insert(folder, (stamp, info));
            }
        }
        known
    };
    Ok((db, known))
}

/// Differs whenever the session does.
pub(crate) fn stamp(place: &Place) -> String {
    let file = |path: &Path| {
        let metadata = path.metadata().ok();
        let changed = metadata.as_ref().and_then(|metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        (metadata.map(|metadata| metadata.len()), changed.map(|changed| changed.as_nanos()))
    };
    let head = std::fs::read_to_string(place.head()).unwrap_or_default();
    format!("{:?} {:?} {}", file(&place.database()), file(&place.write_ahead_log()), head.trim())
}
