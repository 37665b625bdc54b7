//! The driver: a thin async loop around the machine.
//!
//! Take an input, `decide`, append the records to the journal, apply them, tell the subscribers, start what is due, wait
//! for the next input. The driver owns everything that it starts: nothing outlives the run unowned.

mod call;
mod clock;
mod task;
pub(crate) mod trace;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use terret_llm::{Message, Money, Usage};
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::call::ModelCall;
use self::clock::{Clock, until};
use self::task::{Finished, TaskId, TaskKind, Work};
use crate::agent::Agent;
use crate::budget::SharedBudget;
use crate::event::{Event, Publisher, Report};
use crate::journal::{Journal, Ownership, SessionId};
use crate::machine::{
    Effect, Failure, Input, Outcome, Prompt, QueueKind, Record, Spent, Stage, State, apply, decide, due,
};
use crate::review::Reviewer;
use crate::tool::Progress;

pub(crate) use self::clock::now;

/// A session's state and how many records it is the fold of.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) state: State,
    pub(crate) records: u64,
    /// Held as long as somebody may append.
    pub(crate) _ownership: Ownership,
}

/// A request to cancel, with the reason of whoever asked first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl Cancel {
    pub(crate) fn request(&self, reason: String) {
        // Only the first reason counts.
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    fn reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_default()
    }
}

/// One run in progress.
pub(crate) struct Driver {
    agent: Agent,
    journal: Arc<dyn Journal>,
    session: SessionId,
    log: OwnedMutexGuard<Log>,
    publisher: Publisher,
    inbox: Inbox,
    cancel: Cancel,
    cancel_seen: bool,
    reviewer: Reviewer,
    /// The model call in flight.
    call: Option<ModelCall>,
    /// Everything else in flight, and which effect each task is.
    tasks: JoinSet<Finished>,
    in_flight: HashMap<tokio::task::Id, TaskId>,
    started: HashSet<TaskId>,
    /// Fires when everything has to stop. A run that goes on after that has a new one.
    stop: CancellationToken,
    /// The digests of questions that were published.
    asked: HashSet<String>,
    wake: Option<Instant>,
    clock: Clock,
    /// Arguments that were validated for the gate, kept for the tool.
    validated: HashMap<String, Value>,
    /// Where tools tell how they are getting on; there once a tool has started.
    progress: Option<(mpsc::Sender<Progress>, mpsc::Receiver<Progress>)>,
    /// The run's spending and undelivered messages, kept across its end.
    ending: Option<Report>,
}

/// What people say to a run. Boxed, because a channel has room for many from the start.
pub(crate) type Inbox = mpsc::UnboundedReceiver<Box<Input>>;

/// What a run is driven with.
pub(crate) struct Reins {
    pub(crate) publisher: Publisher,
    pub(crate) inbox: Inbox,
    pub(crate) cancel: Cancel,
    pub(crate) reviewer: Reviewer,
}

/// The journal could not keep a record.
struct NotDurable(String);

impl Driver {
    pub(crate) fn new(
        agent: Agent,
        journal: Arc<dyn Journal>,
        session: SessionId,
        log: OwnedMutexGuard<Log>,
        reins: Reins,
    ) -> Self {
        let Reins { publisher, inbox, cancel, reviewer } = reins;
        Self {
            agent,
            journal,
            session,
            log,
            publisher,
            inbox,
            cancel,
            cancel_seen: false,
            reviewer,
            call: None,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            started: HashSet::new(),
            stop: CancellationToken::new(),
            asked: HashSet::new(),
            wake: None,
            clock: Clock::new(),
            validated: HashMap::new(),
            progress: None,
            ending: None,
        }
    }

