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

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use terret_llm::{Message, ToolCall};
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use self::call::ModelCall;
use self::cancel::Stop;
use self::clock::{Clock, until};
use self::end::{NotDurable, said};
use self::task::{Finished, TaskId, TaskKind, Work};
use crate::agent::Agent;
use crate::budget::SharedBudget;
use crate::event::{Event, Publisher, Question, Report};
use crate::hooks::panic_message;
use crate::journal::{Journal, JournalError, Ownership, Resumed, SessionId};
use crate::machine::{CallStage, Effect, Input, Prompt, Queued, Record, RunState, Stage, State, apply, decide, due};
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
            let Resumed { state, records } = caught(async { journal.resume(session).await }).await?;
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
    /// What the tasks in flight are about: the ids of calls, or nothing. There is at most one about each.
    started: HashSet<String>,
    /// The calls whose tools were announced by this driver, and whether each has begun.
    begun: HashMap<String, Arc<AtomicBool>>,
    /// The calls whose tools could not be stopped.
    unstoppable: Vec<(String, AbortHandle)>,
    /// What stopping everything came to, and is yet to be decided about.
    stopped: VecDeque<Input>,
    /// A run that goes on after everything was stopped has a new one.
    stop: Stop,
    /// The calls about which a question was published.
    asked: HashSet<String>,
    wake: Option<Instant>,
    clock: Clock,
    /// Arguments that were validated for the gate, kept for the tool.
    validated: HashMap<String, Value>,
    /// Where tools tell how they are getting on; there once a tool has started.
    progress: Option<(mpsc::Sender<Progress>, mpsc::Receiver<Progress>)>,
    /// An append that has not answered.
    unanswered: Option<Append>,
    /// The session's run is this one, or was joined by it.
    has_begun: bool,
    /// The last reply in the transcript is this run's.
    has_replied: bool,
    /// The run's spending and undelivered messages, kept across its end.
    ending: Option<Report>,
    /// The undelivered messages, as they waited.
    handed_back: Vec<Queued>,
    /// What waited in a run that has made room for this one.
    waited: Vec<Arc<Message>>,
}

/// A task, and the effect that it is.
struct InFlight {
    id: TaskId,
    task: AbortHandle,
}

/// An append under way.
type Append = BoxFuture<'static, Result<(), JournalError>>;

/// How long a journal is waited for that doesn't answer, once the run has to end.
const PATIENCE: Duration = Duration::from_secs(10);

