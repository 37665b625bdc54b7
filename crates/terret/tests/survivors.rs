//! A program with a real session and real commands is killed; the next one finds no command that outlived it, runs none
//! twice, and tells the model the truth.
//!
//! The random part is short by default: `TERRET_CRASH_KILLS=300 cargo test -p terret --test survivors --release`.

#![cfg(all(feature = "store", feature = "tools", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use terret_agent::machine::{Outcome, Record};
use terret_agent::{Agent, Journal as _, Session, SessionId, fold};
use terret_llm::{Message, ScriptedModel, ScriptedReply, ToolCall};
use terret_store::SqliteJournal;
use terret_tools::{BashOptions, Workspace, bash};

#[tokio::test]
async fn a_command_that_outlived_its_program_and_the_guard_is_killed_before_the_model_is_called() {
    let place = Place::new();
    let sleep = format!("611.{}", std::process::id());
    let mut program = place.start(&format!("setsid sleep {sleep} & sleep {sleep}"));
    eventually(|| sleeping(&sleep) == 2).await;
    for guard in guards_of(program.id()) {
        kill_process(guard, Signal::KILL).unwrap();
    }
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(sleeping(&sleep), 2);

    let model = ScriptedModel::new([ScriptedReply::text("I see.")]);
    let session = place.open(model.clone()).await;
    assert_eq!(session.go_on().report().await.outcome, Outcome::Completed);
    assert_eq!(sleeping(&sleep), 0);
    let told = format!("{:?}", model.requests()[0].messages.last().unwrap());
    assert!(told.contains("was still running now, and was killed"), "{told}");
}

#[tokio::test]
async fn killed_at_random_instants_no_command_runs_twice_or_outlives_the_resume() {
    let kills: u64 = std::env::var("TERRET_CRASH_KILLS").map_or(8, |kills| kills.parse().unwrap());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut in_doubt = 0;
    for number in 0..kills {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let place = Place::new();
        let sleep = format!("612.{}{number:04}", std::process::id());
        let command = format!("echo start >> log; (setsid sleep {sleep} &); sleep 0.05; echo end >> log");
        let mut program = place.start(&command);
        eventually(|| place.0.path().join("opened").exists()).await;
        tokio::time::sleep(Duration::from_micros(random % 150_000)).await;
        program.kill().unwrap();
        program.wait().unwrap();
        let kept = SqliteJournal::new(place.0.path().join("sessions")).load(&id()).await.unwrap();

        let replied = kept.iter().any(|record| matches!(record, Record::ReplyAccepted { .. }));
        let script = [calls(&command), ScriptedReply::text("Done.")].into_iter().skip(usize::from(replied));
        let session = place.open(ScriptedModel::new(script)).await;
        if fold(&kept).run().is_none() {
            if kept.is_empty() {
                assert_eq!(session.prompt("Do it.").report().await.outcome, Outcome::Completed);
            }
        } else {
            assert_eq!(session.go_on().report().await.outcome, Outcome::Completed);
        }
        let log = std::fs::read_to_string(place.0.path().join("work/log")).unwrap_or_default();
        assert!(log.matches("start").count() <= 1, "{log}");
        let result = session.transcript().await.iter().find_map(|message| match &**message {
            Message::ToolResult(result) => Some(format!("{:?}", result.content)),
            _ => None,
        });
        let result = result.unwrap();
        if !result.contains("Still running in the background") {
            in_doubt += 1;
            assert!(result.contains("Outcome unknown") || result.contains("was stopped while"), "{result}");
        }
        drop(session);
        eventually(|| sleeping(&sleep) == 0).await;
    }
    println!("{in_doubt} of {kills} were killed while the command was open");
}

fn id() -> SessionId {
    "session".to_owned().into()
}

fn calls(command: &str) -> ScriptedReply {
    let arguments = serde_json::json!({ "command": command }).to_string();
    ScriptedReply::calls([ToolCall::new("c1", "bash", arguments)])
}

/// A folder for sessions, and one to work in.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("work")).unwrap();
        Self(place)
    }

    /// A program whose model asks for a command.
    fn start(&self, command: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_program", "--ignored", "--nocapture", "--quiet"])
            .env("TERRET_PLACE", self.0.path())
            .env("TERRET_SHELL_COMMAND", command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn open(&self, model: ScriptedModel) -> Session {
        open(self.0.path(), model).await
    }
}

async fn open(place: &Path, model: ScriptedModel) -> Session {
    let workspace = Workspace::new(place.join("work")).unwrap();
    let agent = Agent::builder(model).tool(bash(&workspace, BashOptions::default())).build().unwrap();
    agent.open(Arc::new(SqliteJournal::new(place.join("sessions"))), id()).await.unwrap()
}

#[tokio::test]
#[ignore = "run by the other tests in a process of its own"]
async fn a_program() {
    let Some(place) = std::env::var_os("TERRET_PLACE").map(PathBuf::from) else { return };
    let command = std::env::var("TERRET_SHELL_COMMAND").unwrap();
    let session = open(&place, ScriptedModel::new([calls(&command), ScriptedReply::text("Done.")])).await;
    std::fs::write(place.join("opened"), "").unwrap();
    session.prompt("Do it.").report().await;
}

async fn eventually(happens: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if happens() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened");
}

/// How many processes sleep for so long.
fn sleeping(argument: &str) -> usize {
    let lines = processes().filter_map(|process| std::fs::read(process.join("cmdline")).ok());
    lines.filter(|line| *line == format!("sleep\0{argument}\0").as_bytes()).count()
}

/// The guards among the children of a process.
fn guards_of(parent: u32) -> Vec<Pid> {
    let is_guard = |process: &PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let parent_of = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(1)?.parse().ok());
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        parent_of == Some(parent) && line.split(|byte| *byte == 0).any(|part| part == b"terret-guard")
    };
    let id = |process: PathBuf| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?);
    processes().filter(is_guard).filter_map(id).collect()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path())
}
