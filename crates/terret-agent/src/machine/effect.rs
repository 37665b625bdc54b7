use std::sync::Arc;

use terret_llm::{Message, ToolCall};

use super::Epoch;

/// Work that must be in flight. The driver starts it once, and reports its completion with the same epoch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Effect<'a> {
    /// Call the model with the transcript as it stands.
    CallModel {
        /// To be carried by the completion.
        epoch: Epoch,
        /// Which model of the agent's list.
        model: u32,
    },
    /// Summarise the older part of the transcript.
    Compact {
        /// To be carried by the completion.
        epoch: Epoch,
        /// Which model of the agent's list.
        model: u32,
        /// What is to be summarised.
        messages: &'a [Arc<Message>],
    },
    /// Review the final reply, the transcript's last message. Harmless to repeat.
    Review {
        /// To be carried by the completion.
        epoch: Epoch,
    },
    /// Validate a call's arguments and ask the gate.
    Gate {
        /// To be carried by the completion.
        epoch: Epoch,
        /// The call.
        call: &'a ToolCall,
        /// A person has approved it: the gate isn't asked.
        approved: bool,
    },
    /// Wait for a person's answer, which has to name the call's [`Batch::digest`](super::Batch::digest).
    Ask {
        /// The call.
        call: &'a ToolCall,
        /// The question.
        question: &'a str,
    },
    /// Run a tool.
    StartTool {
        /// To be carried by the completion.
        epoch: Epoch,
        /// The call.
        call: &'a ToolCall,
        /// The same for every attempt at this call.
        key: String,
    },
    /// Ask a tool what a lost attempt did.
    Discover {
        /// To be carried by the completion.
        epoch: Epoch,
        /// The call.
        call: &'a ToolCall,
        /// The key of the lost attempt.
        key: String,
    },
    /// Tell when this time has come.
    Wake {
        /// Unix milliseconds.
        at: i64,
    },
    /// Stop everything that is in flight.
    Stop,
}
