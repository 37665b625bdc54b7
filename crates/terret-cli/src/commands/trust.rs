//! `terret trust`: decide about files of a project that can run or send something.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::Style;
use clap::Args;

use super::{finish, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::{clean, complain, line, note};
use crate::project::Project;
use crate::trust::{Candidate, State, Trust as Decisions};

/// Decide about files of a project that can run or send something
///
/// A decision holds for the files as they are: one that changes is not used until it is trusted again.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Trust {
    /// The project of this folder
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Trust them without a question
    #[arg(short, long)]
    yes: bool,
    /// List all files that are trusted, of all projects
    #[arg(long, conflicts_with_all = ["yes", "revoke", "folder"])]
    list: bool,
    /// Trust them no longer
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,
}

const EXAMPLES: &str = "\
Examples:
  terret trust         shows the files, and asks
  terret trust --yes   for scripts: only for content that you know
  terret trust --list";

pub(crate) fn run(args: &Trust) -> ExitCode {
    finish(match () {
        () if args.list => list(),
        () if args.revoke => revoke(args),
        () => decide(args),
    })
}

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

fn decide(args: &Trust) -> Result<Exit, Problem> {
    let mut decisions = Decisions::load()?;
    let project = project(args)?;
    let mut open = Vec::new();
    for candidate in decisions.candidates(&project) {
        match candidate {
            Ok(candidate) if candidate.state == State::Trusted => {
                note(&format!("{} is trusted already", candidate.path.display()));
            }
            Ok(candidate) => open.push(candidate),
            Err((path, error)) => complain(&format!("{}: can't be read: {error}", path.display())),
        }
    }
    if open.is_empty() {
        note("there is nothing to decide");
        return Ok(Exit::Completed);
    }
    show(&open).map_err(unwritable)?;
    if !args.yes && !ask()? {
        note("they are not used");
        return Ok(Exit::Completed);
    }
    decisions.trust(&open)?;
    note("they are used from now on, until one of them changes (terret trust --revoke takes it back)");
    Ok(Exit::Completed)
}

fn project(args: &Trust) -> Result<Project, Problem> {
    let folder = args.folder.canonicalize();
    let folder = folder.map_err(|error| Problem::usage(format!("{}: {error}", args.folder.display())))?;
    Ok(Project::of(&folder))
}

fn show(files: &[Candidate]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for file in files {
        let changed = if file.state == State::Changed { "  changed since it was trusted" } else { "" };
        writeln!(out, "{BOLD}{}{BOLD:#}{DIM}{changed}{DIM:#}", line(&file.path.display().to_string()))?;
        for text in clean(&String::from_utf8_lossy(&file.content)).lines() {
            writeln!(out, "  {text}")?;
        }
    }
    out.flush()
}

fn ask() -> Result<bool, Problem> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Problem::usage("nobody can be asked here; --yes trusts these files without a question"));
    }
    let ask = || -> io::Result<bool> {
        let mut out = anstream::stderr();
        write!(out, "Trust what stands there? It can run commands and decide where keys are sent. [y/N] ")?;
        out.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    };
    ask().map_err(|error| Problem::new(Exit::RunFailed, error.to_string()))
}

fn list() -> Result<Exit, Problem> {
    let decisions = Decisions::load()?;
    let show = || -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        for (path, state) in decisions.list() {
            let state = match state {
                Some(State::Trusted) => "",
                Some(_) => "  changed, so that it isn't used",
                None => "  not there",
            };
            writeln!(out, "{}{DIM}{state}{DIM:#}", line(&path.display().to_string()))?;
        }
        out.flush()
    };
    show().map_err(unwritable)?;
    Ok(Exit::Completed)
}

fn revoke(args: &Trust) -> Result<Exit, Problem> {
    let mut decisions = Decisions::load()?;
    let project = project(args)?;
    let revoked = match project.root() {
        Some(root) => decisions.revoke(root)?,
        None => Vec::new(),
    };
    for path in &revoked {
        note(&format!("no longer trusted: {}", path.display()));
    }
    if revoked.is_empty() {
        note("nothing of this project was trusted");
    }
    Ok(Exit::Completed)
}
