use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};
use terret_llm::{Message, Money, Usage};

use super::{Budget, Record};

/// What a run may spend, and how hard it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Limits {
    /// Model calls, failed ones and those for a summary included.
    pub model_calls: NonZeroU32,
    /// Tools that run at the same time.
    pub parallel_tools: NonZeroU32,
    /// Tools that are started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<NonZeroU32>,
    /// Tokens of all model calls. A model call that goes beyond it is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<NonZeroU64>,
    /// Money. A model call that goes beyond it is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Milliseconds from the start of the run, waits included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time: Option<NonZeroU64>,
    /// Replies in a row that make exactly the same calls. See [`LoopLimit`].
    pub repeats: Option<LoopLimit>,
    /// How often a failed model call is tried again, and when.
    pub retry: RetryLimits,
    /// When a long transcript is summarised; never, if there is nothing here.
    pub compaction: Option<CompactionLimits>,
    /// How often a final reply may be objected to before the run fails.
    pub objections: u32,
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

/// How often a failed model call is tried again, and when.
///
/// The waits double from `base` to `max_backoff`, each shortened by up to a quarter, so that many runs don't come back
/// at the same moment. A wait that the provider asks for is kept to the full; one of more than `max_wait` is not waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct RetryLimits {
    /// Tries of one model call with one model, the first one included. What the model itself has tried
    /// ([`ModelError::tries`](terret_llm::ModelError::tries)) counts.
    pub tries: NonZeroU32,
    /// The first wait, in milliseconds.
    pub base: u64,
    /// The longest wait of our own choice, in milliseconds.
    pub max_backoff: u64,
    /// The longest wait that a provider may ask for, in milliseconds.
    pub max_wait: u64,
}

/// When a transcript is summarised, and how much of its end stays as it is. In tokens, which are estimated for what the
/// last reply's usage doesn't tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CompactionLimits {
    /// What fits into the model; by default the smallest window of the agent's models. Where none is known, the transcript
    /// is summarised only when the provider says that it has become too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// What is left free for the reply: beyond `window - reserve`, the transcript is summarised before the next call.
    pub reserve: u64,
    /// The most that stays as it is, whole turns only. At least the last message and what belongs to it stays.
    pub keep: u64,
}

impl CompactionLimits {
    /// The usual limits for a window of so many tokens: a fifth of it is left free and another fifth is kept, up to
    /// 16,384 and 20,000 tokens.
    pub fn for_window(window: Option<u64>) -> Self {
        let fifth = window.map_or(u64::MAX, |window| window / 5);
        Self { window, reserve: fifth.min(16_384), keep: fifth.min(20_000) }
    }

    /// Takes a model's window, unless there is one.
    pub(crate) fn fit(&mut self, window: u64) {
        if self.window.is_none() {
            let Self { reserve, keep, .. } = *self;
            *self = Self { window: Some(window), reserve: reserve.min(window / 5), keep: keep.min(window / 5) };
        }
    }
}

impl Default for Limits {
    /// 200 model calls; 8 tools at the same time; a warning after 4 repeated replies, and the end after 8; 3 tries;
    /// summaries when the provider says that the transcript is too long; 3 objections.
    fn default() -> Self {
        Self {
            model_calls: at_least_one(200),
            parallel_tools: at_least_one(8),
            tool_calls: None,
            tokens: None,
            cost: None,
            wall_time: None,
            repeats: Some(LoopLimit { warn: at_least_one(4), end: at_least_one(8) }),
            retry: RetryLimits::default(),
            compaction: Some(CompactionLimits::for_window(None)),
            objections: 3,
        }
    }
}

impl RetryLimits {
    /// The longest wait that there can be.
    pub(super) fn longest(&self) -> u64 {
        self.max_backoff.max(self.max_wait)
    }
}

impl Default for RetryLimits {
    /// 3 tries, after waits of 1 and 2 seconds; the longest wait is 30 seconds, or 60 if the provider asks for it.
    fn default() -> Self {
        Self { tries: at_least_one(3), base: 1_000, max_backoff: 30_000, max_wait: 60_000 }
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
    /// Tokens of all model calls, also of failed ones.
    pub usage: Usage,
    /// What they cost, as far as the prices are known.
    pub cost: Money,
}

impl Spent {
    /// Takes in what a record says was spent.
    pub(crate) fn note(&mut self, record: &Record) {
        match record {
            Record::ModelCalled { .. } | Record::CompactionStarted { .. } => {
                self.model_calls = self.model_calls.saturating_add(1)
            }
            Record::CallOpened { .. } => self.tool_calls = self.tool_calls.saturating_add(1),
            Record::ReplyAccepted { message, cost } => {
                let usage = if let Message::Assistant(reply) = &**message { reply.usage } else { Usage::default() };
                *self = self.and(usage, *cost);
            }
            Record::AttemptFailed { usage, cost, .. }
            | Record::Compacted { usage, cost, .. }
            | Record::CallStopped { usage, cost } => *self = self.and(*usage, *cost),
            _ => {}
        }
    }

    /// With one more model call's tokens and money.
    pub(super) fn and(self, usage: Usage, cost: Money) -> Self {
        Self { usage: self.usage + usage, cost: self.cost + cost, ..self }
    }

    /// What is used up, so that the model must not be called again.
    pub(super) fn exhausts(&self, limits: &Limits) -> Option<Budget> {
        let tokens = limits.tokens.is_some_and(|limit| self.usage.total() >= limit.get());
        let cost = limits.cost.is_some_and(|limit| self.cost >= limit);
        (self.model_calls >= limits.model_calls.get())
            .then_some(Budget::ModelCalls)
            .or(tokens.then_some(Budget::Tokens))
            .or(cost.then_some(Budget::Cost))
    }
}
