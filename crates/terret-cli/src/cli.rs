//! The command line: every flag and command, in one place.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use terret::llm::{Money, hosts};
use terret::tools::Rule;

use crate::commands::auth::Auth;
use crate::commands::config as config_command;
use crate::commands::doctor::Doctor;
use crate::commands::generated::{Completions, Man};
use crate::commands::models::Models;
use crate::commands::permissions::Permissions;
use crate::commands::prompt::Prompt;
use crate::commands::sessions::Sessions;
use crate::commands::trust::Trust;
use crate::commands::wire::Wire;
use crate::config::Config;
use crate::exit::{Exit, Problem};
use crate::output;

#[derive(Parser)]
#[command(
    name = "terret",
    version = env!("TERRET_VERSION"),
    about = "A coding agent: give it a prompt, and it works with your files and commands until it is done.",
    args_conflicts_with_subcommands = true,
    max_term_width = 80,
    after_help = EXAMPLES_AND_EXIT_CODES,
    after_long_help = format!("{EXAMPLES_AND_EXIT_CODES}\n\n{}", providers())
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const EXAMPLES_AND_EXIT_CODES: &str = "\
Examples:
  terret demo                                  watch it work, without a key
  terret                                       talk with it, on a terminal
  terret -p \"fix the failing test\"             with the model of the first key that is set
  git diff | terret -p \"review this change\" -m openai/gpt-6.2-sol:high
  terret -p \"…\" -m custom/qwen --base-url http://127.0.0.1:8080/v1
  terret -c \"now write a test for it\"           go on with the last session of this folder
  terret -c                                    finish a run that was interrupted
  terret sessions list

Exit codes:
  0 completed         4 configuration          7 provider or network
  1 the run failed    5 permission, such as    8 not of the output schema
  2 usage               without a sandbox      130 interrupted
  3 authentication    6 out of budget          143 terminated";

