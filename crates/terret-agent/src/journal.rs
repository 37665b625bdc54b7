//! The journal as a contract: where records become durable.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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
        Self(fresh_id())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An id that nothing else has, sortable by time.
pub(crate) fn fresh_id() -> String {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(_) => uuid::Uuid::now_v7(),
        Err(_) => id_of_a_time_before_1970(),
    }
    .to_string()
}

/// A clock that has lost its time is no reason to panic, as `Uuid::now_v7` does.
fn id_of_a_time_before_1970() -> uuid::Uuid {
    // Of the version that has no time, the last ten bytes are random, but for the mark of its variant.
    let random = uuid::Uuid::new_v4().into_bytes();
    let random = random.last_chunk().copied().unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(0, &random).into_uuid()
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
///
/// The crate's `conformance` feature has a test suite that every implementation must pass.
pub trait Journal: Send + Sync {
    /// Makes the caller a session's only writer until what this returns is dropped. The session need not exist yet.
    ///
    /// A session that has an owner is refused with [`JournalError::Owned`]. An owner that dies loses its ownership; one
    /// that was taken for dead and replaced is told [`JournalError::Fenced`] by its next append, before the effect that
    /// the records announce. The default owns nothing, for a journal that only one process can see: there, `expected`
    /// alone keeps two writers apart.
    fn own<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Ownership, JournalError>> {
        let _ = session;
        Box::pin(std::future::ready(Ok(Ownership::default())))
    }

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

    /// The state that all records of a session fold to.
    ///
    /// The default loads and folds them. An implementation whose sessions grow long takes them in one by one, so that
    /// memory is bounded by the state, and may begin at a [checkpoint](Self::checkpoint) that it has checked against its
    /// records.
    fn resume<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Resumed, JournalError>> {
        Box::pin(async move {
            let records = self.load(session).await?;
            Ok(Resumed { state: fold(&records), records: records.len() as u64 })
        })
    }

    /// Offers the state after the first `records` records, so that a later [`resume`](Self::resume) need not read those.
    ///
    /// The driver does so after each compaction. A checkpoint proves nothing: it can be dropped,
    /// late, lost or forgotten, as the default does, and nothing but time depends on it.
    fn checkpoint<'a>(&'a self, session: &'a SessionId, records: u64, state: &'a State) -> BoxFuture<'a, ()> {
        let _ = (session, records, state);
        Box::pin(std::future::ready(()))
    }
}

/// A session as it was left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resumed {
    /// What its records fold to.
    pub state: State,
    /// How many they are.
    pub records: u64,
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
    /// Somebody else has the session open for writing.
    #[error("session {session} is open in {owner}: end that first, or fork the session")]
    Owned {
        /// The session.
        session: SessionId,
        /// Who has it, for people.
        owner: String,
    },
    /// This writer was taken for dead, and somebody else took the session over.
    #[error("session {session} was taken over by {owner}: nothing further is written or started here")]
    Fenced {
        /// The session.
        session: SessionId,
        /// Who has it now, for people.
        owner: String,
    },
    /// It can't be read or written.
    #[error("{0}")]
    Storage(String),
}

/// Being a session's only writer. Dropping it lets others write.
#[derive(Default)]
pub struct Ownership(#[expect(dead_code, reason = "held for its drop")] Option<Box<dyn Any + Send + Sync>>);

impl Ownership {
    /// Ends when the guard is dropped.
    pub fn until_dropped(guard: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(guard)))
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ownership")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_makes_ids_that_are_unique_and_sort_before_all_others() {
        let (first, second) = (id_of_a_time_before_1970(), id_of_a_time_before_1970());
        assert_ne!(first, second);
        assert_eq!(first.get_version(), Some(uuid::Version::SortRand));
        assert!(first.to_string() < fresh_id());
    }
}
