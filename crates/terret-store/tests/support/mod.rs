//! What the tests of the store share: sessions with records that can be told apart, and copies of their files.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "tests, each of which uses a part")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use terret_agent::machine::{QueueKind, Record};
use terret_agent::{Journal, Ownership, SessionId};
use terret_llm::{Content, Image, UserMessage};
use terret_store::{Damage, Reading, SqliteJournal};

/// A session in a folder of its own, open for writing.
pub(crate) struct Written {
    pub(crate) folder: TempDir,
    pub(crate) journal: SqliteJournal,
    pub(crate) session: SessionId,
    pub(crate) owned: Option<Ownership>,
}

pub(crate) async fn written(records: &[Record]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let session = SessionId::from("session".to_owned());
    let owned = journal.own(&session).await.unwrap();
    for (at, record) in (0..).zip(records) {
        journal.append(&session, at, std::slice::from_ref(record)).await.unwrap();
    }
    Written { folder, journal, session, owned: Some(owned) }
}

impl Written {
    /// The files as they are now: what a killed process leaves.
    pub(crate) fn killed(&self) -> Copied {
        let folder = tempfile::tempdir().unwrap();
        copy(&self.folder.path().join("session"), &folder.path().join("session"));
        Copied { folder, session: self.session.clone() }
    }

    /// The files after everything was closed.
    pub(crate) async fn closed(mut self) -> Copied {
        self.owned = None;
        // The writer comes to it after the closing.
        drop(self.journal.own(&SessionId::from("another".to_owned())).await.unwrap());
        drop(self.journal.own(&self.session).await.unwrap());
        while self.folder.path().join("session/journal.db-wal").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        self.killed()
    }
}

/// Files of a session that nobody has open.
pub(crate) struct Copied {
    pub(crate) folder: TempDir,
    session: SessionId,
}

impl Copied {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("session").join(name)
    }

    pub(crate) fn journal(&self) -> SqliteJournal {
        SqliteJournal::new(self.folder.path())
    }

    pub(crate) fn read(&self) -> Reading {
        self.journal().reader(&self.session).unwrap().read_all().unwrap()
    }

    pub(crate) fn damage(&self) -> Vec<Damage> {
        self.read().damage
    }

    /// What whoever wants to continue the session is told.
    pub(crate) async fn refusal(&self) -> String {
        self.journal().own(&self.session).await.unwrap_err().to_string()
    }

    pub(crate) fn again(&self) -> Copied {
        let folder = tempfile::tempdir().unwrap();
        copy(&self.folder.path().join("session"), &folder.path().join("session"));
        Copied { folder, session: self.session.clone() }
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Texts of about this many bytes, each different.
pub(crate) fn texts(numbers: Range<u64>, bytes: usize) -> Vec<Record> {
    numbers.map(|number| said(vec![Content::text(text(number, bytes))])).collect()
}

fn text(number: u64, bytes: usize) -> String {
    let mut text = String::new();
    let mut state = number + 1;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{number}:{:08x} ", state >> 32));
    }
    text
}

pub(crate) fn picture() -> Record {
    let bytes: Vec<u8> = (0..20_000u32).map(|at| at.to_be_bytes()[3] ^ at.to_be_bytes()[2]).collect();
    said(vec![Content::text("look"), Content::Image(Image::new("image/png", &bytes))])
}

pub(crate) fn said(content: Vec<Content>) -> Record {
    let message = UserMessage { content, timestamp: 7 };
    Record::Queued { kind: QueueKind::Steering, message: Arc::new(message.into()) }
}

pub(crate) fn records(reading: &Reading) -> Vec<Record> {
    reading.records.iter().map(|kept| kept.record.clone()).collect()
}
