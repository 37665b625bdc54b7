use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::FutureExt as _;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use terret_llm::{Content, Expected, Transcript, UserMessage};
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};
use tracing::Instrument as _;

use crate::agent::Agent;
use crate::driver::{Cancel, Driver, Log, Reins, now, trace};
use crate::event::Publisher;
use crate::journal::{Journal, SessionId};
use crate::machine::{Prompt, RunId, Task};
use crate::review::{Reviewer, TypedRun};
use crate::run::{Run, RunHandle};

/// A durable conversation. Runs append to it, one at a time.
#[derive(Clone)]
pub struct Session {
    agent: Agent,
    journal: Arc<dyn Journal>,
    id: SessionId,
    log: Arc<Mutex<Log>>,
}

impl Session {
    pub(crate) fn new(agent: Agent, journal: Arc<dyn Journal>, id: SessionId, log: Log) -> Self {
        Self { agent, journal, id, log: Arc::new(Mutex::new(log)) }
    }

    /// Its name.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The same session with another agent, for the runs that are started with what this returns.
    pub fn with_agent(&self, agent: Agent) -> Self {
        Self { agent, ..self.clone() }
    }

    /// Starts a run. It waits for a run of this session that hasn't ended. Needs a tokio runtime.
    pub fn prompt(&self, prompt: impl Into<UserPrompt>) -> Run {
        self.start(Some(prompt.into()), Task::Answer, Reviewer::default())
    }

    /// Starts a run whose final reply is a `T`. A reply that is none goes back to the model with what is wrong with it,
    /// [`Limits::objections`](crate::machine::Limits::objections) times; then the run fails.
    ///
    /// Providers that can are held to the schema of `T` ([`OutputSchema::of`](terret_llm::OutputSchema::of)); all models are told it.
    pub fn run<T: JsonSchema + DeserializeOwned + 'static>(&self, prompt: impl Into<UserPrompt>) -> TypedRun<T> {
        let expected = Expected::<T>::new();
        let session = Self { agent: self.agent.expecting(expected.schema()), ..self.clone() };
        let run = session.start(Some(prompt.into()), Task::AnswerReviewed, Reviewer::of(expected.clone()));
        TypedRun::new(run, expected)
    }

    /// Lets the model go on from what stands in the transcript, without saying anything: finishes a run that a crash
    /// interrupted, or starts one. A run is finished under the limits and with the tools that it was begun with; what is
    /// expected of a typed reply is not kept.
    pub fn go_on(&self) -> Run {
        self.start(None, Task::Answer, Reviewer::default())
    }

    /// Summarises the older part of the transcript, now. The full messages stay in the journal.
    pub fn compact(&self) -> Run {
        self.start(None, Task::Compact, Reviewer::default())
    }

    /// The messages so far. Waits for a run that hasn't ended: one of its own tools or hooks must not ask.
    pub async fn transcript(&self) -> Transcript {
        self.kept().await.state.transcript().clone()
    }

    /// The run that a crash interrupted, if there is one: [`go_on`](Self::go_on) finishes it. Waits for a run that hasn't
    /// ended, as [`transcript`](Self::transcript) does.
    pub async fn interrupted(&self) -> Option<RunId> {
        self.kept().await.state.run().map(|run| run.id.clone())
    }

    /// What the session holds; as far as it is known, where the journal can't tell.
    async fn kept(&self) -> MutexGuard<'_, Log> {
        let mut log = self.log.lock().await;
        if let Err(error) = log.catch_up(&*self.journal, &self.id).await {
            tracing::warn!(%error, "the session could not be read again after its journal had failed");
        }
        log
    }

    fn start(&self, message: Option<UserPrompt>, task: Task, reviewer: Reviewer) -> Run {
        let run = RunId(crate::journal::fresh_id());
        let message = message.map(UserPrompt::now);
        let parts = &self.agent.0;
        let (limits, tools) = (parts.limits, parts.tools.facts().clone());
        let models = u32::try_from(parts.models.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let task = if task == Task::Answer && !parts.hooks.0.is_empty() { Task::AnswerReviewed } else { task };
        let apart = reviewer.is_some();
        let prompt = Box::new(Prompt { run, message, limits, tools, models, task, exceeded: None, apart });
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
                Some(log) => Some(log),
                None => tokio::select! {
                    biased;
                    () = reins.cancel.requested() => None,
                    log = turn => Some(log),
                },
            };
            // Who cancels at once may mean a run that a crash has interrupted.
            let begins = |log: &Log| !reins.cancel.is_requested() || log.stale || log.state.run().is_some();
            let report = match log.filter(|log| begins(log)) {
                Some(log) => Driver::new(session.agent, session.journal, session.id, log, reins).run(prompt).await,
                None => reins.never_started(prompt.message),
            };
            trace::run_ended(&tracing::Span::current(), &report);
            let _ = done.send(report);
        };
        tokio::spawn(running.instrument(span));
        Run { events, handle, report: Some(report), is_detached: false }
    }
}

/// What a user says: text, or text and images.
#[derive(Clone, Debug, PartialEq)]
pub struct UserPrompt(pub Vec<Content>);

impl UserPrompt {
    pub(crate) fn now(self) -> UserMessage {
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

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}
