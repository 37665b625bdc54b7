//! `terret sessions delete`

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use terret::store::{SessionInfo, SqliteJournal, StoreError};

use super::{find, name_of};
use crate::exit::{Exit, Problem};
use crate::output;

#[derive(Args)]
pub(crate) struct Delete {
    /// The sessions: IDs, starts of them, or names
    #[arg(value_name = "ID", required = true)]
    sessions: Vec<String>,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
}

pub(super) fn run(journal: &SqliteJournal, args: &Delete) -> Result<Exit, Problem> {
    // All of them are known before the first one is gone.
    let mut infos: Vec<SessionInfo> = Vec::new();
    for session in &args.sessions {
        let info = find(journal, session)?;
        if infos.iter().all(|known| known.id != info.id) {
            infos.push(info);
        }
    }
    if !args.yes {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(Problem::usage("nobody can be asked here whether to delete for good: say --yes"));
        }
        for info in &infos {
            let id = output::line(info.id.as_str());
            output::note(&format!("{id}  {} ({} messages)", name_of(info), info.messages));
        }
        let asked = (|| {
            write!(io::stderr(), "Delete for good? [y/N] ")?;
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer).map(|_| answer)
        })();
        let answer = asked.map_err(|error| Problem::new(Exit::RunFailed, format!("nobody can be asked: {error}")))?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(Problem::new(Exit::RunFailed, "nothing was deleted"));
        }
    }
    let mut exit = Exit::Completed;
    for info in &infos {
        if let Err(error) = journal.delete(&info.id) {
            output::complain(&match error {
                StoreError::LeftBehind { .. } => error.to_string(),
                error => format!("session {} is still there: {error}", info.id),
            });
            exit = Exit::RunFailed;
        } else if infos.len() > 1 || exit != Exit::Completed {
            output::note(&format!("deleted {}", info.id));
        }
    }
    Ok(exit)
}
