//! A response: `message_start`, then blocks, then `message_delta` and the terminal, `message_stop`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem::discriminant;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::lossy::{Fragment, Lossy};
use crate::sse::SseEvent;
use crate::stream::BlockKind;
use crate::transcript::{RawJson, StopReason, Usage, replace_lone_surrogates};
use crate::wire::lax::{if_it_fits, lax};
use crate::wire::{Decoder, failure};

#[derive(Default)]
pub(super) struct MessageDecoder {
    /// The blocks that have begun and not ended.
    open: Vec<OpenBlock>,
    stop_reason: Option<String>,
}

struct OpenBlock {
    /// The block's number on the wire. It says nothing about the block's place: hosts skip and repeat numbers.
    number: u64,
    /// The block's index in the draft.
    at: usize,
    rest: Rest,
}

/// What of a block has to wait for its end.
enum Rest {
    /// The citations, each as JSON.
    Text(Vec<String>),
    Thinking,
    /// The arguments that came with the start. They count if no fragments follow.
    ToolCall(String),
    Opaque(OpaqueBlock),
}

impl Decoder for MessageDecoder {
    fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
        if event.name != "error" && !event.data.trim_start().starts_with('{') {
            // A keep-alive, or the `[DONE]` of hosts that know it from OpenAI.
            return Ok(None);
        }
        let Ok(data) = serde_json::from_str::<Event<'_>>(&event.data) else { return unfit(event) };
        match data.kind.as_deref().unwrap_or(&event.name) {
            "content_block_delta" => self.delta(draft, &data, &event.data),
            "content_block_start" => {
                if let Some(block) = data.content_block {
                    self.begin(draft, data.number(), block);
                }
            }
            "content_block_stop" => self.end_block(draft, data.number()),
            "message_start" => {
                if let Some(message) = data.message {
                    self.message(draft, message.get());
                }
            }
            "message_delta" => {
                self.stopped(data.delta.and_then(|delta| delta.stop_reason));
                count(data.usage, draft.usage_mut());
            }
            "message_stop" => return Ok(Some(self.stop(draft))),
            "error" => return Err(told(&event.data)),
            _ if data.error.is_some() => return Err(told(&event.data)),
            _ => {}
        }
        Ok(None)
    }

    fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError> {
        let event: Event<'_> = serde_json::from_str(body).map_err(|_| failure::not_json(body))?;
        if event.error.is_some() {
            return Err(told(body));
        }
        if event.kind.as_deref() != Some("message") {
            return Err(protocol(format!("the answer is not a message: {}", excerpt(body))));
        }
        self.message(draft, body);
        Ok(self.stop(draft))
    }
}

impl MessageDecoder {
    /// A message that is whole, or that begins. `message_start` can hold a whole one, when the host has it ready (the
    /// next call of code that a server runs, for example).
    fn message(&mut self, draft: &mut Draft, json: &str) {
        let message: Message<'_> = serde_json::from_str(json).unwrap_or_default();
        draft.set_response_id(message.id.as_deref().unwrap_or_default());
        draft.start();
        let content = message.content.map_or("", RawValue::get);
        if let Ok(text) = serde_json::from_str::<Lossy<'_>>(content)
            && !text.is_empty()
        {
            // Requests may have text in place of a list, and some hosts answer so.
            draft.block(BlockKind::Text, &text);
        }
        let blocks: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
        for (number, block) in (0..).zip(blocks) {
            self.begin(draft, number, block);
            self.end_block(draft, number);
        }
        self.stopped(message.stop_reason);
        count(message.usage, draft.usage_mut());
    }

    fn begin(&mut self, draft: &mut Draft, number: u64, raw: &RawValue) {
        // Some hosts don't end blocks.
        self.end_block(draft, number);
        // A block of another shape is one that isn't known.
        let block: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        let (at, rest) = match block.kind.as_deref().unwrap_or_default() {
            "text" => {
                let at = draft.open(BlockKind::Text);
                append(draft, at, block.text.as_ref());
                let citations = block.citations.into_iter().flatten();
                (at, Rest::Text(citations.map(|citation| citation.get().to_owned()).collect()))
            }
            "thinking" => {
                let at = draft.open(BlockKind::Thinking { redacted: false });
                append(draft, at, block.thinking.as_ref());
                sign(draft, at, block.signature.as_ref());
                (at, Rest::Thinking)
            }
            "redacted_thinking" => {
                let at = draft.open(BlockKind::Thinking { redacted: true });
                sign(draft, at, block.data.as_ref());
                (at, Rest::Thinking)
            }
            "tool_use" => {
                let (id, name) = (block.id.unwrap_or_default(), block.name.unwrap_or_default());
                let at = draft.open(BlockKind::ToolCall { id: id.into_string(), name: name.into_string() });
                // Code that the server runs can be the caller; then the call has to go back with it.
                if let Some(caller) = block.caller.filter(|caller| !is_direct(caller)) {
                    draft.sign(at, caller.get());
                }
                (at, Rest::ToolCall(block.input.map_or_else(String::new, input)))
            }
            _ => (draft.open(BlockKind::Opaque), Rest::Opaque(OpaqueBlock::new(raw))),
        };
        self.open.push(OpenBlock { number, at, rest });
    }

