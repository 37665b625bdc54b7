//! What the embedder holds: an agent, its sessions, and their runs.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::FutureExt as _;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use terret_llm::{Content, Expected, Model, Options, OutputSchema, Transcript, UserMessage};
use tokio::sync::{Mutex, mpsc, oneshot};
use tracing::Instrument as _;

use crate::budget::SharedBudget;
use crate::compaction::{ModelSummary, Summarize};
use crate::driver::{Cancel, Driver, Log, Reins, now, trace};
use crate::event::{Event, Events, Publisher, Report, Subscriber};
use crate::gate::{AllowAll, Gate};
use crate::hooks::{HookList, Hooks};
use crate::journal::{Journal, JournalError, MemoryJournal, Resumed, SessionId};
use crate::limit::Spill;
use crate::machine::{Answer, Input, Limits, Prompt, QueueKind, RunId, Task};
use crate::review::{Reviewer, TypedRun};
use crate::tool::{SharedTool, Tool, ToolSet, ToolSetError};

/// A model with tools, rules and limits. Immutable, and cheap to clone.
#[derive(Clone)]
pub struct Agent(pub(crate) Arc<Parts>);

#[derive(Clone)]
pub(crate) struct Parts {
    /// The first one is called first; the others are fallen back on.
    pub(crate) models: Vec<Arc<dyn Model>>,
    pub(crate) system: Option<Arc<str>>,
    pub(crate) tools: ToolSet,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) grace: Duration,
    pub(crate) output_limit: usize,
    pub(crate) spill: Option<Arc<dyn Spill>>,
    pub(crate) tool_time_limit: Option<Duration>,
    pub(crate) hooks: HookList,
    pub(crate) summarizer: Arc<dyn Summarize>,
    pub(crate) shared: Option<SharedBudget>,
}

/// Puts an [`Agent`] together.
#[must_use]
pub struct AgentBuilder {
    parts: Parts,
    tools: Vec<SharedTool>,
    model_calls: Option<u32>,
    parallel_tools: Option<u32>,
}

/// Why an agent can't be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The tools can't be used together.
    #[error(transparent)]
    Tools(#[from] ToolSetError),
    /// A limit of zero would end every run before it starts.
    #[error("{0} must be at least 1")]
    ZeroLimit(&'static str),
}

impl Agent {
    /// Begins with a model; everything else has a default.
    pub fn builder(model: impl Model + 'static) -> AgentBuilder {
        AgentBuilder {
            parts: Parts {
                models: vec![Arc::new(model)],
                system: None,
                tools: ToolSet::default(),
                gate: Arc::new(AllowAll),
                limits: Limits::default(),
                options: Options::default(),
                grace: Duration::from_secs(2),
                output_limit: 256 * 1024,
                spill: None,
                tool_time_limit: None,
                hooks: HookList::default(),
                summarizer: Arc::new(ModelSummary),
                shared: None,
            },
            tools: Vec::new(),
            model_calls: None,
            parallel_tools: None,
        }
    }

    /// Runs a prompt in a new session that is kept in memory only.
    pub fn prompt(&self, prompt: impl Into<UserPrompt>) -> Run {
        self.session().prompt(prompt)
    }

    /// A new session that is kept in memory only.
    pub fn session(&self) -> Session {
        Session::new(self.clone(), Arc::new(MemoryJournal::new()), SessionId::new(), Log::default())
    }

    /// Opens a session of a journal: a new one, or one to go on with. The session is owned until the last clone of what
    /// this returns is dropped and its last run has ended.
    pub async fn open(&self, journal: Arc<dyn Journal>, id: SessionId) -> Result<Session, JournalError> {
        let ownership = journal.own(&id).await?;
        let Resumed { state, records } = journal.resume(&id).await?;
        let log = Log { state, records, _ownership: ownership };
        Ok(Session::new(self.clone(), journal, id, log))
    }

    /// Runs a prompt in a new session that is kept in memory only, for a final reply that is a `T`. See
    /// [`Session::run`].
    pub fn run<T: JsonSchema + DeserializeOwned + 'static>(&self, prompt: impl Into<UserPrompt>) -> TypedRun<T> {
        self.session().run(prompt)
    }

    /// The model that is called first.
    pub fn model(&self) -> &dyn Model {
        &**self.model_at(0)
    }

    /// The model of this place in the list, or the last one, for a run that was started when the list was longer.
    #[expect(clippy::indexing_slicing, reason = "the list is never empty: it begins with the builder's model")]
    pub(crate) fn model_at(&self, place: u32) -> &Arc<dyn Model> {
        let models = &self.0.models;
        &models[(place as usize).min(models.len() - 1)]
    }

    /// The same agent, which asks for a final reply of this schema.
    fn expecting(&self, schema: &OutputSchema) -> Self {
        let mut parts = (*self.0).clone();
        if parts.models.iter().all(|model| schema.is_supported_by(model.spec(), parts.tools.specs())) {
            parts.options.output_schema = Some(schema.clone());
        }
        let wanted = format!(
            "When you are done, your final reply has to be a JSON value of this schema, and nothing else: {}",
            schema.schema.as_str()
        );
        parts.system = Some(match parts.system {
            Some(system) => format!("{system}\n\n{wanted}").into(),
            None => wanted.into(),
        });
        Self(Arc::new(parts))
    }

    /// The tools.
    pub fn tools(&self) -> &ToolSet {
        &self.0.tools
    }
}

