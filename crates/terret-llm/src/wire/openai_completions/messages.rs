//! The messages of a request.
//!
//! A tool result is text on this wire: its images go in a user message after all results of the turn, and that it is an
//! error has to stand in its text.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::encode::Single;
use crate::model::Compat;
use crate::request::{CacheRetention, Options};
use crate::transcript::{
    AssistantMessage, Block, Content, Image, Message, Text, Thinking, ToolCall, ToolResultMessage, UserMessage,
};
use crate::wire::EncodeError;
use crate::wire::body::MessageList;
use crate::wire::handoff::Group;

/// Stands between a tool result and a user message, for hosts that can't do without.
const REPLY_BETWEEN: &str = "The tool results are there.";
/// Stands for a tool result of images only.
const IMAGES_BELOW: &str = "(see the images below)";

/// The messages of a group.
pub(super) fn group(
    compat: &Compat,
    options: &Options,
    group: &Group<'_>,
    list: &mut MessageList,
) -> Result<(), EncodeError> {
    let results =
        || group.results.iter().filter_map(|it| if let Message::ToolResult(it) = &**it { Some(it) } else { None });
    let with_images: Vec<_> = results().filter(|result| images(&result.content).next().is_some()).collect();
    let first = match &*group.message {
        Message::User(user) => WireMessage::User(user),
        Message::Assistant(reply) => WireMessage::Reply(reply),
        Message::ToolResult(result) => WireMessage::Result(result),
    };
    let after_result = compat.reply_after_tool_result && list.last_role() == Some(TOOL);
    let mut messages = Vec::with_capacity(group.results.len() + 3);
    messages.extend((after_result && first.role() == USER).then_some(WireMessage::ReplyBetween));
    messages.push(first);
    messages.extend(results().map(WireMessage::Result));
    if !with_images.is_empty() {
        messages.extend(compat.reply_after_tool_result.then_some(WireMessage::ReplyBetween));
        messages.push(WireMessage::Images(with_images));
    }
    let mark = CacheControl::of(compat, options.cache).filter(|_| group.is_last_of_user);
    let marked = mark.and_then(|_| messages.iter().rposition(|message| message.role() != ASSISTANT));
    messages.iter().enumerate().try_for_each(|(index, message)| {
        let mark = mark.filter(|_| Some(index) == marked);
        list.push(message.role(), &InContext { message, compat, mark })
    })
}

const USER: &str = "user";
const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

/// The system prompt, which stands before all messages.
pub(super) struct System<'a> {
    pub(super) text: &'a str,
    pub(super) compat: &'a Compat,
    pub(super) mark: Option<CacheControl>,
}

impl Serialize for System<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", if self.compat.developer_role { "developer" } else { "system" })?;
        content(&mut map, self.mark, std::iter::once(Part::text(self.text)))?;
        map.end()
    }
}

enum WireMessage<'a> {
    User(&'a UserMessage),
    Reply(&'a AssistantMessage),
    ReplyBetween,
    Result(&'a ToolResultMessage),
    Images(Vec<&'a ToolResultMessage>),
}

impl WireMessage<'_> {
    fn role(&self) -> &'static str {
        match self {
            WireMessage::User(_) | WireMessage::Images(_) => USER,
            WireMessage::Reply(_) | WireMessage::ReplyBetween => ASSISTANT,
            WireMessage::Result(_) => TOOL,
        }
    }
}

/// Anthropic's mark, for the system prompt and for the last message of the user's.
#[derive(Clone, Copy, Serialize)]
pub(super) struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    pub(super) fn of(compat: &Compat, retention: CacheRetention) -> Option<Self> {
        (compat.cache_control && retention != CacheRetention::None)
            .then(|| Self { kind: "ephemeral", ttl: (retention == CacheRetention::Long).then_some("1h") })
    }
}

struct InContext<'a> {
    message: &'a WireMessage<'a>,
    compat: &'a Compat,
    mark: Option<CacheControl>,
}

impl Serialize for InContext<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let InContext { message, compat, mark } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", message.role())?;
        match message {
            WireMessage::User(user) => content(&mut map, mark, user.content.iter().map(Part::from))?,
            WireMessage::Reply(message) => reply(&mut map, compat, message)?,
            WireMessage::ReplyBetween => map.serialize_entry("content", REPLY_BETWEEN)?,
            WireMessage::Result(result) => {
                map.serialize_entry("tool_call_id", &result.tool_call_id)?;
                if compat.tool_result_name {
                    map.serialize_entry("name", &result.tool_name)?;
                }
                let texts = || result.content.iter().filter_map(Content::as_text);
                let text = match (texts().count(), texts().next()) {
                    (1, Some(text)) => Cow::Borrowed(text),
                    (0, _) => Cow::Borrowed(IMAGES_BELOW),
                    _ => Cow::Owned(texts().collect::<Vec<_>>().join("\n")),
                };
                content(&mut map, mark, std::iter::once(Part::text(&text)))?;
            }
            WireMessage::Images(results) => {
                let titles: Vec<String> =
                    results.iter().map(|result| format!("Images of the result of {}:", result.tool_call_id)).collect();
                let parts = results.iter().zip(&titles).flat_map(|(result, title)| {
                    std::iter::once(Part::text(title)).chain(images(&result.content).map(Part::image))
                });
                content(&mut map, mark, parts)?;
            }
        }
        map.end()
    }
}

