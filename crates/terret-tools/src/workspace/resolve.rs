use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// As many symbolic links as Linux follows in one path.
const MAX_LINKS: usize = 40;

/// A path that can't be followed, and how far it went.
#[derive(Debug)]
pub(super) struct Stuck {
    pub(super) at: PathBuf,
    pub(super) error: io::Error,
}

impl From<Stuck> for io::Error {
    fn from(stuck: Stuck) -> Self {
        stuck.error
    }
}

/// Follows an absolute path through every symbolic link, as the kernel would, to the path without any that it names.
///
/// Unlike `canonicalize` it takes what doesn't exist as it is written: the target of a dangling link is a path, too.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, Stuck> {
    let mut real = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = parts(path).map(OsStr::to_owned).collect();
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        match fs::symlink_metadata(&next) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Stuck { at: next, error: io::Error::other("too many symbolic links") });
                }
                let target = fs::read_link(&next).map_err(|error| Stuck { at: next, error })?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                for part in parts(&target).rev() {
                    rest.push_front(part.to_owned());
                }
            }
            Ok(_) => real = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => real = next,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(Stuck { at: real, error }),
            Err(error) => return Err(Stuck { at: next, error }),
        }
    }
    Ok(real)
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part),
        Component::ParentDir => Some(OsStr::new("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}
