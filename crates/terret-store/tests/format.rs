//! A session that was written in each format there ever was can be read, continued, and checked.
//!
//! The files are made by `TERRET_FIXTURE=crates/terret-store/tests cargo test -p terret-store --test format -- --ignored`,
//! once for a format, and never changed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::path::Path;

use support::{picture, records, texts};
use terret_agent::{Journal as _, SessionId};
use terret_store::SqliteJournal;

fn session() -> SessionId {
    "format-1".to_owned().into()
}

#[tokio::test]
async fn format_1_can_be_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-1"), &folder.path().join("format-1"));
    let journal = SqliteJournal::new(folder.path());
    let mut expected = [texts(0..3, 200), vec![picture()], texts(3..4, 100_000)].concat();
    let reading = journal.reader(&session()).unwrap().read_all().unwrap();
    assert_eq!(reading.damage, []);
    assert!(records(&reading) == expected);

    let _owned = journal.own(&session()).await.unwrap();
    journal.append(&session(), 5, &texts(5..6, 10)).await.unwrap();
    expected.extend(texts(5..6, 10));
    assert!(journal.load(&session()).await.unwrap() == expected);
}

#[tokio::test]
#[ignore = "makes the files of a new format"]
async fn make_the_files() {
    let Some(folder) = std::env::var_os("TERRET_FIXTURE") else { return };
    let journal = SqliteJournal::new(folder);
    let records = [texts(0..3, 200), vec![picture()], texts(3..4, 100_000)].concat();
    journal.append(&session(), 0, &records).await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}
