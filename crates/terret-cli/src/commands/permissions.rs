//! `terret permissions`: which rules about calls hold, and those that somebody gives for a project or a session.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstyle::Style;
use clap::{Args, Subcommand, ValueEnum as _};
use serde::Serialize;
use serde_json::json;
use terret::agent::SharedTool;
use terret::store::{SessionInfo, Setup, SqliteJournal};
use terret::tools::{BashOptions, Decision, Judgement, Rule, Rules, Why, Workspace, workspace_tools};

use super::{finish, print_json, sessions, unwritable};
use crate::cli::PermissionMode;
use crate::config::Config;
use crate::context::Skills;
use crate::exit::{Exit, Problem};
use crate::output::{complain, line, note, quoted, shortened_folder};
use crate::permissions::{self, Given, Permissions as Held, Source, about_no_tool, nearest};
use crate::places;

/// Show the rules about calls, give some for a project, and take them back
///
/// Rules of flags, the environment, files, the project and the session hold together: a denial wins over a question, and a
/// question over a permission. docs/permissions.md says what a rule looks like.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Permissions {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
}

const EXAMPLES: &str = "\
Examples:
  terret permissions allow \"bash(cargo test *)\" \"write(src/**)\"
  terret permissions deny \"bash(git push *)\"
  terret permissions check \"git push --force\"
  terret permissions revoke --all";

#[derive(Subcommand)]
enum Command {
    /// List the rules that hold, with where each comes from (what happens without a command)
    #[command(visible_alias = "ls")]
    List(List),
    /// Let calls run without a question in this project
    Allow(Give),
    /// Ask before calls in this project
    Ask(Give),
    /// Never run calls in this project, whatever else is allowed
    Deny(Give),
    /// Take rules of this project back
    Revoke(Revoke),
    /// Say what would be decided about a call, and why
    Check(Check),
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

// For whose calls.
#[derive(Args)]
struct Place {
    /// For runs in this folder, and its project
    #[arg(short = 'C', long, value_name = "DIR")]
    cd: Option<PathBuf>,
    /// For this session: its ID, the start of it, or its name
    #[arg(short = 'r', long = "resume", value_name = "ID")]
    session: Option<String>,
}

#[derive(Args)]
struct Give {
    /// Rules, as in 'bash(cargo test *)' or 'write(src/**)'; paths count from the root of the project
    #[arg(value_name = "RULE", required = true)]
    rules: Vec<Rule>,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Revoke {
    /// The rules, as they are listed
    #[arg(value_name = "RULE", required_unless_present = "all")]
    rules: Vec<String>,
    /// All rules that were given for the project, or for the session
    #[arg(long, conflicts_with = "rules")]
    all: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Check {
    /// A command line; or a tool, with the path that it would be called with
    #[arg(value_name = "COMMAND|TOOL")]
    what: String,
    /// The path
    path: Option<String>,
    /// In this mode; in the configured one without this
    #[arg(long, value_enum, value_name = "MODE")]
    permission_mode: Option<PermissionMode>,
    #[command(flatten)]
    place: Place,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Permissions) -> ExitCode {
    finish(match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => list(&args),
        Command::Allow(args) => give(Decision::Allow, &args),
        Command::Ask(args) => give(Decision::Ask, &args),
        Command::Deny(args) => give(Decision::Deny, &args),
        Command::Revoke(args) => revoke(&args),
        Command::Check(args) => check(&args),
    })
}

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// The rules of a place.
struct Found {
    held: Held,
    folder: PathBuf,
    session: Option<(SqliteJournal, SessionInfo)>,
}

impl Place {
    fn find(&self, mode: Option<PermissionMode>) -> Result<Found, Problem> {
        let session = match &self.session {
            None => None,
            Some(meant) => {
                let journal = SqliteJournal::new(places::sessions()?);
                let info = sessions::find(&journal, meant)?;
                Some((journal, info))
            }
        };
        let setup = session.as_ref().map_or_else(Setup::default, |(_, info)| info.setup.clone());
        let folder = super::run::folder(self.cd.as_deref(), setup.folder.as_deref())?;
        let config = Config::load(&folder, &[])?;
        config.tell_unused();
        let configured = config.all("permission-mode").next().and_then(|entry| entry.values.first());
        let configured = configured.and_then(|mode| PermissionMode::from_str(mode, false).ok());
        let mode = mode.or(configured).unwrap_or_default();
        let held = Held::load(mode, &config, &folder, &setup.rules)?;
        Ok(Found { held, folder, session })
    }
}

impl Found {
    /// The rules that were given for this place, as far as they can be taken back here.
    fn given(&self) -> Vec<Given> {
        let in_session = self.session.is_some();
        let is_here = |given: &Given| match given.source {
            Source::Session => in_session,
            Source::Project(_) => !in_session,
            Source::Flag | Source::Configured(_) => false,
        };
        self.held.all().into_iter().filter(is_here).collect()
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Rules) -> T) -> Result<T, Problem> {
        match &self.session {
            Some((journal, info)) => permissions::change_session(journal, &info.id, change).map(|(_, done)| done),
            None => self.held.project.change(change),
        }
    }

