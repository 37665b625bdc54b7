//! Who may write to a session.
//!
//! The system frees a lock when its process dies, so that a session is never held by the dead. A process that was stopped
//! lives, and so its lock comes with a lease that it renews for as long as it runs. When that has run out, somebody else
//! may put another file in the place of the locked one. Which of the two may write is not decided here: the
//! [fence](crate::database::raise_fence) is raised by the new owner, and every append checks it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// The right to write to a session.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    lease: Duration,
    /// Whose place it will take.
    replaces: Option<PathBuf>,
}

/// Who has it.
#[derive(Debug)]
pub(crate) struct Held {
    /// For people.
    pub(crate) owner: String,
    /// Whether its lease has run out.
    is_silent: bool,
}

/// How long an owner may be silent by default.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

impl Lock {
    /// Takes the lock if nobody has it, or if the lease of whoever has it has run out. The folder must be there.
    pub(crate) fn take(path: &Path, lease: Duration) -> Result<Result<Self, Held>, StoreError> {
        match Self::take_free(path, lease)? {
            Err(held) if held.is_silent => Self::replace(path, lease, false),
            taken => Ok(taken),
        }
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn take_free(path: &Path, lease: Duration) -> Result<Result<Self, Held>, StoreError> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) if is_still(&file, path) => return Self::begin(file, lease, path).map(Ok),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Err(Held::by(&file, path))),
                Err(TryLockError::Error(error)) => return Err(StoreError::io(path, error)),
            }
        }
    }

    /// Takes the lock from whoever has it.
    pub(crate) fn take_over(path: &Path, lease: Duration) -> Result<Result<Self, Held>, StoreError> {
        Self::replace(path, lease, true)
    }

    /// Takes the place of the lock that it replaces. To be done once the fence is raised: until then, its owner may be
    /// the one that goes on.
    pub(crate) fn confirm(&mut self) -> Result<(), StoreError> {
        let Some(path) = self.replaces.take() else { return Ok(()) };
        std::fs::rename(next(&path), &path).map_err(|error| StoreError::io(path, error))
    }

    /// How long its owner may be silent.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Says that its owner runs. Not synced: those who look are on a system that runs, too.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Lease::new(self.lease))?;
        line.push(b'\n');
        self.file.rewind()?;
        self.file.write_all(&line)
    }

    fn begin(file: File, lease: Duration, path: &Path) -> Result<Self, StoreError> {
        let mut lock = Self { file, lease, replaces: None };
        lock.file.set_len(0).and_then(|()| lock.renew()).map_err(|error| StoreError::io(path, error))?;
        Ok(lock)
    }

    /// Prepares to put a locked file in the place of another one. Of several that try, one does.
    fn replace(path: &Path, lease: Duration, by_force: bool) -> Result<Result<Self, Held>, StoreError> {
        let new = next(path);
        loop {
            let file = open(&new)?;
            match file.try_lock() {
                Ok(()) if is_still(&file, &new) => {}
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => return Ok(Err(Held::by(&file, &new))),
                Err(TryLockError::Error(error)) => return Err(StoreError::io(path, error)),
            }
            let mut lock = Self::begin(file, lease, &new)?;
            lock.replaces = Some(path.to_owned());
            // Somebody else may have done the same in the meantime, or the owner has come back.
            let held = Held::by(&open(path)?, path);
            return Ok(if by_force || held.is_silent { Ok(lock) } else { Err(held) });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = &self.replaces {
            let _ = std::fs::remove_file(next(path));
        }
    }
}

/// The file that will take the place of another one.
fn next(path: &Path) -> PathBuf {
    path.with_extension("new")
}

impl Held {
    /// Whoever has just taken it may not have written its name yet, and isn't silent.
    fn by(file: &File, path: &Path) -> Self {
        match Lease::read(file) {
            Some(lease) => Self { is_silent: lease.is_over(file, path), owner: lease.owner },
            None => Self { is_silent: false, owner: "another process".to_owned() },
        }
    }
}

/// Who has a lock, for people. One that was never taken, and one of the dead, nobody has.
pub(crate) fn holder(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let held = Held::by(&file, path);
    if held.is_silent {
        return None;
    }
    // To try the lock is to have it for a moment, in which somebody else may want it. So only where nobody is seen that has
    // it.
    match Lease::read(&file) {
        Some(lease) if lease.process != std::process::id() && lease.is_by_somebody_who_runs() => Some(held.owner),
        _ => match file.try_lock_shared() {
            Ok(()) => None,
            Err(_) => Some(held.owner),
        },
    }
}

