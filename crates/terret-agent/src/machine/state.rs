use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use terret_llm::{Message, Money, StopReason, ToolCall, Transcript, Usage};

use super::{Budget, Failure, QueueKind};
use crate::tool::EffectClass;

/// A session as the fold of its records: what has been said, and what is going on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(super) transcript: Transcript,
    pub(super) progress: Progress,
}

/// A state without its transcript. It is small, so that a decision can be tried out on a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) epoch: Epoch,
    pub(super) tail: Tail,
    pub(super) run: Option<RunState>,
    pub(super) batch: Option<Batch>,
    pub(super) queue: Vec<Queued>,
    pub(super) queued_so_far: u64,
}

/// How the transcript ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Tail {
    /// With something that the model has to answer, or with nothing.
    #[default]
    ToAnswer,
    /// With a reply without open calls, which ended for this reason.
    Answered(StopReason),
}

/// The number of the current effect. A completion that carries another one is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

/// The name of a run, unique among all runs of all sessions. The driver makes it up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

/// A run that hasn't ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Its name.
    pub id: RunId,
    /// What it may spend.
    pub limits: Limits,
    /// What it has spent.
    pub spent: Spent,
    /// The tools that it was started with.
    pub tools: Arc<BTreeMap<String, ToolFacts>>,
    /// What it is doing.
    pub stage: Stage,
    /// When it was started, in Unix milliseconds.
    pub started: i64,
    /// What it has used up. Nothing new starts then, and what runs may finish.
    pub exceeded: Option<Budget>,
    /// The tools whose calls a person has approved for the whole run.
    pub approved: BTreeSet<String>,
    /// The last reply that made calls, and how many replies in a row have made the same ones.
    pub repeated: Option<(Arc<Message>, u32)>,
}

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// A model call is in flight.
    Calling,
    /// The calls of the last reply are being gated, run or settled. Between turns this passes by at once.
    Acting,
    /// The model call has failed.
    Failing(Failure),
    /// Everything is being stopped.
    Stopping(StopCause),
}

/// Why a run is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopCause {
    /// Somebody cancelled it, and said why.
    Cancelled(String),
    /// Its time is up.
    OutOfTime,
}

/// The calls of one reply, in the order in which the model made them. Exists until each one has its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Each call and how far it got.
    pub calls: Vec<Call>,
    /// The run that made them; part of their idempotency keys.
    pub run: RunId,
    /// Why the reply stopped.
    pub stop_reason: StopReason,
}

/// A call of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// What is to be done: what the model asked for, or what a person made of it.
    pub call: Arc<ToolCall>,
    /// Whether a person has changed the arguments.
    pub edited: bool,
    /// What the machine must know of the tool; nothing for a tool that the run doesn't have.
    pub tool: Option<ToolFacts>,
    /// How far it got.
    pub stage: CallStage,
}

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallStage {
    /// Waits for the gate's verdict; or, where a person has approved it, for its arguments to be validated.
    Gating {
        /// Whether a person has approved this very call.
        approved: bool,
    },
    /// Waits for a person's answer.
    Asked {
        /// The question, for the person.
        question: String,
    },
    /// Allowed; waits for its turn.
    Allowed,
    /// The tool was announced and may have started.
    Open,
    /// Open when the process died or its run ended: it isn't known what the tool did, and it must not start again.
    InDoubt,
    /// Open when its run ended, of a tool that does no harm if it is only half done.
    Interrupted,
    /// Has its result.
    Closed(Arc<Message>),
}

/// What the machine must know of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFacts {
    /// Whether a call may be repeated.
    pub effect: EffectClass,
    /// Whether a call must not run beside others.
    pub exclusive: bool,
}

/// A user message that waits for a safe point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// Its number in the session.
    pub id: u64,
    /// Which safe point it waits for.
    pub kind: QueueKind,
    /// What it says.
    pub message: Arc<Message>,
}

/// What a run may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Limits {
    /// Model calls.
    pub model_calls: NonZeroU32,
    /// Tools that run at the same time.
    pub parallel_tools: NonZeroU32,
    /// Tools that are started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<NonZeroU32>,
    /// Tokens of all replies. A model call that goes beyond it is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<NonZeroU64>,
    /// Money. A model call that goes beyond it is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Milliseconds from the start of the run, waits included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time: Option<NonZeroU64>,
    /// Replies in a row that make exactly the same calls. See [`LoopLimit`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<LoopLimit>,
}

