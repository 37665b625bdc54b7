use std::collections::BTreeMap;
use std::sync::Arc;

use terret_llm::{ModelError, Money, Reply, Usage, UserMessage};

use super::{Epoch, Limits, QueueKind, RunId, ToolFacts};
use crate::tool::ToolOutput;

/// What can happen to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Somebody starts a run.
    Prompt(Prompt),
    /// The model call ended with a complete reply.
    Replied {
        /// The call's epoch.
        epoch: Epoch,
        /// The reply. Only a complete one has this type.
        reply: Reply,
        /// What it cost, where the price is known.
        cost: Money,
    },
    /// The model call failed.
    ModelFailed {
        /// The call's epoch.
        epoch: Epoch,
        /// Why.
        error: ModelError,
        /// What it used up all the same.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// The gate has decided about a call.
    GateDecided {
        /// The batch's epoch.
        epoch: Epoch,
        /// Which call.
        call_id: String,
        /// What it decided.
        verdict: Verdict,
    },
    /// A person has answered a question. Bound to the call and its arguments, not to an epoch: it may take days.
    Answered {
        /// Which call.
        call_id: String,
        /// [`Call::digest`](super::Call::digest) of the call that the person saw.
        digest: String,
        /// What the person decided.
        answer: Answer,
    },
    /// A tool has finished.
    ToolFinished {
        /// The batch's epoch.
        epoch: Epoch,
        /// Which call.
        call_id: String,
        /// What it returned.
        output: ToolOutput,
    },
    /// A tool was asked what a first, lost attempt did.
    Discovered {
        /// The batch's epoch.
        epoch: Epoch,
        /// Which call.
        call_id: String,
        /// What it did, if the tool can tell.
        output: Option<ToolOutput>,
    },
    /// Somebody says something while the run is busy.
    Queue {
        /// When it is to be delivered.
        kind: QueueKind,
        /// What is said.
        message: UserMessage,
    },
    /// The run's time may be up.
    Deadline,
    /// Somebody wants the run to end.
    Cancel {
        /// Why; shown to people.
        reason: String,
    },
    /// Everything that was in flight has stopped.
    Stopped {
        /// The ids of calls whose tools could not be stopped.
        still_running: Vec<String>,
    },
    /// The process was restarted: nothing that was in flight is any more.
    Resume,
}

/// What a run is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The run's name.
    pub run: RunId,
    /// What the user says; nothing to let the model go on from what stands in the transcript.
    pub message: Option<UserMessage>,
    /// What the run may spend.
    pub limits: Limits,
    /// The tools of the run.
    pub tools: Arc<BTreeMap<String, ToolFacts>>,
}

/// What a gate decided about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The tool may start.
    Allow,
    /// The tool must not start, and the model is told why.
    Deny {
        /// Why.
        reason: String,
    },
    /// A person has to decide.
    Ask {
        /// The question, for the person.
        question: String,
    },
    /// The arguments don't fit the tool's schema, and the model is told what was received and what is allowed.
    Reject {
        /// Every violation, and what was received.
        explanation: String,
    },
}

/// What a person decided about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The tool may start.
    Approve,
    /// The tool may start, and so may all later calls of it in this run.
    ApproveForRun,
    /// The tool may start with these arguments, as JSON text, if they are valid. The model is told.
    Edit(String),
    /// The tool must not start, and the model is told why.
    Deny {
        /// Why.
        reason: String,
    },
}
