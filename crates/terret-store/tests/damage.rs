//! Files that were cut, changed or lost: what is readable is kept, what is lost is named, and nothing is repaired.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::collections::HashSet;
use std::path::Path;

use support::{picture, records, said, texts, written};
use terret_agent::{Journal as _, JournalError};
use terret_llm::Content;
use terret_store::{Damage, StoreError};

/// `TERRET_CUT_EVERY=1` cuts at every byte.
#[tokio::test]
async fn a_log_that_was_cut_anywhere_yields_the_records_before_the_cut_and_says_how_many_are_gone() {
    let all = texts(0..12, 900);
    let killed = written(&all).await.killed();
    let log = std::fs::read(killed.file("journal.db-wal")).unwrap();
    let mut lengths = HashSet::new();
    let step = std::env::var("TERRET_CUT_EVERY").map_or(log.len() / 60, |bytes| bytes.parse().unwrap());
    for cut in (0..log.len()).step_by(step) {
        let copy = killed.again();
        std::fs::write(copy.file("journal.db-wal"), &log[..cut]).unwrap();
        let reading = copy.read();
        let found = reading.records.len();
        assert_eq!(records(&reading), all[..found], "cut at {cut}");
        assert_eq!(reading.damage, [Damage::Shortened { found: found as u64, known: 12 }], "cut at {cut}");
        assert!(copy.refusal().await.contains(&format!("{} of 12 records are gone from the end", 12 - found)));
        assert_eq!(std::fs::read(copy.file("journal.db-wal")).unwrap(), log[..cut], "the evidence is still there");
        lengths.insert(found);
    }
    assert!(lengths.len() > 8, "the cuts fall between different records");
    assert_eq!(killed.journal().check(&"session".to_owned().into()).unwrap(), []);
}

#[tokio::test]
async fn a_record_that_was_never_acknowledged_may_be_torn() {
    let written = written(&texts(0..5, 900)).await;
    let head = std::fs::read(written.folder.path().join("session/head")).unwrap();
    written.journal.append(&written.session, 5, &texts(5..6, 900)).await.unwrap();
    let killed = written.killed();
    std::fs::write(killed.file("head"), head).unwrap();
    let log = std::fs::read(killed.file("journal.db-wal")).unwrap();
    std::fs::write(killed.file("journal.db-wal"), &log[..log.len() - 100]).unwrap();
    let journal = killed.journal();
    let _owned = journal.own(&written.session).await.unwrap();
    assert_eq!(journal.load(&written.session).await.unwrap(), texts(0..5, 900));
    journal.append(&written.session, 5, &texts(6..7, 900)).await.unwrap();
    assert_eq!(records(&killed.read()), [texts(0..5, 900), texts(6..7, 900)].concat());
}

#[tokio::test]
async fn a_bit_that_flips_in_the_log_is_found_although_sqlite_says_nothing() {
    let all = texts(0..12, 900);
    let killed = written(&all).await.killed();
    let log = std::fs::read(killed.file("journal.db-wal")).unwrap();
    let mut shortened = 0;
    for at in (0..log.len()).step_by(log.len() / 60) {
        let copy = killed.again();
        flip(&copy.file("journal.db-wal"), at);
        let reading = copy.read();
        let found = reading.records.len();
        assert_eq!(records(&reading), all[..found], "byte {at}");
        // A frame that a later one replaces doesn't count.
        if found < 12 {
            assert_eq!(reading.damage, [Damage::Shortened { found: found as u64, known: 12 }], "byte {at}");
            shortened += 1;
        }
    }
    assert!(shortened > 40, "{shortened}");
}

#[tokio::test]
async fn a_database_without_its_log_is_known_to_be_shortened() {
    let killed = written(&texts(0..12, 900)).await.killed();
    std::fs::remove_file(killed.file("journal.db-wal")).unwrap();
    assert_eq!(killed.damage(), [Damage::Shortened { found: 0, known: 12 }]);
    assert!(killed.refusal().await.contains("12 of 12 records are gone from the end"));
}

#[tokio::test]
async fn a_database_that_is_gone_is_not_a_new_session() {
    let closed = written(&texts(0..3, 100)).await.closed().await;
    std::fs::remove_file(closed.file("journal.db")).unwrap();
    assert!(closed.refusal().await.contains("3 of 3 records are gone from the end"));
}

/// `TERRET_FLIP_EVERY=1` flips every byte, one after the other.
///
/// Wherever a byte flips: each record that comes back is either what was written or named, and each that doesn't come
/// back is named.
#[tokio::test]
async fn a_byte_that_flips_in_the_database_costs_at_most_what_is_named() {
    let all = texts(0..40, 700);
    let written = written(&all).await;
    let session = written.session.clone();
    let closed = written.closed().await;
    let database = std::fs::read(closed.file("journal.db")).unwrap();
    let (mut harmless, mut refused, mut in_part) = (0, 0, 0);
    let step = std::env::var("TERRET_FLIP_EVERY").map_or(211, |bytes| bytes.parse().unwrap());
    for at in (0..database.len()).step_by(step) {
        let copy = closed.again();
        flip(&copy.file("journal.db"), at);
        let read = copy.journal().reader(&session).and_then(|mut reader| reader.read_all());
        let reading = match read {
            Ok(reading) => reading,
            Err(StoreError::Foreign { .. } | StoreError::Sqlite { .. } | StoreError::Newer { .. }) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("byte {at}: {other}"),
        };
        let last = reading.records.last().map_or(0, |kept| kept.seq);
        let names = |seq: u64| {
            reading.damage.iter().any(|damage| match damage {
                Damage::Changed { record } | Damage::Unchecked { record } | Damage::Unreadable { record, .. } => {
                    *record == seq
                }
                Damage::Missing { from, to } => (*from..*to).contains(&seq),
                Damage::Shortened { found, .. } => seq >= *found,
                Damage::Database { .. } => seq > last,
                other => panic!("byte {at}: {other}"),
            })
        };
        for kept in &reading.records {
            let written = usize::try_from(kept.seq).ok().and_then(|seq| all.get(seq));
            assert!(names(kept.seq) || Some(&kept.record) == written, "byte {at}: record {}", kept.seq);
        }
        let found: HashSet<u64> = reading.records.iter().map(|kept| kept.seq).collect();
        for seq in (0..40).filter(|seq| !found.contains(seq)) {
            assert!(names(seq), "byte {at}: record {seq} is gone without a word");
        }
        match reading.damage.is_empty() {
            true => harmless += 1,
            false => in_part += 1,
        }
    }
    println!("{harmless} harmless, {in_part} in part, {refused} refused");
    assert!(
        in_part > 2 * (refused + 1) && in_part > harmless,
        "{harmless} harmless, {in_part} in part, {refused} refused"
    );
}

