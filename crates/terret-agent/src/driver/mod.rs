//! The driver: a thin async loop around the machine.
//!
//! Take an input, `decide`, append the records to the journal, apply them, tell the subscribers, start what is due, wait
//! for the next input. The driver owns everything that it starts: nothing outlives the run unowned.

mod call;
mod cancel;
mod clock;
mod end;
mod stop;
mod task;
pub(crate) mod trace;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use terret_llm::Message;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::call::ModelCall;
use self::clock::{Clock, until};
use self::end::{NotDurable, said};
use self::task::{Finished, TaskId, TaskKind, Work};
use crate::agent::Agent;
use crate::budget::SharedBudget;
use crate::event::{Event, Publisher, Question, Report};
use crate::journal::{Journal, JournalError, Ownership, Resumed, SessionId};
use crate::machine::{CallStage, Effect, Input, Prompt, QueueKind, Record, Stage, State, Task, apply, decide, due};
use crate::review::Reviewer;
use crate::tool::Progress;

pub(crate) use self::cancel::Cancel;
pub(crate) use self::clock::now;

/// A session's state and how many records it is the fold of.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) state: State,
    pub(crate) records: u64,
    /// The journal has failed, and may have kept more than that. It is read anew before anything is appended.
    pub(crate) stale: bool,
    /// Held as long as somebody may append.
    pub(crate) _ownership: Ownership,
}