/// Who can be asked, and what has to be set for it.
fn providers() -> String {
    let mut lines = "Providers, and the environment variables that hold their keys:".to_owned();
    for host in hosts() {
        let keys: Vec<&str> = host.keys.iter().map(|(variable, _)| *variable).collect();
        let keys = keys.join(" or ");
        let need = match host.base_url {
            Some(_) if host.local => "on this machine, no key needed".into(),
            Some(_) => keys,
            None => format!("{keys}; needs --base-url"),
        };
        lines += &format!("\n  {:<12} {need}", host.id);
    }
    lines
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run one prompt to its end, as without a command
    #[command(visible_alias = "exec")]
    Run(RunArgs),
    Resume(Resume),
    #[command(subcommand, alias = "session")]
    Sessions(Sessions),
    #[command(subcommand)]
    Auth(Auth),
    #[command(subcommand)]
    Config(config_command::Commands),
    /// Watch a scripted model fix a small project, with the real tools
    Demo(DemoArgs),
    Models(Models),
    #[command(subcommand)]
    Prompt(Prompt),
    Trust(Trust),
    Permissions(Permissions),
    Completions(Completions),
    Man(Man),
    /// Say what works here: the sandbox, keys, sessions, model servers
    Doctor(Doctor),
    /// Look at what goes over the wire, to debug a provider
    #[command(subcommand)]
    Wire(Wire),
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// What to do; standard input is appended when it isn't a terminal; without one, it talks
    pub(crate) prompt: Option<String>,
    /// Print the result and exit, as with any prompt; without one, standard input is the prompt
    #[arg(short, long)]
    pub(crate) print: bool,
    /// The model, as provider/model[:effort], as MODEL alone with --base-url, or scripted:FILE
    ///
    /// The effort is off, minimal, low, medium, high, xhigh or max. Without this, it is the default model of the first
    /// provider whose key is set, else the first model of a server on this machine. A scripted model gives the replies
    /// of a JSON Lines file, such as {"text":"Hello."}, one for each model call.
    #[arg(short, long, value_name = "MODEL", help_heading = MODEL)]
    pub(crate) model: Option<String>,
    /// Ask a server at this address, for example http://127.0.0.1:8080/v1
    #[arg(long, value_name = "URL", help_heading = MODEL)]
    pub(crate) base_url: Option<String>,
    /// The protocol of the server, if it isn't the provider's usual one
    ///
    /// anthropic-messages, openai-completions, openai-responses or google-generative-ai.
    #[arg(long, value_name = "WIRE", value_parser = crate::commands::wire::wire_format, help_heading = MODEL)]
    pub(crate) wire: Option<terret::llm::wire::WireFormat>,
    /// Take the key from this file, which may be a pipe; else from the environment or what `terret auth` keeps
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Models to go on with when the one before fails, separated by commas
    #[arg(long, value_name = "MODELS", value_delimiter = ',', help_heading = MODEL)]
    pub(crate) fallback_model: Option<Vec<String>>,
    /// Record what the providers answer in this file, in place of one that is there; it holds no keys
    #[arg(long, value_name = "FILE", conflicts_with = "replay", help_heading = MODEL)]
    pub(crate) record: Option<PathBuf>,
    /// Answer from such a file instead of asking; without a key, and for the same requests only
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub(crate) replay: Option<PathBuf>,
    /// What to print; docs/events.schema.json describes the JSON
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output_format: OutputFormat,
    /// The same as --output-format stream-json
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,
    /// The most model calls; the tools of the last one still run
    #[arg(long, value_name = "N", value_parser = count, default_value_t = Self::MAX_TURNS, help_heading = LIMITS)]
    pub(crate) max_turns: NonZeroU32,
    /// The most money, in dollars; the call that goes beyond it is the last one
    #[arg(long, value_name = "DOLLARS", value_parser = dollars, allow_negative_numbers = true, help_heading = LIMITS)]
    pub(crate) max_cost: Option<Money>,
    /// The most time, for example 90, 90s, 5m or 1h; what runs then is stopped
    ///
    /// It is counted from the begin of the run, with all waits, and for a run that was interrupted also with the time in
    /// which nothing ran.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, help_heading = LIMITS)]
    pub(crate) timeout: Option<NonZeroU64>,
    /// The most tokens that one reply may have
    #[arg(long, value_name = "N", value_parser = count, help_heading = LIMITS)]
    pub(crate) max_output_tokens: Option<NonZeroU32>,
    /// A final reply that is JSON of the schema in this file; exits with 8 if the model doesn't manage it
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// What the agent may do without a question
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub(crate) permission_mode: PermissionMode,
    /// Let these calls run without a question, as in 'bash(cargo test *)' or 'write(src/**)'; several times for several
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Rule>,
    /// Ask before these calls
    #[arg(long, value_name = "RULE")]
    pub(crate) ask: Vec<Rule>,
    /// Never run these calls, whatever else is allowed
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<Rule>,
    /// Let commands in the sandbox reach the network
    #[arg(long)]
    pub(crate) network: bool,
    /// Let tools write in this folder, too; several times for several
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,
    /// The tools to offer, separated by commas: read, bash, edit, write, grep, find, ls; all of them without this
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,
    /// Work in this folder; a session that goes on works in its own without this
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// The names of the files with instructions, of which the first one in each folder is read; none for ""
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "AGENTS.override.md,AGENTS.md,CLAUDE.md", help_heading = CONTEXT)]
    pub(crate) context_files: Vec<String>,
    /// Tell the model of no skills
    #[arg(long, help_heading = CONTEXT)]
    pub(crate) no_skills: bool,
    /// Set this as the configuration would, for this run
    ///
    /// `terret config keys` lists the keys. The value is TOML, or a text as it is.
    #[arg(long, value_name = "KEY=VALUE", help_heading = CONTEXT)]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// Go on with a session, as -r does
#[derive(Args)]
pub(crate) struct Resume {
    /// The session: its ID or the start of it, or its name; without one, choose from a list
    id: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

impl Resume {
    /// The same with -r.
    pub(crate) fn into_run(self) -> Result<RunArgs, clap::Error> {
        let Self { id, mut run } = self;
        if run.session.goes_on() || run.session.no_session {
            let reason = "resume goes on with the session that it is given: leave out -c, -r and --no-session";
            return Err(Cli::command().error(ErrorKind::ArgumentConflict, reason));
        }
        run.session.resume = Some(id);
        Ok(run)
    }
}

/// Which session a run belongs to. Without any of these, a new one.
#[derive(Args)]
pub(crate) struct SessionArgs {
    /// Go on with the last session of this folder
    ///
    /// Without a prompt, a run that was interrupted is finished, and one that failed is tried again.
    #[arg(short = 'c', long = "continue", conflicts_with = "resume", help_heading = SESSIONS)]
    pub(crate) last: bool,
    /// Go on with this session: its ID or the start of it, or its name; without one, choose from a list
    #[arg(short, long, value_name = "ID", help_heading = SESSIONS)]
    pub(crate) resume: Option<Option<String>>,
    /// With -c or -r: go on in a copy; of the first so many messages, if a number is given
    #[arg(long, value_name = "MESSAGES", help_heading = SESSIONS)]
    pub(crate) fork: Option<Option<String>>,
    /// The ID of the new session, or of the copy
    #[arg(long, value_name = "ID", value_parser = session_id, help_heading = SESSIONS)]
    pub(crate) session_id: Option<String>,
    /// Keep the session in memory only
    #[arg(long, conflicts_with_all = ["last", "resume", "fork", "session_id"], help_heading = SESSIONS)]
    pub(crate) no_session: bool,
}

const MODEL: &str = "Model";
const LIMITS: &str = "Limits";
const CONTEXT: &str = "Context and configuration";
const SESSIONS: &str = "Sessions";

impl SessionArgs {
    /// Whether it is one that is there already.
    pub(crate) fn goes_on(&self) -> bool {
        self.last || self.resume.is_some()
    }
}

impl RunArgs {
    /// What holds where the command line says nothing.
    pub(crate) const MAX_TURNS: NonZeroU32 = NonZeroU32::new(200).expect("it isn't zero");

