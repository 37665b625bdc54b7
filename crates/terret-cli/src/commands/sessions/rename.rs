//! `terret sessions rename`

use clap::Args;
use terret::store::SqliteJournal;

use super::find;
use crate::exit::{Exit, Problem};
use crate::session;

#[derive(Args)]
pub(crate) struct Rename {
    /// The session: its ID, the start of it, or its name
    #[arg(value_name = "ID")]
    session: String,
    /// The new name; an empty one takes the name away
    name: String,
}

/// Of a name, in characters.
const LONGEST: usize = 200;

pub(super) fn run(journal: &SqliteJournal, args: &Rename) -> Result<Exit, Problem> {
    let info = find(journal, &args.session)?;
    let name = args.name.trim();
    if name.chars().count() > LONGEST || name.contains(char::is_control) {
        return Err(Problem::usage(format!(
            "a name is one line of at most {LONGEST} characters, and this one is {}",
            match name.contains(char::is_control) {
                true => "more than a line, or has control characters in it".to_owned(),
                false => format!("{} long", name.chars().count()),
            }
        )));
    }
    journal.rename(&info.id, (!name.is_empty()).then_some(name)).map_err(|error| session::failed(&error))?;
    Ok(Exit::Completed)
}
