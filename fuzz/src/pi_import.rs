//! The import of pi's session files: whatever a file holds, a session comes of it that can be read and continued, or none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use terret_agent::SessionId;
use terret_llm::{Message, ModelSpec, Transcript};
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
    assert_eq!(told(&journal.transcript(&again).unwrap().0), told(&transcript));
    for session in [session, again] {
        journal.delete(&session).unwrap();
    }
}

/// What of a conversation a file of pi has words for, whatever else was in it.
fn told(transcript: &Transcript) -> Vec<String> {
    let message = |message: &Arc<Message>| match &**message {
        Message::User(user) => format!("user: {:?}", user.content),
        Message::ToolResult(result) => {
            format!("{} {} {}: {:?}", result.tool_call_id, result.tool_name, result.is_error, result.content)
        }
        Message::Assistant(reply) => {
            let calls: Vec<_> = reply.tool_calls().map(|call| (&call.id, &call.name)).collect();
            format!("{}/{} {:?}: {:?} {calls:?}", reply.provider, reply.model, reply.stop_reason, reply.text())
        }
    };
    transcript.iter().map(message).collect()
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
