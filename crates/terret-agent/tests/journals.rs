//! Journals that fail, hang, panic or dawdle: what becomes of what was said, of what was spent, and of the run's time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use support::{Ran, agent, call};
use terret_agent::machine::{Budget, Failure, Limits, Outcome, Record, State};
use terret_agent::{
    Agent, AgentBuilder, Event, FnTool, Journal, JournalError, MemoryJournal, Report, Session, SessionId, SharedBudget,
    SharedLimits, ToolContext, fold, tool,
};
use terret_llm::{Message, ScriptedModel, ScriptedReply, Usage};
use tokio::sync::Notify;

/// What a journal does with some records.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Keep,
    Refuse,
    KeepAndFail,
    /// Not before it is told to.
    KeepLater,
    KeepAfter(Duration),
}

type Mood = dyn Fn(&[Record]) -> Does + Send + Sync;

struct Moody {
    inner: MemoryJournal,
    does: Box<Mood>,
    release: Arc<Notify>,
    /// Whether reading and checkpoints panic.
    panics: Arc<AtomicBool>,
}

impl Moody {
    fn new(does: impl Fn(&[Record]) -> Does + Send + Sync + 'static) -> Self {
        let (inner, does) = (MemoryJournal::new(), Box::new(does));
        Self { inner, does, release: Arc::default(), panics: Arc::default() }
    }
}

impl Journal for Moody {
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            match (self.does)(records) {
                Does::Keep => {}
                Does::Refuse => return Err(JournalError::Storage("the disk is full".into())),
                Does::KeepAndFail => {
                    self.inner.append(session, expected, records).await?;
                    return Err(JournalError::Storage("the answer was lost".into()));
                }
                Does::KeepLater => self.release.notified().await,
                Does::KeepAfter(long) => tokio::time::sleep(long).await,
            }
            self.inner.append(session, expected, records).await
        })
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        assert!(!self.panics.load(Ordering::Relaxed), "a bug");
        self.inner.load(session)
    }

    fn checkpoint<'a>(&'a self, _: &'a SessionId, _: u64, _: &'a State) -> BoxFuture<'a, ()> {
        assert!(!self.panics.load(Ordering::Relaxed), "a bug");
        Box::pin(std::future::ready(()))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Does nothing until it is told to stop.
fn waits() -> FnTool {
    tool("waits", "", |_: Nothing, context: ToolContext| async move {
        context.cancel.cancelled().await;
        Ok("stopped")
    })
}

async fn opened(agent: AgentBuilder, journal: Moody) -> Session {
    agent.build().unwrap().open(Arc::new(journal), SessionId::from("the session".to_owned())).await.unwrap()
}

fn ends(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record, Record::RunEnded { .. }))
}

fn undelivered(report: &Report) -> Vec<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::User(user) => user.content.iter().filter_map(|content| content.as_text()).collect(),
        other => panic!("{other:?}"),
    };
    report.undelivered.iter().map(text).collect()
}

fn of_journal(report: &Report) -> bool {
    matches!(report.outcome, Outcome::Failed { failure: Failure::Journal(_) })
}

fn for_so_long(wall_time: Duration) -> Limits {
    let mut limits = Limits::default();
    limits.wall_time = NonZeroU64::new(wall_time.as_millis().try_into().unwrap());
    limits
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_handed_back_when_the_end_may_or_may_not_be_kept() {
    let journal = Moody::new(|records| if ends(records) { Does::KeepLater } else { Does::Keep });
    let (kept, release) = (journal.inner.clone(), journal.release.clone());
    let session = opened(agent([call("c1", "waits", "{}")]).tool(waits()), journal).await;
    let mut run = session.prompt("?");
    let handle = run.handle();
    while !matches!(run.next().await.unwrap(), Event::ToolStarted { .. }) {}
    handle.follow_up("And then?");
    while !matches!(run.next().await.unwrap(), Event::Queued(_)) {}
    handle.cancel("enough");
    let report = run.report().await;
    assert!(of_journal(&report), "{:?}", report.outcome);
    assert_eq!(undelivered(&report), ["And then?"]);
    release.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fold(&kept.records(session.id())).queue(), [], "it was kept in the end, and nothing waits there");
}

