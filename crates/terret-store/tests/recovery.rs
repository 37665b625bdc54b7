//! Runs that were interrupted anywhere, by a death or by the journal itself, and what the model and the tools see of it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use terret_agent::machine::{Answer, Failure, Outcome, Record, Verdict};
use terret_agent::{
    Agent, AgentBuilder, EffectClass, Event, Journal, JournalError, Ownership, Question, Run, Session, SessionId, tool,
};
use terret_llm::{Message, ScriptedModel, ScriptedReply, ToolCall};
use terret_store::SqliteJournal;

/// Three tools that count how often each call was started.
#[derive(Clone, Default)]
struct Started(Arc<Mutex<BTreeMap<String, usize>>>);

impl Started {
    fn agent(&self, model: ScriptedModel) -> AgentBuilder {
        let tool = |name: &str, effect| {
            let started = self.0.clone();
            tool(name, "", move |_: Anything, context| {
                *started.lock().unwrap().entry(context.call_id).or_default() += 1;
                async { Ok("done") }
            })
            .effect(effect)
        };
        Agent::builder(model)
            .tool(tool("look", EffectClass::ReadOnly))
            .tool(tool("put", EffectClass::Idempotent))
            .tool(tool("send", EffectClass::AtMostOnce))
    }

    fn of(&self, call: &str) -> usize {
        self.0.lock().unwrap().get(call).copied().unwrap_or_default()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Anything {
    #[serde(default)]
    #[expect(dead_code, reason = "only tells calls apart")]
    it: u32,
}

/// Two turns of three calls each, and an answer.
fn script() -> [ScriptedReply; 3] {
    let calls = |turn: &str| {
        let names = ["send", "look", "put"];
        ScriptedReply::calls(names.map(|name| ToolCall::new(format!("{turn}-{name}"), name, "{}")))
    };
    [calls("a"), calls("b"), ScriptedReply::text("Done.")]
}

fn id() -> SessionId {
    "session".to_owned().into()
}

/// What a process that died after these records leaves behind.
async fn left_behind(records: &[Record]) -> (TempDir, Arc<SqliteJournal>) {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    journal.append(&id(), 0, records).await.unwrap();
    (folder, Arc::new(journal))
}

async fn records_of_a_run() -> Vec<Record> {
    let (_folder, journal) = left_behind(&[]).await;
    let agent = Started::default().agent(ScriptedModel::new(script())).build().unwrap();
    let session = agent.open(journal.clone(), id()).await.unwrap();
    assert_eq!(session.prompt("Do it.").report().await.outcome, Outcome::Completed);
    journal.load(&id()).await.unwrap()
}

/// Each call has exactly one result, directly after its message and in order; and what was said last comes last.
fn check_request(messages: &[Arc<Message>], said: &str) {
    let mut messages = messages.iter().map(|message| &**message).peekable();
    let mut last = None;
    while let Some(message) = messages.next() {
        last = Some(message);
        let calls: Vec<String> = message.tool_calls().map(|call| call.id.clone()).collect();
        for call in calls {
            let Some(Message::ToolResult(result)) = messages.next() else { panic!("{call} has no result") };
            assert_eq!(result.tool_call_id, call);
        }
        assert!(!matches!(messages.peek(), Some(Message::ToolResult(_))), "a result without a call");
    }
    let Some(Message::User(user)) = last else { panic!("{last:?}") };
    assert_eq!(user.content[0].as_text(), Some(said));
}

#[tokio::test]
async fn whatever_a_run_left_behind_a_new_prompt_stands_after_one_result_for_each_call() {
    let records = records_of_a_run().await;
    for kept in 1..=records.len() {
        let (_folder, journal) = left_behind(&records[..kept]).await;
        let started = Started::default();
        let model = ScriptedModel::new((0..3).map(|_| ScriptedReply::text("Well.")));
        let agent = started.agent(model.clone()).build().unwrap();
        let session = agent.open(journal.clone(), id()).await.unwrap();
        let report = session.prompt("And now?").report().await;
        assert_eq!(report.outcome, Outcome::Completed, "after {kept} records");
        check_request(&model.requests().last().unwrap().messages, "And now?");
        let opened = |call: &str| {
            records[..kept].iter().any(|it| matches!(it, Record::CallOpened { call_id } if call_id == call))
        };
        for call in ["a-send", "b-send"] {
            assert_eq!(
                started.of(call) * usize::from(opened(call)),
                0,
                "{call} was started again after {kept} records"
            );
        }
        assert_eq!(journal.check(&id()).unwrap(), []);
    }
}

/// A journal that can't write for a while: from a certain append on, until it is mended.
struct Failing {
    journal: Arc<SqliteJournal>,
    left: AtomicUsize,
}

impl Journal for Failing {
    fn own<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Ownership, JournalError>> {
        self.journal.own(session)
    }

    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => self.journal.append(session, expected, records),
            Err(_) => std::future::ready(Err(JournalError::Storage("the disk is full".into()))).boxed(),
        }
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        self.journal.load(session)
    }
}

