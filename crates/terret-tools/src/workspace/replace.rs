use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::{Located, PathError, open};

/// A place to write a file at: its directory, held open, and its name there.
pub(crate) struct Target {
    directory: OwnedFd,
    name: OsString,
    shown: String,
}

/// The file that stands at a target.
pub(crate) struct Existing {
    file: File,
    metadata: Metadata,
    shown: String,
}

impl Existing {
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The whole content, or `None` if it has more than `limit` bytes.
    pub(crate) fn read(&self, limit: usize) -> Result<Option<Vec<u8>>, PathError> {
        let expected = usize::try_from(self.metadata.len()).unwrap_or(usize::MAX).min(limit);
        let mut bytes = Vec::with_capacity(expected + 1);
        let read = (&self.file).take(limit as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| PathError::from_io(&self.shown, error))?;
        Ok((bytes.len() <= limit).then_some(bytes))
    }
}

impl Target {
    /// Opens the directory, and makes it first if it is missing and that is asked for.
    pub(crate) fn open(located: &Located, create_parents: bool) -> Result<Self, PathError> {
        let shown = located.shown.clone();
        let (Some(parent), Some(name)) = (located.real.parent(), located.real.file_name()) else {
            return Err(PathError::IsDirectory { path: shown });
        };
        let base = create_parents.then_some(located.base.as_path());
        match open::open_directory(parent, base) {
            Ok(directory) => Ok(Self { directory, name: name.to_owned(), shown }),
            Err(error) => Err(PathError::from_io(&shown, error)),
        }
    }

    /// The file that is there now; `None` if there is none.
    pub(crate) fn existing(&self) -> Result<Option<Existing>, PathError> {
        let file = match open::open_file_at(&self.directory, &self.name, &self.shown) {
            Ok(file) => file,
            Err(PathError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata().map_err(|error| PathError::from_io(&self.shown, error))?;
        Ok(Some(Existing { file, metadata, shown: self.shown.clone() }))
    }

    /// Puts new content in the place of what is there, at once and whole: readers see the old file or the new one.
    ///
    /// Mode, and owner where permitted, stay as they were; bits that make a program run as its owner don't, nor do extended
    /// attributes, and other names of the old file (hard links) keep the old content. `commit` is asked last of all, and
    /// nothing is changed if it says no. Gives what the new file is like, if it is there.
    pub(crate) fn replace(
        &self,
        content: &[u8],
        existing: Option<&Existing>,
        commit: impl FnOnce() -> bool,
    ) -> Result<Option<Metadata>, PathError> {
        let fail = |error: io::Error| PathError::from_io(&self.shown, error);
        if existing.is_some() {
            self.check_writable().map_err(|error| fail(error.into()))?;
        }
        let (file, temporary) = self.create_temporary(existing.is_some()).map_err(fail)?;
        let written = write_like(file, content, existing).and_then(|metadata| {
            if !commit() {
                return Ok(None);
            }
            rustix::fs::renameat(&self.directory, &temporary, &self.directory, &self.name)?;
            Ok(Some(metadata))
        });
        if !matches!(written, Ok(Some(_))) {
            let _ = rustix::fs::unlinkat(&self.directory, &temporary, AtFlags::empty());
        }
        written.map_err(fail)
    }

    /// Whether what was found at the place is there still, and nobody has changed it since.
    pub(crate) fn holds(&self, existing: &Existing) -> bool {
        let known = &existing.metadata;
        rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|now| {
            let now_as_known = (now.st_ino, now.st_size.try_into(), now.st_ctime, now.st_ctime_nsec.try_into());
            now_as_known == (known.ino(), Ok(known.size()), known.ctime(), Ok(known.ctime_nsec()))
        })
    }

    /// A rename doesn't ask whether the file that it replaces may be written.
    fn check_writable(&self) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Err(error),
            // Whatever else is wrong (a program that is running, say) doesn't keep it from being replaced.
            _ => Ok(()),
        }
    }

    fn create_temporary(&self, private: bool) -> io::Result<(File, OsString)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The final mode of a new file is what the umask makes of this; that of a replacement is copied later.
        let mode = if private { 0o600 } else { 0o666 };
        let random = RandomState::new();
        let mut tries = 0_u32;
        loop {
            let name = OsString::from(format!(".terret-{:016x}.tmp", random.hash_one(tries)));
            match rustix::fs::openat(&self.directory, &name, flags, Mode::from_raw_mode(mode)) {
                Ok(file) => return Ok((file.into(), name)),
                Err(Errno::EXIST) if tries < 16 => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Gives what stands at a place another name in its directory, over nothing that is there.
pub(crate) fn rename_beneath(located: &Located, name: &OsStr) -> Result<(), PathError> {
    let target = Target::open(located, false)?;
    let name = unused_name(&target, name.to_owned());
    rustix::fs::renameat(&target.directory, &target.name, &target.directory, &name)
        .map_err(|error| PathError::from_io(&target.shown, error))
}

/// Makes a symbolic link at a place, over whatever file or link is there.
pub(crate) fn link_beneath(located: &Located, to: &Path) -> Result<(), PathError> {
    let target = Target::open(located, true)?;
    let temporary = unused_name(&target, ".terret-link".into());
    rustix::fs::symlinkat(to, &target.directory, &temporary)
        .and_then(|()| rustix::fs::renameat(&target.directory, &temporary, &target.directory, &target.name))
        .map_err(|error| {
            let _ = rustix::fs::unlinkat(&target.directory, &temporary, AtFlags::empty());
            PathError::from_io(&target.shown, error)
        })
}

fn unused_name(target: &Target, mut name: OsString) -> OsString {
    while rustix::fs::statat(&target.directory, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        name.push("+");
    }
    name
}

/// Sets the permissions of a regular file.
pub(crate) fn set_mode(located: &Located, mode: u32) -> Result<(), PathError> {
    let file = open::open_file(located)?;
    let set = file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777));
    set.map_err(|error| PathError::from_io(&located.shown, error))
}

fn write_like(mut file: File, content: &[u8], existing: Option<&Existing>) -> io::Result<Metadata> {
    file.write_all(content)?;
    if let Some(Existing { metadata, .. }) = existing {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
            // Only root may give files away, and others only to their own groups.
            let (uid, gid) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
            let _ =
                rustix::fs::fchown(&file, Some(uid), Some(gid)).or_else(|_| rustix::fs::fchown(&file, None, Some(gid)));
        }
        // As the kernel does with what is written by somebody else: a program of another content runs as nobody else.
        let mode = metadata.permissions().mode() & 0o1777;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    file.sync_data()?;
    file.metadata()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_changes_a_file_meanwhile_is_noticed() {
        let changes: [fn(&Path); 3] = [
            |file| std::fs::write(file, "three").unwrap(),
            |file| {
                std::fs::write(file.with_extension("new"), "one").unwrap();
                std::fs::rename(file.with_extension("new"), file).unwrap();
            },
            |file| std::fs::remove_file(file).unwrap(),
        ];
        for change in changes {
            let folder = tempfile::tempdir().unwrap();
            let real = folder.path().canonicalize().unwrap().join("file");
            std::fs::write(&real, "one").unwrap();
            let base = folder.path().to_owned();
            let target = Target::open(&Located { real: real.clone(), base, shown: "file".to_owned() }, false).unwrap();
            let existing = target.existing().unwrap().unwrap();
            assert!(target.holds(&existing));
            change(&real);
            assert!(!target.holds(&existing));
        }
    }
}
