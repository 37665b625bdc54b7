//! Runs of a session that follow each other: one that waits its turn, one that finds another left in the middle, one
//! after a journal has failed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use support::{Ran, add, agent, call, text};
use terret_agent::machine::{Budget, Failure, Outcome, Record, Verdict};
use terret_agent::{
    Agent, AgentBuilder, EffectClass, Event, Journal, JournalError, MemoryJournal, Session, SessionId, SharedBudget,
    SharedLimits, tool,
};
use terret_llm::{Message, ScriptedModel, ScriptedReply, ToolCall};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    name: String,
}

/// A session whose run the process has left in the middle, when its records first ended like this.
async fn left(before: Agent, ends: fn(&Record) -> bool, after: AgentBuilder) -> Session {
    let (journal, id) = (MemoryJournal::new(), SessionId::new());
    let mut run = before.open(Arc::new(journal.clone()), id.clone()).await.unwrap().prompt("Go.");
    let end = loop {
        if let Some(end) = journal.records(&id).iter().position(ends) {
            break end;
        }
        run.next().await.unwrap();
    };
    let (left, name) = (MemoryJournal::new(), SessionId::new());
    left.append(&name, 0, &journal.records(&id)[..=end]).await.unwrap();
    after.build().unwrap().open(Arc::new(left), name).await.unwrap()
}