#[tokio::test]
async fn a_journal_that_fails_at_any_append_stops_the_run_before_the_next_effect_and_later_it_goes_on_without_a_gap() {
    let mut appends = 0;
    loop {
        let (_folder, journal) = left_behind(&[]).await;
        let failing = Arc::new(Failing { journal: journal.clone(), left: AtomicUsize::new(appends) });
        let started = Started::default();
        let model = ScriptedModel::new(script());
        let session = started.agent(model.clone()).build().unwrap().open(failing.clone(), id()).await.unwrap();
        let outcome = session.prompt("Do it.").report().await.outcome;
        if outcome == Outcome::Completed {
            break;
        }
        let Outcome::Failed { failure: Failure::Journal(why) } = &outcome else { panic!("{outcome:?}") };
        assert!(why.contains("the disk is full"), "{why}");
        let kept = journal.load(&id()).await.unwrap();
        let announced = |is: fn(&Record) -> bool| kept.iter().filter(|record| is(record)).count();
        assert_eq!(model.requests().len(), announced(|it| matches!(it, Record::ModelCalled { .. })));
        let opened = announced(|it| matches!(it, Record::CallOpened { .. }));
        assert!(started.0.lock().unwrap().values().sum::<usize>() <= opened);

        // The same process, or another one, when there is room again.
        failing.left.store(usize::MAX, Ordering::SeqCst);
        drop(session);
        let replied = kept.iter().filter(|it| matches!(it, Record::ReplyAccepted { .. })).count();
        let model = ScriptedModel::new(script().into_iter().skip(replied));
        let session = started.agent(model).build().unwrap().open(failing, id()).await.unwrap();
        let run = if kept.is_empty() { session.prompt("Do it.") } else { session.go_on() };
        assert_eq!(run.report().await.outcome, Outcome::Completed, "after {appends} appends");
        for call in ["a-send", "b-send"] {
            assert!(started.of(call) <= 1, "{call} ran {} times after {appends} appends", started.of(call));
        }
        assert!(journal.load(&id()).await.unwrap().starts_with(&kept));
        assert_eq!(journal.check(&id()).unwrap(), []);
        appends += 1;
    }
    assert!(appends > 10, "{appends}");
}

fn asks(_: &ToolCall, _: &serde_json::Value) -> Verdict {
    Verdict::Ask { question: "May it?".into() }
}

async fn until_asked(run: &mut Run) -> (String, String) {
    while let Some(event) = run.next().await {
        if let Event::Asked(Question { call, digest, .. }) = event {
            return (call.id.clone(), digest);
        }
    }
    panic!("nothing was asked")
}

/// What a process left behind that died while a person was asked about a call, and the digest that it told.
async fn asked_about(call: ToolCall) -> (TempDir, Arc<SqliteJournal>, String) {
    let (_folder, journal) = left_behind(&[]).await;
    let agent =
        Started::default().agent(ScriptedModel::new([ScriptedReply::calls([call])])).gate(asks).build().unwrap();
    let session = agent.open(journal.clone(), id()).await.unwrap();
    let mut run = session.prompt("Do it.");
    let (_, digest) = until_asked(&mut run).await;
    let records = journal.load(&id()).await.unwrap();
    let (folder, journal) = left_behind(&records).await;
    (folder, journal, digest)
}

async fn reopened(journal: Arc<SqliteJournal>, started: &Started) -> Session {
    let model = ScriptedModel::new([ScriptedReply::text("Done.")]);
    started.agent(model).gate(asks).build().unwrap().open(journal, id()).await.unwrap()
}

