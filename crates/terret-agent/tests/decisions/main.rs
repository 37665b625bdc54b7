//! Rules of the machine, one a test: what it decides, in states that are told in a few words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod given;

use std::collections::BTreeSet;
use std::time::Duration;

use given::*;
use terret_agent::ToolOutput;
use terret_agent::machine::{
    Budget, CallStage, Effect, Failure, Input, Limits, LoopLimit, Outcome, Prompt, QueueKind, Record, Recovery, Stage,
    Task,
};
use terret_llm::{ErrorKind, Message, ModelError, Money, StopReason, Usage};

/// A text of about 1,000 tokens.
fn long() -> String {
    "x".repeat(4_000)
}

// What a failed model call leads to.

#[test]
fn a_reply_makes_another_compaction_possible() {
    let mut session = given(Limits::default());
    for n in 0..3 {
        session.uses_a_tool(&format!("c{n}"), &long());
        session.uses_a_tool(&format!("d{n}"), &long());
        assert_eq!(session.fails(too_long()), Some(Recovery::Compact));
        session.is_summarised("Notes.", Usage::default(), Money::ZERO);
    }
}

#[test]
fn without_a_reply_between_them_there_is_one_compaction() {
    let mut session = given(Limits::default());
    session.uses_a_tool("c1", &long());
    session.uses_a_tool("c2", &long());
    assert_eq!(session.fails(too_long()), Some(Recovery::Compact));
    session.is_summarised("Notes.", Usage::default(), Money::ZERO);
    assert_eq!(session.fails(too_long()), None);
}

#[test]
fn a_reply_gives_the_next_call_all_of_its_tries() {
    let mut session = given(limits(|limits| limits.retry.tries = 3.try_into().unwrap()));
    for call_id in ["c1", "c2"] {
        session.fails_and_is_tried_again(overloaded());
        session.fails_and_is_tried_again(overloaded());
        session.uses_a_tool(call_id, "seen");
    }
    session.fails_and_is_tried_again(overloaded());
    session.fails_and_is_tried_again(overloaded());
    assert_eq!(session.fails(overloaded()), None, "three tries of one call are all");
}

#[test]
fn what_a_failed_try_used_counts_before_another_one_is_planned() {
    let in_tokens = limits(|limits| limits.tokens = 10.try_into().ok());
    let in_money = limits(|limits| limits.cost = Some(Money::from_nanos(10)));
    for (limits, usage, cost, another) in [
        (in_tokens, tokens(9), Money::ZERO, true),
        (in_tokens, tokens(10), Money::ZERO, false),
        (in_money, Usage::default(), Money::from_nanos(9), true),
        (in_money, Usage::default(), Money::from_nanos(10), false),
    ] {
        let recovery = given(limits).fails_having_used(overloaded(), usage, cost);
        assert_eq!(recovery.is_some(), another, "{usage:?} {cost:?}");
    }
}

#[test]
fn no_retry_is_planned_when_a_shared_budget_is_used_up() {
    let mut session = given(Limits::default());
    session.when(Input::Exhausted { budget: Budget::Cost });
    assert_eq!(session.fails(overloaded()), None);
}

#[test]
fn a_shared_budget_that_is_used_up_ends_the_wait_for_a_retry() {
    let mut session = given(Limits::default());
    assert!(session.fails(overloaded()).is_some());
    let records = session.when(Input::Exhausted { budget: Budget::Cost });
    assert_eq!(outcome(&records), &out_of(Budget::Cost));
}

#[test]
fn waits_are_shortened_by_up_to_a_quarter_and_differently_for_every_call_and_run() {
    let limits = limits(|limits| {
        limits.retry.tries = 20.try_into().unwrap();
        // No doubling, so that the waits can be compared.
        limits.retry.base = 10_000;
        limits.retry.max_backoff = 10_000;
    });
    let first_wait = |run: &str| {
        let mut session = empty();
        session.is_prompted(run, "go on", limits);
        session.fails_and_is_tried_again(overloaded())
    };
    let of_runs: BTreeSet<i64> = (0..16).map(|n| first_wait(&format!("run-{n}"))).collect();
    let mut session = given(limits);
    let of_calls: BTreeSet<i64> = (0..16).map(|_| session.fails_and_is_tried_again(overloaded())).collect();
    for waits in [of_runs, of_calls] {
        // Of 16 waits in 256 steps more than half are different, but for one time in billions.
        assert!(waits.len() > 8, "too much alike: {waits:?}");
        assert!(waits.iter().all(|wait| (7_500..=10_000).contains(wait)), "{waits:?}");
    }
}

