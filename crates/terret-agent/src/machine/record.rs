use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terret_llm::{Message, Money, Usage};

use super::{Budget, Epoch, Failure, Limits, Outcome, RunId, ToolFacts};

/// One durable fact. The journal keeps these, and the state is their fold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Record {
    /// A run began.
    RunStarted {
        /// Its name.
        run: RunId,
        /// What it may spend.
        limits: Limits,
        /// Its tools.
        tools: Arc<BTreeMap<String, ToolFacts>>,
        /// When, in Unix milliseconds.
        #[serde(default)]
        at: i64,
        /// What the user says; queued as steering, so that it is delivered first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<Arc<Message>>,
    },
    /// A user message waits for a safe point.
    Queued {
        /// Which safe point.
        kind: QueueKind,
        /// The message, of role `user`.
        message: Arc<Message>,
    },
    /// Queued messages were appended to the transcript.
    Delivered {
        /// Their numbers, in order.
        ids: Vec<u64>,
    },
    /// A model call may start.
    ModelCalled {
        /// Its epoch.
        epoch: Epoch,
    },
    /// A complete reply was appended to the transcript. None of its tools has started.
    ReplyAccepted {
        /// The message, of role `assistant`.
        message: Arc<Message>,
        /// What it cost.
        cost: Money,
    },
    /// A model call failed, or its reply can't be worked with. Nothing of it is in the transcript.
    AttemptFailed {
        /// Why.
        failure: Failure,
        /// What it used up all the same.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// The gate let a call pass, or its approved arguments are valid.
    CallAllowed {
        /// Which call.
        call_id: String,
    },
    /// A person has to decide about a call.
    CallAsked {
        /// Which call.
        call_id: String,
        /// The question, for the person.
        question: String,
    },
    /// A person approved a call. Its arguments are validated (again) before its tool starts.
    CallApproved {
        /// Which call.
        call_id: String,
        /// The arguments, if the person changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        /// Whether all later calls of this tool in this run are approved, too.
        for_run: bool,
    },
    /// A tool may start.
    CallOpened {
        /// Which call.
        call_id: String,
    },
    /// A call has its result. When all calls of the reply have theirs, the results are appended in request order.
    CallClosed {
        /// The result, of role `toolResult`.
        result: Arc<Message>,
    },
    /// A budget is used up: no further tool starts, and when those that run have finished, the run ends.
    BudgetExceeded {
        /// Which budget.
        budget: Budget,
    },
    /// The run's time is up: everything is being stopped.
    Expired,
    /// A cancel was accepted.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// The process was restarted in mid-run: nothing is in flight any more, and what was is stale.
    Resumed,
    /// The run ended. Messages that still wait are handed back.
    RunEnded {
        /// How.
        outcome: Outcome,
    },
}

/// When a queued message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueKind {
    /// Before the next model call. All that wait are delivered together.
    Steering,
    /// When the run would otherwise complete. One is delivered at a time.
    FollowUp,
}
