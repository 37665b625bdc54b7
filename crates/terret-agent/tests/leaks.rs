//! Nothing is left running, and nothing is kept, however runs end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use std::time::Duration;

use support::{add, call};
use terret_agent::machine::{Limits, Outcome};
use terret_agent::{Agent, Event, FnTool, Run, tool};
use terret_llm::{ErrorKind, ModelError, ScriptedModel, ScriptedReply};
use tokio::runtime::{Builder, Handle};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn waits() -> FnTool {
    tool("waits", "", |_: Nothing, context| async move {
        context.cancel.cancelled().await;
        Ok("")
    })
}

fn hangs() -> FnTool {
    tool("hangs", "", |_: Nothing, _| async { std::future::pending::<Result<&str, _>>().await })
}

fn starts(name: &str, stall: bool) -> Run {
    let second = ScriptedReply::text("Done.");
    let model = ScriptedModel::new([call("c1", name, "{}"), if stall { second.stall() } else { second }]);
    let mut limits = Limits::default();
    limits.wall_time = 600_000.try_into().ok();
    Agent::builder(model).tool(add()).tool(waits()).tool(hangs()).limits(limits).build().unwrap().prompt("?")
}

/// Reads until a tool runs.
async fn until_acting(run: &mut Run) {
    while !matches!(run.next().await, Some(Event::ToolStarted { .. }) | None) {}
}

async fn completed() {
    // The arguments don't fit: a result, and no tool.
    assert_eq!(starts("add", false).report().await.outcome, Outcome::Completed);
}

async fn cancelled(name: &str) {
    let mut run = starts(name, false);
    until_acting(&mut run).await;
    run.handle().cancel("enough");
    assert!(matches!(run.report().await.outcome, Outcome::Cancelled { .. }));
}

async fn dropped(name: &str) {
    let mut run = starts(name, false);
    until_acting(&mut run).await;
}

async fn dropped_at_once() {
    drop(starts("waits", false));
}

async fn out_of_time() {
    let report = starts("hangs", false).report().await;
    assert!(matches!(report.outcome, Outcome::OutOfBudget { .. }));
}

async fn dropped_while_the_model_is_silent() {
    let mut run = starts("add", true);
    while !matches!(run.next().await, Some(Event::ToolEnded { .. })) {}
    tokio::task::yield_now().await;
}

async fn failed() {
    let model = ScriptedModel::new([ScriptedReply::text("hm").error(ModelError::new(ErrorKind::Auth, "no"))]);
    let report = Agent::builder(model).build().unwrap().prompt("?").report().await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }));
}

async fn panicked() {
    let panics = tool("panics", "", |_: Nothing, _| async {
        if true {
            std::panic::resume_unwind(Box::new("a bug"));
        }
        Ok("")
    });
    let model = ScriptedModel::new([call("c1", "panics", "{}"), ScriptedReply::text("Done.")]);
    let report = Agent::builder(model).tool(panics).build().unwrap().prompt("?").report().await;
    assert_eq!(report.outcome, Outcome::Completed);
}

async fn handle_and_readers_outlive_it() {
    let mut run = starts("waits", false);
    until_acting(&mut run).await;
    let (handle, events) = (run.handle(), run.handle().events());
    drop(run);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!handle.steer("too late"), "a handle keeps no run alive");
    drop(events);
}

async fn one_of_each() {
    completed().await;
    cancelled("waits").await;
    cancelled("hangs").await;
    dropped("waits").await;
    dropped("hangs").await;
    dropped_at_once().await;
    out_of_time().await;
    dropped_while_the_model_is_silent().await;
    failed().await;
    panicked().await;
    handle_and_readers_outlive_it().await;
    // Runs that were dropped have their grace period.
    tokio::time::sleep(Duration::from_secs(10)).await;
}

#[test]
fn after_thousands_of_runs_no_task_is_left_and_no_memory() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let rounds = |count: u32| {
        runtime.block_on(async {
            for _ in 0..count {
                one_of_each().await;
            }
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 0, "tasks that nobody waits for");
        });
    };
    // What is made once for all is made here.
    rounds(50);
    let memory = allocation_counter::measure(|| rounds(250));
    assert!(memory.bytes_current < 16 * 1024, "{} bytes are kept of 2,750 runs", memory.bytes_current);
    println!("{memory:?}");
}
