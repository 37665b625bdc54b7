use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terret_llm::{Message, StopReason, Transcript};

use super::{Batch, Budget, Failure, Limits, QueueKind, Spent, ToolFacts};

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
    /// Roughly how many tokens of the model's window the transcript takes.
    pub(super) context: u64,
}

/// How the transcript ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Tail {
    /// Nothing has been said.
    #[default]
    Nothing,
    /// With something that the model has to answer.
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
    /// What it has used up. The model isn't called any more; the tools of the last reply still run, but for the tool budget
    /// and loops.
    pub exceeded: Option<Budget>,
    /// The tools about whose calls a person need not be asked any more in this run.
    pub approved: BTreeSet<String>,
    /// The last reply that made calls, and how many replies in a row have made the same ones.
    pub repeated: Option<(Arc<Message>, u32)>,
    /// How many models it can be switched to, the first one included.
    pub models: u32,
    /// Which of them it calls.
    pub model: u32,
    /// How often the current model call has been tried with the current model.
    pub tries: u32,
    /// Whether the transcript has to be summarised, or was since the last reply.
    pub compaction: Option<Compaction>,
    /// What the run is to do.
    pub task: Task,
    /// How many final replies were objected to.
    pub objections: u32,
}

/// What a run is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Task {
    /// Let the model answer, until it is done.
    #[default]
    Answer,
    /// The same, and have the final reply reviewed.
    AnswerReviewed,
    /// Summarise the transcript, and nothing else.
    Compact,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Compaction {
    /// The provider, or somebody, wants it.
    Wanted,
    /// Done, and no reply since: another one would not help.
    Done,
}

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// A model call is in flight.
    Calling,
    /// The first `cut` messages of the transcript are being summarised.
    Compacting {
        /// The index of the first message that stays.
        cut: usize,
    },
    /// A model call has failed and is tried again.
    Waiting {
        /// When, in Unix milliseconds.
        until: i64,
    },
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
    /// Somebody wants to say something now. The run goes on with that.
    Interrupted {
        /// When a retry was due that was waited for. It still is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<i64>,
    },
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

    /// Roughly how many tokens of the model's window the transcript takes: what the last reply's usage told, and an
    /// estimate of what has come since.
    pub fn context_tokens(&self) -> u64 {
        self.progress.context
    }

    /// The number of the current effect.
    pub fn epoch(&self) -> Epoch {
        self.progress.epoch
    }
}

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl RunState {
    /// What it has used up, so that it must not call the model again.
    pub(super) fn out_of(&self) -> Option<Budget> {
        self.exceeded.or_else(|| self.spent.exhausts(&self.limits))
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
