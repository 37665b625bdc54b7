//! Where keys come from: `--api-key-file`, the environment, a command, the file of `terret auth`. In this order, and
//! none is looked at if one before it has the key.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use terret::llm::Host;

use crate::config::Config;
use crate::exit::{Exit, Problem};
use crate::output::{note, shortened_folder};
use crate::{files, places};

/// No key is longer, in bytes.
const LONGEST: u64 = 64 << 10;

/// How long a command may take to print a key: somebody may have to unlock something first.
const PATIENCE: Duration = Duration::from_secs(60);

/// After this time, somebody is told what is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// Where a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Variable(&'static str),
    /// The command, and where it is configured.
    Command {
        command: String,
        origin: String,
    },
    Stored(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Variable(name) => f.write_str(name),
            Source::Command { origin, .. } => write!(f, "the command in {origin}"),
            Source::Stored(path) => f.write_str(&shortened_folder(&path.display().to_string())),
        }
    }
}

/// All sources that have a key for a host, the strongest one first. No command is run.
pub(crate) fn sources(host: &Host, config: &Config) -> Result<Vec<Source>, Problem> {
    let mut sources = Vec::new();
    sources.extend(variable(host).map(Source::Variable));
    sources.extend(command(host, config));
    if let Some(store) = Store::load()?.filter(|store| store.kept.keys.contains_key(host.id)) {
        sources.push(Source::Stored(store.path));
    }
    Ok(sources)
}

/// The key for a host, unless it is in the environment: [`terret::llm::resolve`] looks there.
pub(crate) async fn find(host: &Host, file: Option<&Path>, config: &Config) -> Result<Option<SecretString>, Problem> {
    if let Some(file) = file {
        return from_file(file).map(Some);
    }
    if variable(host).is_some() {
        return Ok(None);
    }
    if let Some(Source::Command { command, origin }) = command(host, config) {
        return from_command(&command, &origin).await.map(Some);
    }
    Ok(Store::load()?.and_then(|mut store| store.kept.keys.remove(host.id)).map(|Kept(key)| key))
}

fn variable(host: &Host) -> Option<&'static str> {
    let is_set = |variable: &str| std::env::var(variable).is_ok_and(|value| !value.trim().is_empty());
    host.keys.iter().map(|(variable, _)| *variable).find(|variable| is_set(variable))
}

fn command(host: &Host, config: &Config) -> Option<Source> {
    let entry = config.of_provider(host, "api-key")?;
    let command = entry.values.first()?.trim_start().strip_prefix('!')?.to_owned();
    Some(Source::Command { command, origin: entry.origin.to_string() })
}

/// What stands in a file or comes through a pipe, as in `--api-key-file <(pass show openai)`.
fn from_file(path: &Path) -> Result<SecretString, Problem> {
    let problem = |reason: String| refused(format!("--api-key-file: {}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| problem(error.to_string()))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        private(&file, path)?;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(|error| problem(error.to_string()))?;
    read(&text).map_err(|reason| problem(reason.to_owned()))
}

async fn from_command(command: &str, origin: &str) -> Result<SecretString, Problem> {
    let problem = |reason: &str| refused(format!("the command for the key, in {origin}, {reason}"));
    let (shell, option) = if cfg!(windows) { ("cmd", "/C") } else { ("/bin/sh", "-c") };
    let mut process = tokio::process::Command::new(shell);
    process.arg(option).arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut output = std::pin::pin!(process.output());
    let output = match tokio::time::timeout(SILENCE, &mut output).await {
        Ok(output) => Ok(output),
        Err(_) => {
            note(&format!("waiting for the command for the key, in {origin}"));
            tokio::time::timeout(PATIENCE, output).await
        }
    };
    let output = match output {
        Err(_) => return Err(problem("took longer than a minute")),
        Ok(Err(error)) => return Err(problem(&format!("can't be run: {error}"))),
        Ok(Ok(output)) => output,
    };
    match (output.status.success(), read(&output.stdout)) {
        (false, _) => Err(problem(&format!("failed ({})", output.status))),
        (true, Err(reason)) => Err(problem(&format!("printed no key: {reason}"))),
        (true, Ok(key)) => Ok(key),
    }
}

/// A key from what somebody has typed, piped or printed: the first line that isn't empty.
pub(crate) fn read(text: &[u8]) -> Result<SecretString, &'static str> {
    let text = str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).ok_or("there is nothing in it")?;
    match line.contains(|c: char| c.is_whitespace() || c.is_control()) {
        true => Err("it holds white space or control characters; was it copied whole?"),
        false => Ok(line.into()),
    }
}

/// Keeps a key, and tells where.
pub(crate) fn keep(host: &Host, key: SecretString) -> Result<PathBuf, Problem> {
    let mut store = match Store::load()? {
        Some(store) => store,
        None => Store { path: place().ok_or_else(no_place)?, kept: Stored::default() },
    };
    store.kept.keys.insert(host.id.to_owned(), Kept(key));
    store.write()?;
    Ok(store.path)
}

/// Forgets a key; tells from where, if there was one.
pub(crate) fn forget(host: &Host) -> Result<Option<PathBuf>, Problem> {
    let Some(mut store) = Store::load()? else { return Ok(None) };
    match store.kept.keys.remove(host.id) {
        None => Ok(None),
        Some(_) => store.write().map(|()| Some(store.path)),
    }
}

/// The file of `terret auth`.
struct Store {
    path: PathBuf,
    kept: Stored,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    keys: BTreeMap<String, Kept>,
}

/// A key that is written out on purpose.
struct Kept(SecretString);

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|key| Self(key.into()))
    }
}

fn place() -> Option<PathBuf> {
    places::data().map(|folder| folder.join("auth.json"))
}

impl Store {
    fn load() -> Result<Option<Self>, Problem> {
        let Some(path) = place() else { return Ok(None) };
        let problem = |reason: String| refused(format!("{}: {reason}", path.display()));
        let file = match files::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(problem(format!("can't be read: {error}"))),
        };
        let json = files::read_all(&file, 1 << 20).map_err(|error| problem(format!("can't be read: {error}")))?;
        private(&file, &path)?;
        // The message of the parser could hold a part of a key.
        let kept = serde_json::from_slice(&json)
            .map_err(|error| problem(format!("line {} is not as `terret auth set` writes it", error.line())))?;
        Ok(Some(Self { path, kept }))
    }

    fn write(&self) -> Result<(), Problem> {
        files::keep(&self.path, &self.kept)
    }
}

/// Refuses a file that somebody else can read.
#[cfg(unix)]
fn private(file: &File, path: &Path) -> Result<(), Problem> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = file.metadata().map_err(|error| refused(format!("{}: {error}", path.display())))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused(format!("{} holds a key and belongs to another user; it is not used", path.display())));
    }
    match metadata.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(refused(format!(
            "{0} holds a key that others can read; it is not used (chmod 600 {0})",
            path.display()
        ))),
    }
}

#[cfg(not(unix))]
fn private(_: &File, _: &Path) -> Result<(), Problem> {
    Ok(())
}

fn refused(message: String) -> Problem {
    Problem::new(Exit::Authentication, message)
}

fn no_place() -> Problem {
    let message = "there is no place to keep keys: set HOME or XDG_DATA_HOME to an absolute path, or TERRET_HOME";
    Problem::new(Exit::Configuration, message)
}
