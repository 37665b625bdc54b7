//! Where the file tools may go, and how they get there.
//!
//! A path is followed first, through every symbolic link and `..`, to the real path that it names. The real path is
//! judged, and then that very path is opened from `/` downwards, one component at a time, without following any link.
//! So what was judged is what is opened: whoever swaps a directory for a link in between makes the call fail, and
//! never makes it escape.
//!
//! A hard link can't be told from the file that it was made of, and a file in a mounted directory counts as being in
//! the workspace.

mod error;
mod open;
mod outputs;
mod replace;
mod resolve;
mod seen;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sandbox::{Profile, secrets};
use seen::Seen;

pub(crate) use error::PathError;
pub(crate) use open::{Entry, OpenedUp, open_file, open_up, read_directory};
pub(crate) use outputs::Outputs;
pub(crate) use replace::{Existing, Target, link_beneath, rename_beneath, set_mode};

/// The directory that the tools work in. Cheap to clone.
///
/// File tools read and write beneath the root, read the outputs that tools keep on disk, and go nowhere else unless
/// [`readable`](Self::readable) or [`writable`](Self::writable) say so. Relative paths start at the root; absolute
/// paths are fine as long as they end up inside. `.git`, a file or a directory at any depth, is never written, and what
/// commonly holds keys and tokens (`~/.ssh`, `~/.aws`, this program's own state …) is never read unless its very path is
/// permitted. Commands of the `bash` tool start in the root, and a sandbox holds them to the same places.
///
/// A [`profile`](Self::profile) makes all of it read-only, or lifts all of it.
#[derive(Clone, Debug)]
pub struct Workspace(Arc<Places>);

#[derive(Clone, Debug)]
struct Places {
    root: PathBuf,
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    /// Found out once: secrets that lie where nothing is permitted anyway.
    secrets: Vec<PathBuf>,
    profile: Profile,
    outputs: Outputs,
    seen: Arc<Seen>,
}

/// What a path is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A path that was judged.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Absolute, without symbolic links and `..`. It need not exist.
    pub(crate) real: PathBuf,
    /// The permitted place that it lies in.
    pub(crate) base: PathBuf,
    /// How people and models are told of it: relative to the root where it lies there.
    pub(crate) shown: String,
}

