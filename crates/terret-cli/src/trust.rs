//! What somebody has decided about files of projects that can run or send something.
//!
//! A decision is about a file's path and its content: what has changed since isn't trusted any more. The content that was
//! judged is the content that is used, so that nobody can swap it in between.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::context::skills;
use crate::exit::{Exit, Problem};
use crate::output::shortened_folder;
use crate::project::Project;
use crate::{files, places};

/// The longest file that can be trusted, in bytes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// The decisions that are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    place: Option<PathBuf>,
    kept: Kept,
}

/// How they are kept: the digest of each file's content, by its whole path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    trusted: BTreeMap<PathBuf, String>,
}

/// What is known of a file of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Trusted,
    /// Another content was.
    Changed,
    Undecided,
}

/// What a file of a project is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Config,
    /// Changes of the catalog of models.
    Catalog,
    Skill,
}

/// A file of a project that can run or send something.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) state: State,
}

impl Trust {
    pub(crate) fn load() -> Result<Self, Problem> {
        let Some(place) = places::state().map(|folder| folder.join("trust.json")) else { return Ok(Self::default()) };
        let unreadable = |reason: String| {
            let message = format!("{}: {reason}; without it, all decisions are open again", place.display());
            Problem::new(Exit::Configuration, message)
        };
        let kept = match files::read(&place, LONGEST).map_err(|error| unreadable(format!("can't be read: {error}")))? {
            Some(json) => serde_json::from_slice(&json).map_err(|error| unreadable(error.to_string()))?,
            None => Kept::default(),
        };
        Ok(Self { place: Some(place), kept })
    }

    pub(crate) fn state(&self, path: &Path, content: &[u8]) -> State {
        match self.kept.trusted.get(path) {
            None => State::Undecided,
            Some(trusted) if *trusted == digest(content) => State::Trusted,
            Some(_) => State::Changed,
        }
    }

    /// The files of a project that need a decision, from the root down. One that can't be read is an error of its own.
    pub(crate) fn candidates(&self, project: &Project) -> Vec<Result<Candidate, (PathBuf, io::Error)>> {
        let mut candidates = Vec::new();
        for (kind, path) in paths(project) {
            match files::read(&path, LONGEST) {
                Ok(None) => {}
                Ok(Some(content)) => {
                    let state = self.state(&path, &content);
                    candidates.push(Ok(Candidate { kind, path, content, state }));
                }
                Err(error) => candidates.push(Err((path, error))),
            }
        }
        candidates
    }

    /// Keeps that these files are trusted as they are.
    pub(crate) fn trust(&mut self, files: &[Candidate]) -> Result<(), Problem> {
        let trusted = files.iter().map(|file| (file.path.clone(), digest(&file.content)));
        self.kept.trusted.extend(trusted);
        self.keep()
    }

    /// Forgets what was decided about files in a folder, and tells which.
    pub(crate) fn revoke(&mut self, folder: &Path) -> Result<Vec<PathBuf>, Problem> {
        let (revoked, kept) =
            std::mem::take(&mut self.kept.trusted).into_iter().partition(|(path, _)| path.starts_with(folder));
        self.kept.trusted = kept;
        self.keep()?;
        let revoked: BTreeMap<PathBuf, String> = revoked;
        Ok(revoked.into_keys().collect())
    }

    /// All files that are trusted, as far as they are there.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&Path, Option<State>)> {
        self.kept.trusted.keys().map(|path| {
            let content = files::read(path, LONGEST).ok().flatten();
            (path.as_path(), content.map(|content| self.state(path, &content)))
        })
    }

    fn keep(&self) -> Result<(), Problem> {
        let Some(place) = &self.place else { return Err(no_place()) };
        files::keep(place, &self.kept)
    }
}

fn no_place() -> Problem {
    let message = "there is no place to keep decisions: set HOME or XDG_STATE_HOME to an absolute path, or TERRET_HOME";
    Problem::new(Exit::Configuration, message)
}

/// Says which of these files aren't used and why, a line for each reason.
pub(crate) fn not_used(files: &[Candidate]) -> impl Iterator<Item = String> {
    const BY_NAME: usize = 3;
    let reasons =
        [(State::Undecided, "which nobody has trusted yet"), (State::Changed, "which changed since it was trusted")];
    reasons.into_iter().filter_map(|(state, reason)| {
        let paths = files.iter().filter(|file| file.state == state).map(|file| file.path.display().to_string());
        let paths: Vec<String> = paths.map(|path| shortened_folder(&path)).collect();
        let named = match paths.len() {
            0 => return None,
            1..=BY_NAME => paths.join(", "),
            more => format!("{} and {} more", paths.first()?, more - 1),
        };
        Some(format!("not used: {named}, {reason} (terret trust shows it and asks)"))
    })
}

fn paths(project: &Project) -> impl Iterator<Item = (Kind, PathBuf)> {
    let mine = places::config();
    project.folders.iter().flat_map(move |folder| {
        let config = Some(folder.join(".terret")).filter(|folder| Some(folder) != mine.as_ref());
        let files = [(Kind::Config, "config.toml"), (Kind::Catalog, "models.json")];
        let config = config.into_iter().flat_map(move |folder| files.map(|(kind, name)| (kind, folder.join(name))));
        config.chain(skills::in_project(folder).into_iter().map(|path| (Kind::Skill, path)))
    })
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
