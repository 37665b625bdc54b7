//! `terret sessions search`

use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use terret::agent::SessionId;
use terret::store::SqliteJournal;

use super::{name_of, print_json, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::{ago, line, patiently};
use crate::session;

#[derive(Args)]
pub(crate) struct Search {
    /// What to look for; case doesn't matter
    text: String,
    /// At most so many places
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

/// A place where it was found.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found<'a> {
    session_id: &'a str,
    /// The number of the message, as `show` numbers them and `--fork` takes them; null if no model has been told it.
    message: Option<u64>,
    line: &'a str,
}

/// Exits with 1 where nothing is found, as grep does.
pub(super) fn run(journal: &SqliteJournal, args: &Search) -> Result<Exit, Problem> {
    if args.text.trim().is_empty() {
        return Err(Problem::usage("say what to look for"));
    }
    let hits = patiently("searching the sessions", || journal.search(&args.text, args.limit))
        .map_err(|error| session::failed(&error))?;
    if args.json {
        let found: Vec<_> = hits
            .iter()
            .map(|hit| Found { session_id: hit.session.id.as_str(), message: hit.message, line: &hit.line })
            .collect();
        print_json(&found)?;
    } else {
        let mut out = anstream::stdout().lock();
        let mut write = || -> io::Result<()> {
            let mut last: Option<&SessionId> = None;
            for hit in &hits {
                if last != Some(&hit.session.id) {
                    let gap = if last.is_some() { "\n" } else { "" };
                    let (id, name, when) =
                        (line(hit.session.id.as_str()), name_of(&hit.session), ago(hit.session.updated));
                    writeln!(out, "{gap}{BOLD}{id}{BOLD:#}  {name} {DIM}({when}){DIM:#}")?;
                    last = Some(&hit.session.id);
                }
                let number = hit.message.map_or_else(|| "-".to_owned(), |message| message.to_string());
                writeln!(out, "{DIM}{number:>5}{DIM:#} {}", marked(&line(&hit.line), &args.text))?;
            }
            out.flush()
        };
        write().map_err(unwritable)?;
    }
    Ok(if hits.is_empty() { Exit::RunFailed } else { Exit::Completed })
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const FOUND: Style = AnsiColor::Red.on_default().bold();

/// A line with what was looked for in colour.
fn marked(text: &str, wanted: &str) -> String {
    // Lower case letters of ASCII take as much room as upper case ones.
    let (lower, wanted) = (text.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    let (mut marked, mut from) = (String::new(), 0);
    for (at, found) in lower.match_indices(&wanted) {
        let (before, it) = (text.get(from..at), text.get(at..at + found.len()));
        marked += &format!("{}{FOUND}{}{FOUND:#}", before.unwrap_or_default(), it.unwrap_or_default());
        from = at + found.len();
    }
    marked + text.get(from..).unwrap_or_default()
}
