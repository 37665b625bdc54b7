//! `terret "prompt"`: one prompt, run to its end.

use std::io::{self, IsTerminal as _, Read as _};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use terret::agent::machine::{Answer, Limits};
use terret::agent::{Agent, Event, Run, SharedTool};
use terret::llm::{Options, ToolCall, ToolSpec};
use terret::store::Setup;
use terret::tools::{RuleJudge, Workspace, workspace_tools};

use crate::cassette::Cassette;
use crate::chat;
use crate::cli::{OutputFormat, RunArgs};
use crate::config::Config;
use crate::context::{Context, Skills};
use crate::exit::{Exit, Problem};
use crate::model;
use crate::output::{self, Output, Start, complain};
use crate::output_schema::{Bare, Expected};
use crate::permissions::{self, Permissions};
use crate::prompt;
use crate::sandbox;
use crate::session::{self, Chosen, Interrupted, Opened};
use crate::signals::Signals;

/// Runs a prompt; without one, talks with somebody at a terminal.
pub(crate) fn run_or_talk(args: RunArgs) -> ExitCode {
    begin(args, chat::is_meant)
}

pub(crate) fn run(args: RunArgs) -> ExitCode {
    begin(args, |_| false)
}

fn begin(mut args: RunArgs, talks: impl Fn(&RunArgs) -> bool) -> ExitCode {
    let mut format = args.format();
    let exit = session::choose(&mut args).and_then(|chosen| {
        let folder = folder(args.cd.as_deref(), chosen.setup().folder.as_deref())?;
        let config = Config::load(&folder, &args.set)?;
        config.tell_unused();
        let args = args.configured(&config)?;
        let chosen = match chosen {
            Chosen::New { .. } if args.session.no_session => Chosen::Unkept,
            chosen => chosen,
        };
        format = args.format();
        let talks = talks(&args);
        let cassette = Cassette::of(&args)?;
        let task = Task { args, config, folder, cassette: cassette.clone() };
        let exit = if talks {
            in_runtime(async || chat::run(chosen, task).await)
        } else {
            let exit = block_on(async |signals| run_in(&chosen, &task, signals).await);
            chosen.close();
            exit
        };
        cassette.check();
        exit
    });
    exit.unwrap_or_else(|problem| {
        output::fail_to_start(format, &problem);
        problem.exit
    })
    .into()
}

/// What is to be done, and how.
pub(crate) struct Task {
    pub(crate) args: RunArgs,
    pub(crate) config: Config,
    pub(crate) folder: PathBuf,
    pub(crate) cassette: Cassette,
}

async fn run_in(chosen: &Chosen, task: &Task, signals: Signals) -> Result<Exit, Problem> {
    let Task { args, folder, .. } = task;
    if args.prompt.is_none() && io::stdin().is_terminal() && !args.session.goes_on() {
        return Err(no_prompt());
    }
    let session_setup = chosen.setup();
    let prepared = tokio::select! {
        biased;
        // A command may take its time to print a key.
        exit = signals.stop() => return Err(Problem::new(exit, exit.reason())),
        prepared = prepare(task, &session_setup) => prepared?,
    };
    prepared.tell();
    let Prepared { agent, skills, expected, setup, judge, .. } = prepared;
    let opened = chosen.open(&agent, &setup).await?;
    let asked = async {
        // Last, because it may have to be waited for.
        let prompt = tokio::select! {
            biased;
            exit = signals.stop() => return Err(Problem::new(exit, exit.reason())),
            () = passed(args.timeout) => {
                return Err(Problem::new(Exit::OutOfBudget, "the time is up before standard input has ended"));
            }
            prompt = read_prompt(args.prompt.as_deref()) => prompt?,
        };
        let prompt = prompt.map(|prompt| skills.expand(prompt)).transpose()?;
        match prompt.is_none() && opened.interrupted.is_none() && !opened.unanswered {
            true if opened.messages > 0 => Err(nothing_to_finish()),
            true => Err(no_prompt()),
            false => Ok(prompt),
        }
    };
    let prompt = match asked.await {
        Ok(prompt) => prompt,
        Err(problem) => {
            chosen.abandon(opened);
            return Err(problem);
        }
    };
    let start = Start::new(&agent, &opened, folder);
    if args.format() == OutputFormat::Text && opened.messages > 0 {
        tell_of(&opened, args, folder, prompt.is_some());
    }
    if let Some(interrupted) = opened.interrupted.as_ref().filter(|_| prompt.is_none()) {
        tell_of_limits(interrupted, args);
    }
    let run = match prompt {
        Some(prompt) => opened.session.prompt(prompt),
        None => opened.session.go_on(),
    };
    drop(opened);
    let output = output::to(args.format(), &start);
    let output = match expected {
        Some(expected) => Box::new(Bare { expected, inner: output }),
        None => output,
    };
    Ok(follow(run, output, signals, Some((&judge, folder))).await)
}

