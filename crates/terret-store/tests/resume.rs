//! Going on with long sessions: memory, checkpoints, and the space that they take.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use support::{Written, texts, written};
use terret_agent::machine::{Failure, Outcome, Record, State, apply};
use terret_agent::{Agent, Journal as _, JournalError, Resumed, SessionId, fold};
use terret_llm::{ErrorKind, ModelError, Money, ScriptedModel, ScriptedReply, Usage};
use terret_store::{Damage, SqliteJournal};

/// A session of ten records with a checkpoint after the sixth.
async fn with_checkpoint() -> (Written, Vec<Record>) {
    let records = texts(0..10, 200);
    let written = written(&records).await;
    written.journal.checkpoint(&written.session, 6, &fold(&records[..6])).await;
    // After it, on the same thread.
    written.journal.append(&written.session, 10, &[]).await.unwrap();
    assert!(written.folder.path().join("session/checkpoint").exists());
    (written, records)
}

#[tokio::test]
async fn a_resume_reads_only_what_follows_the_checkpoint() {
    let (written, records) = with_checkpoint().await;
    let whole = Ok(Resumed { state: fold(&records), records: 10 });
    assert_eq!(written.journal.resume(&written.session).await, whole);

    let closed = written.closed().await;
    let database = rusqlite::Connection::open(closed.file("journal.db")).unwrap();
    let change = |seq: u64| {
        let change = format!("UPDATE record SET body = replace(body, '{seq}:', 'x:') WHERE seq = {seq}");
        database.execute_batch(&format!("DROP TRIGGER IF EXISTS a_record_is_never_changed; {change}")).unwrap();
    };
    change(3);
    let session = "session".to_owned().into();
    assert_eq!(closed.journal().resume(&session).await, whole, "it was not looked at");
    assert_eq!(closed.journal().check(&session).unwrap(), [Damage::Changed { record: 3 }], "until somebody checks");
    change(7);
    let refused = closed.journal().resume(&session).await.unwrap_err();
    assert!(refused.to_string().contains("record 7 was changed"), "{refused}");
}

#[tokio::test]
async fn after_a_compaction_a_resume_begins_there() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(SqliteJournal::new(folder.path()));
    let id: SessionId = "session".to_owned().into();
    let long = (0..3).map(|_| ScriptedReply::text("word ".repeat(10_000)));
    let model = ScriptedModel::new(long.chain(["Notes.", "So."].map(ScriptedReply::text)));
    let session = Agent::builder(model).build().unwrap().open(journal.clone(), id.clone()).await.unwrap();
    for _ in 0..3 {
        session.prompt("go on").report().await;
    }
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
    session.prompt("and now?").report().await;
    let transcript = session.transcript().await;
    drop(session);
    assert!(folder.path().join("session/checkpoint").exists());

    let records = journal.load(&id).await.unwrap();
    let resumed = journal.resume(&id).await.unwrap();
    assert_eq!(resumed, Resumed { state: fold(&records), records: records.len() as u64 });
    assert_eq!(*resumed.state.transcript(), transcript);
    // What the summary stands for isn't read any more.
    let database = rusqlite::Connection::open(folder.path().join("session/journal.db")).unwrap();
    database
        .execute_batch("DROP TRIGGER a_record_is_never_changed; UPDATE record SET body = '' WHERE seq = 0")
        .unwrap();
    assert_eq!(journal.resume(&id).await, Ok(resumed));
}

#[tokio::test]
async fn a_checkpoint_that_is_damaged_or_of_other_records_is_ignored() {
    let (written, records) = with_checkpoint().await;
    let closed = written.closed().await;
    let session = "session".to_owned().into();
    let whole = Ok(Resumed { state: fold(&records), records: 10 });
    let checkpoint = std::fs::read(closed.file("checkpoint")).unwrap();
    let mut resumes = 0;
    for at in (0..checkpoint.len()).step_by(13) {
        let mut flipped = checkpoint.clone();
        flipped[at] ^= 4;
        for damaged in [&flipped[..], &checkpoint[..at]] {
            std::fs::write(closed.file("checkpoint"), damaged).unwrap();
            assert_eq!(closed.journal().resume(&session).await, whole, "byte {at}");
            resumes += 1;
        }
    }
    assert!(resumes > 100);

    // One that is whole, but says something else of as many records of another session.
    let (other, _) = (written_in_another_order().await, ());
    std::fs::write(closed.file("checkpoint"), other).unwrap();
    assert_eq!(closed.journal().resume(&session).await, whole);
}

