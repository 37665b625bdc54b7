//! What people do to a run while it is busy: interrupt it, change their mind about what they queued, look in late.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use support::{Ran, Talkative, agent, call, text};
use terret_agent::machine::{Failure, Outcome, QueueKind};
use terret_agent::{
    Agent, EffectClass, Event, FnTool, HookError, Hooks, Review, Run, Snapshot, Summarize, Summary, SummaryFailed,
    ToolContext, tool,
};
use terret_llm::{AssistantMessage, ErrorKind, Message, ModelError, Price, Rates, ScriptedModel, ScriptedReply, Usage};
use tokio_util::sync::CancellationToken;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Does nothing for ever, and stops when it is told to.
fn endless(effect: EffectClass) -> FnTool {
    tool("endless", "", |_: Nothing, context: ToolContext| async move {
        context.cancel.cancelled().await;
        Ok("stopped")
    })
    .effect(effect)
}

/// Reads the run to its end, and does something at each event.
async fn reading(mut run: Run, mut at: impl FnMut(&Event)) -> Ran {
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        at(&event);
        events.push(event);
    }
    Ran { events }
}

fn user_texts(ran: &Ran) -> Vec<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::User(user) => Some(user.content.iter().filter_map(|content| content.as_text()).collect::<String>()),
        _ => None,
    };
    ran.messages().iter().filter_map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn an_interruption_stops_the_model_and_the_run_goes_on_with_what_is_said() {
    let model = ScriptedModel::new([ScriptedReply::text("A long sto").stall(), ScriptedReply::text("As you like.")]);
    let run = Agent::builder(model.clone()).build().unwrap().prompt("Tell me a story.");
    let handle = run.handle();
    let mut said = false;
    let ran = reading(run, |event| {
        if matches!(event, Event::Delta { .. }) && !std::mem::replace(&mut said, true) {
            handle.interrupt("A short one.");
        }
    })
    .await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert_eq!(ran.report().text.as_deref(), Some("As you like."));
    assert_eq!(user_texts(&ran), ["Tell me a story.", "A short one."]);
    assert_eq!(model.requests()[1].messages.len(), 2, "nothing of the broken reply is sent");
}

