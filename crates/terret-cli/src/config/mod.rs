//! Configuration: what runs are like when the command line doesn't say.
//!
//! Every flag that says how a run is done is a setting, under its own name: `--max-turns 50` is `max-turns = 50` in a file
//! and `TERRET_MAX_TURNS=50` in the environment. The parser of the flag is that of the setting ([`settings`]).

mod document;
mod explain;
mod fetched;
mod settings;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Command;
use terret::llm::{Catalog, Host};

use crate::exit::{Exit, Problem};
use crate::project::Project;
use crate::trust::{self, Candidate, Kind, State, Trust};
use crate::{files, output, places};
use document::{Context, Document};

pub(crate) use document::nearest;
pub(crate) use explain::{Explained, explain};
pub(crate) use fetched::Fetched;
pub(crate) use settings::{Setting, settings};

/// The longest configuration file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// What is configured for the runs in a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// The strongest ones first.
    entries: Vec<Entry>,
    /// What is known about models, with the changes of `models.json` beside the files.
    pub(crate) catalog: Catalog,
    /// The project's files that are used.
    of_project: Vec<PathBuf>,
    /// What is said of files of the project that are not used.
    unused: Vec<String>,
}

/// A value of a setting, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// As the flag would have it: several for one that takes a list.
    pub(crate) values: Vec<String>,
    /// As it is written.
    pub(crate) shown: String,
    pub(crate) origin: Origin,
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--set`.
    Set,
    /// An environment variable.
    Variable(String),
    /// A file, and the line in it.
    File { layer: Layer, path: PathBuf, line: usize },
}

/// A layer of the configuration: what stands in a stronger one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    User,
    Project,
    Variables,
    Set,
}

impl Layer {
    pub(crate) const STRONGEST_FIRST: [Layer; 4] = [Layer::Set, Layer::Variables, Layer::Project, Layer::User];
}

impl Origin {
    pub(crate) fn layer(&self) -> Layer {
        match self {
            Origin::Set => Layer::Set,
            Origin::Variable(_) => Layer::Variables,
            Origin::File { layer, .. } => *layer,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Set => f.write_str("--set"),
            Origin::Variable(name) => f.write_str(name),
            Origin::File { path, line, .. } => {
                write!(f, "{}:{line}", output::shortened_folder(&path.display().to_string()))
            }
        }
    }
}

impl Config {
    /// Reads all layers, for runs in a folder. `set` are the values of `--set`.
    pub(crate) fn load(folder: &Path, set: &[String]) -> Result<Self, Problem> {
        let mut reading = Reading::default();
        for text in set.iter().rev() {
            reading.take_in(document::of_set(text));
        }
        reading.take_in(settings::of_variables(|name| std::env::var_os(name)));
        let OfProject { used, unused } = of_project(folder)?;
        for Candidate { path, content, .. } in used.iter().rev().filter(|file| file.kind == Kind::Config) {
            reading.take_in(Document::read(content, Context { path, layer: Layer::Project }));
        }
        if let Some((path, content)) = reading.file_of_user("config.toml") {
            reading.take_in(Document::read(&content, Context { path: &path, layer: Layer::User }));
        }
        let fetched = reading.fetched();
        // Here the later one wins.
        if let Some((path, content)) = reading.file_of_user("models.json") {
            reading.change_catalog(&path, &content);
        }
        for Candidate { path, content, .. } in used.iter().filter(|file| file.kind == Kind::Catalog) {
            reading.change_catalog(path, content);
        }
        let Reading { entries, catalog, problems } = reading;
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let misspelt = settings::misspelt_variables(variables).into_iter();
        let misspelt = misspelt.map(|(name, near)| format!("not used: {name}; did you mean {near}?"));
        let unused = unused.into_iter().chain(fetched.err()).chain(misspelt).collect();
        let of_project = used.into_iter().map(|file| file.path).collect();
        match problems.is_empty() {
            true => Ok(Self { entries, catalog, of_project, unused }),
            false => Err(Problem::new(Exit::Configuration, problems.join("\n"))),
        }
    }

    /// The project's files that are used.
    pub(crate) fn of_project(&self) -> &[PathBuf] {
        &self.of_project
    }

    /// Which files aren't used, and why, a line each.
    pub(crate) fn unused(&self) -> &[String] {
        &self.unused
    }

    /// Says which files aren't used.
    pub(crate) fn tell_unused(&self) {
        for note in &self.unused {
            output::note(note);
        }
    }

    /// The values of a key, the strongest one first.
    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.key == key)
    }

    /// The value that a layer gives to a key.
    pub(crate) fn text_in(&self, layer: Layer, key: &str) -> Option<&str> {
        self.all(key).find(|entry| entry.origin.layer() == layer)?.values.first().map(String::as_str)
    }

    /// What stands in a provider's table, for the host that is meant by any of its names.
    pub(crate) fn of_provider(&self, host: &Host, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| {
            let name = entry.key.strip_prefix("providers.").and_then(|rest| rest.rsplit_once('.'));
            name.is_some_and(|(name, its_key)| its_key == key && host.names().any(|known| known == name))
        })
    }

    /// The command with these values in place of the defaults of its flags.
    ///
    /// The settings that name a model are left out: they belong together ([`crate::model::asked`]).
    pub(crate) fn defaults_for(&self, command: Command) -> Command {
        command.mut_args(|arg| {
            let Some(setting) = Setting::of(&arg) else { return arg };
            match self.all(&setting.key).next() {
                Some(entry) if !settings::NAME_A_MODEL.contains(&entry.key.as_str()) => {
                    arg.default_values(entry.values.clone())
                }
                _ => arg,
            }
        })
    }
}

/// The files of a project, the root's first.
struct OfProject {
    used: Vec<Candidate>,
    /// What is said of the others.
    unused: Vec<String>,
}

fn of_project(folder: &Path) -> Result<OfProject, Problem> {
    let (mut used, mut untrusted, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    for candidate in Trust::load()?.candidates(&Project::of(folder)) {
        match candidate {
            Ok(Candidate { kind: Kind::Skill, .. }) => {}
            Ok(candidate) if candidate.state == State::Trusted => used.push(candidate),
            Ok(candidate) => untrusted.push(candidate),
            // What a project holds must not keep a run from starting.
            Err((path, error)) => {
                let path = output::shortened_folder(&path.display().to_string());
                unused.push(format!("not used: {path}, which can't be read: {error}"));
            }
        }
    }
    unused.extend(trust::not_used(&untrusted));
    Ok(OfProject { used, unused })
}

/// What was read so far, and everything that is wrong with it.
#[derive(Default)]
struct Reading {
    entries: Vec<Entry>,
    catalog: Catalog,
    problems: Vec<String>,
}

impl Reading {
    fn take_in(&mut self, read: Result<Vec<Entry>, Vec<String>>) {
        match read {
            Ok(entries) => self.entries.extend(entries),
            Err(problems) => self.problems.extend(problems),
        }
    }

    /// Adds what `terret models update` has kept. A file that can be fetched again is no reason not to start.
    fn fetched(&mut self) -> Result<(), String> {
        let Some(path) = fetched::place() else { return Ok(()) };
        let content = files::read(&path, fetched::LONGEST).map_err(|error| fetched::unusable(&path, &error))?;
        let Some(content) = content else { return Ok(()) };
        let text = String::from_utf8_lossy(&content);
        let with_additions = self.catalog.clone().with_additions(&path.display().to_string(), &text);
        self.catalog = with_additions.map_err(|error| fetched::unusable(&path, &error))?;
        Ok(())
    }

    fn change_catalog(&mut self, path: &Path, content: &[u8]) {
        let origin = path.display().to_string();
        match str::from_utf8(content).map(|text| self.catalog.clone().with_changes(&origin, text)) {
            Ok(Ok(changed)) => self.catalog = changed,
            Ok(Err(error)) => self.problems.push(error.to_string()),
            Err(_) => self.problems.push(format!("{origin}: it is not UTF-8")),
        }
    }

    fn file_of_user(&mut self, name: &str) -> Option<(PathBuf, Vec<u8>)> {
        let path = places::config()?.join(name);
        match files::read(&path, LONGEST) {
            Ok(content) => content.map(|content| (path, content)),
            Err(error) => {
                self.problems.push(format!("{}: can't be read: {error}", path.display()));
                None
            }
        }
    }
}