/// The content of a message: a string if it is one unmarked text, else a list of parts, of which the last is marked.
fn content<'a, M: SerializeMap>(
    map: &mut M,
    mark: Option<CacheControl>,
    parts: impl Iterator<Item = Part<'a>>,
) -> Result<(), M::Error> {
    let mut parts: Vec<Part<'_>> = parts.collect();
    if let ([Part { text: Some(text), .. }], None) = (parts.as_slice(), mark) {
        return map.serialize_entry("content", text);
    }
    if let Some(last) = parts.last_mut() {
        last.cache_control = mark;
    }
    map.serialize_entry("content", &parts)
}

#[derive(Serialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_url: Option<Single<DataUrl<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> Part<'a> {
    fn text(text: &'a str) -> Self {
        Part { kind: "text", text: Some(text), image_url: None, cache_control: None }
    }

    fn image(image: &'a Image) -> Self {
        let image_url = Some(Single("url", DataUrl(image)));
        Part { kind: "image_url", text: None, image_url, cache_control: None }
    }
}

impl<'a> From<&'a Content> for Part<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Text(text) => Part::text(&text.text),
            Content::Image(image) => Part::image(image),
        }
    }
}

/// Written straight into the body: an image is large.
struct DataUrl<'a>(&'a Image);

impl fmt::Display for DataUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.0.media_type, self.0.base64())
    }
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn images(content: &[Content]) -> impl Iterator<Item = &Image> {
    content.iter().filter_map(|content| if let Content::Image(image) = content { Some(image) } else { None })
}

fn reply<M: SerializeMap>(map: &mut M, compat: &Compat, reply: &AssistantMessage) -> Result<(), M::Error> {
    let calls: Vec<Call<'_>> = reply.tool_calls().map(Call::from).collect();
    reply_content(map, compat, reply, calls.is_empty())?;
    reply_reasoning(map, compat, reply)?;
    if !calls.is_empty() {
        map.serialize_entry("tool_calls", &calls)?;
    }
    Ok(())
}

/// The text, as one string: the wire has no place for text between calls. A vendor's own parts make it a list.
fn reply_content<M: SerializeMap>(
    map: &mut M,
    compat: &Compat,
    reply: &AssistantMessage,
    is_answer: bool,
) -> Result<(), M::Error> {
    if reply.content.iter().any(|block| matches!(block, Block::Opaque(_))) {
        let parts = reply.content.iter().filter_map(|block| match block {
            Block::Text(Text { text, .. }) if !text.is_empty() => Some(ReplyPart::Text(Part::text(text))),
            Block::Opaque(opaque) => serde_json::from_str(opaque.raw.as_str()).ok().map(ReplyPart::Opaque),
            _ => None,
        });
        return map.serialize_entry("content", &parts.collect::<Vec<_>>());
    }
    let mut texts =
        reply.content.iter().filter_map(Block::as_text).map(|text| &*text.text).filter(|text| !text.is_empty());
    match (texts.next(), texts.next()) {
        (None, _) if compat.null_content && !is_answer => map.serialize_entry("content", &()),
        (None, _) => map.serialize_entry("content", ""),
        (Some(text), None) => map.serialize_entry("content", text),
        (Some(_), Some(_)) => map.serialize_entry("content", &reply.text()),
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ReplyPart<'a> {
    Text(Part<'a>),
    Opaque(&'a RawValue),
}

/// Reasoning goes back as the details that came with it, or as text where the host wants that.
fn reply_reasoning<M: SerializeMap>(map: &mut M, compat: &Compat, reply: &AssistantMessage) -> Result<(), M::Error> {
    let thinking =
        || reply.content.iter().filter_map(|block| if let Block::Thinking(it) = block { Some(it) } else { None });
    let details: Vec<&RawValue> = thinking().filter_map(details).flatten().collect();
    if !details.is_empty() {
        return map.serialize_entry("reasoning_details", &details);
    }
    let Some(field) = compat.reasoning_field else { return Ok(()) };
    let text: String = thinking().map(|thinking| &*thinking.thinking).collect();
    if text.is_empty() && !compat.reasoning_field_always { Ok(()) } else { map.serialize_entry(field, &text) }
}

/// The details that a thinking block came with stand in its signature, as a JSON list.
fn details(thinking: &Thinking) -> Option<Vec<&RawValue>> {
    serde_json::from_str(thinking.signature.as_deref()?).ok()
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
    /// Google's thought signature, where it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> From<&'a ToolCall> for Call<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let signature = call.signature.as_deref().filter(|signature| signature.starts_with('{'));
        Self {
            id: &call.id,
            kind: "function",
            function: Function { name: &call.name, arguments: call.arguments.as_str() },
            extra_content: signature.and_then(|signature| serde_json::from_str(signature).ok()),
        }
    }
}
