//! `terret sessions check`

use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use terret::store::SqliteJournal;

use super::{find, name_of, print_json, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::line;
use crate::session;

#[derive(Args)]
pub(crate) struct Check {
    /// The sessions: IDs, starts of them, or names; all of them without one
    #[arg(value_name = "ID")]
    sessions: Vec<String>,
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    session_id: String,
    ok: bool,
    /// What is wrong, a sentence each.
    damage: Vec<String>,
}

/// Exits with 1 if anything is wrong. Nothing is repaired.
pub(super) fn run(journal: &SqliteJournal, args: &Check) -> Result<Exit, Problem> {
    let infos = match args.sessions.as_slice() {
        [] => journal.list().map_err(|error| session::failed(&error))?,
        some => some.iter().map(|session| find(journal, session)).collect::<Result<_, _>>()?,
    };
    let (mut checked, mut out) = (Vec::new(), anstream::stdout().lock());
    for info in &infos {
        let damage = match journal.check(&info.id) {
            Ok(damage) => damage.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        let it = Checked { session_id: info.id.to_string(), ok: damage.is_empty(), damage };
        if !args.json {
            let mut tell = || -> io::Result<()> {
                let (style, word) = if it.ok { (GOOD, "ok     ") } else { (BAD, "damaged") };
                writeln!(out, "{style}{word}{style:#}  {}  {}", line(&it.session_id), name_of(info))?;
                it.damage.iter().try_for_each(|damage| writeln!(out, "         {}", line(damage)))
            };
            tell().map_err(unwritable)?;
        }
        checked.push(it);
    }
    drop(out);
    if args.json {
        print_json(&checked)?;
    }
    let all_well = checked.iter().all(|it| it.ok);
    if !all_well && !args.json {
        crate::output::note(
            "nothing was changed; what is readable can be shown, exported, and gone on with in a copy (-r ID --fork)",
        );
    }
    Ok(if all_well { Exit::Completed } else { Exit::RunFailed })
}

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
