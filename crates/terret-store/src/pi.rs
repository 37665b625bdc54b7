//! Sessions as files of pi, version 3: JSON Lines with a header and a tree of entries, each with the id of the one before
//! it. (pi's documentation: "Session File Format".)

use std::io::Write;

use serde::Serialize;
use serde_json::value::RawValue;
use terret_agent::SessionId;
use terret_agent::machine::{Record, State, apply};
use terret_llm::wire::WireFormat;
use terret_llm::{AssistantMessage, Block, Content, Message, Money, RawJson, StopReason, Text, ToolCall, Usage};

use crate::error::{Damage, StoreError};
use crate::journal::SqliteJournal;
use crate::time::iso;

impl SqliteJournal {
    /// Writes the messages of a session as a file that pi reads. `folder` is where its tools worked.
    ///
    /// What pi has no words for is left out: blocks that only one vendor understands, annotations, and of a tool call
    /// whose arguments are no JSON object, pi sees empty ones. Returns what of the session couldn't be read.
    pub fn export_pi(
        &self,
        session: &SessionId,
        folder: &str,
        out: &mut impl Write,
    ) -> Result<Vec<Damage>, StoreError> {
        let reading = self.reader(session)?.read_all()?;
        let about = self.reader(session)?.about()?;
        let mut line = |entry: &Entry<'_>| -> Result<(), StoreError> {
            let mut line = serde_json::to_vec(entry)?;
            line.push(b'\n');
            out.write_all(&line).map_err(StoreError::Output)
        };
        let made = iso(about.created);
        line(&Entry::Session { version: 3, id: session, timestamp: &made, cwd: folder })?;
        let mut entries = 0u32;
        let mut next = || {
            entries += 1;
            let id = |number: u32| format!("{number:08x}");
            (id(entries), (entries > 1).then(|| id(entries - 1)))
        };
        if let Some(name) = &about.title {
            let (id, parent_id) = next();
            line(&Entry::SessionInfo { id, parent_id, timestamp: &made, name })?;
        }
        let mut state = State::new();
        for kept in &reading.records {
            let before = state.transcript().len();
            apply(&mut state, &kept.record);
            let cost = if let Record::ReplyAccepted { cost, .. } = &kept.record { *cost } else { Money::ZERO };
            for message in state.transcript().get(before..).unwrap_or_default() {
                let (id, parent_id) = next();
                // What came from elsewhere was appended later than it was said.
                let said = Some(timestamp(message)).filter(|said| *said > 0);
                line(&Entry::Message {
                    id,
                    parent_id,
                    timestamp: &iso(said.unwrap_or(kept.at)),
                    message: PiMessage::of(message, cost),
                })?;
            }
        }
        Ok(reading.damage)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Entry<'a> {
    Session { version: u32, id: &'a SessionId, timestamp: &'a str, cwd: &'a str },
    SessionInfo { id: String, parent_id: Option<String>, timestamp: &'a str, name: &'a str },
    Message { id: String, parent_id: Option<String>, timestamp: &'a str, message: PiMessage<'a> },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum PiMessage<'a> {
    User {
        content: Vec<PiBlock<'a>>,
        timestamp: i64,
    },
    Assistant {
        content: Vec<PiBlock<'a>>,
        api: WireFormat,
        provider: &'a str,
        model: &'a str,
        usage: PiUsage,
        stop_reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        response_id: Option<&'a str>,
        timestamp: i64,
    },
    ToolResult {
        tool_call_id: &'a str,
        tool_name: &'a str,
        content: Vec<PiBlock<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a RawJson>,
        is_error: bool,
        timestamp: i64,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum PiBlock<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        text_signature: Option<&'a str>,
    },
    Thinking {
        thinking: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<&'a str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    Image {
        mime_type: &'a str,
        data: &'a str,
    },
    ToolCall {
        id: &'a str,
        name: &'a str,
        arguments: Box<RawValue>,
        /// Ours: what the model wrote, where that is no JSON object on one line.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments_text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PiUsage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    total_tokens: u64,
    cost: PiCost,
}

/// In dollars. Only the sum is known here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PiCost {
    input: u8,
    output: u8,
    cache_read: u8,
    cache_write: u8,
    total: f64,
}

impl<'a> PiMessage<'a> {
    fn of(message: &'a Message, cost: Money) -> Self {
        match message {
            Message::User(user) => PiMessage::User { content: plain(&user.content), timestamp: user.timestamp },
            Message::Assistant(reply) => Self::reply(reply, cost),
            Message::ToolResult(result) => PiMessage::ToolResult {
                tool_call_id: &result.tool_call_id,
                tool_name: &result.tool_name,
                content: plain(&result.content),
                details: result.details.as_ref(),
                is_error: result.is_error,
                timestamp: result.timestamp,
            },
        }
    }

