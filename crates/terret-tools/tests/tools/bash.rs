use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use terret_agent::{ProgressSender, ToolContext};
use terret_tools::{BashOptions, Environment, Profile};

use crate::project::{Project, eventually};

/// A duration for `sleep` that no other process sleeps, to tell its processes by.
pub(crate) fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("600.{}{:04}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// How many living processes have been started with this argument.
pub(crate) fn processes_with(argument: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| {
            line.starts_with(b"sleep\0") && line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes())
        })
        .count()
}

#[tokio::test]
async fn a_command_runs_in_the_root_and_its_output_is_returned() {
    let project = Project::new().file("a.txt", "");
    let answer = project.call("bash", json!({"command": "pwd; ls; echo error >&2; echo out"})).await;
    assert!(!answer.is_error);
    assert_eq!(answer.text, format!("{}\na.txt\nerror\nout", project.path("").to_str().unwrap().trim_end_matches('/')));
    assert_eq!(answer.details["exitCode"], 0);
    assert_eq!(project.ok("bash", json!({"command": "true"})).await, "(no output)");
}

#[tokio::test]
async fn it_is_bash_without_input_and_without_a_terminal() {
    let project = Project::new();
    assert_eq!(project.ok("bash", json!({"command": "[[ abc == a* ]] && echo ${BASH_VERSION:+bash}"})).await, "bash");
    assert_eq!(project.ok("bash", json!({"command": "cat; echo end"})).await, "end");
    let terminal = project.ok("bash", json!({"command": "(echo evil > /dev/tty) 2>/dev/null || echo none"})).await;
    assert_eq!(terminal, "none");
}

#[tokio::test]
async fn an_exit_code_is_an_error_that_keeps_the_output() {
    let project = Project::new();
    let answer = project.call("bash", json!({"command": "echo out; exit 3"})).await;
    assert!(answer.is_error);
    assert_eq!(answer.text, "out\n\n[exit code 3]");
    assert_eq!(answer.details["exitCode"], 3);
    assert_eq!(project.error("bash", json!({"command": "false"})).await, "(no output)\n\n[exit code 1]");
}

#[tokio::test]
async fn a_death_by_signal_is_128_and_its_number_with_its_name() {
    // Bubblewrap tells a death by signal as shells do.
    let project = Project::with(|workspace, _| workspace.profile(Profile::Full), BashOptions::default());
    let cases = [("TERM", 143), ("KILL", 137), ("SEGV", 139), ("ABRT", 134)];
    for (name, code) in cases {
        let answer = project.call("bash", json!({"command": format!("echo out; kill -{name} $$; sleep 5")})).await;
        assert!(answer.is_error);
        assert_eq!(answer.text, format!("out\n\n[exit code {code}: killed by SIG{name}]"));
        assert_eq!(answer.details["exitCode"], code);
        assert_eq!(answer.details["signal"], format!("SIG{name}"));
    }
    let inner = project.error("bash", json!({"command": "sh -c 'kill -KILL $$'; exit $?"})).await;
    assert!(inner.ends_with("[exit code 137, which is what shells tell of a death by SIGKILL]"), "{inner}");
}

#[tokio::test]
async fn at_the_limit_everything_is_killed_and_the_output_so_far_is_kept() {
    let (project, sleep) = (Project::new(), unique_sleep());
    let started = Instant::now();
    let command = format!("echo begun; sleep {sleep} & sleep {sleep}");
    let answer = project.call("bash", json!({"command": command, "timeout": 1})).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(answer.is_error);
    assert!(answer.text.starts_with("begun\n\n[Killed after 1 s, the time limit."), "{}", answer.text);
    assert_eq!((&answer.details["timedOut"], answer.details.get("exitCode")), (&json!(true), None));
    assert_eq!(processes_with(&sleep), 0);
}

