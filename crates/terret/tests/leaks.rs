//! After a hundred runs whose commands were cut off, in every way, no process is left.

#![cfg(all(target_os = "linux", feature = "tools"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::time::{Duration, Instant};

use terret::prelude::*;
use terret::tools::{BashOptions, Workspace, workspace_tools};

/// A duration for `sleep` that no other process sleeps.
fn unique_sleep() -> String {
    format!("600.{}", std::process::id())
}

/// An agent whose model starts a command that leaves its group, one in the background, and one that it waits for.
fn agent(workspace: &Workspace, timeout: Duration, limits: Limits) -> Agent {
    let sleep = unique_sleep();
    let command = format!("echo begun; setsid sleep {sleep} & sleep {sleep} & sleep {sleep}");
    let arguments = serde_json::json!({ "command": command }).to_string();
    let model = ScriptedModel::new([
        ScriptedReply::calls([ToolCall::new("1", "bash", arguments)]),
        ScriptedReply::text("It was cut off."),
    ]);
    let mut options = BashOptions::default();
    options.timeout = timeout;
    Agent::builder(model).tools(workspace_tools(workspace, options)).limits(limits).build().unwrap()
}

/// The command lines of all living descendants of this process, and of whatever sleeps as long as only they do.
fn left() -> Vec<String> {
    let stat = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        Some((id, parent, format!("{} {line}", stat.split(' ').nth(1)?)))
    };
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let all: Vec<(u32, u32, String)> = ids.filter_map(stat).collect();
    let ours =
        |(_, parent, line): &&(u32, u32, String)| *parent == std::process::id() || line.contains(&unique_sleep());
    all.iter().filter(ours).map(|(_, _, line)| line.replace('\0', " ")).collect()
}

#[derive(Clone, Copy)]
enum CutOff {
    Cancelled,
    Dropped,
    Interrupted,
    ByItsTimeLimit,
    ByTheRunsTimeLimit,
}

async fn cut_off(how: CutOff, workspace: Workspace) {
    let mut limits = Limits::default();
    let mut timeout = Duration::from_secs(60);
    match how {
        CutOff::ByItsTimeLimit => timeout = Duration::from_millis(500),
        CutOff::ByTheRunsTimeLimit => limits.wall_time = 500.try_into().ok(),
        _ => {}
    }
    let mut run = agent(&workspace, timeout, limits).prompt("Sleep.");
    let handle = run.handle();
    loop {
        match run.next().await.expect("it ends in an event") {
            Event::ToolProgress { text, .. } if text.contains("begun") => {
                assert!(!left().is_empty(), "what is not seen while it runs proves nothing");
                match how {
                    CutOff::Cancelled => handle.cancel("enough"),
                    CutOff::Interrupted => assert!(handle.interrupt("something else")),
                    CutOff::Dropped => return,
                    CutOff::ByItsTimeLimit | CutOff::ByTheRunsTimeLimit => {}
                }
            }
            Event::Ended(_) => return,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_hundred_commands_that_were_cut_off_no_process_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::new(folder.path()).unwrap();
    use CutOff::*;
    for _ in 0..4 {
        let ways = [Cancelled, Dropped, Interrupted, ByItsTimeLimit, ByTheRunsTimeLimit];
        let runs = ways.iter().cycle().take(25).map(|how| tokio::spawn(cut_off(*how, workspace.clone())));
        for run in runs.collect::<Vec<_>>() {
            run.await.unwrap();
        }
    }
    let waits = Instant::now();
    while !left().is_empty() {
        assert!(waits.elapsed() < Duration::from_secs(30), "still there: {:#?}", left());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