fn calls_model(record: &Record) -> bool {
    matches!(record, Record::ModelCalled { .. })
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_its_turn_can_be_cancelled_and_leaves_no_trace() {
    let session = agent([ScriptedReply::text("a").stall()]).build().unwrap().session();
    let first = session.prompt("first");
    tokio::task::yield_now().await;
    let second = session.prompt("second");
    second.handle().steer("more");
    second.handle().cancel("never mind");
    let ran = tokio::time::timeout(Duration::from_secs(1), Ran::to_end(second)).await.expect("it doesn't wait");
    assert_eq!(ran.events.len(), 1, "nothing but its end");
    assert!(matches!(ran.outcome(), Outcome::Cancelled { reason, .. } if reason == "never mind"));
    assert_eq!(ran.report().undelivered.len(), 2, "the prompt and what was said");
    drop(session.prompt("third"));
    first.handle().cancel("enough");
    first.report().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(session.transcript().await.len(), 1);
}

#[tokio::test]
async fn a_typed_run_takes_the_place_of_one_that_was_left_in_the_middle() {
    let replies = [ScriptedReply::text("no JSON"), ScriptedReply::text(r#"{"name":"Bern"}"#)];
    let before = agent([ScriptedReply::text("…").stall()]).build().unwrap();
    let session = left(before, calls_model, agent(replies)).await;
    let city = session.run::<City>("Which city?").value().await.unwrap();
    assert_eq!(city.value.name, "Bern");
    assert_eq!(city.report.spent.model_calls, 2, "its own calls, with one objection");
    assert_eq!(session.interrupted().await, None);
}

#[tokio::test]
async fn a_compaction_takes_the_place_of_a_run_that_was_left_in_the_middle() {
    let long = || ScriptedReply::text("It was a dark and stormy night. ".repeat(200));
    let before = agent([long(), long().stall()]).build().unwrap();
    let after = agent([ScriptedReply::text("A night.")]);
    let (journal, id) = (MemoryJournal::new(), SessionId::new());
    let first = before.open(Arc::new(journal.clone()), id.clone()).await.unwrap();
    first.prompt("Tell me.").report().await;
    let mut run = first.prompt("More.");
    while !matches!(run.next().await.unwrap(), Event::ModelCalled { .. }) {}
    let (kept, name) = (MemoryJournal::new(), SessionId::new());
    kept.append(&name, 0, &journal.records(&id)).await.unwrap();
    let session = after.build().unwrap().open(Arc::new(kept), name).await.unwrap();
    let ran = Ran::to_end(session.compact()).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert!(ran.events.iter().any(|event| matches!(event, Event::Compacted { .. })), "{:?}", ran.events);
}

#[tokio::test]
async fn what_is_left_in_the_middle_is_settled_before_another_run_takes_its_place() {
    let pay = || {
        tool("pay", "", |_: Nothing, _| async { Ok(std::future::pending::<String>().await) })
            .effect(EffectClass::AtMostOnce)
    };
    let before = agent([call("c1", "pay", "{}")]).tool(pay()).build().unwrap();
    let replies = [ScriptedReply::text(r#"{"name":"Bern"}"#)];
    let session = left(before, |it| matches!(it, Record::CallOpened { .. }), agent(replies).tool(pay())).await;
    session.run::<City>("Which city?").value().await.unwrap();
    let transcript = session.transcript().await;
    let result = transcript.iter().find_map(|it| if let Message::ToolResult(it) = &**it { Some(it) } else { None });
    assert!(text(result.unwrap()).contains("Outcome unknown"));
}

#[tokio::test]
async fn to_go_on_where_nothing_was_said_asks_the_model_nothing() {
    let model = ScriptedModel::new([ScriptedReply::text("What?")]);
    let report = Agent::builder(model.clone()).build().unwrap().session().go_on().report().await;
    assert_eq!((report.outcome, report.text), (Outcome::Completed, None));
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_prompt_that_is_handed_back_leaves_the_session_as_it_was() {
    let budget = SharedBudget::new(SharedLimits { model_calls: Some(1), ..SharedLimits::default() });
    let model = ScriptedModel::new([ScriptedReply::text("So."), ScriptedReply::text("Again?")]);
    let session = Agent::builder(model.clone()).shared_budget(budget).build().unwrap().session();
    session.prompt("first").report().await;
    let report = session.prompt("second").report().await;
    let out_of_calls = Outcome::OutOfBudget { budget: Budget::ModelCalls, still_running: Vec::new() };
    assert_eq!((report.outcome, report.undelivered.len()), (out_of_calls, 1));
    let report = session.go_on().report().await;
    assert_eq!((report.outcome, report.text), (Outcome::Completed, None), "it has said nothing itself");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_prompt_after_a_refusal_is_answered() {
    let mut refusal = ScriptedReply::text("No.");
    refusal = refusal.stop(terret_llm::StopReason::Refusal);
    let session = agent([refusal, ScriptedReply::text("Yes.")]).build().unwrap().session();
    assert_eq!(session.prompt("first").report().await.outcome, Outcome::Failed { failure: Failure::Refused });
    assert_eq!(session.prompt("second").report().await.text.as_deref(), Some("Yes."));
}

/// A journal that does what it is told to.
struct Moody {
    inner: MemoryJournal,
    mood: Arc<Mutex<Mood>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Good,
    Refuses,
    StoresAndFails,
    Hangs,
    Panics,
}

impl Journal for Moody {
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let failed = || Err(JournalError::Storage("the disk is full".into()));
        Box::pin(async move {
            let mood = *self.mood.lock().unwrap();
            match mood {
                Mood::Good => {}
                Mood::Refuses => return failed(),
                Mood::StoresAndFails => {
                    self.inner.append(session, expected, records).await?;
                    return failed();
                }
                // It answers in the end.
                Mood::Hangs => {
                    while *self.mood.lock().unwrap() == Mood::Hangs {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
                Mood::Panics => panic!("a bug"),
            }
            self.inner.append(session, expected, records).await
        })
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        self.inner.load(session)
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_on_with_what_its_journal_has_kept_after_it_failed() {
    for bad in [Mood::Refuses, Mood::StoresAndFails, Mood::Hangs, Mood::Panics] {
        let mood = Arc::new(Mutex::new(Mood::Good));
        let spoil = {
            let mood = mood.clone();
            tool("spoil", "", move |_: Nothing, _| {
                *mood.lock().unwrap() = bad;
                async { Ok("spoilt") }
            })
        };
        let (journal, id) = (Moody { inner: MemoryJournal::new(), mood: mood.clone() }, SessionId::new());
        let inner = journal.inner.clone();
        let model = ScriptedModel::new([call("c1", "spoil", "{}"), ScriptedReply::text("So.")]);
        let agent = Agent::builder(model.clone()).tool(spoil).build().unwrap();
        let session = agent.open(Arc::new(journal), id.clone()).await.unwrap();
        let run = session.prompt("Go.");
        let handle = run.handle();
        let ended = tokio::spawn(run.report());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(ended.is_finished(), bad != Mood::Hangs, "{bad:?}");
        handle.cancel("enough");
        let report = ended.await.unwrap();
        assert!(matches!(report.outcome, Outcome::Failed { .. }), "{bad:?}: {:?}", report.outcome);
        *mood.lock().unwrap() = Mood::Good;
        let report = session.prompt("Go on.").report().await;
        assert_eq!((report.outcome, report.text.as_deref()), (Outcome::Completed, Some("So.")), "{bad:?}");
        let kept = terret_agent::fold(&inner.records(&id));
        assert_eq!(*kept.transcript(), session.transcript().await);
        assert_eq!(kept.transcript().len(), 5, "the prompts, the call, its result and the answer");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_a_journal_that_failed_is_not_handed_back_as_well() {
    let mood = Arc::new(Mutex::new(Mood::Good));
    let spoil = {
        let mood = mood.clone();
        tool("spoil", "", move |_: Nothing, context: terret_agent::ToolContext| {
            let mood = mood.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                *mood.lock().unwrap() = Mood::Refuses;
                drop(context);
                Ok("spoilt")
            }
        })
    };
    let model =
        ScriptedModel::new([call("c1", "spoil", "{}"), ScriptedReply::text("So."), ScriptedReply::text("Yes.")]);
    let journal = Moody { inner: MemoryJournal::new(), mood: mood.clone() };
    let agent = Agent::builder(model.clone()).tool(spoil).build().unwrap();
    let session = agent.open(Arc::new(journal), SessionId::new()).await.unwrap();
    let mut run = session.prompt("Go.");
    while !matches!(run.next().await.unwrap(), Event::ToolStarted { .. }) {}
    run.handle().follow_up("And then?");
    let report = run.report().await;
    assert!(matches!(report.outcome, Outcome::Failed { failure: Failure::Journal(_) }), "{:?}", report.outcome);
    assert_eq!(report.undelivered, []);
    *mood.lock().unwrap() = Mood::Good;
    assert_eq!(session.go_on().report().await.text.as_deref(), Some("Yes."));
    let said = serde_json::to_string(&session.transcript().await).unwrap();
    assert_eq!(said.matches("And then?").count(), 1);
}

#[tokio::test]
async fn a_call_whose_tool_had_not_begun_is_told_so_and_not_left_in_doubt() {
    // The second call is announced together with the first; a hook holds it back until the run is interrupted.
    struct Slow;
    impl terret_agent::Hooks for Slow {
        fn before_tool<'a>(
            &'a self,
            _: &'a ToolCall,
            _: &'a serde_json::Value,
        ) -> BoxFuture<'a, Result<(), terret_agent::HookError>> {
            Box::pin(std::future::pending())
        }
    }
    let pay = tool("pay", "", |_: Nothing, _| async { Ok("paid") });
    let replies = [call("c1", "pay", "{}"), ScriptedReply::text("All right.")];
    let agent = agent(replies).tool(pay).hooks(Slow).grace(Duration::from_millis(10)).build().unwrap();
    let mut run = agent.prompt("?");
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::ToolStarted { .. } = event {
            tokio::task::yield_now().await;
            handle.interrupt("Never mind.");
        }
        events.push(event);
    }
    let ran = Ran { events };
    assert_eq!(text(&ran.results()[0]), "Not executed: the user interrupted before the tool started.");
    assert_eq!(ran.outcome(), &Outcome::Completed);
}

#[tokio::test]
async fn a_late_reader_learns_of_open_questions_and_of_what_waits() {
    let ask = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "May it?".into() };
    let replies = [call("c1", "add", r#"{"a":1,"b":2}"#), ScriptedReply::text("3.")];
    let mut run = Agent::builder(ScriptedModel::new(replies)).tool(add()).gate(ask).build().unwrap().prompt("?");
    let handle = run.handle();
    handle.follow_up("Thanks.");
    let (mut asked, mut queued) = (false, false);
    while !(asked && queued) {
        match run.next().await.unwrap() {
            Event::Asked(_) => asked = true,
            Event::Queued(_) => queued = true,
            _ => {}
        }
    }
    let mut late = handle.events();
    let Some(Event::Snapshot(snapshot)) = late.next().await else { panic!("no snapshot") };
    assert_eq!((snapshot.asked.len(), snapshot.queue.len()), (1, 1));
    let question = &snapshot.asked[0];
    assert_eq!((&*question.call.id, &*question.text), ("c1", "May it?"));
    handle.answer("c1", &*question.digest, terret_agent::machine::Answer::Approve);
    while !matches!(run.next().await.unwrap(), Event::Approved { .. }) {}
    let mut later = handle.events();
    match later.next().await.unwrap() {
        Event::Snapshot(snapshot) => assert_eq!(snapshot.asked, []),
        Event::Ended(_) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_over_a_crash_is_shown_and_can_be_taken_back() {
    let before = agent([ScriptedReply::text("…").stall()]).build().unwrap();
    let (journal, id) = (MemoryJournal::new(), SessionId::new());
    let first = before.open(Arc::new(journal.clone()), id.clone()).await.unwrap();
    let mut run = first.prompt("?");
    while !matches!(run.next().await.unwrap(), Event::Delta { .. }) {}
    run.handle().follow_up("And then?");
    while !matches!(run.next().await.unwrap(), Event::Queued(_)) {}
    let (kept, name) = (MemoryJournal::new(), SessionId::new());
    kept.append(&name, 0, &journal.records(&id)).await.unwrap();

    let after = agent([ScriptedReply::text("So.").delay(Duration::from_secs(9))]).build().unwrap();
    let mut run = after.open(Arc::new(kept), name).await.unwrap().go_on();
    let Some(Event::Queued(waiting)) = run.next().await else { panic!("nothing waits") };
    let Some(Event::Snapshot(snapshot)) = run.handle().events().next().await else { panic!("no snapshot") };
    assert_eq!(snapshot.queue, std::slice::from_ref(&waiting));
    run.handle().withdraw(waiting.id);
    let ran = Ran::to_end(run).await;
    assert!(ran.events.contains(&Event::Withdrawn(waiting)));
    assert_eq!(ran.report().text.as_deref(), Some("So."));
}

#[test]
fn a_run_that_was_let_go_of_waits_for_its_answer_in_the_journal() {
    let ask = |_: &ToolCall, _: &serde_json::Value| Verdict::Ask { question: "May it?".into() };
    let agent = |replies: Vec<ScriptedReply>| agent(replies).gate(ask).build().unwrap();
    let (journal, id) = (MemoryJournal::new(), SessionId::new());
    let first = tokio::runtime::Runtime::new().unwrap();
    first.block_on(async {
        let replies = vec![call("c1", "add", r#"{"a":1,"b":2}"#)];
        let mut run = agent(replies).open(Arc::new(journal.clone()), id.clone()).await.unwrap().prompt("?");
        while !matches!(run.next().await.unwrap(), Event::Asked(_)) {}
        run.detach();
    });
    drop(first);
    assert!(terret_agent::fold(&journal.records(&id)).run().is_some(), "nobody has cancelled it");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let session = agent(vec![ScriptedReply::text("3.")]).open(Arc::new(journal), id).await.unwrap();
        let mut run = session.go_on();
        let handle = run.handle();
        while let Some(event) = run.next().await {
            match event {
                Event::Asked(it) => _ = handle.answer(&*it.call.id, it.digest, terret_agent::machine::Answer::Approve),
                Event::Ended(report) => assert_eq!(report.text.as_deref(), Some("3.")),
                _ => {}
            }
        }
    });
}

#[tokio::test]
async fn what_was_only_announced_when_the_journal_failed_is_not_spent_and_a_reply_is() {
    let mut usage = terret_llm::Usage::default();
    usage.input = 90;
    let budget = SharedBudget::new(SharedLimits::default());
    let mood = Arc::new(Mutex::new(Mood::Refuses));
    let model = ScriptedModel::new([ScriptedReply::text("So.").usage(usage)]);
    let agent = Agent::builder(model).shared_budget(budget.clone()).build().unwrap();
    let journal = Moody { inner: MemoryJournal::new(), mood: mood.clone() };
    let session = agent.open(Arc::new(journal), SessionId::new()).await.unwrap();

    let report = session.prompt("Go.").report().await;
    assert_eq!((report.spent.model_calls, report.undelivered.len()), (0, 1));
    assert_eq!((budget.spent().model_calls, budget.spent().usage.input), (0, 0), "the model was not called");

    *mood.lock().unwrap() = Mood::Good;
    let mut run = session.prompt("Go.");
    while !matches!(run.next().await.unwrap(), Event::ModelCalled { .. }) {}
    *mood.lock().unwrap() = Mood::Refuses;
    let report = run.report().await;
    assert!(matches!(report.outcome, Outcome::Failed { failure: Failure::Journal(_) }), "{:?}", report.outcome);
    assert_eq!((report.spent.usage.input, budget.spent().usage.input), (90, 90), "the reply was paid for");
    assert_eq!(budget.spent().model_calls, 1);
}