#[tokio::test(start_paused = true)]
async fn what_waits_can_be_taken_back_while_the_run_ends() {
    let slow = Does::KeepAfter(Duration::from_secs(5));
    let journal = Moody::new(move |records| if ends(records) { slow } else { Does::Keep });
    let session = opened(agent([call("c1", "waits", "{}")]).tool(waits()), journal).await;
    let mut run = session.prompt("?");
    let handle = run.handle();
    while !matches!(run.next().await.unwrap(), Event::ToolStarted { .. }) {}
    handle.follow_up("one");
    handle.follow_up("two");
    let Some(Event::Queued(first)) = run.next().await else { panic!("nothing is queued") };
    handle.cancel("enough");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(handle.withdraw(first.id));
    let ran = Ran::to_end(run).await;
    assert!(ran.events.contains(&Event::Withdrawn(first)));
    assert_eq!(undelivered(ran.report()), ["two"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_back_is_handed_back_by_a_journal_that_keeps_it_and_fails() {
    let withdraws = |record: &Record| matches!(record, Record::Withdrawn { .. });
    let does = move |records: &[Record]| if records.iter().any(withdraws) { Does::KeepAndFail } else { Does::Keep };
    let session = opened(agent([call("c1", "waits", "{}")]).tool(waits()), Moody::new(does)).await;
    let mut run = session.prompt("?");
    while !matches!(run.next().await.unwrap(), Event::ToolStarted { .. }) {}
    run.handle().follow_up("And then?");
    let Some(Event::Queued(waiting)) = run.next().await else { panic!("nothing is queued") };
    run.handle().withdraw(waiting.id);
    let ran = Ran::to_end(run).await;
    assert!(of_journal(ran.report()), "{:?}", ran.outcome());
    assert!(ran.events.contains(&Event::Withdrawn(waiting)), "{:?}", ran.events);
}

#[tokio::test(start_paused = true)]
async fn what_a_call_used_up_that_a_failed_journal_stopped_is_counted() {
    let mut usage = Usage::default();
    usage.input = 100;
    let budget = SharedBudget::new(SharedLimits::default());
    let queues = |record: &Record| matches!(record, Record::Queued { .. });
    let journal = Moody::new(move |records| if records.iter().any(queues) { Does::Refuse } else { Does::Keep });
    let model = support::Talkative::new(usage);
    let session = opened(Agent::builder(model).shared_budget(budget.clone()), journal).await;
    let mut run = session.prompt("?");
    while !matches!(run.next().await.unwrap(), Event::Delta { .. }) {}
    run.handle().steer("And then?");
    let report = run.report().await;
    assert!(of_journal(&report), "{:?}", report.outcome);
    assert_eq!(undelivered(&report), ["And then?"]);
    assert_eq!((report.spent.usage.input, budget.spent().usage.input), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_panics_when_it_is_read_has_failed_and_what_was_said_is_handed_back() {
    let refuses = AtomicBool::new(true);
    let refuses = move |_: &[Record]| if refuses.swap(false, Ordering::Relaxed) { Does::Refuse } else { Does::Keep };
    let journal = Moody::new(refuses);
    let panics = journal.panics.clone();
    let session = opened(agent([ScriptedReply::text("Yes.")]), journal).await;
    panics.store(true, Ordering::Relaxed);
    for said in ["one", "two"] {
        let report = session.prompt(said).report().await;
        assert!(of_journal(&report), "{:?}", report.outcome);
        assert_eq!(undelivered(&report), [said]);
    }
    panics.store(false, Ordering::Relaxed);
    assert_eq!(session.prompt("three").report().await.text.as_deref(), Some("Yes."));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_panics_harms_nobody() {
    let journal = Moody::new(|_| Does::Keep);
    let panics = journal.panics.clone();
    let long = || ScriptedReply::text("It was a dark and stormy night. ".repeat(200));
    let session = opened(agent([long(), long(), ScriptedReply::text("A night.")]), journal).await;
    session.prompt("Tell me.").report().await;
    session.prompt("More.").report().await;
    panics.store(true, Ordering::Relaxed);
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_does_not_answer_does_not_keep_a_run_beyond_its_time() {
    let replies = |record: &Record| matches!(record, Record::ReplyAccepted { .. });
    let journal = Moody::new(move |records| if records.iter().any(replies) { Does::KeepLater } else { Does::Keep });
    let limits = for_so_long(Duration::from_secs(60));
    let session = opened(agent([ScriptedReply::text("So.")]).limits(limits), journal).await;
    let started = tokio::time::Instant::now();
    let report = tokio::time::timeout(Duration::from_secs(3_600), session.prompt("?").report()).await.unwrap();
    assert!(of_journal(&report), "{:?}", report.outcome);
    assert!(started.elapsed() >= Duration::from_secs(60), "it had its time");
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_when_the_time_was_up_before_its_record_was_kept() {
    let journal = Moody::new(|_| Does::KeepAfter(Duration::from_secs(5)));
    let model = ScriptedModel::new([ScriptedReply::text("So.")]);
    let limits = for_so_long(Duration::from_secs(1));
    let report = opened(Agent::builder(model.clone()).limits(limits), journal).await.prompt("?").report().await;
    let out_of_time = Outcome::OutOfBudget { budget: Budget::WallTime, still_running: Vec::new() };
    assert_eq!((report.outcome, model.requests().len()), (out_of_time, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_began_has_not_spent_what_an_open_one_has() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let does = move |_: &[Record]| if failing.load(Ordering::Relaxed) { Does::Refuse } else { Does::Keep };
    let session = opened(agent([call("c1", "waits", "{}")]).tool(waits()), Moody::new(does)).await;
    let mut run = session.prompt("?");
    while !matches!(run.next().await.unwrap(), Event::ToolStarted { .. }) {}
    fails.store(true, Ordering::Relaxed);
    run.handle().steer("And?");
    assert_eq!(run.report().await.spent.model_calls, 1);
    let report = session.prompt("again").report().await;
    assert_eq!((undelivered(&report), report.spent.model_calls), (vec!["again".to_owned()], 0));
}
