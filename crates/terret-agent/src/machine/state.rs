use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terret_llm::{Message, Money, StopReason, ToolCall, Transcript, Usage};

use super::{Failure, QueueKind};
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
    /// A cancel was accepted: everything is being stopped.
    Stopping {
        /// Why.
        reason: String,
    },
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
    /// What the model asked for.
    pub call: Arc<ToolCall>,
    /// What the machine must know of the tool; nothing for a tool that the run doesn't have.
    pub tool: Option<ToolFacts>,
    /// How far it got.
    pub stage: CallStage,
}

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallStage {
    /// Waits for the gate's verdict.
    Gating,
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
}

impl Default for Limits {
    /// 200 model calls; 8 tools at the same time.
    fn default() -> Self {
        const CALLS: NonZeroU32 = NonZeroU32::new(200).unwrap();
        const TOOLS: NonZeroU32 = NonZeroU32::new(8).unwrap();
        Self { model_calls: CALLS, parallel_tools: TOOLS }
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

impl Call {
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