/// Says what is gone on with, before anything happens.
fn tell_of(opened: &Opened, args: &RunArgs, folder: &Path, is_new: bool) {
    let messages = if opened.messages == 1 { "1 message" } else { &format!("{} messages", opened.messages) };
    let mut note = format!("session {}, {messages}", opened.session.id());
    if let Some(interrupted) = &opened.interrupted {
        let (its, asked) = (&interrupted.limits, limits(args));
        let has_others = (its.model_calls, its.cost, its.wall_time) != (asked.model_calls, asked.cost, asked.wall_time);
        note += match is_new && has_others {
            true => ", its last run was interrupted and makes room for one with other limits",
            false => ", its last run was interrupted and goes on",
        };
    }
    if args.cd.is_none() && Path::new(".").canonicalize().is_ok_and(|here| here != folder) {
        note += &format!("; working in its folder {} (-C . works in this one)", folder.display());
    }
    output::note(&note);
}

/// Says which limits hold for a run that was interrupted: those that it was begun with.
fn tell_of_limits(interrupted: &Interrupted, args: &RunArgs) {
    let (its, asked) = (&interrupted.limits, limits(args));
    let mut ignored = Vec::new();
    if args.max_turns != RunArgs::MAX_TURNS && asked.model_calls != its.model_calls {
        ignored.push(format!("--max-turns {} (it has {})", asked.model_calls, its.model_calls));
    }
    if let Some(cost) = asked.cost.filter(|_| asked.cost != its.cost) {
        let its = its.cost.map_or_else(|| "no limit".to_owned(), |cost| cost.to_string());
        ignored.push(format!("--max-cost {cost} (it has {its})"));
    }
    if let Some(time) = asked.wall_time.filter(|_| asked.wall_time != its.wall_time) {
        let seconds = |time: NonZeroU64| format!("{} s", time.get() as f64 / 1000.0);
        let its = its.wall_time.map_or_else(|| "no limit".to_owned(), seconds);
        ignored.push(format!("--timeout {} (it has {its})", seconds(time)));
    }
    if !ignored.is_empty() {
        complain(&format!(
            "the run that was interrupted goes on under the limits that it was begun with; for it, these don't hold: {}",
            ignored.join(", ")
        ));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if interrupted.deadline.and_then(|at| u64::try_from(at).ok()).is_some_and(|at| u128::from(at) <= now.as_millis()) {
        complain(
            "the time of the run that was interrupted is up, for it is counted from its begin: it ends now, and terret -c \
             goes on in a new one",
        );
    }
}

/// Runs a program that hears signals.
///
/// The run has a thread of its own: this one writes, and a reader that doesn't read must keep neither the run's clocks
/// nor a signal from being heard.
pub(crate) fn block_on(program: impl AsyncFnOnce(Signals) -> Result<Exit, Problem>) -> Result<Exit, Problem> {
    in_runtime(async || program(Signals::listen()).await)
}

fn in_runtime(program: impl AsyncFnOnce() -> Result<Exit, Problem>) -> Result<Exit, Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Problem::new(Exit::RunFailed, format!("can't start: {error}")))?;
    let exit = runtime.block_on(program());
    // What the run holds is let go of (its temporary folder, say). But a tool that could not be stopped must not keep the
    // program alive, nor standard input that never ends.
    runtime.shutdown_timeout(Duration::from_millis(500));
    exit
}

/// Follows a run to its end, and tells of it.
///
/// With a judge of its calls, and the folder that they are in, a question that nobody can answer is told with what would
/// spare it.
pub(crate) async fn follow(
    mut run: Run,
    mut output: Box<dyn Output + '_>,
    signals: Signals,
    judge: Option<(&RuleJudge, &Path)>,
) -> Exit {
    let handle = run.handle();
    tokio::spawn({
        let handle = handle.clone();
        async move { handle.cancel(signals.stop().await.reason()) }
    });
    let started = Instant::now();
    let mut written = Ok(());
    let report = loop {
        match run.next().await {
            Some(Event::Ended(report)) => break report,
            Some(event) if written.is_ok() => {
                written = output.event(&event);
                if let Event::Asked(question) = &event {
                    match judge {
                        // A rule was given since it was asked.
                        Some((judge, _)) if permissions::is_allowed(judge, &question.call) => {
                            handle.answer(question.call.id.clone(), question.digest.clone(), Answer::Approve);
                        }
                        _ => handle.cancel(permissions::nobody_to_ask(question, judge)),
                    }
                }
                // Nobody reads any more, or the disk is full: going on would spend money for nothing.
                if let Err(error) = &written {
                    handle.cancel(format!("the output can't be written: {error}"));
                }
            }
            Some(_) => {}
            None => break run.report().await,
        }
    };
    match written.and(output.ended(&report, started.elapsed())) {
        Ok(()) => Exit::of(&report.outcome),
        Err(error) => {
            // A reader that left, as in `| head`, knows that it did.
            if error.kind() != io::ErrorKind::BrokenPipe {
                complain(&format!("the output can't be written: {error}"));
            }
            Exit::RunFailed
        }
    }
}

