//! `terret models`: which models there are, what they take and cost, and which can be asked.

mod update;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::Style;
use clap::{Args, Subcommand};
use serde::Serialize;
use terret::llm::{Effort, Host, LocalServer, ModelFacts, ModelRef, Price, hosts, local_servers};

use super::run::block_on;
use super::{finish, print_json, unwritable};
use crate::config::Config;
use crate::default_model::PATIENCE;
use crate::exit::{Exit, Problem};
use crate::keys;
use crate::model::{env, has_address};
use crate::output::{line, note};

/// List models: how much fits, what they cost, which can be asked
///
/// Without words to search for, those that can be asked: of providers whose key is there, and of servers on this machine.
/// Others can be asked too, by their names: the list is what is known, not what there is.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Models {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only models whose name holds each of these words, of all providers
    search: Vec<String>,
    /// All models, of all providers
    #[arg(short, long)]
    all: bool,
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
    /// With the configuration of this folder
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    cd: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    Update(update::Update),
}

const EXAMPLES: &str = "\
Examples:
  terret models                          those that can be asked
  terret models sonnet 5                 all that are called so
  terret models --json | jq -r '.[].id'
  terret models update                   asks providers for newer ones";

pub(crate) fn run(args: &Models) -> ExitCode {
    finish(block_on(async |signals| {
        let config = Config::load(&args.cd, &[])?;
        config.tell_unused();
        let list = async {
            match &args.command {
                None => list(args, &config).await,
                Some(Command::Update(args)) => update::run(args, &config).await,
            }
        };
        tokio::select! {
            biased;
            exit = signals.stop() => Err(Problem::new(exit, exit.reason())),
            listed = list => listed,
        }
    }))
}

async fn list(args: &Models, config: &Config) -> Result<Exit, Problem> {
    let with_key = with_key(config)?;
    let words = args.search.join(" ");
    let mut models: Vec<Listed> = of_servers(&local_servers(PATIENCE, env).await, &words);
    models.extend(config.catalog.search(&words).map(|(name, facts)| {
        let usable = with_key.iter().any(|host| host.id == name.provider);
        Listed::new(name, facts, usable)
    }));
    let known = models.len();
    let everything = args.all || !words.trim().is_empty();
    models.retain(|model| everything || model.usable);
    // Those that can be asked first; the order is otherwise that of the names.
    models.sort_by_key(|model| !model.usable);
    if args.json {
        return print_json(&models).map(|()| Exit::Completed);
    }
    show(&models).map_err(unwritable)?;
    match (models.is_empty(), everything) {
        (true, true) => note("no model of this name is known; one that isn't can be asked all the same, by its name"),
        (true, false) => note(&format!(
            "no model can be asked yet: set a key, or keep one with `terret auth set PROVIDER`; --all lists the {known} \
             that are known"
        )),
        (false, true) => {}
        (false, false) => note(&format!("{known} are known; --all lists them, and words search for some")),
    }
    Ok(Exit::Completed)
}

/// The providers that can be asked.
fn with_key(config: &Config) -> Result<Vec<&'static Host>, Problem> {
    let mut with_key = Vec::new();
    for host in hosts() {
        if !keys::sources(host, config)?.is_empty() && has_address(host, config) {
            with_key.push(host);
        }
    }
    Ok(with_key)
}

fn of_servers(servers: &[LocalServer], words: &str) -> Vec<Listed> {
    let mut listed = Vec::new();
    for server in servers {
        for model in &server.models {
            let mut facts = ModelFacts::default();
            facts.context_window = model.context_window;
            let name = ModelRef { provider: server.host.id.to_owned(), model: model.id.clone(), effort: None };
            let name_in_lower_case = name.to_string().to_lowercase();
            if words.to_lowercase().split_whitespace().all(|word| name_in_lower_case.contains(word)) {
                listed.push(Listed::new(name, facts, true));
            }
        }
    }
    listed
}

/// A model as scripts are told of it. Prices are dollars per million tokens.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    id: String,
    /// Whether its provider's key is there, or it is on this machine.
    usable: bool,
    #[serde(flatten)]
    facts: ModelFacts,
}

impl Listed {
    fn new(name: ModelRef, facts: ModelFacts, usable: bool) -> Self {
        Self { id: name.to_string(), usable, facts }
    }
}

const DIM: Style = Style::new().dimmed();

fn show(models: &[Listed]) -> io::Result<()> {
    if models.is_empty() {
        return Ok(());
    }
    let width = models.iter().map(|model| line(&model.id).chars().count()).max().unwrap_or_default().max(5);
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    writeln!(
        out,
        "{DIM}  {:<width$}  {:>7}  {:>7}  {:>8}  {:>8}  EFFORTS{DIM:#}",
        "MODEL", "CONTEXT", "OUTPUT", "$IN/M", "$OUT/M"
    )?;
    for Listed { id, usable, facts } in models {
        let mark = if *usable { '*' } else { ' ' };
        let rate =
            |rate: fn(&Price) -> u64| facts.price.as_ref().map_or_else(|| "-".into(), |price| dollars(rate(price)));
        let efforts = facts.efforts.map(|efforts| efforts.iter().map(Effort::as_str).collect::<Vec<_>>().join(" "));
        writeln!(
            out,
            "{mark} {:<width$}  {:>7}  {:>7}  {:>8}  {:>8}  {}",
            line(id),
            tokens(facts.context_window),
            tokens(facts.max_output),
            rate(|price| price.rates.input),
            rate(|price| price.rates.output),
            efforts.unwrap_or_else(|| "-".into())
        )?;
    }
    out.flush()
}

/// A number of tokens as vendors write it.
fn tokens(number: Option<u32>) -> String {
    match number {
        None => "-".into(),
        Some(number) if number >= 1_000_000 => {
            let hundredths = format!("{:.2}", f64::from(number) / 1e6);
            format!("{}M", hundredths.trim_end_matches('0').trim_end_matches('.'))
        }
        Some(number) => format!("{}k", number / 1000),
    }
}

/// A rate of nano-dollars as dollars, without zeros at the end.
fn dollars(nanos: u64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = text.trim_end_matches('0');
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    match decimals.len() {
        0 => whole.to_owned(),
        1 => format!("{whole}.{decimals}0"),
        _ => format!("{whole}.{decimals}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_vendors_write_them() {
        let written = [8192, 128_000, 262_144, 1_000_000, 1_048_576, 1_050_000, 2_000_000].map(|n| tokens(Some(n)));
        assert_eq!(written, ["8k", "128k", "262k", "1M", "1.05M", "1.05M", "2M"]);
        let written = [0, 3_000_000_000, 2_500_000_000, 75_000_000, 100_000_000].map(dollars);
        assert_eq!(written, ["0", "3", "2.50", "0.075", "0.10"]);
    }
}
