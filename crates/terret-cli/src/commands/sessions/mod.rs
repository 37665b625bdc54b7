//! `terret sessions`: what people do with sessions besides running them.

mod check;
mod delete;
mod export;
mod import;
mod list;
mod rename;
mod search;
mod show;

use std::process::ExitCode;

use clap::Subcommand;
use terret::store::{SessionInfo, SqliteJournal, StoreError};

use super::{finish, print_json, unwritable};
use crate::exit::Problem;
use crate::output;
use crate::places;
use crate::session;

/// Look at the sessions that are kept, and change them
///
/// A session is named by its ID, by the start of it, or by the name that somebody gave it.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Sessions {
    /// List the sessions, the last one first
    #[command(visible_alias = "ls")]
    List(list::List),
    /// Show what was said and done in a session
    Show(show::Show),
    /// Find what was said in any session
    Search(search::Search),
    /// Give a session a name
    Rename(rename::Rename),
    /// Delete sessions for good
    #[command(visible_alias = "rm")]
    Delete(delete::Delete),
    /// Write a session as a page, as Markdown, or as a file that pi reads
    Export(export::Export),
    /// Make a session of a file of pi
    Import(import::Import),
    /// Check that nothing of a session is lost or was changed
    Check(check::Check),
}

const EXAMPLES: &str = "\
Examples:
  terret sessions list --here
  terret sessions search \"flaky test\"
  terret sessions export 01a22e59 -o page.html
  terret sessions delete 01a22e59 --yes";

pub(crate) use export::to_file as export;

pub(crate) fn run(command: Sessions) -> ExitCode {
    finish(places::sessions().and_then(|folder| {
        let journal = SqliteJournal::new(folder);
        match command {
            Sessions::List(args) => list::run(&journal, &args),
            Sessions::Show(args) => show::run(&journal, &args),
            Sessions::Search(args) => search::run(&journal, &args),
            Sessions::Rename(args) => rename::run(&journal, &args),
            Sessions::Delete(args) => delete::run(&journal, &args),
            // What is read on a terminal shows itself that it goes on.
            Sessions::Export(args) if args.is_shown() => export::run(&journal, &args),
            Sessions::Export(args) => output::patiently(export::WRITING, || export::run(&journal, &args)),
            Sessions::Import(args) => output::patiently("reading the file", || import::run(&journal, &args)),
            Sessions::Check(args) => check::run(&journal, &args),
        }
    }))
}

/// The session that is meant by an ID, the start of it, or a name.
pub(crate) fn find(journal: &SqliteJournal, meant: &str) -> Result<SessionInfo, Problem> {
    journal.find(meant).map_err(|error| match error {
        StoreError::Unknown { .. } => Problem::usage(format!("{error}; `terret sessions list` shows those that are")),
        StoreError::Ambiguous { .. } => Problem::usage(error.to_string()),
        error => session::failed(&error),
    })
}

/// What somebody knows a session by.
fn name_of(info: &SessionInfo) -> String {
    let name = info.title.as_deref().or(info.first_prompt.as_deref()).unwrap_or_default();
    output::cut(&output::line(name.trim()), 60)
}
