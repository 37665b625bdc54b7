//! `terret config`: what is configured, and where.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::Style;
use clap::{Args, Subcommand};

use super::{finish, print_json, unwritable};
use crate::config::{self, Config, Explained, settings};
use crate::exit::{Exit, Problem};
use crate::output::line;
use crate::places;
use crate::project::Project;
use crate::trust::{Candidate, State, Trust};

/// Show what is configured, and where
///
/// Every flag of a run is also a setting: of the environment (TERRET_MAX_TURNS=50), of the project, of the user. What is
/// nearer to the command line wins. docs/configuration.md says more.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Commands {
    /// Show where each value comes from, and what it takes the place of
    Explain(Explain),
    /// Show where the files are
    Path(Path),
    /// List all keys
    Keys,
}

const EXAMPLES: &str = "\
Examples:
  terret config explain        all values, and where they come from
  terret config explain model  one, and what it means
  terret config keys           what can be set";

#[derive(Args)]
pub(crate) struct Explain {
    /// Only this key
    key: Option<String>,
    /// For runs in this folder
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    cd: PathBuf,
    /// As a run with this option would have it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct Path {
    /// For runs in this folder
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    cd: PathBuf,
}

pub(crate) fn run(command: Commands) -> ExitCode {
    finish(match command {
        Commands::Explain(args) => explain(&args),
        Commands::Path(args) => path(&args),
        Commands::Keys => keys(),
    })
}

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

fn explain(args: &Explain) -> Result<Exit, Problem> {
    let config = Config::load(&args.cd, &args.set)?;
    config.tell_unused();
    let mut explained = config::explain(&config);
    if let Some(key) = &args.key {
        if !explained.iter().any(|explained| explained.key == *key) {
            let near = config::nearest(key, explained.iter().map(|explained| &*explained.key));
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(Problem::usage(format!("there is no key {key:?}{near}; `terret config keys` lists them")));
        }
        explained.retain(|explained| explained.key == *key);
    }
    if args.json {
        return print_json(&explained).map(|()| Exit::Completed);
    }
    let mut out = anstream::stdout().lock();
    let written = explained.iter().try_for_each(|explained| show(&mut out, explained, args.key.is_some()));
    written.and_then(|()| out.flush()).map_err(unwritable)?;
    Ok(Exit::Completed)
}

fn show(out: &mut impl io::Write, explained: &Explained, with_help: bool) -> io::Result<()> {
    let Explained { key, value, from, overrides, also, help } = explained;
    match value {
        Some(value) => write!(out, "{BOLD}{key}{BOLD:#} = {}", line(value))?,
        None => write!(out, "{BOLD}{key}{BOLD:#}")?,
    }
    match value {
        None => writeln!(out, "  {DIM}not set{DIM:#}")?,
        Some(_) => writeln!(out, "  {DIM}{}{DIM:#}", line(from))?,
    }
    for overridden in overrides {
        writeln!(out, "    {DIM}instead of {}  {}{DIM:#}", line(&overridden.value), line(&overridden.from))?;
    }
    for further in also {
        writeln!(out, "    {DIM}as well as {}  {}{DIM:#}", line(&further.value), line(&further.from))?;
    }
    if with_help && !help.is_empty() {
        writeln!(out, "    {help}")?;
    }
    Ok(())
}

fn path(args: &Path) -> Result<Exit, Problem> {
    let candidates = Trust::load()?.candidates(&Project::of(&args.cd));
    let show = || -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        if let Some(folder) = places::config() {
            let path = folder.join("config.toml");
            let state = if path.exists() { "" } else { "  not there" };
            writeln!(out, "{}{DIM}{state}{DIM:#}", line(&path.display().to_string()))?;
        }
        for candidate in &candidates {
            let (path, state) = match candidate {
                Ok(Candidate { path, state: State::Trusted, .. }) => (path, String::new()),
                Ok(Candidate { path, state: State::Changed, .. }) => (path, "  changed, not used".into()),
                Ok(Candidate { path, .. }) => (path, "  not trusted, not used".into()),
                Err((path, error)) => (path, format!("  can't be read: {error}")),
            };
            writeln!(out, "{}{DIM}{state}{DIM:#}", line(&path.display().to_string()))?;
        }
        out.flush()
    };
    show().map_err(unwritable)?;
    Ok(Exit::Completed)
}

/// A table as it stands in docs/configuration.md.
fn keys() -> Result<Exit, Problem> {
    let mut table = "| key | value | default | variable | |\n|---|---|---|---|---|\n".to_owned();
    for setting in settings() {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        table += &format!(
            "| `{}` | {} | {} | {} | {} |\n",
            setting.key,
            setting.value,
            code(&setting.default),
            code(setting.variable.as_deref().unwrap_or_default()),
            setting.help
        );
    }
    let mut out = io::stdout().lock();
    out.write_all(table.as_bytes()).and_then(|()| out.flush()).map_err(unwritable)?;
    Ok(Exit::Completed)
}