#[tokio::test]
async fn an_approval_that_was_waited_for_is_given_once_after_a_restart_and_only_to_those_arguments() {
    let (_folder, journal, digest) = asked_about(ToolCall::new("c1", "send", r#"{"it":1}"#)).await;
    let (_other, _journal, of_other_arguments) = asked_about(ToolCall::new("c1", "send", r#"{"it":2}"#)).await;
    let started = Started::default();
    let session = reopened(journal, &started).await;
    let mut run = session.go_on();
    assert_eq!(until_asked(&mut run).await, ("c1".to_owned(), digest.clone()), "the same question");
    let handle = run.handle();
    handle.answer("c1", of_other_arguments, Answer::Deny { reason: "for another call".into() });
    // Two clients.
    handle.answer("c1", digest.clone(), Answer::Approve);
    handle.answer("c1", digest, Answer::Approve);
    assert_eq!(run.report().await.outcome, Outcome::Completed);
    assert_eq!(started.of("c1"), 1);
}

#[tokio::test]
async fn a_call_that_was_denied_after_a_restart_never_runs() {
    let (_folder, journal, digest) = asked_about(ToolCall::new("c1", "look", "{}")).await;
    let started = Started::default();
    let session = reopened(journal, &started).await;
    let mut run = session.go_on();
    until_asked(&mut run).await;
    let handle = run.handle();
    handle.answer("c1", digest.clone(), Answer::Deny { reason: "no".into() });
    handle.answer("c1", digest, Answer::Approve);
    assert_eq!(run.report().await.outcome, Outcome::Completed);
    assert_eq!(started.of("c1"), 0);
}

#[tokio::test]
async fn a_run_that_was_cancelled_while_its_tool_ran_stays_cancelled_after_a_restart() {
    let (_folder, journal) = left_behind(&[]).await;
    let wait = tool("wait", "", |_: Anything, _| async {
        std::future::pending::<()>().await;
        Ok("late")
    });
    let calls = ScriptedReply::calls([ToolCall::new("c1", "wait", "{}")]);
    let agent = Agent::builder(ScriptedModel::new([calls])).tool(wait).grace(std::time::Duration::from_millis(1));
    let session = agent.build().unwrap().open(journal.clone(), id()).await.unwrap();
    let mut run = session.prompt("Wait.");
    while !matches!(run.next().await, Some(Event::ToolStarted { .. })) {}
    run.handle().cancel("Ctrl-C");
    run.report().await;
    let records = journal.load(&id()).await.unwrap();
    let cancelled = records.iter().position(|record| matches!(record, Record::Cancelled { .. })).unwrap();

    let (_folder, journal) = left_behind(&records[..=cancelled]).await;
    let started = Started::default();
    let model = ScriptedModel::new([ScriptedReply::text("I see.")]);
    let session = started.agent(model.clone()).build().unwrap().open(journal.clone(), id()).await.unwrap();
    let outcome = session.go_on().report().await.outcome;
    assert!(matches!(&outcome, Outcome::Cancelled { reason, .. } if reason == "Ctrl-C"), "{outcome:?}");
    assert!(model.requests().is_empty(), "nobody was asked to go on");
    assert!(!journal.list().unwrap()[0].unfinished, "no run is left open without an owner");

    assert_eq!(session.prompt("What was it?").report().await.outcome, Outcome::Completed);
    check_request(&model.requests()[0].messages, "What was it?");
    let told = format!("{:?}", model.requests()[0].messages[2]);
    assert!(told.contains("unknown") && !told.contains("late"), "{told}");
}

#[tokio::test]
async fn a_queue_and_what_was_spent_survive_a_restart() {
    let (_folder, journal) = left_behind(&[]).await;
    let agent = Started::default().agent(ScriptedModel::new(script())).gate(asks).build().unwrap();
    let session = agent.open(journal.clone(), id()).await.unwrap();
    let mut run = session.prompt("Do it.");
    until_asked(&mut run).await;
    let handle = run.handle();
    assert!(handle.steer("And hurry.") && handle.follow_up("Then rest."));
    let mut queued = 0;
    while queued < 2 {
        queued += usize::from(matches!(run.next().await.unwrap(), Event::Queued { .. }));
    }
    let records = journal.load(&id()).await.unwrap();
    let (_folder, journal) = left_behind(&records).await;

    let model = ScriptedModel::new(["Quickly.", "Resting."].map(ScriptedReply::text));
    let session =
        Started::default().agent(model.clone()).gate(asks).build().unwrap().open(journal, id()).await.unwrap();
    let mut run = session.go_on();
    let handle = run.handle();
    for _ in 0..3 {
        let (call, digest) = until_asked(&mut run).await;
        handle.answer(call, digest, Answer::Approve);
    }
    let report = run.report().await;
    assert_eq!(report.outcome, Outcome::Completed);
    assert_eq!((report.spent.model_calls, report.spent.tool_calls), (3, 3), "with the call before the restart");
    check_request(&model.requests()[0].messages, "And hurry.");
    check_request(&model.requests()[1].messages, "Then rest.");
}