    fn delta(&mut self, draft: &mut Draft, event: &Event<'_>, json: &str) {
        let Some(delta) = &event.delta else { return };
        let kind = delta.kind.as_deref().unwrap_or_default();
        self.begin_unannounced(draft, event.number(), kind);
        let Some(OpenBlock { at, rest, .. }) = self.open_block(event.number()) else { return };
        match (rest, kind) {
            (Rest::Text(_), "text_delta") => append(draft, *at, delta.text.as_ref()),
            (Rest::Thinking, "thinking_delta") => append(draft, *at, delta.thinking.as_ref()),
            (Rest::Thinking, "signature_delta") => sign(draft, *at, delta.signature.as_ref()),
            (Rest::ToolCall(_), "input_json_delta") => append(draft, *at, delta.partial_json.as_ref()),
            (Rest::Text(citations), "citations_delta") => {
                citations.extend(delta.citation.map(|citation| citation.get().to_owned()));
            }
            (Rest::Opaque(block), _) => block.merge(json),
            _ => {}
        }
    }

    /// Some hosts don't begin blocks, or go on in another kind under the same number.
    fn begin_unannounced(&mut self, draft: &mut Draft, number: u64, delta: &str) {
        let (kind, rest) = match delta {
            "text_delta" => (BlockKind::Text, Rest::Text(Vec::new())),
            "thinking_delta" => (BlockKind::Thinking { redacted: false }, Rest::Thinking),
            _ => return,
        };
        let goes_on = |block: &mut OpenBlock| {
            discriminant(&block.rest) == discriminant(&rest) || matches!(block.rest, Rest::Opaque(_))
        };
        if !self.open_block(number).is_some_and(goes_on) {
            self.end_block(draft, number);
            self.open.push(OpenBlock { number, at: draft.open(kind), rest });
        }
    }

    fn open_block(&mut self, number: u64) -> Option<&mut OpenBlock> {
        self.open.iter_mut().find(|block| block.number == number)
    }

    fn end_block(&mut self, draft: &mut Draft, number: u64) {
        if let Some(place) = self.open.iter().position(|block| block.number == number) {
            self.open.remove(place).end(draft);
        }
    }

    fn stopped(&mut self, reason: Option<Lossy<'_>>) {
        self.stop_reason = reason.map(Lossy::into_string).or(self.stop_reason.take());
    }

    fn stop(&mut self, draft: &mut Draft) -> Stop {
        for block in self.open.drain(..) {
            block.end(draft);
        }
        let raw = self.stop_reason.take();
        let reason = match raw.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            Some("pause_turn") => StopReason::Pause,
            Some("refusal") => StopReason::Refusal,
            Some("tool_use") => StopReason::ToolUse,
            _ if draft.has_tool_calls() => StopReason::ToolUse,
            // `end_turn`, `stop_sequence`, and reasons that are not known yet.
            _ => StopReason::Stop,
        };
        Stop { reason, raw }
    }
}

impl OpenBlock {
    fn end(self, draft: &mut Draft) {
        match self.rest {
            Rest::Text(citations) if !citations.is_empty() => {
                if let Ok(citations) = RawJson::parse(&format!("[{}]", citations.join(","))) {
                    draft.annotate(self.at, citations);
                }
            }
            Rest::ToolCall(input) if draft.text(self.at).is_empty() => draft.append(self.at, &input),
            Rest::Opaque(block) => draft.append(self.at, &block.into_json()),
            Rest::Text(_) | Rest::Thinking | Rest::ToolCall(_) => {}
        }
        draft.close(self.at);
    }
}

/// A block that goes back as it came, with what was streamed of it put in.
struct OpaqueBlock {
    json: String,
    /// The streamed value of the field `input`, which is JSON.
    input: String,
    /// Streamed ends of fields that are strings: a `compaction_delta` has `content`, for example.
    texts: BTreeMap<String, String>,
}

impl OpaqueBlock {
    fn new(raw: &RawValue) -> Self {
        let json = replace_lone_surrogates(raw.get()).into_owned();
        Self { json, input: String::new(), texts: BTreeMap::new() }
    }

    fn merge(&mut self, event: &str) {
        let Ok(event) = serde_json::from_str::<OpaqueEvent<'_>>(event) else { return };
        for (field, value) in event.delta {
            let Ok(text) = serde_json::from_str::<Lossy<'_>>(value.get()) else { continue };
            match &*field {
                "type" => {}
                "partial_json" => self.input.push_str(&text),
                _ => self.texts.entry(field.into_owned()).or_default().push_str(&text),
            }
        }
    }

