//! Models, tools, gates and readers that misbehave: the run ends all the same, and says how.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use support::{Ran, agent, call, text};
use terret_agent::machine::{Answer, Budget, Failure, Limits, Outcome, Verdict, Violation};
use terret_agent::{Agent, Event, Question, SharedBudget, SharedLimits, ToolContext, tool};
use terret_llm::wire::WireFormat;
use terret_llm::{
    BlockKind, Draft, ErrorKind, Message, Model, ModelSpec, Price, Rates, ReplyStream, Request, ScriptedModel,
    ScriptedReply, StopReason, StreamEvent, ToolCall, Usage,
};
use tokio_util::sync::CancellationToken;

/// A model that is a function.
struct Made<F>(Arc<ModelSpec>, F);

fn made<F: Fn() -> ReplyStream + Send + Sync>(stream: F) -> Made<F> {
    Made(Arc::new(ModelSpec::new("test", "made", WireFormat::from("test"))), stream)
}

impl<F: Fn() -> ReplyStream + Send + Sync> Model for Made<F> {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.0
    }

    fn stream(&self, _: Request, _: CancellationToken) -> ReplyStream {
        (self.1)()
    }
}

#[tokio::test]
async fn a_model_that_panics_has_failed() {
    let at_once = Agent::builder(made(|| panic!("boom"))).build().unwrap();
    let in_poll = made(|| ReplyStream::new(futures_util::stream::poll_fn(|_| panic!("boom"))));
    for agent in [at_once, Agent::builder(in_poll).build().unwrap()] {
        let ran = Ran::to_end(agent.prompt("?")).await;
        match ran.outcome() {
            Outcome::Failed { failure: Failure::Model(error) } => {
                assert!(error.kind == ErrorKind::Protocol && error.message.contains("boom"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_always_ready_is_cancelled_all_the_same() {
    let endless = made(|| {
        let spec = ModelSpec::new("test", "made", WireFormat::from("test"));
        let mut draft = Draft::new(&spec);
        let index = draft.open(BlockKind::Text);
        draft.append(index, "x");
        let begun: Vec<StreamEvent> = std::iter::from_fn(|| draft.next_event()).collect();
        let again = begun.last().unwrap().clone();
        ReplyStream::new(futures_util::stream::iter(begun).chain(futures_util::stream::repeat(again)))
    });
    let run = Agent::builder(endless).build().unwrap().prompt("?");
    let handle = run.handle();
    let ended = tokio::spawn(run.report());
    tokio::time::sleep(Duration::from_millis(100)).await;
    handle.cancel("enough");
    let report = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the cancel is heard").unwrap();
    assert!(matches!(report.outcome, Outcome::Cancelled { .. }), "{:?}", report.outcome);
}

#[tokio::test]
async fn usage_beyond_all_measure_is_no_panic() {
    let mut usage = Usage::default();
    usage.input = u64::MAX;
    let replies = [call("c1", "add", r#"{"a":1,"b":2}"#).usage(usage), ScriptedReply::text("3.").usage(usage)];
    assert_eq!(Ran::to_end(agent(replies).build().unwrap().prompt("?")).await.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn an_approval_for_the_run_saves_questions_and_no_denials() {
    let gate = |_: &ToolCall, arguments: &serde_json::Value| match arguments["a"].as_i64() {
        Some(66) => Verdict::Deny { reason: "never 66".into() },
        _ => Verdict::Ask { question: "May it?".into() },
    };
    let one = |id: &str, a: u8| call(id, "add", &format!(r#"{{"a":{a},"b":1}}"#));
    let replies = [one("c1", 1), one("c2", 66), one("c3", 2), ScriptedReply::text("So.")];
    let mut run = agent(replies).gate(gate).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Asked(Question { call, digest, .. }) = &event {
            handle.answer(&call.id, digest, Answer::ApproveForRun);
        }
        events.push(event);
    }
    let ran = Ran { events };
    let results: Vec<String> = ran.results().iter().map(text).collect();
    assert_eq!(results, ["2", "The call was denied: never 66", "3"]);
    assert_eq!(ran.events.iter().filter(|event| matches!(event, Event::Asked(_))).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn prompts_of_a_session_run_in_the_order_in_which_they_were_given() {
    for _ in 0..20 {
        let session = agent((0..5).map(|_| ScriptedReply::text("yes"))).build().unwrap().session();
        let runs: Vec<_> = (0..5).map(|n| session.prompt(format!("{n}"))).collect();
        for run in runs {
            run.report().await;
        }
        let said = |message: &Arc<Message>| match &**message {
            Message::User(user) => user.content[0].as_text().map(str::to_owned),
            _ => None,
        };
        let said: Vec<String> = session.transcript().await.iter().filter_map(said).collect();
        assert_eq!(said, ["0", "1", "2", "3", "4"]);
    }
}

#[tokio::test]
async fn limits_that_are_switched_off_stay_off_on_disk() {
    let mut limits = Limits::default();
    (limits.repeats, limits.compaction) = (None, None);
    let kept: Limits = serde_json::from_str(&serde_json::to_string(&limits).unwrap()).unwrap();
    assert_eq!(kept, limits);
}

#[tokio::test]
async fn the_tools_of_the_last_permitted_reply_run_under_a_shared_budget_too() {
    let budget = SharedBudget::new(SharedLimits { model_calls: Some(1), ..SharedLimits::default() });
    let agent = agent([call("c1", "add", r#"{"a":1,"b":2}"#)]).shared_budget(budget).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!(text(&ran.results()[0]), "3");
    let out_of_calls = Outcome::OutOfBudget { budget: Budget::ModelCalls, still_running: Vec::new() };
    assert_eq!(ran.outcome(), &out_of_calls);
}

#[tokio::test]
async fn a_reader_that_comes_after_the_end_ends() {
    let run = agent([ScriptedReply::text("So.")]).build().unwrap().prompt("?");
    let handle = run.handle();
    run.report().await;
    tokio::task::yield_now().await;
    let mut late = handle.events();
    assert!(matches!(late.next().await, Some(Event::Ended(_))));
    assert_eq!(late.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_full_of_other_things_is_no_reason_for_a_summary() {
    let mut spec = ModelSpec::new("test", "small", WireFormat::from("scripted"));
    spec.context_window = Some(8_000);
    let mut usage = Usage::default();
    usage.input = 6_500;
    let replies = [call("c1", "add", r#"{"a":1,"b":1}"#).usage(usage), ScriptedReply::text("2.").usage(usage)];
    let model = ScriptedModel::new(replies).with_spec(spec);
    let agent = Agent::builder(model).tool(support::add()).build().unwrap();
    assert_eq!(Ran::to_end(agent.prompt("?")).await.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn a_model_that_repeats_a_call_that_is_rejected_or_unknown_is_warned_before_the_run_ends() {
    for (name, arguments) in [("add", r#"{"a":"x"}"#), ("missing", "{}")] {
        let replies = (0..9).map(|n| call(&format!("c{n}"), name, arguments));
        let ran = Ran::to_end(agent(replies).build().unwrap().prompt("?")).await;
        let out = Outcome::OutOfBudget { budget: Budget::Loop, still_running: Vec::new() };
        assert_eq!(ran.outcome(), &out);
        let warned: Vec<bool> = ran.results().iter().map(|it| text(it).contains("exactly this call 4 times")).collect();
        assert_eq!(warned.iter().filter(|warned| **warned).count(), 1, "{name}: {warned:?}");
        assert!(warned[3], "with the fourth");
    }
}

#[tokio::test]
async fn a_reply_that_pauses_without_having_said_anything_is_no_reply() {
    let empty = || ScriptedReply::text("").stop(StopReason::Pause);
    let ran = Ran::to_end(agent((0..9).map(|_| empty())).build().unwrap().prompt("?")).await;
    let nothing = Violation::NoContent(StopReason::Pause);
    assert_eq!(ran.outcome(), &Outcome::Failed { failure: Failure::Protocol(nothing) });
    assert_eq!(ran.report().spent.model_calls, 1);
}

#[tokio::test]
async fn an_approval_for_the_run_is_one_for_what_is_asked_about_at_the_same_time() {
    let calls = ["c1", "c2", "c3"].map(|id| ToolCall::new(id, "add", r#"{"a":1,"b":1}"#));
    let replies = [ScriptedReply::calls(calls), ScriptedReply::text("So.")];
    let ask = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "May it?".into() };
    let mut run = agent(replies).gate(ask).build().unwrap().prompt("?");
    let handle = run.handle();
    let (mut asked, mut approved) = (0, Vec::new());
    while let Some(event) = run.next().await {
        match event {
            Event::Asked(Question { call, digest, .. }) => {
                asked += 1;
                if asked == 3 {
                    handle.answer(&call.id, digest, Answer::ApproveForRun);
                }
            }
            Event::Approved { call } => approved.push(call.id.clone()),
            Event::Ended(report) => assert_eq!(report.outcome, Outcome::Completed),
            _ => {}
        }
    }
    approved.sort_unstable();
    assert_eq!((asked, approved), (3, vec!["c1".to_owned(), "c2".into(), "c3".into()]));
}

#[tokio::test]
async fn the_model_is_told_of_changed_arguments_whatever_came_of_the_call() {
    let replies = [call("c1", "add", r#"{"a":1,"b":1}"#), ScriptedReply::text("So.")];
    let ask = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "May it?".into() };
    let mut run = agent(replies).gate(ask).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Asked(Question { call, digest, .. }) = &event {
            handle.answer(&call.id, digest, Answer::Edit(r#"{"a":"no number"}"#.into()));
        }
        events.push(event);
    }
    let told = text(&Ran { events }.results()[0]);
    assert!(told.starts_with(r#"[The user changed the arguments to: {"a":"no number"}]"#), "{told}");
    assert!(told.contains("were rejected"), "{told}");
}

#[tokio::test]
async fn a_provider_that_tells_absurd_usage_harms_nobody() {
    let mut usage = Usage::default();
    (usage.input, usage.cache_read, usage.cache_write, usage.output) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    let mut spec = ModelSpec::new("test", "absurd", WireFormat::from("test"));
    spec.price = Some(Price::flat(Rates { input: u64::MAX, output: u64::MAX, ..Rates::default() }));
    let replies = [ScriptedReply::text("So.").usage(usage)];
    let agent = Agent::builder(ScriptedModel::new(replies).with_spec(spec)).build().unwrap();
    let report = agent.prompt("?").report().await;
    assert_eq!((report.outcome, report.spent.usage), (Outcome::Completed, usage));
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_for_ever_is_one_as_long_as_the_tool_needs() {
    let slow = tool("slow", "", |_: serde_json::Map<String, serde_json::Value>, context: ToolContext| async move {
        context.cancel.cancelled().await;
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        Ok("stopped")
    });
    let agent = agent([call("c1", "slow", "{}")]).tool(slow).grace(Duration::MAX).build().unwrap();
    let mut run = agent.prompt("?");
    while !matches!(run.next().await.unwrap(), Event::ToolStarted { .. }) {}
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cancelled = tokio::time::Instant::now();
    run.handle().cancel("enough");
    let report = run.report().await;
    assert!(matches!(report.outcome, Outcome::Cancelled { .. }), "{:?}", report.outcome);
    assert_eq!(cancelled.elapsed().as_secs(), 86_400);
}

#[test]
fn what_a_tool_has_left_at_work_is_told_when_the_run_is_lost() {
    let (tell, told) = std::sync::mpsc::channel();
    let works = tool("works", "", move |_: serde_json::Map<String, serde_json::Value>, context: ToolContext| {
        let tell = tell.clone();
        std::thread::spawn(move || {
            tell.send("begun").unwrap();
            while !context.cancel.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            tell.send("stopped").unwrap();
        });
        std::future::pending::<Result<String, _>>()
    });
    let agent = agent([call("c1", "works", "{}")]).tool(works).build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.block_on(async { agent.prompt("?").detach() });
    assert_eq!(told.recv(), Ok("begun"));
    drop(runtime);
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok("stopped"));
    drop(handle);
}