impl AgentBuilder {
    /// The system prompt.
    pub fn system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.parts.system = Some(system.into());
        self
    }

    /// Adds a tool, after those that were added before.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = SharedTool>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// What may start. Everything, by default.
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.parts.gate = Arc::new(gate);
        self
    }

    /// What a run may spend, and how hard it tries. [`max_model_calls`](Self::max_model_calls) and
    /// [`max_parallel_tools`](Self::max_parallel_tools) win over it.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.parts.limits = limits;
        self
    }

    /// How many model calls a run may make; 200 by default. The tools that the last permitted reply asks for still
    /// run; then the run ends out of budget.
    pub fn max_model_calls(mut self, calls: u32) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// How many tools may run at the same time; 8 by default.
    pub fn max_parallel_tools(mut self, tools: u32) -> Self {
        self.parallel_tools = Some(tools);
        self
    }

    /// A model to fall back on when those before it fail, in the order in which they are added. The run stays with it.
    ///
    /// It is called when a model has failed [`RetryLimits::tries`](crate::machine::RetryLimits::tries) times, or with an
    /// error that another try doesn't help: its host's or its key's, but not the request's.
    pub fn fallback(mut self, model: impl Model + 'static) -> Self {
        self.parts.models.push(Arc::new(model));
        self
    }

    /// Code of yours before model calls, around tools and at the end. After those that were added before.
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.parts.hooks.0.push(Arc::new(hooks));
        self
    }

    /// Who summarises a conversation that has become too long; the run's own model, by default ([`ModelSummary`]). When,
    /// is [`Limits::compaction`]'s to say: for a model whose window is known, before it is full.
    pub fn summarizer(mut self, summarizer: impl Summarize + 'static) -> Self {
        self.parts.summarizer = Arc::new(summarizer);
        self
    }

    /// A budget that this agent's runs spend together with others.
    pub fn shared_budget(mut self, budget: SharedBudget) -> Self {
        self.parts.shared = Some(budget);
        self
    }

    /// How long a call may run whose tool has no limit of its own ([`Tool::time_limit`]); as long as it likes, by
    /// default. Then it is told to stop, and dropped when it doesn't within the grace period.
    pub fn tool_time_limit(mut self, limit: Duration) -> Self {
        self.parts.tool_time_limit = Some(limit);
        self
    }

    /// Who keeps results that are longer than [`output_limit`](Self::output_limit), whole. Nobody, by default.
    pub fn spill(mut self, spill: impl Spill + 'static) -> Self {
        self.parts.spill = Some(Arc::new(spill));
        self
    }

    /// Options of every model call.
    pub fn options(mut self, options: Options) -> Self {
        self.parts.options = options;
        self
    }

    /// How long tools may take to stop after a cancel, before they are dropped; 2 seconds by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.parts.grace = grace;
        self
    }

    /// How many bytes of text one result may have for the model; 256 KiB by default. The middle of a longer one is
    /// left out, and that is said in its place.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.parts.output_limit = bytes;
        self
    }

    /// Checks everything.
    pub fn build(self) -> Result<Agent, AgentError> {
        let Self { mut parts, tools, model_calls, parallel_tools } = self;
        let windows = parts.models.iter().filter_map(|model| model.spec().context_window);
        if let (Some(limits), Some(window)) = (&mut parts.limits.compaction, windows.min()) {
            limits.fit(window.into());
        }
        parts.tools = ToolSet::new(tools)?;
        let limit = |of, limit: &mut NonZeroU32, wanted: Option<u32>| match wanted.map(NonZeroU32::new) {
            None => Ok(()),
            Some(None) => Err(AgentError::ZeroLimit(of)),
            Some(Some(wanted)) => {
                *limit = wanted;
                Ok(())
            }
        };
        limit("max_model_calls", &mut parts.limits.model_calls, model_calls)?;
        limit("max_parallel_tools", &mut parts.limits.parallel_tools, parallel_tools)?;
        Ok(Agent(Arc::new(parts)))
    }
}