#[tokio::test]
async fn a_record_that_was_changed_in_the_middle_is_shown_with_a_warning_and_the_others_are_whole() {
    let all = texts(0..5, 300);
    let closed = written(&all).await.closed().await;
    let database = std::fs::read(closed.file("journal.db")).unwrap();
    let needle = b"\"text\":\"2:";
    let at = database.windows(needle.len()).position(|window| window == needle).unwrap() + needle.len() + 3;
    flip(&closed.file("journal.db"), at);
    let reading = closed.read();
    assert_eq!(reading.damage, [Damage::Changed { record: 2 }]);
    assert_eq!(reading.records.len(), 5);
    assert_eq!(closed.journal().check(&"session".to_owned().into()).unwrap(), reading.damage);
    assert_eq!(records(&reading)[3..], all[3..]);
    let refused = closed.journal().load(&"session".to_owned().into()).await.unwrap_err();
    let JournalError::Storage(text) = refused else { panic!("{refused:?}") };
    assert!(text.contains("record 2 was changed after it was written"), "{text}");
}

#[tokio::test]
async fn a_blob_that_is_gone_or_changed_leaves_the_rest_of_its_record() {
    let long = "all work and no play ".repeat(5000);
    let all = [said(vec![Content::text("short"), Content::text(long.clone())]), picture()];
    let closed = written(&all).await.closed().await;
    for (name, lost) in blobs(&closed.file("blobs")) {
        let path = closed.file("blobs").join(&name);
        let content = std::fs::read(&path).unwrap();
        let record = u64::from(content.len() == 20_000);

        std::fs::remove_file(&path).unwrap();
        let reading = closed.read();
        assert_eq!(reading.damage, [Damage::BlobMissing { record, path: path.clone(), bytes: lost }]);

        assert_eq!(reading.records.len(), 2);
        let text = format!("{:?}", reading.records[usize::try_from(record).unwrap()]);
        assert!(text.contains(if record == 0 { "short" } else { "look" }), "{text}");
        assert_eq!(text.contains("bytes are lost here"), record == 0, "{text}");

        std::fs::write(&path, &content).unwrap();
        flip(&path, content.len() / 2);
        assert_eq!(closed.damage(), [Damage::BlobChanged { record, path: path.clone() }]);
        std::fs::write(&path, content).unwrap();
    }
    assert_eq!(records(&closed.read()), all);
}

#[tokio::test]
async fn a_head_that_can_not_be_read_is_told() {
    let closed = written(&texts(0..3, 100)).await.closed().await;
    flip(&closed.file("head"), 30);
    assert_eq!(closed.damage(), [Damage::HeadUnreadable]);
    assert_eq!(records(&closed.read()), texts(0..3, 100));
}

#[tokio::test]
async fn a_newer_format_and_foreign_files_are_left_alone() {
    let closed = written(&texts(0..3, 100)).await.closed().await;
    let newer = closed.again();
    let database = rusqlite::Connection::open(newer.file("journal.db")).unwrap();
    database.pragma_update(None, "user_version", 2).unwrap();
    drop(database);
    assert!(newer.refusal().await.contains("was written by a newer terret (format 2; this one knows 1)"));

    let foreign = closed.again();
    std::fs::remove_file(foreign.file("journal.db")).unwrap();
    rusqlite::Connection::open(foreign.file("journal.db")).unwrap().execute_batch("CREATE TABLE mine (a)").unwrap();
    assert!(foreign.refusal().await.contains("is not a session of terret"));

    std::fs::write(foreign.file("journal.db"), "not a database, but long enough to be looked at").unwrap();
    assert!(foreign.refusal().await.contains("is not a session of terret"));
}

#[tokio::test]
async fn a_session_under_another_name_is_foreign() {
    let closed = written(&texts(0..3, 100)).await.closed().await;
    std::fs::rename(closed.folder.path().join("session"), closed.folder.path().join("renamed")).unwrap();
    let read = closed.journal().reader(&"renamed".to_owned().into());
    assert!(matches!(read, Err(StoreError::Foreign { .. })), "{read:?}");
}

#[tokio::test]
async fn records_can_not_be_changed_or_deleted_by_accident() {
    let closed = written(&texts(0..3, 100)).await.closed().await;
    let database = rusqlite::Connection::open(closed.file("journal.db")).unwrap();
    for statement in ["UPDATE record SET body = ''", "DELETE FROM record WHERE seq = 1"] {
        assert!(database.execute_batch(statement).unwrap_err().to_string().contains("a record is never"));
    }
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(file, bytes).unwrap();
}

fn blobs(folder: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}
