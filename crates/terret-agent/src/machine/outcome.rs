use std::fmt;

use serde::{Deserialize, Serialize};
use terret_llm::{ModelError, StopReason};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Outcome {
    /// The model was done.
    Completed,
    /// Somebody cancelled it.
    Cancelled {
        /// Why.
        reason: String,
        /// The ids of calls whose tools could not be stopped.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        still_running: Vec<String>,
    },
    /// It could not go on.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// It had spent what it was allowed to.
    OutOfBudget {
        /// Which budget.
        budget: Budget,
        /// The ids of calls whose tools could not be stopped when the time was up.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        still_running: Vec<String>,
    },
}

/// Why a run could not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Failure {
    /// The model call failed.
    #[error("{0}")]
    Model(ModelError),
    /// The reply can't be worked with.
    #[error("the model's reply can't be used: {0}")]
    Protocol(Violation),
    /// The model, or a filter, declined.
    #[error("the model refused to answer")]
    Refused,
    /// The transcript had become too long and could not be summarised.
    #[error("the conversation has become too long and could not be summarised: {0}")]
    Compaction(String),
    /// The final reply was objected to too often.
    #[error("the final reply was not accepted: {0}")]
    Objected(String),
    /// A hook failed.
    #[error("the hook {hook} failed: {message}")]
    Hook {
        /// Which one.
        hook: String,
        /// Why.
        message: String,
    },
    /// The run's task came to an end without the run's: something that it called panicked, or the runtime was shut down.
    /// What the journal has kept can be gone on with.
    #[error("the run was lost in the middle: something panicked, or the runtime was shut down")]
    Lost,
    /// The journal could not keep a record, so nothing further was started.
    #[error("the journal could not be written: {0}")]
    Journal(String),
}

/// What is wrong with a complete reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Violation {
    /// A tool call without an id.
    EmptyCallId,
    /// A tool call with the id of another call of this conversation.
    RepeatedCallId(String),
    /// Neither text nor a tool call.
    NoContent(StopReason),
    /// The model says that it waits for tools, and called none.
    ToolUseWithoutCalls,
}

/// What can be used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Budget {
    /// [`Limits::model_calls`](super::Limits::model_calls).
    ModelCalls,
    /// [`Limits::tool_calls`](super::Limits::tool_calls).
    ToolCalls,
    /// [`Limits::tokens`](super::Limits::tokens).
    Tokens,
    /// [`Limits::cost`](super::Limits::cost).
    Cost,
    /// [`Limits::wall_time`](super::Limits::wall_time).
    WallTime,
    /// [`Limits::repeats`](super::Limits::repeats): the model went round in circles.
    Loop,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::EmptyCallId => f.write_str("a tool call has no id"),
            Violation::RepeatedCallId(id) => write!(f, "two tool calls have the id {id:?}"),
            Violation::NoContent(StopReason::Length) => {
                f.write_str("it reached the output limit before any text or tool call")
            }
            Violation::NoContent(_) => f.write_str("it holds neither text nor a tool call"),
            Violation::ToolUseWithoutCalls => f.write_str("it waits for the results of tools, but called none"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed => f.write_str("completed"),
            Outcome::Cancelled { reason, still_running } if still_running.is_empty() => {
                write!(f, "cancelled: {reason}")
            }
            Outcome::Cancelled { reason, still_running } => {
                write!(f, "cancelled: {reason}; could not be stopped: {}", still_running.join(", "))
            }
            Outcome::Failed { failure } => write!(f, "failed: {failure}"),
            Outcome::OutOfBudget { budget, still_running } if still_running.is_empty() => {
                write!(f, "out of budget: {budget}")
            }
            Outcome::OutOfBudget { budget, still_running } => {
                write!(f, "out of budget: {budget}; could not be stopped: {}", still_running.join(", "))
            }
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Budget::ModelCalls => "model calls",
            Budget::ToolCalls => "tool calls",
            Budget::Tokens => "tokens",
            Budget::Cost => "cost",
            Budget::WallTime => "time",
            Budget::Loop => "the model makes the same calls over and over",
        })
    }
}
