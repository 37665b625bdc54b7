//! Reading messages from JSON, in this crate's spelling or in that of pi sessions (v3).
//!
//! Tagged enums can't be derived here: serde buffers their fields before it knows the tag, and the raw text of tool
//! arguments would be lost. So each message and block is read as a struct of all fields that any of them has.

use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{
    Arguments, AssistantMessage, Block, Content, Image, Message, Opaque, RawJson, StopReason, Text, Thinking, ToolCall,
    ToolResultMessage, Usage, UserMessage,
};
use crate::error::{ErrorKind, ModelError};
use crate::lossy::Lossy;
use crate::wire::WireFormat;

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AnyMessage::deserialize(deserializer)?.message().map_err(de::Error::custom)
    }
}

/// Reads the three message structs through [`Message`], so that each of them can be read alone, too.
macro_rules! read_as_message {
    ($struct:ident, $variant:ident, $role:literal) => {
        impl<'de> Deserialize<'de> for $struct {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut any = AnyMessage::deserialize(deserializer)?;
                any.role.get_or_insert_with(|| $role.into());
                match any.message().map_err(de::Error::custom)? {
                    Message::$variant(message) => Ok(message),
                    _ => Err(de::Error::custom(concat!("expected a message of role ", $role))),
                }
            }
        }
    };
}

