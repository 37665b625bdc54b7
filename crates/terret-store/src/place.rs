use std::fs::File;
use std::path::{Path, PathBuf};

use terret_agent::SessionId;

use crate::chain::sha256;
use crate::error::StoreError;

/// Where a session is kept.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) session: SessionId,
    /// The folder of all sessions.
    pub(crate) root: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn new(root: &Path, session: &SessionId) -> Self {
        Self { session: session.clone(), root: root.to_owned(), folder: root.join(folder_name(session)) }
    }

    /// The session in a folder of this name. Its own name stands in its database.
    pub(crate) fn named(root: &Path, folder: &str) -> Self {
        Self { session: folder.to_owned().into(), root: root.to_owned(), folder: root.join(folder) }
    }

    /// Whether it is in the folder that is its own. One that somebody copied or moved isn't.
    pub(crate) fn is_its_own(&self) -> bool {
        self.folder == self.root.join(folder_name(&self.session))
    }

    /// Whether only the name of its folder is known, which is the hash of its own.
    pub(crate) fn is_nameless(&self) -> bool {
        self.session.as_str().strip_prefix(HASHED).is_some_and(is_hash)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join("journal.db")
    }

    pub(crate) fn write_ahead_log(&self) -> PathBuf {
        self.folder.join("journal.db-wal")
    }

    pub(crate) fn head(&self) -> PathBuf {
        self.folder.join("head")
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }

    pub(crate) fn owner(&self) -> PathBuf {
        self.folder.join("owner")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }
}

/// A name is any text, and a folder's name isn't: plain names stand for themselves, others for their hash.
fn folder_name(session: &SessionId) -> String {
    let name = session.as_str();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    // A device of Windows is at most four characters long.
    let fits = (5..=64).contains(&name.len()) && name.bytes().all(plain);
    let starts_plain = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    // So that a session whose own name can't be read goes by its folder's.
    if fits && starts_plain && name.strip_prefix(HASHED).is_none_or(is_hash) {
        return name.to_owned();
    }
    let mut hash = sha256(name.as_bytes());
    hash.truncate(HASH);
    format!("{HASHED}{hash}")
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const HASHED: &str = "name-";
const HASH: usize = 40;

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| StoreError::io(folder, error))
}
