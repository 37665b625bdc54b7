use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terret_llm::{Message, Money, Usage};

use super::{Budget, Epoch, Failure, Limits, Outcome, Recovery, RunId, Task, ToolFacts};

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
        /// How many models there are to call.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        models: NonZeroU32,
        /// What the run is to do.
        #[serde(default, skip_serializing_if = "is_default")]
        task: Task,
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
    /// A queued message was taken back.
    Withdrawn {
        /// Its number.
        id: u64,
    },
    /// A queued message was changed.
    Requeued {
        /// Its number.
        id: u64,
        /// What it says now, of role `user`.
        message: Arc<Message>,
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
    /// A model call, a summary or a review failed, or its result can't be worked with. Nothing of it is in the
    /// transcript.
    AttemptFailed {
        /// Why.
        failure: Failure,
        /// What the run does about it; nothing if it fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recovery: Option<Recovery>,
        /// What it used up all the same.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// What a model call had used up that was stopped.
    CallStopped {
        /// Tokens.
        usage: Usage,
        /// What they cost.
        cost: Money,
    },
    /// The first messages of the transcript may be summarised. It counts as a model call.
    CompactionStarted {
        /// Its epoch.
        epoch: Epoch,
        /// The index of the first message that stays.
        cut: usize,
    },
    /// A summary took the place of the messages before the cut. Those stay in the journal.
    Compacted {
        /// The summary, of role `user`.
        summary: Arc<Message>,
        /// The index of the first message that stays.
        cut: usize,
        /// Roughly how many tokens the transcript takes now.
        context: u64,
        /// What the summary used up.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// The final reply was objected to, and the model has to answer again.
    Objected {
        /// What is wrong with it, of role `user`; appended to the transcript.
        message: Arc<Message>,
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
        /// Whether the other calls of this tool that are asked about are approved as well, and no question is put about
        /// later ones in this run.
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
    /// A budget is used up: when the calls of the last reply have their results, the run ends. Beyond the tool budget, and
    /// in a loop, no further tool of it starts.
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
    /// Somebody has to say something now: everything is being stopped.
    Interrupted,
    /// Everything was stopped for an interruption, and the run goes on.
    Halted {
        /// The ids of calls whose tools could not be stopped.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        still_running: Vec<String>,
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

const fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn is_one(n: &NonZeroU32) -> bool {
    *n == one()
}

fn is_default(task: &Task) -> bool {
    *task == Task::default()
}
