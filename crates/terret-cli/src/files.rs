//! Reading files that may be anything: a pipe, a folder, gigabytes, somebody else's. And writing the program's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::exit::{Exit, Problem};

/// The bytes of a plain file, or `None` where there is none. What is no plain file, or has more than `most` bytes, is an
/// error; a named pipe is not waited for.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    existing(path)?.map(|file| read_all(&file, most)).transpose()
}

/// The same of a path that was judged, which is absolute and without links. Whoever puts a link into its place meanwhile
/// makes this fail.
pub(crate) fn read_judged(real: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = existing(real)? else { return Ok(None) };
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        let opened = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        if opened.is_ok_and(|opened| opened != real) {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
    }
    read_all(&file, most).map(Some)
}

fn existing(path: &Path) -> io::Result<Option<File>> {
    match open(path) {
        Ok(file) => Ok(Some(file)),
        // A file where a folder would have to be is none of ours.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of an open plain file.
pub(crate) fn read_all(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it has more than {} KiB", most >> 10))),
        false => Ok(bytes),
    }
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    options.open(path)
}

/// Writes a value as JSON in place of what is there, at once, and with its folder. Only its owner can read the file.
pub(crate) fn keep(path: &Path, value: &impl Serialize) -> Result<(), Problem> {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| Problem::new(Exit::RunFailed, format!("{}: can't be written: {error}", path.display())))
}