    /// The same command line, with what is configured where it says nothing.
    ///
    /// What names the model stays as the command line has it, because it goes together with the session's.
    pub(crate) fn configured(self, config: &Config) -> Result<Self, Problem> {
        let parser = config.defaults_for(Cli::command());
        let parser = ["run", "resume"]
            .into_iter()
            .fold(parser, |parser, name| parser.mut_subcommand(name, |command| config.defaults_for(command)));
        let parser =
            parser.mut_subcommand("prompt", |prompt| prompt.mut_subcommand("show", |show| config.defaults_for(show)));
        let parsed = parser.try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
        let mut configured = match parsed.map_err(|error| Problem::new(Exit::Configuration, error.to_string()))? {
            Cli { command: Some(Command::Prompt(Prompt::Show(run))), .. } => *run,
            Cli { command: Some(Command::Resume(Resume { run, .. }) | Command::Run(run)), .. } | Cli { run, .. } => run,
        };
        // A session that is named is wanted, whatever is configured.
        let is_named = self.session.goes_on() || self.session.session_id.is_some();
        let no_session = configured.session.no_session && !is_named;
        configured.session = SessionArgs { no_session, ..self.session };
        configured.prompt = self.prompt;
        Ok(configured)
    }

    /// How many messages to copy, if a copy is wanted. A text behind `--fork` that is no number is the prompt.
    pub(crate) fn fork(&mut self) -> Result<Option<Option<usize>>, Problem> {
        let Some(at) = self.session.fork.take() else { return Ok(None) };
        let Some(text) = at else { return Ok(Some(None)) };
        match (text.parse(), &self.prompt) {
            (Ok(messages), _) => Ok(Some(Some(messages))),
            (Err(_), None) => {
                self.prompt = Some(text);
                Ok(Some(None))
            }
            (Err(_), Some(_)) => Err(Problem::usage(format!(
                "--fork takes a number of messages (`terret sessions show` numbers them), not {text:?}"
            ))),
        }
    }

    pub(crate) fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::StreamJson } else { self.output_format }
    }
}

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Keep the temporary folder
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The model's last text on standard output, progress on standard error
    #[default]
    Text,
    /// One JSON object at the end
    Json,
    /// An event a line, and the result as the last line
    StreamJson,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PermissionMode {
    /// Look at files, and run commands in the sandbox that only read
    ReadOnly,
    /// Write files in the folder, and run commands in a sandbox; without one that works, don't start
    #[default]
    Workspace,
    /// The same, and ask before everything that does more than look; where nobody can be asked, the run ends
    Ask,
    /// Write files anywhere, and run commands with all rights of yours, without a sandbox
    Full,
}

pub(crate) fn session_id(text: &str) -> Result<String, String> {
    match text.trim() == text && (1..=200).contains(&text.len()) && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("expected up to 200 characters, without control characters".into()),
    }
}

fn count(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "expected a whole number above 0".into())
}

fn dollars(text: &str) -> Result<Money, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(amount) if amount > 0.0 && amount < 1e9 => Ok(Money::from_nanos((amount * 1e9).round() as i64)),
        _ => Err("expected an amount of dollars above 0, such as 0.50".into()),
    }
}

/// A time as people write it, in milliseconds.
fn milliseconds(text: &str) -> Result<NonZeroU64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" => 60e3,
        "h" => 3600e3,
        _ => 0.0,
    };
    let time = number.parse::<f64>().ok().map(|number| (number * factor).round() as u64);
    time.and_then(NonZeroU64::new).ok_or_else(|| "expected a time above 0, such as 90, 90s, 5m or 1h".into())
}