const NO_ANSWER: &str = "it has not answered, and the run had to end";

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
    ) -> Box<Self> {
        let Reins { publisher, inbox, cancel, reviewer } = reins;
        // Boxed, because a future that is given it holds the room for it twice.
        Box::new(Self {
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
            stop: Stop::default(),
            asked: HashSet::new(),
            wake: None,
            clock: Clock::new(),
            validated: HashMap::new(),
            progress: None,
            unanswered: None,
            has_begun: false,
            has_replied: false,
            ending: None,
            handed_back: Vec::new(),
            waited: Vec::new(),
        })
    }

    /// Runs to the end. What a crash has left in the session is the machine's to judge.
    pub(crate) async fn run(mut self: Box<Self>, mut prompt: Box<Prompt>) -> Report {
        // What isn't waiting for the next input is boxed, here and below: every waiting run would hold the room for it.
        if let Err(error) = Box::pin(self.catch_up()).await {
            let said = prompt.message.take().map(|message| Arc::new(message.into()));
            let report = Box::pin(self.not_durable(NotDurable { error, records: Arc::from([]) }, said)).await;
            return self.end(report);
        }
        prompt.exceeded = self.agent.0.shared.as_ref().and_then(SharedBudget::exhausted);
        let mut input = Input::Prompt(*prompt);
        let report = loop {
            let said = said(&input);
            if let Err(failed) = Box::pin(self.step(input)).await {
                break Box::pin(self.not_durable(failed, said)).await;
            }
            if let Some(report) = self.ending.take() {
                break report;
            }
            // Whoever was just told something may cancel before anything further starts.
            tokio::task::yield_now().await;
            if !self.cancel_requested() {
                self.start_due();
            }
            input = self.next_input().await;
        };
        self.end(report)
    }

    /// Takes in what the journal holds, if it has failed since. Who cancels doesn't wait for it.
    async fn catch_up(&mut self) -> Result<(), JournalError> {
        tokio::select! {
            biased;
            done = self.log.catch_up(&*self.journal, &self.session) => done,
            () = self.cancel.requested_for(PATIENCE) => Err(JournalError::Storage(NO_ANSWER.into())),
        }
    }

    /// Decides about an input, and before it about a shared budget that others have used up.
    async fn step(&mut self, input: Input) -> Result<(), NotDurable> {
        let exceeded = self.log.state.run().is_some_and(|run| run.exceeded.is_some());
        let exhausted = self.agent.0.shared.as_ref().and_then(SharedBudget::exhausted);
        // A prompt says so itself.
        if let Some(budget) = exhausted.filter(|_| !exceeded && !matches!(input, Input::Prompt(_))) {
            self.commit(Input::Exhausted { budget }).await?;
            if let Some(mut report) = self.ending.take() {
                self.hand_back(input, &mut report);
                self.ending = Some(report);
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
        let records: Arc<[Record]> = records.into();
        if let Err(error) = self.append(&records).await {
            return Err(NotDurable { error, records });
        }
        self.log.records += records.len() as u64;
        for record in &*records {
            self.take_in(record);
        }
        if records.iter().any(|record| matches!(record, Record::Compacted { .. })) {
            Box::pin(self.checkpoint()).await;
        }
        Ok(())
    }

    /// Offers the state to the journal. Nothing depends on it: nobody waits for it long, or after a cancel.
    async fn checkpoint(&mut self) {
        let Log { state, records, .. } = &*self.log;
        let offer = caught(async {
            self.journal.checkpoint(&self.session, *records, state).await;
            Ok(())
        });
        tokio::select! {
            done = offer => {
                if let Err(error) = done {
                    tracing::warn!(%error, "a checkpoint could not be made");
                }
            }
            () = self.cancel.requested() => {}
            () = tokio::time::sleep(PATIENCE) => {}
        }
    }

    /// Makes records durable. An append is never dropped half way: one that doesn't answer, although the run has to end, is
    /// left to itself, and the session is closed to others until it does.
    async fn append(&mut self, records: &Arc<[Record]>) -> Result<(), JournalError> {
        let (journal, session, records) = (self.journal.clone(), self.session.clone(), records.clone());
        let expected = self.log.records;
        let mut append: Append = Box::pin(caught(async move { journal.append(&session, expected, &records).await }));
        self.log.stale = true;
        let deadline = self.log.state.run().and_then(RunState::deadline);
        let over = deadline.map(|deadline| self.clock.instant(deadline));
        let patience = async {
            tokio::select! {
                () = self.cancel.requested() => {}
                () = until(over) => {}
            }
            tokio::time::sleep(PATIENCE).await;
        };
        let answered = tokio::select! {
            biased;
            done = &mut append => Some(done),
            () = patience => None,
        };
        let appended = answered.unwrap_or_else(|| {
            self.unanswered = Some(append);
            Err(JournalError::Storage(NO_ANSWER.into()))
        });
        // Where others have gone on, the session is theirs, and to be opened anew.
        self.log.stale = matches!(appended, Err(JournalError::Storage(_)));
        appended
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
        if let Record::ReplyAccepted { .. } | Record::Resumed = record {
            self.has_replied = true;
        }
        if let Record::RunStarted { .. } | Record::Resumed = record {
            self.has_begun = true;
        }
        let before = self.log.state.transcript().len();
        let epoch = self.log.state.epoch();
        let asked = match record {
            Record::CallApproved { for_run: true, .. } => self.asked_calls(),
            Record::CallApproved { call_id, .. } => vec![call_id.clone()],
            _ => Vec::new(),
        };
        apply(&mut self.log.state, record);
        let publish = |event| self.publisher.publish(&event);
        match record {
            Record::RunStarted { run, .. } => {
                self.stop = Stop::default();
                self.has_replied = false;
                // One that a crash had left open has made room for it. What waited there is handed back with this one.
                self.waited = self.ending.take().map(|report| report.undelivered).unwrap_or_default();
                publish(Event::RunStarted { run: run.clone() });
            }
            Record::Queued { .. } => {
                self.log.state.queue().last().cloned().into_iter().map(Event::Queued).for_each(publish)
            }
            // What has waited since before the crash.
            Record::Resumed => self.log.state.queue().iter().cloned().map(Event::Queued).for_each(publish),
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
                    self.validated.remove(&result.tool_call_id);
                    self.asked.remove(&result.tool_call_id);
                }
                publish(Event::ToolEnded { result: result.clone() });
            }
            Record::Cancelled { reason } => publish(Event::Cancelled { reason: reason.clone() }),
            Record::Interrupted => publish(Event::Interrupted),
            Record::Expired => publish(Event::Expired),
            Record::Halted { still_running } => {
                self.stop = Stop::default();
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

    /// Starts what is due and not yet in flight; nothing, when the time is up. A review that isn't due any more, because
    /// somebody has said something meanwhile, is dropped.
    fn start_due(&mut self) {
        self.wake = None;
        let deadline = self.log.state.run().and_then(RunState::deadline);
        if deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
            self.wake = Some(Instant::now());
            return;
        }
        let epoch = self.log.state.epoch();
        let outdated = |it: &InFlight| it.id.kind == TaskKind::Review && it.id.epoch != epoch;
        for (_, outdated) in self.in_flight.extract_if(|_, it| outdated(it)) {
            outdated.task.abort();
            self.started.remove(&outdated.id.call_id);
        }
        let mut start = Vec::new();
        // A wide reply has many calls, of which one has changed: nothing is copied of the others.
        let is_new = |call: &ToolCall| !self.started.contains(&call.id);
        for effect in due(&self.log.state) {
            start.push(match effect {
                Effect::CallModel { epoch, model } => {
                    if self.call.is_none() {
                        let transcript = self.log.state.transcript().clone();
                        self.call = Some(ModelCall::start(&self.agent, epoch, model, transcript, &self.stop));
                    }
                    continue;
                }
                Effect::Ask { call, question } => {
                    if !self.asked.contains(&call.id) {
                        self.asked.insert(call.id.clone());
                        let digest = self.log.state.batch().and_then(|batch| Some(batch.digest(batch.get(&call.id)?)));
                        let (call, text) = (Arc::new(call.clone()), question.to_owned());
                        let digest = digest.unwrap_or_default();
                        self.publisher.publish(&Event::Asked(Question { call, text, digest }));
                    }
                    continue;
                }
                Effect::Wake { at } => {
                    self.wake = Some(self.clock.instant(at));
                    continue;
                }
                Effect::Compact { epoch, model, messages } if !self.started.contains("") => {
                    (epoch, Work::Compact { model, messages: messages.to_vec() })
                }
                Effect::Review { epoch } if !self.started.contains("") => match self.log.state.transcript().last() {
                    Some(reply) => (epoch, Work::Review { reply: reply.clone() }),
                    None => continue,
                },
                Effect::Gate { epoch, call, approved } if is_new(call) => match approved {
                    true => (epoch, Work::Validate(call.clone())),
                    false => (epoch, Work::Gate(call.clone())),
                },
                Effect::StartTool { epoch, call, key } if is_new(call) => {
                    (epoch, Work::Tool { call: call.clone(), key })
                }
                Effect::Discover { epoch, call, key } if is_new(call) => {
                    (epoch, Work::Discover { call: call.clone(), key })
                }
                _ => continue,
            });
        }
        for (epoch, work) in start {
            let id = work.id(epoch);
            self.started.insert(id.call_id.clone());
            let task = self.spawn(work);
            self.in_flight.insert(task.id(), InFlight { id, task });
        }
    }

    /// Waits for what happens next. A cancel comes first, then what people say, then what has finished.
    async fn next_input(&mut self) -> Input {
        if self.is_stopping() {
            if self.stopped.is_empty() {
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

/// A journal that panics has failed, and no more.
async fn caught<T>(journal: impl Future<Output = Result<T, JournalError>>) -> Result<T, JournalError> {
    let panicked =
        |panic: Box<dyn Any + Send>| JournalError::Storage(format!("it panicked: {}", panic_message(&*panic)));
    AssertUnwindSafe(journal).catch_unwind().await.unwrap_or_else(|panic| Err(panicked(panic)))
}

/// What a tool tells next. `None` as long as none has started.
async fn next_of(progress: &mut Option<(mpsc::Sender<Progress>, mpsc::Receiver<Progress>)>) -> Option<Progress> {
    progress.as_mut()?.1.recv().await
}