#[test]
fn a_wait_that_the_provider_asks_for_is_kept_to_the_full() {
    let mut session = given(Limits::default());
    // Longer than any wait of our own choice (30 s), shorter than what a provider may ask for (60 s).
    let error = ModelError::new(ErrorKind::RateLimited, "slowly").with_retry_after(Duration::from_secs(45));
    assert_eq!(session.fails(error), Some(Recovery::Retry { at: START + 45_000 }));
    for early in [1, 20_000, 44_999] {
        session.at = START + early;
        session.ignores(Input::Wake);
    }
    session.at = START + 45_000;
    assert!(calls_the_model(&session.when(Input::Wake)));
}

#[test]
fn an_interruption_keeps_the_time_of_a_retry() {
    for asked in [None, Some(Duration::from_secs(45))] {
        let mut session = given(Limits::default());
        let mut error = overloaded();
        error.retry_after = asked;
        let Some(Recovery::Retry { at }) = session.fails(error) else { panic!("no retry") };
        session.at += 10;
        session.is_interrupted();
        assert!(!calls_the_model(&session.has_stopped()));
        assert_eq!(session.wakes_at(), Some(at));
        session.at = at - 1;
        session.ignores(Input::Wake);
        session.at = at;
        let records = session.when(Input::Wake);
        assert_eq!((delivered(&records).len(), calls_the_model(&records)), (1, true));
    }
}

// Time.

const A_MINUTE: i64 = 60_000;

fn for_a_minute() -> Limits {
    limits(|limits| limits.wall_time = 60_000.try_into().ok())
}

#[test]
fn a_run_wakes_at_the_earlier_of_its_retry_and_its_deadline() {
    let mut session = given(for_a_minute());
    assert_eq!(session.wakes_at(), Some(START + A_MINUTE));
    let Some(Recovery::Retry { at }) = session.fails(overloaded()) else { panic!("no retry") };
    assert!(at < START + A_MINUTE);
    assert_eq!(session.wakes_at(), Some(at));
}

#[test]
fn the_time_running_out_does_not_change_why_a_cancelled_run_ends() {
    let mut session = given(for_a_minute());
    session.is_cancelled();
    session.at += A_MINUTE;
    session.ignores(Input::Wake);
    assert!(matches!(outcome(&session.has_stopped()), Outcome::Cancelled { reason, .. } if reason == "enough"));
}

#[test]
fn the_time_running_out_ends_an_interrupted_run() {
    let mut session = given(for_a_minute());
    session.is_interrupted();
    session.at += A_MINUTE;
    session.when(Input::Wake);
    assert_eq!(outcome(&session.has_stopped()), &out_of(Budget::WallTime));
}

#[test]
fn a_deadline_that_passes_between_turns_ends_the_run_before_the_next_call() {
    let mut session = given(for_a_minute());
    session.replies(calling(&[("c1", "look")]));
    session.allows("c1");
    // The result is there before anybody has noticed what time it is.
    session.at += A_MINUTE;
    let records = session.finishes("c1", "seen");
    assert_eq!(result(&records, "c1"), Some(("seen".into(), false)), "and the result stands");
    assert_eq!(outcome(&records), &out_of(Budget::WallTime));
    assert!(!calls_the_model(&records));
}

// What is said to a run.

#[test]
fn follow_ups_are_delivered_one_at_a_time() {
    let mut session = given(Limits::default());
    for text in ["and then", "and at last"] {
        session.when(Input::Queue { kind: QueueKind::FollowUp, message: user(text) });
    }
    let [first, second] = [0, 1].map(|n: usize| session.state.queue()[n].id);
    for id in [first, second] {
        let records = session.replies(saying("done"));
        assert_eq!((delivered(&records), calls_the_model(&records)), (vec![vec![id]], true));
    }
    assert_eq!(outcome(&session.replies(saying("done"))), &Outcome::Completed);
}

