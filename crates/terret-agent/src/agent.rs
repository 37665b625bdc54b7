use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use terret_llm::{Model, Options, OutputSchema};

use crate::budget::SharedBudget;
use crate::compaction::{ModelSummary, Summarize};
use crate::driver::Log;
use crate::gate::{AllowAll, Gate};
use crate::hooks::{HookList, Hooks};
use crate::journal::{Journal, JournalError, MemoryJournal, Resumed, SessionId};
use crate::limit::{Room, Spill};
use crate::machine::Limits;
use crate::review::TypedRun;
use crate::run::Run;
use crate::session::{Session, UserPrompt};
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
    pub(crate) room: Room,
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
                room: Room::default(),
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
        let log = Log { state, records, stale: false, _ownership: ownership };
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
    pub(crate) fn expecting(&self, schema: &OutputSchema) -> Self {
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
    /// left out, and that is said in its place. (Of pictures, a result may have 16 MiB in base64; of details for people,
    /// 4 MiB.)
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.parts.room.text = bytes;
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