    /// Runs to the end.
    ///
    /// A session whose last run was interrupted goes on with that one, and takes the prompt as steering, before anything
    /// else is started. Where that run only has to end, the prompt starts its own.
    pub(crate) async fn run(mut self, mut prompt: Box<Prompt>) -> Report {
        prompt.exceeded = self.agent.0.shared.as_ref().and_then(SharedBudget::exhausted);
        let (mut first, mut prompt) = if self.log.state.run().is_none() {
            (vec![Input::Prompt(*prompt)], None)
        } else if prompt.message.is_some() && self.only_has_to_end() {
            (vec![Input::Resume], Some(prompt))
        } else {
            let steering = prompt.message.map(|message| Input::Queue { kind: QueueKind::Steering, message });
            (steering.into_iter().chain([Input::Resume]).collect(), None)
        };
        let mut waited = Vec::new();
        let mut report = 'run: loop {
            for input in first.drain(..) {
                let said = said(&input);
                if let Err(NotDurable(error)) = self.step(input).await {
                    break 'run self.not_durable(error, said).await;
                }
            }
            if let Some(report) = self.ending.take() {
                match prompt.take() {
                    Some(prompt) => {
                        // A run of its own: what the one before was told is not for it, and what waited there is handed
                        // back with this one.
                        self.stop = CancellationToken::new();
                        waited = report.undelivered;
                        first.push(Input::Prompt(*prompt));
                    }
                    None => break report,
                }
                continue;
            }
            // Whoever was just told something may cancel before anything further starts.
            tokio::task::yield_now().await;
            if !self.cancel_requested() {
                self.start_due();
            }
            first.push(self.next_input().await);
        };
        report.undelivered.splice(..0, waited);
        let report = self.with_late_messages(report);
        self.publisher.publish(&Event::Ended(report.clone()));
        report
    }

    /// Whether the run that was interrupted does nothing any more but end.
    fn only_has_to_end(&self) -> bool {
        let ends = |record: &Record| matches!(record, Record::RunEnded { .. });
        self.is_stopping() || decide(&self.log.state, Input::Resume, self.clock.now()).iter().any(ends)
    }

    /// Decides about an input, and before it about a shared budget that others have used up.
    async fn step(&mut self, input: Input) -> Result<(), NotDurable> {
        let exceeded = self.log.state.run().is_some_and(|run| run.exceeded.is_some());
        let exhausted = self.agent.0.shared.as_ref().and_then(SharedBudget::exhausted);
        if let Some(budget) = exhausted.filter(|_| !exceeded) {
            self.commit(Input::Exhausted { budget }).await?;
            if let Some(report) = &mut self.ending {
                report.undelivered.extend(said(&input));
                return Ok(());
            }
        }
        self.commit(input).await
    }

    /// Ends a run whose journal has failed, with what was said when it did.
    async fn not_durable(&mut self, error: String, said: Option<Arc<Message>>) -> Report {
        Box::pin(self.stop_everything()).await;
        let mut report = self.report(Outcome::Failed { failure: Failure::Journal(error) });
        report.undelivered.extend(said);
        report
    }

    /// Decides, makes the records durable, and only then takes them in and tells of them.
    async fn commit(&mut self, input: Input) -> Result<(), NotDurable> {
        let records = decide(&self.log.state, input, self.clock.now());
        if records.is_empty() {
            tracing::debug!("an input that the run has no use for was dropped");
            return Ok(());
        }
        // A tool that was spawned and hasn't had its first turn must not start any more. If this isn't durable in the end,
        // everything stops as well.
        if records.iter().any(|it| matches!(it, Record::Cancelled { .. } | Record::Expired | Record::Interrupted)) {
            self.stop.cancel();
        }
        let expected = self.log.records;
        self.journal.append(&self.session, expected, &records).await.map_err(|error| NotDurable(error.to_string()))?;
        self.log.records += records.len() as u64;
        for record in &records {
            self.take_in(record);
        }
        if records.iter().any(|record| matches!(record, Record::Compacted { .. })) {
            self.journal.checkpoint(&self.session, self.log.records, &self.log.state).await;
        }
        Ok(())
    }

    fn take_in(&mut self, record: &Record) {
        if let Some(shared) = &self.agent.0.shared {
            shared.note(record);
        }
        if let Record::RunEnded { outcome } = record {
            self.ending = Some(self.report(outcome.clone()));
        }
        let taken_back = match record {
            Record::Withdrawn { id } => self.log.state.queue().iter().find(|queued| queued.id == *id).cloned(),
            _ => None,
        };
        let before = self.log.state.transcript().len();
        let epoch = self.log.state.epoch();
        apply(&mut self.log.state, record);
        let publish = |event| self.publisher.publish(&event);
        match record {
            Record::RunStarted { run, .. } => publish(Event::RunStarted { run: run.clone() }),
            Record::Queued { .. } => {
                self.log.state.queue().last().cloned().into_iter().map(Event::Queued).for_each(publish)
            }
            Record::Withdrawn { .. } => taken_back.into_iter().map(Event::Withdrawn).for_each(publish),
            Record::Requeued { id, .. } => {
                let queued = self.log.state.queue().iter().find(|queued| queued.id == *id).cloned();
                queued.into_iter().map(Event::Queued).for_each(publish);
            }
            Record::ModelCalled { epoch } => publish(Event::ModelCalled { epoch: *epoch }),
            Record::AttemptFailed { failure, recovery, .. } => {
                publish(Event::AttemptFailed { epoch, failure: failure.clone(), recovery: *recovery });
            }
            Record::CompactionStarted { epoch, .. } => publish(Event::CompactionStarted { epoch: *epoch }),
            Record::Compacted { summary, cut, .. } => {
                return publish(Event::Compacted { summary: summary.clone(), replaced: *cut });
            }
            Record::CallClosed { result } => publish(Event::ToolEnded { result: result.clone() }),
            Record::Cancelled { reason } => publish(Event::Cancelled { reason: reason.clone() }),
            Record::Interrupted => publish(Event::Interrupted),
            Record::Halted { .. } => self.stop = CancellationToken::new(),
            _ => {}
        }
        for message in self.log.state.transcript().get(before..).unwrap_or_default() {
            self.publisher.publish(&Event::Message(message.clone()));
        }
    }

    /// Starts what is due and not yet in flight.
    fn start_due(&mut self) {
        self.wake = None;
        let mut start = Vec::new();
        for effect in due(&self.log.state) {
            let (epoch, work) = match effect {
                Effect::CallModel { epoch, model } => {
                    if self.call.is_none() {
                        let transcript = self.log.state.transcript().clone();
                        self.call = Some(ModelCall::start(&self.agent, epoch, model, transcript, &self.stop));
                    }
                    continue;
                }
                Effect::Ask { call, question, digest } => {
                    if self.asked.insert(digest.clone()) {
                        let (call, question) = (Arc::new(call.clone()), question.to_owned());
                        self.publisher.publish(&Event::Asked { call, question, digest });
                    }
                    continue;
                }
                Effect::Wake { at } => {
                    self.wake = Some(self.clock.instant(at));
                    continue;
                }
                Effect::Stop => continue,
                Effect::Compact { epoch, model, messages } => {
                    (epoch, Work::Compact { model, messages: messages.to_vec() })
                }
                Effect::Review { epoch } => match self.log.state.transcript().last() {
                    Some(reply) => (epoch, Work::Review { reply: reply.clone() }),
                    None => continue,
                },
                Effect::Gate { epoch, call, approved: true } => (epoch, Work::Validate(call.clone())),
                Effect::Gate { epoch, call, approved: false } => (epoch, Work::Gate(call.clone())),
                Effect::StartTool { epoch, call, key } => (epoch, Work::Tool { call: call.clone(), key }),
                Effect::Discover { epoch, call, key } => (epoch, Work::Discover { call: call.clone(), key }),
            };
            start.push((work.id(epoch), work));
        }
        for (id, work) in start {
            if self.started.insert(id.clone()) {
                let task = self.spawn(work);
                self.in_flight.insert(task, id);
            }
        }
    }

    /// Waits for what happens next. A cancel comes first, then what people say, then what has finished.
    async fn next_input(&mut self) -> Input {
        if self.is_stopping() {
            // Boxed, because every waiting run would hold the room for it.
            return Box::pin(self.stop_everything()).await;
        }
        loop {
            tokio::select! {
                biased;
                () = self.cancel.token.cancelled(), if !self.cancel_seen => {
                    self.cancel_seen = true;
                    return Input::Cancel { reason: self.cancel.reason() };
                }
                Some(input) = self.inbox.recv() => return *input,
                () = until(self.wake) => {
                    self.wake = None;
                    return Input::Wake;
                }
                Some((call_id, text)) = next_of(&mut self.progress) => {
                    self.publisher.publish(&Event::ToolProgress { call_id, text });
                }
                Some(input) = ModelCall::next_input(&mut self.call, &self.publisher) => {
                    // The request shares the transcript: let go of it before the transcript grows.
                    self.call = None;
                    return input;
                }
                Some(finished) = self.tasks.join_next_with_id() => {
                    if let Some(input) = self.finished(finished) {
                        return input;
                    }
                }
            }
        }
    }

    /// Stops the model call, tells the tools, waits for the grace period, and then drops what is left. Names the calls
    /// whose tools go on all the same, because they block their thread.
    async fn stop_everything(&mut self) -> Input {
        self.stop.cancel();
        let (usage, cost) = match self.call.take() {
            Some(call) => call.stopped().await,
            None => (Usage::default(), Money::ZERO),
        };
        self.join_until(Instant::now() + self.agent.0.grace).await;
        self.tasks.abort_all();
        self.join_until(Instant::now() + Duration::from_millis(100)).await;
        self.tasks.detach_all();
        self.started.clear();
        self.validated.clear();
        let left = self.in_flight.drain().map(|(_, id)| id);
        let still_running = left.filter(|id| id.kind == TaskKind::Tool).map(|id| id.call_id).collect();
        Input::Stopped { still_running, usage, cost }
    }

    async fn join_until(&mut self, deadline: Instant) {
        while let Ok(Some(finished)) = tokio::time::timeout_at(deadline, self.tasks.join_next_with_id()).await {
            let id = finished.map_or_else(|error| error.id(), |(id, _)| id);
            self.in_flight.remove(&id);
        }
    }

    fn is_stopping(&self) -> bool {
        self.log.state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_)))
    }

    fn cancel_requested(&self) -> bool {
        !self.cancel_seen && self.cancel.token.is_cancelled()
    }

    fn report(&self, outcome: Outcome) -> Report {
        let spent = self.log.state.run().map_or_else(Spent::default, |run| run.spent);
        let last = self.log.state.transcript().last().map(|message| &**message);
        let text = match (&outcome, last) {
            (Outcome::Completed, Some(Message::Assistant(reply))) => Some(reply.text()),
            _ => None,
        };
        let undelivered = self.log.state.queue().iter().map(|queued| queued.message.clone()).collect();
        Report { outcome, spent, text, undelivered }
    }

    /// Hands back what was said while the run was ending.
    fn with_late_messages(&mut self, mut report: Report) -> Report {
        self.inbox.close();
        while let Ok(input) = self.inbox.try_recv() {
            report.undelivered.extend(said(&input));
        }
        report
    }
}

/// What somebody says with an input.
fn said(input: &Input) -> Option<Arc<Message>> {
    match input {
        Input::Queue { message, .. } | Input::Interrupt { message } => Some(Arc::new(message.clone().into())),
        _ => None,
    }
}

/// What a tool tells next. `None` as long as none has started.
async fn next_of(progress: &mut Option<(mpsc::Sender<Progress>, mpsc::Receiver<Progress>)>) -> Option<Progress> {
    progress.as_mut()?.1.recv().await
}