    fn reply(reply: &'a AssistantMessage, cost: Money) -> Self {
        let refused = (reply.stop_reason == StopReason::Refusal).then(|| "the model refused to answer".to_owned());
        PiMessage::Assistant {
            content: reply.content.iter().filter_map(PiBlock::of).collect(),
            api: reply.wire.clone(),
            provider: &reply.provider,
            model: &reply.model,
            usage: PiUsage::of(&reply.usage, cost),
            stop_reason: stop_reason(reply.stop_reason),
            error_message: reply.error.as_ref().map(ToString::to_string).or(refused),
            response_id: reply.response_id.as_deref(),
            timestamp: reply.timestamp,
        }
    }
}

impl<'a> PiBlock<'a> {
    fn of(block: &'a Block) -> Option<Self> {
        Some(match block {
            Block::Text(text) => Self::text(text),
            Block::Thinking(it) => PiBlock::Thinking {
                thinking: &it.thinking,
                thinking_signature: it.signature.as_deref(),
                redacted: it.redacted,
            },
            Block::Image(image) => PiBlock::Image { mime_type: &image.media_type, data: image.base64() },
            Block::ToolCall(call) => Self::call(call),
            // An opaque block.
            _ => return None,
        })
    }

    fn text(text: &'a Text) -> Self {
        PiBlock::Text { text: &text.text, text_signature: text.signature.as_deref() }
    }

    fn call(call: &'a ToolCall) -> Self {
        let text = call.arguments.as_str();
        let object = text.trim_start().starts_with('{').then(|| RawJson::parse(text).ok()).flatten();
        let exact = object.as_ref().is_some_and(|object| object.as_str() == text);
        let object = object.map_or_else(|| "{}".to_owned(), |object| object.as_str().to_owned());
        PiBlock::ToolCall {
            id: &call.id,
            name: &call.name,
            arguments: RawValue::from_string(object).unwrap_or_else(|_| RawValue::NULL.to_owned()),
            arguments_text: (!exact).then_some(text),
            thought_signature: call.signature.as_deref(),
        }
    }
}

impl PiUsage {
    fn of(usage: &Usage, cost: Money) -> Self {
        Self {
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            total_tokens: usage.total(),
            cost: PiCost { input: 0, output: 0, cache_read: 0, cache_write: 0, total: cost.dollars() },
        }
    }
}

fn timestamp(message: &Message) -> i64 {
    match message {
        Message::User(it) => it.timestamp,
        Message::Assistant(it) => it.timestamp,
        Message::ToolResult(it) => it.timestamp,
    }
}

fn plain(content: &[Content]) -> Vec<PiBlock<'_>> {
    content.iter().filter_map(plain_block).collect()
}

fn plain_block(content: &Content) -> Option<PiBlock<'_>> {
    match content {
        Content::Text(text) => Some(PiBlock::text(text)),
        Content::Image(image) => Some(PiBlock::Image { mime_type: &image.media_type, data: image.base64() }),
        _ => None,
    }
}

/// pi's word for it.
fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Length => "length",
        StopReason::ToolUse => "toolUse",
        StopReason::Refusal | StopReason::Error => "error",
        StopReason::Aborted => "aborted",
        _ => "stop",
    }
}
