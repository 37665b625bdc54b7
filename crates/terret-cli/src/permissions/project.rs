//! Rules that somebody gave for a project. They are kept in the user's own place and never in the project's folder, where
//! others write, too: so they hold without a decision about trust.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use terret::tools::Rules;

use crate::exit::{Exit, Problem};
use crate::project::Project;
use crate::{files, places};

/// The longest file that is read, in bytes.
const LONGEST: u64 = 16 << 20;
/// How long another program may take to change the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// The rules of a project.
#[derive(Clone, Debug)]
pub(crate) struct OfProject {
    place: Option<PathBuf>,
    root: PathBuf,
    pub(crate) rules: Rules,
}

/// How they are kept: the rules of each project, by the whole path of its root.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    projects: BTreeMap<PathBuf, Rules>,
}

impl OfProject {
    /// The rules of the project that a folder belongs to.
    pub(crate) fn load(folder: &Path) -> Result<Self, Problem> {
        let project = Project::of(folder);
        let root = project.root().unwrap_or(folder).to_owned();
        let place = places::state().map(|folder| folder.join("permissions.json"));
        let mut rules = Self { place, root, rules: Rules::new() };
        rules.refresh()?;
        Ok(rules)
    }

    /// Where the project begins; paths in its rules count from here.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Reads them again: another program may have changed them.
    pub(crate) fn refresh(&mut self) -> Result<(), Problem> {
        let mut kept = self.place.as_deref().map_or_else(|| Ok(Kept::default()), read)?;
        self.rules = kept.projects.remove(&self.root).unwrap_or_default();
        Ok(())
    }

    /// Changes them, and keeps that. What other programs change at the same time stays.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Rules) -> T) -> Result<T, Problem> {
        let Some(place) = &self.place else { return Err(no_place()) };
        let unwritable =
            |error: io::Error| Problem::new(Exit::RunFailed, format!("{}: can't be written: {error}", place.display()));
        let _alone = lock(place).map_err(unwritable)?;
        let mut kept = read(place)?;
        let rules = kept.projects.entry(self.root.clone()).or_default();
        let done = change(rules);
        let changed = rules.clone();
        kept.projects.retain(|_, rules| !rules.is_empty());
        files::keep(place, &kept)?;
        self.rules = changed;
        Ok(done)
    }
}

fn read(place: &Path) -> Result<Kept, Problem> {
    let unreadable = |reason: String| {
        let message = format!(
            "{}: {reason}; without it, the rules that were given for projects are gone (terret permissions gives new ones)",
            place.display()
        );
        Problem::new(Exit::Configuration, message)
    };
    match files::read(place, LONGEST).map_err(|error| unreadable(format!("can't be read: {error}")))? {
        Some(json) => serde_json::from_slice(&json).map_err(|error| unreadable(error.to_string())),
        None => Ok(Kept::default()),
    }
}

/// Keeps other programs from changing the file until it is dropped. It is another file, since that one is replaced.
fn lock(place: &Path) -> io::Result<File> {
    fs::create_dir_all(place.parent().unwrap_or(Path::new("/")))?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(place.with_extension("lock"))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("another program is changing it")),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn no_place() -> Problem {
    let message = "there is no place to keep rules: set HOME or XDG_STATE_HOME to an absolute path, or TERRET_HOME";
    Problem::new(Exit::Configuration, message)
}