impl Log {
    /// Takes in what the journal holds, if it has failed since.
    pub(crate) async fn catch_up(&mut self, journal: &dyn Journal, session: &SessionId) -> Result<(), JournalError> {
        if self.stale {
            let Resumed { state, records } = journal.resume(session).await?;
            (self.state, self.records, self.stale) = (state, records, false);
        }
        Ok(())
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
    in_flight: HashMap<tokio::task::Id, InFlight>,
    started: HashSet<TaskId>,
    /// The calls whose tools were announced by this driver, and whether each has begun.
    begun: HashMap<String, Arc<AtomicBool>>,
    /// The calls whose tools could not be stopped.
    unstoppable: Vec<(String, AbortHandle)>,
    /// What stopping everything came to, and is yet to be decided about.
    stopped: VecDeque<Input>,
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
    /// The numbers of the undelivered messages.
    handed_back: Vec<u64>,
}

/// A task, and the effect that it is.
struct InFlight {
    id: TaskId,
    task: AbortHandle,
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
            begun: HashMap::new(),
            unstoppable: Vec::new(),
            stopped: VecDeque::new(),
            stop: CancellationToken::new(),
            asked: HashSet::new(),
            wake: None,
            clock: Clock::new(),
            validated: HashMap::new(),
            progress: None,
            ending: None,
            handed_back: Vec::new(),
        }
    }

    /// Runs to the end.
    ///
    /// A session whose last run was interrupted goes on with that one, and takes the prompt as steering, before anything
    /// else is started. Where that run only has to end, the prompt starts its own. One that wants something else than an
    /// answer takes its place.
    pub(crate) async fn run(mut self, mut prompt: Box<Prompt>) -> Report {
        if let Err(error) = self.log.catch_up(&*self.journal, &self.session).await {
            let failed = NotDurable { error, end: false };
            let report = self.not_durable(failed, prompt.message.take().map(|message| Arc::new(message.into()))).await;
            return self.end(report, Vec::new());
        }
        prompt.exceeded = self.agent.0.shared.as_ref().and_then(SharedBudget::exhausted);
        let takes_its_place = self.reviewer.is_some() || prompt.task == Task::Compact;
        let (mut first, mut prompt) = if self.log.state.run().is_none() {
            (vec![Input::Prompt(*prompt)], None)
        } else if (prompt.message.is_some() || takes_its_place) && self.only_has_to_end() {
            (vec![Input::Resume], Some(prompt))
        } else if takes_its_place {
            (vec![Input::Cancel { reason: "another run takes its place".into() }], Some(prompt))
        } else {
            let steering = prompt.message.map(|message| Input::Queue { kind: QueueKind::Steering, message });
            (steering.into_iter().chain([Input::Resume]).collect(), None)
        };
        let mut waited = Vec::new();
        let report = 'run: loop {
            for input in first.drain(..) {
                let said = said(&input);
                if let Err(failed) = self.step(input).await {
                    break 'run self.not_durable(failed, said).await;
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
        self.end(report, waited)
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
        self.log.stale = true;
        let appended = tokio::select! {
            biased;
            appended = self.journal.append(&self.session, expected, &records) => appended,
            () = self.cancel.requested_for(self.agent.0.grace) => Err(JournalError::Storage("it did not answer, and the run was cancelled".into())),
        };
        // Where others have gone on, the session is theirs, and to be opened anew.
        self.log.stale = matches!(appended, Err(JournalError::Storage(_)));
        if let Err(error) = appended {
            let end = records.iter().any(|record| matches!(record, Record::RunEnded { .. }));
            return Err(NotDurable { error, end });
        }
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
        let asked = if let Record::CallApproved { .. } = record { self.asked_calls() } else { Vec::new() };
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
            Record::CallApproved { .. } => {
                let batch = self.log.state.batch();
                let calls = asked.iter().filter_map(|id| batch?.get(id));
                let approved = calls.filter(|call| !matches!(call.stage, CallStage::Asked { .. }));
                approved.map(|it| Event::Approved { call: it.call.clone() }).for_each(publish);
            }
            Record::CallOpened { call_id } => _ = self.begun.insert(call_id.clone(), Arc::default()),
            Record::CallClosed { result } => {
                if let Message::ToolResult(result) = &**result {
                    self.begun.remove(&result.tool_call_id);
                }
                publish(Event::ToolEnded { result: result.clone() });
            }
            Record::Cancelled { reason } => publish(Event::Cancelled { reason: reason.clone() }),
            Record::Interrupted => publish(Event::Interrupted),
            Record::Halted { still_running } => {
                self.stop = CancellationToken::new();
                publish(Event::Halted { still_running: still_running.clone() });
            }
            _ => {}
        }
        for message in self.log.state.transcript().get(before..).unwrap_or_default() {
            self.publisher.publish(&Event::Message(message.clone()));
        }
    }

    /// The ids of the calls that somebody is asked about.
    fn asked_calls(&self) -> Vec<String> {
        let calls = self.log.state.batch().into_iter().flat_map(|batch| &batch.calls);
        let asked = calls.filter(|call| matches!(call.stage, CallStage::Asked { .. }));
        asked.map(|call| call.call.id.clone()).collect()
    }

    /// Starts what is due and not yet in flight. A review that isn't due any more, because somebody has said something
    /// meanwhile, is dropped.
    fn start_due(&mut self) {
        self.wake = None;
        let epoch = self.log.state.epoch();
        let outdated = |it: &InFlight| it.id.kind == TaskKind::Review && it.id.epoch != epoch;
        for (_, outdated) in self.in_flight.extract_if(|_, it| outdated(it)) {
            outdated.task.abort();
            self.started.remove(&outdated.id);
        }
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
                        let (call, text) = (Arc::new(call.clone()), question.to_owned());
                        self.publisher.publish(&Event::Asked(Question { call, text, digest }));
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
                self.in_flight.insert(task.id(), InFlight { id, task });
            }
        }
    }

    /// Waits for what happens next. A cancel comes first, then what people say, then what has finished.
    async fn next_input(&mut self) -> Input {
        if self.is_stopping() {
            if self.stopped.is_empty() {
                // Boxed, because every waiting run would hold the room for it.
                self.stopped = Box::pin(self.stop_everything()).await;
            }
            if let Some(input) = self.stopped.pop_front() {
                return input;
            }
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
                    // A tool that could not be stopped has nothing to tell any more.
                    let call = self.log.state.batch().and_then(|batch| batch.get(&call_id));
                    if call.is_some_and(|call| call.stage == CallStage::Open) {
                        self.publisher.publish(&Event::ToolProgress { call_id, text });
                    }
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

    fn is_stopping(&self) -> bool {
        self.log.state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_)))
    }

    fn cancel_requested(&self) -> bool {
        !self.cancel_seen && self.cancel.token.is_cancelled()
    }
}

/// What a tool tells next. `None` as long as none has started.
async fn next_of(progress: &mut Option<(mpsc::Sender<Progress>, mpsc::Receiver<Progress>)>) -> Option<Progress> {
    progress.as_mut()?.1.recv().await
}