#[test]
fn steering_that_waits_is_delivered_together() {
    let mut session = given(Limits::default());
    for text in ["not there", "here"] {
        session.when(Input::Queue { kind: QueueKind::Steering, message: user(text) });
    }
    let waiting: Vec<u64> = session.state.queue().iter().map(|queued| queued.id).collect();
    assert_eq!(delivered(&session.replies(saying("done"))), [waiting]);
}

#[test]
fn a_prompt_is_delivered_first_whatever_the_run_before_ended_with() {
    for reason in [StopReason::Stop, StopReason::Refusal, StopReason::Pause] {
        let mut session = given(limits(|limits| limits.model_calls = 1.try_into().unwrap()));
        outcome(&session.replies(reply("well", &[], reason, Usage::default())));
        let records = session.is_prompted("run-2", "and now", Limits::default());
        assert!(
            matches!(&records[..], [Record::RunStarted { .. }, Record::Delivered { .. }, Record::ModelCalled { .. }]),
            "after {reason:?}: {records:?}"
        );
    }
}

#[test]
fn a_prompt_without_a_budget_is_not_delivered() {
    let mut session = empty();
    let exceeded = Some(Budget::Cost);
    let records = session.when(Input::Prompt(Prompt { exceeded, ..prompt("run-1", "go on", Limits::default()) }));
    assert_eq!((outcome(&records), delivered(&records)), (&out_of(Budget::Cost), vec![]));
    assert!(session.state.transcript().is_empty());
}

#[test]
fn steering_changes_nothing_about_how_a_run_ends_that_may_not_go_on() {
    for (reason, expected) in [
        (StopReason::Stop, Outcome::Completed),
        (StopReason::Refusal, Outcome::Failed { failure: Failure::Refused }),
        (StopReason::Pause, out_of(Budget::ModelCalls)),
    ] {
        let mut session = given(limits(|limits| limits.model_calls = 1.try_into().unwrap()));
        session.when(Input::Queue { kind: QueueKind::Steering, message: user("not there") });
        let records = session.replies(reply("well", &[], reason, Usage::default()));
        assert_eq!((outcome(&records), delivered(&records)), (&expected, vec![]), "{reason:?}");
    }
}

// Questions and keys.

#[test]
fn an_answer_with_another_digest_changes_nothing() {
    let mut session = given(Limits::default());
    session.replies(calling(&[("c1", "write"), ("c2", "write")]));
    let [digest, of_another] = ["c1", "c2"].map(|call_id| session.asks_about(call_id));
    for answer in every_answer() {
        for digest in [of_another.clone(), String::new()] {
            session.ignores(Input::Answered { call_id: "c1".into(), digest, answer: answer.clone() });
        }
        let input = Input::Answered { call_id: "c1".into(), digest: digest.clone(), answer: answer.clone() };
        assert!(!session.clone().when(input).is_empty(), "{answer:?} to what was asked");
    }
}

#[test]
fn an_answer_fits_one_call_of_one_reply_of_one_run_with_one_set_of_arguments() {
    let digest = |run: &str, calls_before: u32, call: (&str, &str, &str)| {
        let mut session = empty();
        session.is_prompted(run, "go on", Limits::default());
        (0..calls_before).for_each(|n| session.uses_a_tool(&format!("b{n}"), "seen"));
        session.replies(reply("", &[call], StopReason::ToolUse, Usage::default()));
        session.asks_about(call.0)
    };
    let asked = digest("run-1", 0, ("c1", "write", "{\"a\":1}"));
    assert_eq!(digest("run-1", 0, ("c1", "write", "{\"a\":1}")), asked, "the same after a restart");
    for (what, other) in [
        ("arguments", digest("run-1", 0, ("c1", "write", "{\"a\":2}"))),
        ("tool", digest("run-1", 0, ("c1", "look", "{\"a\":1}"))),
        ("call", digest("run-1", 0, ("c2", "write", "{\"a\":1}"))),
        ("reply", digest("run-1", 1, ("c1", "write", "{\"a\":1}"))),
        ("run", digest("run-2", 0, ("c1", "write", "{\"a\":1}"))),
    ] {
        assert_ne!(other, asked, "another {what}");
    }
}

