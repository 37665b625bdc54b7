//! `terret doctor`: what works on this machine, and what doesn't and why.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use terret::llm::{hosts, local_servers};
use terret::store::SqliteJournal;
use terret::tools::{Ladder, Level};

use crate::config::Config;
use crate::default_model::{self, Found};
use crate::exit::{Exit, Problem};
use crate::output::{clean_json, complain, line, patiently};
use crate::{keys, places};

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
    /// What commands are run with.
    programs: Vec<Program>,
    sandbox: Vec<Rung>,
    configuration: Configuration,
    keys: Vec<Key>,
    /// What is asked where no model is named; nothing, if nothing can be.
    model: Option<Model>,
    sessions: Sessions,
    local_servers: Vec<Server>,
}

#[derive(Serialize)]
struct Program {
    name: &'static str,
    /// What it says of itself; nothing, if it isn't there.
    version: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    /// The user's own file, if there is one.
    file: Option<String>,
    /// Those of the project that are used.
    of_project: Vec<String>,
    /// What is wrong with it, or with one of the project's.
    problem: Option<String>,
    /// Files that are not used, and why.
    notes: Vec<String>,
}

/// That there is a key, and where it comes from. Never the key.
#[derive(Serialize)]
struct Key {
    provider: &'static str,
    from: String,
}

#[derive(Serialize)]
struct Model {
    name: String,
    /// Where the choice comes from, for people.
    because: String,
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

/// Exits with 1 if a run with default options could not start for what is found: no sandbox, no place for sessions, a
/// mistake in the configuration.
pub(crate) fn run(args: &Doctor) -> ExitCode {
    let told = patiently("looking around", examine).and_then(|health| {
        let told = if args.json { tell_json(&health) } else { tell(&health) };
        told.map_err(|error| Problem::new(Exit::RunFailed, format!("the output can't be written: {error}")))?;
        let problem = health.sessions.problem.as_ref().or(health.configuration.problem.as_ref());
        let well = health.sandbox.iter().any(|rung| rung.works) && problem.is_none();
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
    let (configuration, keys, config) = configuration();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Problem::new(Exit::RunFailed, format!("can't start: {error}")))?;
    let (servers, programs) =
        runtime.block_on(async { tokio::join!(local_servers(Duration::from_millis(300), env), programs()) });
    let model = runtime.block_on(model(&config, env));
    let rungs = Ladder::probe().rungs.into_iter().map(|rung| Rung {
        level: rung.level.name(),
        works: rung.holds.is_ok(),
        notes: rung.holds.err().map(|error| error.to_string()).into_iter().chain(rung.gaps).collect(),
    });
    Ok(Health {
        version: env!("TERRET_VERSION"),
        system: system(),
        programs,
        sandbox: rungs.collect(),
        configuration,
        keys,
        model,
        sessions: sessions(),
        local_servers: servers
            .into_iter()
            .map(|server| Server { host: server.host.id, models: server.models.len() })
            .collect(),
    })
}

fn system() -> String {
    let known = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    #[cfg(unix)]
    let known = format!("{known}, {}", rustix::system::uname().release().to_string_lossy());
    known
}

async fn programs() -> Vec<Program> {
    let programs = [
        ("bash", Some("bash".into())),
        ("git", Some("git".into())),
        // Runs take the system's own, whatever `PATH` says.
        ("bwrap", Level::Bubblewrap.program()),
    ];
    let asked = programs.map(async |(name, program)| match program {
        Some(program) => Program { name, version: version(&program).await },
        None => Program { name, version: None },
    });
    futures_util::future::join_all(asked).await
}

/// The first line of what a program says of its version, if it does so soon.
async fn version(program: &Path) -> Option<String> {
    let asked = tokio::process::Command::new(program).arg("--version").kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(2), asked).await.ok()?.ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// What is configured for runs in this folder, and where keys come from. No command is run for them.
fn configuration() -> (Configuration, Vec<Key>, Config) {
    let file = places::config().map(|folder| folder.join("config.toml")).filter(|file| file.exists());
    let file = file.map(|file| file.display().to_string());
    let keys = |config: &Config| -> Result<Vec<Key>, Problem> {
        let mut found = Vec::new();
        for host in hosts() {
            let source = keys::sources(host, config)?.into_iter().next();
            found.extend(source.map(|source| Key { provider: host.id, from: source.to_string() }));
        }
        Ok(found)
    };
    let loaded = Config::load(Path::new("."), &[]).and_then(|config| Ok((keys(&config)?, config)));
    match loaded {
        Ok((keys, config)) => {
            let of_project = config.of_project().iter().map(|path| path.display().to_string()).collect();
            let notes = config.unused().to_vec();
            (Configuration { file, of_project, problem: None, notes }, keys, config)
        }
        Err(problem) => {
            let problem = Some(problem.message);
            (Configuration { file, of_project: vec![], problem, notes: vec![] }, vec![], Config::default())
        }
    }
}

async fn model(config: &Config, env: impl Fn(&str) -> Option<String>) -> Option<Model> {
    if let Some(entry) = config.all("model").next() {
        return Some(Model { name: entry.values.first()?.clone(), because: entry.origin.to_string() });
    }
    let Found { name, because } = default_model::find(config, env).await.ok()?;
    Some(Model { name, because })
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
    for Program { name, version } in &health.programs {
        writeln!(out, "  {name:<11} {}", line(version.as_deref().unwrap_or("is not there")))?;
    }
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
    let configuration = &health.configuration;
    writeln!(out, "\n{BOLD}Configuration{BOLD:#}")?;
    for file in configuration.file.iter().chain(&configuration.of_project) {
        writeln!(out, "  {}", line(file))?;
    }
    if configuration.file.is_none() && configuration.of_project.is_empty() {
        writeln!(out, "  no file")?;
    }
    for problem in configuration.problem.iter().flat_map(|problem| problem.lines()) {
        writeln!(out, "  {BAD}{}{BAD:#}", line(problem))?;
    }
    for note in &configuration.notes {
        writeln!(out, "  {}", line(note))?;
    }
    writeln!(out, "\n{BOLD}Keys{BOLD:#}")?;
    if health.keys.is_empty() {
        writeln!(out, "  none; `terret auth set PROVIDER` keeps one")?;
    }
    for Key { provider, from } in &health.keys {
        writeln!(out, "  {provider:<11} {}", line(from))?;
    }
    writeln!(out, "\n{BOLD}Model{BOLD:#} that is asked where none is named")?;
    match &health.model {
        Some(Model { name, because }) => writeln!(out, "  {}, because of {}", line(name), line(because))?,
        None => writeln!(out, "  none; it takes a key or a server on this machine")?,
    }
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
