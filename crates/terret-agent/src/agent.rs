//! What the embedder holds: an agent, its sessions, and their runs.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use terret_llm::{Content, Model, Options, Transcript, UserMessage};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::driver::{Cancel, Driver, Log};
use crate::event::{Event, Events, Publisher, Report, Subscriber};
use crate::gate::{AllowAll, Gate};
use crate::journal::{Journal, JournalError, MemoryJournal, SessionId, fold};
use crate::machine::{Answer, Failure, Input, Limits, Outcome, Prompt, QueueKind, RunId, Spent};
use crate::tool::{SharedTool, Tool, ToolSet, ToolSetError};

/// A model with tools, rules and limits. Immutable, and cheap to clone.
#[derive(Clone)]
pub struct Agent(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) system: Option<Arc<str>>,
    pub(crate) tools: ToolSet,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) grace: Duration,
    pub(crate) output_limit: usize,
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
                model: Arc::new(model),
                system: None,
                tools: ToolSet::default(),
                gate: Arc::new(AllowAll),
                limits: Limits::default(),
                options: Options::default(),
                grace: Duration::from_secs(2),
                output_limit: 256 * 1024,
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
        let records = journal.load(&id).await?;
        let log = Log { state: fold(&records), records: records.len() as u64, _ownership: ownership };
        Ok(Session::new(self.clone(), journal, id, log))
    }

    /// The model.
    pub fn model(&self) -> &dyn Model {
        &*self.0.model
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

    /// What a run may spend. [`max_model_calls`](Self::max_model_calls) and
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
        let UserPrompt(content) = prompt.into();
        let message = UserMessage { content, timestamp: crate::driver::now() };
        self.start(Some(message))
    }

    /// Lets the model go on from what stands in the transcript, without saying anything: finishes a run that a crash
    /// interrupted, or starts one.
    pub fn go_on(&self) -> Run {
        self.start(None)
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

    fn start(&self, message: Option<UserMessage>) -> Run {
        let run = RunId(uuid::Uuid::now_v7().to_string());
        let parts = &self.agent.0;
        let (limits, tools) = (parts.limits, parts.tools.facts().clone());
        let prompt = Prompt { run, message, limits, tools };
        let (commands, inbox) = mpsc::unbounded_channel();
        let (done, report) = oneshot::channel();
        let publisher = Publisher::default();
        let subscriber = publisher.subscriber();
        let events = subscriber.subscribe();
        let cancel = Cancel::default();
        let handle = RunHandle { commands, cancel: cancel.clone(), subscriber };
        let session = self.clone();
        tokio::spawn(async move {
            let log = session.log.lock_owned().await;
            let driver = Driver::new(session.agent, session.journal, session.id, log, publisher, inbox, cancel);
            let _ = done.send(driver.run(prompt).await);
        });
        Run { events, handle, report: Some(report) }
    }
}

/// What a user says: text, or text and images.
#[derive(Clone, Debug, PartialEq)]
pub struct UserPrompt(pub Vec<Content>);

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
        let lost = || Report {
            outcome: Outcome::Failed { failure: Failure::Journal("the run's task was lost".into()) },
            spent: Spent::default(),
            text: None,
            undelivered: Vec::new(),
        };
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
    commands: mpsc::UnboundedSender<Input>,
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

    /// Answers a question ([`Event::Asked`]). An answer to another call, or to other arguments, changes nothing. False
    /// if the run has ended.
    pub fn answer(&self, call_id: impl Into<String>, digest: impl Into<String>, answer: Answer) -> bool {
        let (call_id, digest) = (call_id.into(), digest.into());
        self.commands.send(Input::Answered { call_id, digest, answer }).is_ok()
    }

    /// Ends the run: the model call and the tools are stopped. The first reason counts.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.cancel.request(reason.into());
    }

    /// Another reader of the run's events, from now on.
    pub fn events(&self) -> Events {
        self.subscriber.subscribe()
    }

    fn queue(&self, kind: QueueKind, prompt: UserPrompt) -> bool {
        let message = UserMessage { content: prompt.0, timestamp: crate::driver::now() };
        self.commands.send(Input::Queue { kind, message }).is_ok()
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
