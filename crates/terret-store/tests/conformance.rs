//! The journal on SQLite does what every journal must; and the suite knows nothing of it, so that others can plug in.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use terret_agent::machine::Record;
use terret_agent::{Journal, JournalError, SessionId, conformance};
use terret_store::SqliteJournal;

#[tokio::test]
async fn the_journal_on_sqlite_conforms() {
    conformance::check(|| {
        let folder = tempfile::tempdir().unwrap();
        move || Arc::new(SqliteJournal::new(folder.path())) as Arc<dyn Journal>
    })
    .await;
}

#[tokio::test]
async fn a_journal_that_knows_only_to_append_and_to_load_conforms() {
    conformance::check(|| {
        let folder = tempfile::tempdir().unwrap();
        move || Arc::new(Lines(folder.path().to_owned())) as Arc<dyn Journal>
    })
    .await;
}

/// A naive journal of JSON lines, an append a line, with one lock for all sessions and nobody as an owner.
struct Lines(PathBuf);

impl Lines {
    fn path(&self, session: &SessionId) -> PathBuf {
        let name: String = session.as_str().bytes().rev().take(100).map(|byte| format!("{byte:02x}")).collect();
        self.0.join(format!("{}-{name}", session.as_str().len()))
    }

    /// The lines: how many records, and the records.
    fn text(&self, session: &SessionId) -> String {
        std::fs::read_to_string(self.path(session)).unwrap_or_default()
    }

    fn write(&self, session: &SessionId, expected: u64, records: &[Record]) -> Result<(), JournalError> {
        let lock = File::create(self.0.join("lock")).unwrap();
        lock.lock().unwrap();
        let found =
            self.text(session).lines().map(|line| line.split_once(' ').unwrap().0.parse::<u64>().unwrap()).sum();
        if found != expected {
            return Err(JournalError::Behind { session: session.clone(), expected, found });
        }
        let mut file = File::options().append(true).create(true).open(self.path(session)).unwrap();
        let line = format!("{} {}\n", records.len(), serde_json::to_string(records).unwrap());
        file.write_all(line.as_bytes()).unwrap();
        file.sync_all().unwrap();
        Ok(())
    }
}

impl Journal for Lines {
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        std::future::ready(self.write(session, expected, records)).boxed()
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        let text = self.text(session);
        let records =
            text.lines().flat_map(|line| serde_json::from_str::<Vec<Record>>(line.split_once(' ').unwrap().1).unwrap());
        std::future::ready(Ok(records.collect())).boxed()
    }
}
