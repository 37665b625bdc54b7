//! What is left of commands: nothing.

use std::time::Duration;

use serde_json::json;
use terret_agent::ToolContext;
use terret_tools::Level;

use super::{Arena, levels};
use crate::bash::{processes_with, unique_sleep};
use crate::project::eventually;

/// Starts five processes: a plain one, one in the background, one with nohup, one in a session of its own, and a daemon
/// that was forked twice.
fn escape(sleep: &str) -> String {
    format!(
        "sleep {sleep} & nohup sleep {sleep} >/dev/null 2>&1 & setsid sleep {sleep} & \
         (setsid sh -c 'sleep {sleep} & exit' >/dev/null 2>&1 &) ; sleep {sleep}"
    )
}

#[tokio::test]
async fn a_cancel_and_the_time_limit_leave_nothing() {
    for level in levels() {
        let (arena, sleep) = (Arena::new(Some(level)), unique_sleep());
        let context = ToolContext::detached("call");
        let cancel = context.cancel.clone();
        let call = arena.project.call_with("bash", json!({"command": escape(&sleep)}), context);
        let (answer, ()) = tokio::join!(call, async {
            assert!(eventually(|| processes_with(&sleep) == 5).await, "on {level}: {}", processes_with(&sleep));
            cancel.cancel();
        });
        assert!(answer.text.contains("Cancelled, and killed") && !answer.text.contains("could not"), "{}", answer.text);
        assert_eq!(processes_with(&sleep), 0, "on {level}");

        let limited = arena.project.call("bash", json!({"command": escape(&sleep), "timeout": 1})).await;
        assert!(limited.text.contains("the time limit"), "{}", limited.text);
        assert_eq!(processes_with(&sleep), 0, "on {level}");
    }
}

#[tokio::test]
async fn a_daemon_without_parent_session_and_environment_ends_with_its_namespace() {
    if !levels().contains(&Level::Bubblewrap) {
        skipped!("needs bubblewrap");
        return;
    }
    let (arena, sleep) = (Arena::new(Some(Level::Bubblewrap)), unique_sleep());
    let command =
        format!("(setsid env -i setsid sh -c 'sleep {sleep} & exit' >/dev/null 2>&1 &) ; sleep 0.3; sleep 600");
    let limited = arena.project.call("bash", json!({"command": command, "timeout": 1})).await;
    assert!(limited.text.contains("the time limit"), "{}", limited.text);
    assert!(eventually(|| processes_with(&sleep) == 0).await);
}

#[tokio::test]
async fn what_runs_on_in_the_background_is_named_and_ends_with_the_tools() {
    for level in levels() {
        let (arena, sleep) = (Arena::new(Some(level)), unique_sleep());
        let answer = arena.run(&format!("sleep {sleep} & echo started")).await;
        assert!(answer.text.starts_with("started\n\n[Still running in the background: process "), "{}", answer.text);
        assert_eq!(answer.details["background"].as_array().unwrap().len(), 1, "on {level}: {}", answer.details);
        assert_eq!(processes_with(&sleep), 1);
        let quiet = arena.run("sleep 0.01 & wait; echo done").await;
        assert_eq!(quiet.text, "done", "on {level}");
        drop(arena);
        assert!(eventually(|| processes_with(&sleep) == 0).await, "on {level}");
    }
}

#[tokio::test]
async fn what_ends_commands_runs_none_of_their_programs() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, options, around| {
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", around.join("project/bin").display());
            options.environment = options.environment.clone().set("PATH", path);
            workspace
        });
        let made = arena.path("made");
        let trap = format!("#!/bin/sh\necho evil >> {}\n", made.display());
        let arena = ["sh", "grep", "sleep"].iter().fold(arena, |arena, name| arena.file(&format!("bin/{name}"), &trap));
        arena.run(&format!("chmod +x bin/*; /bin/sleep {} & true", unique_sleep())).await;
        let directory = arena.project.without_tools();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!made.exists(), "on {level}");
        drop(directory);
    }
}

#[tokio::test]
async fn what_builds_the_walls_loads_no_libraries_of_commands() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, options, around| {
            let folder = around.join("project").to_str().unwrap().to_owned();
            options.environment = options.environment.clone().set("LD_LIBRARY_PATH", folder);
            workspace
        });
        // A program that loads these does not start.
        let arena = ["libc.so.6", "libcap.so.2"].iter().fold(arena, |arena, name| arena.file(name, "no library"));
        let answer = arena.project.call("bash", json!({"command": "echo started"})).await;
        assert!(!answer.text.contains("bwrap"), "on {level}: {}", answer.text);
    }
}

/// Not a test by itself: the program that is killed in the next one.
#[tokio::test]
#[ignore = "runs until it is killed"]
async fn program_that_is_killed() {
    let sleep = std::env::var("TEST_SLEEP").unwrap();
    let level = Level::ALL.iter().copied().find(|level| level.name() == std::env::var("TEST_LEVEL").unwrap());
    let arena = Arena::new(Some(level.unwrap()));
    arena.run(&format!("sleep {sleep} &")).await;
    arena.project.call("bash", json!({"command": escape(&sleep)})).await;
}

#[tokio::test]
async fn the_death_of_the_program_leaves_nothing() {
    for level in levels() {
        let sleep = unique_sleep();
        let temporary = tempfile::tempdir().unwrap();
        let mut program = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sandbox::survivors::program_that_is_killed", "--ignored"])
            .env("TEST_SLEEP", &sleep)
            .env("TEST_LEVEL", level.name())
            .env("TMPDIR", temporary.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(|| processes_with(&sleep) == 6).await, "on {level}: {}", processes_with(&sleep));
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(eventually(|| processes_with(&sleep) == 0).await, "on {level}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
