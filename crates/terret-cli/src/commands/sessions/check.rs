//! `terret sessions check`

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use terret::store::{SessionInfo, SqliteJournal, StoreError};

use super::{find, name_of, print_json, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::{Patience, line, over, patiently};
use crate::session::{self, READING};

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
    /// Whether it is only that this version can't read it.
    #[serde(skip)]
    newer: bool,
}

/// Exits with 1 if anything is wrong. Nothing is repaired.
pub(super) fn run(journal: &SqliteJournal, args: &Check) -> Result<Exit, Problem> {
    let infos = match args.sessions.as_slice() {
        [] => patiently(READING, || journal.list()).map_err(|error| session::failed(&error))?,
        some => some.iter().map(|session| find(journal, session)).collect::<Result<_, _>>()?,
    };
    let (mut checked, mut out, mut written) = (Vec::new(), anstream::stdout().lock(), Ok(()));
    let patience = Patience::counting("checking sessions", infos.len());
    for info in &infos {
        let found = journal.check(&info.id);
        let newer = matches!(found, Err(StoreError::Newer { .. }));
        let damage = match found {
            Ok(damage) => damage.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        let it = Checked { session_id: info.id.to_string(), ok: damage.is_empty(), damage, newer };
        // Whether all is well is to be known also if nobody reads on.
        if !args.json && written.is_ok() {
            written = over(|| tell(&mut out, &it, info));
        }
        checked.push(it);
        patience.step();
    }
    drop(patience);
    drop(out);
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(unwritable(error)),
        _ => {}
    }
    if args.json {
        print_json(&checked)?;
    }
    let all_well = checked.iter().all(|it| it.ok);
    if !args.json && checked.iter().any(|it| !it.ok && !it.newer) {
        crate::output::note(
            "nothing was changed; what is readable can be shown, exported, and gone on with in a copy (-r ID --fork)",
        );
    }
    Ok(if all_well { Exit::Completed } else { Exit::RunFailed })
}

fn tell(out: &mut impl Write, it: &Checked, info: &SessionInfo) -> io::Result<()> {
    let (style, word) = match (it.ok, it.newer) {
        (true, _) => (GOOD, "ok     "),
        (false, true) => (BAD, "newer  "),
        (false, false) => (BAD, "damaged"),
    };
    writeln!(out, "{style}{word}{style:#}  {}  {}", line(&it.session_id), name_of(info))?;
    it.damage.iter().try_for_each(|damage| writeln!(out, "         {}", line(damage)))
}

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
