//! The kit for users' own tests: what it records, and what it finds out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use terret_agent::machine::{Answer, Outcome, Verdict};
use terret_agent::testing::{self, ByTurn, Recorded, ScriptedReply, Subject, crash_everywhere};
use terret_agent::{Agent, AgentBuilder, EffectClass, Event, FnTool, Question, tool};
use terret_llm::ToolCall;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Deposit {
    cents: u32,
}

type Balance = Arc<AtomicU32>;

/// Waits, adds, and waits again, so that it can be cut off in between; the reply says what `told` says.
fn deposit(balance: &Balance, effect: EffectClass, told: fn(u32) -> String) -> FnTool {
    let balance = balance.clone();
    let deposit = move |Deposit { cents }: Deposit, _| {
        let balance = balance.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let now = balance.fetch_add(cents, Ordering::SeqCst) + cents;
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(told(now))
        }
    };
    tool("deposit", "Adds to a balance.", deposit).effect(effect)
}

fn agent(tool: FnTool) -> AgentBuilder {
    let replies = [
        ScriptedReply::calls([ToolCall::new("c1", "deposit", r#"{"cents":5}"#)]),
        ScriptedReply::calls([ToolCall::new("c2", "deposit", r#"{"cents":7}"#)]),
        ScriptedReply::text("Done."),
    ];
    Agent::builder(ByTurn::new(replies)).tool(tool)
}

fn says_nothing(_: u32) -> String {
    "done".into()
}

#[test]
fn a_run_is_recorded_and_its_waits_take_no_time() {
    let (balance, started) = (Balance::default(), Instant::now());
    let agent = agent(deposit(&balance, EffectClass::AtMostOnce, |now| now.to_string())).build().unwrap();
    let ran = testing::run(&agent, "Deposit.");
    assert_eq!(ran.assert_completed(), "Done.");
    ran.assert_called(&["deposit", "deposit"]);
    assert_eq!((ran.result("c1").as_deref(), ran.result("c2").as_deref()), (Some("5"), Some("12")));
    assert!(started.elapsed() < Duration::from_secs(60), "four minutes of waits");
}

#[test]
fn who_watches_may_answer_and_cancel() {
    let gate = |call: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: call.id.clone() };
    let balance = Balance::default();
    let agent = agent(deposit(&balance, EffectClass::AtMostOnce, says_nothing)).gate(gate).build().unwrap();
    let ran = testing::run_with(&agent, "Deposit.", |event, handle| match event {
        Event::Asked(Question { call, digest, .. }) if call.id == "c1" => {
            assert!(handle.answer("c1", &**digest, Answer::Approve));
        }
        Event::Asked(_) => handle.cancel("enough"),
        _ => {}
    });
    assert!(matches!(ran.outcome(), Outcome::Cancelled { .. }));
    ran.assert_called(&["deposit"]);
    assert_eq!(balance.load(Ordering::SeqCst), 5);
}

#[tokio::test(start_paused = true)]
async fn the_recorder_and_the_runner_work_in_a_test_that_has_a_runtime() {
    let agent = || agent(deposit(&Balance::default(), EffectClass::AtMostOnce, says_nothing)).build().unwrap();
    assert_eq!(Recorded::of(agent().prompt("Deposit.")).await.assert_completed(), "Done.");
    assert_eq!(testing::run(&agent(), "Deposit.").assert_completed(), "Done.");
}

#[test]
#[should_panic(expected = "the run doesn't end")]
fn a_run_that_does_not_end_is_found_out() {
    let hangs = tool("deposit", "", |_: Deposit, _| async { std::future::pending::<Result<&str, _>>().await });
    testing::run(&agent(hangs).build().unwrap(), "Deposit.");
}

#[test]
fn a_tool_that_runs_at_most_once_is_never_started_twice() {
    let crashes = crash_everywhere(
        || agent(deposit(&Balance::default(), EffectClass::AtMostOnce, says_nothing)).build().unwrap(),
        "Deposit.",
    );
    crashes.assert_sound();
    // 8 appends (the run, its first call; the reply; the verdict and the start; the result; …), before and after; two tools
    // with a start and two waits each.
    assert!(crashes.attempts > 2 * (2 * 8 + 2 * 3), "{crashes:?}");
    assert!(crashes.completed > crashes.attempts / 3, "most sessions go on to their end: {crashes:?}");
}

#[test]
fn a_tool_that_only_says_that_it_is_idempotent_is_found_out_by_what_it_returns() {
    let crashes = crash_everywhere(
        || agent(deposit(&Balance::default(), EffectClass::Idempotent, |now| now.to_string())).build().unwrap(),
        "Deposit.",
    );
    let found = crashes.problems.iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n");
    assert!(
        found.contains(r#"deposit (c1) is Idempotent, and returned "5" and then "10" for the same key"#),
        "{found}"
    );
}

#[test]
fn or_by_what_it_does_to_the_world() {
    for effect in [EffectClass::Idempotent, EffectClass::ReadOnly] {
        let crashes = crash_everywhere(
            || {
                let balance = Balance::default();
                let agent = agent(deposit(&balance, effect, says_nothing)).build().unwrap();
                Subject::new(agent).observed(move || balance.load(Ordering::SeqCst).to_string())
            },
            "Deposit.",
        );
        let found: Vec<String> = crashes.problems.iter().map(|problem| problem.to_string()).collect();
        // Cut off after it has added and before it has said so.
        let expected = r#"after a crash while deposit was running: the world is "17", and without it "12""#;
        assert!(found.iter().any(|it| it == expected), "{found:?}");
    }
}

#[test]
fn a_tool_that_is_idempotent_is_sound() {
    let crashes = crash_everywhere(
        || {
            // It keeps what it has done under the key of the call.
            let done: Arc<std::sync::Mutex<std::collections::BTreeMap<String, u32>>> = Arc::default();
            let kept = done.clone();
            let deposit = tool("deposit", "", move |Deposit { cents }: Deposit, context| {
                let kept = kept.clone();
                async move {
                    kept.lock().unwrap().insert(context.idempotency_key, cents);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok("done")
                }
            });
            let agent = agent(deposit.effect(EffectClass::Idempotent)).build().unwrap();
            Subject::new(agent).observed(move || done.lock().unwrap().values().sum::<u32>().to_string())
        },
        "Deposit.",
    );
    crashes.assert_sound();
}
