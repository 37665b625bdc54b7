//! A session that is struck at one step, and a count of what it starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use terret_llm::{Content, ToolSpec};
use tokio::sync::Notify;

use crate::agent::{Agent, Parts};
use crate::journal::{Journal, JournalError, MemoryJournal, Ownership, SessionId};
use crate::machine::Record;
use crate::run::RunHandle;
use crate::tool::{EffectClass, SharedTool, Tool, ToolContext, ToolError, ToolOutput};

/// How a session is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    Crash,
    Cancel,
}

pub(super) struct Trial {
    pub(super) journal: MemoryJournal,
    crash: Notify,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    steps: u64,
    strike: Option<(u64, Blow)>,
    struck: Option<String>,
    /// The process has crashed: nothing goes on.
    dead: bool,
    handle: Option<RunHandle>,
    starts: Vec<Start>,
}

/// A start of a tool.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) tool: String,
    pub(super) call_id: String,
    pub(super) key: String,
    pub(super) effect: EffectClass,
    /// What it returned, if it came to that.
    pub(super) output: Option<String>,
}

/// How many times that a call waits are steps.
const WAITS: u32 = 16;

impl Trial {
    pub(super) fn new(strike: Option<(u64, Blow)>) -> Arc<Self> {
        let progress = Mutex::new(Progress { strike, ..Progress::default() });
        Arc::new(Self { journal: MemoryJournal::new(), crash: Notify::new(), progress })
    }

    /// The same agent, with tools that are watched.
    pub(super) fn watching(self: &Arc<Self>, agent: &Agent) -> Agent {
        let parts = &agent.0;
        let tools = parts.tools.map(|tool| Arc::new(Watched { tool, trial: self.clone() }));
        Agent(Arc::new(Parts { tools, ..(**parts).clone() }))
    }

    pub(super) fn watched_journal(self: &Arc<Self>) -> Arc<dyn Journal> {
        Arc::new(WatchedJournal(self.clone()))
    }

    /// Takes the handle by which the run is cancelled.
    pub(super) fn hold(&self, handle: RunHandle) {
        self.progress().handle = Some(handle);
    }

    pub(super) async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Begins the life after a blow. False if there was none.
    pub(super) fn revive(&self) -> bool {
        let mut progress = self.progress();
        progress.dead = false;
        progress.handle = None;
        progress.struck.is_some()
    }

    pub(super) fn steps(&self) -> u64 {
        self.progress().steps
    }

    pub(super) fn struck(&self) -> Option<String> {
        self.progress().struck.clone()
    }

    pub(super) fn starts(&self) -> Vec<Start> {
        self.progress().starts.clone()
    }

    /// A step. False if nothing goes on after it.
    fn step(&self, at: impl FnOnce() -> String) -> bool {
        let mut progress = self.progress();
        progress.steps += 1;
        match progress.strike {
            Some((step, blow)) if step == progress.steps && progress.struck.is_none() => {
                progress.struck = Some(match blow {
                    Blow::Crash => format!("a crash {}", at()),
                    Blow::Cancel => format!("a cancel {}", at()),
                });
                match (blow, &progress.handle) {
                    (Blow::Cancel, Some(handle)) => handle.cancel("it is cancelled at every step"),
                    (Blow::Cancel, None) => {}
                    (Blow::Crash, _) => {
                        progress.dead = true;
                        self.crash.notify_one();
                    }
                }
            }
            _ => {}
        }
        !progress.dead
    }

    async fn step_or_die(&self, at: impl FnOnce() -> String) {
        if !self.step(at) {
            std::future::pending::<()>().await;
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WatchedJournal(Arc<Trial>);

impl Journal for WatchedJournal {
    fn own<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Ownership, JournalError>> {
        self.0.journal.own(session)
    }

    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            self.0.step_or_die(|| format!("before {} was stored", names(records))).await;
            self.0.journal.append(session, expected, records).await?;
            self.0.step_or_die(|| format!("when {} was stored", names(records))).await;
            Ok(())
        })
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        self.0.journal.load(session)
    }
}

/// The kinds of some records.
fn names(records: &[Record]) -> String {
    let name = |record| format!("{record:?}").chars().take_while(char::is_ascii_alphanumeric).collect();
    records.iter().map(name).collect::<Vec<String>>().join(" ")
}

struct Watched {
    tool: SharedTool,
    trial: Arc<Trial>,
}

impl Tool for Watched {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn effect(&self) -> EffectClass {
        self.tool.effect()
    }

    fn exclusive(&self) -> bool {
        self.tool.exclusive()
    }

    fn time_limit(&self) -> Option<Duration> {
        self.tool.time_limit()
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        self.tool.check(arguments)
    }

    fn call(&self, arguments: Value, context: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let name = self.spec().name.clone();
        if !self.trial.step(|| format!("before {name} had begun")) {
            return Box::pin(std::future::pending());
        }
        let start = Start {
            tool: name.clone(),
            call_id: context.call_id.clone(),
            key: context.idempotency_key.clone(),
            effect: self.effect(),
            output: None,
        };
        let number = {
            let mut progress = self.trial.progress();
            progress.starts.push(start);
            progress.starts.len() - 1
        };
        let (trial, mut running, mut waits) = (self.trial.clone(), self.tool.call(arguments, context), 0);
        Box::pin(async move {
            let result = std::future::poll_fn(|cx| {
                if trial.progress().dead {
                    return Poll::Pending;
                }
                let polled = running.as_mut().poll(cx);
                if polled.is_pending() && waits < WAITS {
                    waits += 1;
                    trial.step(|| format!("while {name} was running"));
                }
                polled
            })
            .await;
            if let Some(start) = trial.progress().starts.get_mut(number) {
                start.output = Some(text(&result));
            }
            result
        })
    }

    fn discover(&self, key: &str) -> BoxFuture<'static, Option<ToolOutput>> {
        self.tool.discover(key)
    }
}

/// What the model will be shown, if it is text.
fn text(result: &Result<ToolOutput, ToolError>) -> String {
    let texts = |content: &[Content]| content.iter().filter_map(Content::as_text).collect();
    match result {
        Ok(output) => texts(&output.content),
        Err(error) => format!("{error:?}"),
    }
}
