//! Files that were cut, changed or lost: what is readable is kept, what is lost is named, and nothing is repaired.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::collections::HashSet;
use std::path::Path;

use support::{picture, records, said, texts, written};
use terret_agent::machine::Record;
use terret_agent::{Journal as _, JournalError};
use terret_llm::Content;
use terret_store::{Damage, Reading};

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
        let gone = Damage::Shortened { found: found as u64, known: 12 };
        // Some pages of the log that was cut may hold all of them still.
        assert_eq!(reading.damage.last() == Some(&gone), found < 12, "cut at {cut}: {:?}", reading.damage);
        assert!(!reading.damage.is_empty(), "cut at {cut}");
        let refusal = copy.refusal().await;
        assert!(refusal.contains(&format!("{} of 12 records are gone", 12 - found)) || found == 12, "{cut}: {refusal}");
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

/// SQLite drops everything behind a page of the log that was changed. It costs at most what was in it.
#[tokio::test]
async fn a_bit_that_flips_in_the_log_costs_at_most_the_record_that_it_is_in() {
    let all = texts(0..12, 900);
    let killed = written(&all).await.killed();
    let log = std::fs::read(killed.file("journal.db-wal")).unwrap();
    let mut noticed = 0;
    for at in (0..log.len()).step_by(log.len() / 60) {
        let copy = killed.again();
        flip(&copy.file("journal.db-wal"), at);
        let reading = copy.read();
        assert!(reading.records.len() >= 11, "byte {at}: {:?}", reading.damage);
        let untold = damage_that_is_not_told(&reading, &all);
        assert_eq!(untold, Vec::<u64>::new(), "byte {at}: {:?}", reading.damage);
        // A frame that a later one replaces doesn't count.
        if !reading.damage.is_empty() {
            let refusal = copy.refusal().await;
            assert!(refusal.contains("is damaged"), "byte {at}: {refusal}");
            noticed += 1;
        }
    }
    assert!(noticed > 40, "{noticed}");
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
/// Wherever a byte flips, the session is read, and at most one page of records is lost: each record that comes back is
/// either what was written or named, and each that doesn't come back is named.
#[tokio::test]
async fn a_byte_that_flips_in_the_database_costs_at_most_what_is_named() {
    let all = texts(0..40, 700);
    let closed = written(&all).await.closed().await;
    let database = std::fs::read(closed.file("journal.db")).unwrap();
    let (mut harmless, mut lost) = (0, 0);
    let step = std::env::var("TERRET_FLIP_EVERY").map_or(211, |bytes| bytes.parse().unwrap());
    // The header, the schema, and the rest.
    let bytes = (0..100).chain((100..4096).step_by(step.min(37))).chain((4096..database.len()).step_by(step));
    for at in bytes {
        let copy = closed.again();
        flip(&copy.file("journal.db"), at);
        // A bit more, and the number of the format is that of a version to come.
        if at == FORMAT_NUMBER {
            continue;
        }
        let reading = copy.read();
        let untold = damage_that_is_not_told(&reading, &all);
        assert_eq!(untold, Vec::<u64>::new(), "byte {at}: {:?}", reading.damage);
        assert!(reading.records.len() >= 40 - 5, "byte {at}: {:?}", reading.damage);
        match reading.damage.is_empty() {
            true => harmless += 1,
            false => lost += 40 - reading.records.len(),
        }
        if at < 16 {
            assert!(!reading.damage.is_empty(), "byte {at}");
            assert_eq!(records(&reading), all, "byte {at}");
        }
    }
    println!("{harmless} harmless, {lost} records lost");
}

/// The last byte of `user_version`.
const FORMAT_NUMBER: usize = 63;

#[tokio::test]
async fn a_database_that_was_cut_off_anywhere_yields_what_stands_in_the_pages_that_are_left() {
    let all = texts(0..152, 700);
    let closed = written(&all).await.closed().await;
    let database = std::fs::read(closed.file("journal.db")).unwrap();
    let pages = database.len() / 4096;
    assert!(pages > 30, "{pages}");
    for left in 1..pages {
        for cut in [left * 4096, left * 4096 + 1000] {
            let copy = closed.again();
            std::fs::write(copy.file("journal.db"), &database[..cut]).unwrap();
            let Ok(mut reader) = copy.journal().reader(&"session".to_owned().into()) else {
                // Nothing but the schema, or a table without a row.
                assert!(left < 4, "cut at {cut}");
                continue;
            };
            let reading = reader.read_all().unwrap();
            assert!(!reading.damage.is_empty(), "cut at {cut}");
            assert_eq!(
                damage_that_is_not_told(&reading, &all),
                Vec::<u64>::new(),
                "cut at {cut}: {:?}",
                reading.damage
            );
            // Five of them fit into a page, and three pages hold none.
            assert!(reading.records.len() + 5 >= left.saturating_sub(4) * 4, "cut at {cut}: {}", reading.records.len());
            assert!(copy.refusal().await.contains("can be shown, exported and forked"), "cut at {cut}");
            assert_eq!(std::fs::read(copy.file("journal.db")).unwrap(), database[..cut], "nothing was repaired");
        }
    }
}

#[tokio::test]
async fn a_session_whose_first_pages_are_lost_is_read_and_forked() {
    let all = texts(0..40, 700);
    let closed = written(&all).await.closed().await;
    let database = std::fs::read(closed.file("journal.db")).unwrap();
    // The schema, the session itself, and the root of the records.
    for zeroed in [0..4096, 4096..8192, 8192..12288, 0..12288] {
        let copy = closed.again();
        let mut bytes = database.clone();
        bytes[zeroed.clone()].fill(0);
        std::fs::write(copy.file("journal.db"), bytes).unwrap();
        let reading = copy.read();
        assert_eq!(records(&reading), all, "{zeroed:?}");
        assert!(matches!(reading.damage[..], [Damage::Database { .. }]), "{zeroed:?}: {:?}", reading.damage);
        let forked = copy.journal().fork(&"session".to_owned().into(), None, &"copied".to_owned().into()).unwrap();
        assert_eq!((forked.records, forked.damage), (40, reading.damage), "{zeroed:?}");
    }
}

/// Its folder is named by a hash, and so its name is nowhere else.
#[tokio::test]
async fn a_session_whose_name_is_lost_goes_by_that_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let journal = terret_store::SqliteJournal::new(folder.path());
    let all = texts(0..9, 700);
    let named = "A name".to_owned().into();
    drop(journal.own(&named).await.unwrap());
    journal.append(&named, 0, &all).await.unwrap();
    let name = journal.list().unwrap().remove(0).id;
    assert_eq!(name, named);
    let its = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let database = its.as_ref().unwrap().join("journal.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[4096..8192].fill(0);
    std::fs::write(&database, bytes).unwrap();
    let info = journal.list().unwrap().remove(0);
    assert_eq!(info.id.as_str(), its.unwrap().file_name().unwrap().to_str().unwrap());
    assert!(info.trouble.as_ref().unwrap().contains("without the session's name"), "{info:?}");
    let forked = journal.fork(&info.id, None, &"copied".to_owned().into()).unwrap();
    assert_eq!((forked.records, forked.left_out), (9, 0));
    assert_eq!(journal.load(&"copied".to_owned().into()).await.unwrap(), all);
    journal.delete(&info.id).unwrap();
}

#[tokio::test]
async fn long_rows_are_salvaged_with_all_their_pages() {
    let all: Vec<_> =
        [100, 5_000, 60_000, 4_000, 4_100, 12_345].into_iter().flat_map(|bytes| texts(0..3, bytes)).collect();
    for copy in [written(&all).await.killed(), written(&all).await.closed().await] {
        for file in ["journal.db", "journal.db-wal"] {
            if copy.file(file).exists() {
                flip(&copy.file(file), 3);
            }
        }
        let reading = copy.read();
        assert_eq!(records(&reading), all);
        assert!(matches!(reading.damage[..], [Damage::Database { .. }]), "{:?}", reading.damage);
    }
}

/// Records that are gone, or not what was written, without a word.
fn damage_that_is_not_told(reading: &Reading, all: &[Record]) -> Vec<u64> {
    let names = |seq: u64| {
        reading.damage.iter().any(|damage| match damage {
            Damage::Changed { record } | Damage::Unchecked { record } | Damage::Unreadable { record, .. } => {
                *record == seq
            }
            Damage::Missing { from, to } => (*from..*to).contains(&seq),
            Damage::Shortened { found, .. } => seq >= *found,
            _ => false,
        })
    };
    let untold = (0..).zip(all).filter(|(seq, written)| {
        let read = reading.records.iter().find(|kept| kept.seq == *seq);
        read.is_none_or(|kept| kept.record != **written) && !names(*seq)
    });
    untold.map(|(seq, _)| seq).collect()
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
async fn a_head_that_is_gone_or_can_not_be_read_is_told() {
    let closed = written(&texts(0..3, 100)).await.closed().await;
    let whole = std::fs::read(closed.file("head")).unwrap();
    for damage in 0..3 {
        match damage {
            0 => flip(&closed.file("head"), 30),
            1 => std::fs::write(closed.file("head"), "").unwrap(),
            _ => std::fs::remove_file(closed.file("head")).unwrap(),
        }
        assert_eq!(closed.damage(), [Damage::HeadUnreadable]);
        assert_eq!(records(&closed.read()), texts(0..3, 100));
        assert!(closed.refusal().await.contains("the file `head` is gone or can't be read"));
    }
    std::fs::write(closed.file("head"), whole).unwrap();
    assert_eq!(closed.damage(), []);
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
async fn a_session_that_was_copied_or_renamed_by_hand_is_told_read_and_not_written() {
    let all = texts(0..3, 100);
    let closed = written(&all).await.closed().await;
    let (original, copied) = ("session".to_owned().into(), "copied-by-hand".to_owned().into());
    support::copy(&closed.file(""), &closed.folder.path().join("copied-by-hand"));
    let journal = closed.journal();
    let ids: Vec<String> = journal.list().unwrap().iter().map(|info| info.id.to_string()).collect();
    assert_eq!(ids.iter().filter(|id| *id == "session").count(), 1, "{ids:?}");
    assert!(ids.contains(&"copied-by-hand".to_owned()), "{ids:?}");
    let info = journal.find("copied-by-hand").unwrap();
    assert!(info.trouble.as_ref().is_some_and(|trouble| trouble.contains("\"session\"")), "{:?}", info.trouble);
    assert_eq!((info.records, journal.find("session").unwrap().trouble), (3, None));

    let reading = journal.reader(&copied).unwrap().read_all().unwrap();
    assert_eq!(reading.damage, [Damage::Misplaced { session: original }]);
    assert_eq!(records(&reading), all);
    assert!(journal.own(&copied).await.unwrap_err().to_string().contains("by hand"));
    assert_eq!(journal.fork(&copied, None, &"forked".to_owned().into()).unwrap().records, 3);
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