/// What an agent is given besides its model.
pub(crate) struct Equipment {
    pub(crate) system: Arc<str>,
    pub(crate) tools: Vec<SharedTool>,
    pub(crate) context: Context,
    expected: Option<Expected>,
    workspace: Workspace,
    /// The names of all tools, also of those that aren't offered.
    known: Vec<String>,
}

pub(crate) fn equip(args: &RunArgs, folder: &Path) -> Result<Equipment, Problem> {
    let (workspace, bash) = sandbox::workspace(args, folder)?;
    let context = Context::load(folder, &args.context_files, !args.no_skills)?;
    let mut tools = workspace_tools(&workspace, bash);
    tools.extend(context.skills.tool());
    let mut known: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    if !known.iter().any(|name| name == Skills::TOOL) {
        known.push(Skills::TOOL.to_owned());
    }
    let tools = pick(tools, args.tools.as_deref())?;
    let expected = args.output_schema.as_deref().map(Expected::load).transpose()?;
    let system = prompt::system(folder, &context, expected.as_ref());
    Ok(Equipment { system, tools, context, expected, workspace, known })
}

pub(crate) struct Prepared {
    pub(crate) agent: Agent,
    pub(crate) skills: Skills,
    /// What the model isn't told.
    left_out: Vec<String>,
    /// What is wrong, and doesn't keep it from running.
    mistakes: Vec<String>,
    expected: Option<Expected>,
    /// What a later run that goes on with the session needs again.
    pub(crate) setup: Setup,
    pub(crate) permissions: Permissions,
    /// What judges its calls: its rules can change while it runs.
    pub(crate) judge: RuleJudge,
}

impl Prepared {
    /// Says what was left out and what is wrong. Not while a screen is drawn.
    pub(crate) fn tell(&self) {
        self.left_out.iter().for_each(|left_out| output::note(left_out));
        self.mistakes.iter().for_each(|mistake| complain(mistake));
    }
}

pub(crate) async fn prepare(task: &Task, session: &Setup) -> Result<Prepared, Problem> {
    let Task { args, config, folder, cassette } = task;
    let mut asked = model::asked(args, session, config);
    let model::Chosen { model, effort } =
        model::choose(&mut asked, args.api_key_file.as_deref(), cassette, config).await?;
    let setup = Setup {
        folder: Some(folder.display().to_string()),
        rules: session.rules.clone(),
        ..model::without_secrets(&asked)
    };
    let Equipment { system, tools, context, expected, workspace, known } = equip(args, folder)?;
    sandbox::require(args, &tools)?;
    let mut options = Options::default();
    options.effort = effort;
    options.max_output_tokens = args.max_output_tokens.map(Into::into);
    let fallbacks = model::fallbacks(args.fallback_model.as_deref().unwrap_or_default(), cassette, config).await?;
    let unpriced = [&model].into_iter().chain(&fallbacks).map(|model| model.spec()).find(|spec| spec.price.is_none());
    if let Some(spec) = unpriced.filter(|_| args.max_cost.is_some()) {
        return Err(Problem::usage(format!(
            "--max-cost: the price of {}/{} isn't known, so that its cost can't be limited; \
             --max-turns can, and a price can be given in models.json (docs/catalog.md)",
            spec.provider, spec.id
        )));
    }
    if let Some(schema) = expected.as_ref().and_then(Expected::for_providers) {
        let specs: Arc<[ToolSpec]> = tools.iter().map(|tool| tool.spec().clone()).collect();
        let mut models = [&model].into_iter().chain(&fallbacks);
        options.output_schema = models.all(|model| schema.is_supported_by(model.spec(), &specs)).then_some(schema);
    }
    let mut agent = Agent::builder(model)
        .system(system)
        .tools(tools.iter().cloned())
        .options(options)
        .spill(workspace.clone())
        .hooks(context.nested)
        .limits(limits(args));
    let permissions = Permissions::of(args, config, folder, &session.rules)?;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let mistakes = permissions.about_no_tool(&known);
    let judge = permissions.judge(&workspace, &tools);
    let gate = judge.clone();
    agent = agent.gate(move |call: &ToolCall, arguments: &serde_json::Value| gate.judge(&call.name, arguments));
    agent = fallbacks.into_iter().fold(agent, |agent, model| agent.fallback(model));
    if let Some(expected) = &expected {
        agent = agent.hooks(expected.clone());
    }
    let agent = agent.build().map_err(|error| Problem::usage(error.to_string()))?;
    Ok(Prepared {
        agent,
        skills: context.skills,
        left_out: context.left_out,
        mistakes,
        expected,
        setup,
        permissions,
        judge,
    })
}