/// Prints help, the version or what is wrong with the command line; in JSON as well, if that was asked for.
pub(crate) fn complain(mut error: clap::Error, args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let problem = several_words(&error, &args);
    suggest_option(&mut error, &args);
    let printed = match &problem {
        Some(problem) => {
            output::complain(&problem.message);
            Ok(())
        }
        None => error.print(),
    };
    if !error.use_stderr() {
        return printed.map_or(Exit::RunFailed, |()| Exit::Completed).into();
    }
    if args.iter().any(|arg| asks_for_json(arg)) {
        let problem = problem.unwrap_or_else(|| {
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            Problem::usage(message.strip_prefix("error: ").unwrap_or(message))
        });
        output::print_failed_start(&problem);
    }
    Exit::Usage.into()
}

/// What is wrong when the prompt is a single word that is nearly a command. Nobody wants to pay for a slip of the finger.
pub(crate) fn misspelt(run: &RunArgs) -> Option<Problem> {
    let word = run.prompt.as_deref().filter(|_| !run.print)?;
    let nearest = nearest_command(word)?;
    Some(Problem::usage(format!(
        "there is no command {word:?}; did you mean `terret {nearest}`? (As a prompt: terret -p {word:?})"
    )))
}

fn nearest_command(word: &str) -> Option<String> {
    let commands = Cli::command();
    let alike = |command: &&clap::Command| {
        let names = std::iter::once(command.get_name()).chain(command.get_all_aliases());
        names.map(|name| strsim::jaro_winkler(word, name)).fold(0.0, f64::max)
    };
    let nearest = commands.get_subcommands().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(&nearest) > 0.9).then(|| nearest.get_name().to_owned())
}

/// What is wrong when somebody forgot the quotes, or misspelt the command before its arguments. The parser takes the
/// second word for a command or an odd argument.
fn several_words(error: &clap::Error, args: &[String]) -> Option<Problem> {
    let first = args.first().map(String::as_str).unwrap_or_default();
    let command = Cli::command();
    let command = command.find_subcommand(first).map(clap::Command::get_name);
    let word = match (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (Some(ContextValue::String(word)), _) if command.is_none() => word,
        (None, Some(ContextValue::String(word))) if command == Some("run") && !word.starts_with('-') => word,
        _ => return None,
    };
    if let Some(nearest) = nearest_command(first).filter(|_| command.is_none()) {
        let rest = args.get(1..).unwrap_or_default().join(" ");
        return Some(Problem::usage(format!("there is no command {first:?}; did you mean `terret {nearest} {rest}`?")));
    }
    Some(Problem::usage(format!(
        "{word:?} is one argument too many: put a prompt of several words in quotes, as in terret -p \"fix the failing \
         test\""
    )))
}

/// Names the nearest option where the parser knows none: it passes over letters that are swapped.
fn suggest_option(error: &mut clap::Error, args: &[String]) {
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::SuggestedArg).is_some() {
        return;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return };
    let mut command = Cli::command();
    for arg in args {
        if let Some(inner) = command.find_subcommand(arg) {
            command = inner.clone();
        }
    }
    let Some(unknown) = unknown.strip_prefix("--") else { return };
    let options = command.get_arguments().filter_map(clap::Arg::get_long);
    let distance = |option: &str| strsim::damerau_levenshtein(unknown, option);
    let nearest =
        options.min_by_key(|option| distance(option)).filter(|option| distance(option) <= 2.min(unknown.len() / 2));
    if let Some(nearest) = nearest {
        let nearest = format!("--{nearest}");
        error.remove(ContextKind::TrailingArg);
        error.insert(ContextKind::SuggestedArg, ContextValue::String(nearest));
    }
}

/// Guesses, because a command line that can't be parsed has no format.
fn asks_for_json(arg: &str) -> bool {
    // Also at the end of several short flags, as in -pojson.
    let short = arg.strip_prefix('-').filter(|flags| !flags.starts_with('-')).and_then(|flags| flags.split_once('o'));
    let format = arg.strip_prefix("--output-format=").or(short.map(|(_, format)| format)).unwrap_or(arg);
    matches!(format.trim_start_matches('='), "--json" | "json" | "stream-json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [("90", 90_000), ("90s", 90_000), ("1.5m", 90_000), ("1h", 3_600_000), ("250ms", 250)] {
            assert_eq!(milliseconds(text).map(NonZeroU64::get), Ok(expected), "{text}");
        }
        for text in ["", "0", "-1", "5 minutes", "m", "1d", "0.0001ms"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_dollars() {
        assert_eq!(dollars("0.50").map(Money::nanos), Ok(500_000_000));
        assert_eq!(dollars("$2").map(Money::nanos), Ok(2_000_000_000));
        for text in ["", "0", "-1", "NaN", "1e12", "two"] {
            assert!(dollars(text).is_err(), "{text}");
        }
    }
}