#[tokio::test]
async fn what_ignores_the_request_to_end_or_leaves_its_group_is_killed_too() {
    let (project, sleep) = (Project::new(), unique_sleep());
    let command = format!(
        "trap '' TERM; setsid sleep {sleep} & (setsid nohup setsid sleep {sleep} >/dev/null 2>&1 &) ; sleep {sleep}"
    );
    let answer = project.call("bash", json!({"command": command, "timeout": 1})).await;
    assert!(answer.is_error);
    assert_eq!(processes_with(&sleep), 0);
    assert!(!answer.text.contains("could not be killed"), "{}", answer.text);
}

#[tokio::test]
async fn a_command_has_time_to_clean_up() {
    let project = Project::new();
    let command = "trap 'echo cleaned > done; exit' TERM; while :; do sleep 0.05; done";
    project.error("bash", json!({"command": command, "timeout": 1})).await;
    assert_eq!(project.content("done"), b"cleaned\n");
}

#[tokio::test]
async fn a_limit_is_set_by_the_embedder_where_the_model_sets_none() {
    let mut options = BashOptions::default();
    assert_eq!(options.timeout, Duration::from_secs(120));
    options.timeout = Duration::from_millis(300);
    let project = Project::with(|workspace, _| workspace, options);
    let error = project.error("bash", json!({"command": "sleep 60"})).await;
    assert!(error.contains("[Killed after 0.3 s"), "{error}");
}

#[tokio::test]
async fn a_cancel_kills_everything_and_keeps_the_output_so_far() {
    let (project, sleep) = (Project::new(), unique_sleep());
    let context = ToolContext::detached("call");
    let cancel = context.cancel.clone();
    let command = format!("echo begun; touch begun; sleep {sleep} & sleep {sleep}");
    let begun = project.path("begun");
    let (answer, ()) = tokio::join!(project.call_with("bash", json!({"command": command}), context), async {
        assert!(eventually(|| begun.exists()).await);
        cancel.cancel();
    });
    assert_eq!(answer.text, "begun\n\n[Cancelled, and killed.]");
    assert!(answer.is_error);
    assert_eq!(processes_with(&sleep), 0);
}

