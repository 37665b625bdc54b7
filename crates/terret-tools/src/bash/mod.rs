//! Running commands.
//!
//! Each command runs in a session of its own (no terminal, its own process group), with nothing on its standard input
//! and a cleared environment. What it starts is followed by three marks: the session, the parents, and a variable in the
//! environment ([`processes`]). Only a process that leaves all three (a daemon with a cleared environment) gets away.
//!
//! - [`command`] builds every command, for its cell in the sandbox.
//! - [`run`] starts one, and ends it: by itself, by the limit, by a cancel, or because nobody waits for it any more.
//! - [`capture`] keeps what it writes, in bounded memory.
//! - [`guard`] ends what commands left running, when the tool is dropped and when this program dies.
//!
//! Should the guard be killed, too, then a command still carries the key of its call: whoever resumes the run asks what
//! became of the call, and that ends the command before the call is settled.

mod capture;
mod command;
mod environment;
mod guard;
mod processes;
mod run;

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{FnTool, ToolContext, ToolError, ToolOutput, tool};

pub use self::environment::Environment;

use self::capture::Captured;
use self::run::{Ending, Runner};
use crate::sandbox::{Level, Profile, ResourceLimits};
use crate::workspace::Workspace;

/// The longest time that a command can ask for, in seconds.
const MAX_TIMEOUT: u64 = 3_600;

/// How commands are run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BashOptions {
    /// How long a command may run that doesn't ask for a time of its own. Default: 120 seconds.
    pub timeout: Duration,
    /// The environment variables that commands see.
    pub environment: Environment,
    /// What holds commands. Default: the best that works ([`Ladder::best`](crate::Ladder::best)); where nothing does,
    /// commands are refused. A workspace with [`Profile::Full`](crate::Profile::Full) has no sandbox, whatever is said
    /// here.
    pub level: Option<Level>,
    /// Whether confined commands reach the network. Default: no. Without it, [`Level::Bubblewrap`] leaves them a
    /// loopback of their own, and [`Level::Landlock`] no sockets but connected pairs. With it, commands on
    /// [`Level::Landlock`] also reach the local services that listen on sockets of the user.
    pub network: bool,
    /// What confined commands may use up.
    pub limits: ResourceLimits,
}

impl Default for BashOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            environment: Environment::default(),
            level: None,
            network: false,
            limits: ResourceLimits::default(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    command: String,
    /// Seconds; default 120
    #[schemars(range(min = 1, max = 3600))]
    timeout: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'a str>,
    timed_out: bool,
    cancelled: bool,
    /// Bytes as the command wrote them.
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_file: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    background: &'a [u32],
    /// What held the command: `bubblewrap`, `landlock` or `none`.
    sandbox: &'static str,
}

/// The tool that runs commands with bash, or with sh where there is no bash.
///
/// Standard output and error come as one text, cleaned of what is meant for terminals. Of a long output the model sees
/// the beginning and the end, and is told the file that holds it all (its first 64 MB). An exit code other than 0, the
/// time limit and a cancel make an error result, which keeps the output so far.
///
/// What a command leaves running in the background runs on when the call returns, is named in the result, and is killed
/// when the tool is dropped or this program ends, however that happens. A command that outlived even that is killed when
/// its call is [discovered](terret_agent::Tool::discover).
///
/// Needs a tokio runtime with I/O and time.
pub fn bash(workspace: &Workspace, options: BashOptions) -> FnTool {
    let default = options.timeout;
    let walls = match (workspace.current_profile(), options.network) {
        (Profile::Full, _) => "",
        (Profile::Workspace, false) => " Sandboxed: no network, writes only in the workspace (not .git) and $TMPDIR.",
        (Profile::Workspace, true) => " Sandboxed: writes only in the workspace (not .git) and $TMPDIR.",
        (Profile::ReadOnly, _) => " Sandboxed: writes only in $TMPDIR.",
    };
    let runner = Arc::new(Runner::new(workspace.clone(), options));
    let description = format!(
        "Runs a bash command in the workspace root, without input or terminal. Returns stdout and stderr; the middle of a \
         long output is cut and kept in a file. What is started with & runs on.{walls}"
    );
    tool("bash", description, move |arguments: Arguments, context| {
        let runner = Arc::clone(&runner);
        async move { call(&runner, arguments, default, context).await }
    })
    .discover(|key| async move { end_lost(&key).await })
    .exclusive()
}

