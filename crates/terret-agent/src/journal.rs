//! The journal as a contract: where records become durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::machine::{Record, State, apply};

/// The name of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// A name that no other session has, sortable by time.
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SessionId {
    fn default() -> Self {
        Self::new()
    }
}

impl From<String> for SessionId {
    fn from(name: String) -> Self {
        Self(name)
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where records become durable. Nothing here assumes one machine.
pub trait Journal: Send + Sync {
    /// Appends records after the first `expected` ones: all of them or none, durable on return.
    ///
    /// Refuses a writer that is behind, so that two processes can't both continue a session. Cancel safe only if the
    /// implementation says so: the driver never drops it half way.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// All records of a session in order; none for a session that doesn't exist.
    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>>;
}

/// Why a journal can't do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Somebody else has appended in the meantime.
    #[error("another process has continued session {session}: {expected} records were expected, {found} are there")]
    Behind {
        /// The session.
        session: SessionId,
        /// How many records the writer knew of.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// It can't be read or written.
    #[error("{0}")]
    Storage(String),
}

/// A journal in memory: gone with the process. Clones share their sessions.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal(Arc<Mutex<HashMap<SessionId, Vec<Record>>>>);

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// All records of a session so far.
    pub fn records(&self, session: &SessionId) -> Vec<Record> {
        self.sessions().get(session).cloned().unwrap_or_default()
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Vec<Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for MemoryJournal {
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let mut sessions = self.sessions();
        let kept = sessions.entry(session.clone()).or_default();
        let found = kept.len() as u64;
        let result = if found == expected {
            kept.extend_from_slice(records);
            Ok(())
        } else {
            Err(JournalError::Behind { session: session.clone(), expected, found })
        };
        Box::pin(std::future::ready(result))
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        Box::pin(std::future::ready(Ok(self.records(session))))
    }
}

/// The state that these records fold to.
pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> State {
    let mut state = State::new();
    for record in records {
        apply(&mut state, record);
    }
    state
}