fn limits(args: &RunArgs) -> Limits {
    let mut limits = Limits::default();
    limits.model_calls = args.max_turns;
    limits.cost = args.max_cost;
    limits.wall_time = args.timeout;
    limits
}

/// Where to work: where the command line says, else where the session did, else here.
pub(crate) fn folder(cd: Option<&Path>, session: Option<&str>) -> Result<PathBuf, Problem> {
    let folder = cd.or(session.map(Path::new)).unwrap_or(Path::new("."));
    let hint =
        if cd.is_none() && session.is_some() { " (the session's folder; -C DIR works in another one)" } else { "" };
    let problem = |error: io::Error| Problem::usage(format!("can't work in {}{hint}: {error}", folder.display()));
    let folder = folder.canonicalize().map_err(problem)?;
    if !folder.is_dir() {
        return Err(Problem::usage(format!("can't work in {}: it is not a folder", folder.display())));
    }
    Ok(folder)
}

/// The prompt, with standard input behind it when that is a pipe or a file.
async fn read_prompt(given: Option<&str>) -> Result<Option<String>, Problem> {
    let piped = if io::stdin().is_terminal() { Vec::new() } else { read_stdin().await? };
    let piped = String::from_utf8_lossy(&piped);
    Ok(match (given.map(str::trim).unwrap_or_default(), piped.trim()) {
        ("", "") => None,
        (prompt, "") => Some(prompt.to_owned()),
        ("", piped) => Some(piped.to_owned()),
        (prompt, piped) => Some(format!("{prompt}\n\n{piped}")),
    })
}

fn nothing_to_finish() -> Problem {
    Problem::usage(
        "no prompt, and the session has no run to finish: say what to do next, as in terret -c \"now test it\"",
    )
}

fn no_prompt() -> Problem {
    Problem::usage(
        "no prompt: say what to do, as in terret -p \"fix the failing test\", or pipe it in; `terret demo` shows how it \
         works, `terret --help` says more",
    )
}

/// Waits for this many milliseconds, or for ever.
async fn passed(time: Option<NonZeroU64>) {
    match time {
        Some(time) => tokio::time::sleep(Duration::from_millis(time.get())).await,
        None => std::future::pending().await,
    }
}

/// The most that is read from standard input, in bytes: no model takes more.
const LONGEST_PROMPT: u64 = 64 << 20;

/// All of standard input. A pipe that somebody forgot to close looks like a hang, so it is named after a while.
async fn read_stdin() -> Result<Vec<u8>, Problem> {
    let mut reading = tokio::task::spawn_blocking(|| {
        let mut piped = Vec::new();
        io::stdin().take(LONGEST_PROMPT + 1).read_to_end(&mut piped).map(|_| piped)
    });
    let read = match tokio::time::timeout(Duration::from_secs(3), &mut reading).await {
        Ok(read) => read,
        Err(_) => {
            complain("waiting for standard input to end (</dev/null leaves it out)");
            reading.await
        }
    };
    let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
    let piped = read.map_err(|error| Problem::usage(format!("can't read standard input: {error}")))?;
    match piped.len() as u64 > LONGEST_PROMPT {
        true => Err(Problem::usage(format!("standard input is longer than {} MiB", LONGEST_PROMPT >> 20))),
        false => Ok(piped),
    }
}

fn pick(tools: Vec<SharedTool>, names: Option<&[String]>) -> Result<Vec<SharedTool>, Problem> {
    let Some(names) = names else { return Ok(tools) };
    let names: Vec<&str> = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    let known: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
        let known = known.join(", ");
        return Err(Problem::usage(format!("--tools: there is no tool {unknown:?}; there are {known}")));
    }
    Ok(tools.into_iter().filter(|tool| names.contains(&tool.spec().name.as_str())).collect())
}
