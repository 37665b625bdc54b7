//! Runs on a scripted model: what each ends in, and what it leaves in the transcript.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::{Ran, add, agent, call, text};
use terret_agent::machine::{Answer, Budget, Failure, Limits, Outcome, QueueKind, Queued, Record, Verdict, Violation};
use terret_agent::{
    Agent, AgentError, Event, FnTool, Journal as _, MemoryJournal, Question, SessionId, ToolError, ToolOutput, fold,
    tool,
};
use terret_llm::wire::WireFormat;
use terret_llm::{
    ErrorKind, Message, ModelError, ModelSpec, Money, Price, Rates, ScriptedModel, ScriptedReply, StopReason, ToolCall,
    Usage,
};
use tokio::sync::Notify;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

async fn run(replies: impl IntoIterator<Item = ScriptedReply>) -> Ran {
    Ran::to_end(agent(replies).build().unwrap().prompt("What is 2 + 3?")).await
}

fn out_of(budget: Budget) -> Outcome {
    Outcome::OutOfBudget { budget, still_running: Vec::new() }
}

fn cancelled(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled { .. })
}

#[tokio::test]
async fn a_call_its_result_and_a_final_answer() {
    let ran = run([call("c1", "add", r#"{"a":2,"b":3}"#), ScriptedReply::text("It is 5.")]).await;
    let messages = ran.messages();
    assert_eq!(messages.len(), 4, "prompt, call, result, answer");
    let Message::ToolResult(result) = &*messages[2] else { panic!("{messages:?}") };
    assert_eq!((text(result).as_str(), result.tool_call_id.as_str(), result.is_error), ("5", "c1", false));
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert_eq!(ran.report().text.as_deref(), Some("It is 5."));
    assert_eq!((ran.report().spent.model_calls, ran.report().spent.tool_calls), (2, 1));
    let ends = ran.events.iter().filter(|event| matches!(event, Event::Ended(_))).count();
    assert_eq!(ends, 1, "one outcome, and it is the last event");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_results_that_the_model_can_repair() {
    for (arguments, named) in [
        (r#"{"a":2,"b":"#, "EOF"),
        (r#"{"a":2}"#, "\"b\" is a required property"),
        (r#"{"a":2,"b":3,"c":4}"#, "'c' was unexpected"),
        (r#"{"a":2,"b":null}"#, "/b: null is not of type \"integer\""),
        (r#"{"a":2,"b":128}"#, "/b: 128 is greater than the maximum of 127"),
        (r#"{"a":2,"b":"3"}"#, "/b: \"3\" is not of type \"integer\""),
        (r#"{"a":2,"b":3} and so on"#, "trailing characters"),
        (r#"[2,3]"#, "is not of type \"object\""),
    ] {
        let ran =
            run([call("c1", "add", arguments), call("c2", "add", r#"{"a":2,"b":3}"#), ScriptedReply::text("5")]).await;
        let results = ran.results();
        let rejection = text(&results[0]);
        assert!(results[0].is_error && rejection.contains(named), "{arguments}: {rejection}");
        assert!(rejection.ends_with(&format!("Received: {arguments}")), "{rejection}");
        assert_eq!(text(&results[1]), "5");
        assert_eq!(ran.tools_started(), ["c2"], "{arguments}");
        assert_eq!(ran.outcome(), &Outcome::Completed);
    }
}

#[tokio::test]
async fn every_violation_is_listed_at_once() {
    let ran = run([call("c1", "add", r#"{"a":"x","b":300,"c":1}"#), ScriptedReply::text("sorry")]).await;
    let rejection = text(&ran.results()[0]);
    for place in ["/a: ", "/b: ", "'c' was unexpected"] {
        assert!(rejection.contains(place), "{rejection}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_a_result_that_names_the_known_ones() {
    let ran = run([call("c1", "subtract", "{}"), ScriptedReply::text("I can't.")]).await;
    let result = &ran.results()[0];
    assert!(result.is_error);
    assert_eq!(text(result), "There is no tool \"subtract\". The tools are: add.");
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert!(ran.tools_started().is_empty());
}

#[tokio::test]
async fn a_tools_own_error_is_a_result() {
    let broken = tool("broken", "", |_: Nothing, _| async { Err::<ToolOutput, _>(ToolError::new("no such city")) });
    let replies = [call("c1", "broken", "{}"), ScriptedReply::text("No such city.")];
    let ran = Ran::to_end(agent(replies).tool(broken).build().unwrap().prompt("?")).await;
    assert_eq!((text(&ran.results()[0]).as_str(), ran.results()[0].is_error), ("no such city", true));
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn a_panic_in_a_tool_is_that_tools_error() {
    let broken = tool("broken", "", |_: Nothing, _| async {
        if true {
            panic!("index out of range");
        }
        Ok("")
    });
    let replies = [call("c1", "broken", "{}"), ScriptedReply::text("It broke.")];
    let ran = Ran::to_end(agent(replies).tool(broken).build().unwrap().prompt("?")).await;
    assert!(ran.results()[0].is_error);
    assert!(text(&ran.results()[0]).contains("index out of range"));
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn a_failed_model_call_ends_the_run_and_leaves_nothing_of_it() {
    let error = ModelError::new(ErrorKind::Auth, "no such key");
    let ran = run([ScriptedReply::text("Let me s").error(error.clone())]).await;
    assert_eq!(ran.outcome(), &Outcome::Failed { failure: Failure::Model(error) });
    assert_eq!(ran.messages().len(), 1, "the prompt only");
    assert!(
        ran.events.iter().any(|event| matches!(event, Event::AttemptFailed { .. })),
        "the reader is told to discard"
    );
}

#[tokio::test]
async fn a_reply_with_an_empty_or_used_call_id_is_refused_before_anything_runs() {
    let twice = ScriptedReply::calls(["c1", "c1"].map(|id| ToolCall::new(id, "add", r#"{"a":1,"b":1}"#)));
    for (replies, violation, started) in [
        (vec![call("", "add", r#"{"a":1,"b":1}"#)], Violation::EmptyCallId, 0),
        (vec![twice], Violation::RepeatedCallId("c1".into()), 0),
        (
            vec![call("c1", "add", r#"{"a":1,"b":1}"#), call("c1", "add", r#"{"a":1,"b":1}"#)],
            Violation::RepeatedCallId("c1".into()),
            1,
        ),
    ] {
        let ran = run(replies).await;
        assert_eq!(ran.outcome(), &Outcome::Failed { failure: Failure::Protocol(violation) });
        assert_eq!(ran.tools_started().len(), started);
    }
}

#[tokio::test]
async fn a_reply_without_content_fails_clearly() {
    let no_calls = ScriptedReply::text("let me see").stop(StopReason::ToolUse);
    for (reply, violation) in [
        (ScriptedReply::new([]), Violation::NoContent(StopReason::Stop)),
        (ScriptedReply::text(" \n"), Violation::NoContent(StopReason::Stop)),
        (no_calls, Violation::ToolUseWithoutCalls),
    ] {
        let ran = run([reply]).await;
        assert_eq!(ran.outcome(), &Outcome::Failed { failure: Failure::Protocol(violation) });
    }
}

#[tokio::test]
async fn the_last_permitted_calls_tool_runs_and_then_the_budget_ends_the_run() {
    let model = ScriptedModel::new([
        call("c1", "add", r#"{"a":1,"b":1}"#),
        call("c2", "add", r#"{"a":2,"b":2}"#),
        ScriptedReply::text("never asked for"),
    ]);
    let agent = Agent::builder(model.clone()).tool(add()).max_model_calls(2).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!(ran.outcome(), &out_of(Budget::ModelCalls));
    assert_eq!(ran.results().iter().map(text).collect::<Vec<_>>(), ["2", "4"]);
    assert_eq!(model.requests().len(), 2, "no further model call");
}

#[test]
fn a_budget_of_zero_is_refused() {
    assert_eq!(agent([]).max_model_calls(0).build().unwrap_err(), AgentError::ZeroLimit("max_model_calls"));
}

#[tokio::test]
async fn a_cancel_before_the_call_means_no_call() {
    let model = ScriptedModel::new([ScriptedReply::text("hi")]);
    let run = Agent::builder(model.clone()).build().unwrap().prompt("?");
    run.handle().cancel("changed my mind");
    let ran = Ran::to_end(run).await;
    assert_eq!(ran.outcome(), &Outcome::Cancelled { reason: "changed my mind".into(), still_running: Vec::new() });
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_cancel_right_after_a_tool_request_means_no_tool() {
    let mut run = agent([call("c1", "add", r#"{"a":1,"b":1}"#)]).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Message(message) = &event
            && message.tool_calls().next().is_some()
        {
            handle.cancel("stop");
        }
        events.push(event);
    }
    let ran = Ran { events };
    assert!(cancelled(ran.outcome()));
    assert!(ran.tools_started().is_empty());
    assert!(text(&ran.results()[0]).starts_with("Not executed"), "the model will be told");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_inside_a_tool_is_a_start_without_an_end_and_then_the_outcome() {
    let sleepy = tool("sleepy", "", |_: Nothing, context| async move {
        context.cancel.cancelled().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok("too late")
    });
    let mut run = agent([call("c1", "sleepy", "{}")]).tool(sleepy).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if matches!(event, Event::ToolStarted { .. }) {
            handle.cancel("stop");
        }
        events.push(event);
    }
    let ran = Ran { events };
    assert_eq!(ran.outcome(), &Outcome::Cancelled { reason: "stop".into(), still_running: Vec::new() });
    assert_eq!(ran.tools_started(), ["c1"]);
    assert!(ran.tools_ended().is_empty(), "output after a cancel is not accepted");
}

#[tokio::test]
async fn the_prompt_after_a_cancelled_tool_tells_the_model_the_truth() {
    let hangs = tool("hangs", "", |_: Nothing, _| async { std::future::pending::<Result<&str, _>>().await });
    let replies = [call("c1", "hangs", "{}"), ScriptedReply::text("All right.")];
    let agent = agent(replies).tool(hangs).grace(Duration::from_millis(10)).build().unwrap();
    let session = agent.session();
    let mut first = session.prompt("go");
    while let Some(event) = first.next().await {
        if matches!(event, Event::ToolStarted { .. }) {
            first.handle().cancel("stop");
        }
    }
    let second = Ran::to_end(session.prompt("never mind")).await;
    assert_eq!(second.outcome(), &Outcome::Completed);
    assert!(text(&second.results()[0]).starts_with("Outcome unknown"), "{:?}", second.results());
    let roles = session.transcript().await.iter().map(|message| role(message)).collect::<Vec<_>>();
    assert_eq!(roles, ["user", "assistant", "toolResult", "user", "assistant"]);
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::ToolResult(_) => "toolResult",
    }
}

#[tokio::test]
async fn calls_of_a_cut_off_reply_are_not_executed_and_the_model_can_repair() {
    let ran = run([
        call("c1", "add", r#"{"a":2,"b":"#).stop(StopReason::Length),
        call("c2", "add", r#"{"a":2,"b":3}"#),
        ScriptedReply::text("5"),
    ])
    .await;
    assert!(text(&ran.results()[0]).starts_with("Not executed: the reply was cut off"));
    assert_eq!(ran.tools_started(), ["c2"]);
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn results_stand_in_request_order_and_ends_come_in_completion_order() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Wait {
        ms: u64,
    }
    let wait = tool("wait", "", |wait: Wait, _| async move {
        tokio::time::sleep(Duration::from_millis(wait.ms)).await;
        Ok(wait.ms.to_string())
    });
    let calls = [("c1", 30), ("c2", 20), ("c3", 10)];
    let calls = calls.map(|(id, ms)| ToolCall::new(id, "wait", format!(r#"{{"ms":{ms}}}"#)));
    let replies = [ScriptedReply::calls(calls), ScriptedReply::text("done")];
    let ran = Ran::to_end(agent(replies).tool(wait).build().unwrap().prompt("?")).await;
    assert_eq!(ran.tools_started(), ["c1", "c2", "c3"]);
    assert_eq!(ran.tools_ended(), ["c3", "c2", "c1"]);
    assert_eq!(ran.results().iter().map(text).collect::<Vec<_>>(), ["30", "20", "10"]);
}

#[tokio::test]
async fn no_more_tools_run_at_once_than_are_allowed_and_exclusive_ones_run_alone() {
    let running = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let counted = |name: &str| {
        let (running, most) = (running.clone(), most.clone());
        tool(name, "", move |_: Nothing, _| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                let beside = running.fetch_sub(1, Ordering::SeqCst) - 1;
                Ok(beside.to_string())
            }
        })
    };
    let names = ["shared", "shared", "shared", "alone", "shared"];
    let calls = names.iter().enumerate().map(|(n, name)| ToolCall::new(format!("c{n}"), *name, "{}"));
    let agent = agent([ScriptedReply::calls(calls), ScriptedReply::text("done")])
        .tool(counted("shared"))
        .tool(counted("alone").exclusive())
        .max_parallel_tools(2)
        .build()
        .unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(text(&ran.results()[3]), "0", "nothing ran beside the exclusive one");
}

#[tokio::test]
async fn a_denied_call_is_a_result_with_the_reason() {
    let gate = |call: &ToolCall, _: &serde_json::Value| match call.id.as_str() {
        "c1" => Verdict::Deny { reason: "not on a Sunday".into() },
        _ => Verdict::Allow,
    };
    let replies =
        [call("c1", "add", r#"{"a":1,"b":1}"#), call("c2", "add", r#"{"a":1,"b":1}"#), ScriptedReply::text("2")];
    let ran = Ran::to_end(agent(replies).gate(gate).build().unwrap().prompt("?")).await;
    assert_eq!(text(&ran.results()[0]), "The call was denied: not on a Sunday");
    assert_eq!(ran.tools_started(), ["c2"]);
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn a_refusal_fails_the_run() {
    let refusals = [ScriptedReply::text("I can't help with that."), call("c1", "add", r#"{"a":1,"b":1}"#)];
    for refusal in refusals {
        let ran = run([refusal.stop(StopReason::Refusal), ScriptedReply::text("never asked for")]).await;
        assert_eq!(ran.outcome(), &Outcome::Failed { failure: Failure::Refused });
        assert_eq!(ran.report().spent.model_calls, 1);
        assert!(ran.tools_started().is_empty());
    }
}

#[tokio::test]
async fn a_pause_is_another_model_call_on_the_same_budget() {
    let replies = || [ScriptedReply::text("searching").stop(StopReason::Pause), ScriptedReply::text("found")];
    let ran = run(replies()).await;
    assert_eq!((ran.outcome(), ran.report().spent.model_calls), (&Outcome::Completed, 2));
    let short = Ran::to_end(agent(replies()).max_model_calls(1).build().unwrap().prompt("?")).await;
    assert_eq!(short.outcome(), &out_of(Budget::ModelCalls));
}

/// A tool that goes on when it is told to.
fn waits_for(release: &Arc<Notify>) -> FnTool {
    let release = release.clone();
    tool("wait", "", move |_: Nothing, _| {
        let release = release.clone();
        async move {
            release.notified().await;
            Ok("went on")
        }
    })
}

#[tokio::test]
async fn calls_of_a_paused_reply_are_not_executed() {
    let replies = [call("c1", "add", r#"{"a":1,"b":1}"#).stop(StopReason::Pause), ScriptedReply::text("done")];
    let ran = run(replies).await;
    assert!(text(&ran.results()[0]).starts_with("Not executed: the provider paused"));
    assert!(ran.tools_started().is_empty());
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn what_the_type_does_not_take_is_rejected_before_the_tool_starts() {
    // JSON Schema counts 1.0 as an integer.
    let ran = run([call("c1", "add", r#"{"a":1.0,"b":1}"#), ScriptedReply::text("done")]).await;
    let rejection = text(&ran.results()[0]);
    assert!(rejection.contains("1.0") && rejection.ends_with(r#"Received: {"a":1.0,"b":1}"#), "{rejection}");
    assert!(ran.tools_started().is_empty());
}

#[tokio::test]
async fn what_the_machine_says_about_a_huge_call_is_short() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Words {
        #[expect(dead_code, reason = "only its schema counts")]
        words: Vec<String>,
    }
    let words = tool("words", "", |_: Words, _| async { Ok("") });
    let arguments = format!(r#"{{"words":[{}1]}}"#, "1,".repeat(100_000));
    let replies =
        [call("c1", "words", &arguments), call("c2", &"x".repeat(100_000), "{}"), ScriptedReply::text("done")];
    let ran = Ran::to_end(agent(replies).tool(words).build().unwrap().prompt("?")).await;
    for result in ran.results() {
        assert!(text(&result).len() < 10_000, "{} bytes", text(&result).len());
    }
    assert!(text(&ran.results()[0]).contains("and 99981 more"));
}

#[tokio::test]
async fn steering_comes_before_the_next_model_call_and_a_follow_up_when_the_run_would_end() {
    let release = Arc::new(Notify::new());
    let replies = [call("c1", "wait", "{}"), ScriptedReply::text("2"), ScriptedReply::text("4")];
    let model = ScriptedModel::new(replies);
    let mut run = Agent::builder(model.clone()).tool(waits_for(&release)).build().unwrap().prompt("1 + 1?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        match event {
            Event::ToolStarted { .. } => assert!(handle.follow_up("and 2 + 2?") && handle.steer("in digits")),
            Event::Queued(Queued { kind: QueueKind::Steering, .. }) => release.notify_one(),
            _ => {}
        }
        events.push(event);
    }
    assert!(!handle.steer("too late"), "a run that has ended takes no messages");
    let ran = Ran { events };
    assert_eq!(ran.outcome(), &Outcome::Completed);
    let last_user = |n: usize| {
        let request = &model.requests()[n];
        request.messages.iter().rev().find_map(|message| user_text(message)).unwrap()
    };
    assert_eq!((last_user(1).as_str(), last_user(2).as_str()), ("in digits", "and 2 + 2?"));
}

#[tokio::test]
async fn what_was_queued_and_not_delivered_is_handed_back() {
    let release = Arc::new(Notify::new());
    let agent = agent([call("c1", "wait", "{}")]).tool(waits_for(&release)).max_model_calls(1).build().unwrap();
    let mut run = agent.prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        match event {
            Event::ToolStarted { .. } => assert!(handle.steer("more")),
            Event::Queued { .. } => release.notify_one(),
            _ => {}
        }
        events.push(event);
    }
    let ran = Ran { events };
    assert_eq!(ran.outcome(), &out_of(Budget::ModelCalls));
    assert_eq!(user_text(&ran.report().undelivered[0]).as_deref(), Some("more"));
}

fn user_text(message: &Message) -> Option<String> {
    match message {
        Message::User(user) => user.content.first()?.as_text().map(str::to_owned),
        _ => None,
    }
}

#[tokio::test]
async fn the_records_of_a_run_fold_to_its_state() {
    let journal = MemoryJournal::new();
    let replies = [call("c1", "add", r#"{"a":2,"b":3}"#), ScriptedReply::text("5")];
    let agent = agent(replies).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), SessionId::new()).await.unwrap();
    Ran::to_end(session.prompt("2 + 3?")).await;
    let records = journal.records(session.id());
    assert_eq!(fold(&records).transcript(), &session.transcript().await);
    let reopened = agent.open(Arc::new(journal), session.id().clone()).await.unwrap();
    assert_eq!(reopened.transcript().await, session.transcript().await);
}

#[tokio::test]
async fn usage_and_cost_of_all_calls_are_added_up() {
    let tokens = |input, output| {
        let mut usage = Usage::default();
        (usage.input, usage.output) = (input, output);
        usage
    };
    let ran = run([
        call("c1", "add", r#"{"a":1,"b":1}"#).usage(tokens(100, 10)),
        ScriptedReply::text("2").usage(tokens(120, 5)),
    ])
    .await;
    assert_eq!(ran.report().spent.usage, tokens(220, 15));
}

#[tokio::test]
async fn dropping_a_run_cancels_it() {
    let stopped = Arc::new(Notify::new());
    let told = stopped.clone();
    let waits = tool("waits", "", move |_: Nothing, context| {
        let told = told.clone();
        async move {
            context.cancel.cancelled().await;
            told.notify_one();
            Ok("")
        }
    });
    let session = agent([call("c1", "waits", "{}")]).tool(waits).build().unwrap().session();
    let mut run = session.prompt("?");
    while let Some(event) = run.next().await {
        if matches!(event, Event::ToolStarted { .. }) {
            break;
        }
    }
    drop(run);
    tokio::time::timeout(Duration::from_secs(10), stopped.notified()).await.expect("the tool was told to stop");
    // The transcript can be read once the run has ended.
    tokio::time::timeout(Duration::from_secs(10), session.transcript()).await.expect("the run has ended");
}

#[tokio::test]
async fn a_result_of_100_mb_is_cut_and_that_is_said() {
    let flood = tool("flood", "", |_: Nothing, _| async { Ok("x".repeat(100 << 20)) });
    let replies = [call("c1", "flood", "{}"), ScriptedReply::text("a lot")];
    let ran = Ran::to_end(agent(replies).tool(flood).output_limit(1000).build().unwrap().prompt("?")).await;
    let shown = text(&ran.results()[0]);
    assert!(shown.len() < 1200 && shown.contains("of 104857600 bytes left out"), "{}", shown.len());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_model_is_silent_ends_the_run() {
    let mut run = agent([ScriptedReply::text("hm").stall()]).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if matches!(event, Event::Delta { .. }) {
            handle.cancel("bored");
        }
        events.push(event);
    }
    assert!(cancelled(Ran { events }.outcome()));
}

fn usage(output: u64) -> Usage {
    let mut usage = Usage::default();
    usage.output = output;
    usage
}

fn calls_for_ever() -> impl Iterator<Item = ScriptedReply> {
    (1..100).map(|n| call(&format!("c{n}"), "add", &format!(r#"{{"a":{n},"b":1}}"#)).usage(usage(10)))
}

#[tokio::test]
async fn each_budget_ends_the_run_with_its_own_outcome() {
    let with = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    for (limits, budget, model_calls, tool_calls) in [
        (with(|l| l.model_calls = 3.try_into().unwrap()), Budget::ModelCalls, 3, 3),
        (with(|l| l.tool_calls = Some(2.try_into().unwrap())), Budget::ToolCalls, 3, 2),
        // The call that goes beyond the limit is the last one, and its tool runs.
        (with(|l| l.tokens = Some(25.try_into().unwrap())), Budget::Tokens, 3, 3),
        (with(|l| l.cost = Some(Money::from_nanos(15))), Budget::Cost, 2, 2),
    ] {
        let mut spec = ModelSpec::new("test", "test", WireFormat::from("test"));
        spec.price = Some(Price::flat(Rates { output: 1_000_000, ..Rates::default() }));
        let model = ScriptedModel::new(calls_for_ever()).with_spec(spec);
        let agent = Agent::builder(model).tool(add()).limits(limits).build().unwrap();
        let ran = Ran::to_end(agent.prompt("?")).await;
        let spent = ran.report().spent;
        assert_eq!(ran.outcome(), &out_of(budget));
        assert_eq!((spent.model_calls, spent.tool_calls), (model_calls, tool_calls), "{budget:?}");
        assert_eq!(ran.results().len(), model_calls as usize, "every call has its result");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_up_is_stopped_in_the_middle_of_a_tool() {
    let hangs = tool("hangs", "", |_: Nothing, _| async { std::future::pending::<Result<&str, _>>().await });
    let mut limits = Limits::default();
    limits.wall_time = Some(5000.try_into().unwrap());
    let started = tokio::time::Instant::now();
    let agent = agent([call("c1", "hangs", "{}")]).tool(hangs).limits(limits).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!(ran.outcome(), &out_of(Budget::WallTime));
    assert!(started.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn the_same_call_over_and_over_is_warned_about_and_then_ends_the_run() {
    let again = (1..20).map(|n| call(&format!("c{n}"), "add", r#"{"a":1,"b":1}"#));
    let ran = run(again).await;
    assert_eq!(ran.outcome(), &out_of(Budget::Loop));
    let warned: Vec<bool> = ran.results().iter().map(|result| text(result).contains("times in a row")).collect();
    assert_eq!(warned, [false, false, false, true, true, true, true, true]);
    assert_eq!(ran.tools_started().len(), 7, "the eighth is not executed");
}

#[tokio::test]
async fn a_loop_of_calls_that_never_run_ends_the_run_too() {
    let unknown = (1..20).map(|n| call(&format!("c{n}"), "nosuch", "{}"));
    let paused = (1..20).map(|n| call(&format!("c{n}"), "add", "{}").stop(StopReason::Pause));
    let rejected = (1..20).map(|n| call(&format!("c{n}"), "add", "{}"));
    for replies in [unknown.collect::<Vec<_>>(), paused.collect(), rejected.collect()] {
        let ran = run(replies).await;
        assert_eq!(ran.outcome(), &out_of(Budget::Loop));
        assert_eq!(ran.report().spent.model_calls, 8);
    }
}

#[tokio::test]
async fn other_arguments_are_not_the_same_call() {
    let replies = calls_for_ever().take(30).chain([ScriptedReply::text("done")]);
    assert_eq!(run(replies).await.outcome(), &Outcome::Completed);
}

/// Runs a call about which a person is asked, and answers.
async fn asked(answer: Answer) -> Ran {
    let gate = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "May it add?".into() };
    let replies = [call("c1", "add", r#"{"a":1,"b":1}"#), ScriptedReply::text("done")];
    let mut run = agent(replies).gate(gate).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Asked(Question { call, text: question, digest, .. }) = &event {
            assert_eq!(question, "May it add?");
            // An answer to other arguments changes nothing.
            handle.answer(&*call.id, "0000", Answer::Deny { reason: "not you".into() });
            handle.answer(&*call.id, digest, answer.clone());
        }
        events.push(event);
    }
    Ran { events }
}

#[tokio::test]
async fn a_person_approves_denies_or_edits_a_call() {
    let approved = asked(Answer::Approve).await;
    assert_eq!(text(&approved.results()[0]), "2");

    let denied = asked(Answer::Deny { reason: "too easy".into() }).await;
    assert_eq!(text(&denied.results()[0]), "The call was denied: too easy");
    assert!(denied.tools_started().is_empty());

    let edited = asked(Answer::Edit(r#"{"a":20,"b":22}"#.into())).await;
    let shown = text(&edited.results()[0]);
    assert_eq!(shown, r#"[The user changed the arguments to: {"a":20,"b":22}]42"#);

    let unfit = asked(Answer::Edit(r#"{"a":20}"#.into())).await;
    assert!(text(&unfit.results()[0]).contains("\"b\" is a required property"), "edited arguments are validated");
    assert!(unfit.tools_started().is_empty());
}

#[tokio::test]
async fn an_approval_for_the_run_is_asked_for_once() {
    let gate = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "?".into() };
    let replies =
        [call("c1", "add", r#"{"a":1,"b":1}"#), call("c2", "add", r#"{"a":2,"b":2}"#), ScriptedReply::text("done")];
    let mut run = agent(replies).gate(gate).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Asked(Question { call, digest, .. }) = &event {
            handle.answer(&*call.id, digest, Answer::ApproveForRun);
        }
        events.push(event);
    }
    let questions = events.iter().filter(|event| matches!(event, Event::Asked(_))).count();
    let ran = Ran { events };
    assert_eq!((questions, ran.tools_started().len()), (1, 2));
}

#[tokio::test]
async fn a_question_survives_a_restart() {
    let gate = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "?".into() };
    let journal = MemoryJournal::new();
    let id = SessionId::new();
    let first = agent([call("c1", "add", r#"{"a":1,"b":1}"#)]).gate(gate).build().unwrap();
    let session = first.open(Arc::new(journal.clone()), id.clone()).await.unwrap();
    let mut run = session.prompt("?");
    while let Some(event) = run.next().await {
        if matches!(event, Event::Asked(_)) {
            break;
        }
    }
    // The process dies here: what another one finds are the records.
    let records = journal.records(&id);
    let after = MemoryJournal::new();
    after.append(&id, 0, &records).await.unwrap();

    let second = agent([ScriptedReply::text("done")]).gate(gate).build().unwrap();
    let mut run = second.open(Arc::new(after), id).await.unwrap().go_on();
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Asked(Question { call, digest, .. }) = &event {
            handle.answer(&*call.id, digest, Answer::Approve);
        }
        events.push(event);
    }
    let ran = Ran { events };
    assert_eq!(text(&ran.results()[0]), "2");
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

/// A journal that holds the first records of a whole run of one call: as many as are before the first that `cut` names.
async fn cut_at(cut: fn(&Record) -> bool) -> (MemoryJournal, SessionId) {
    let journal = MemoryJournal::new();
    let replies = [call("c1", "add", r#"{"a":1,"b":1}"#), ScriptedReply::text("2")];
    let whole = agent(replies).build().unwrap().open(Arc::new(journal.clone()), SessionId::new()).await.unwrap();
    Ran::to_end(whole.prompt("1 + 1?")).await;
    let records = journal.records(whole.id());
    let kept = records.iter().position(cut).unwrap();
    let (journal, id) = (MemoryJournal::new(), SessionId::new());
    journal.append(&id, 0, &records[..kept]).await.unwrap();
    (journal, id)
}

#[tokio::test]
async fn a_prompt_to_an_interrupted_run_is_answered_wherever_it_was_interrupted() {
    for (cut, replies) in [
        // Before the first model call, in it, in its tool, and with nothing left to do but to end. The prompt is heard
        // before the model is called again.
        ((|it| matches!(it, Record::ModelCalled { .. })) as fn(&Record) -> bool, 1),
        (|it| matches!(it, Record::ReplyAccepted { .. }), 1),
        (|it| matches!(it, Record::CallClosed { .. }), 1),
        (|it| matches!(it, Record::RunEnded { .. }), 1),
    ] {
        let (journal, id) = cut_at(cut).await;
        let model = ScriptedModel::new((0..replies).map(|_| ScriptedReply::text("answered")));
        let agent = Agent::builder(model.clone()).tool(add()).build().unwrap();
        let session = agent.open(Arc::new(journal), id).await.unwrap();
        let ran = Ran::to_end(session.prompt("and 2 + 2?")).await;
        assert_eq!(ran.outcome(), &Outcome::Completed);
        assert!(ran.report().undelivered.is_empty());
        let asked = model.requests().last().unwrap().messages.iter().rev().find_map(|message| user_text(message));
        assert_eq!(asked.as_deref(), Some("and 2 + 2?"));
        assert_eq!(role(session.transcript().await.last().unwrap()), "assistant");
    }
}
