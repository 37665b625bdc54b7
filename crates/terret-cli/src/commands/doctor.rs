//! `terret doctor`: what works on this machine, and what doesn't and why.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use terret::llm::{hosts, local_servers};
use terret::store::SqliteJournal;
use terret::tools::Ladder;

use crate::exit::{Exit, Problem};
use crate::output::{clean_json, complain, line, patiently};
use crate::places;

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    version: &'static str,
    system: String,
    sandbox: Vec<Rung>,
    /// The variables that hold keys. Never the keys.
    keys: Vec<&'static str>,
    sessions: Sessions,
    local_servers: Vec<Server>,
}

#[derive(Serialize)]
struct Rung {
    level: &'static str,
    works: bool,
    /// Why it doesn't, or what it leaves open.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Sessions {
    folder: Option<String>,
    count: usize,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Server {
    host: &'static str,
    models: usize,
}

/// Exits with 1 if a run with default options could not start for what is found: no sandbox, or no place for sessions.
pub(crate) fn run(args: &Doctor) -> ExitCode {
    let told = patiently("looking around", examine).and_then(|health| {
        let told = if args.json { tell_json(&health) } else { tell(&health) };
        told.map_err(|error| Problem::new(Exit::RunFailed, format!("the output can't be written: {error}")))?;
        let well = health.sandbox.iter().any(|rung| rung.works) && health.sessions.problem.is_none();
        Ok(if well { Exit::Completed } else { Exit::RunFailed })
    });
    told.unwrap_or_else(|problem| {
        complain(&problem.message);
        problem.exit
    })
    .into()
}

fn examine() -> Result<Health, Problem> {
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut keys: Vec<&str> = hosts().iter().flat_map(|host| host.keys.iter().map(|(name, _)| *name)).collect();
    keys.retain(|name| env(name).is_some());
    keys.sort_unstable();
    keys.dedup();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Problem::new(Exit::RunFailed, format!("can't start: {error}")))?;
    let servers = runtime.block_on(local_servers(Duration::from_millis(300), env));
    let rungs = Ladder::probe().rungs.into_iter().map(|rung| Rung {
        level: rung.level.name(),
        works: rung.holds.is_ok(),
        notes: rung.holds.err().map(|error| error.to_string()).into_iter().chain(rung.gaps).collect(),
    });
    Ok(Health {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        sandbox: rungs.collect(),
        keys,
        sessions: sessions(),
        local_servers: servers
            .into_iter()
            .map(|server| Server { host: server.host.id, models: server.models.len() })
            .collect(),
    })
}

/// Whether sessions can be kept. What is in them is for `terret sessions check`.
fn sessions() -> Sessions {
    let folder = match places::sessions() {
        Ok(folder) => folder,
        Err(problem) => return Sessions { folder: None, count: 0, problem: Some(problem.message) },
    };
    let there = folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&folder);
    let writable = tempfile::Builder::new().prefix(".terret-doctor-").tempfile_in(there);
    let listed = if folder.exists() { SqliteJournal::new(&folder).list() } else { Ok(vec![]) };
    let problem = match (&writable, &listed) {
        (Err(error), _) => Some(format!("it can't be written: {error}")),
        (_, Err(error)) => Some(error.to_string()),
        _ => None,
    };
    Sessions { folder: Some(folder.display().to_string()), count: listed.map_or(0, |list| list.len()), problem }
}

fn tell_json(health: &Health) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", clean_json(serde_json::to_string(health)?))?;
    out.flush()
}

fn tell(health: &Health) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{BOLD}terret{BOLD:#} {} on {}", health.version, health.system)?;
    writeln!(out, "\n{BOLD}Sandbox{BOLD:#} for commands; the first that works is used")?;
    for rung in &health.sandbox {
        let (style, word) = if rung.works { (GOOD, "works") } else { (BAD, "doesn't work") };
        writeln!(out, "  {:<11} {style}{word}{style:#}", rung.level)?;
        for note in &rung.notes {
            writeln!(out, "              {}", line(note))?;
        }
    }
    if !health.sandbox.iter().any(|rung| rung.works) {
        writeln!(out, "  Without one, commands and writing need --permission-mode full.")?;
    }
    let keys = if health.keys.is_empty() { "none is set".to_owned() } else { health.keys.join(", ") };
    writeln!(out, "\n{BOLD}Keys{BOLD:#}\n  {keys}")?;
    let sessions = &health.sessions;
    writeln!(out, "\n{BOLD}Sessions{BOLD:#}\n  {}", line(sessions.folder.as_deref().unwrap_or("no place")))?;
    match &sessions.problem {
        Some(problem) => writeln!(out, "  {BAD}{}{BAD:#}", line(problem))?,
        None => writeln!(out, "  {}; `terret sessions check` looks into them", sessions.count)?,
    }
    writeln!(out, "\n{BOLD}Model servers on this machine{BOLD:#}")?;
    if health.local_servers.is_empty() {
        writeln!(out, "  none answers")?;
    }
    for server in &health.local_servers {
        writeln!(out, "  {}: {} models", server.host, server.models)?;
    }
    out.flush()
}

const BOLD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
