use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files that tools have read or written, as they were then: what a model thinks to be there.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<HashMap<PathBuf, Stamp>>);

/// What changes with the content of a file. A new mode or owner is no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Seen {
    /// Remembers a file as it is.
    pub(super) fn note(&self, real: &Path, metadata: &Metadata) {
        self.stamps().insert(real.to_owned(), Stamp::of(metadata));
    }

    /// Whether a file is another one than was seen at this path. One that nobody has seen isn't.
    pub(super) fn differs(&self, real: &Path, metadata: &Metadata) -> bool {
        self.stamps().get(real).is_some_and(|seen| *seen != Stamp::of(metadata))
    }

    fn stamps(&self) -> MutexGuard<'_, HashMap<PathBuf, Stamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), size: metadata.size(), modified }
    }
}