/// What to do with a model that makes exactly the same calls, to the letter, reply after reply. Calls that alternate, or
/// whose arguments are written differently, are not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopLimit {
    /// From so many replies in a row on, the results carry a warning to the model.
    pub warn: NonZeroU32,
    /// At so many, the calls are not executed any more and the run ends.
    pub end: NonZeroU32,
}

impl Default for Limits {
    /// 200 model calls; 8 tools at the same time; a warning after 4 repeated replies, and the end after 8.
    fn default() -> Self {
        Self {
            model_calls: at_least_one(200),
            parallel_tools: at_least_one(8),
            tool_calls: None,
            tokens: None,
            cost: None,
            wall_time: None,
            repeats: Some(LoopLimit { warn: at_least_one(4), end: at_least_one(8) }),
        }
    }
}

const fn at_least_one(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

/// What a run has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Spent {
    /// Model calls that were announced.
    pub model_calls: u32,
    /// Tools that were opened.
    pub tool_calls: u32,
    /// Tokens of all replies, also of failed ones.
    pub usage: Usage,
    /// What they cost, as far as the prices are known.
    pub cost: Money,
}

impl State {
    /// A session in which nothing has been said.
    pub fn new() -> Self {
        Self::default()
    }

    /// The messages that the next model call is built from. Nothing provisional is in it.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The run that hasn't ended, if there is one.
    pub fn run(&self) -> Option<&RunState> {
        self.progress.run.as_ref()
    }

    /// The calls of the last reply, as long as not all have their results.
    pub fn batch(&self) -> Option<&Batch> {
        self.progress.batch.as_ref()
    }

    /// The messages that wait for a safe point.
    pub fn queue(&self) -> &[Queued] {
        &self.progress.queue
    }

    /// The number of the current effect.
    pub fn epoch(&self) -> Epoch {
        self.progress.epoch
    }
}

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Batch {
    /// The call of this id.
    pub fn get(&self, id: &str) -> Option<&Call> {
        self.calls.iter().find(|call| call.call.id == id)
    }

    /// The key under which a tool may recognise a repeated call.
    pub fn idempotency_key(&self, call: &Call) -> String {
        format!("{}/{}", self.run.0, call.call.id)
    }
}

impl RunState {
    /// What it has used up, so that it must not call the model again.
    pub(super) fn out_of(&self) -> Option<Budget> {
        let Self { limits, spent, .. } = self;
        let tokens = limits.tokens.is_some_and(|limit| spent.usage.total() >= limit.get());
        let cost = limits.cost.is_some_and(|limit| spent.cost >= limit);
        self.exceeded
            .or((spent.model_calls >= limits.model_calls.get()).then_some(Budget::ModelCalls))
            .or(tokens.then_some(Budget::Tokens))
            .or(cost.then_some(Budget::Cost))
    }

    /// When its time is up, in Unix milliseconds.
    pub fn deadline(&self) -> Option<i64> {
        let wall_time = i64::try_from(self.limits.wall_time?.get()).unwrap_or(i64::MAX);
        Some(self.started.saturating_add(wall_time))
    }

    /// How many replies in a row have made the same calls.
    pub fn repeats(&self) -> u32 {
        self.repeated.as_ref().map_or(0, |(_, count)| *count)
    }
}

impl Call {
    /// What a person's answer has to name: this call with these arguments, and no other.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&self.call.id, &self.call.name, self.call.arguments.as_str()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether its tool has not started, and may never.
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, CallStage::Gating { .. } | CallStage::Asked { .. } | CallStage::Allowed)
    }

    /// Whether it has its result.
    pub fn is_closed(&self) -> bool {
        matches!(self.stage, CallStage::Closed(_))
    }

    /// Whether its tool may be running.
    pub fn is_in_flight(&self) -> bool {
        matches!(self.stage, CallStage::Open | CallStage::InDoubt)
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.tool.is_some_and(|tool| tool.exclusive)
    }
}
