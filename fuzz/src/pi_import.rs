//! The import of pi's session files: whatever a file holds, a session comes of it that can be read and continued, or none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use terret_agent::SessionId;
use terret_llm::ModelSpec;
use terret_store::SqliteJournal;

use crate::handoff;

pub(crate) fn check(data: &[u8]) {
    let (journal, session) = (journal(), fresh());
    let Ok(imported) = journal.import_pi(data, &session) else { return };
    assert_eq!(imported.session, session);
    if imported.messages == 0 {
        return;
    }
    let (transcript, damage) = journal.transcript(&session).unwrap();
    assert_eq!(damage, []);
    assert_eq!(transcript.len(), imported.messages);
    for wire in handoff::WIRES {
        handoff::check_for(&transcript, &ModelSpec::new("fuzzed", "model", wire), &Default::default());
    }
    // What went out as a file of pi comes in as the same conversation.
    let mut exported = Vec::new();
    journal.export_pi(&session, "/", &mut exported).unwrap();
    let again = fresh();
    let imported = journal.import_pi(exported.as_slice(), &again).unwrap();
    assert_eq!(imported.left_out, [""; 0]);
    assert_eq!(journal.transcript(&again).unwrap().0, transcript);
    for session in [session, again] {
        journal.delete(&session).unwrap();
    }
}

fn fresh() -> SessionId {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    SessionId::from(format!("s{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// One journal for all inputs, in memory where the system has a file system for that.
fn journal() -> &'static SqliteJournal {
    static JOURNAL: OnceLock<(SqliteJournal, tempfile::TempDir)> = OnceLock::new();
    let (journal, _) = JOURNAL.get_or_init(|| {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        (SqliteJournal::new(folder.path()), folder)
    });
    journal
}
