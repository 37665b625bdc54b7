//! `terret sessions import`

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;

use clap::Args;
use terret::agent::SessionId;
use terret::store::{SqliteJournal, StoreError};

use super::unwritable;
use crate::exit::{Exit, Problem};
use crate::output;
use crate::session;

#[derive(Args)]
pub(crate) struct Import {
    /// A session file of pi, version 1 to 3; - for standard input
    file: PathBuf,
    /// The ID of the new session
    #[arg(long, value_name = "ID", value_parser = crate::cli::session_id)]
    session_id: Option<String>,
}

/// Prints the ID of the new session.
pub(super) fn run(journal: &SqliteJournal, args: &Import) -> Result<Exit, Problem> {
    let new = args.session_id.clone().map_or_else(SessionId::new, SessionId::from);
    let imported = if args.file.as_os_str() == "-" {
        journal.import_pi(io::stdin().lock(), &new)
    } else {
        let problem = |error| Problem::usage(format!("{}: {error}", args.file.display()));
        journal.import_pi(BufReader::new(File::open(&args.file).map_err(problem)?), &new)
    };
    let imported = imported.map_err(|error| match error {
        StoreError::NotPi(_) => Problem::usage(format!("{}: {error}", args.file.display())),
        StoreError::Input(error) => Problem::usage(format!("{}: {error}", args.file.display())),
        StoreError::Behind { session, .. } => Problem::usage(format!("there is a session {session} already")),
        error => session::failed(&error),
    })?;
    for line in &imported.left_out {
        output::note(&format!("left out: {line}"));
    }
    if imported.messages == 0 {
        return Err(Problem::new(Exit::RunFailed, "the file holds no message, so that there is no session"));
    }
    let messages = if imported.messages == 1 { "1 message" } else { &format!("{} messages", imported.messages) };
    output::note(&format!("{messages}; `terret -r {} \"…\"` goes on with them", output::quoted(new.as_str())));
    writeln!(io::stdout(), "{}", imported.session).map_err(unwritable)?;
    Ok(Exit::Completed)
}
