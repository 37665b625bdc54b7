use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use terret_llm::{Money, Reply, Usage, UserMessage};

use super::{Budget, Epoch, Failure, Limits, QueueKind, RunId, Task, ToolFacts};
use crate::tool::ToolOutput;

/// What can happen to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Somebody starts a run, or goes on with one that a crash has left open. Nothing is in flight then.
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
    /// The older part of the transcript was summarised.
    Summarised {
        /// The effect's epoch.
        epoch: Epoch,
        /// What it says in short.
        summary: String,
        /// What the summary used up.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// A model call, a summary or a review failed.
    AttemptFailed {
        /// The effect's epoch.
        epoch: Epoch,
        /// Why.
        failure: Failure,
        /// What it used up all the same.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// The final reply was reviewed.
    Reviewed {
        /// The effect's epoch.
        epoch: Epoch,
        /// What is wrong with it, for the model; nothing if it is accepted.
        objection: Option<String>,
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
        /// [`Batch::digest`](super::Batch::digest) of the call that the person saw.
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
    /// Somebody takes back a message that waits.
    Withdraw {
        /// Its number.
        id: u64,
    },
    /// Somebody changes a message that waits. It keeps its place.
    Requeue {
        /// Its number.
        id: u64,
        /// What it says now.
        message: UserMessage,
    },
    /// Somebody wants to say something now: what is in flight is stopped, and the run goes on with the message.
    Interrupt {
        /// What is said.
        message: UserMessage,
    },
    /// A budget that is shared with other runs is used up.
    Exhausted {
        /// Which one.
        budget: Budget,
    },
    /// Time has passed: that of a retry may have come, or the run's be up.
    Wake,
    /// Somebody wants the run to end.
    Cancel {
        /// Why; shown to people.
        reason: String,
    },
    /// A tool that was announced had not begun when everything was stopped, and now never will.
    NeverBegun {
        /// The batch's epoch.
        epoch: Epoch,
        /// Which call.
        call_id: String,
    },
    /// Everything that was in flight has stopped.
    Stopped {
        /// The ids of calls whose tools could not be stopped.
        still_running: Vec<String>,
        /// What a model call had used up that was stopped.
        usage: Usage,
        /// What that cost.
        cost: Money,
    },
    /// The process was restarted: nothing that was in flight is any more.
    Resume,
}

/// What a run is started with.
///
/// Where a crash has left a run open, a prompt without a message finishes it, as it was begun. One with a message joins it
/// if it would be the same run (of the same task, tools, models and limits, with something of them left): the message is
/// steering then. Otherwise the open run ends, with its calls settled, and the prompt starts one of its own.
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
    /// How many models there are to call: one, and those to fall back on.
    pub models: NonZeroU32,
    /// What the run is to do.
    pub task: Task,
    /// What is used up from the start, of a budget that is shared with other runs.
    pub exceeded: Option<Budget>,
    /// Never joins a run that is open.
    pub apart: bool,
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
    /// The tool may start, and so may the other calls of it that are asked about; what the gate would ask about later ones
    /// in this run counts as approved. What it denies stays denied.
    ApproveForRun,
    /// The tool may start with these arguments, as JSON text, if they are valid. The model is told.
    Edit(String),
    /// The tool must not start, and the model is told why.
    Deny {
        /// Why.
        reason: String,
    },
}
