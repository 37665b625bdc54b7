use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use terret_llm::{Message, StopReason, ToolCall};

use super::{Epoch, RunId};
use crate::tool::EffectClass;

/// The calls of one reply, in the order in which the model made them. Exists until each one has its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Each call and how far it got.
    pub calls: Vec<Call>,
    /// The run that made them; part of their idempotency keys.
    pub run: RunId,
    /// The epoch of the reply; part of their idempotency keys, since a call's id may come again once the transcript was
    /// summarised.
    pub epoch: Epoch,
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

impl Batch {
    /// The call of this id.
    pub fn get(&self, id: &str) -> Option<&Call> {
        self.calls.iter().find(|call| call.call.id == id)
    }

    /// The key under which a tool may recognise a repeated call.
    pub fn idempotency_key(&self, call: &Call) -> String {
        format!("{}/{}/{}", self.run.0, self.epoch, call.call.id)
    }

    /// What a person's answer has to name: this call of this reply with these arguments, and no other.
    pub fn digest(&self, call: &Call) -> String {
        let mut hash = Sha256::new();
        for part in [&self.idempotency_key(call), &call.call.name, call.call.arguments.as_str()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Call {
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