/// A durable conversation. Runs append to it, one at a time.
#[derive(Clone)]
pub struct Session {
    agent: Agent,
    journal: Arc<dyn Journal>,
    id: SessionId,
    log: Arc<Mutex<Log>>,
}

impl Session {
    fn new(agent: Agent, journal: Arc<dyn Journal>, id: SessionId, log: Log) -> Self {
        Self { agent, journal, id, log: Arc::new(Mutex::new(log)) }
    }

    /// Its name.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Starts a run. It waits for a run of this session that hasn't ended. Needs a tokio runtime.
    pub fn prompt(&self, prompt: impl Into<UserPrompt>) -> Run {
        self.start(Some(prompt.into()), Task::Answer, Reviewer::default())
    }

    /// Starts a run whose final reply is a `T`. A reply that is none goes back to the model with what is wrong with it,
    /// [`Limits::objections`] times; then the run fails.
    ///
    /// Providers that can are held to the schema of `T` ([`OutputSchema::of`]); all models are told it.
    pub fn run<T: JsonSchema + DeserializeOwned + 'static>(&self, prompt: impl Into<UserPrompt>) -> TypedRun<T> {
        let expected = Expected::<T>::new();
        let session = Self { agent: self.agent.expecting(expected.schema()), ..self.clone() };
        let run = session.start(Some(prompt.into()), Task::AnswerReviewed, Reviewer::of(expected.clone()));
        TypedRun::new(run, expected)
    }

    /// Lets the model go on from what stands in the transcript, without saying anything: finishes a run that a crash
    /// interrupted, or starts one.
    pub fn go_on(&self) -> Run {
        self.start(None, Task::Answer, Reviewer::default())
    }

    /// Summarises the older part of the transcript, now. The full messages stay in the journal.
    pub fn compact(&self) -> Run {
        self.start(None, Task::Compact, Reviewer::default())
    }

    /// The messages so far. Waits for a run that hasn't ended.
    pub async fn transcript(&self) -> Transcript {
        self.log.lock().await.state.transcript().clone()
    }

    /// The run that a crash interrupted, if there is one: [`go_on`](Self::go_on) finishes it. Waits for a run that hasn't
    /// ended.
    pub async fn interrupted(&self) -> Option<RunId> {
        self.log.lock().await.state.run().map(|run| run.id.clone())
    }

    fn start(&self, message: Option<UserPrompt>, task: Task, reviewer: Reviewer) -> Run {
        let run = RunId(crate::journal::fresh_id());
        let message = message.map(UserPrompt::now);
        let parts = &self.agent.0;
        let (limits, tools) = (parts.limits, parts.tools.facts().clone());
        let models = u32::try_from(parts.models.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let task = if task == Task::Answer && !parts.hooks.0.is_empty() { Task::AnswerReviewed } else { task };
        let prompt = Prompt { run, message, limits, tools, models, task, exceeded: None };
        let (commands, inbox) = mpsc::unbounded_channel();
        let (done, report) = oneshot::channel();
        let publisher = Publisher::default();
        let subscriber = publisher.subscriber();
        let events = subscriber.subscribe();
        let cancel = Cancel::default();
        let handle = RunHandle { commands, cancel: cancel.clone(), subscriber };
        let session = self.clone();
        let span = trace::run(&self.id, self.agent.model().spec());
        let reins = Reins { publisher, inbox, cancel, reviewer };
        // Takes its place in the line now, and not when its task has its first turn.
        let mut turn = Box::pin(self.log.clone().lock_owned());
        let first = (&mut turn).now_or_never();
        let running = async move {
            let log = match first {
                Some(log) => log,
                None => turn.await,
            };
            let report =
                Driver::new(session.agent, session.journal, session.id, log, reins).run(Box::new(prompt)).await;
            trace::run_ended(&tracing::Span::current(), &report);
            let _ = done.send(report);
        };
        tokio::spawn(running.instrument(span));
        Run { events, handle, report: Some(report) }
    }
}

