//! `terret sessions export`

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use terret::store::{Damage, SessionInfo, SqliteJournal, StoreError};

use super::{find, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::{self, clean, clean_json};
use crate::session;
use terret::agent::SessionId;

#[derive(Args)]
pub(crate) struct Export {
    /// The session: its ID, the start of it, or its name
    #[arg(value_name = "ID")]
    session: String,
    /// What to write; without this, what the end of the file's name says, and jsonl on standard output
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The file, which is written anew; standard output without this, and with -
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A session file of pi, version 3
    Jsonl,
    /// Markdown
    #[value(alias = "markdown")]
    Md,
    /// A page that stands for itself
    Html,
}

/// What is said while it takes its time.
pub(super) const WRITING: &str = "writing the session";

impl Export {
    /// Whether it is for the eyes of somebody.
    pub(super) fn is_shown(&self) -> bool {
        self.file().is_none() && io::stdout().is_terminal()
    }

    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|file| *file != Path::new("-"))
    }
}

/// Exits with 1 if a part of the session can't be read. The rest is written all the same.
pub(super) fn run(journal: &SqliteJournal, args: &Export) -> Result<Exit, Problem> {
    let info = find(journal, &args.session)?;
    let format = match (args.format, args.file()) {
        (Some(format), _) => format,
        (None, Some(file)) => by_its_end(file)?,
        (None, None) => Format::Jsonl,
    };
    let damage = match args.file() {
        None if args.is_shown() => {
            let mut text = Vec::new();
            let writing = || write(journal, &info, format, &mut text);
            let damage = output::patiently(WRITING, writing).map_err(|error| session::failed(&error))?;
            // It is looked at there, and what was said must not steer it.
            let text = String::from_utf8_lossy(&text);
            let text = if format == Format::Jsonl { clean_json(text.into_owned()).into() } else { clean(&text) };
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritable)?;
            damage
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            let damage = write(journal, &info, format, &mut out).map_err(unwritten(unwritable))?;
            out.flush().map_err(unwritable)?;
            damage
        }
        // A device, a pipe: it is there to be written to, and not to be replaced.
        Some(path) if path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir()) => {
            let problem = |error: io::Error| Problem::new(Exit::RunFailed, format!("{}: {error}", path.display()));
            let file = std::fs::OpenOptions::new().write(true).open(path).map_err(problem)?;
            let mut out = BufWriter::new(file);
            let damage = write(journal, &info, format, &mut out).map_err(unwritten(problem))?;
            out.flush().map_err(problem)?;
            damage
        }
        Some(path) => {
            // What a link leads to is what is meant.
            let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let problem = |error: io::Error| Problem::new(Exit::RunFailed, format!("{}: {error}", path.display()));
            // Beside it, so that there is the old file or the new one, and never a half.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let mut beside = tempfile::Builder::new();
            // As any new file, and not for its user only.
            #[cfg(unix)]
            beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let file = beside.tempfile_in(folder.unwrap_or_else(|| ".".as_ref())).map_err(cause).map_err(problem)?;
            let mut out = BufWriter::new(file);
            let damage = write(journal, &info, format, &mut out).map_err(unwritten(problem))?;
            let file = out.into_inner().map_err(|error| problem(error.into_error()))?;
            file.persist(path).map_err(|error| problem(error.error))?;
            damage
        }
    };
    for damage in &damage {
        output::complain(&format!("{damage}; the rest was written"));
    }
    Ok(if damage.is_empty() { Exit::Completed } else { Exit::RunFailed })
}

/// What a file's name says that it is. A name without an end, such as that of a pipe, says nothing.
fn by_its_end(file: &Path) -> Result<Format, Problem> {
    match file.extension().map(|end| end.to_string_lossy().to_lowercase()).as_deref() {
        Some("html" | "htm") => Ok(Format::Html),
        Some("md" | "markdown") => Ok(Format::Md),
        Some("jsonl") | None => Ok(Format::Jsonl),
        Some(other) => Err(Problem::usage(format!(
            "{}: a session is written as .html, .md or .jsonl, not .{other}",
            file.display()
        ))),
    }
}

/// Writes a session to a file, as what the end of its name says.
pub(crate) fn to_file(journal: &SqliteJournal, session: &SessionId, file: &Path) -> Result<(), Problem> {
    let args = Export { session: session.to_string(), format: None, output: Some(file.to_owned()) };
    run(journal, &args).map(drop)
}

fn write(
    journal: &SqliteJournal,
    info: &SessionInfo,
    format: Format,
    out: &mut impl Write,
) -> Result<Vec<Damage>, StoreError> {
    match format {
        Format::Jsonl => journal.export_pi(&info.id, info.setup.folder.as_deref().unwrap_or_default(), out),
        Format::Md => journal.export_markdown(&info.id, out),
        Format::Html => journal.export_html(&info.id, out),
    }
}

/// What it means that a session could not be written out.
fn unwritten(problem: impl Fn(io::Error) -> Problem) -> impl Fn(StoreError) -> Problem {
    move |error| match error {
        StoreError::Output(error) => problem(error),
        error => session::failed(&error),
    }
}

/// The error of the system, without the name of a file that nobody has asked for.
fn cause(error: io::Error) -> io::Error {
    let said = error.to_string();
    match said.split_once(" at path \"") {
        Some((system, _)) => io::Error::new(error.kind(), system.to_owned()),
        None => error,
    }
}