impl Workspace {
    /// A workspace with this root, which must be an existing directory.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = root.as_ref().canonicalize()?;
        if !root.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "the root of a workspace must be a directory"));
        }
        let outputs = Outputs::temporary();
        let secrets = secrets(None).into_iter().filter_map(|path| resolve::resolve(&path).ok()).collect();
        Ok(Self(Arc::new(Places {
            root,
            readable: vec![],
            writable: vec![],
            read_only: vec![],
            hidden: vec![],
            secrets,
            profile: Profile::default(),
            outputs,
            seen: Arc::default(),
        })))
    }

    /// Says what tools may do here at all. By default they may write.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.changed(|places| places.profile = profile)
    }

    /// Also lets tools read this file, or what lies beneath this directory.
    pub fn readable(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = resolve::resolve(&std::path::absolute(path)?)?;
        Ok(self.changed(|places| places.readable.push(path)))
    }

    /// Also lets tools read and write this file, or what lies beneath this directory.
    pub fn writable(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = resolve::resolve(&std::path::absolute(path)?)?;
        Ok(self.changed(|places| places.writable.push(path)))
    }

    /// Keeps tools from reading this file, or what lies beneath this directory, beside the secrets that are known. A
    /// permission for the very path, or for something beneath it, outweighs this.
    pub fn hide(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = resolve::resolve(&std::path::absolute(path)?)?;
        Ok(self.changed(|places| places.hidden.push(path)))
    }

    /// Keeps tools from writing this file, or what lies beneath this directory. It outweighs every permission.
    pub fn read_only(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = resolve::resolve(&std::path::absolute(path)?)?;
        Ok(self.changed(|places| places.read_only.push(path)))
    }

    /// Keeps what was too long for the model in this directory, which must exist and is left as it is. Without it the
    /// tools make a temporary directory and remove it when they are dropped.
    pub fn keep_outputs_in(self, directory: impl AsRef<Path>) -> io::Result<Self> {
        let outputs = Outputs::lasting(directory.as_ref().canonicalize()?);
        Ok(self.changed(|places| places.outputs = outputs))
    }

    /// The root, absolute and without symbolic links.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Remembers a file as a model has just seen or made it. All clones of the workspace remember the same.
    pub(crate) fn note_seen(&self, located: &Located, metadata: &std::fs::Metadata) {
        self.0.seen.note(&located.real, metadata);
    }

    /// Refuses to change a file that is another one than was seen.
    pub(crate) fn check_seen(&self, located: &Located, existing: &Existing) -> Result<(), PathError> {
        match self.0.seen.differs(&located.real, existing.metadata()) {
            true => Err(PathError::Stale { path: located.shown.clone() }),
            false => Ok(()),
        }
    }

    /// What tools may do here.
    pub(crate) fn current_profile(&self) -> Profile {
        self.0.profile
    }

    pub(crate) fn may_write(&self) -> bool {
        self.0.profile != Profile::ReadOnly
    }

    pub(crate) fn extra_readable(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.readable.iter()
    }

    pub(crate) fn extra_writable(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.writable.iter()
    }

    pub(crate) fn extra_read_only(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.read_only.iter()
    }

    pub(crate) fn hidden(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.hidden.iter()
    }

    pub(crate) fn outputs(&self) -> &Outputs {
        &self.0.outputs
    }

    /// Follows a path and judges where it leads.
    pub(crate) fn locate(&self, path: &str, access: Access) -> Result<Located, PathError> {
        if path.is_empty() {
            return Err(PathError::Empty);
        }
        let real = match resolve::resolve(&self.0.root.join(path)) {
            Ok(real) => real,
            // Why a place outside can't be followed is nobody's business.
            Err(stuck) if self.base(&stuck.at, Access::Read).is_none() => return Err(self.outside(path, access)),
            Err(stuck) => return Err(PathError::from_io(&self.shown(&stuck.at), stuck.error)),
        };
        let shown = self.shown(&real);
        if access == Access::Write && !self.may_write() {
            return Err(PathError::ReadOnly { path: shown });
        }
        if access == Access::Write && self.is_protected(&real) {
            return Err(PathError::Protected { path: shown });
        }
        if self.is_hidden(&real) {
            return Err(PathError::Hidden { path: shown });
        }
        match self.base(&real, access) {
            Some(base) => Ok(Located { base: base.to_owned(), real, shown }),
            None => Err(self.outside(path, access)),
        }
    }

    /// A real path as it is told.
    pub(crate) fn shown(&self, real: &Path) -> String {
        match real.strip_prefix(&self.0.root) {
            Ok(path) if path.as_os_str().is_empty() => ".".to_owned(),
            Ok(path) => printable(path.as_os_str()),
            Err(_) => printable(real.as_os_str()),
        }
    }

    /// That nothing is there, with what there is of a similar name.
    pub(crate) fn not_found(&self, located: &Located) -> PathError {
        PathError::NotFound { path: located.shown.clone(), near: open::near(located, |real| self.shown(real)) }
    }

    /// The permitted place that a real path lies in. Whole components are compared, so that `/project-evil` isn't in `/project`.
    fn base(&self, real: &Path, access: Access) -> Option<&Path> {
        let places = &*self.0;
        let writable = std::iter::once(&places.root).chain(&places.writable).map(PathBuf::as_path);
        let readable = places.readable.iter().map(PathBuf::as_path).chain(places.outputs.directory());
        if places.profile == Profile::Full {
            return Some(Path::new("/"));
        }
        match access {
            Access::Write => writable.into_iter().find(|base| real.starts_with(base)),
            Access::Read => writable.chain(readable).find(|base| real.starts_with(base)),
        }
    }

    fn is_protected(&self, real: &Path) -> bool {
        let is_git = |part: &OsStr| part.eq_ignore_ascii_case(".git");
        let places = &*self.0;
        if places.profile == Profile::Full {
            return places.read_only.iter().any(|path| real.starts_with(path));
        }
        let bases = std::iter::once(&places.root).chain(&places.writable);
        // A permission for something inside a `.git` is as good as any other.
        let free = bases.filter_map(|base| real.strip_prefix(base).ok()).any(|path| !path.iter().any(is_git));
        let inside = self.base(real, Access::Write).is_some();
        (inside && !free) || places.read_only.iter().any(|path| real.starts_with(path))
    }

    /// The secrets beneath a real path.
    pub(crate) fn hidden_beneath(&self, base: &Path) -> Vec<&Path> {
        let hidden = self.0.secrets.iter().chain(&self.0.hidden).map(PathBuf::as_path);
        hidden.filter(|hidden| hidden.starts_with(base) && self.is_hidden(hidden)).collect()
    }

    /// Whether a real path is a secret. What is permitted further down, or is the workspace itself, is none.
    pub(crate) fn is_hidden(&self, real: &Path) -> bool {
        let places = &*self.0;
        let is_permitted =
            |hidden: &PathBuf| self.permitted().any(|path| path.starts_with(hidden) && real.starts_with(path));
        let mut hidden = places.secrets.iter().chain(&places.hidden);
        places.profile != Profile::Full && hidden.any(|hidden| real.starts_with(hidden) && !is_permitted(hidden))
    }

    /// Whether a real path isn't hidden, or something beneath it isn't.
    pub(crate) fn shows_beneath(&self, real: &Path) -> bool {
        !self.is_hidden(real) || self.permitted().any(|path| path.starts_with(real))
    }

    /// The places that somebody named.
    fn permitted(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.0.root).chain(&self.0.readable).chain(&self.0.writable)
    }

    fn outside(&self, path: &str, access: Access) -> PathError {
        let root = printable(self.0.root.as_os_str());
        PathError::Outside { path: printable(OsStr::new(path)), root, access }
    }

    fn changed(mut self, change: impl FnOnce(&mut Places)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// Where an absolute path leads, through every symbolic link, if that can be told.
pub(crate) fn leads(path: &Path) -> Option<PathBuf> {
    resolve::resolve(path).ok()
}

/// A name without anything that could break a line, move a cursor or turn the writing direction.
pub(crate) fn printable(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    if !name.chars().any(|c| c.is_control() || crate::plain::is_invisible_control(c)) {
        return name.into_owned();
    }
    name.chars()
        .flat_map(|c| {
            let escaped = c.is_control() || crate::plain::is_invisible_control(c);
            let (plain, escape) = if escaped { (None, Some(c.escape_default())) } else { (Some(c), None) };
            plain.into_iter().chain(escape.into_iter().flatten())
        })
        .collect()
}
