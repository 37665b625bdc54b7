//! Which folders belong to the project that a run works in.

use std::path::{Path, PathBuf};

/// The folders from the root of the repository down to the one that is worked in; that one alone outside of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    /// The root first.
    pub(crate) folders: Vec<PathBuf>,
}

impl Project {
    pub(crate) fn of(folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        // What belongs to somebody else, such as a repository in /tmp that everybody may make, has no say.
        let mine = owner(&folder);
        let upwards: Vec<&Path> = folder.ancestors().take_while(|above| owner(above) == mine).collect();
        let root = upwards.iter().position(|above| above.join(".git").exists());
        let mut folders: Vec<PathBuf> = match root {
            Some(root) => upwards.iter().take(root + 1).map(|above| (*above).to_owned()).collect(),
            None => vec![folder.clone()],
        };
        folders.reverse();
        Self { folders }
    }

    pub(crate) fn root(&self) -> Option<&Path> {
        self.folders.first().map(PathBuf::as_path)
    }
}

#[cfg(unix)]
fn owner(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().ok().map(|metadata| metadata.uid())
}

#[cfg(not(unix))]
fn owner(_: &Path) -> Option<u32> {
    None
}
