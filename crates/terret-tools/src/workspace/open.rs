use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Located, PathError};

/// Only a place to go on from, so that a directory needn't be readable to be passed.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const PASS: OFlags = OFlags::RDONLY;

/// One name in a directory.
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) kind: FileType,
    /// Where a symbolic link points.
    pub(crate) target: Option<OsString>,
}

/// Without NONBLOCK, opening a pipe would wait for its other end.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a regular file for reading. A pipe or a device is refused instead of waited for.
pub(crate) fn open_file(located: &Located) -> Result<File, PathError> {
    if let Some(opened) = open_without_links(&located.real) {
        return regular_file(opened, &located.shown);
    }
    let fail = |error| PathError::from_io(&located.shown, error);
    let (Some(parent), Some(name)) = (located.real.parent(), located.real.file_name()) else {
        return Err(PathError::IsDirectory { path: located.shown.clone() });
    };
    let parent = open_directory(parent, None).map_err(fail)?;
    open_file_at(&parent, name, &located.shown)
}

/// Opens a regular file of an open directory for reading.
pub(super) fn open_file_at(parent: &OwnedFd, name: &OsStr, shown: &str) -> Result<File, PathError> {
    regular_file(rustix::fs::openat(parent, name, READ, Mode::empty()), shown)
}

/// Has the kernel do in one call what [`open_directory`] does step by step. `None` where it can't: before Linux 5.6, and
/// in containers that refuse calls that they don't know.
#[cfg(target_os = "linux")]
fn open_without_links(real: &Path) -> Option<Result<OwnedFd, Errno>> {
    match rustix::fs::openat2(CWD, real, READ, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => None,
        opened => Some(opened),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_without_links(_: &Path) -> Option<Result<OwnedFd, Errno>> {
    None
}

fn regular_file(opened: Result<OwnedFd, Errno>, shown: &str) -> Result<File, PathError> {
    let special = |kind| PathError::Special { path: shown.to_owned(), kind };
    let file = match opened {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(PathError::Changed { path: shown.to_owned() }),
        Err(Errno::NXIO) => return Err(special("a socket or a device")),
        Err(error) => return Err(PathError::from_io(shown, error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| PathError::from_io(shown, error))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        FileType::Directory => Err(PathError::IsDirectory { path: shown.to_owned() }),
        FileType::Fifo => Err(special("a named pipe")),
        _ => Err(special("a socket or a device")),
    }
}

/// The entries of a directory, in no order, without `.` and `..`.
pub(crate) fn read_directory(located: &Located) -> Result<Vec<Entry>, PathError> {
    let list = || -> io::Result<Vec<Entry>> {
        let passed = open_directory(&located.real, None)?;
        let directory =
            rustix::fs::openat(&passed, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Not every file system tells the type with the name. What vanished meanwhile stays unknown.
                let stat = rustix::fs::statat(&directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            let target = if kind == FileType::Symlink {
                let target = rustix::fs::readlinkat(&directory, name, Vec::new()).ok();
                target.map(|target| OsStr::from_bytes(target.as_bytes()).to_owned())
            } else {
                None
            };
            entries.push(Entry { name: OsStr::from_bytes(name.to_bytes()).to_owned(), kind, target });
        }
        Ok(entries)
    };
    list().map_err(|error| PathError::from_io(&located.shown, error))
}

/// A directory whose owner may list it and change what is in it, as long as this is there.
#[derive(Debug)]
pub(crate) struct OpenedUp {
    directory: OwnedFd,
    mode: Mode,
}

/// Opens up a directory that can't be looked into.
pub(crate) fn open_up(real: &Path) -> io::Result<OpenedUp> {
    let directory = open_directory(real, None)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode);
    if mode.contains(Mode::RWXU) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let opened = OpenedUp { directory, mode };
    opened.set(mode | Mode::RWXU)?;
    Ok(opened)
}

impl OpenedUp {
    /// Who may not list it can't open it for real, and the mode of what is only passed is changed by this name of it.
    fn set(&self, mode: Mode) -> io::Result<()> {
        Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", self.directory.as_raw_fd()), mode)?)
    }
}

impl Drop for OpenedUp {
    fn drop(&mut self) {
        // It belongs to who opened it, so that only its being gone can be in the way.
        let _ = self.set(self.mode);
    }
}

/// Walks down to a directory without following any link on the way. Makes what is missing beneath `create_beneath`.
pub(super) fn open_directory(real: &Path, create_beneath: Option<&Path>) -> io::Result<OwnedFd> {
    let flags = PASS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    let mut so_far = Path::new("/").to_owned();
    for part in real.iter().skip(1) {
        so_far.push(part);
        let next = match rustix::fs::openat(&directory, part, flags, Mode::empty()) {
            Err(Errno::NOENT) if create_beneath.is_some_and(|base| so_far != base && so_far.starts_with(base)) => {
                match rustix::fs::mkdirat(&directory, part, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                    Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(&directory, part, flags, Mode::empty()),
                    Err(error) => Err(error),
                }
            }
            opened => opened,
        };
        directory = next?;
    }
    Ok(directory)
}

/// What there is of a name similar to the first one that is missing in a path, best first.
pub(super) fn near(located: &Located, shown: impl Fn(&Path) -> String) -> Vec<String> {
    /// In a huge directory a guess isn't worth the time.
    const LOOKED_AT: usize = 2_000;

    let mut missing = located.real.as_path();
    let directory = loop {
        let Some(parent) = missing.parent().filter(|parent| parent.starts_with(&located.base)) else { return vec![] };
        match open_directory(parent, None) {
            Ok(_) => break parent,
            Err(_) => missing = parent,
        }
    };
    let place = Located { real: directory.to_owned(), base: located.base.clone(), shown: String::new() };
    let Ok(entries) = read_directory(&place) else { return vec![] };
    let wanted = missing.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let names: Vec<(String, &OsString)> = entries
        .iter()
        .take(LOOKED_AT)
        .map(|entry| (entry.name.to_string_lossy().to_lowercase(), &entry.name))
        .collect();
    let lowercase: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    similar::get_close_matches(wanted.as_str(), &lowercase, 3, 0.6)
        .into_iter()
        .filter_map(|close| names.iter().find(|(name, _)| name == close))
        .map(|(_, name)| shown(&directory.join(name)))
        .collect()
}