#[tokio::test(start_paused = true)]
async fn an_interruption_stops_tools_and_the_model_is_told_the_truth() {
    for (effect, told) in [(EffectClass::ReadOnly, "call it again"), (EffectClass::AtMostOnce, "Outcome unknown")] {
        let replies = [call("c1", "endless", "{}"), ScriptedReply::text("All right.")];
        let run = agent(replies).tool(endless(effect)).build().unwrap().prompt("?");
        let handle = run.handle();
        let ran = reading(run, |event| {
            if let Event::ToolStarted { .. } = event {
                handle.interrupt("Never mind.");
            }
        })
        .await;
        assert_eq!(ran.outcome(), &Outcome::Completed);
        assert_eq!(ran.tools_started(), ["c1"], "it is started once");
        assert!(text(&ran.results()[0]).contains(told), "{}", text(&ran.results()[0]));
        assert!(ran.events.contains(&Event::Interrupted));
        assert_eq!(user_texts(&ran), ["?", "Never mind."]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_interrupted_again_and_then_cancelled() {
    let replies =
        [ScriptedReply::text("one").stall(), ScriptedReply::text("two").stall(), ScriptedReply::text("three").stall()];
    let run = agent(replies).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut calls = 0;
    let ran = reading(run, |event| {
        if let Event::Delta { event: terret_llm::StreamEvent::BlockDelta { .. }, .. } = event {
            calls += 1;
            if calls < 3 { _ = handle.interrupt("again") } else { handle.cancel("enough") }
        }
    })
    .await;
    assert!(matches!(ran.outcome(), Outcome::Cancelled { .. }));
    assert_eq!(user_texts(&ran), ["?", "again", "again"]);
    assert_eq!(ran.report().spent.model_calls, 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_can_be_seen_changed_and_taken_back() {
    let run = agent([call("c1", "endless", "{}"), ScriptedReply::text("one"), ScriptedReply::text("two")])
        .tool(endless(EffectClass::ReadOnly).time_limit(Duration::from_secs(1)))
        .build()
        .unwrap()
        .prompt("?");
    let handle = run.handle();
    let ran = reading(run, |event| match event {
        Event::ToolStarted { .. } => {
            handle.steer("wrong");
            handle.steer("not at all");
            handle.follow_up("later");
        }
        Event::Queued(queued) if queued.kind == QueueKind::FollowUp => {
            assert!(handle.requeue(queued.id - 2, "right"));
            assert!(handle.withdraw(queued.id - 1));
            assert!(handle.withdraw(999), "of what isn't there nothing comes");
        }
        _ => {}
    })
    .await;
    assert_eq!(user_texts(&ran), ["?", "right", "later"]);
    let withdrawn: Vec<_> = ran.events.iter().filter(|event| matches!(event, Event::Withdrawn(_))).collect();
    assert_eq!(withdrawn.len(), 1);
    assert!(ran.report().undelivered.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interruption_of_a_run_that_has_ended_is_handed_back() {
    let run = agent([ScriptedReply::text("Done.")]).build().unwrap().prompt("?");
    let handle = run.handle();
    let ran = Ran::to_end(run).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert!(!handle.interrupt("too late"));
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_call_used_up_is_counted() {
    let mut usage = Usage::default();
    usage.input = 100;
    let mut model = Talkative::new(usage);
    Arc::make_mut(&mut model.spec).price = Some(Price::flat(Rates { input: 1_000_000, ..Rates::default() }));
    let run = Agent::builder(model).build().unwrap().prompt("?");
    let handle = run.handle();
    let ran = reading(run, |event| {
        if let Event::Delta { .. } = event {
            handle.cancel("enough");
        }
    })
    .await;
    assert!(matches!(ran.outcome(), Outcome::Cancelled { .. }));
    assert_eq!((ran.report().spent.usage.input, ran.report().spent.cost.nanos()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_late_begins_with_what_is_in_flight() {
    let reply = ScriptedReply::text("abcdef").chunk(1).delta_delay(Duration::from_secs(1));
    let mut run = agent([reply]).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut late = None;
    let mut seen = 0;
    while let Some(event) = run.next().await {
        if let Event::Delta { event: terret_llm::StreamEvent::BlockDelta { .. }, .. } = event {
            seen += 1;
            if seen == 3 {
                late = Some(handle.events());
            }
        }
    }
    let mut late = late.unwrap();
    let Some(Event::Snapshot(Snapshot { reply: Some((_, blocks)), .. })) = late.next().await else { panic!() };
    let mut text = blocks[0].text.clone();
    assert_eq!(text, "abc");
    while let Some(event) = late.next().await {
        if let Event::Delta { event: terret_llm::StreamEvent::BlockDelta { text: more, .. }, .. } = event {
            text.push_str(&more);
        }
    }
    assert_eq!(text, "abcdef");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_lagged_gets_a_snapshot_and_goes_on_from_there() {
    let (piece, pieces) = (100_000, 30);
    let reply = ScriptedReply::text("x".repeat(piece * pieces)).chunk(piece).delta_delay(Duration::from_secs(1));
    let run = agent([reply]).build().unwrap().prompt("?");
    let mut slow = run.handle().events();
    // The other one reads along, which keeps the run going; after 25 seconds the slow one wakes up.
    let counted = Arc::new(AtomicU32::new(0));
    let count = counted.clone();
    let quick = tokio::spawn(reading(run, move |_| _ = count.fetch_add(1, Ordering::Relaxed)));
    tokio::time::sleep(Duration::from_millis(25_500)).await;
    let (mut text, mut lagged) = (0, 0);
    while let Some(event) = slow.next().await {
        match event {
            Event::Delta { event: terret_llm::StreamEvent::BlockDelta { text: more, .. }, .. } => text += more.len(),
            Event::Lagged => lagged += 1,
            Event::Snapshot(snapshot) => text = snapshot.reply.map_or(0, |(_, blocks)| blocks[0].text.len()),
            _ => {}
        }
    }
    assert_eq!((text, lagged), (piece * pieces, 1));
    assert_eq!(quick.await.unwrap().outcome(), &Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_keeps_the_wait_that_the_provider_has_asked_for() {
    let late = ModelError::new(ErrorKind::RateLimited, "slowly").with_retry_after(Duration::from_secs(50));
    let run = agent([ScriptedReply::text("").error(late), ScriptedReply::text("So.")]).build().unwrap().prompt("?");
    let handle = run.handle();
    let started = tokio::time::Instant::now();
    let ran = reading(run, |event| {
        if let Event::AttemptFailed { .. } = event {
            handle.interrupt("And now?");
        }
    })
    .await;
    assert_eq!((ran.outcome(), started.elapsed().as_secs()), (&Outcome::Completed, 50));
    assert_eq!(user_texts(&ran), ["?", "And now?"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_tool_that_blocks_its_thread_is_named_and_tells_nothing_more() {
    let go_on = Arc::new(AtomicBool::new(true));
    let blocking = {
        let go_on = go_on.clone();
        tool("blocking", "", move |_: Nothing, context: ToolContext| {
            let go_on = go_on.clone();
            async move {
                // From a thread of its own: what a blocked worker has woken, it alone could run.
                let telling = go_on.clone();
                std::thread::spawn(move || {
                    while telling.load(Ordering::Relaxed) {
                        context.progress.send("still at it");
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
                while go_on.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok("at last")
            }
        })
    };
    let replies = [call("c1", "blocking", "{}"), ScriptedReply::text("All right.").delay(Duration::from_millis(100))];
    let run = agent(replies).tool(blocking).grace(Duration::from_millis(10)).build().unwrap().prompt("?");
    let handle = run.handle();
    let ran = reading(run, |event| {
        if let Event::ToolProgress { .. } = event {
            handle.interrupt("Never mind.");
        }
    })
    .await;
    go_on.store(false, Ordering::Relaxed);
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert_eq!(ran.report().still_running, ["c1"]);
    assert!(ran.events.contains(&Event::Halted { still_running: vec!["c1".into()] }));
    let ended = ran.events.iter().position(|event| matches!(event, Event::ToolEnded { .. })).unwrap();
    assert!(!ran.events[ended..].iter().any(|event| matches!(event, Event::ToolProgress { .. })));
}

#[tokio::test(start_paused = true)]
async fn what_waits_can_be_changed_until_it_is_handed_back() {
    let run = agent([ScriptedReply::text("x").stall()]).build().unwrap().prompt("?");
    let handle = run.handle();
    handle.follow_up("old");
    let mut waits = 0;
    let ran = reading(run, |event| match event {
        Event::Queued(queued) if queued.kind == QueueKind::FollowUp && waits == 0 => {
            waits = queued.id;
            handle.cancel("enough");
        }
        Event::Cancelled { .. } => assert!(handle.requeue(waits, "new")),
        _ => {}
    })
    .await;
    let handed_back = serde_json::to_string(&ran.report().undelivered).unwrap();
    assert!(handed_back.contains("new") && !handed_back.contains("old"), "{handed_back}");
}

#[tokio::test(start_paused = true)]
async fn steering_during_a_review_drops_the_review() {
    /// Whether a review is under way.
    struct Under(Arc<AtomicU32>);
    impl Drop for Under {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    struct Slow(Arc<AtomicU32>);
    impl Hooks for Slow {
        fn at_end<'a>(&'a self, _: &'a AssistantMessage) -> BoxFuture<'a, Result<Review, HookError>> {
            Box::pin(async {
                assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "one review at a time");
                let _under = Under(self.0.clone());
                tokio::time::sleep(Duration::from_secs(5)).await;
                Ok(Review::Accept)
            })
        }
    }
    let under = Arc::<AtomicU32>::default();
    let replies = [ScriptedReply::text("one"), ScriptedReply::text("two")];
    let run = agent(replies).hooks(Slow(under.clone())).build().unwrap().prompt("?");
    let handle = run.handle();
    let read = tokio::spawn(Ran::to_end(run));
    tokio::time::sleep(Duration::from_secs(1)).await;
    handle.steer("more");
    let ran = read.await.unwrap();
    assert_eq!((ran.outcome(), ran.report().text.as_deref()), (&Outcome::Completed, Some("two")));
    assert_eq!(under.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_summary_used_up_is_counted() {
    struct Costly;
    impl Summarize for Costly {
        fn summarize<'a>(
            &'a self,
            _: &'a [Arc<Message>],
            _: &'a dyn terret_llm::Model,
            cancel: CancellationToken,
        ) -> BoxFuture<'a, Result<Summary, SummaryFailed>> {
            Box::pin(async move {
                cancel.cancelled().await;
                let mut usage = Usage::default();
                usage.input = 5_000;
                Err(SummaryFailed { failure: Failure::Compaction("cancelled".into()), usage })
            })
        }
    }
    let session = agent([ScriptedReply::text("x".repeat(3_000))]).summarizer(Costly).build().unwrap().session();
    session.prompt("p".repeat(3_000)).report().await;
    let run = session.compact();
    let handle = run.handle();
    let ran = reading(run, |event| {
        if let Event::CompactionStarted { .. } = event {
            let handle = handle.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                handle.cancel("enough");
            });
        }
    })
    .await;
    assert_eq!(ran.report().spent.usage.input, 5_000);
}