    fn into_json(self) -> String {
        match self.input.is_empty() && self.texts.is_empty() {
            true => self.json,
            false => self.merged().unwrap_or(self.json),
        }
    }

    fn merged(&self) -> Option<String> {
        let mut fields: BTreeMap<Cow<'_, str>, Cow<'_, RawValue>> = serde_json::from_str(&self.json).ok()?;
        if let Ok(input) = RawValue::from_string(replace_lone_surrogates(&self.input).into_owned()) {
            fields.insert("input".into(), Cow::Owned(input));
        }
        for (field, end) in &self.texts {
            let start = fields.get(&**field).and_then(|start| serde_json::from_str::<Lossy<'_>>(start.get()).ok());
            let whole = start.unwrap_or_default().into_string() + end;
            fields.insert(field.into(), Cow::Owned(to_raw_value(&whole).ok()?));
        }
        serde_json::to_string(&fields).ok()
    }
}

fn append(draft: &mut Draft, at: usize, fragment: Option<&Fragment<'_>>) {
    if let Some(fragment) = fragment {
        draft.append_fragment(at, fragment);
    }
}

fn sign(draft: &mut Draft, at: usize, signature: Option<&Lossy<'_>>) {
    if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
        draft.sign(at, signature);
    }
}

/// The arguments of a call; some hosts send the text of the object in place of the object.
fn input(raw: &RawValue) -> String {
    match serde_json::from_str::<Lossy<'_>>(raw.get()) {
        Ok(text) => text.into_string(),
        Err(_) => raw.get().to_owned(),
    }
}

fn is_direct(caller: &RawValue) -> bool {
    serde_json::from_str::<Typed<'_>>(caller.get()).is_ok_and(|caller| caller.kind.as_deref() == Some("direct"))
}

/// Takes over what is told. Numbers are totals so far, and null or nothing says nothing.
fn count(told: Option<&RawValue>, usage: &mut Usage) {
    let Some(told) = told.and_then(|told| serde_json::from_str::<Told<'_>>(told.get()).ok()) else { return };
    let set = |total: &mut u64, told: Option<&RawValue>| {
        if let Some(number) = told.and_then(|told| told.get().parse::<f64>().ok()) {
            *total = number as u64;
        }
    };
    set(&mut usage.input, told.input_tokens);
    set(&mut usage.cache_read, told.cache_read_input_tokens);
    set(&mut usage.cache_write, told.cache_creation_input_tokens);
    set(&mut usage.cache_write_long, told.cache_creation.and_then(|by_time| by_time.ephemeral_1h_input_tokens));
    set(&mut usage.output, told.output_tokens);
    set(&mut usage.reasoning, told.output_tokens_details.and_then(|details| details.thinking_tokens));
}

/// An event that isn't JSON, or has another shape than those that are known.
fn unfit(event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
    if event.name == "error" {
        return Err(ModelError::new(ErrorKind::Server, &*event.data));
    }
    let kind = serde_json::from_str::<Typed<'_>>(&event.data).ok().and_then(|event| event.kind);
    let is_new = kind.is_some_and(|kind| !kind.starts_with("content_block_") && !kind.starts_with("message_"));
    if is_new { Ok(None) } else { Err(protocol(format!("an event that can't be read: {}", excerpt(&event.data)))) }
}

/// The error that a provider sent as JSON.
fn told(json: &str) -> ModelError {
    match serde_json::from_str(&replace_lone_surrogates(json)) {
        Ok(value) => failure::from_json(&value, None),
        Err(error) => protocol(error.to_string()),
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(200).collect()
}

fn protocol(message: impl Into<String>) -> ModelError {
    ModelError::new(ErrorKind::Protocol, message)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type", default, deserialize_with = "lax")]
    kind: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "lax")]
    index: Option<u64>,
    delta: Option<Delta<'a>>,
    content_block: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl Event<'_> {
    fn number(&self) -> u64 {
        self.index.unwrap_or(0)
    }
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Lossy<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type", default, deserialize_with = "lax")]
    kind: Option<Cow<'a, str>>,
    text: Option<Fragment<'a>>,
    thinking: Option<Fragment<'a>>,
    signature: Option<Lossy<'a>>,
    partial_json: Option<Fragment<'a>>,
    citation: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    stop_reason: Option<Lossy<'a>>,
}

#[derive(Deserialize)]
struct OpaqueEvent<'a> {
    #[serde(borrow)]
    delta: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    id: Option<Lossy<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    stop_reason: Option<Lossy<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type", default, deserialize_with = "if_it_fits")]
    kind: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    text: Option<Fragment<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    citations: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    thinking: Option<Fragment<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    signature: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    data: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    id: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    name: Option<Lossy<'a>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    caller: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    cache_read_input_tokens: Option<&'a RawValue>,
    cache_creation_input_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    cache_creation: Option<ByTime<'a>>,
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    output_tokens_details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct ByTime<'a> {
    #[serde(borrow)]
    ephemeral_1h_input_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    thinking_tokens: Option<&'a RawValue>,
}
