//! A life of the process: it opens the session, and prompts it until it dies or there is nothing more to say.

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use terret_agent::machine::{Answer, Budget, CompactionLimits, Limits, Outcome, Recovery};
use terret_agent::{
    Agent, Event, Events, Question, Report, RunHandle, Session, SessionId, SharedBudget, SharedLimits, fold,
};
use terret_llm::{Content, Message, ToolCall};

use crate::actors::{AnyGate, AnyHooks, AnyModel, AnyTool, TOOLS};
use crate::journal::Records;
use crate::world::{Seen, World};

pub(crate) async fn live(world: &Arc<World>) {
    let journal = Arc::new(Records(world.clone()));
    let session = agent(world).open(journal, SessionId::from("the session".to_owned())).await.unwrap();
    loop {
        let left = {
            let mut inner = world.lock();
            inner.prompts_left = inner.prompts_left.saturating_sub(1);
            inner.prompts_left
        };
        let interrupted = fold(&world.lock().records).run().is_some();
        if left == 0 && !interrupted {
            world.lock().over = true;
            return;
        }
        run(world, &session).await;
        // After a failed append nobody but the journal knows what is kept. The session asks it before it goes on; some open
        // it again.
        if std::mem::take(&mut world.lock().journal_failed) {
            if world.once_in(2) {
                return;
            }
            continue;
        }
        let kept = fold(&world.lock().records);
        if *kept.transcript() != session.transcript().await {
            world.problem("the records don't fold to the session's transcript".into());
        }
        if kept.run().is_some() {
            world.problem("the run has ended, and its records don't say so".into());
        }
    }
}

fn agent(world: &Arc<World>) -> Agent {
    let mut limits = Limits::default();
    limits.model_calls = NonZeroU32::new(3 + world.roll(6)).unwrap();
    limits.parallel_tools = NonZeroU32::new(2).unwrap();
    limits.wall_time = NonZeroU64::new(90_500);
    limits.tool_calls = world.once_in(6).then(|| NonZeroU32::new(2).unwrap());
    limits.compaction = Some(CompactionLimits::for_window(Some(900)));
    let mut agent = Agent::builder(AnyModel::new(world, "first")).gate(AnyGate(world.clone())).limits(limits);
    if world.once_in(2) {
        agent = agent.fallback(AnyModel::new(world, "second"));
    }
    if world.once_in(10) {
        let limits = SharedLimits { model_calls: Some(world.roll(4)), ..SharedLimits::default() };
        agent = agent.shared_budget(SharedBudget::new(limits));
    }
    if world.once_in(3) {
        agent = agent.hooks(AnyHooks(world.clone()));
    }
    if world.once_in(2) {
        agent = agent.tool_time_limit(Duration::from_secs(5));
    }
    TOOLS.into_iter().fold(agent, |agent, tool| agent.tool(AnyTool::new(world, tool))).build().unwrap()
}

/// One run, watched to its end by somebody who isn't its owner.
async fn run(world: &Arc<World>, session: &Session) {
    world.see(Seen::Run);
    let begin = world.lock().records.len();
    let run = if world.once_in(4) { session.go_on() } else { session.prompt(format!("prompt-{}", world.number())) };
    let handle = run.handle();
    world.lock().handle = Some(handle.clone());
    if world.once_in(3) {
        tokio::spawn(read_slowly(handle.events(), world.roll(50)));
    }
    // Who owns a run may also drop it half way.
    let owner = (!world.once_in(8)).then_some(run);
    if owner.is_none() {
        world.see(Seen::DroppedRun);
    }
    let watched = tokio::time::timeout(Duration::from_secs(3_600), watch(world, handle.events(), &handle)).await;
    match watched {
        Ok(Some(report)) => {
            ended(world, &report);
            let mut inner = world.lock();
            let end = inner.records.len();
            inner.told.push(begin..end);
        }
        Ok(None) => world.problem("a run has ended without an Ended event".into()),
        Err(_) => world.problem("a run doesn't end".into()),
    }
    drop(owner);
}

async fn read_slowly(mut events: Events, most: u32) {
    for _ in 0..most {
        tokio::time::sleep(Duration::from_millis(400)).await;
        if events.next().await.is_none() {
            return;
        }
    }
}

/// Reads everything, and answers questions: late, wrongly or never.
async fn watch(world: &Arc<World>, mut events: Events, handle: &RunHandle) -> Option<Report> {
    let (mut ended, mut asked) = (None, HashSet::new());
    while let Some(event) = events.next().await {
        if ended.is_some() {
            world.problem(format!("something came after the end: {event:?}"));
        }
        world.note_event(&event);
        match event {
            Event::Asked(Question { call, digest, .. }) => {
                world.see(Seen::Asked);
                if !asked.insert(digest.clone()) {
                    world.problem(format!("a person was asked twice about {}", call.id));
                }
                tokio::spawn(answer(world.clone(), handle.clone(), call, digest));
            }
            Event::Queued(queued) => world.lock().waits = queued.id,
            Event::Withdrawn(queued) => {
                world.see(Seen::Withdrawn);
                let text = text(&queued.message).unwrap();
                // It may also be a prompt.
                if let Some(said) = world.lock().said.get_mut(&text) {
                    said.withdrawn += 1;
                }
            }
            Event::Interrupted => world.see(Seen::Interrupted),
            Event::Compacted { .. } => world.see(Seen::Compacted),
            Event::AttemptFailed { recovery: Some(Recovery::Retry { .. }), .. } => world.see(Seen::Retried),
            Event::AttemptFailed { recovery: Some(Recovery::FallBack), .. } => world.see(Seen::FellBack),
            Event::Ended(report) => ended = Some(report),
            _ => {}
        }
    }
    ended
}

async fn answer(world: Arc<World>, handle: RunHandle, call: Arc<ToolCall>, digest: String) {
    world.point("a question").await;
    // This changes nothing: the person has seen something else.
    handle.answer(&*call.id, "0000", Answer::Approve);
    handle.answer("c0", &*digest, Answer::Approve);
    tokio::time::sleep(Duration::from_secs(u64::from(world.roll(30)))).await;
    let answer = match world.roll(6) {
        0 => Answer::Deny { reason: "no".into() },
        1 => Answer::ApproveForRun,
        2 => Answer::Edit(r#"{"n":9}"#.into()),
        3 => return,
        _ => Answer::Approve,
    };
    if !matches!(answer, Answer::Deny { .. }) {
        let mut inner = world.lock();
        inner.approved.insert(call.id.clone());
        if answer == Answer::ApproveForRun {
            inner.approved_tools.insert(call.name.clone());
        }
    }
    handle.answer(&*call.id, digest, answer);
}

fn ended(world: &World, report: &Report) {
    match &report.outcome {
        Outcome::Completed => world.see(Seen::Completed),
        Outcome::Cancelled { .. } => world.see(Seen::Cancelled),
        Outcome::OutOfBudget { budget: Budget::WallTime, .. } => world.see(Seen::OutOfTime),
        Outcome::Failed { .. } => world.see(Seen::Refused),
        _ => {}
    }
    let doubtful = world.lock().journal_failed;
    world.settle(|said| said.doubtful = doubtful);
    let mut inner = world.lock();
    for text in report.undelivered.iter().filter_map(|message| text(message)) {
        if let Some(said) = inner.said.get_mut(&text) {
            said.handed_back += 1;
        }
    }
}

/// What a user message says.
pub(crate) fn text(message: &Message) -> Option<String> {
    match message {
        Message::User(user) => user.content.first().and_then(Content::as_text).map(str::to_owned),
        _ => None,
    }
}
