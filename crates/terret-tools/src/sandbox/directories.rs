use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::workspace::{OpenedUp, open_up};

/// What is known of the directories of a workspace, so that those in which nothing has changed needn't be read again.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<HashMap<PathBuf, Known>>);

#[derive(Debug)]
struct Known {
    /// When the directory was changed last, which no program can forge, unlike the time of its content.
    changed: Change,
    directories: Vec<OsString>,
    /// The name of the repository in it, however it is spelled.
    repositories: Vec<OsString>,
}

impl Directories {
    /// The repositories beneath some directories, and what had to be opened up to find them: git also works where nobody
    /// can list the names.
    pub(super) fn repositories<'a>(&self, roots: impl Iterator<Item = &'a Path>) -> (Vec<PathBuf>, Vec<OpenedUp>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashMap::with_capacity(known.len());
        let (mut found, mut opened) = (Vec::new(), Vec::new());
        let mut open: Vec<PathBuf> = roots.map(Path::to_owned).collect();
        while let Some(directory) = open.pop() {
            let mut read = || match Known::read(&directory) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    opened.push(open_up(&directory)?);
                    Known::read(&directory)
                }
                read => read,
            };
            let now = known.remove(&directory).filter(Known::is_current(&directory));
            let Some(now) = now.or_else(|| read().ok()) else { continue };
            open.extend(now.directories.iter().map(|name| directory.join(name)));
            found.extend(now.repositories.iter().map(|name| directory.join(name)));
            seen.insert(directory, now);
        }
        *known = seen;
        (found, opened)
    }
}

impl Known {
    /// Whether a directory is still what was read.
    fn is_current(directory: &Path) -> impl Fn(&Self) -> bool {
        move |known| Change::of(directory) == Some(known.changed)
    }

    fn read(directory: &Path) -> io::Result<Self> {
        let changed = Change::of(directory).ok_or(io::ErrorKind::NotADirectory)?;
        let mut known = Self { changed, directories: vec![], repositories: vec![] };
        for entry in fs::read_dir(directory)?.filter_map(Result::ok) {
            if is_git(entry.file_name()) {
                known.repositories.push(entry.file_name());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                known.directories.push(entry.file_name());
            }
        }
        // The clock of file systems ticks so slowly that what is changed right now may look the same later.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let age = now.saturating_sub(Duration::new(changed.time.0.unsigned_abs(), 0));
        if age < Duration::from_secs(2) {
            known.changed = Change::default();
        }
        Ok(known)
    }
}

/// A directory, and when it was changed last: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    inode: u64,
    time: (i64, i64),
}

impl Change {
    /// Of a directory itself; nothing if it is none.
    fn of(directory: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(directory).ok()?;
        let time = (metadata.ctime(), metadata.ctime_nsec());
        metadata.is_dir().then(|| Self { inode: metadata.ino(), time })
    }
}

/// Whether something is called as git calls the folder of a repository. Some file systems don't tell cases apart.
pub(super) fn is_git(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().eq_ignore_ascii_case(".git")
}
