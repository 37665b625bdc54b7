use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::Path;

use crate::error::StoreError;

/// The right to write to a session: a lock on a file, which the system frees when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    #[expect(dead_code, reason = "held for its drop")]
    file: File,
}

/// Who has it, for people.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) String);

impl Lock {
    /// Takes the lock if nobody has it. The folder must be there.
    pub(crate) fn take(path: &Path) -> Result<Result<Self, Held>, StoreError> {
        loop {
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io(path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut owner = String::new();
                    // Whoever has just taken it may not have written its name yet.
                    let _ = file.read_to_string(&mut owner);
                    let owner = owner.trim();
                    return Ok(Err(Held(if owner.is_empty() { "another process" } else { owner }.to_owned())));
                }
                Err(TryLockError::Error(error)) => return Err(StoreError::io(path, error)),
            }
            if is_still(&file, path) {
                file.set_len(0).and_then(|()| file.write_all(myself().as_bytes())).map_err(io(path))?;
                return Ok(Ok(Self { file }));
            }
        }
    }

    /// Takes the lock from whoever has it, by putting another file in its place.
    pub(crate) fn take_over(path: &Path) -> Result<Self, StoreError> {
        let new = path.with_extension("new");
        let mut file = File::create(&new).map_err(io(&new))?;
        file.try_lock().map_err(|error| StoreError::io(&new, error.into()))?;
        file.write_all(myself().as_bytes()).map_err(io(&new))?;
        std::fs::rename(&new, path).map_err(io(path))?;
        Ok(Self { file })
    }
}

/// What others are told.
pub(crate) fn myself() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    format!("process {} ({})", std::process::id(), program.display())
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> StoreError {
    move |error| StoreError::io(path, error)
}

/// Whether the path still names this file: its folder may have been deleted, or the lock taken over, in the meantime.
#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same = |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((file.metadata(), path.metadata()), (Ok(a), Ok(b)) if same(&a, &b))
}

#[cfg(not(unix))]
fn is_still(_file: &File, path: &Path) -> bool {
    path.exists()
}