/// What the owner says of itself: a line of always the same length, so that a reader sees an old one or a new one.
#[derive(Serialize, Deserialize)]
struct Lease {
    owner: String,
    /// Its process.
    #[serde(default)]
    process: u32,
    /// Since when the owner's system runs, as a name; none where systems have no such name.
    boot: Option<String>,
    /// Milliseconds of that system's clock that is never set.
    renewed: String,
    /// Milliseconds.
    lasts: u64,
}

impl Lease {
    fn new(lasts: Duration) -> Self {
        Self {
            owner: myself(),
            process: std::process::id(),
            boot: BOOT.clone(),
            renewed: format!("{:020}", clock().as_millis()),
            lasts: lasts.as_millis().try_into().unwrap_or(u64::MAX),
        }
    }

    fn read(mut file: &File) -> Option<Self> {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether a process of this number runs here. It may be another one by now, or the owner be where it can't be seen.
    #[cfg(unix)]
    fn is_by_somebody_who_runs(&self) -> bool {
        let process = i32::try_from(self.process).ok().and_then(rustix::process::Pid::from_raw);
        let told = process.map(rustix::process::test_kill_process);
        self.boot == *BOOT && matches!(told, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
    }

    #[cfg(not(unix))]
    fn is_by_somebody_who_runs(&self) -> bool {
        false
    }

    /// Whether it has run out. On the same system its clock says so, which nobody sets and which stands still while the
    /// system sleeps; elsewhere the clock of the file system, to which both have written.
    fn is_over(&self, file: &File, path: &Path) -> bool {
        let renewed = self.renewed.parse().ok().map(Duration::from_millis);
        let silent = match (&self.boot, &*BOOT, renewed) {
            (Some(boot), Some(here), Some(renewed)) if boot == here => clock().checked_sub(renewed),
            _ => by_the_file_system(file, path),
        };
        silent.is_some_and(|silent| silent > Duration::from_millis(self.lasts))
    }
}

/// How long ago a file was written, by the clock that dates files there.
fn by_the_file_system(file: &File, path: &Path) -> Option<Duration> {
    let probe = path.with_extension("now");
    let now = File::create(&probe).and_then(|mut file| {
        file.write_all(b"\n")?;
        file.metadata()?.modified()
    });
    let _ = std::fs::remove_file(&probe);
    now.ok()?.duration_since(file.metadata().ok()?.modified().ok()?).ok()
}

static BOOT: LazyLock<Option<String>> = LazyLock::new(|| {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
});

/// The time since some start of the system, without the time that it slept.
#[cfg(unix)]
fn clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.try_into().unwrap_or_default()
}

/// Never asked where there is no name of the start.
#[cfg(not(unix))]
fn clock() -> Duration {
    Duration::ZERO
}

/// What others are told.
pub(crate) fn myself() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    format!("process {} ({})", std::process::id(), program.display())
}

fn open(path: &Path) -> Result<File, StoreError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.map_err(|error| StoreError::io(path, error))
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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_lease_ends_by_the_clock_of_its_system_and_elsewhere_by_that_of_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owner");
        let here = || Lease::new(LONG);
        let elsewhere = || Lease { boot: Some("another".into()), ..here() };
        let nowhere = || Lease { boot: None, ..here() };
        let long_ago = |lease| Lease { renewed: "00000000000000000000".into(), lasts: 1, ..lease };
        let from_the_future = |lease| Lease { renewed: format!("{:020}", u64::MAX / 2), lasts: 1, ..lease };
        for (lease, file_age, over) in [
            (here(), LONG * 2, false),
            (here(), Duration::ZERO, false),
            (long_ago(here()), Duration::ZERO, true),
            (from_the_future(here()), LONG * 2, false),
            (elsewhere(), Duration::ZERO, false),
            (elsewhere(), LONG * 2, true),
            (nowhere(), Duration::ZERO, false),
            (nowhere(), LONG * 2, true),
        ] {
            std::fs::write(&path, serde_json::to_vec(&lease).unwrap()).unwrap();
            let file = open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - file_age).unwrap();
            let read = Lease::read(&file).unwrap();
            assert_eq!(read.is_over(&file, &path), over, "{:?} {} {file_age:?}", lease.boot, lease.renewed);
        }
    }

    #[test]
    fn a_lock_that_is_not_confirmed_leaves_the_old_one_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owner");
        let stopped = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(Lock::take(&path, LONG).unwrap().unwrap());
        assert!(!next(&path).exists());
        assert!(is_still(&stopped.file, &path));
    }

    #[test]
    fn of_several_that_take_over_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owner");
        let stopped = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        let takers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let mut taken = Lock::take(&path, LONG).unwrap()?;
                    taken.confirm().unwrap();
                    Ok(taken)
                })
            })
            .collect();
        let taken: Vec<Result<_, Held>> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1);
        drop(stopped);
        assert!(Lock::take(&path, LONG).unwrap().is_err(), "the new owner has it, also when the old one lets go");
    }
}
