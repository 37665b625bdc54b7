//! What a command costs on each level of the sandbox, against the same command without one and against a bare start of
//! the shell.
//!
//! All are measured in turns in the same run, so that what is ours is told from what the machine does. The workspaces
//! differ in how much has to be looked through for git repositories. `cargo bench -p terret-tools --bench sandbox`

#![allow(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use terret_agent::{FnTool, Tool as _, ToolContext};
use terret_tools::{BashOptions, Ladder, Level, Profile, Workspace, bash};

const ROUNDS: usize = 60;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let started = Instant::now();
    let ladder = Ladder::probe();
    println!("{ladder}\ntrying all levels: {:.1} ms\n", milliseconds(started.elapsed()));
    let levels: Vec<Level> = ladder.rungs.iter().filter(|rung| rung.holds.is_ok()).map(|rung| rung.level).collect();
    println!("{:<28} {:>9} {:>9} {:>13} {:>15}", "`true` in bash, ms", "p50", "p90", "to a bare bash", "to no sandbox");
    for (directories, files) in [(1, 10), (200, 10), (2_000, 25)] {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), directories, files);
        println!("{} files in {directories} directories", directories * files);
        runtime.block_on(compare(folder.path(), &levels));
    }
}

fn fill(folder: &Path, directories: usize, files: usize) {
    for directory in 0..directories {
        let directory = folder.join(format!("{}/{directory}", directory % 16));
        std::fs::create_dir_all(&directory).unwrap();
        (0..files).for_each(|file| std::fs::write(directory.join(file.to_string()), "").unwrap());
    }
    std::fs::create_dir_all(folder.join(".git/hooks")).unwrap();
    std::fs::write(folder.join(".git/config"), "[core]\n\tbare = false\n").unwrap();
}

async fn compare(folder: &Path, levels: &[Level]) {
    let tool = |level: Option<Level>| {
        let profile = if level.is_some() { Profile::Workspace } else { Profile::Full };
        let mut options = BashOptions::default();
        options.level = level;
        bash(&Workspace::new(folder).unwrap().profile(profile), options)
    };
    let open = tool(None);
    let held: Vec<FnTool> = levels.iter().map(|level| tool(Some(*level))).collect();
    let mut times = vec![Vec::new(); levels.len() + 2];
    for round in 0..ROUNDS + 5 {
        let mut took = vec![bare(folder), call(&open).await];
        for tool in &held {
            took.push(call(tool).await);
        }
        // The first ones fill caches and start guards.
        if round >= 5 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let at = |times: &[Duration], percent: usize| milliseconds(times[times.len() * percent / 100]);
    let names = ["bare bash", "no sandbox"].into_iter().chain(levels.iter().map(|level| level.name()));
    for (name, of_level) in names.zip(&times) {
        let p50 = at(of_level, 50);
        println!(
            "  {name:<26} {p50:>9.2} {:>9.2} {:>13.2} {:>15.2}",
            at(of_level, 90),
            p50 / at(&times[0], 50),
            p50 / at(&times[1], 50)
        );
    }
}

fn bare(folder: &Path) -> Duration {
    let started = Instant::now();
    let mut command = Command::new("bash");
    command.args(["-c", "true"]).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    started.elapsed()
}

async fn call(tool: &FnTool) -> Duration {
    let started = Instant::now();
    let output = tool.call(json!({"command": "true"}), ToolContext::detached("call")).await;
    assert!(!output.unwrap().is_error);
    started.elapsed()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
