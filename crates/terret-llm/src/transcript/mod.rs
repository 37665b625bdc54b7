//! The transcript: the ordered messages that the next model call is built from.
//!
//! These are this crate's own types, not a vendor's. A transcript survives JSON, a change of provider in
//! mid-conversation and a year on disk. JSON is camelCase, messages are tagged by `role`, blocks by `type`.
//! An unknown role or block type is an error that names it; an unknown field is ignored.

mod arguments;
mod block;
mod json;
mod raw;
mod usage;

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use arguments::{Arguments, ArgumentsError};
pub use block::{Block, Content, Image, InvalidBase64, Opaque, Text, Thinking, ToolCall};
pub use raw::RawJson;
pub use usage::Usage;

pub(crate) use arguments::replace_lone_surrogates;

use crate::error::ModelError;
use crate::wire::WireFormat;

/// One message of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role")]
pub enum Message {
    /// What a person (or the embedding program) said.
    #[serde(rename = "user")]
    User(UserMessage),
    /// What a model replied.
    #[serde(rename = "assistant")]
    Assistant(AssistantMessage),
    /// What a tool returned for one call.
    #[serde(rename = "toolResult")]
    ToolResult(ToolResultMessage),
}

impl Message {
    /// The message's tool calls in order; none for a message that isn't an assistant's.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let content = match self {
            Message::Assistant(message) => message.content.as_slice(),
            Message::User(_) | Message::ToolResult(_) => &[],
        };
        content.iter().filter_map(Block::as_tool_call)
    }
}

impl From<UserMessage> for Message {
    fn from(message: UserMessage) -> Self {
        Message::User(message)
    }
}

impl From<AssistantMessage> for Message {
    fn from(message: AssistantMessage) -> Self {
        Message::Assistant(message)
    }
}

impl From<ToolResultMessage> for Message {
    fn from(message: ToolResultMessage) -> Self {
        Message::ToolResult(message)
    }
}

/// What a person said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UserMessage {
    /// Text and images, in order.
    pub content: Vec<Content>,
    /// Unix milliseconds.
    pub timestamp: i64,
}

impl UserMessage {
    /// A message of one text block.
    pub fn text(text: impl Into<String>, timestamp: i64) -> Self {
        Self { content: vec![Content::text(text)], timestamp }
    }
}

/// What a model replied.
///
/// Only a [`Reply`](crate::Reply) can be executed; a bare `AssistantMessage` (read from disk, or the partial of a
/// failed call) is history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Blocks in the order in which the model wrote them.
    pub content: Vec<Block>,
    /// Who was asked, as in `provider/model`.
    pub provider: Arc<str>,
    /// The model's id at that provider.
    pub model: Arc<str>,
    /// The protocol that carried the reply.
    pub wire: WireFormat,
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// The provider's own word for it, where one was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_stop_reason: Option<String>,
    /// Tokens, each counted once.
    pub usage: Usage,
    /// The provider's id of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Why the reply is incomplete, for `error` and `aborted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<ModelError>>,
    /// Unix milliseconds.
    pub timestamp: i64,
}

impl AssistantMessage {
    /// The tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(Block::as_tool_call)
    }

    /// All text blocks, joined; thinking is not part of it.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Block::as_text).map(|text| text.text.as_str()).collect()
    }
}

/// What a tool returned for one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// The id of the call that this answers.
    pub tool_call_id: String,
    /// The name of the tool that was called.
    pub tool_name: String,
    /// What the model is shown.
    pub content: Vec<Content>,
    /// For people and UIs; no wire ever sends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// Whether the model should read the content as a failure.
    pub is_error: bool,
    /// Unix milliseconds.
    pub timestamp: i64,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum StopReason {
    /// It was done.
    Stop,
    /// It reached its output limit or the context window.
    Length,
    /// It waits for the results of its tool calls.
    ToolUse,
    /// The provider wants to be called again with this reply appended.
    Pause,
    /// The model or a filter declined.
    Refusal,
    /// The reply broke off; `error` says why.
    Error,
    /// The reply was cancelled.
    Aborted,
}

/// The ordered messages that the next model call is built from.
///
/// Cloning is cheap (shared), appending to an unshared transcript is O(1), and the ids of all tool calls in it are
/// indexed, so that nothing that a turn does grows with what is old.
#[derive(Clone, Debug, Default)]
pub struct Transcript(Arc<Inner>);

#[derive(Clone, Debug, Default)]
struct Inner {
    messages: Vec<Arc<Message>>,
    call_ids: HashSet<String>,
}

impl Transcript {
    /// An empty transcript.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        let inner = Arc::make_mut(&mut self.0);
        inner.call_ids.extend(message.tool_calls().map(|call| call.id.clone()));
        inner.messages.push(message);
    }

    /// Whether some message holds a tool call of this id.
    pub fn has_call_id(&self, id: &str) -> bool {
        self.0.call_ids.contains(id)
    }

    /// How many tool calls of distinct ids the messages hold.
    pub fn call_count(&self) -> usize {
        self.0.call_ids.len()
    }
}

impl std::ops::Deref for Transcript {
    type Target = [Arc<Message>];

    fn deref(&self) -> &Self::Target {
        &self.0.messages
    }
}

impl<M: Into<Arc<Message>>> FromIterator<M> for Transcript {
    fn from_iter<I: IntoIterator<Item = M>>(messages: I) -> Self {
        let mut transcript = Self::new();
        transcript.extend(messages);
        transcript
    }
}

impl<M: Into<Arc<Message>>> Extend<M> for Transcript {
    fn extend<I: IntoIterator<Item = M>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl PartialEq for Transcript {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.messages == other.0.messages
    }
}

impl Serialize for Transcript {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.messages.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Transcript {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Message>::deserialize(deserializer)?.into_iter().collect())
    }
}