#[tokio::test]
async fn a_command_that_was_cancelled_before_it_started_does_not_start() {
    let project = Project::new();
    let context = ToolContext::detached("call");
    context.cancel.cancel();
    let answer = project.call_with("bash", json!({"command": "touch done"}), context).await;
    assert!(answer.is_error);
    assert!(!project.path("done").exists());
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_running() {
    let (project, sleep) = (Project::new(), unique_sleep());
    let command = format!("setsid sleep {sleep} & sleep {sleep} & sleep {sleep}");
    {
        let call = project.call("bash", json!({"command": command}));
        let begun = eventually(|| processes_with(&sleep) == 3);
        tokio::select! {
            _ = call => panic!("it sleeps"),
            begun = begun => assert!(begun),
        }
    }
    assert!(eventually(|| processes_with(&sleep) == 0).await);
}

#[tokio::test]
async fn a_daemon_that_holds_the_pipe_does_not_hold_the_call() {
    // In a sandbox, commands don't reach each other.
    let project = Project::with(|workspace, _| workspace.profile(Profile::Full), BashOptions::default());
    let sleep = unique_sleep();
    let started = Instant::now();
    let answer = project.call("bash", json!({"command": format!("sleep {sleep} & echo started")})).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(!answer.is_error);
    assert!(answer.text.starts_with("started\n\n[Still running in the background: process "), "{}", answer.text);
    assert_eq!(processes_with(&sleep), 1);
    // The next command finds it alive, and it ends with the tools.
    project.ok("bash", json!({"command": format!("kill -0 {}", answer.details["background"][0])})).await;
    drop(project);
    assert!(eventually(|| processes_with(&sleep) == 0).await);
}

#[tokio::test]
async fn a_daemon_that_writes_for_ever_neither_holds_the_call_nor_dies_of_it() {
    let project = Project::new();
    let command = "until [ -e stop ]; do sleep 0.02; echo tick; echo x >> ticks; done & echo started";
    let started = Instant::now();
    let answer = project.call("bash", json!({"command": command})).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(answer.text.starts_with("started\n"), "{}", answer.text);
    let size = || std::fs::metadata(project.path("ticks")).map_or(0, |ticks| ticks.len());
    let before = size();
    assert!(eventually(|| size() > before + 10).await);
    std::fs::write(project.path("stop"), "").unwrap();
    let id = answer.details["background"][0].to_string();
    assert!(eventually(|| !Path::new("/proc").join(&id).exists()).await);
}

#[tokio::test]
async fn a_daemon_that_left_its_session_ends_with_the_tools() {
    let (project, sleep) = (Project::new(), unique_sleep());
    let command = format!("(setsid nohup sleep {sleep} >/dev/null 2>&1 &)");
    let answer = project.call("bash", json!({"command": command})).await;
    assert!(answer.text.contains("Still running in the background"), "{}", answer.text);
    drop(project);
    assert!(eventually(|| processes_with(&sleep) == 0).await);
}

/// Not a test by itself: the program that is killed in the next one.
#[tokio::test]
#[ignore = "runs until it is killed"]
async fn program_that_is_killed() {
    let sleep = std::env::var("TEST_SLEEP").unwrap();
    let project = Project::new();
    project.call("bash", json!({"command": format!("sleep {sleep} &")})).await;
    project.call("bash", json!({"command": format!("setsid sleep {sleep} & sleep {sleep}")})).await;
}

#[tokio::test]
async fn the_death_of_the_program_ends_its_commands() {
    let sleep = unique_sleep();
    let temporary = tempfile::tempdir().unwrap();
    let mut program = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bash::program_that_is_killed", "--ignored"])
        .env("TEST_SLEEP", &sleep)
        .env("TMPDIR", temporary.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(eventually(|| processes_with(&sleep) == 3).await);
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(eventually(|| processes_with(&sleep) == 0).await);
}

/// Not a test by itself: the program that is killed together with its guard in the next one.
#[tokio::test]
#[ignore = "runs until it is killed"]
async fn program_that_is_killed_with_its_guard() {
    let sleep = std::env::var("TEST_SLEEP").unwrap();
    let mut context = ToolContext::detached("c1");
    context.idempotency_key = format!("run {sleep}/c1");
    let command = format!("setsid sleep {sleep} & env -i sleep {sleep} & sleep {sleep}; true");
    Project::new().call_with("bash", json!({"command": command}), context).await;
}

#[tokio::test]
async fn what_outlived_the_program_and_its_guard_is_killed_when_the_call_is_discovered() {
    let sleep = unique_sleep();
    let temporary = tempfile::tempdir().unwrap();
    let mut program = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bash::program_that_is_killed_with_its_guard", "--ignored"])
        .env("TEST_SLEEP", &sleep)
        .env("TMPDIR", temporary.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(eventually(|| processes_with(&sleep) == 3).await);
    for guard in guards_of(program.id()) {
        rustix::process::kill_process(guard, rustix::process::Signal::KILL).unwrap();
    }
    program.kill().unwrap();
    program.wait().unwrap();

    let workspace = terret_tools::Workspace::new(temporary.path()).unwrap();
    let tool: terret_agent::SharedTool = Arc::new(terret_tools::bash(&workspace, BashOptions::default()));
    assert_eq!(tool.discover(&format!("run {sleep}/c2")).await, None, "another call");
    assert_eq!(processes_with(&sleep), 3);
    let told = tool.discover(&format!("run {sleep}/c1")).await.unwrap();
    assert_eq!(processes_with(&sleep), 0);
    let text = format!("{told:?}");
    assert!(told.is_error && text.contains("was still running now, and was killed"), "{text}");
    assert_eq!(tool.discover(&format!("run {sleep}/c1")).await, None, "nothing is left, and so nothing is known");
}

/// The guards among the children of a process.
fn guards_of(parent: u32) -> Vec<rustix::process::Pid> {
    let is_guard = |path: &Path| {
        let read = |name: &str| std::fs::read(path.join(name)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().collect::<Vec<_>>());
        let is_child = fields.is_some_and(|fields| fields[1] == parent.to_string());
        is_child && read("cmdline").split(|byte| *byte == 0).any(|part| part == b"terret-guard")
    };
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let guards = processes.filter(|path| is_guard(path));
    guards.filter_map(|path| rustix::process::Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)).collect()
}

#[tokio::test]
async fn of_a_long_output_the_beginning_and_the_end_are_shown_and_the_rest_is_kept() {
    let project = Project::new();
    let answer = project.call("bash", json!({"command": "seq 1 100000; echo last"})).await;
    assert!(answer.text.len() < 53_000, "{}", answer.text.len());
    assert!(answer.text.starts_with("1\n2\n3\n") && answer.text.ends_with("\n100000\nlast"));
    // The numbers up to 100000, one a line, are 588,895 bytes.
    assert_eq!(answer.details["bytes"], 588_895 + 5);
    let file = answer.details["outputFile"].as_str().unwrap().to_owned();
    assert!(answer.text.contains(&format!("the whole output is in {file}]")));
    let all: String = (1..=100_000).map(|number| format!("{number}\n")).chain(["last\n".to_owned()]).collect();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), all);

    // What is said to be left out is what isn't there.
    let (head, rest) = answer.text.split_once("\n\n[").unwrap();
    let (note, tail) = rest.split_once("]\n\n").unwrap();
    let (head, tail) = (head.lines().count(), tail.lines().count());
    assert!(note.starts_with(&format!("{} lines, ", 100_001 - head - tail)), "{note}");
    assert!(head + tail <= 2_000);

    // The model reads on with the tools that it has.
    let page = project.ok("read", json!({"path": file, "offset": 50_000, "limit": 1})).await;
    assert!(page.starts_with("50000\n\n["), "{page}");
    let error = project.error("write", json!({"path": file, "content": ""})).await;
    assert!(error.contains("outside the workspace"), "{error}");
    drop(project);
    assert!(!Path::new(&file).exists());
}