    fn name(&self) -> String {
        match &self.session {
            Some((_, info)) => format!("session {}", info.id),
            None => shortened_folder(&self.held.project.root().display().to_string()),
        }
    }
}

fn list(args: &List) -> Result<Exit, Problem> {
    let Found { held, .. } = args.place.find(None)?;
    let rules = held.all();
    if args.json {
        let listed: Vec<_> = rules.iter().map(|given| Listed::of(given, &held)).collect();
        return print_json(&listed).map(|()| Exit::Completed);
    }
    if rules.is_empty() {
        note(&format!("no rules hold here; permission mode {}", held.mode_name()));
        return Ok(Exit::Completed);
    }
    let width = rules.iter().map(|given| line(&given.rule.to_string()).chars().count()).max().unwrap_or(0).min(40);
    let show = || -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        for given in &rules {
            let rule = line(&given.rule.to_string());
            let idle = if held.counts(given) { "" } else { "  not in read-only mode" };
            let (decision, scope, from) = (given.decision.to_string(), given.scope(), line(&given.from()));
            writeln!(
                out,
                "{decision:<5}  {BOLD}{rule}{BOLD:#}{:<1$}  {DIM}{scope:<11}  {from}{idle}{DIM:#}",
                "",
                width.saturating_sub(rule.chars().count())
            )?;
        }
        out.flush()
    };
    show().map_err(unwritable)?;
    Ok(Exit::Completed)
}

/// A rule as scripts are told of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    decision: Decision,
    rule: Rule,
    scope: &'static str,
    from: String,
    /// Whether it has a say in the permission mode that is configured.
    counts: bool,
}

impl Listed {
    fn of(given: &Given, held: &Held) -> Self {
        Self {
            decision: given.decision,
            rule: given.rule.clone(),
            scope: given.scope(),
            from: given.from(),
            counts: held.counts(given),
        }
    }
}

fn give(decision: Decision, args: &Give) -> Result<Exit, Problem> {
    let mut found = args.place.find(None)?;
    // What somebody says last about the same rule is meant.
    let replaced = found.change(|rules| {
        let mut replaced = Vec::new();
        rules.retain(|(other, rule)| {
            let stays = *other == decision || !args.rules.contains(rule);
            if !stays {
                replaced.push((*other, rule.clone()));
            }
            stays
        });
        args.rules.iter().for_each(|rule| rules.add(decision, rule.clone()));
        replaced
    })?;
    let tools = tools(&found.folder)?.1;
    let known: Vec<&str> = names(&tools).chain([Skills::TOOL]).collect();
    for rule in &args.rules {
        let instead = replaced.iter().find(|(_, other)| other == rule);
        let instead = instead.map(|(other, _)| format!(", instead of {other}")).unwrap_or_default();
        note(&format!("{decision} {rule} in {}{instead}", found.name()));
        if let Some(mistake) = about_no_tool(rule, &known) {
            complain(&mistake);
        }
    }
    Ok(Exit::Completed)
}

fn revoke(args: &Revoke) -> Result<Exit, Problem> {
    let mut found = args.place.find(None)?;
    let given = found.given();
    let unknown = args.rules.iter().find(|meant| !given.iter().any(|given| given.rule.to_string() == meant.trim()));
    if let Some(meant) = unknown {
        return Err(Problem::usage(not_here(meant.trim(), &found)));
    }
    let is_meant = |rule: &Rule| args.all || args.rules.iter().any(|meant| meant.trim() == rule.to_string());
    let revoked = found.change(|rules| {
        let mut revoked = Vec::new();
        rules.retain(|(decision, rule)| {
            let meant = is_meant(rule);
            if meant {
                revoked.push((*decision, rule.clone()));
            }
            !meant
        });
        revoked
    })?;
    for (decision, rule) in &revoked {
        note(&format!("revoked: {decision} {rule}"));
    }
    if revoked.is_empty() {
        note(&format!("no rule was given for {}", found.name()));
    }
    Ok(Exit::Completed)
}

