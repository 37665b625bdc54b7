//! `terret sessions list`

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use terret::llm::Usage;
use terret::store::{Origin, SessionInfo, SqliteJournal};

use super::{print_json, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::{self, Table, patiently};
use crate::session::{self, READING};

#[derive(Args)]
pub(crate) struct List {
    /// Only the sessions of this folder; of the current one without a value
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    here: Option<PathBuf>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

pub(super) fn run(journal: &SqliteJournal, args: &List) -> Result<Exit, Problem> {
    let infos = patiently(READING, || journal.list()).map_err(|error| session::failed(&error))?;
    let here = args.here.as_ref().map(|here| here.canonicalize().unwrap_or_else(|_| here.clone()));
    let table = Table::of(&infos)
        .only(|info| here.is_none() || info.setup.folder.as_deref().map(Path::new) == here.as_deref())
        .first(args.limit.unwrap_or(usize::MAX));
    if args.json {
        let listed: Vec<_> = table.rows.iter().map(|(info, _)| Listed::of(info)).collect();
        print_json(&listed)?;
    } else if table.rows.is_empty() {
        output::note("there are no sessions");
    } else {
        let mut out = anstream::stdout().lock();
        table.write(&mut out, output::width()).and_then(|()| out.flush()).map_err(unwritable)?;
    }
    Ok(Exit::Completed)
}

/// A session as scripts are told of it. Times are in Unix milliseconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed<'a> {
    id: &'a str,
    name: Option<&'a str>,
    first_prompt: Option<&'a str>,
    created: i64,
    updated: i64,
    cwd: Option<&'a str>,
    /// As it was asked for.
    model: Option<&'a str>,
    messages: u64,
    turns: u64,
    records: u64,
    usage: Usage,
    cost_usd: f64,
    /// Whether its last run goes on, or was interrupted.
    unfinished: bool,
    forked_from: Option<&'a str>,
    trouble: Option<&'a str>,
}

impl<'a> Listed<'a> {
    pub(super) fn of(info: &'a SessionInfo) -> Self {
        Self {
            id: info.id.as_str(),
            name: info.title.as_deref(),
            first_prompt: info.first_prompt.as_deref(),
            created: info.created,
            updated: info.updated,
            cwd: info.setup.folder.as_deref(),
            model: info.model.as_deref().or(info.setup.model.as_deref()),
            messages: info.messages,
            turns: info.turns,
            records: info.records,
            usage: info.usage,
            cost_usd: info.cost.dollars(),
            unfinished: info.unfinished,
            forked_from: info.origin.as_ref().map(|Origin { session, .. }| session.as_str()),
            trouble: info.trouble.as_deref(),
        }
    }
}