/// Ends a command that outlived the program that ran it, and says so. Without one, nothing is known: it may have ended.
async fn end_lost(key: &str) -> Option<ToolOutput> {
    let (found, left) = run::end_survivors(key).await;
    let killed: Vec<u32> = found.iter().copied().filter(|process| !left.contains(process)).collect();
    let mut notes = Vec::new();
    if !killed.is_empty() {
        notes.push(format!("It was still running now, and was killed: {}.", list(&killed)));
    }
    if !left.is_empty() {
        notes.push(format!("These processes are still running and could not be killed: {}.", list(&left)));
    }
    (!notes.is_empty()).then(|| {
        let start =
            "This program was stopped while the command ran. What it had done by then is done; its output is lost.";
        ToolOutput::error(format!("{start} {}", notes.join(" ")))
    })
}

async fn call(
    runner: &Arc<Runner>,
    arguments: Arguments,
    default: Duration,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    if arguments.command.contains('\0') {
        return Err(ToolError::new("The command holds a NUL character, which no command can."));
    }
    let limit = arguments.timeout.map_or(default, |seconds| Duration::from_secs(seconds.clamp(1, MAX_TIMEOUT)));
    if context.cancel.is_cancelled() {
        return Err(ToolError::new("Cancelled before the command was started."));
    }
    let done = runner.run(&arguments.command, limit, &context).await.map_err(|error| match error.kind() {
        ErrorKind::ArgumentListTooLong => ToolError::new(
            "The command is too long for the system, and was not run. Write it to a file, or its data, and use that.",
        ),
        _ => ToolError::new(format!("The command could not be run: {error}.")),
    })?;
    let Captured { text, bytes, file } = done.output;
    let signal = match done.ending {
        Ending::Exited(status) => status.signal().map(signal_name),
        Ending::TimedOut | Ending::Cancelled => None,
    };
    let mut notes = Vec::new();
    if !done.survivors.is_empty() {
        let pids = list(&done.survivors);
        notes.push(format!("These processes could not be killed: {pids}."));
    }
    if !done.background.is_empty() {
        let pids = list(&done.background);
        notes.push(format!("Still running in the background: {pids}. Further output of theirs is lost."));
    }
    for undone in done.undone {
        notes.push(format!("{undone}."));
    }
    let failed = match done.ending {
        Ending::Exited(status) => {
            notes.extend(failure(status));
            !status.success()
        }
        Ending::TimedOut => {
            let seconds = limit.as_secs_f64();
            notes.push(format!(
                "Killed after {seconds} s, the time limit. Give a longer timeout, or run it in the background with its \
                 output in a file."
            ));
            true
        }
        Ending::Cancelled => {
            notes.push("Cancelled, and killed.".to_owned());
            true
        }
    };
    let body = if text.trim().is_empty() { "(no output)" } else { text.trim_end_matches('\n') };
    let text = if notes.is_empty() { body.to_owned() } else { format!("{body}\n\n[{}]", notes.join(" ")) };
    let output = if failed { ToolOutput::error(text) } else { ToolOutput::text(text) };
    Ok(output.with_details(&Details {
        exit_code: match done.ending {
            Ending::Exited(status) => Some(exit_code(status)),
            Ending::TimedOut | Ending::Cancelled => None,
        },
        signal: signal.as_deref(),
        timed_out: matches!(done.ending, Ending::TimedOut),
        cancelled: matches!(done.ending, Ending::Cancelled),
        bytes,
        output_file: file.as_deref(),
        background: &done.background,
        sandbox: done.level.map_or("none", Level::name),
    }))
}

/// The exit code as shells tell it: 128 and the number of the signal for a death by signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// What is to be said of an exit.
fn failure(status: ExitStatus) -> Option<String> {
    let code = exit_code(status);
    match (code, status.signal()) {
        (0, _) => None,
        (_, Some(signal)) => Some(format!("exit code {code}: killed by {}", signal_name(signal))),
        (129..=192, None) => {
            Some(format!("exit code {code}, which is what shells tell of a death by {}", signal_name(code - 128)))
        }
        _ => Some(format!("exit code {code}")),
    }
}

fn signal_name(number: i32) -> String {
    const NAMES: [(Signal, &str); 18] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let name = NAMES.iter().find(|(signal, _)| signal.as_raw() == number);
    name.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

fn list(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    format!("process {}", pids.join(", "))
}