/// Why a rule can't be taken back.
fn not_here(meant: &str, found: &Found) -> String {
    let all = found.held.all();
    let missing = format!("{} has no rule {meant:?}", found.name());
    if let Some(elsewhere) = all.iter().find(|given| given.rule.to_string() == meant) {
        return format!(
            "{missing}, which comes from {}; to take it back, {}",
            elsewhere.from(),
            elsewhere.taken_back()
        );
    }
    match nearest(meant, &found.given()) {
        Some(near) => format!("{missing}; did you mean {}?", quoted(&near)),
        None => format!("{missing}; `terret permissions` lists those that hold"),
    }
}

fn check(args: &Check) -> Result<Exit, Problem> {
    let Found { held, folder, .. } = args.place.find(args.permission_mode)?;
    let (tool, argument) = match &args.path {
        Some(path) => (args.what.as_str(), path.as_str()),
        None => ("bash", args.what.as_str()),
    };
    let (workspace, tools) = tools(&folder)?;
    let known: Vec<&str> = names(&tools).collect();
    if !known.contains(&tool) {
        return Err(Problem::usage(format!("there is no tool {tool:?}; there are {}", known.join(", "))));
    }
    let judge = held.judge(&workspace, &tools);
    let arguments = if tool == "bash" { json!({ "command": argument }) } else { json!({ "path": argument }) };
    let judgement = judge.explain(tool, &arguments);
    let proposed = match judgement.decision {
        Decision::Allow => Vec::new(),
        _ => judge.permissions_for(tool, &arguments, held.project.root()),
    };
    if args.json {
        return print_json(&Checked::of(&judgement, &held, &proposed)).map(|()| Exit::Completed);
    }
    let mut out = anstream::stdout().lock();
    let why = line(&told(&judgement, &held));
    writeln!(out, "{BOLD}{}{BOLD:#}: {why}", judgement.decision).and_then(|()| out.flush()).map_err(unwritable)?;
    if !proposed.is_empty() && held.takes_permissions() {
        let rules: Vec<String> = proposed.iter().map(|rule| quoted(&rule.to_string())).collect();
        note(&format!("terret permissions allow {} would let it run", rules.join(" ")));
    }
    Ok(Exit::Completed)
}

fn tools(folder: &Path) -> Result<(Workspace, Vec<SharedTool>), Problem> {
    let workspace = Workspace::new(folder)
        .map_err(|error| Problem::usage(format!("can't work in {}: {error}", folder.display())))?;
    let tools = workspace_tools(&workspace, BashOptions::default());
    Ok((workspace, tools))
}

fn names(tools: &[SharedTool]) -> impl Iterator<Item = &str> {
    tools.iter().map(|tool| tool.spec().name.as_str())
}

fn told(judgement: &Judgement, held: &Held) -> String {
    match &judgement.why {
        Why::Rules(rules) => {
            let named = rules.iter().map(|rule| match held.source_of(judgement.decision, rule) {
                Some(given) => format!("{rule} ({})", given.place()),
                None => rule.to_string(),
            });
            named.collect::<Vec<_>>().join(", ")
        }
        Why::Perhaps(rule) => format!("{rule}, for what it runs is known only when it runs"),
        Why::Reads => "it only reads".into(),
        Why::Unreadable => "it can't be read, and rules are about some commands".into(),
        _ => format!("no rule is about it, and the permission mode is {}", held.mode_name()),
    }
}

/// A judgement as scripts are told of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    decision: Decision,
    why: &'static str,
    /// The rules that made it.
    rules: Vec<Listed>,
    permission_mode: String,
    /// What would let it run.
    proposed: Vec<Rule>,
}

impl Checked {
    fn of(judgement: &Judgement, held: &Held, proposed: &[Rule]) -> Self {
        let (why, rules) = match &judgement.why {
            Why::Rules(rules) => ("rules", rules.as_slice()),
            Why::Perhaps(rule) => ("perhaps", std::slice::from_ref(rule)),
            Why::Reads => ("reads", &[][..]),
            Why::Unreadable => ("unreadable", &[][..]),
            _ => ("unmatched", &[][..]),
        };
        let sources = rules.iter().filter_map(|rule| held.source_of(judgement.decision, rule));
        Self {
            decision: judgement.decision,
            why,
            rules: sources.map(|given| Listed::of(&given, held)).collect(),
            permission_mode: held.mode_name(),
            proposed: proposed.to_vec(),
        }
    }
}