async fn written_in_another_order() -> Vec<u8> {
    let records = texts(20..30, 200);
    let written = written(&records).await;
    written.journal.checkpoint(&written.session, 6, &fold(&records[..6])).await;
    written.journal.append(&written.session, 10, &[]).await.unwrap();
    std::fs::read(written.folder.path().join("session/checkpoint")).unwrap()
}

#[tokio::test]
async fn a_checkpoint_does_not_hide_that_the_end_is_gone() {
    let (written, _) = with_checkpoint().await;
    let killed = written.killed();
    std::fs::remove_file(killed.file("journal.db-wal")).unwrap();
    let refused = killed.journal().resume(&written.session).await.unwrap_err();
    let JournalError::Storage(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("10 of 10 records are gone from the end"), "{why}");
}

#[tokio::test]
async fn who_does_not_own_a_session_keeps_no_checkpoint_of_it() {
    let records = texts(0..3, 10);
    let written = written(&records).await;
    let other = SqliteJournal::new(written.folder.path());
    other.checkpoint(&written.session, 3, &State::new()).await;
    drop(other.own(&"another".to_owned().into()).await.unwrap());
    let resumed = written.journal.resume(&written.session).await.unwrap();
    assert_eq!(resumed, Resumed { state: fold(&records), records: 3 });
}

/// 60 MB of which next to nothing is needed, taken in by a process that may not hold them at once.
#[tokio::test]
async fn memory_is_bounded_by_what_is_needed() {
    let failure = |at: usize| Record::AttemptFailed {
        failure: Failure::Model(ModelError::new(ErrorKind::Server, format!("{at} {}", "x".repeat(60_000)))),
        recovery: None,
        usage: Usage::default(),
        cost: Money::ZERO,
    };
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let session = "session".to_owned().into();
    for batch in 0..10 {
        let records: Vec<_> = (batch * 100..(batch + 1) * 100).map(failure).collect();
        journal.append(&session, batch as u64 * 100, &records).await.unwrap();
    }
    let mut resume = Command::new(std::env::current_exe().unwrap());
    resume.args(["--exact", "a_process_that_resumes", "--ignored", "--nocapture", "--quiet"]);
    let output = resume.env("TERRET_FOLDER", folder.path()).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains("resumed 1000 records"), "{output}");
    if let Some((_, peak)) = output.split_once("VmHWM:") {
        let peak: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
        assert!(peak < 40_000, "{peak} KB");
    }
}

#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn a_process_that_resumes() {
    let Some(folder) = std::env::var_os("TERRET_FOLDER") else { return };
    let resumed = SqliteJournal::new(Path::new(&folder)).resume(&"session".to_owned().into()).await.unwrap();
    println!("resumed {} records", resumed.records);
    println!("{}", std::fs::read_to_string("/proc/self/status").unwrap_or_default());
}

#[tokio::test]
async fn five_hundred_turns_of_50_kb_take_little_more_than_what_was_said() {
    let records = texts(0..500, 50_000);
    let payload: usize = records.iter().map(|record| serde_json::to_vec(record).unwrap().len()).sum();
    let written = written(&records).await;
    let files = |folder: &Path| -> u64 {
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    let open = files(&written.folder.path().join("session"));
    assert!(open as f64 <= 1.3 * payload as f64, "open: {open} bytes for {payload}");
    let closed = files(&written.closed().await.file(""));
    assert!(closed as f64 <= 1.2 * payload as f64, "closed: {closed} bytes for {payload}");
}

#[test]
fn a_state_is_what_follows_from_its_beginning_and_the_rest() {
    let records = texts(0..10, 10);
    for cut in 0..=10 {
        let beginning = serde_json::to_string(&fold(&records[..cut])).unwrap();
        let mut state: State = serde_json::from_str(&beginning).unwrap();
        records[cut..].iter().for_each(|record| apply(&mut state, record));
        assert_eq!(state, fold(&records));
    }
}