#[tokio::test]
async fn outputs_are_kept_where_the_embedder_wants_them() {
    let change = |workspace: terret_tools::Workspace, around: &Path| {
        std::fs::create_dir(around.join("outputs")).unwrap();
        workspace.keep_outputs_in(around.join("outputs")).unwrap()
    };
    let project = Project::with(change, BashOptions::default());
    let answer = project.call("bash", json!({"command": "seq 1 3000"})).await;
    let file = Path::new(answer.details["outputFile"].as_str().unwrap());
    assert_eq!(file.parent().unwrap(), project.path("../outputs").canonicalize().unwrap());
    assert!(file.exists());
}

#[tokio::test]
async fn a_line_without_end_shows_its_beginning_and_its_end() {
    let project = Project::new();
    let command = "printf begin; head -c 3000000 /dev/zero | tr '\\0' x; printf end";
    let answer = project.call("bash", json!({"command": command})).await;
    assert!(answer.text.starts_with("beginxxx") && answer.text.ends_with("xxxend"));
    assert!(answer.text.len() < 53_000, "{}", answer.text.len());
    assert_eq!(answer.details["bytes"], 3_000_008);
}

#[tokio::test]
async fn of_an_output_that_is_too_long_to_keep_the_beginning_is_kept_and_that_is_said() {
    let project = Project::new();
    let command = "printf begin; head -c 70000000 /dev/zero | tr '\\0' x; printf end";
    let answer = project.call("bash", json!({"command": command})).await;
    assert!(answer.text.starts_with("beginxxx") && answer.text.ends_with("xxxend"));
    let file = answer.details["outputFile"].as_str().unwrap();
    let kept = 64 * 1024 * 1024;
    assert!(answer.text.contains(&format!("; the first {kept} bytes of the output are in {file}]")));
    let content = std::fs::read(file).unwrap();
    assert_eq!(content.len(), kept);
    assert!(content.starts_with(b"begin") && content[5..].iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn a_flood_is_stopped_by_the_limit_and_counted() {
    let project = Project::new();
    let answer = project.call("bash", json!({"command": "yes", "timeout": 1})).await;
    assert!(answer.text.contains("[Killed after 1 s"), "{}", answer.text.len());
    assert!(answer.text.len() < 53_000, "{}", answer.text.len());
    assert!(answer.details["bytes"].as_u64().unwrap() > 100_000, "{}", answer.details);
}

#[tokio::test]
async fn what_is_meant_for_a_terminal_is_cleaned() {
    let project = Project::new();
    let command = r"printf '\033[31mred\033[0m \033]0;title\a10%%\r100%%\n\303'; sleep 0.2; printf '\251 \377\n'";
    assert_eq!(project.ok("bash", json!({"command": command})).await, "100%\né \u{fffd}");
}

#[tokio::test]
async fn progress_is_told_while_a_command_runs() {
    let project = Project::new();
    let (sender, mut updates) = tokio::sync::mpsc::channel(100);
    let mut context = ToolContext::detached("call");
    context.progress = ProgressSender::new("call".to_owned(), sender);
    let command = r"echo one; until [ -e go ]; do sleep 0.02; done; printf '\033[1mtwo\n'";
    let go = project.path("go");
    let (answer, first) = tokio::join!(project.call_with("bash", json!({"command": command}), context), async {
        let first = updates.recv().await;
        std::fs::write(&go, "").unwrap();
        first
    });
    assert_eq!(first, Some(("call".to_owned(), "one\n".to_owned())));
    assert_eq!(answer.text, "one\ntwo");
}

#[tokio::test]
async fn commands_see_an_allow_list_of_the_environment() {
    // These are set by cargo for tests, and stand for a key that must not be seen.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some() && std::env::var_os("PATH").is_some());
    let project = Project::new();
    let seen = project.ok("bash", json!({"command": "env"})).await;
    let value = |name: &str| seen.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    assert_eq!(value("CARGO_PKG_NAME"), None);
    assert_eq!(value("CARGO_MANIFEST_DIR"), None);
    assert_eq!(value("PATH"), std::env::var("PATH").ok().as_deref());
    let set =
        [("AI_AGENT", "terret"), ("NO_COLOR", "1"), ("GIT_TERMINAL_PROMPT", "0"), ("PAGER", "cat"), ("TERM", "dumb")];
    for (name, expected) in set {
        assert_eq!(value(name), Some(expected), "{name}");
    }

    let mut options = BashOptions::default();
    options.environment = Environment::default().pass("CARGO_PKG_NAME").set("EXTRA", "a b");
    let project = Project::with(|workspace, _| workspace, options);
    let seen = project.ok("bash", json!({"command": "echo $CARGO_PKG_NAME $EXTRA"})).await;
    assert_eq!(seen, "terret-tools a b");
}

#[tokio::test]
async fn a_command_that_cannot_be_run_says_why() {
    let project = Project::new();
    let error = project.error("bash", json!({"command": "echo a\u{0}b"})).await;
    assert!(error.contains("NUL"), "{error}");
    let error = project.error("bash", json!({"command": format!("echo {}", "x".repeat(3_000_000))})).await;
    assert!(error.contains("too long"), "{error}");
    std::fs::remove_dir(project.path("")).unwrap();
    let error = project.error("bash", json!({"command": "true"})).await;
    assert!(error.starts_with("The command could not be run"), "{error}");
}
