//! The driver: a thin async loop around the machine.
//!
//! Take an input, `decide`, append the records to the journal, apply them, tell the subscribers, start what is due, wait
//! for the next input. The driver owns everything that it starts: nothing outlives the run unowned.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use serde_json::Value;
use terret_llm::{Message, Money, Reply, ReplyStream, Request, StreamEvent, ToolCall, Usage, UserMessage};
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::event::{Event, Publisher, Report};
use crate::journal::{Journal, Ownership, SessionId};
use crate::limit::limit;
use crate::machine::{
    Effect, Epoch, Failure, Input, Outcome, Prompt, QueueKind, Record, Spent, Stage, State, Verdict, apply, decide, due,
};
use crate::tool::{Progress, ProgressSender, ToolContext, ToolError, ToolOutput};

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
    inbox: mpsc::UnboundedReceiver<Input>,
    cancel: Cancel,
    cancel_seen: bool,
    /// The model call in flight.
    reply: Option<(Epoch, ReplyStream)>,
    /// Gates and tools in flight, and which effect each one is.
    tasks: JoinSet<Finished>,
    in_flight: HashMap<tokio::task::Id, EffectId>,
    started: HashSet<EffectId>,
    stop_tools: CancellationToken,
    /// The digests of questions that were published.
    asked: HashSet<String>,
    deadline: Option<Instant>,
    clock: Clock,
    /// Arguments that were validated for the gate, kept for the tool.
    validated: HashMap<String, Value>,
    progress: (mpsc::Sender<Progress>, mpsc::Receiver<Progress>),
    /// The run's spending and undelivered messages, kept across its end.
    ending: Option<Report>,
}