#[test]
fn a_call_whose_id_comes_again_after_a_compaction_has_a_key_of_its_own() {
    let mut session = given(Limits::default());
    let mut keys = Vec::new();
    for _ in 0..2 {
        session.replies(calling(&[("c1", "look")]));
        session.allows("c1");
        keys.push(session.key("c1"));
        session.finishes("c1", &long());
        session.replies(saying(&long()));
        // The run has ended, and its transcript is summarised up to the last reply.
        let compact = Prompt { message: None, task: Task::Compact, ..prompt("run-1", "", Limits::default()) };
        session.when(Input::Prompt(compact));
        session.is_summarised("Notes.", Usage::default(), Money::ZERO);
        session.is_prompted("run-1", "again", Limits::default());
    }
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn the_keys_of_two_runs_differ() {
    let key = |run: &str| {
        let mut session = empty();
        session.is_prompted(run, "go on", Limits::default());
        session.replies(calling(&[("c1", "look")]));
        session.allows("c1");
        session.key("c1")
    };
    assert_ne!(key("run-1"), key("run-2"));
}

#[test]
fn a_call_that_is_repeated_after_a_crash_keeps_its_key() {
    let mut session = given(Limits::default());
    session.replies(calling(&[("c1", "look")]));
    session.allows("c1");
    let key = session.key("c1");
    session.when(Input::Resume);
    assert_eq!(session.key("c1"), key);
}

// Calls in doubt.

/// A run that has died while `write` was running, and goes on.
fn with_a_write_in_doubt(limits: Limits) -> Session {
    let mut session = given(limits);
    session.replies(calling(&[("c1", "write"), ("c2", "look")]));
    session.allows("c1");
    session.allows("c2");
    session.when(Input::Resume);
    assert_eq!(session.state.batch().unwrap().get("c1").unwrap().stage, CallStage::InDoubt);
    session
}

fn discovered(session: &Session, call_id: &str, output: Option<&str>) -> Input {
    Input::Discovered { epoch: session.epoch(), call_id: call_id.into(), output: output.map(ToolOutput::text) }
}

#[test]
fn what_a_tool_discovers_of_a_lost_attempt_is_its_result() {
    let mut session = with_a_write_in_doubt(Limits::default());
    let records = session.when(discovered(&session, "c1", Some("written")));
    assert_eq!(result(&records, "c1"), Some(("written".into(), false)));
}

#[test]
fn a_lost_attempt_of_which_nothing_is_known_is_an_error_that_says_so() {
    let mut session = with_a_write_in_doubt(Limits::default());
    let records = session.when(discovered(&session, "c1", None));
    let (said, is_error) = result(&records, "c1").unwrap();
    assert!(is_error && said.starts_with("Outcome unknown"), "{said}");
}

#[test]
fn calls_in_doubt_take_the_room_of_tools_that_run() {
    let mut session = with_a_write_in_doubt(limits(|limits| limits.parallel_tools = 1.try_into().unwrap()));
    assert_eq!(session.state.batch().unwrap().get("c2").unwrap().stage, CallStage::Allowed);
    let records = session.when(discovered(&session, "c1", None));
    assert_eq!(opened(&records), ["c2"]);
}

#[test]
fn what_was_discovered_before_a_halt_is_stale() {
    let mut session = with_a_write_in_doubt(Limits::default());
    let late = discovered(&session, "c1", Some("written"));
    session.is_interrupted();
    session.has_stopped();
    session.ignores(late);
    let records = session.when(discovered(&session, "c1", None));
    assert!(result(&records, "c1").is_some(), "it was asked for once more");
}

#[test]
fn what_was_discovered_in_an_earlier_run_is_stale() {
    let mut session = with_a_write_in_doubt(Limits::default());
    let late = discovered(&session, "c1", Some("written"));
    session.is_cancelled();
    session.has_stopped();
    session.is_prompted("run-2", "and now", Limits::default());
    session.ignores(late);
    let records = session.when(discovered(&session, "c1", None));
    assert!(result(&records, "c1").is_some(), "it was asked for once more");
}

#[test]
fn a_review_from_before_a_halt_is_stale() {
    let mut session = empty();
    let task = Task::AnswerReviewed;
    session.when(Input::Prompt(Prompt { task, ..prompt("run-1", "go on", Limits::default()) }));
    session.replies(saying("done"));
    let late = Input::Reviewed { epoch: session.epoch(), objection: None };
    session.is_interrupted();
    // On second thoughts there is nothing to say, and the reply is still to be reviewed.
    session.when(Input::Withdraw { id: session.state.queue()[0].id });
    session.has_stopped();
    assert!(matches!(session.due()[..], [Effect::Review { .. }]));
    session.ignores(late);
}

// Loops.

#[test]
fn what_an_earlier_run_called_does_not_count_as_a_repetition() {
    let twice = LoopLimit { warn: 2.try_into().unwrap(), end: 2.try_into().unwrap() };
    let limits = limits(|limits| (limits.model_calls, limits.repeats) = (1.try_into().unwrap(), Some(twice)));
    let mut session = given(limits);
    session.replies(calling(&[("c1", "look")]));
    session.allows("c1");
    assert_eq!(outcome(&session.finishes("c1", "seen")), &out_of(Budget::ModelCalls));
    session.is_prompted("run-2", "and now", limits);
    session.replies(calling(&[("c2", "look")]));
    assert_eq!(opened(&session.allows("c2")), ["c2"]);
}

// The context.

#[test]
fn after_a_compaction_the_context_is_what_is_left() {
    let mut session = given(Limits::default());
    session.uses_a_tool("c1", &long());
    session.replies(reply("", &[("c2", "look", "{}")], StopReason::ToolUse, tokens(50_000)));
    session.allows("c2");
    session.finishes("c2", &long());
    assert!(session.state.context_tokens() > 50_000, "what the provider told, and the result");
    assert_eq!(session.fails(too_long()), Some(Recovery::Compact));
    session.is_summarised("Notes.", Usage::default(), Money::ZERO);
    let left: usize = session.state.transcript().iter().map(|message| bytes(message)).sum();
    let (least, most) = (left as u64 / 4, left as u64 / 4 + 50);
    let context = session.state.context_tokens();
    assert!((least..most).contains(&context), "{context} tokens in {left} bytes");
}

/// How many bytes a message says.
fn bytes(message: &Message) -> usize {
    match message {
        Message::User(user) => user.content.iter().filter_map(|content| content.as_text()).map(str::len).sum(),
        Message::ToolResult(it) => it.content.iter().filter_map(|content| content.as_text()).map(str::len).sum(),
        Message::Assistant(reply) => reply.text().len(),
    }
}

#[test]
fn what_a_summary_used_is_spent() {
    let mut session = given(Limits::default());
    session.uses_a_tool("c1", &long());
    session.uses_a_tool("c2", &long());
    let before = session.spent();
    session.fails(too_long());
    session.is_summarised("Notes.", tokens(7), Money::from_nanos(5));
    let spent = session.spent();
    assert_eq!(spent.usage.total() - before.usage.total(), 7);
    assert_eq!(spent.cost.nanos() - before.cost.nanos(), 5);
    assert_eq!(spent.model_calls - before.model_calls, 2, "the summary, and the call after it");
}

#[test]
fn a_context_that_a_summary_could_hardly_shorten_is_not_summarised() {
    for (said, summarised) in [("short".to_owned(), false), (long(), true)] {
        // What is sent beside the transcript takes most of the window, so the provider tells more than there is.
        let mut session = empty();
        session.is_prompted("run-1", &said, with_window(10_000));
        session.replies(reply("", &[("c1", "look", "{}")], StopReason::ToolUse, tokens(9_000)));
        session.allows("c1");
        session.finishes("c1", "seen");
        let compacts = matches!(session.state.run().unwrap().stage, Stage::Compacting { .. });
        assert_eq!(compacts, summarised, "{} bytes", said.len());
    }
}
