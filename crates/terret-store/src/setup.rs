//! What a session was set up with. It stands beside the records, in a table that is made when there is something to say.

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use serde::{Deserialize, Serialize};
use terret_agent::SessionId;

use crate::database::open_to_write;
use crate::error::StoreError;
use crate::journal::SqliteJournal;
use crate::owned::check_end;
use crate::place::Place;
use crate::reader::{Reader, exists};

/// What somebody who goes on with a session needs again, and no record says: where it works, and whom it asks. No keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Setup {
    /// The folder that its tools work in, as an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The model as it was asked for: `provider/model[:effort]`, for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The address of its server, if that isn't the provider's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The protocol of its server, if that isn't the provider's usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// Rules about calls that somebody gave for this session. They don't go into its forks.
    #[serde(skip_serializing_if = "GivenRules::is_empty")]
    pub rules: GivenRules,
}

/// Rules about calls, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenRules {
    /// What may run without a question.
    pub allow: Vec<String>,
    /// What somebody is asked about.
    pub ask: Vec<String>,
    /// What doesn't run.
    pub deny: Vec<String>,
}

impl GivenRules {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty()
    }
}

pub(crate) const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS setup (only INTEGER PRIMARY KEY CHECK (only = 1), body TEXT NOT NULL) STRICT";

impl SqliteJournal {
    /// Keeps what a session was set up with, in place of what was kept before; also while it runs. Durable on return.
    pub fn set_up(&self, session: &SessionId, setup: &Setup) -> Result<(), StoreError> {
        self.change_setup(session, |kept| *kept = setup.clone()).map(drop)
    }

    /// Changes what a session was set up with, and tells what it is then; also while it runs. Nobody else's change gets
    /// lost in between. Durable on return.
    pub fn change_setup(&self, session: &SessionId, change: impl FnOnce(&mut Setup)) -> Result<Setup, StoreError> {
        let place = Place::new(self.folder(), session);
        if !exists(&place)? {
            return Err(StoreError::Unknown { session: session.clone(), folder: self.folder().into() });
        }
        check_end(&place)?;
        let path = place.database();
        let mut db = open_to_write(&path)?;
        // Together, so that the disk is waited for once.
        let transaction =
            db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::sqlite(&path))?;
        let mut setup = read(&transaction).map_err(StoreError::sqlite(&path))?;
        change(&mut setup);
        let body = serde_json::to_string(&setup)?;
        let write = || {
            transaction.execute_batch(SCHEMA)?;
            transaction.execute("INSERT OR REPLACE INTO setup (only, body) VALUES (1, ?1)", [body])?;
            transaction.commit()
        };
        write().map_err(StoreError::sqlite(&path))?;
        Ok(setup)
    }
}

impl Reader {
    /// What the session was set up with.
    pub fn setup(&self) -> Result<Setup, StoreError> {
        read(&self.db).map_err(StoreError::sqlite(&self.place.database()))
    }
}

fn read(db: &Connection) -> Result<Setup, rusqlite::Error> {
    let there = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'setup'";
    if db.query_row(there, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Setup::default());
    }
    let body = db.query_row("SELECT body FROM setup", [], |row| row.get::<_, String>(0)).optional()?;
    // Of a newer version, perhaps. It is no reason not to show the session.
    Ok(body.and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default())
}
