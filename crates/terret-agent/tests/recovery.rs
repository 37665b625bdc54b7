//! Model calls that fail: tried again on a recorded schedule, by another model, or after a summary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Ran, agent, call};
use terret_agent::machine::{CompactionLimits, Failure, Limits, Outcome, Record, Recovery};
use terret_agent::{Agent, Event, MemoryJournal, SessionId, Summarize, Summary, SummaryFailed};
use terret_llm::wire::WireFormat;
use terret_llm::{
    ErrorKind, Message, Model, ModelError, ModelSpec, Money, Price, Rates, ScriptedModel, ScriptedReply, StopReason,
    Usage,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn overloaded() -> ScriptedReply {
    ScriptedReply::text("Let me s").error(ModelError::new(ErrorKind::Overloaded, "come back later"))
}

fn failing(kind: ErrorKind) -> ScriptedReply {
    ScriptedReply::text("").error(ModelError::new(kind, "no"))
}

fn recoveries(ran: &Ran) -> Vec<Option<Recovery>> {
    let recovery =
        |event: &Event| if let Event::AttemptFailed { recovery, .. } = event { Some(*recovery) } else { None };
    ran.events.iter().filter_map(recovery).collect()
}

fn failed_with(ran: &Ran) -> ErrorKind {
    match ran.outcome() {
        Outcome::Failed { failure: Failure::Model(error) } => error.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_in_mid_stream_is_tried_again_and_the_reader_is_told_to_discard() {
    let started = Instant::now();
    let ran = Ran::to_end(agent([overloaded(), ScriptedReply::text("So.")]).build().unwrap().prompt("?")).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert_eq!(ran.report().text.as_deref(), Some("So."));
    assert!(matches!(recoveries(&ran)[..], [Some(Recovery::Retry { .. })]));
    assert_eq!(ran.messages().len(), 2, "nothing of the failed attempt is in the transcript");
    let waited = started.elapsed();
    assert!((Duration::from_millis(750)..=Duration::from_millis(1_001)).contains(&waited), "{waited:?}");
    assert_eq!(ran.report().spent.model_calls, 2);
}

#[tokio::test(start_paused = true)]
async fn after_three_tries_the_run_fails_with_the_last_error() {
    let started = Instant::now();
    let ran = Ran::to_end(agent([overloaded(), overloaded(), overloaded()]).build().unwrap().prompt("?")).await;
    assert_eq!(failed_with(&ran), ErrorKind::Overloaded);
    assert!(matches!(recoveries(&ran)[..], [Some(_), Some(_), None]));
    let waited = started.elapsed();
    assert!((Duration::from_millis(2_250)..=Duration::from_millis(3_002)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_asks_to_wait_is_waited_unless_it_is_too_long() {
    let limited = |seconds| {
        let error = ModelError::new(ErrorKind::RateLimited, "slowly").with_retry_after(Duration::from_secs(seconds));
        agent([ScriptedReply::text("").error(error), ScriptedReply::text("So.")]).build().unwrap()
    };
    let started = Instant::now();
    assert_eq!(Ran::to_end(limited(7).prompt("?")).await.outcome(), &Outcome::Completed);
    assert_eq!(started.elapsed().as_secs(), 7);
    let started = Instant::now();
    assert_eq!(failed_with(&Ran::to_end(limited(61).prompt("?")).await), ErrorKind::RateLimited);
    assert_eq!(started.elapsed().as_secs(), 0, "it fails at once");
}

#[tokio::test(start_paused = true)]
async fn tries_that_the_model_itself_has_made_count() {
    let mut error = ModelError::new(ErrorKind::Overloaded, "3 tries failed");
    error.tries = 3;
    let ran = Ran::to_end(agent([ScriptedReply::text("").error(error)]).build().unwrap().prompt("?")).await;
    assert_eq!(recoveries(&ran), [None]);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_another_try_does_not_help_is_not_tried_again() {
    for kind in [ErrorKind::Auth, ErrorKind::InvalidRequest, ErrorKind::Quota, ErrorKind::Refused] {
        let ran = Ran::to_end(agent([failing(kind)]).build().unwrap().prompt("?")).await;
        assert_eq!((recoveries(&ran), failed_with(&ran)), (vec![None], kind));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_during_the_wait_ends_the_run_at_once() {
    let started = Instant::now();
    let mut run = agent([overloaded()]).build().unwrap().prompt("?");
    let handle = run.handle();
    while let Some(event) = run.next().await {
        if let Event::AttemptFailed { .. } = event {
            handle.cancel("enough");
        }
        if let Event::Ended(report) = event {
            assert!(matches!(report.outcome, Outcome::Cancelled { .. }), "{:?}", report.outcome);
        }
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_retry_would_come_after_the_deadline_so_the_run_fails_with_the_error_itself() {
    let mut limits = Limits::default();
    limits.wall_time = 500.try_into().ok();
    let ran = Ran::to_end(agent([overloaded()]).limits(limits).build().unwrap().prompt("?")).await;
    assert_eq!(failed_with(&ran), ErrorKind::Overloaded);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_keeps_the_schedule_of_its_retry() {
    let journal = MemoryJournal::new();
    let id = SessionId::new();
    let replies = [overloaded(), ScriptedReply::text("So.")];
    let session = agent(replies.clone()).build().unwrap().open(Arc::new(journal.clone()), id.clone()).await.unwrap();
    let mut run = session.prompt("?");
    while !matches!(run.next().await, Some(Event::AttemptFailed { .. })) {}
    // The process dies here: what is in the journal is all that there is.
    let records = journal.records(&id);
    let Some(Record::AttemptFailed { recovery: Some(Recovery::Retry { at }), .. }) = records.last() else {
        panic!("{:?}", records.last())
    };
    let (copy, copied) = (MemoryJournal::new(), SessionId::new());
    terret_agent::Journal::append(&copy, &copied, 0, &records).await.unwrap();
    drop(run);

    let early = Duration::from_millis(300);
    tokio::time::advance(early).await;
    let resumed = agent([ScriptedReply::text("So.")])
        .build()
        .unwrap()
        .open(Arc::new(copy.clone()), copied.clone())
        .await
        .unwrap();
    let ran = Ran::to_end(resumed.go_on()).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert!(matches!(copy.records(&copied)[records.len()], Record::Resumed));
    // The wall clock stands still in this test, so that the time that is left is the whole wait or less.
    assert!(*at > 0);
}

fn named(name: &'static str, replies: impl IntoIterator<Item = ScriptedReply>) -> ScriptedModel {
    let mut spec = ModelSpec::new("scripted", name, WireFormat::from("scripted"));
    let rates = Rates { output: if name == "dear" { 100_000_000 } else { 1_000_000 }, ..Rates::default() };
    spec.price = Some(Price::flat(rates));
    ScriptedModel::new(replies).with_spec(spec)
}

fn said(text: &str, output: u64) -> ScriptedReply {
    let mut usage = Usage::default();
    usage.output = output;
    ScriptedReply::text(text).usage(usage)
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_replaced_by_the_next_one_for_the_rest_of_the_run() {
    let first = named("dear", [failing(ErrorKind::Auth), said("never", 1)]);
    let second = named("cheap", [call("c1", "add", r#"{"a":1,"b":2}"#), said("3.", 10)]);
    let agent = Agent::builder(first.clone()).fallback(second.clone()).tool(support::add()).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!(recoveries(&ran), [Some(Recovery::FallBack)]);
    assert_eq!(ran.report().text.as_deref(), Some("3."));
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
    assert_eq!(ran.report().spent.cost, Money::from_nanos(10), "each model has its own price");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_comes_after_the_retries_and_has_retries_of_its_own() {
    let first = named("dear", [overloaded(), overloaded(), overloaded()]);
    let second = named("cheap", [overloaded(), overloaded(), said("At last.", 1)]);
    let agent = Agent::builder(first).fallback(second).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    let kinds: Vec<_> = recoveries(&ran).into_iter().map(|it| it == Some(Recovery::FallBack)).collect();
    assert_eq!(kinds, [false, false, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_model_would_take_is_not_passed_on() {
    let second = named("cheap", [said("never", 1)]);
    let first = named("dear", [failing(ErrorKind::InvalidRequest)]);
    let agent = Agent::builder(first).fallback(second.clone()).build().unwrap();
    assert_eq!(failed_with(&Ran::to_end(agent.prompt("?")).await), ErrorKind::InvalidRequest);
    assert!(second.requests().is_empty());
}

/// A conversation of about 3,000 tokens in three turns.
fn long_turns() -> Vec<ScriptedReply> {
    (1..=3).map(|n| ScriptedReply::text(format!("turn {n}: {}", "y".repeat(4_000)))).collect()
}

fn texts(messages: &[Arc<Message>]) -> Vec<String> {
    messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_context_that_overflows_is_summarised_once_and_the_call_is_made_again() {
    let mut replies = long_turns();
    replies.extend([failing(ErrorKind::ContextOverflow), ScriptedReply::text("Notes: y."), ScriptedReply::text("So.")]);
    let model = ScriptedModel::new(replies);
    let session = Agent::builder(model.clone()).build().unwrap().session();
    for _ in 0..3 {
        session.prompt("go on").report().await;
    }
    let ran = Ran::to_end(session.prompt("and now?")).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert_eq!(recoveries(&ran), [Some(Recovery::Compact)]);
    let last = model.requests().pop().unwrap();
    let said = texts(&last.messages);
    assert!(said[0].contains("Notes: y.") && said[0].contains("summarised"), "{}", said[0]);
    assert!(said.last().unwrap().contains("and now?"));
    assert!(last.messages.len() < 7, "{} messages are left", last.messages.len());
    // The summary was asked of what it stands for, and of no more.
    let asked = &texts(&model.requests()[4].messages)[0];
    assert!(asked.contains("turn 1") && !asked.contains("and now?"));
    assert_eq!(ran.report().spent.model_calls, 3, "the failed call, the summary, and the call");
    let transcript = session.transcript().await;
    assert!(texts(&transcript)[0].contains("Notes: y."), "and so it stays");
}

#[tokio::test(start_paused = true)]
async fn a_context_that_overflows_again_fails_instead_of_going_round() {
    let mut replies = long_turns();
    let overflow = || failing(ErrorKind::ContextOverflow);
    replies.extend([overflow(), ScriptedReply::text("Notes."), overflow(), ScriptedReply::text("never")]);
    let session = agent(replies).build().unwrap().session();
    for _ in 0..3 {
        session.prompt("go on").report().await;
    }
    let ran = Ran::to_end(session.prompt("and now?")).await;
    assert_eq!(failed_with(&ran), ErrorKind::ContextOverflow);
    assert_eq!(recoveries(&ran), [Some(Recovery::Compact), None]);
}

#[tokio::test(start_paused = true)]
async fn one_huge_message_is_a_clear_error_and_no_loop() {
    let ran =
        Ran::to_end(agent([failing(ErrorKind::ContextOverflow)]).build().unwrap().prompt("x".repeat(1 << 20))).await;
    assert_eq!(failed_with(&ran), ErrorKind::ContextOverflow);
    assert_eq!(ran.report().spent.model_calls, 1);
}

fn with_window(tokens: u64) -> Limits {
    let mut limits = Limits::default();
    limits.compaction = Some(CompactionLimits::for_window(Some(tokens)));
    limits
}

#[tokio::test(start_paused = true)]
async fn a_transcript_that_comes_near_the_window_is_summarised_before_the_call() {
    let mut replies = long_turns();
    replies.extend([ScriptedReply::text("Notes."), ScriptedReply::text("So.")]);
    let session = agent(replies).limits(with_window(3_500)).build().unwrap().session();
    for _ in 0..3 {
        assert!(
            Ran::to_end(session.prompt("go on")).await.events.iter().all(|it| !matches!(it, Event::Compacted { .. }))
        );
    }
    let ran = Ran::to_end(session.prompt("and now?")).await;
    assert_eq!(ran.report().text.as_deref(), Some("So."));
    assert!(recoveries(&ran).is_empty(), "no call failed");
    assert!(ran.events.iter().any(|event| matches!(event, Event::Compacted { replaced: 4.., .. })));
}

#[tokio::test(start_paused = true)]
async fn what_the_last_replys_usage_tells_counts_more_than_an_estimate() {
    let mut usage = Usage::default();
    usage.input = 100_000;
    let replies = [
        ScriptedReply::text("y".repeat(20_000)).usage(usage),
        ScriptedReply::text("Notes."),
        ScriptedReply::text("So."),
    ];
    let session = agent(replies).limits(with_window(100_000)).build().unwrap().session();
    session.prompt("?").report().await;
    let ran = Ran::to_end(session.prompt("and now?")).await;
    assert!(ran.events.iter().any(|event| matches!(event, Event::Compacted { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_was_cut_off_or_is_not_shorter_fails_the_run_clearly() {
    let cut_off = ScriptedReply::text("Notes: the first thi").stop(StopReason::Length);
    for (summary, why) in [(cut_off, "cut off"), (ScriptedReply::text("z".repeat(20_000)), "takes about")] {
        let mut replies = long_turns();
        replies.extend([failing(ErrorKind::ContextOverflow), summary]);
        let session = agent(replies).build().unwrap().session();
        for _ in 0..3 {
            session.prompt("go on").report().await;
        }
        let ran = Ran::to_end(session.prompt("and now?")).await;
        match ran.outcome() {
            Outcome::Failed { failure: Failure::Compaction(reason) } => assert!(reason.contains(why), "{reason}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(session.transcript().await.len(), 7, "nothing of the transcript is lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_summary_covers_the_first() {
    let mut replies = long_turns();
    replies.extend([ScriptedReply::text("First notes.")]);
    replies.extend(long_turns());
    replies.extend([ScriptedReply::text("Second notes."), ScriptedReply::text("So.")]);
    let model = ScriptedModel::new(replies);
    let session = Agent::builder(model.clone()).build().unwrap().session();
    for _ in 0..3 {
        session.prompt("go on").report().await;
    }
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
    for _ in 0..3 {
        session.prompt("go on").report().await;
    }
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
    let asked = texts(&model.requests()[7].messages).remove(0);
    assert!(asked.contains("First notes."), "the second summary is of the first one, too");
    assert!(texts(&session.transcript().await)[0].contains("Second notes."));
}

#[tokio::test(start_paused = true)]
async fn there_is_nothing_to_compact_in_an_empty_session() {
    let report = agent([]).build().unwrap().session().compact().report().await;
    assert!(matches!(report.outcome, Outcome::Failed { failure: Failure::Compaction(_) }), "{:?}", report.outcome);
}

struct Shouting;

impl Summarize for Shouting {
    fn summarize<'a>(
        &'a self,
        messages: &'a [Arc<Message>],
        _model: &'a dyn Model,
        _cancel: CancellationToken,
    ) -> futures_util::future::BoxFuture<'a, Result<Summary, SummaryFailed>> {
        let summary = Summary { text: format!("{} MESSAGES", messages.len()), usage: Usage::default() };
        Box::pin(std::future::ready(Ok(summary)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_summariser_of_ones_own_takes_the_place_of_the_models() {
    let session = agent(long_turns()).summarizer(Shouting).build().unwrap().session();
    for _ in 0..3 {
        session.prompt("go on").report().await;
    }
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
    assert!(texts(&session.transcript().await)[0].contains("4 MESSAGES"));
}