/// Tells effects apart: what, in which epoch, for which call.
type EffectId = (EffectKind, Epoch, Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum EffectKind {
    Validate,
    Gate,
    Tool,
    Discover,
}

/// What a task yields.
enum Finished {
    Gated { verdict: Verdict, arguments: Option<Value> },
    Ran(ToolOutput),
    Discovered(Option<ToolOutput>),
}

/// The journal could not keep a record.
struct NotDurable(String);

impl Driver {
    pub(crate) fn new(
        agent: Agent,
        journal: Arc<dyn Journal>,
        session: SessionId,
        log: OwnedMutexGuard<Log>,
        publisher: Publisher,
        inbox: mpsc::UnboundedReceiver<Input>,
        cancel: Cancel,
    ) -> Self {
        Self {
            agent,
            journal,
            session,
            log,
            publisher,
            inbox,
            cancel,
            cancel_seen: false,
            reply: None,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            started: HashSet::new(),
            stop_tools: CancellationToken::new(),
            asked: HashSet::new(),
            deadline: None,
            clock: Clock::new(),
            validated: HashMap::new(),
            progress: mpsc::channel(256),
            ending: None,
        }
    }

    /// Runs to the end.
    ///
    /// A session whose last run was interrupted goes on with that one, and takes the prompt as steering. Where that run
    /// only had to end, the prompt starts its own.
    pub(crate) async fn run(mut self, prompt: Prompt) -> Report {
        let interrupted = self.log.state.run().is_some();
        let (mut next, mut prompt) = match interrupted {
            false => (Some(Input::Prompt(prompt)), None),
            true => (Some(Input::Resume), prompt.message.is_some().then_some(prompt)),
        };
        let report = loop {
            let input = match next.take() {
                Some(input) => input,
                None => self.next_input().await,
            };
            if let Err(NotDurable(error)) = self.step(input).await {
                self.stop_everything().await;
                let outcome = Outcome::Failed { failure: Failure::Journal(error) };
                break self.report(outcome, self.spent());
            }
            if let Some(report) = self.ending.take() {
                match prompt.take() {
                    Some(prompt) => next = Some(Input::Prompt(prompt)),
                    None => break report,
                }
            } else if !self.is_stopping() {
                next = prompt.take().and_then(|prompt| prompt.message).map(steering);
            }
            // Whoever was just told something may cancel before anything further starts.
            tokio::task::yield_now().await;
            if !self.cancel_requested() {
                self.start_due();
            }
        };
        let report = self.with_late_messages(report);
        self.publisher.publish(&Event::Ended(report.clone()));
        report
    }

    /// Decides, makes the records durable, and only then takes them in and tells of them.
    async fn step(&mut self, input: Input) -> Result<(), NotDurable> {
        let records = decide(&self.log.state, input, self.clock.now());
        if records.is_empty() {
            tracing::debug!("an input that the run has no use for was dropped");
            return Ok(());
        }
        let expected = self.log.records;
        self.journal.append(&self.session, expected, &records).await.map_err(|error| NotDurable(error.to_string()))?;
        self.log.records += records.len() as u64;
        let before = self.log.state.transcript().len();
        for record in records {
            self.take_in(&record);
        }
        if self.log.state.transcript().len() < before {
            self.journal.checkpoint(&self.session, self.log.records, &self.log.state).await;
        }
        Ok(())
    }

    fn take_in(&mut self, record: &Record) {
        let before = self.log.state.transcript().len();
        let epoch = self.log.state.epoch();
        if let Record::RunEnded { outcome } = record {
            self.ending = Some(self.report(outcome.clone(), self.spent()));
        }
        apply(&mut self.log.state, record);
        let publish = |event| self.publisher.publish(&event);
        match record {
            Record::RunStarted { run, .. } => publish(Event::RunStarted { run: run.clone() }),
            Record::Queued { kind, message } => publish(Event::Queued { kind: *kind, message: message.clone() }),
            Record::ModelCalled { epoch } => publish(Event::ModelCalled { epoch: *epoch }),
            Record::AttemptFailed { failure, .. } => publish(Event::AttemptFailed { epoch, failure: failure.clone() }),
            Record::CallClosed { result } => publish(Event::ToolEnded { result: result.clone() }),
            Record::Cancelled { reason } => publish(Event::Cancelled { reason: reason.clone() }),
            _ => {}
        }
        for message in self.log.state.transcript().get(before..).unwrap_or_default() {
            publish(Event::Message(message.clone()));
        }
    }

    /// Starts what is due and not yet in flight.
    fn start_due(&mut self) {
        let state = &self.log.state;
        let mut start = Vec::new();
        for effect in due(state) {
            match effect {
                Effect::CallModel { epoch } if self.reply.is_none() => {
                    let request = Request {
                        system: self.agent.0.system.clone(),
                        messages: state.transcript().clone(),
                        tools: self.agent.0.tools.specs().clone(),
                        options: self.agent.0.options.clone(),
                    };
                    let stream = self.agent.0.model.stream(request, self.stop_tools.child_token());
                    self.reply = Some((epoch, stream));
                }
                Effect::CallModel { .. } | Effect::Stop => {}
                Effect::Gate { epoch, call, approved } => {
                    let kind = if approved { EffectKind::Validate } else { EffectKind::Gate };
                    start.push((kind, epoch, call.clone(), String::new()));
                }
                Effect::Ask { call, question, digest } => {
                    if self.asked.insert(digest.clone()) {
                        let (call, question) = (Arc::new(call.clone()), question.to_owned());
                        self.publisher.publish(&Event::Asked { call, question, digest });
                    }
                }
                Effect::Deadline { at } => self.deadline = Some(self.clock.instant(at)),
                Effect::StartTool { epoch, call, key } => start.push((EffectKind::Tool, epoch, call.clone(), key)),
                Effect::Discover { epoch, call, key } => start.push((EffectKind::Discover, epoch, call.clone(), key)),
            }
        }
        for (kind, epoch, call, key) in start {
            let effect = (kind, epoch, Arc::<str>::from(call.id.as_str()));
            if self.started.insert(effect.clone()) {
                let task = self.start(kind, call, key);
                self.in_flight.insert(task, effect);
            }
        }
    }

    fn start(&mut self, kind: EffectKind, call: ToolCall, key: String) -> tokio::task::Id {
        let agent = self.agent.clone();
        match kind {
            EffectKind::Gate | EffectKind::Validate => self.tasks.spawn(async move {
                match agent.0.tools.validate(&call.name, &call.arguments) {
                    Some(Ok(arguments)) => {
                        let verdict = match kind {
                            EffectKind::Validate => Verdict::Allow,
                            _ => agent.0.gate.decide(&call, &arguments).await,
                        };
                        Finished::Gated { verdict, arguments: Some(arguments) }
                    }
                    Some(Err(rejected)) => Finished::Gated {
                        verdict: Verdict::Reject { explanation: rejected.to_string() },
                        arguments: None,
                    },
                    None => Finished::Gated { verdict: gone(&call.name), arguments: None },
                }
            }),
            EffectKind::Tool => {
                self.publisher.publish(&Event::ToolStarted { call: Arc::new(call.clone()) });
                let context = ToolContext {
                    call_id: call.id.clone(),
                    idempotency_key: key,
                    cancel: self.stop_tools.child_token(),
                    progress: ProgressSender::new(call.id.clone(), self.progress.0.clone()),
                };
                let validated = self.validated.remove(&call.id);
                self.tasks.spawn(async move { Finished::Ran(run_tool(&agent, &call, validated, context).await) })
            }
            EffectKind::Discover => self.tasks.spawn(async move {
                match agent.0.tools.get(&call.name) {
                    Some(tool) => Finished::Discovered(tool.discover(&key).await),
                    None => Finished::Discovered(None),
                }
            }),
        }
        .id()
    }

    /// Waits for what happens next. A cancel comes first, then what people say, then what has finished.
    async fn next_input(&mut self) -> Input {
        if self.is_stopping() {
            return Input::Stopped { still_running: self.stop_everything().await };
        }
        loop {
            tokio::select! {
                biased;
                () = self.cancel.token.cancelled(), if !self.cancel_seen => {
                    self.cancel_seen = true;
                    return Input::Cancel { reason: self.cancel.reason() };
                }
                Some(input) = self.inbox.recv() => return input,
                () = until(self.deadline) => {
                    self.deadline = None;
                    return Input::Deadline;
                }
                Some((call_id, text)) = self.progress.1.recv() => {
                    self.publisher.publish(&Event::ToolProgress { call_id, text });
                }
                Some(input) = next_of_reply(&mut self.reply, &self.publisher, &self.agent) => {
                    // The request shares the transcript: let go of it before the transcript grows.
                    self.reply = None;
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

    fn finished(&mut self, finished: Result<(tokio::task::Id, Finished), tokio::task::JoinError>) -> Option<Input> {
        let (id, finished) = match finished {
            Ok((id, finished)) => (id, Some(finished)),
            Err(error) => (error.id(), None),
        };
        let effect = self.in_flight.remove(&id)?;
        self.started.remove(&effect);
        let (kind, epoch, call_id) = effect;
        let call_id = call_id.to_string();
        Some(match (kind, finished) {
            (_, Some(Finished::Gated { verdict, arguments })) => {
                if let Some(arguments) = arguments {
                    self.validated.insert(call_id.clone(), arguments);
                }
                Input::GateDecided { epoch, call_id, verdict }
            }
            (_, Some(Finished::Ran(output))) => {
                let output = limit(output, self.agent.0.output_limit);
                Input::ToolFinished { epoch, call_id, output }
            }
            (_, Some(Finished::Discovered(output))) => Input::Discovered { epoch, call_id, output },
            (EffectKind::Gate | EffectKind::Validate, None) => {
                let verdict = Verdict::Deny { reason: "the gate failed to decide (it panicked)".into() };
                Input::GateDecided { epoch, call_id, verdict }
            }
            (EffectKind::Tool, None) => {
                let output = ToolOutput::error("The tool was stopped before it had finished.");
                Input::ToolFinished { epoch, call_id, output }
            }
            (EffectKind::Discover, None) => Input::Discovered { epoch, call_id, output: None },
        })
    }

    /// Closes the stream, tells the tools, waits for the grace period, and then drops what is left. Returns the ids of
    /// the calls whose tools go on all the same, because they block their thread.
    async fn stop_everything(&mut self) -> Vec<String> {
        self.reply = None;
        self.stop_tools.cancel();
        self.join_until(Instant::now() + self.agent.0.grace).await;
        self.tasks.abort_all();
        self.join_until(Instant::now() + Duration::from_millis(100)).await;
        self.tasks.detach_all();
        self.in_flight
            .drain()
            .filter(|(_, (kind, ..))| *kind == EffectKind::Tool)
            .map(|(_, (.., call_id))| call_id.to_string())
            .collect()
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

    fn spent(&self) -> Spent {
        self.log.state.run().map(|run| run.spent).unwrap_or_default()
    }

    fn report(&self, outcome: Outcome, spent: Spent) -> Report {
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
            if let Input::Queue { message, .. } = input {
                report.undelivered.push(Arc::new(message.into()));
            }
        }
        report
    }
}

/// The end of the reply, as an input; publishes what streams by. `None` without a model call in flight.
async fn next_of_reply(
    reply: &mut Option<(Epoch, ReplyStream)>,
    publisher: &Publisher,
    agent: &Agent,
) -> Option<Input> {
    let (epoch, stream) = reply.as_mut()?;
    let epoch = *epoch;
    loop {
        match stream.next().await {
            Some(StreamEvent::Done(reply)) => return Some(replied(epoch, reply, agent)),
            Some(StreamEvent::Failed(failed)) => {
                let usage = failed.partial.usage;
                return Some(Input::ModelFailed { epoch, error: failed.error, usage, cost: cost(&usage, agent) });
            }
            Some(event) => {
                publisher.publish(&Event::Delta { epoch, event });
                // A stream that is always ready must not keep the run from hearing a cancel.
                tokio::task::consume_budget().await;
            }
            None => {
                let error = terret_llm::ModelError::new(
                    terret_llm::ErrorKind::Truncated,
                    "the reply stream ended without an end",
                );
                return Some(Input::ModelFailed { epoch, error, usage: Usage::default(), cost: Money::ZERO });
            }
        }
    }
}

fn steering(message: UserMessage) -> Input {
    Input::Queue { kind: QueueKind::Steering, message }
}

fn replied(epoch: Epoch, reply: Reply, agent: &Agent) -> Input {
    let cost = cost(&reply.message().usage, agent);
    Input::Replied { epoch, reply, cost }
}

fn cost(usage: &Usage, agent: &Agent) -> Money {
    agent.0.model.spec().price.as_ref().map_or(Money::ZERO, |price| price.cost(usage))
}

/// Waits for a time, or for ever.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Runs a tool. Its error and its panic are its output.
async fn run_tool(agent: &Agent, call: &ToolCall, validated: Option<Value>, context: ToolContext) -> ToolOutput {
    let Some(tool) = agent.0.tools.get(&call.name) else { return ToolOutput::error(gone_text(&call.name)) };
    let arguments = match validated.map(Ok).or_else(|| agent.0.tools.validate(&call.name, &call.arguments)) {
        Some(Ok(arguments)) => arguments,
        Some(Err(rejected)) => return ToolOutput::error(rejected.to_string()),
        None => return ToolOutput::error(gone_text(&call.name)),
    };
    let running = AssertUnwindSafe(async { tool.call(arguments, context).await }).catch_unwind();
    match running.await {
        Ok(output) => output.unwrap_or_else(ToolError::into_output),
        Err(panic) => {
            let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            ToolOutput::error(format!("The tool failed by a bug of its own (it panicked): {message}"))
        }
    }
}

/// For a session that was resumed by an agent with fewer tools.
fn gone(tool: &str) -> Verdict {
    Verdict::Reject { explanation: gone_text(tool) }
}

fn gone_text(tool: &str) -> String {
    format!("The tool {tool:?} is not there any more.")
}

/// Unix milliseconds on the runtime's clock, which tests can pause.
struct Clock {
    started: Instant,
    at: i64,
}

impl Clock {
    fn new() -> Self {
        Self { started: Instant::now(), at: now() }
    }

    fn now(&self) -> i64 {
        self.at.saturating_add(i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// When a time will be. One that is over is now.
    fn instant(&self, at: i64) -> Instant {
        self.started + Duration::from_millis(u64::try_from(at.saturating_sub(self.at)).unwrap_or(0))
    }
}

/// Unix milliseconds.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
