use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::format::Line;
use crate::error::ModelError;
use crate::transcript::{Block, Content, Message, StopReason, ToolCall, Usage};

/// One reply of a script, put together in code. The methods are the keys of the [format](super).
///
/// ```
/// use terret_llm::scripted::Expected;
/// use terret_llm::{ScriptedModel, ScriptedReply, ToolCall};
///
/// let model = ScriptedModel::new([
///     ScriptedReply::calls([ToolCall::new("c1", "read", r#"{"path":"answer.txt"}"#)]),
///     ScriptedReply::text("It is 42.").expect(Expected::tool_result().containing("42")),
/// ]);
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Line<'_>")]
pub struct ScriptedReply {
    pub(super) content: Vec<Block>,
    pub(super) usage: Usage,
    pub(super) chunk: usize,
    pub(super) delay: Duration,
    pub(super) delta_delay: Duration,
    pub(super) end: End,
    pub(super) expect: Expected,
}

/// How a reply ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    Stop(Option<StopReason>),
    Error(ModelError),
    Stall,
}

impl Default for End {
    fn default() -> Self {
        End::Stop(None)
    }
}

impl ScriptedReply {
    /// A reply of these blocks.
    pub fn new(content: impl IntoIterator<Item = Block>) -> Self {
        Self { content: content.into_iter().collect(), ..Self::default() }
    }

    /// A reply of one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new([Block::text(text)])
    }

    /// A reply that asks for these calls.
    pub fn calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::new(calls.into_iter().map(Block::ToolCall))
    }

    /// A call that fails before any content.
    pub fn failure(error: ModelError) -> Self {
        Self::default().error(error)
    }

    /// Why the model stopped. By default `ToolUse` if there are calls, else `Stop`.
    #[must_use]
    pub fn stop(mut self, reason: StopReason) -> Self {
        self.end = End::Stop(Some(reason));
        self
    }

    /// The call fails after the content.
    #[must_use]
    pub fn error(mut self, error: ModelError) -> Self {
        self.end = End::Error(error);
        self
    }

    /// After the content nothing more comes, until the call is cancelled.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.end = End::Stall;
        self
    }

    /// The tokens that the call used. By default none. A call that is cancelled reports none.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Characters per delta. By default, and for 0, each block is one delta.
    #[must_use]
    pub fn chunk(mut self, characters: usize) -> Self {
        self.chunk = characters;
        self
    }

    /// The time before the reply starts, by tokio's clock.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The time before each delta, by tokio's clock.
    #[must_use]
    pub fn delta_delay(mut self, delay: Duration) -> Self {
        self.delta_delay = delay;
        self
    }

    /// What the request must look like, else the call fails.
    #[must_use]
    pub fn expect(mut self, expected: Expected) -> Self {
        self.expect = expected;
        self
    }
}

/// What a script expects of a request. By default, anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expected {
    last_role: Option<Role>,
    contains: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Role {
    User,
    Assistant,
    ToolResult,
}

impl Expected {
    /// The last message is a user's.
    pub fn user() -> Self {
        Self { last_role: Some(Role::User), contains: None }
    }

    /// The last message is an assistant's, to be continued.
    pub fn assistant() -> Self {
        Self { last_role: Some(Role::Assistant), contains: None }
    }

    /// The last message is a tool result.
    pub fn tool_result() -> Self {
        Self { last_role: Some(Role::ToolResult), contains: None }
    }

    /// The last message's text contains this.
    #[must_use]
    pub fn containing(mut self, text: impl Into<String>) -> Self {
        self.contains = Some(text.into());
        self
    }

    /// How the request's last message differs, in words.
    pub(super) fn check(&self, last: Option<&Message>) -> Result<(), String> {
        let text = last.map(text_of).unwrap_or_default();
        let role = last.map(Role::of);
        let role_agrees = self.last_role.is_none_or(|expected| role == Some(expected));
        if role_agrees && self.contains.as_ref().is_none_or(|part| text.contains(part)) {
            return Ok(());
        }
        let got = match role {
            Some(role) => format!("{role} with the text {:?}", excerpt(&text)),
            None => "no message at all".to_owned(),
        };
        Err(format!("expected {self}, got {got}"))
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_role {
            Some(role) => write!(f, "{role}")?,
            None => f.write_str("any message")?,
        }
        match &self.contains {
            Some(part) => write!(f, " whose text contains {part:?}"),
            None => f.write_str(" as the last message"),
        }
    }
}

impl Role {
    fn of(message: &Message) -> Self {
        match message {
            Message::User(_) => Role::User,
            Message::Assistant(_) => Role::Assistant,
            Message::ToolResult(_) => Role::ToolResult,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::User => "a user message",
            Role::Assistant => "an assistant message",
            Role::ToolResult => "a tool result",
        })
    }
}

/// The text of a message, blocks on lines of their own.
fn text_of(message: &Message) -> String {
    let plain = |content: &[Content]| content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
    match message {
        Message::User(message) => plain(&message.content),
        Message::ToolResult(message) => plain(&message.content),
        Message::Assistant(message) => message.text(),
    }
}

/// The first 200 characters.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => text.split_at(end).0.to_owned() + "…",
        None => text.to_owned(),
    }
}