/// What a user says: text, or text and images.
#[derive(Clone, Debug, PartialEq)]
pub struct UserPrompt(pub Vec<Content>);

impl UserPrompt {
    fn now(self) -> UserMessage {
        UserMessage { content: self.0, timestamp: now() }
    }
}

impl From<&str> for UserPrompt {
    fn from(text: &str) -> Self {
        Self(vec![Content::text(text)])
    }
}

impl From<String> for UserPrompt {
    fn from(text: String) -> Self {
        Self(vec![Content::text(text)])
    }
}

impl From<Vec<Content>> for UserPrompt {
    fn from(content: Vec<Content>) -> Self {
        Self(content)
    }
}

/// A run in progress: a stream of its events. Dropping it cancels the run.
#[derive(Debug)]
pub struct Run {
    events: Events,
    handle: RunHandle,
    report: Option<oneshot::Receiver<Report>>,
}

impl Run {
    /// The next event; `None` after [`Event::Ended`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.next().await
    }

    /// Waits for the end.
    pub async fn report(mut self) -> Report {
        let lost = Report::lost;
        match self.report.take() {
            Some(report) => report.await.unwrap_or_else(|_| lost()),
            None => lost(),
        }
    }

    /// Steers and cancels the run from elsewhere.
    pub fn handle(&self) -> RunHandle {
        self.handle.clone()
    }
}

impl Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.handle.cancel("the run was dropped");
    }
}

/// Steers and cancels a run. Cheap to clone; holding one doesn't keep the run alive.
#[derive(Clone)]
pub struct RunHandle {
    commands: mpsc::UnboundedSender<Box<Input>>,
    cancel: Cancel,
    subscriber: Subscriber,
}

impl RunHandle {
    /// Says something to the model before its next call. False if the run has ended.
    pub fn steer(&self, prompt: impl Into<UserPrompt>) -> bool {
        self.queue(QueueKind::Steering, prompt.into())
    }

    /// Says something to the model when it would otherwise be done. False if the run has ended.
    pub fn follow_up(&self, prompt: impl Into<UserPrompt>) -> bool {
        self.queue(QueueKind::FollowUp, prompt.into())
    }

    /// Says something to the model now: the model call and the tools are stopped, and the run goes on with this. What was
    /// stopped half way is settled as after a crash, and the model is told. False if the run has ended.
    pub fn interrupt(&self, prompt: impl Into<UserPrompt>) -> bool {
        self.send(Input::Interrupt { message: prompt.into().now() })
    }

    /// Takes back a message that waits ([`Event::Queued`]); [`Event::Withdrawn`] hands it back. Nothing happens when it
    /// has been delivered. False if the run has ended.
    pub fn withdraw(&self, id: u64) -> bool {
        self.send(Input::Withdraw { id })
    }

    /// Changes a message that waits; it keeps its place. Nothing happens when it has been delivered. False if the run has
    /// ended.
    pub fn requeue(&self, id: u64, prompt: impl Into<UserPrompt>) -> bool {
        self.send(Input::Requeue { id, message: prompt.into().now() })
    }

    /// Answers a question ([`Event::Asked`]). An answer to another call, or to other arguments, changes nothing. False
    /// if the run has ended.
    pub fn answer(&self, call_id: impl Into<String>, digest: impl Into<String>, answer: Answer) -> bool {
        let (call_id, digest) = (call_id.into(), digest.into());
        self.send(Input::Answered { call_id, digest, answer })
    }

    /// Ends the run: the model call and the tools are stopped. The first reason counts.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.cancel.request(reason.into());
    }

    /// Another reader of the run's events, from now on. What is in flight comes first ([`Event::Snapshot`]).
    pub fn events(&self) -> Events {
        self.subscriber.subscribe()
    }

    fn send(&self, input: Input) -> bool {
        self.commands.send(Box::new(input)).is_ok()
    }

    fn queue(&self, kind: QueueKind, prompt: UserPrompt) -> bool {
        self.send(Input::Queue { kind, message: prompt.now() })
    }
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunHandle")
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("tools", &self.0.tools).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentBuilder")
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}