read_as_message!(UserMessage, User, "user");
read_as_message!(AssistantMessage, Assistant, "assistant");
read_as_message!(ToolResultMessage, ToolResult, "toolResult");

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AnyBlock::deserialize(deserializer)?.block().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut any = AnyBlock::deserialize(deserializer)?;
        any.kind.get_or_insert_with(|| "toolCall".into());
        match any.block().map_err(de::Error::custom)? {
            Block::ToolCall(call) => Ok(call),
            _ => Err(de::Error::custom("expected a block of type \"toolCall\"")),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AnyBlock::deserialize(deserializer)?.content("a content list").map_err(de::Error::custom)
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyMessage {
    role: Option<String>,
    content: Option<Box<RawValue>>,
    timestamp: Option<i64>,
    provider: Option<Arc<str>>,
    model: Option<Arc<str>>,
    #[serde(alias = "api")]
    wire: Option<WireFormat>,
    stop_reason: Option<String>,
    raw_stop_reason: Option<Owned>,
    usage: Option<Usage>,
    response_id: Option<Owned>,
    error: Option<Box<ModelError>>,
    error_message: Option<Owned>,
    tool_call_id: Option<Owned>,
    tool_name: Option<Owned>,
    #[serde(default, deserialize_with = "present")]
    details: Option<RawJson>,
    is_error: Option<bool>,
}

impl AnyMessage {
    fn message(self) -> Result<Message, String> {
        match self.role.as_deref() {
            Some("user") => Ok(Message::User(UserMessage {
                content: self.plain_content("a user message")?,
                timestamp: self.timestamp.unwrap_or(0),
            })),
            Some("assistant") => self.assistant().map(Message::Assistant),
            Some("toolResult") => Ok(Message::ToolResult(ToolResultMessage {
                content: self.plain_content("a tool result")?,
                tool_call_id: self.tool_call_id.ok_or("a message of role \"toolResult\" needs \"toolCallId\"")?.0,
                tool_name: self.tool_name.unwrap_or_default().0,
                details: self.details,
                is_error: self.is_error.unwrap_or(false),
                timestamp: self.timestamp.unwrap_or(0),
            })),
            Some(role) => {
                Err(format!("unknown message role {role:?}; expected \"user\", \"assistant\" or \"toolResult\""))
            }
            None => Err("a message needs \"role\": \"user\", \"assistant\" or \"toolResult\"".into()),
        }
    }

    fn assistant(self) -> Result<AssistantMessage, String> {
        let content = self.blocks()?.into_iter().map(AnyBlock::block).collect::<Result<Vec<_>, _>>()?;
        let calls = content.iter().any(|block| block.as_tool_call().is_some());
        let mut raw_stop_reason = self.raw_stop_reason.map(|raw| raw.0);
        let stop_reason = match self.stop_reason {
            None if calls => StopReason::ToolUse,
            None => StopReason::Stop,
            Some(reason) => StopReason::from_word(&reason).unwrap_or_else(|| {
                raw_stop_reason.get_or_insert(reason);
                if calls { StopReason::ToolUse } else { StopReason::Stop }
            }),
        };
        let kind = if stop_reason == StopReason::Aborted { ErrorKind::Aborted } else { ErrorKind::Server };
        let error = self.error.or_else(|| Some(Box::new(ModelError::new(kind, self.error_message?.0))));
        Ok(AssistantMessage {
            content,
            provider: self.provider.unwrap_or_default(),
            model: self.model.unwrap_or_default(),
            wire: self.wire.unwrap_or_default(),
            stop_reason,
            raw_stop_reason,
            usage: self.usage.unwrap_or_default(),
            response_id: self.response_id.map(|id| id.0),
            error,
            timestamp: self.timestamp.unwrap_or(0),
        })
    }

    fn plain_content(&self, place: &str) -> Result<Vec<Content>, String> {
        self.blocks()?.into_iter().map(|block| block.content(place)).collect()
    }

    /// The blocks; a bare string is one text block, null is none.
    fn blocks(&self) -> Result<Vec<AnyBlock>, String> {
        let Some(content) = &self.content else { return Ok(Vec::new()) };
        if !content.get().starts_with('"') {
            return serde_json::from_str(content.get()).map_err(|error| format!("content: {error}"));
        }
        let text = serde_json::from_str(content.get()).map_err(|error| format!("content: {error}"))?;
        Ok(vec![AnyBlock { kind: Some("text".into()), text: Some(text), ..AnyBlock::default() }])
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnyBlock {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<Owned>,
    thinking: Option<Owned>,
    #[serde(alias = "textSignature", alias = "thinkingSignature", alias = "thoughtSignature")]
    signature: Option<Owned>,
    redacted: Option<bool>,
    #[serde(deserialize_with = "present")]
    annotations: Option<RawJson>,
    #[serde(alias = "mimeType")]
    media_type: Option<String>,
    data: Option<Arc<str>>,
    id: Option<Owned>,
    name: Option<Owned>,
    #[serde(deserialize_with = "present")]
    arguments: Option<RawJson>,
    arguments_text: Option<Owned>,
    wire: Option<WireFormat>,
    #[serde(deserialize_with = "present")]
    raw: Option<RawJson>,
}

impl AnyBlock {
    fn block(self) -> Result<Block, String> {
        let signature = self.signature.map(|signature| signature.0);
        match self.kind.as_deref() {
            Some("text") => Ok(Block::Text(Text {
                text: self.text.unwrap_or_default().0,
                signature,
                annotations: self.annotations,
            })),
            Some("thinking") => Ok(Block::Thinking(Thinking {
                thinking: self.thinking.unwrap_or_default().0,
                signature,
                redacted: self.redacted.unwrap_or(false),
            })),
            Some("image") => Ok(Block::Image(image(self.media_type, self.data)?)),
            Some("toolCall") => Ok(Block::ToolCall(ToolCall {
                id: self.id.unwrap_or_default().0,
                name: self.name.unwrap_or_default().0,
                arguments: match (self.arguments_text, self.arguments) {
                    (Some(text), _) => Arguments::new(text.0),
                    (None, Some(json)) => Arguments::new(json.as_str()),
                    (None, None) => Arguments::default(),
                },
                signature,
            })),
            Some("opaque") => Ok(Block::Opaque(Opaque {
                wire: self.wire.ok_or("a block of type \"opaque\" needs \"wire\"")?,
                raw: self.raw.ok_or("a block of type \"opaque\" needs \"raw\"")?,
            })),
            kind => Err(unknown_block(kind, "an assistant message", "text, thinking, image, toolCall or opaque")),
        }
    }

    fn content(self, place: &str) -> Result<Content, String> {
        match self.kind.as_deref() {
            Some("text") => Ok(Content::Text(Text {
                text: self.text.unwrap_or_default().0,
                signature: self.signature.map(|signature| signature.0),
                annotations: self.annotations,
            })),
            Some("image") => Ok(Content::Image(image(self.media_type, self.data)?)),
            kind => Err(unknown_block(kind, place, "text or image")),
        }
    }
}

fn image(media_type: Option<String>, data: Option<Arc<str>>) -> Result<Image, String> {
    let media_type = media_type.ok_or("a block of type \"image\" needs \"mediaType\"")?;
    let data = data.ok_or("a block of type \"image\" needs \"data\"")?;
    Image::from_base64(media_type, data).map_err(|error| error.to_string())
}

fn unknown_block(kind: Option<&str>, place: &str, expected: &str) -> String {
    match kind {
        Some(kind) => format!("unknown block type {kind:?} in {place}; expected {expected}"),
        None => format!("a block without \"type\" in {place}; expected {expected}"),
    }
}

impl StopReason {
    fn from_word(word: &str) -> Option<Self> {
        Self::deserialize(de::value::StrDeserializer::<de::value::Error>::new(word)).ok()
    }
}

/// Any JSON value that is there, null included.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}

/// An owned string that may be written with lone surrogate escapes.
#[derive(Default)]
struct Owned(String);

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Owned(Lossy::deserialize(deserializer)?.into_string()))
    }
}
